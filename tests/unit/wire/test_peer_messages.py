"""Sealed messages of peers: what is refused, in which order, and that nothing mutated is ever accepted."""

from __future__ import annotations

import contextlib
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import ConfigError, WireError
from tacit.testing import two_tastes
from tacit.updates import PeerModels
from tacit.wire.network import PeerNetwork, read_network, write_network
from tacit.wire.peer_messages import (
    GOODBYE,
    HEAD_BYTES,
    LIFETIME,
    MODEL,
    PULL,
    RECORDS,
    OpenedMessage,
    PeerAck,
    PeerSeal,
    most_bytes,
    pad_content,
    read_model,
    read_records,
    write_model,
    write_records,
)
from tacit.wire.peer_records import LIFETIME as RECORD_LIFETIME
from tacit.wire.peer_records import SKEW, PeerIdentity, PeerRecord, peer_number
from tacit.wire.peer_refusals import PeerMessageError, PeerRefusal

NETWORK, SECRET, NOW = bytes(range(32)), bytes(32), 1_800_000_000
ALICE, BOB, EVE = (PeerIdentity.fresh() for _ in range(3))
A, B = (PeerSeal(who, NETWORK, SECRET) for who in (ALICE, BOB))
TO_BOB, TO_ALICE = (who.record(NETWORK, NOW) for who in (BOB, ALICE))


def accept(seal: PeerSeal, content: bytes, now: float = NOW, most: int = 2**20) -> tuple[int, bytes]:
    """Read a message as a peer does."""
    envelope = seal.read(content, most)
    envelope.refuse_if_expired(now)
    seal.refuse_if_forged(envelope)
    opened = seal.open(envelope)
    return opened.kind, bytes(opened.content)


def refusal(seal: PeerSeal, content: bytes, now: float = NOW, most: int = 2**20) -> PeerRefusal:
    with pytest.raises(PeerMessageError) as caught:
        accept(seal, content, now, most)
    return caught.value.why


@given(st.binary(max_size=5000), st.integers(0, 2**64 - 1))
@settings(max_examples=30)
def test_a_message_opens_for_its_receiver_as_it_was_sealed(content: bytes, sequence: int) -> None:
    sealed = A.seal(TO_BOB, sequence, NOW, MODEL, content)
    assert accept(B, sealed) == (MODEL, content)
    assert B.read(sealed).sequence == sequence
    assert B.read(sealed).sender == ALICE.id
    assert len(sealed) == most_bytes(len(content))


def test_each_refusal_has_its_reason() -> None:
    sealed = A.seal(TO_BOB, 5, NOW, MODEL, b"x" * 100)
    assert refusal(B, sealed, most=len(sealed) - 1) == PeerRefusal.TOO_LARGE
    assert refusal(B, b"") == PeerRefusal.MALFORMED
    assert refusal(B, sealed[:-1]) == PeerRefusal.MALFORMED
    assert refusal(B, sealed + b"\0") == PeerRefusal.MALFORMED
    assert refusal(PeerSeal(BOB, bytes(32), SECRET), sealed) == PeerRefusal.OTHER_NETWORK
    assert refusal(PeerSeal(EVE, NETWORK, SECRET), sealed) == PeerRefusal.OTHER_RECEIVER
    assert refusal(A, A.seal(TO_ALICE, 5, NOW, MODEL, b"")) == PeerRefusal.OTHER_RECEIVER
    assert refusal(B, sealed, now=NOW + LIFETIME + SKEW + 1) == PeerRefusal.EXPIRED
    assert refusal(B, sealed, now=NOW - SKEW - 1) == PeerRefusal.EXPIRED
    assert refusal(B, sealed[:-16] + bytes(16)) == PeerRefusal.UNSEALED
    assert refusal(B, sealed[: HEAD_BYTES + 90] + bytes(62) + sealed[HEAD_BYTES + 152 :]) == PeerRefusal.FORGED
    assert refusal(PeerSeal(BOB, NETWORK, b"1" * 32), sealed) == PeerRefusal.UNSEALED
    assert refusal(B, A.seal(TO_BOB, 5, NOW, 99, b"")) == PeerRefusal.UNKNOWN_KIND
    assert accept(B, sealed, now=NOW + LIFETIME) == (MODEL, b"x" * 100)


def test_a_reply_belongs_to_one_message_only() -> None:
    first, second = (A.seal(TO_BOB, n, NOW, PULL, b"") for n in (1, 2))
    reply = B.seal(TO_ALICE, 1, NOW, RECORDS, b"abc", about=B.read(first).digest)
    assert A.open_reply(reply, first, NOW, RECORDS)[1] == b"abc"
    with pytest.raises(PeerMessageError):
        A.open_reply(reply, second, NOW, RECORDS)
    with pytest.raises(PeerMessageError):
        A.open_reply(reply, first, NOW, MODEL)
    assert refusal(A, reply) == PeerRefusal.REPEATED  # a reply is no message


def test_an_acknowledgement_is_of_its_message_and_receiver() -> None:
    sealed, other = (A.seal(TO_BOB, n, NOW, MODEL, b"m") for n in (1, 2))
    ack = B.open(B.read(sealed)).acknowledge(True, NOW + 3)
    assert A.read_ack(ack + b"rest", sealed) == PeerAck(True, NOW + 3, b"rest")
    assert A.read_ack(ack, other) is None
    assert PeerSeal(EVE, NETWORK, SECRET).read_ack(ack, sealed) is None
    assert A.read_ack(b"\0" + ack[1:], sealed) is None
    assert A.read_ack(ack[:-1], sealed) is None
    again = OpenedMessage(MODEL, bytes(32), memoryview(b"")).acknowledge(
        True, NOW + 3
    )  # by a peer that could not open it
    assert A.read_ack(again, sealed) is None


