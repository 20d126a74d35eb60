"""The placebo test: what joint models must not depend on, seen through the whole path."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tacit
from helpers.placebo_power import TOWN, Peek, Peeker, check, cut
from helpers.random_rankings import catalog_of
from tacit.config import Experiment
from tacit.errors import DivergedError
from tacit.evaluation import LeakVerdict, PlaceboResult, draw_placebo, hold_out
from tacit.evaluation.placebo import compare_ranks, turn_signs
from tacit.heldout import Heldout
from tacit.methods import registry
from tacit.methods.base import register
from tacit.random import Key
from tacit.testing import make_clients
from tacit.types import Catalog, Clients, Config, Model

SPLITS: dict[str, dict[str, Any]] = {"one": {"kind": "leave-last-out"}, "share": {"kind": "temporal", "test": 0.2}}


@pytest.mark.parametrize("split", SPLITS.values(), ids=SPLITS)
def test_placebos_and_controls_are_unseen_distinct_and_as_many_as_were_held_out(split: dict[str, Any]) -> None:
    parts = cut(1, **split)
    placebo = draw_placebo(parts.test, parts.catalog, Key(1))
    truth, seen = parts.test.open()
    assert np.array_equal(placebo.placebos.sizes, truth.sizes)
    assert np.array_equal(placebo.controls.sizes, truth.sizes)
    for u in range(len(truth)):
        every = np.concatenate([placebo.placebos.of(u), placebo.controls.of(u), truth.of(u)])
        assert len(np.unique(every)) == len(every)
        assert not np.isin(every[: -len(truth.of(u)) or None], seen.of(u)).any()


def test_few_unseen_items_give_fewer_placebos() -> None:
    heldout = Heldout(make_clients([[0, 1], [0], [0, -1]], 5), make_clients([[2], [1, 2, 3], []], 5))
    placebo = draw_placebo(heldout, catalog_of(5), Key(1))
    assert placebo.placebos.sizes.tolist() == placebo.controls.sizes.tolist() == [1, 0, 2]


def test_the_held_out_object_itself_holds_placebos_for_a_while_and_spared_items_follow() -> None:
    parts = cut(1, kind="leave-last-out", negatives="legacy")
    placebo = draw_placebo(parts.test, parts.catalog, Key(1))
    before = parts.test.open()[0]
    with hold_out(parts.test, placebo, parts.train) as clients:
        assert parts.test.open()[0] is placebo.placebos
        assert clients.avoid is not None
        assert np.array_equal(clients.avoid.items, placebo.placebos.items)
        assert np.array_equal(clients.items, parts.train.items)
    assert parts.test.open()[0] is before


CAUGHT = {
    "one item in a hundred of three users in ten": Peek(0.01, 0.3),
    "all items of two users in a hundred": Peek(1, 0.02),
    "a hundredth of a standard deviation": Peek(1, 1, 0.01),
    "only while scoring": Peek(0.1, 1, when_scoring=True),
}


@pytest.mark.slow
@pytest.mark.parametrize("peek", CAUGHT.values(), ids=CAUGHT)
def test_a_joint_model_that_reads_what_was_held_out_is_caught_without_chance(peek: Peek) -> None:
    found = check(peek, cut(3, **SPLITS["share"]), 3)
    assert (found.changed, found.is_repeatable, found.ok) == (True, True, False)


@pytest.mark.slow
def test_an_honest_model_keeps_its_bits() -> None:
    found = check(Peek(), cut(3, **SPLITS["share"]), 3)
    assert found == PlaceboResult(changed=False)
    assert found.ok


@pytest.mark.slow
def test_without_keyed_draws_ranks_decide() -> None:
    parts = cut(3, **SPLITS["share"])
    honest, peeks = (check(peek, parts, 3) for peek in (Peek(keyed=False), Peek(0.1, 1, keyed=False)))
    assert (honest.changed, honest.is_repeatable, honest.ok) == (True, False, True)
    assert (peeks.changed, peeks.is_repeatable, peeks.ok) == (True, False, False)
    assert not honest.is_exact
    assert honest.users > 200


@pytest.mark.slow
def test_false_alarms_of_ranks_are_as_rare_as_they_should_be() -> None:
    """Popular, personal scores; which of two items was the placebo is a coin's toss: p-values are uniform."""
    parts = cut(2, **SPLITS["share"])
    rng = np.random.default_rng(0)
    people = np.arange(100)
    scores = (np.linspace(2, 0, parts.catalog.n_items) + rng.normal(size=(100, parts.catalog.n_items))).astype("f4")
    found = []
    for seed in range(60):
        key = Key(seed)
        placebo = draw_placebo(parts.test, parts.catalog, key)
        found.append(min(compare_ranks(scores, people, placebo, parts.test, key)[1].values()))
    assert np.mean(np.array(found) < 0.1) <= 0.25  # 6 of 60 are expected, 16 have a chance below 1e-3
    assert min(found) > 1e-4


