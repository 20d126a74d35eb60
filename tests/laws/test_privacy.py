"""What holds for every federated method under differential privacy: bounds, noise, accounts, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tacit.errors import ConfigError
from tacit.lab.guarantee import PrivacyLog, build_privacy, count_participations
from tacit.lab.secure_rounds import SecureRoundsConfig
from tacit.lab.simulation import SimulationOptions, simulate
from tacit.lab.traffic import Traffic
from tacit.lab.training import RuntimeConfig, learn
from tacit.methods.base import build_federated, entry, names, options
from tacit.privacy.dp import ContributionSpec, DifferentialPrivacy, DPConfig, count_share
from tacit.privacy.draft import Draft, DraftRows
from tacit.privacy.noise import SimulatedNoise
from tacit.privacy.pure import build_guarantee
from tacit.privacy.update_sink import Stage, UpdateSink
from tacit.protocols.federated import UpdatePath, device_round, server_round
from tacit.protocols.rounds import RoundsConfig
from tacit.random import Key
from tacit.types import Catalog, Clients, Model
from tacit.updates import Message, PlannedRows, Ring, Total

FEDERATED = names("federated")
PRIVATE = [name for name in FEDERATED if not build_federated(name).spec.client_tables]
KEY = Key(7).child("learn")
RINGS = (Ring(), Ring(bits=32, fraction=14))
World = tuple[Clients, Catalog]


def quick(name: str, **given: Any) -> Any:
    fields = entry(name).config.model_fields
    few = {"epochs": 3, "factors": 6, "learning_rate": 0.05, "local_steps": 4}
    return build_federated(name, options(name, {k: v for k, v in few.items() if k in fields} | given))


def stage_of(
    method: Any, ring: Ring, bound: float, clients: Clients | None = None, **given: Any
) -> DifferentialPrivacy:
    """The stage for all rounds of these clients, or for three."""
    spec = method.spec
    config = DPConfig(epsilon=given.pop("epsilon", 4.0), delta=1e-3, bound=bound, **given)
    times = 3 if clients is None else count_participations(method, clients, RoundsConfig(), KEY)
    return build_guarantee(config, ContributionSpec(spec.counted, None, spec.rows_repeat, times), ring, 40)


def exact_total(path: UpdatePath, model: Model, clients: Clients, key: Key) -> Total:
    """Return the sum of a round before any noise."""
    total = Total.zero(path.method.shapes(model.shared))
    device_round(
        path, Model(path.method.spec.received(model.shared, clients.ids), model.private), clients, key, 0, total
    )
    return total


def contributions(message: Message, method: Any, shared: Any, stage: DifferentialPrivacy, power: int = 2) -> np.ndarray:
    """Return the exact length of what each client adds to a sum, counts included, in steps of the ring.

    The Euclidean length, or, with a power of 1, the sum of magnitudes.
    """
    found = []
    for c in range(len(message.clients)):
        one = Total.zero(method.shapes(shared))
        for table, (ptr, ids, numbers) in message.tables.items():
            rows = slice(int(ptr[c]), int(ptr[c + 1]))
            np.add.at(one.sums[table], ids[rows], numbers[rows])
            np.add.at(one.counts[table], ids[rows], message.counts[table][rows])
        squares = sum(int((abs(array.astype(object)) ** power).sum()) for array in one.sums.values())
        squares += sum(int((abs(one.counts[table].astype(object)) ** power).sum()) for table in stage.count_units)
        assert not any(one.counts[table].any() for table in one.counts if table not in stage.count_units)
        found.append(float(squares) ** (1 / power))
    return np.array(found)


@pytest.mark.parametrize("name", PRIVATE)
@pytest.mark.parametrize("ring", RINGS, ids=str)
@pytest.mark.parametrize("bound", [0.02, 3.0])
def test_no_client_adds_more_than_the_bound(name: str, ring: Ring, bound: float, tastes: World) -> None:
    """As whole numbers, after rounding, over all tables and counts, repeated rows included."""
    method = quick(name)
    stage = stage_of(method, ring, bound)
    model = method.init(*tastes, KEY.child("init"))
    for scale in (1.0, 30.0):  # what a client learns from a strange model is bounded too
        shared = {
            n: a * scale if n in method.spec.downloads and a.dtype == np.float32 else a for n, a in model.shared.items()
        }
        here = Model(method.spec.received(shared), model.private)
        message = device_round(UpdatePath(method, [stage], ring), here, tastes[0], KEY, 0).message
        assert message is not None
        lengths = contributions(message, method, shared, stage)
        assert lengths.max() <= bound * float(ring.scale)
    if bound < 1 and ring.fraction == 20:
        assert lengths.max() > 0.4 * bound * float(ring.scale)  # the bound is used, not wasted


@pytest.mark.parametrize("name", PRIVATE)
def test_under_laplace_noise_magnitudes_are_bounded_and_rounds_cost_epsilon(name: str, tastes: World) -> None:
    """As whole numbers, over all tables and counts; message by message and cohort at once make the same model."""
    method, ring = quick(name), Ring()
    stage = stage_of(method, ring, 0.1, tastes[0], epsilon=500.0, mechanism="laplace", mode="central")
    path = UpdatePath(method, [stage], ring)
    model = method.init(*tastes, KEY.child("init"))
    here = Model(method.spec.received(model.shared), model.private)
    message = device_round(path, here, tastes[0], KEY, 0).message
    assert message is not None
    lengths = contributions(message, method, model.shared, stage, power=1)
    assert 0.3 * 0.1 * float(ring.scale) < lengths.max() <= 0.1 * float(ring.scale)
    logs, models = (PrivacyLog(), PrivacyLog()), []
    for log, is_reference in zip(logs, (False, True), strict=True):
        how = SimulationOptions(reference=is_reference, privacy_log=log)
        for passed in simulate(path, *tastes, KEY, None, how):
            last = passed
        models.append(last.copy())
    for array_name, array in models[0].shared.items():
        assert np.array_equal(array, models[1].shared[array_name]), array_name
    spent = sum(1.0 / one.event.noise_multiplier for one in logs[0].rounds if one.event.noise_multiplier)
    assert 0 < spent <= 500.0 * max(1.0, len(logs[0].rounds) / stage.participations)
    assert (
        sum(1.0 / one.noise_multiplier for one in logs[0].worst_events(len(tastes[0])) if one.noise_multiplier) <= 500
    )
    assert {one.event.mechanism for one in logs[0].rounds} == {"laplace"}


@pytest.mark.parametrize("name", PRIVATE)
@pytest.mark.parametrize("ring", RINGS, ids=str)
def test_message_by_message_equals_cohort_at_once(name: str, ring: Ring, tastes: World) -> None:
    """The same clipped numbers, and the same noise, which is drawn for the whole sum: the same model, bit for bit."""
    method = quick(name)
    path = UpdatePath(method, [stage_of(method, ring, 2.0, tastes[0], epsilon=1000.0)], ring)
    counted = [Traffic.none(len(tastes[0])) for _ in range(2)]
    models = []
    for traffic, is_reference in zip(counted, (False, True), strict=True):
        for model in simulate(path, *tastes, KEY, traffic, SimulationOptions(reference=is_reference)):
            last = model
        models.append(last.copy())
    for part in ("shared", "private"):
        for array_name, array in getattr(models[0], part).items():
            assert np.array_equal(array, getattr(models[1], part)[array_name]), array_name


@pytest.mark.parametrize("name", PRIVATE)
def test_every_number_of_the_support_carries_the_noise(name: str, tastes: World) -> None:
    method, ring = quick(name), Ring()
    stage = stage_of(method, ring, 2.0)
    model = method.init(*tastes, KEY.child("init"))
    exact = exact_total(UpdatePath(method, [stage], ring), model, tastes[0], KEY)
    noisy = stage.add_noise(exact, 0.25, 40, SimulatedNoise(Key(1)))
    std = stage.std(0.25) * float(ring.scale)
    for table, sums in exact.sums.items():
        cells = [(noisy.sums[table] - sums).ravel()]
        cells += [noisy.counts[table] - exact.counts[table]] if table in stage.count_units else []
        drawn = np.concatenate(cells)
        assert (drawn != 0).mean() > 0.99
        assert np.abs(drawn).max() < 7 * std
        if drawn.size > 100:
            assert 0.7 * std < drawn.std() < 1.3 * std
    read = stage.read(noisy, 0.25, 40)
    assert read.noise == pytest.approx(stage.std(0.25))
    assert all((counts >= 1).all() for counts in read.counts.values())


@pytest.mark.parametrize("name", PRIVATE)
def test_counts_that_a_method_does_not_declare_are_not_read(name: str, tastes: World) -> None:
    method, ring = quick(name), Ring()
    model = method.init(*tastes, KEY.child("init"))
    path = UpdatePath(method, [], ring)
    total = exact_total(path, model, tastes[0], KEY)
    all_clients = {
        table: counts if table in method.spec.counted else np.full_like(counts, total.n_clients)
        for table, counts in total.counts.items()
    }
    left, right = (
        server_round(path, model.shared, total),
        server_round(path, model.shared, replace(total, counts=all_clients)),
    )
    for array_name, array in left.items():
        assert np.array_equal(array, right[array_name]), array_name


@pytest.mark.parametrize("name", PRIVATE)
def test_all_rounds_together_cost_epsilon(name: str, tastes: World) -> None:
    """The account is made from what happened, and never above what was asked for."""
    method = quick(name)
    config = DPConfig(epsilon=20.0, delta=1e-3, bound=None if method.spec.bound else 0.5)
    if "learning_rate" in entry(name).config.model_fields:
        method = quick(name, learning_rate=1e-4)  # noise must not make it diverge
    found = learn(method, *tastes, KEY, RuntimeConfig(), [config]).privacy
    assert found is not None
    assert found["epsilon_server"] <= 20.0 * (1 + 1e-6)
    assert found["simulated_noise"] is True
    assert len(found["rounds"]) <= method.schedule(tastes[0]).rounds
    spent = sum(one["noise_multiplier"] ** -2 for one in found["rounds"])
    assert spent > 0


def test_clients_whose_numbers_do_not_fit_are_counted_as_zeros(tastes: World) -> None:
    """How many clients withheld an update depends on what they did: the number of clients must not."""
    method, log = quick("fpl"), PrivacyLog()
    path = UpdatePath(method, [stage_of(method, Ring(), 1.0, tastes[0])], Ring())
    list(simulate(path, *tastes, KEY, None, SimulationOptions(privacy_log=log)))
    assert {one.n_summed for one in log.rounds} == {method.schedule(tastes[0]).clients_per_round}


def test_too_many_dropouts_abandon_the_round(tastes: World) -> None:
    method, log = quick("fed-svd", epochs=12), PrivacyLog()
    stage = stage_of(method, Ring(), 1.0, tastes[0], dropped=0.1)
    path = UpdatePath(method, [stage], Ring())
    rules = RoundsConfig(dropout=0.1)
    list(simulate(path, *tastes, KEY, None, SimulationOptions(rules, privacy_log=log)))
    assert 0 < len(log.rounds) < 12
    assert all(one.n_summed >= stage.n_needed(one.n_asked) == 36 for one in log.rounds)


def test_participations_are_those_of_the_busiest_client(tastes: World) -> None:
    method = quick("fed-gmf", epochs=4, clients_per_round=7)
    log = PrivacyLog()
    stage = build_privacy(DPConfig(epsilon=8.0, bound=1.0), method, *tastes, KEY, Ring(), RoundsConfig())
    assert stage.participations == count_participations(method, tastes[0], RoundsConfig(), KEY)
    list(simulate(UpdatePath(method, [stage], Ring()), *tastes, KEY, None, SimulationOptions(privacy_log=log)))
    assert len(log.worst_events(len(tastes[0]))) == stage.participations
    assert log.guarantee(len(tastes[0]), stage.delta).epsilon_server == pytest.approx(8.0, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "given", "rounds"),
    [
        ("fed-svd", {}, {}),  # no bound
        ("fed-svd", {"bound": 1.0, "delta": 0.5}, {}),
        ("fed-svd", {"bound": 1.0, "dropped": 0.5, "corrupted": 0.5}, {}),
        ("fed-svd", {"bound": 1e-9}, {}),
        ("dp-svd", {"bound": 0.5}, {}),
        ("fedfast", {"bound": 1.0}, {}),
        ("fpl", {"bound": 1.0}, {}),  # its number of local steps is the average of all histories
        ("fed-svd", {"bound": 1.0}, {"criteria": {"order": ["size"]}}),
        ("fed-svd", {"bound": 1.0}, {"robust": {"rule": "median", "groups": 3}}),
    ],
)
def test_what_no_guarantee_follows_from_is_refused(name: str, given: Any, rounds: Any, tastes: World) -> None:
    few = {"factors": 6} if name == "fed-svd" else {}
    method = build_federated(name, options(name, few))
    with pytest.raises(ConfigError):
        build_privacy(DPConfig(epsilon=1.0, **given), method, *tastes, KEY, Ring(), RoundsConfig(**rounds))


@pytest.mark.parametrize("epsilon", [0.0, -1.0, np.nan, np.inf])
def test_an_epsilon_that_is_none_is_refused(epsilon: float) -> None:
    with pytest.raises(ConfigError):
        DPConfig.from_options({"epsilon": epsilon}, "privacy")


@pytest.mark.parametrize(("share", "n", "seen"), [(0.29, 100, 29), (0.57, 100, 57), (0.2, 13, 2), (0.0, 5, 0)])
def test_shares_of_participants_are_counted_as_they_are_written(share: float, n: int, seen: int) -> None:
    """In floats .29 * 100 is 28.999...: one colluding client fewer than stated, and too little noise."""
    assert count_share(share, n) == seen


def test_numbers_that_single_precision_cannot_shorten_are_zeros(tastes: World) -> None:
    """A factor below the smallest normal number rounds up; a weight times the scale overflows."""
    draft = Draft(np.arange(2), [])
    for weights, vectors in (
        (np.full(2, 1e35, np.float32), np.full((2, 3), 1e-36, np.float32)),
        (np.full(2, 1e30, np.float32), np.full((2, 3), 1e30, np.float32)),
    ):
        planned = PlannedRows("t", np.array([0, 1, 2]), np.array([0, 1], np.int32), True)
        draft = Draft(np.arange(2), [DraftRows(planned, vectors.copy(), weights.copy(), is_outer=True)])
        draft.bound_contributions(1.0, {}, False, Ring())
        assert not draft.fits(Ring()).any()


def test_one_client_that_does_not_fit_ends_no_secure_round(tastes: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a round is abandoned must not depend on what a client did."""
    method, log = quick("fed-svd"), PrivacyLog()
    put = UpdateSink.put_outer

    def break_first(sink: UpdateSink, part: int, vectors: Any, *rest: Any, **given: Any) -> None:
        vectors = vectors.copy()
        vectors[0] = np.inf
        put(sink, part, vectors, *rest, **given)

    monkeypatch.setattr(UpdateSink, "put_outer", break_first)
    path = UpdatePath(method, [stage_of(method, Ring(), 1.0)], Ring())
    secure = SecureRoundsConfig(two_stage=False, n_min=len(tastes[0]))
    list(simulate(path, *tastes, KEY, None, SimulationOptions(secure=secure, privacy_log=log)))
    assert [one.n_summed for one in log.rounds] == [len(tastes[0])] * 3


