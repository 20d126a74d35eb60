"""GMF, MLP and NeuMF on devices, on worlds whose right answer is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from helpers.one_round import add_once, learn_once
from tacit.errors import ConfigError, DivergedError, MethodError
from tacit.kernels.losses import LOSSES
from tacit.lab.simulation import SimulationOptions, simulate
from tacit.lab.traffic import Traffic
from tacit.methods.base import build_federated, options
from tacit.methods.parts.aggregation import AVERAGES
from tacit.methods.parts.server_steps import apply_server_step
from tacit.privacy.disclosure import Disclosure, DisclosureConfig
from tacit.protocols.federated import UpdatePath
from tacit.random import Key
from tacit.testing import two_tastes
from tacit.types import Catalog, Clients, Model, Vocabulary
from tacit.updates import Ring, Total

NAMES = ("fed-gmf", "fed-mlp", "fed-neumf")
EVERY = pytest.mark.parametrize("name", NAMES)
KEY, RING = Key(1), Ring()
MakesClients = Callable[..., Clients]
WAYS: list[dict[str, Any]] = [
    {},
    {"loss": "bpr"},
    {"loss": "softmax", "server_momentum": 0.9, "server_rate": 0.3},
    {"server_optimiser": "adam", "server_momentum": 0.9, "server_rate": 0.01},
    {"server_optimiser": "yogi", "server_rate": 0.01},
]


def catalog_of(clients: Clients) -> Catalog:
    return Catalog(Vocabulary(np.arange(clients.n_items)))


def world(people: int = 60) -> Clients:
    return two_tastes(people, 20)[0]


def method_of(name: str, **given: Any) -> Any:
    return build_federated(name, options(name, {"epochs": 2, "factors": 6} | given))


def learnt(method: Any, clients: Clients, traffic: Traffic | None = None, reference: bool = False) -> Model:
    how = SimulationOptions(reference=reference)
    for model in simulate(UpdatePath(method, (), RING), clients, catalog_of(clients), KEY, traffic, how):
        last = model
    return last.copy()


@pytest.mark.slow
@EVERY
@pytest.mark.parametrize("given", WAYS)
def test_two_tastes_are_learnt(name: str, given: dict[str, Any]) -> None:
    clients = world()
    method = method_of(name, epochs=60, learning_rate=0.01, batch_size=16, init_scale=0.1, **given)
    model = learnt(method, clients)
    scores = method.score(model.shared, model.private, clients)
    unseen = clients.matrix().toarray() == 0
    own = (np.arange(20) % 2)[None, :] == (clients.ids % 2)[:, None]
    gaps = np.array([scores[c, unseen[c] & own[c]].mean() - scores[c, unseen[c] & ~own[c]].mean() for c in range(60)])
    assert np.mean(gaps > 0) >= 0.9, f"{np.mean(gaps > 0):.0%} are recommended what they like"
    rows, items = np.array([0, 3, 59]), np.array([19, 2, 7])
    pairs = method.score_pairs(model.shared, model.private, rows, items, clients)
    np.testing.assert_allclose(pairs, scores[rows, items], rtol=2e-5, atol=1e-5)


@EVERY
@pytest.mark.parametrize("aggregation", ["mf-fedavg", "fedavg", "simple-avg"])
@pytest.mark.parametrize("bits", [32, 64])
def test_adding_cohorts_at_once_equals_writing_every_message(name: str, aggregation: str, bits: int) -> None:
    clients, ring = world(), Ring(bits=bits)
    given = {"loss": "softmax", "server_optimiser": "yogi"} if aggregation == "fedavg" else {"server_momentum": 0.5}
    method = method_of(name, aggregation=aggregation, clients_per_round=7, shrink=0.5, **given)
    catalog = catalog_of(clients)
    config = DisclosureConfig.from_options({"pi": 0.4, "never_items": (3,)}, "privacy")
    for stages in ([], [Disclosure.build(config, Vocabulary(clients.ids), catalog, Key(3))]):
        found = []
        for reference in (False, True):
            traffic, how = Traffic.none(len(clients)), SimulationOptions(reference=reference)
            for model in simulate(UpdatePath(method, stages, ring), clients, catalog, KEY, traffic, how):
                last = model
            found.append({**last.shared, **last.private, **vars(traffic)})
        for array in found[0]:
            assert np.array_equal(found[0][array], found[1][array]), array


@EVERY
def test_every_client_is_asked_once_in_a_global_round(name: str) -> None:
    clients, traffic = world(), Traffic.none(60)
    learnt(method_of(name, epochs=3, clients_per_round=7), clients, traffic=traffic)
    assert (traffic.rounds == 3).all()


@EVERY
def test_a_row_is_the_mean_over_those_who_moved_it(name: str) -> None:
    clients = world()
    method = method_of(name)
    model = method.init(clients, catalog_of(clients), KEY)
    update, _ = learn_once(method, model, clients, KEY)
    moved = method.apply(model.shared, add_once(method, model, clients, KEY), RING)
    rows, layers = update.tables["items"], update.tables["layers"].values
    for item in range(clients.n_items):
        mean = rows.values[rows.ids == item].mean(axis=0)
        np.testing.assert_allclose(moved["items"][item] - model.shared["items"][item], mean, atol=1e-6)
    mean = layers[:, :-1].sum(axis=0) / layers[:, -1].sum()
    np.testing.assert_allclose((moved["layers"] - model.shared["layers"])[0, :-1], mean, atol=1e-6)


CHANGES: dict[str, Any] = {
    "factors": 12,
    "learning_rate": 0.01,
    "own_rate": 2.0,
    "epochs": 3,
    "local_epochs": 1,
    "clients_per_round": 7,
    "batch_size": 16,
    "negatives": 2,
    "init_scale": 0.1,
    "aggregation": "simple-avg",
    "shrink": 1.0,
    "loss": "softmax",
    "server_optimiser": "adam",
    "server_rate": 0.5,
    "server_momentum": 0.5,
    "layers": (5, 4),
}


@EVERY
def test_every_option_has_an_effect(name: str) -> None:
    clients, usual = world(), method_of(name)
    before = learnt(usual, clients)
    scores = usual.score(before.shared, before.private, clients)
    for option in type(usual.config).model_fields:
        method = method_of(name, **{option: CHANGES[option]})
        model = learnt(method, clients)
        assert not np.array_equal(scores, method.score(model.shared, model.private, clients)), option


@EVERY
def test_items_to_avoid_are_never_trained_as_negatives(name: str, cohort: MakesClients) -> None:
    clients = world(4)
    avoid = cohort([[11], [10], [13], [12]], 20)
    told = replace(clients, avoid=avoid)
    method = method_of(name)
    for number in range(30):
        starts = method.draw(told, KEY.child(number))
        for c in range(4):
            assert avoid.of(c)[0] not in starts[3][starts[2][c] : starts[2][c + 1]]
    assert not np.array_equal(learnt(method, told).shared["items"], learnt(method, clients).shared["items"])


@EVERY
@pytest.mark.parametrize("loss", LOSSES)
def test_people_with_everything_or_nothing_take_part(name: str, loss: str, cohort: MakesClients) -> None:
    """Nothing is left to draw from for the first; the second has no sample, weighs nothing and moves nothing."""
    clients = cohort([list(range(6)), [], [2]], 6)
    method = method_of(name, aggregation="fedavg", clients_per_round=1, loss=loss, server_momentum=0.5)
    model = learnt(method, clients)
    for array in (*model.shared.values(), *model.private.values()):
        assert np.isfinite(array).all()
    first = method.init(clients, catalog_of(clients), KEY.child("init"))
    assert np.array_equal(model.private["users"][1], first.private["users"][1])
    alone = learnt(method, clients.take([0]))
    assert np.isfinite(alone.shared["items"]).all()
    has_moved = not np.array_equal(alone.shared["items"], first.shared["items"])
    assert has_moved == (loss == "bce"), "without negatives there is nothing to compare the client's positives with"
    with pytest.raises(MethodError, match="nothing to learn from"):
        learnt(method, clients.take([1]))


@EVERY
@pytest.mark.parametrize("loss", ["bpr", "softmax"])
def test_a_client_without_negatives_mentions_no_row_and_weighs_nothing(
    name: str, loss: str, cohort: MakesClients
) -> None:
    clients = cohort([list(range(6)), [1, 3], [2]], 6)
    method = method_of(name, loss=loss)
    model = method.init(clients, catalog_of(clients), KEY)
    update, private = learn_once(method, model, clients, KEY)
    alone, _ = learn_once(method, model.take(np.array([1, 2])), clients.take([1, 2]), KEY)
    assert update.tables["items"].ptr[1] == 0
    assert update.tables["layers"].values[0, -1] == 0
    assert np.array_equal(update.tables["items"].values, alone.tables["items"].values)
    assert np.array_equal(private["users"][0], model.private["users"][0])


@EVERY
def test_a_round_without_any_weight_moves_nothing_even_with_momentum(name: str, cohort: MakesClients) -> None:
    clients = cohort([[1, 3], [2], []], 6)
    method = method_of(name, server_momentum=0.9)
    model = method.init(clients, catalog_of(clients), KEY)
    shared = model.shared
    for who in ([0, 1], [2]):
        asked = Model(shared, model.take(np.array(who)).private)
        total = add_once(method, asked, clients.take(who), KEY)
        before, shared = shared, method.apply(shared, total, RING)
        assert np.array_equal(shared["layers"], before["layers"]) == (who == [2])
        assert np.array_equal(shared["items"], before["items"]) == (who == [2])


def test_batches_of_one_sample_cannot_be_compared() -> None:
    options("fed-gmf", {"batch_size": 1})
    with pytest.raises(ConfigError, match="set batch_size to 2 or more"):
        options("fed-gmf", {"batch_size": 1, "loss": "bpr"})


@EVERY
@pytest.mark.parametrize("reference", [False, True])
def test_runaway_learning_is_refused_before_it_reaches_the_model(name: str, reference: bool) -> None:
    with pytest.raises(DivergedError):
        learnt(method_of(name, learning_rate=1e6), world(), reference=reference)


def test_layers_that_do_not_fit_are_refused() -> None:
    for layers in ((), (8, 0), (8, -1)):
        with pytest.raises(ConfigError, match="layers"):
            options("fed-neumf", {"layers": layers})
    method, clients = method_of("fed-mlp", layers=(8, 4)), world()
    model = learnt(method, clients)
    with pytest.raises((MethodError, ValueError)):
        method_of("fed-mlp", layers=(8, 5)).score(model.shared, model.private, clients)


def test_what_leaves_is_not_ordered_by_the_history(cohort: MakesClients) -> None:
    draws = method_of("fed-gmf").draw(cohort([[40, 60, 80]], 100), KEY)
    assert (np.diff(draws[3]) > 0).all(), "rows leave in the order of items"


@pytest.mark.parametrize("aggregation", ["simple-avg", "fedavg", "mf-fedavg"])
def test_a_sum_of_few_rows_moves_them_as_a_sum_of_all_would(aggregation: str) -> None:
    """Small rounds apply the mentioned rows only."""
    method, ring, rng = method_of("fed-gmf", aggregation=aggregation, shrink=0.5), Ring(), np.random.default_rng(1)
    shared = method.init(world(), catalog_of(world()), Key(2)).shared
    total = Total.zero(method.shapes(shared))
    rows = np.arange(3)
    total.sums["items"][rows] = rng.integers(-(2**18), 2**18, (len(rows), total.sums["items"].shape[1]))
    total.sums["layers"][:] = rng.integers(0, 2**18, total.sums["layers"].shape)
    total.counts["items"][rows], total.n_clients = [1, 2, 3], 4
    average = AVERAGES[aggregation]
    expected = apply_server_step(method.config, shared, *average.moves(total, ring, method.config.shrink))
    found = method.apply(shared, total, ring)
    assert 4 * len(rows) <= len(shared["items"])
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)
