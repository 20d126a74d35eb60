"""What a device insists on."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from helpers.refusals import refused
from helpers.secure_session import Party, copied, terms
from tacit.errors import DevicePolicyError, ForgedError, MessageError, OutOfTurnError, SecureSumError
from tacit.protocols.secure_aggregation.context import Session
from tacit.protocols.secure_aggregation.device import SecureDevice
from tacit.protocols.secure_aggregation.device_policy import (
    DevicePolicy,
    ParticipationHistory,
    check_participants,
    names_of,
)
from tacit.protocols.secure_aggregation.draw import (
    Board,
    Chain,
    Directory,
    DrawProof,
    Link,
    beacon_of,
    check_ticket,
    commitment,
    is_drawn,
    nonce_of,
)
from tacit.protocols.secure_aggregation.encoding import Segment, SegmentKind, VectorLayout, counts_layout, rows_layout
from tacit.protocols.secure_aggregation.identity import Identity
from tacit.protocols.secure_aggregation.local_session import run_session
from tacit.protocols.secure_aggregation.messages import SessionInvitation
from tacit.protocols.secure_aggregation.server import SecureServer, ServerPhase
from tacit.protocols.secure_aggregation.two_stage import QUALITY
from tacit.reasons import ReasonCode
from tacit.updates import Ring

LOOSE = DevicePolicy(n_min=2, k_min=1, cool_down=0, d_min=0, corrupted=0)


def session(identities: list[bytes], number: int = 1) -> Session:
    return Session.of(terms(len(identities), round=number), identities)


def test_nearly_the_same_people_are_refused_the_same_and_others_are_not() -> None:
    people = [secrets.token_bytes(32) for _ in range(30)]
    device_policy = DevicePolicy(d_min=None, k_min=3, most_cohorts=None)
    first = session(people[:20])
    history = ParticipationHistory().with_sum(first, range(20))
    for cohort, is_refused in (
        (people[:20], False),
        (people[:19], True),
        (people[1:21], True),
        (people[:16], True),  # differs by 4, a quarter of 16: still fine at exactly 4
        (people[10:30], False),
    ):
        later = session(cohort, 9)
        least = device_policy.differ_by(len(cohort))
        differ = len(names_of(later, range(len(cohort))) ^ history.sums[0].participants)
        if 0 < differ < least:
            with refused(
                DevicePolicyError, ReasonCode.DEVICE_COHORT_TOO_SIMILAR, earlier=1, differ=differ, needed=least
            ):
                check_participants(device_policy, history, later, range(len(cohort)))
        else:
            check_participants(device_policy, history, later, range(len(cohort)))
        assert (0 < differ < least) == is_refused or len(cohort) == 16


def test_a_server_that_pretends_that_one_dropped_out_is_refused() -> None:
    """The cohort is the same as before, but the sum is to lack one person."""
    for allowed, code in ((1, ReasonCode.DEVICE_OTHER_COHORT), (None, ReasonCode.DEVICE_COHORT_TOO_SIMILAR)):
        policy = DevicePolicy(n_min=2, k_min=1, cool_down=0, corrupted=0, most_cohorts=allowed)
        again = Party.of(8, device_policy=policy).run().again(round=2).run(ServerPhase.VECTORS)
        again.step(gone=[7])
        with refused(DevicePolicyError, code, earlier=1):
            again.answer(0)


def test_cool_down_minimum_and_lifetime() -> None:
    strict = DevicePolicy(n_min=5, k_min=2, cool_down=5, most_rounds=2, d_min=0, corrupted=0)
    with refused(DevicePolicyError, ReasonCode.WEAK_TERMS, n_min=2, k_min=1, device_n_min=5, device_k_min=2):
        Party.of(6, device_policy=strict).answer(0)
    party = Party.of(6, device_policy=strict.model_copy(update={"n_min": 2, "k_min": 1})).run()
    with refused(DevicePolicyError, ReasonCode.DEVICE_COOL_DOWN, earlier=1, cool_down=5, round=6):
        party.again(round=6).answer(0)
    party.again(round=7).run()
    with refused(DevicePolicyError, ReasonCode.DEVICE_PARTICIPATION_LIMIT, rounds=2):
        party.again(round=100).answer(0)


@pytest.mark.parametrize("last", [ServerPhase.VECTORS, ServerPhase.CONFIRMATIONS], ids=lambda phase: phase.name.lower())
def test_a_device_that_has_sent_its_vector_cools_down_and_counts_it_though_no_message_follows(
    last: ServerPhase,
) -> None:
    """Its neighbours can open the sum without it."""
    device_policy = DevicePolicy(n_min=2, k_min=1, cool_down=5, most_rounds=2, d_min=0, corrupted=0)
    party = Party.of(6, device_policy=device_policy, threshold=3).run(last)
    party.step()
    party.step(gone=[0])
    device = party.devices[0]
    for one in (device, SecureDevice(device.identity, device_policy, copied(device.journal))):
        assert one.history.rounds == {1}
        party.devices[0] = one
        with refused(DevicePolicyError, ReasonCode.DEVICE_COOL_DOWN, earlier=1, cool_down=5, round=2):
            party.again(round=2).answer(0)
        one.switch_to("other")
        one.switch_to("test")
        assert one.history.rounds == {1}, "also after it was elsewhere"
    party.again(round=7).run()
    with refused(DevicePolicyError, ReasonCode.DEVICE_PARTICIPATION_LIMIT, rounds=2):
        party.again(round=100).answer(0)


def test_participants_are_remembered_with_the_confirmation() -> None:
    device_policy = DevicePolicy(n_min=2, k_min=1, cool_down=0, corrupted=0, most_cohorts=None)
    party = Party.of(8, device_policy=device_policy, threshold=5).run(ServerPhase.CONFIRMATIONS)
    party.step()  # the list of participants was confirmed, and no device is asked to unmask
    session = party.server.session
    for device in party.devices:
        restarted = SecureDevice(device.identity, device_policy, copied(device.journal))
        for one in (device, restarted):
            assert [past.participants for past in one.history.sums] == [names_of(session, range(8))]
    again = party.again(round=2).run(ServerPhase.VECTORS)
    again.step(gone=[7])
    with refused(DevicePolicyError, ReasonCode.DEVICE_COHORT_TOO_SIMILAR, earlier=1, differ=1):
        again.answer(0)


def test_a_threshold_that_a_few_cheats_could_meet_twice_is_refused() -> None:
    with refused(DevicePolicyError, ReasonCode.UNSAFE_THRESHOLD, threshold=11):
        Party.of(20, device_policy=DevicePolicy(n_min=2, k_min=1, corrupted=0.2), threshold=11).answer(0)
    Party.of(20, device_policy=DevicePolicy(n_min=2, k_min=1, corrupted=0.2), threshold=12).answer(0)


def test_a_memory_is_of_one_task() -> None:
    party = Party.of(3).run()
    with refused(OutOfTurnError, ReasonCode.OTHER_FEDERATION):
        party.again(task="other", round=9).answer(0)


def test_each_task_has_a_memory_of_its_own_and_none_is_lost() -> None:
    def turned(party: Party, task: str, number: int) -> Party:
        for device in party.devices:
            device.switch_to(task)
        return party.again(task=task, round=number)

    other = turned(Party.of(3, round=5).run(), "other", 1).run()
    assert other.is_right()
    for device in other.devices:
        assert (device.history.task, device.history.rounds) == ("other", {1})
        restarted = SecureDevice(device.identity, device.device_policy, copied(device.journal))
        assert restarted.history == device.history, "also after a restart"
    with refused(OutOfTurnError, ReasonCode.ROUND_REPEATED):
        turned(other, "test", 5).answer(0)
    back = turned(other, "test", 6).run()
    assert back.devices[0].history.rounds == {5, 6}
    assert [(past.task, past.rounds) for past in back.devices[0].history.others] == [("other", {1})]


def test_rounds_only_go_forward() -> None:
    party = Party.of(3, round=5).run()
    for number in (5, 4, 0):
        with refused(OutOfTurnError, ReasonCode.ROUND_REPEATED):
            party.again(round=number).answer(0)
    party.again(round=6).answer(0)


def test_rows_are_not_sent_uncounted_nor_after_too_many_were_lost() -> None:
    device_policy = DevicePolicy(n_min=2, k_min=2, cool_down=0, d_min=0, corrupted=0, most_cohorts=None)
    shapes = {"items": (3, 2)}
    with refused(DevicePolicyError, ReasonCode.UNCOUNTED_ROWS):
        Party.of(4, device_policy=device_policy, k_min=2).answer(0)
    counted = Party.of(
        4, device_policy=device_policy, k_min=2, stage=1, layout=counts_layout(shapes, 4), threshold=2
    ).run()
    assert counted.is_right()
    layout = rows_layout(shapes, Ring(), 4, {"items": np.arange(3)})
    rows = counted.again(k_min=2, threshold=2, layout=layout).run(ServerPhase.VECTORS)
    rows.step(gone=[3])
    with refused(DevicePolicyError, ReasonCode.LOST_BETWEEN_STAGES, lost=1, spare=0):
        rows.answer(0)
    spare = Party.of(
        4, device_policy=device_policy, k_min=2, stage=1, layout=counts_layout(shapes, 4), threshold=2
    ).run()
    assert spare.again(k_min=2, threshold=2, spare=1, layout=layout).run(leaves={3: ServerPhase.VECTORS}).is_right()
    one = device_policy.model_copy(update={"most_cohorts": 1})
    whole = Party.of(4, device_policy=one, k_min=2, stage=1, layout=counts_layout(shapes, 4), threshold=2).run()
    rows = whole.again(k_min=2, threshold=2, spare=1, layout=layout).run(ServerPhase.VECTORS)
    rows.step(gone=[3])
    with refused(DevicePolicyError, ReasonCode.LOST_BETWEEN_STAGES, lost=1, spare=0):  # counts and rows of two cohorts
        rows.answer(0)


def test_the_second_stage_is_for_those_of_the_first() -> None:
    device_policy = DevicePolicy(n_min=2, k_min=2, cool_down=0, d_min=0, corrupted=0)
    counted = Party.of(
        4, device_policy=device_policy, k_min=2, stage=1, layout=counts_layout({"items": (3, 2)}, 4)
    ).run()
    made_up_client = SecureDevice(Identity.fresh(), device_policy)
    server = SecureServer.start(
        terms(5, k_min=2), [*(device.identity.public for device in counted.devices), made_up_client.identity.public]
    )
    with refused(DevicePolicyError, ReasonCode.NEW_PARTICIPANTS):
        counted.devices[0].advertise(server.invitation)


ITEMS, QUALITIES = {"items": (3, 2)}, {QUALITY: (1, 1)}
LISTED = {"items": np.arange(3), QUALITY: np.arange(1)}
COUNTS, QUALITY_COUNTS = counts_layout(ITEMS, 4).segments, counts_layout(QUALITIES, 4).segments
NUMBERS, MENTIONS = rows_layout(ITEMS, Ring(), 4).segments
QUALITY_NUMBERS, QUALITY_MENTIONS = rows_layout(QUALITIES, Ring(), 4).segments
ROWS, QUALITY_ROWS = (rows_layout(shapes, Ring(), 4, LISTED).segments for shapes in (ITEMS, QUALITIES))
ALLOWED = {
    1: (*COUNTS, *QUALITY_COUNTS),
    2: (*ROWS, *QUALITY_ROWS),
    0: (NUMBERS, MENTIONS),  # a sum in one stage
}
EVERYTHING = [
    *(NUMBERS, MENTIONS, *COUNTS, *ROWS, replace(MENTIONS, rows=(0, 2)), replace(COUNTS[0], rows=(0, 2))),
    *(QUALITY_NUMBERS, QUALITY_MENTIONS, *QUALITY_COUNTS, *QUALITY_ROWS, replace(QUALITY_MENTIONS, rows=(0,))),
]
FORBIDDEN = [
    (stage, part)
    for stage, allowed in ALLOWED.items()
    for part in EVERYTHING
    if part not in allowed and (stage or part.kind is SegmentKind.COUNTS or part.table == QUALITY)
]


@pytest.mark.parametrize(
    ("stage", "part"),
    FORBIDDEN,
    ids=lambda it: str(it) if isinstance(it, int) else f"{it.table} {it.kind.name} {it.rows}",
)
def test_a_stage_holds_nothing_that_belongs_into_another(stage: int, part: Segment) -> None:
    """Whatever a server adds to what a stage is for, alone or beside it, no device answers."""
    device_policy = DevicePolicy(n_min=2, k_min=2 if stage else 1, cool_down=0, d_min=0, corrupted=0)
    usual = [allowed for allowed in ALLOWED[stage] if (allowed.table, allowed.kind) != (part.table, part.kind)]
    k_min = device_policy.k_min
    first = Party.of(4, device_policy=device_policy, k_min=k_min, stage=1, layout=VectorLayout.of(ALLOWED[1]))
    if stage == 2:
        first.run()
    for layout in (VectorLayout.of([*usual, part]), VectorLayout.of([part])):
        offered = first.again(stage=stage or 2, k_min=k_min, layout=layout)
        with refused(DevicePolicyError, ReasonCode.WRONG_STAGE_CONTENT, stage=stage or 2):
            offered.answer(0)
    assert first.again(stage=stage or 2, k_min=k_min, layout=VectorLayout.of(ALLOWED[stage])).run().is_right()


def test_a_history_survives_its_journal() -> None:
    people = [secrets.token_bytes(32) for _ in range(5)]
    history = ParticipationHistory().with_session(session(people, 7)).with_sum(session(people, 7), [0, 2])
    assert ParticipationHistory.decode(history.encode()) == history
    assert ParticipationHistory.decode(ParticipationHistory().encode()) == ParticipationHistory()
    both = history.of("other")
    assert ParticipationHistory.decode(both.encode()) == both
    assert both.of("test").sums == history.sums


# --- the draw -------------------------------------------------------------------------------------------------------


def test_a_ticket_leads_to_the_anchor_and_none_can_be_made_up() -> None:
    chain = Chain.fresh(20)
    anchor, seventh = Link(chain.anchor), chain.ticket(7)
    for number in range(20):
        check_ticket(chain.ticket(number), number, anchor, 0)
    check_ticket(seventh, 7, Link(chain.ticket(5), 5), 0)
    for ticket, number in ((seventh, 8), (seventh, 6), (secrets.token_bytes(32), 7), (chain.anchor, 0)):
        with refused(ForgedError, ReasonCode.BAD_TICKET, sender=0):
            check_ticket(ticket, number, anchor, 0)
    with refused(ForgedError, ReasonCode.BAD_TICKET, sender=0):
        check_ticket(seventh, 7, Link(seventh, 7), 0)
    for beyond in (-1, 20):
        with refused(DevicePolicyError, ReasonCode.NO_TICKET, round=beyond):
            chain.ticket(beyond)


def test_the_draw_takes_about_the_asked_share() -> None:
    beacon = secrets.token_bytes(32)
    drawn = sum(is_drawn(secrets.token_bytes(32), beacon, 0.25) for _ in range(4000))
    assert 800 < drawn < 1200


def test_the_beacon_needs_the_promised_secret_and_every_nonce() -> None:
    secret, nonces = secrets.token_bytes(32), [secrets.token_bytes(32) for _ in range(3)]
    promised = commitment(secret)
    assert beacon_of(secret, promised, nonces) == beacon_of(secret, promised, nonces[::-1])
    assert beacon_of(secret, promised, nonces) != beacon_of(secret, promised, nonces[:2])
    with refused(ForgedError, ReasonCode.BAD_BEACON):
        beacon_of(secrets.token_bytes(32), promised, nonces)


@dataclass(frozen=True)
class Lot:
    """A round of eight people, of whom some are drawn and some are not."""

    identities: list[Identity]
    tickets: list[bytes]
    secret: bytes
    known: Directory
    drawn: list[int]
    others: list[int]

    @classmethod
    def fair(cls) -> Lot:
        """Draw until both are among them."""
        while True:
            identities, chains = [Identity.fresh() for _ in range(8)], [Chain.fresh(5) for _ in range(8)]
            names, tickets = [one.public for one in identities], [chain.ticket(2) for chain in chains]
            secret, links = secrets.token_bytes(32), [Link(chain.anchor) for chain in chains]
            board = Board(commitment(secret), dict(zip(names, map(nonce_of, tickets), strict=True)))
            known = Directory("test", dict(zip(names, links, strict=True)), {2: board}, 0.6)
            beacon = beacon_of(secret, board.promise, board.nonces.values())
            drawn = [at for at in range(8) if is_drawn(tickets[at], beacon, 0.6)]
            if 4 <= len(drawn) < 8:
                return cls(identities, tickets, secret, known, drawn, [at for at in range(8) if at not in drawn])

    @property
    def board(self) -> Board:
        return self.known.boards[2]

    def invitation(self, people: list[int], **bent: Any) -> bytes:
        """Invite people; `bent`: with another secret, other tickets, another beacon or task."""
        shown = DrawProof(
            bent.get("secret", self.secret), bent.get("tickets", tuple(self.tickets[at] for at in people))
        )
        beacon = bent.get("beacon", beacon_of(self.secret, self.board.promise, self.board.nonces.values()))
        wanted = terms(len(people), round=2, beacon=beacon, task=bent.get("task", "test"))
        return SecureServer.start(wanted, [self.identities[at].public for at in people], drawn=shown).invitation

    def advertise(self, invitation: bytes, **bent: Any) -> bytes:
        """Answer as the first of the drawn, who may know something else."""
        directory = replace(self.known, **bent)
        return SecureDevice(self.identities[self.drawn[0]], LOOSE, directory=directory).advertise(invitation)


def test_a_device_that_knows_the_enrolled_takes_part_in_drawn_cohorts_only() -> None:
    lot = Lot.fair()
    drawn, names = lot.drawn, [one.public for one in lot.identities]
    assert lot.advertise(lot.invitation(drawn))
    assert lot.advertise(lot.invitation(drawn[:3])), "some of them have dropped out"

    def refuses(code: ReasonCode, invited: bytes, kind: type[SecureSumError] = DevicePolicyError, **bent: Any) -> None:
        with refused(kind, code):
            lot.advertise(invited, **bent)

    refuses(ReasonCode.NOT_DRAWN, lot.invitation([*drawn, lot.others[0]]))
    refuses(ReasonCode.COHORT_TOO_SMALL, lot.invitation(drawn[:2]))
    refuses(
        ReasonCode.MISSING_TICKETS, SessionInvitation(SessionInvitation.decode(lot.invitation(drawn)).session).encode()
    )
    incomplete = {name: link for name, link in lot.known.links.items() if name != names[drawn[1]]}
    refuses(ReasonCode.NOT_ENROLLED, lot.invitation(drawn), links=incomplete)
    refuses(ReasonCode.UNKNOWN_BOARD, lot.invitation(drawn), boards={})
    refuses(ReasonCode.UNKNOWN_BOARD, lot.invitation(drawn, task="another"))
    refuses(ReasonCode.BAD_BEACON, lot.invitation(drawn, secret=secrets.token_bytes(32)), ForgedError)
    invented = tuple(secrets.token_bytes(32) for _ in drawn)
    refuses(ReasonCode.BAD_TICKET, lot.invitation(drawn, tickets=invented), ForgedError)


def test_no_nonce_can_be_invented_or_left_out() -> None:
    """A server that may mix as it likes tries until the beacon draws whom it wants."""
    lot = Lot.fair()
    nonces, promise = dict(lot.board.nonces), lot.board.promise
    invented = beacon_of(lot.secret, promise, [*nonces.values(), secrets.token_bytes(32)])
    fewer = beacon_of(lot.secret, promise, list(nonces.values())[1:])
    for beacon in (invented, fewer):
        with refused(ForgedError, ReasonCode.BAD_BEACON):
            lot.advertise(lot.invitation(lot.drawn, beacon=beacon))
    mine = lot.identities[lot.drawn[0]].public
    other = {**nonces, mine: secrets.token_bytes(32)}
    bent = beacon_of(lot.secret, promise, other.values())
    with refused(DevicePolicyError, ReasonCode.BAD_TICKET):
        lot.advertise(lot.invitation(lot.drawn, beacon=bent), boards={2: Board(promise, other)}, share=1.0)


def test_half_of_a_draw_is_no_message() -> None:
    session = Session.of(terms(2), [Identity.fresh().public for _ in range(2)])
    whole = DrawProof(bytes(32), (bytes(32), bytes(32)))
    assert SessionInvitation.decode(SessionInvitation(session, whole).encode()) == SessionInvitation(session, whole)
    for bent in (replace(whole, secret=b""), replace(whole, tickets=()), replace(whole, tickets=(bytes(32),))):
        with pytest.raises(MessageError):
            SessionInvitation.decode(SessionInvitation(session, bent).encode())


def test_a_local_session_reports_what_every_participant_sent() -> None:
    devices = [SecureDevice(Identity.fresh(), LOOSE) for _ in range(4)]
    party = Party.of(4)
    done = run_session(terms(4), devices, party.give)
    assert done.survivors == (0, 1, 2, 3) == done.finished
    assert min(done.sent) > party.server.total.buffer.nbytes