def test_sizes_come_in_few_classes() -> None:
    sizes = {len(pad_content(bytes(n))) for n in range(1, 200_000, 37)}
    assert len(sizes) < 60
    assert all(len(pad_content(bytes(n))) - n <= max(512, n, 1) for n in (1, 511, 512, 4095, 4096, 100_000))
    assert len(pad_content(bytes(200_000))) < 200_000 * 1.13


def test_records_are_signed_for_one_network_and_a_while() -> None:
    record = ALICE.record(NETWORK, NOW)
    assert PeerRecord.unpack(record.packed) == record
    assert record.is_valid(NETWORK, NOW)
    assert not record.is_valid(bytes(32), NOW)
    assert not record.is_valid(NETWORK, NOW + RECORD_LIFETIME + 1)
    assert not record.is_valid(NETWORK, NOW - SKEW - 1)
    forged = PeerRecord(record.signing, BOB.record(NETWORK, NOW).sealing, NOW, record.expires, record.signature)
    assert not forged.is_valid(NETWORK, NOW)
    assert read_records(write_records([record, forged, record]), NETWORK, NOW) == [record]
    assert read_records(write_records([forged, TO_BOB]), NETWORK, NOW) == [TO_BOB]
    known = {record.packed}  # what was checked before may still be too old, and others are checked
    assert read_records(write_records([record, forged, TO_BOB]), NETWORK, NOW, known) == [record, TO_BOB]
    assert read_records(write_records([record]), NETWORK, NOW + RECORD_LIFETIME + 1, known) == []
    with pytest.raises(PeerMessageError):
        read_records(b"x", NETWORK, NOW)
    assert 0 <= peer_number(record.id) < 2**63


def small_model() -> PeerModels:
    tables = {"items": np.ones((1, 2, 3), np.float32), "layers": np.zeros((1, 3), np.float32)}
    return PeerModels(np.array([4]), tables, np.array([9]), np.array([2]))


def test_a_model_is_read_as_it_was_written() -> None:
    written = b"".join(write_model(small_model()))
    model = read_model(written, 77)
    assert (model.senders[0], model.samples[0], model.ages[0]) == (77, 9, 2)
    assert np.array_equal(model.tables["items"], small_model().tables["items"])
    for content in (b"", b"\xff" * 16, written[:-1]):
        with pytest.raises(WireError):
            read_model(content, 1)


def mutate(content: bytes, draws: random.Random) -> bytes:
    """Change a message somewhere: bits, lengths, order, or parts of another."""
    found = bytearray(content)
    how = draws.randrange(6)
    if how == 0:
        found[draws.randrange(len(found))] ^= 1 << draws.randrange(8)
    elif how == 1:
        del found[draws.randrange(len(found)) :]
    elif how == 2:
        found += draws.randbytes(draws.randrange(1, 40))
    elif how == 3:
        at = draws.randrange(HEAD_BYTES)
        found[at : at + 8] = draws.randbytes(8)
    elif how == 4:
        at, n = draws.randrange(len(found)), draws.randrange(1, 30)
        del found[at : at + n]
    else:
        found = bytearray(draws.randbytes(draws.randrange(300)))
    return bytes(found)


def check_mutations(n: int) -> None:
    """No mutated message is accepted, and each is refused by a typed error."""
    draws = random.Random(n)
    messages = [A.seal(TO_BOB, at, NOW, kind, draws.randbytes(50 * at)) for at, kind in enumerate((MODEL, GOODBYE))]
    model, records = b"".join(write_model(small_model())), write_records([TO_BOB, TO_ALICE])
    accepted = 0
    for number in range(n):
        original = messages[number % 2]
        changed = mutate(original, draws)
        with contextlib.suppress(PeerMessageError):
            accepted += changed != original and accept(B, changed) is not None
        if number % 4 == 0:  # what a member sends may be anything: decoders see it after the signature
            with contextlib.suppress(WireError):
                read_model(mutate(model, draws), 1)
            with contextlib.suppress(WireError):
                found = read_records(mutate(records, draws), NETWORK, NOW)
                assert all(record in (TO_BOB, TO_ALICE) for record in found)
    assert accepted == 0


def test_no_mutated_message_is_accepted() -> None:
    check_mutations(4000)


@pytest.mark.fuzz
def test_no_mutated_message_of_a_million_is_accepted() -> None:
    check_mutations(1_000_000)


def test_the_terms_of_a_network_are_read_as_they_were_written() -> None:
    catalog = two_tastes()[1]
    network = PeerNetwork.create("0" * 32, "n", "pepper", {"view": 2}, catalog, 5)
    content = write_network(network, catalog)
    found, items = read_network(content, network.digest)
    assert found == network
    assert items.item_ids.labels.tolist() == catalog.item_ids.labels.tolist()
    for bad in (content[:-1], content[:40], b"TCPN" + content[5:], content.replace(b'"view":2', b'"view":3')):
        with pytest.raises(WireError):
            read_network(bad, network.digest)
    with pytest.raises(WireError):
        read_network(content, bytes(32))
    for method, given_options in (("fpl", {}), ("pepper", {"epochs": 4})):
        with pytest.raises(ConfigError):
            PeerNetwork.create("0" * 32, "n", method, given_options, catalog, 5)