def test_signs_are_turned_exactly() -> None:
    """Against all 2^8 turns."""
    differences = np.array([0.3, -0.1, 0.2, 0.5, 0.4, -0.2, 0.1, 0.6])
    signs = 1 - 2 * ((np.arange(256)[:, None] >> np.arange(8)) & 1)
    exact = np.mean(signs @ differences >= differences.sum() - 1e-9)
    assert turn_signs(differences, Key(1)) == pytest.approx(exact, abs=0.01)


class NoOptions(Config):
    """No options."""


class Diverges(Peeker):
    """It diverges when it is trained a second time."""

    made = 0

    def __init__(self, config: NoOptions) -> None:
        super().__init__(Peek())

    def fit(self, clients: Clients, catalog: Catalog, key: Key) -> Iterator[Model]:
        type(self).made += len(clients) > 1
        if len(clients) > 1 and self.made > 1:
            raise DivergedError("It diverged.")
        yield from super().fit(clients, catalog, key)


class ReadsMemory(Peeker):
    """It reads a tenth of what was held out."""

    def __init__(self, config: NoOptions) -> None:
        super().__init__(Peek(0.1, 1))


class Honest(Peeker):
    """It reads nothing."""

    def __init__(self, config: NoOptions) -> None:
        super().__init__(Peek())


@pytest.fixture
def plugins() -> Iterator[None]:
    before = dict(registry._REGISTERED)
    for name, cls in {"diverges": Diverges, "reads-memory": ReadsMemory, "honest": Honest}.items():
        register(name, NoOptions)(cls)
    yield
    registry._REGISTERED.clear()
    registry._REGISTERED.update(before)


def run(name: str, **evaluation: Any) -> LeakVerdict | Any:
    given = {"seed": 4, "data": TOWN | {"users": 120}, "method": name, "evaluation": evaluation}
    return tacit.run(Experiment.from_options(given, "test")).result["leak"]


@pytest.mark.slow
def test_a_plug_in_is_tested_and_our_own_methods_when_asked(plugins: None) -> None:
    few = {"local_only_users": 12}
    leak = run("reads-memory", **few)
    assert leak["ok"] is False
    assert leak["placebo"]["changed"], "its features kept local-only models from condemning it"
    assert run("reads-memory", placebo="never", **few)["ok"]
    honest = run("honest", **few)
    assert honest["ok"]
    assert honest["placebo"]["ok"]
    assert len(honest["blind_to"]) < len(run("ease", **few)["blind_to"])
    assert run("ease", **few)["placebo"] is None
    assert run("ease", placebo="always", local_only_users=0)["placebo"]["ok"]


def test_a_placebo_test_that_diverges_costs_the_verdict_and_not_the_run(plugins: None) -> None:
    Diverges.made = 0
    leak = run("diverges", local_only_users=0)
    assert leak["ok"] is None
    assert "It diverged." in leak["reason"]


@pytest.mark.parametrize("name", ["bpr-mf", "fpl"])
def test_negatives_that_spare_held_out_items_are_caught_in_the_joint_model(name: str) -> None:
    method = {"name": name, "epochs": 1}
    leaks = {}
    for negatives in ("clean", "legacy"):
        given = {"seed": 4, "data": TOWN | {"users": 60}, "split": {"negatives": negatives}, "method": method}
        given |= {"evaluation": {"placebo": "always", "local_only_users": 0}}
        leaks[negatives] = tacit.run(Experiment.from_options(given, "test")).result["leak"]["placebo"]
    assert (leaks["clean"]["changed"], leaks["legacy"]["changed"]) == (False, True)
    assert leaks["legacy"]["is_repeatable"]
    assert not leaks["legacy"]["ok"]
