"""Whatever bytes arrive: a message in its one form, or a named error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.refusals import refused
from helpers.secure_session import PHASES, Party
from tacit.errors import MessageError, SecureSumError
from tacit.privacy.secure.draw import Drawn
from tacit.privacy.secure.masks import bytes_of
from tacit.privacy.secure.messages import (
    Advert,
    Codes,
    Inbox,
    Invitation,
    Masked,
    Roster,
    Shares,
    Survivors,
    Type,
    Unmasking,
)
from tacit.privacy.secure.wire import MOST_BYTES, Reader, from_bits, to_bits
from tacit.reasons import ReasonCode

N_PEOPLE = 5
Decoder = Callable[[bytes], object]


def exchanged() -> dict[Type, bytes]:
    """Return one message of each kind."""
    party = Party.of(N_PEOPLE, threshold=3)
    found = {}
    for _ in PHASES:
        for message in (party.inbox[1], party.answer(1)):
            found[Type(message[1])] = message
        party.server.receive(party.devices[1].last_answer)
        for person in (0, 2, 3, 4):
            party.server.receive(party.answer(person))
        party.inbox = party.server.advance()
    shown = Drawn(bytes(32), tuple(bytes([n]) * 32 for n in range(N_PEOPLE)))
    invitation = Invitation.decode(found[Type.INVITATION])
    found[Type.INVITATION] = replace(invitation, drawn=shown).encode()
    return found


MESSAGES = exchanged()
SIZE = bytes_of(Party.of(N_PEOPLE).terms.layout.sizes)
DECODERS: dict[Type, Decoder] = {
    Type.INVITATION: Invitation.decode,
    Type.ADVERT: Advert.decode,
    Type.ROSTER: lambda data: Roster.decode(data, N_PEOPLE),
    Type.SHARES: Shares.decode,
    Type.INBOX: lambda data: Inbox.decode(data, N_PEOPLE),
    Type.MASKED: lambda data: Masked.decode(data, SIZE),
    Type.SURVIVORS: lambda data: Survivors.decode(data, N_PEOPLE),
    Type.CONFIRMATION: Codes.decode_sent,
    Type.CONFIRMED: Codes.decode,
    Type.UNMASKING: Unmasking.decode,
}


def encoded_again(kind: Type, data: bytes) -> bytes:
    """Read a message and write it anew."""
    context = data[2:34]
    if kind == Type.INVITATION:
        return Invitation.decode(data).encode()
    if kind == Type.ADVERT:
        return Advert.decode(data)[1].encode(context)
    if kind == Type.ROSTER:
        return Roster.decode(data, N_PEOPLE)[1].encode(context, N_PEOPLE)
    if kind == Type.INBOX:
        return Inbox.decode(data, N_PEOPLE)[1].encode(context, N_PEOPLE)
    if kind == Type.SURVIVORS:
        return Survivors.decode(data, N_PEOPLE)[1].encode(context, N_PEOPLE)
    if kind == Type.CONFIRMED:
        return Codes.decode(data)[1].encode(context)
    if kind == Type.CONFIRMATION:
        _, sender, codes, code = Codes.decode_sent(data)
        return codes.encode(context, sender) + code
    if kind == Type.SHARES:
        _, shares, code = Shares.decode(data)
        return shares.encode(context) + code
    if kind == Type.MASKED:
        _, masked, code = Masked.decode(data, SIZE)
        return masked.encode(context) + code
    _, unmasking, code = Unmasking.decode(data)
    return unmasking.encode(context) + code


@pytest.mark.parametrize("kind", DECODERS, ids=lambda kind: kind.name.lower())
def test_a_message_is_written_in_one_way_only(kind: Type) -> None:
    assert encoded_again(kind, MESSAGES[kind]) == MESSAGES[kind]


@pytest.mark.parametrize("kind", DECODERS, ids=lambda kind: kind.name.lower())
def test_cut_off_or_prolonged_messages_are_refused(kind: Type) -> None:
    message = MESSAGES[kind]
    for size in (0, 1, 2, 33, 34, len(message) // 2, len(message) - 1):
        with pytest.raises(SecureSumError):
            DECODERS[kind](message[:size])
    with pytest.raises(SecureSumError):
        DECODERS[kind](message + b"\0")


def check_mutations(kind: Type, times: int, seed: int) -> None:
    """Bend a message in many ways; each is refused by name, or reads as exactly what it says."""
    message, decode = MESSAGES[kind], DECODERS[kind]
    generator = np.random.default_rng(seed)
    for _ in range(times):
        bent = bytearray(message)
        for _ in range(int(generator.integers(1, 4))):
            way, at = int(generator.integers(6)), int(generator.integers(len(bent) or 1))
            value = int(generator.integers(256))
            if way == 0 and bent:
                bent[at] = value
            elif way == 1 and bent:
                bent[at] ^= 1 << (value & 7)
            elif way == 2:
                bent = bent[:at]
            elif way == 3:
                bent[at:at] = generator.bytes(int(generator.integers(1, 9)))
            elif way == 4:
                del bent[at : at + int(generator.integers(1, 9))]
            else:
                bent[at : at + 4] = (2**32 - 1 - value).to_bytes(4, "little")
        data = bytes(bent)
        try:
            decode(data)
        except SecureSumError:
            pass
        else:
            assert encoded_again(kind, data) == data, f"{data.hex()} is read, but written otherwise"


@pytest.mark.parametrize("kind", DECODERS, ids=lambda kind: kind.name.lower())
def test_bent_messages_are_refused_by_name(kind: Type) -> None:
    check_mutations(kind, 1500, seed=int(kind))


@pytest.mark.fuzz
@pytest.mark.parametrize("kind", DECODERS, ids=lambda kind: kind.name.lower())
def test_a_million_bent_messages(kind: Type) -> None:
    check_mutations(kind, 1_000_000, seed=1000 + int(kind))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400), st.sampled_from(sorted(DECODERS)))
def test_any_bytes_are_refused_by_name(data: bytes, kind: Type) -> None:
    for start in (b"", bytes([1, kind]), bytes([1, kind]) + bytes(32)):
        try:
            DECODERS[kind](start + data)
        except SecureSumError:
            continue
        assert encoded_again(kind, start + data) == start + data


@given(st.sets(st.integers(0, 99)), st.integers(100, 130))
def test_sets_of_people_travel_as_bits(people: set[int], n_people: int) -> None:
    assert from_bits(to_bits(people, n_people), n_people) == people


def test_bits_beyond_the_cohort_and_huge_messages_are_refused() -> None:
    with refused(MessageError, ReasonCode.MALFORMED_MESSAGE):
        from_bits(to_bits([11], 12), 11)
    with refused(MessageError, ReasonCode.MALFORMED_MESSAGE):
        Reader(bytes(11), "It", most=10)
    assert MOST_BYTES >= 47270 * 21 * 8, "the largest table of the papers must fit"


def test_a_length_that_is_not_there_allocates_nothing() -> None:
    message = bytearray(MESSAGES[Type.ROSTER])
    message[34:38] = (2**32 - 1).to_bytes(4, "little")
    with pytest.raises(SecureSumError):
        Roster.decode(bytes(message), N_PEOPLE)
