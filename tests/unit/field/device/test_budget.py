"""A user's privacy budget: debited once for each vector, never refunded, and never exceeded whatever a server says."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from helpers.hostile_sessions import EASY, N_PEOPLE
from helpers.private_session import DELTA, EPSILON, PrivateSession, code_of, founded, member, planned
from helpers.refusals import refused
from helpers.small_federation import CATALOG, PASSPHRASE, first_shared, noon, request
from tacit.errors import ConsentError, DevicePolicyError, WireError
from tacit.field.device import Device, Sharing
from tacit.privacy.noise import SimulatedNoise
from tacit.protocols.secure_aggregation import DevicePolicy, Identity, SecureDevice
from tacit.protocols.secure_aggregation.messages import Roster
from tacit.protocols.secure_aggregation.server import SecureServer, ServerPhase
from tacit.protocols.secure_aggregation.two_stage import RoundContext, SecureAggregationConfig
from tacit.random import Key
from tacit.reasons import ReasonCode
from tacit.wire.messages import SecureRequest, model_in, write_secure_request, write_welcome

DONE = ServerPhase.UNMASKINGS.name


@pytest.fixture
def session(tmp_path: Path) -> PrivateSession:
    federation = founded()
    return PrivateSession(federation, member(tmp_path / "device.db", federation))


def test_a_vector_is_debited_with_the_share_that_the_device_computes(session: PrivateSession) -> None:
    assert session.spent == 0
    assert session.ask(0, until=ServerPhase.SHARES)[-1][1] == "SHARES"
    assert session.spent == 0, "nothing has left yet"
    assert session.ask(1)[-1][1] == DONE
    budget = session.device.budgets.of(session.federation)
    assert budget is not None
    assert [(debit.round, debit.share, debit.when) for debit in budget.debits] == [
        (1, 0.15, "2026-03-01T12:00:00+00:00")
    ]
    assert (budget.epsilon, budget.delta) == (EPSILON, DELTA)
    assert 0 < budget.spent_epsilon < EPSILON


def test_a_turn_that_is_repeated_gives_the_same_bytes_and_costs_nothing(session: PrivateSession) -> None:
    session.ask(0, until=ServerPhase.VECTORS)
    assert session.device.answers.step_session(session.turns[-1])[0] == session.answers[-1]
    assert session.spent == 0.15


def test_a_plan_that_is_rewound_gets_no_more_than_the_budget(session: PrivateSession) -> None:
    codes = [code_of(session.ask(number)) for number in range(9)]
    assert [isinstance(code, int) for code in codes] == [True] * 6 + [False] * 3
    assert codes[6:] == [ReasonCode.BUDGET_SPENT] * 3
    assert session.spent == pytest.approx(0.9)
    budget = session.device.budgets.of(session.federation)
    assert budget is not None
    assert budget.spent_epsilon <= EPSILON


def test_with_a_guarantee_the_budget_is_the_cap_and_no_other_limit_holds(tmp_path: Path) -> None:
    """Round after round without a pause, each with other people: noise covers what cohorts and cool-downs are for."""
    usual = DevicePolicy(n_min=2, corrupted=0.0)
    assert (usual.cool_down, usual.most_cohorts) == (5, 4)
    federation = founded("fed-svd", participations=7)
    session = PrivateSession(federation, member(tmp_path / "device.db", federation, device_policy=usual))
    codes = []
    for number in range(9):
        session.peers = [SecureDevice(Identity.fresh(), EASY) for _ in session.peers]
        codes.append(code_of(session.ask(number)))
    assert [isinstance(code, int) for code in codes] == [True] * 7 + [False] * 2
    assert codes[7:] == [ReasonCode.BUDGET_SPENT] * 2
    assert session.spent == pytest.approx(1.0)


@pytest.mark.parametrize("share", [0.9, 0.4, 1.0])
def test_a_share_of_the_servers_choice_is_debited_as_it_is(session: PrivateSession, share: float) -> None:
    asked = [session.ask(number, planned(session.federation, share)) for number in range(4)]
    n_answered = sum(isinstance(code_of(steps), int) for steps in asked)
    assert n_answered == int(1 / share)
    assert session.spent == pytest.approx(n_answered * share)
    assert session.spent <= 1


@pytest.mark.parametrize("share", [-0.1, 1.5, 1e-300, 500.0])
def test_a_share_that_is_none_is_refused_before_anything_is_learnt(session: PrivateSession, share: float) -> None:
    steps = session.ask(0, planned(session.federation, share))
    assert len(steps) == 1
    assert code_of(steps) in {ReasonCode.OTHER_TERMS, ReasonCode.NOISE_OVERFLOW}
    assert session.spent == 0


def test_a_plan_without_a_step_is_refused_and_one_that_is_done_asks_for_nothing(session: PrivateSession) -> None:
    shared = first_shared(session.federation)
    for number, (step, code) in enumerate(((50.0, ReasonCode.OTHER_TERMS), (-1.0, ReasonCode.PLAN_DONE))):
        plan = shared["plan"].copy()
        plan[0] = step
        assert code_of(session.ask(number, {**shared, "plan": plan})) == code
    assert session.spent == 0


def test_a_round_is_answered_once_whatever_model_it_is_asked_with(session: PrivateSession) -> None:
    session.ask(0)
    again = PrivateSession(session.federation, session.device).ask(0, planned(session.federation, 0.05))
    assert code_of(again) in {ReasonCode.ROUND_REPEATED, ReasonCode.ROUND_ANSWERED}
    assert session.spent == 0.15


def test_a_server_that_would_go_on_with_fewer_is_refused(session: PrivateSession) -> None:
    care = SecureAggregationConfig(two_stage=False, n_min=2, k_min=1, corrupted=0.0, dropped=0.0)
    assert code_of(session.ask(0, care=care)) == ReasonCode.WEAK_NOISE
    assert session.spent == 0


def test_participants_that_do_not_exist_are_missing_before_anything_is_spent(session: PrivateSession) -> None:
    """An invented cohort makes shares of noise small; but its members must then be there, and sign."""
    federation, device = session.federation, session.device
    invented = [bytes([n]) * 32 for n in range(17)]
    opening = request(federation, 0)
    here = RoundContext(federation.digest.hex(), 0, model_in(opening), bytes(32))
    care = SecureAggregationConfig(two_stage=False, n_min=16, k_min=1, corrupted=0.0, dropped=0.2)
    shapes = federation.built.shapes(first_shared(federation))
    people = [device.identity, *(peer.identity.public for peer in session.peers), *invented]
    assert federation.guarantee is not None
    assert federation.guarantee.n_needed(len(people)) == 16
    server = SecureServer.start(here.adding_all(shapes, federation.ring, len(people), care, ()), people)
    device.answers.step_session(write_secure_request(federation, SecureRequest(0, 0, server.invitation, opening)))
    places = [server.session.position(one) for one in people[:N_PEOPLE]]
    roster = Roster(frozenset(places), ()).encode(server.session.context, len(people))
    with refused(DevicePolicyError, ReasonCode.TOO_MANY_DROPOUTS, left=N_PEOPLE, needed=16):
        device.answers.step_session(write_secure_request(federation, SecureRequest(0, 1, roster)))
    assert session.spent == 0


def test_a_delta_that_is_too_large_for_the_cohort_is_refused(tmp_path: Path) -> None:
    federation = founded(delta=0.4)
    session = PrivateSession(federation, member(tmp_path / "device.db", federation))
    assert code_of(session.ask(0)) == ReasonCode.LARGE_DELTA


def test_leaving_and_joining_again_finds_the_budget(session: PrivateSession) -> None:
    session.ask(0)
    session.device.leave()
    assert [budget.spent for budget in session.device.budgets.list()] == [0.15]
    session.device.join(write_welcome(session.federation, CATALOG))
    session.ask(1)
    assert session.spent == 0.3


def test_another_epsilon_in_the_terms_of_the_same_federation_is_refused(session: PrivateSession) -> None:
    session.ask(0)
    other = founded(epsilon=20.0)
    lying = PrivateSession(other, session.device)
    assert isinstance(code_of(lying.ask(1)), str), "its requests are not those of the federation that was joined"
    session.device.leave()
    session.device.join(write_welcome(other, CATALOG))
    session.device.share(Sharing(privacy="open", device_policy=EASY))
    assert code_of(lying.ask(2)) == ReasonCode.OTHER_GUARANTEE
    assert [budget.spent for budget in session.device.budgets.list()] == [0.15]


def test_the_budget_of_a_copy_counts_as_spent(session: PrivateSession, tmp_path: Path) -> None:
    session.device.backup(tmp_path / "copy")
    session.ask(0)
    with Device.restore(tmp_path / "copy", tmp_path / "restored.db", PASSPHRASE, noon) as restored:
        again = PrivateSession(session.federation, restored)
        assert again.spent == 1.0
        assert [code_of(again.ask(number)) for number in (1, 2)] == [ReasonCode.SITS_OUT] * 2
        assert code_of(again.ask(3)) == ReasonCode.COPIED_BUDGET
        restored.leave()
        restored.join(write_welcome(session.federation, CATALOG))
        assert code_of(again.ask(4)) == ReasonCode.COPIED_BUDGET


def test_a_file_that_is_put_back_without_a_restore_has_spent_its_budget_too(
    session: PrivateSession, tmp_path: Path
) -> None:
    shutil.copy(tmp_path / "device.db", tmp_path / "old.db")
    session.ask(0)
    session.device.close()
    shutil.copy(tmp_path / "old.db", tmp_path / "device.db")
    with Device.open(tmp_path / "device.db", PASSPHRASE, noon) as device:
        assert PrivateSession(session.federation, device).spent == 1.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "phase"),
    [*(("put back", phase) for phase in list(ServerPhase)[:5]), ("restored", ServerPhase.SHARES)],
    ids=str,
)
def test_an_old_copy_of_any_moment_never_lets_more_be_spent(tmp_path: Path, way: str, phase: ServerPhase) -> None:
    """A copy is taken in the midst of a sum; the original spends all that is left; then the copy is asked again."""
    federation, path = founded("fed-svd"), tmp_path / "device.db"
    session = PrivateSession(federation, member(path, federation))
    asked = [session.ask(0, until=phase)]
    if way == "restored":
        session.device.backup(tmp_path / "copy")
    else:
        shutil.copy(path, tmp_path / "copy")
    asked += [session.ask(number) for number in range(1, 5)]
    session.device.close()
    if way == "restored":
        device = Device.restore(tmp_path / "copy", tmp_path / "again.db", PASSPHRASE, noon)
    else:
        shutil.copy(tmp_path / "copy", path)
        device = Device.open(path, PASSPHRASE, noon)
    with device:
        again = PrivateSession(federation, device)
        assert again.spent == 1.0
        asked += [again.ask(number) for number in (0, 1, 5, 8)]
    left = [step for steps in asked for step in steps if step[1] == "VECTORS" and isinstance(step[2], int)]
    assert len(left) == 3, "a third of the budget each"


def test_a_device_stops_at_the_level_of_its_user(tmp_path: Path) -> None:
    federation = founded()
    session = PrivateSession(federation, member(tmp_path / "device.db", federation, privacy="strict"))
    codes = [code_of(session.ask(number, planned(federation, 0.02))) for number in range(8)]
    assert ReasonCode.PRIVACY_LEVEL in codes
    budget = session.device.budgets.of(federation)
    assert budget is not None
    assert 0.5 < budget.spent_epsilon <= 1.0
    session.device.share(Sharing(privacy="balanced", device_policy=EASY))
    assert isinstance(code_of(session.ask(9)), int)


def test_a_level_that_is_lowered_holds_back_what_was_prepared(session: PrivateSession) -> None:
    class Lowering(PrivateSession):
        def before_turn(self, phase: ServerPhase) -> None:
            if phase == ServerPhase.VECTORS:
                self.device.share(Sharing(privacy="strict", device_policy=EASY))

    lowering = Lowering(session.federation, session.device)
    assert code_of(lowering.ask(0)) == ReasonCode.SETTINGS_NARROWED
    assert lowering.spent == 0


def test_nothing_readable_and_no_exact_counts_leave(session: PrivateSession) -> None:
    with refused(ConsentError, ReasonCode.NEEDS_MASKS):
        session.device.learn(request(session.federation, 0))
    opening = request(session.federation, 0)
    here = RoundContext(session.federation.digest.hex(), 0, model_in(opening), bytes(32))
    shapes = session.federation.built.shapes(first_shared(session.federation))
    care = SecureAggregationConfig(n_min=3, k_min=3, corrupted=0.0, dropped=0.0)
    assert code_of(session.hold(0, opening, [here.counting(shapes, 3, care)])) == ReasonCode.OTHER_TERMS
    exact = here.adding_all(shapes, session.federation.ring, 3, care.model_copy(update={"two_stage": False}))
    assert code_of(session.hold(0, opening, [exact])) == ReasonCode.OTHER_TERMS


@pytest.mark.parametrize("method", ["dp-svd", "fed-als"])
@pytest.mark.parametrize("items", [(), (1, 2, 5, 9)], ids=["empty history", "a history"])
def test_every_number_carries_noise_whatever_the_history(tmp_path: Path, method: str, items: tuple[int, ...]) -> None:
    federation = founded(method)
    device = member(tmp_path / "device.db", federation)
    for entry in device.history.list():
        if CATALOG.item_ids.index(entry.item) not in items:
            device.history.remove(entry.item, CATALOG)
    session = PrivateSession(federation, device)
    steps = session.ask(0)
    shapes = federation.built.shapes(first_shared(federation))
    total = session.last_sum(shapes)
    guarantee = federation.guarantee
    assert guarantee is not None
    noise = np.concatenate(
        [sums.ravel() for sums in total.sums.values()] + [total.counts[name] for name in guarantee.count_units]
    )
    assert (noise != 0).all()
    std = np.sqrt(
        guarantee.share_variance(guarantee.share_of(federation.built.budget_share(first_shared(federation))), 3)
    )
    assert 0.5 * std < noise.std() < 2 * std
    assert [step[1] for step in steps] == [phase.name for phase in tuple(ServerPhase)[:5]]
    assert len(device.ledger.list()) == 1


def test_noise_that_can_be_repeated_is_refused_on_a_real_device(session: PrivateSession, tmp_path: Path) -> None:
    session.device.close()
    with Device.open(
        tmp_path / "device.db", PASSPHRASE, noon, noise=lambda number: SimulatedNoise(Key(number))
    ) as device:
        refused_there = PrivateSession(session.federation, device)
        assert refused_there.ask(0) == [(2, "ADVERTS", "None")]


def test_equal_shares_are_those_that_were_agreed_on(tmp_path: Path) -> None:
    federation = founded("fed-svd")
    session = PrivateSession(federation, member(tmp_path / "device.db", federation))
    codes = [code_of(session.ask(number)) for number in range(4)]
    assert [isinstance(code, int) for code in codes] == [True, True, True, False]
    assert codes[3] == ReasonCode.BUDGET_SPENT
    assert session.spent == pytest.approx(1.0)


def test_a_welcome_whose_guarantee_cannot_hold_is_refused(tmp_path: Path) -> None:
    federation = founded("fed-svd")
    wrong = federation.model_copy(update={"privacy": founded().privacy})
    with pytest.raises(WireError):
        Device.create(tmp_path / "device.db", PASSPHRASE).join(write_welcome(wrong, CATALOG))
