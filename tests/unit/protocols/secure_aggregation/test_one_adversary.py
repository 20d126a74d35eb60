"""One adversary among honest participants costs a session that participant, not the sum."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

import pytest

from helpers.refusals import refused
from helpers.secure_session import Party
from tacit.errors import DevicePolicyError, ForgedError, MessageError
from tacit.protocols.secure_aggregation.identity import KeyPair
from tacit.protocols.secure_aggregation.messages import Advert, Codes, Unmasking
from tacit.protocols.secure_aggregation.server import ServerPhase
from tacit.reasons import ReasonCode


def false_codes(party: Party, person: int, receivers: range) -> None:
    """Let a participant's confirmation codes for some neighbours be wrong."""
    state = party.devices[person]._state
    assert state is not None
    state.pair_keys |= {
        other: replace(keys, codes=os.urandom(32)) for other, keys in state.pair_keys.items() if other in receivers
    }


def test_wrong_confirmation_codes_are_ignored_and_their_sender_is_named() -> None:
    party = Party.of(7, threshold=4).run(ServerPhase.CONFIRMATIONS)
    keys = party.devices[0]._state
    assert keys is not None
    right = dict(keys.pair_keys)
    false_codes(party, 0, range(7))
    party.step()
    keys.pair_keys = right
    party.run()
    assert party.is_right()
    assert party.server.survivors == frozenset(range(7))
    assert party.server.accused() == {0: ReasonCode.BAD_CONFIRMATION}


def test_too_few_good_codes_are_still_too_few() -> None:
    party = Party.of(6, threshold=4).run(ServerPhase.CONFIRMATIONS)
    for person in (0, 1):
        false_codes(party, person, range(6))
    party.step()
    with refused(DevicePolicyError, ReasonCode.TOO_FEW_CONFIRMATIONS, left=3, needed=4):
        party.answer(2)
    assert party.devices[2].phase == 4, "and no share was given"


def test_a_code_of_a_participant_who_is_no_neighbour_is_forged_by_the_server() -> None:
    party = Party.of(6, threshold=4).run(ServerPhase.UNMASKINGS)
    context, codes = Codes.decode(party.inbox[0])
    with refused(ForgedError, ReasonCode.BAD_CONFIRMATION, sender=99):
        party.devices[0].unmask(Codes((*codes.entries, (99, bytes(16)))).encode(context))


def test_complaints_of_one_participant_about_all_others_do_not_count() -> None:
    party = Party.of(7, threshold=4).run(ServerPhase.UNMASKINGS)
    party.devices[0].complaints = dict.fromkeys(range(1, 7), ReasonCode.BAD_SHARE)
    party.run()
    assert party.is_right()
    assert party.server.accused() == {}


def bad_advert(party: Party, person: int, keys: Callable[[], tuple[bytes, bytes]]) -> bytes:
    device = party.devices[person]
    mask_key, seal_key = keys()
    advert = Advert(person, mask_key, seal_key, bytes(32))
    context = party.server.context
    return advert.encode(context)[: -len(advert.signature)] + device.identity.sign(advert.signed_part(context))


@pytest.mark.parametrize("which", ["its own twice", "another's mask key", "another's seal key"])
def test_repeated_keys_are_refused_for_the_one_who_sends_them(which: str) -> None:
    party = Party.of(6, threshold=4)
    fresh = KeyPair.fresh().public
    party.server.receive(party.answer(0))
    known = party.server.adverts[0]
    pairs = {
        "its own twice": (fresh, fresh),
        "another's mask key": (known.mask_key, fresh),
        "another's seal key": (fresh, known.seal_key),
    }
    with refused(ForgedError, ReasonCode.REPEATED_KEY, sender=5):
        party.server.receive(bad_advert(party, 5, lambda: pairs[which]))
    for person in range(1, 5):
        party.server.receive(party.answer(person))
    party.inbox = party.server.advance()
    party.run()
    assert party.is_right()
    assert party.server.survivors == frozenset(range(5))


def test_complaints_travel_in_one_form_and_only_where_there_are_any() -> None:
    plain = Unmasking(3, bytes(32), ())
    told = replace(plain, complaints=((1, 1), (4, 2)))
    context, tag = bytes(32), bytes(16)
    assert Unmasking.decode(plain.encode(context) + tag)[1] == plain
    assert Unmasking.decode(told.encode(context) + tag)[1] == told
    assert len(told.encode(context)) > len(plain.encode(context))
    for wrong in (((4, 2), (1, 1)), ((1, 0),), ((1, 3),), ((2, 1), (2, 1))):
        with pytest.raises(MessageError):
            Unmasking.decode(replace(plain, complaints=wrong).encode(context) + tag)
    with pytest.raises(MessageError):
        Unmasking.decode(plain.encode(context) + bytes(4) + tag)