def test_noise_that_is_too_coarse_is_refused_before_learning(tastes: World) -> None:
    """As whole numbers it would cost several times epsilon."""
    config = DPConfig(epsilon=2.0, bound=2e-4, mechanism="skellam")
    with pytest.raises(ConfigError):
        build_privacy(config, quick("fed-svd"), *tastes, KEY, Ring(fraction=14), RoundsConfig())


def test_several_coordinators_are_refused(tastes: World) -> None:
    """Each of their totals is seen, and has only the noise of its own clients."""
    method = quick("fed-svd")
    path = UpdatePath(method, [stage_of(method, Ring(), 1.0)], Ring())
    secure = SecureRoundsConfig(two_stage=False, n_min=3, coordinators=2)
    with pytest.raises(ConfigError):
        list(simulate(path, *tastes, KEY, None, SimulationOptions(secure=secure)))


def test_the_participant_lottery_is_refused(tastes: World) -> None:
    """In how many sums a client will be is not known when noise is set."""
    method = quick("fed-svd")
    path = UpdatePath(method, [stage_of(method, Ring(), 1.0)], Ring())
    secure = SecureRoundsConfig(two_stage=False, n_min=10, draw=True)
    with pytest.raises(ConfigError):
        list(simulate(path, *tastes, KEY, None, SimulationOptions(secure=secure)))


class Enlarging(Stage):
    """A stage of another package, before the one that gives the guarantee."""

    shapes_values = True

    def shape(self, draft: Any, key: Key) -> None:
        draft.multiply(np.full(len(draft.clients), 50.0, np.float32))


@pytest.mark.parametrize("name", ["fed-svd", "fed-gmf"])
def test_whatever_stages_came_before_the_bound_holds(name: str, tastes: World) -> None:
    """Counts are shortened with their rows, also where an earlier stage has enlarged both."""
    method, ring = quick(name), Ring()
    stage = stage_of(method, ring, 0.5)
    model = method.init(*tastes, KEY.child("init"))
    here = Model(method.spec.received(model.shared), model.private)
    message = device_round(UpdatePath(method, [Enlarging(), stage], ring), here, tastes[0], KEY, 0).message
    assert message is not None
    assert contributions(message, method, model.shared, stage).max() <= 0.5 * float(ring.scale)
