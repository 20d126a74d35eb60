"""Whatever bytes arrive: a message in its one form, or a named error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.mutations import bend
from helpers.refusals import refused
from helpers.secure_session import PHASES, Party
from tacit.errors import MessageError, SecureSumError
from tacit.protocols.secure_aggregation.bytes import MOST_BYTES, ByteReader, from_bits, to_bits
from tacit.protocols.secure_aggregation.draw import DrawProof
from tacit.protocols.secure_aggregation.masks import bytes_of
from tacit.protocols.secure_aggregation.messages import (
    Advert,
    Codes,
    MaskedVector,
    MessageType,
    Roster,
    SessionInvitation,
    ShareInbox,
    Shares,
    Survivors,
    Unmasking,
)
from tacit.reasons import ReasonCode

N_PEOPLE = 5
Decoder = Callable[[bytes], object]


def exchanged() -> dict[MessageType, bytes]:
    """Return one message of each kind."""
    party = Party.of(N_PEOPLE, threshold=3)
    found = {}
    for _ in PHASES:
        for message in (party.inbox[1], party.answer(1)):
            found[MessageType(message[1])] = message
        party.server.receive(party.devices[1].last_answer)
        for person in (0, 2, 3, 4):
            party.server.receive(party.answer(person))
        party.inbox = party.server.advance()
    shown = DrawProof(bytes(32), tuple(bytes([n]) * 32 for n in range(N_PEOPLE)))
    invitation = SessionInvitation.decode(found[MessageType.INVITATION])
    found[MessageType.INVITATION] = replace(invitation, drawn=shown).encode()
    return found


MESSAGES = exchanged()
SIZE = bytes_of(Party.of(N_PEOPLE).terms.layout.sizes)
DECODERS: dict[MessageType, Decoder] = {
    MessageType.INVITATION: SessionInvitation.decode,
    MessageType.ADVERT: Advert.decode,
    MessageType.ROSTER: lambda data: Roster.decode(data, N_PEOPLE),
    MessageType.SHARES: Shares.decode,
    MessageType.INBOX: lambda data: ShareInbox.decode(data, N_PEOPLE),
    MessageType.MASKED: lambda data: MaskedVector.decode(data, SIZE),
    MessageType.SURVIVORS: lambda data: Survivors.decode(data, N_PEOPLE),
    MessageType.CONFIRMATION: Codes.decode_sent,
    MessageType.CONFIRMED: Codes.decode,
    MessageType.UNMASKING: Unmasking.decode,
}


def encoded_again(kind: MessageType, data: bytes) -> bytes:
    """Read a message and write it anew."""
    context = data[2:34]
    if kind == MessageType.INVITATION:
        return SessionInvitation.decode(data).encode()
    if kind == MessageType.ADVERT:
        return Advert.decode(data)[1].encode(context)
    if kind == MessageType.ROSTER:
        return Roster.decode(data, N_PEOPLE)[1].encode(context, N_PEOPLE)
    if kind == MessageType.INBOX:
        return ShareInbox.decode(data, N_PEOPLE)[1].encode(context, N_PEOPLE)
    if kind == MessageType.SURVIVORS:
        return Survivors.decode(data, N_PEOPLE)[1].encode(context, N_PEOPLE)
    if kind == MessageType.CONFIRMED:
        return Codes.decode(data)[1].encode(context)
    if kind == MessageType.CONFIRMATION:
        _, sender, codes, code = Codes.decode_sent(data)
        return codes.encode(context, sender) + code
    if kind == MessageType.SHARES:
        _, shares, code = Shares.decode(data)
        return shares.encode(context) + code
    if kind == MessageType.MASKED:
        _, masked, code = MaskedVector.decode(data, SIZE)
        return masked.encode(context) + code
    _, unmasking, code = Unmasking.decode(data)
    return unmasking.encode(context) + code


@pytest.mark.parametrize("kind", DECODERS, ids=lambda kind: kind.name.lower())
def test_a_message_is_written_in_one_way_only(kind: MessageType) -> None:
    assert encoded_again(kind, MESSAGES[kind]) == MESSAGES[kind]


@pytest.mark.parametrize("kind", DECODERS, ids=lambda kind: kind.name.lower())
def test_cut_off_or_prolonged_messages_are_refused(kind: MessageType) -> None:
    message = MESSAGES[kind]
    for size in (0, 1, 2, 33, 34, len(message) // 2, len(message) - 1):
        with pytest.raises(SecureSumError):
            DECODERS[kind](message[:size])
    with pytest.raises(SecureSumError):
        DECODERS[kind](message + b"\0")


def check_mutations(kind: MessageType, times: int, seed: int) -> None:
    """Bend a message in many ways; each is refused by name, or reads as exactly what it says."""
    message, decode = MESSAGES[kind], DECODERS[kind]
    generator = np.random.default_rng(seed)
    for _ in range(times):
        data = bend(message, generator)
        try:
            decode(data)
        except SecureSumError:
            pass
        else:
            assert encoded_again(kind, data) == data, f"{data.hex()} is read, but written otherwise"


@pytest.mark.parametrize("kind", DECODERS, ids=lambda kind: kind.name.lower())
def test_bent_messages_are_refused_by_name(kind: MessageType) -> None:
    check_mutations(kind, 1500, seed=int(kind))


@pytest.mark.fuzz
@pytest.mark.parametrize("kind", DECODERS, ids=lambda kind: kind.name.lower())
def test_a_million_bent_messages(kind: MessageType) -> None:
    check_mutations(kind, 1_000_000, seed=1000 + int(kind))


@settings(max_examples=300)
@given(st.binary(max_size=400), st.sampled_from(sorted(DECODERS)))
def test_any_bytes_are_refused_by_name(data: bytes, kind: MessageType) -> None:
    for start in (b"", bytes([1, kind]), bytes([1, kind]) + bytes(32)):
        try:
            DECODERS[kind](start + data)
        except SecureSumError:
            continue
        assert encoded_again(kind, start + data) == start + data


@given(st.sets(st.integers(0, 99)), st.integers(100, 130))
def test_sets_of_people_travel_as_bits(people: set[int], n_participants: int) -> None:
    assert from_bits(to_bits(people, n_participants), n_participants) == people


def test_bits_beyond_the_cohort_and_huge_messages_are_refused() -> None:
    with refused(MessageError, ReasonCode.MALFORMED_MESSAGE):
        from_bits(to_bits([11], 12), 11)
    with refused(MessageError, ReasonCode.MALFORMED_MESSAGE):
        ByteReader(bytes(11), "It", most=10)
    assert MOST_BYTES >= 47270 * 21 * 8, "the largest table of the papers must fit"


def test_a_length_that_is_not_there_allocates_nothing() -> None:
    message = bytearray(MESSAGES[MessageType.ROSTER])
    message[34:38] = (2**32 - 1).to_bytes(4, "little")
    with pytest.raises(SecureSumError):
        Roster.decode(bytes(message), N_PEOPLE)
