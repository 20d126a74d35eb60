"""A server that tells people different things gets noise or nothing."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from helpers.noise import uniform_p
from helpers.refusals import refused
from helpers.secure_session import EASY, Party, plain_sum, terms, vector
from tacit.errors import DevicePolicyError, ForgedError, MessageError, OutOfTurnError, RangeError, SecureSumError
from tacit.protocols.secure_aggregation.context import Session
from tacit.protocols.secure_aggregation.device import DevicePhase, SecureDevice
from tacit.protocols.secure_aggregation.encoding import Segment, SegmentKind, VectorLayout, rows_layout
from tacit.protocols.secure_aggregation.identity import Identity, KeyPair
from tacit.protocols.secure_aggregation.masks import Vector, mask
from tacit.protocols.secure_aggregation.messages import Codes, Roster, SessionInvitation, Survivors
from tacit.protocols.secure_aggregation.pairing import pair_mask
from tacit.protocols.secure_aggregation.server import ServerPhase
from tacit.reasons import ReasonCode
from tacit.updates import Ring

LAYOUT = rows_layout({"items": (500, 8)}, Ring(bits=32), 4)


@pytest.mark.parametrize(
    "other",
    [
        {"model": b"\7" * 32},
        {"round": 2},
        {"task": "b"},
        {"beacon": b"\1" * 32},
        {"spare": 1},
        {"k_min": 1, "n_min": 3},
    ],
    ids=lambda given: next(iter(given)),
)
def test_two_sets_of_terms_cannot_be_mixed(other: dict[str, Any]) -> None:
    """Half of the cohort is invited to other terms; a server passes keys and shares across as if they were one."""
    identities = sorted((Identity.fresh() for _ in range(4)), key=lambda one: one.public)
    one = Party.of(4, identities=identities)
    two = Party.of(4, identities=identities, **other)
    first = {person: one.answer(person) for person in (0, 1)}
    second = {person: two.answer(person) for person in (2, 3)}
    for message in second.values():
        with pytest.raises(OutOfTurnError):
            one.server.receive(message)
    # a server that cheats forges the header; the signature is over it
    for message in second.values():
        with refused(ForgedError, ReasonCode.BAD_SIGNATURE):
            one.server.receive(message[:2] + one.server.context + message[34:])
    for message in first.values():
        one.server.receive(message)


OTHERWISE: dict[str, Any] = {
    "task": "b",
    "round": 2,
    "stage": 1,
    "model": b"\7" * 32,
    "n_min": 3,
    "k_min": 2,
    "spare": 1,
    "degree": 2,
    "threshold": 3,
    "beacon": b"\1" * 32,
    "server_key": b"\1" * 32,
}


def test_a_context_is_the_hash_of_every_term_and_of_the_cohort() -> None:
    people = [bytes([at]) * 32 for at in range(5)]
    usual = terms(4)
    contexts = [Session.of(usual, people[:4]).context, Session.of(usual, people[1:]).context]
    assert {one.name for one in fields(usual)} == {*OTHERWISE, "layout"}
    contexts += [Session.of(replace(usual, **{name: to}), people[:4]).context for name, to in OTHERWISE.items()]
    part = usual.layout.segments[0]
    bent = {"table": "b", "kind": SegmentKind.COUNTS, "n_rows": 9, "width": 9, "bits": 16, "bound": 9, "rows": (0,)}
    assert {one.name for one in fields(part)} == bent.keys()
    for name, to in bent.items():
        layout = VectorLayout((replace(part, **{name: to}), *usual.layout.segments[1:]))
        contexts.append(Session.of(replace(usual, layout=layout), people[:4]).context)
    assert len(set(contexts)) == len(contexts)
    assert Session.of(usual, people[3::-1]).context == contexts[0], "a cohort has no order of its own"


def added_up(contexts: list[bytes]) -> bytes:
    """Add what four people send under their pair masks, each believing in a context: self masks are taken as known."""
    pairs = [KeyPair.fresh() for _ in contexts]
    total = Vector(LAYOUT.sizes)
    for person, context in enumerate(contexts):
        keys = {o: pair_mask(pairs[person], person, pairs[o].public, o, context) for o in range(4) if o != person}
        sent = vector(LAYOUT, person)
        mask(sent, [k for o, k in keys.items() if o > person], [k for o, k in keys.items() if o < person])
        total.add(sent.tobytes())
    return total.tobytes()


def test_masks_of_different_contexts_do_not_cancel() -> None:
    """A context holds model, cohort and options: halves that were shown different ones add up to uniform noise."""
    one, two = bytes(32), b"\1" * 32
    assert added_up([one] * 4) == plain_sum(LAYOUT, range(4))
    for contexts in ([one, one, two, two], [one, two, two, two]):
        words = np.frombuffer(added_up(contexts), np.uint32)
        assert uniform_p(words) > 1e-5
        assert np.abs(words.view(np.int32).astype(float)).max() > 2**29, "small numbers would show through"


def test_devices_shown_different_survivors_give_no_share() -> None:
    party = Party.of(6, threshold=4).run(ServerPhase.CONFIRMATIONS)
    context = party.server.context
    all_participants, without = frozenset(range(6)), frozenset(range(5))
    sent = {}
    for person in range(6):
        told = all_participants if person < 3 or person == 5 else without
        message = Survivors(told).encode(context, 6)
        sent[person] = Codes.decode_sent(party.devices[person].confirm(message))[2]
    for person in range(6):
        near = [other for other in range(6) if other != person]
        codes = [(other, dict(sent[other].entries).get(person)) for other in near]
        known = Codes(tuple((other, code) for other, code in codes if code is not None)).encode(context)
        with pytest.raises((ForgedError, DevicePolicyError)):
            party.devices[person].unmask(known)
        same = [(o, c) for o, c in codes if c is not None and (o in (3, 4)) == (person in (3, 4))]
        with refused(DevicePolicyError, ReasonCode.TOO_FEW_CONFIRMATIONS, left=len(same), needed=4):
            party.devices[person].unmask(Codes(tuple(same)).encode(context))
        assert party.devices[person].phase == DevicePhase.CONFIRMED


def test_a_device_answers_one_set_of_survivors_only() -> None:
    party = Party.of(4, threshold=2).run(ServerPhase.CONFIRMATIONS)
    context = party.server.context
    party.devices[0].confirm(Survivors(frozenset(range(4))).encode(context, 4))
    with pytest.raises(OutOfTurnError):
        party.devices[0].confirm(Survivors(frozenset({0, 1, 2})).encode(context, 4))


@pytest.mark.parametrize(
    ("survivors", "code"),
    [
        ({1, 2, 3}, ReasonCode.LEFT_OUT),
        ({0}, ReasonCode.TOO_MANY_DROPOUTS),
        ({0, 1}, ReasonCode.TOO_MANY_DROPOUTS),
    ],
)
def test_survivors_that_cannot_be_are_refused(survivors: set[int], code: ReasonCode) -> None:
    party = Party.of(4, threshold=2, n_min=3).run(ServerPhase.CONFIRMATIONS)
    with refused(DevicePolicyError, code):
        party.devices[0].confirm(Survivors(frozenset(survivors)).encode(party.server.context, 4))


def test_a_roster_without_the_graphs_neighbours_is_refused() -> None:
    party = Party.of(6, degree=4, threshold=3)
    party.step()
    context, roster = Roster.decode(party.inbox[0], 6)
    fewer = Roster(roster.present, roster.adverts[1:]).encode(context, 6)
    with refused(ForgedError, ReasonCode.INCONSISTENT_LIST, list="roster"):
        party.devices[0].share(fewer)
    alone = Roster(frozenset({1, 2}), roster.adverts).encode(context, 6)
    with pytest.raises(SecureSumError):
        party.devices[0].share(alone)


def test_an_invitation_must_be_what_its_context_says() -> None:
    party = Party.of(3)
    said = party.server.invitation
    session = SessionInvitation.decode(said).session
    other = Session(replace(session.terms, round=7), session.cohort)
    bent = SessionInvitation(other).encode()[:2] + session.context + SessionInvitation(other).encode()[34:]
    with refused(MessageError, ReasonCode.MALFORMED_MESSAGE):
        party.devices[0].advertise(bent)


def test_terms_that_could_overflow_are_refused_by_both_sides() -> None:
    wide = VectorLayout.of([Segment("items", SegmentKind.NUMBERS, 3, 2, 32, 2**29, None)])
    fits = VectorLayout.of([Segment("items", SegmentKind.NUMBERS, 3, 2, 32, (2**31 - 1) // 4, None)])
    people = [Identity.fresh() for _ in range(4)]
    with refused(RangeError, ReasonCode.SUM_OVERFLOW, table="items", cohort=4, bits=32):
        Party.of(4, layout=wide)
    session = Session.of(replace(terms(4, layout=wide), server_key=b"\1" * 32), [one.public for one in people])
    with refused(RangeError, ReasonCode.SUM_OVERFLOW, table="items", cohort=4, bits=32):
        SecureDevice(people[0], EASY).advertise(SessionInvitation(session).encode())
    Party.of(4, layout=fits)
