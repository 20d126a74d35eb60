"""What holds for whole runs, from a log to a verdict: threads, repetition, and that nothing held out is ever learnt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from tacit.config import Experiment, read_config, to_yaml
from tacit.data import load
from tacit.data.dataset import Dataset
from tacit.lab.experiments import prepare_data, run
from tacit.lab.leak_check import check_leak
from tacit.methods.base import entry, methods
from tacit.types import Array

pytestmark = pytest.mark.slow


def assert_same(left: Mapping[str, Array], right: Mapping[str, Array]) -> None:
    assert left.keys() == right.keys()
    for name, array in left.items():
        assert np.array_equal(array, right[name]), f"'{name}' differs"


def small(name: str, **given: Any) -> Experiment:
    fields = entry(name).config.model_fields
    return Experiment.from_options(
        {
            "seed": 3,
            "data": {"source": "town", "users": 60, "places": 80, "visits": 20},
            "method": {"name": name} | ({"epochs": 2} if "epochs" in fields else {}),
            "evaluation": {"local_only_users": 0},
        }
        | given,
        "test",
    )


def test_threads_do_not_change_a_run() -> None:
    one, two = (run(small("fpl", runtime={"threads": n}, privacy=[{"name": "disclose", "pi": 0.5}])) for n in (1, 2))
    assert_same(one.recommender.model.shared, two.recommender.model.shared)
    assert_same(one.recommender.model.private, two.recommender.model.private)
    assert one.metrics == two.metrics
    assert one.ledger.equals(two.ledger)


def test_a_run_is_repeated_from_its_own_configuration(tmp_path: Any) -> None:
    stages = [{"name": "disclose", "pi": "beta(2,5)", "coin": "item", "never_items": [3]}]
    first = run(small("fpl", privacy=stages, runtime={"ring": {"bits": 32, "fraction": 16}}), folder=tmp_path / "a")
    config = read_config(Experiment, tmp_path / "a" / "experiment.yaml")
    assert config == first.experiment
    assert to_yaml(config) == to_yaml(first.experiment)
    again = run(config)
    assert_same(first.recommender.model.shared, again.recommender.model.shared)
    assert first.ledger.equals(again.ledger)
    opened = type(first).open(tmp_path / "a")
    assert opened.ledger.equals(first.ledger)


def other_held_out(dataset: Dataset, seed: int) -> Dataset:
    """The same histories, but whatever a temporal split would hold back is something else."""
    log = dataset.interactions
    assert log.times is not None
    items, rng = log.items.copy(), np.random.default_rng(seed)
    for person in range(len(log.user_ids)):
        mine = np.flatnonzero(log.users == person)
        newest = mine[np.lexsort((-log.items[mine], log.times[mine]))][len(mine) - int(0.2 * len(mine)) :]
        free = np.setdiff1d(np.arange(len(log.item_ids)), log.items[mine])
        items[newest] = rng.choice(free, len(newest), replace=False)
    return replace(dataset, interactions=replace(log, items=items))


@pytest.fixture(scope="module")
def both_datasets() -> tuple[Dataset, Dataset]:
    dataset = load("town", users=60, places=80, visits=20)
    return dataset, other_held_out(dataset, 5)


@pytest.mark.parametrize("name", list(methods()))
def test_a_model_knows_nothing_of_what_was_held_out(name: str, both_datasets: tuple[Dataset, Dataset]) -> None:
    """Two datasets that differ in held-out rows only give the same model, through the whole path."""
    first, second = (run(small(name), data=dataset) for dataset in both_datasets)
    assert first.metrics != second.metrics or name == "random", "the held-out items do not differ"
    assert_same(first.recommender.model.shared, second.recommender.model.shared)
    assert_same(first.recommender.model.private, second.recommender.model.private)


ALONE: Mapping[str, dict[str, Any]] = {
    "fpl": {"learning_rate": 0.2, "epochs": 60},
    "bpr-mf": {"learning_rate": 0.2, "epochs": 60},
    "gmf": {"learning_rate": 0.01, "epochs": 40},
}


@pytest.mark.parametrize(("name", "negatives"), list(product(ALONE, ["clean", "legacy"])))
def test_learning_alone_is_chance_unless_negatives_leak(name: str, negatives: str) -> None:
    experiment = small(
        name,
        data={"source": "town", "users": 200, "places": 200, "visits": 40},
        method={"name": name, **ALONE[name]},
        split={"kind": "leave-last-out", "negatives": negatives},
        evaluation={"local_only_users": 100},
    )
    leak = check_leak(experiment.method.build(), experiment, prepare_data(experiment).parts)
    assert leak is not None
    if negatives == "clean":
        assert leak.ok, leak.reason
        assert abs(leak.local_only["AUC"] - 0.5) < 0.1
    else:
        assert not leak.ok, f"the leak went unseen: {leak.local_only} {leak.most_popular}"
        assert leak.local_only["AUC"] > 0.8
