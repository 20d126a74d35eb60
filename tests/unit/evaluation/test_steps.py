"""Evaluation at every step: what is known before each held-out item, and who may be judged so."""

from __future__ import annotations

import numpy as np
import pytest

import tacit
from tacit.errors import ConfigError, MethodError
from tacit.evaluation import EvaluationConfig, evaluate_steps
from tacit.evaluation.steps import open_steps
from tacit.heldout import Heldout
from tacit.random import Key
from tacit.types import Catalog, Clients, Vocabulary

TOWN = {"source": "town", "users": 80, "places": 40}


def ordered(histories: list[list[int]], n_items: int) -> Clients:
    """A cohort whose lists stand oldest first."""
    rows = [np.array(one, np.int32) for one in histories]
    return Clients(
        np.arange(len(rows)),
        np.cumsum([0, *map(len, rows)]),
        np.concatenate([np.sort(one) for one in rows]),
        n_items,
        places=np.concatenate([np.argsort(one, kind="stable") for one in rows]).astype(np.int32),
    )


def in_order(clients: Clients) -> list[list[int]]:
    items = clients.items[clients.in_order]
    return [items[start:stop].tolist() for start, stop in zip(clients.ptr[:-1], clients.ptr[1:], strict=True)]


def test_each_step_knows_what_came_before_it_and_nothing_later() -> None:
    seen, truth = ordered([[5, 1], [2], []], 8), ordered([[7, 0, 3], [], [6]], 8)
    steps, owners = open_steps(Heldout(truth, seen))
    asked, histories = steps.open()
    assert owners.tolist() == [0, 0, 0, 2]
    assert asked.items.tolist() == [7, 0, 3, 6]
    assert in_order(histories) == [[5, 1], [5, 1, 7], [5, 1, 7, 0], []]
    for start, stop in zip(histories.ptr[:-1], histories.ptr[1:], strict=True):
        assert (np.diff(histories.items[start:stop]) > 0).all()


def test_an_item_outside_the_catalogue_is_asked_for_and_never_part_of_a_history() -> None:
    seen, truth = ordered([[1]], 4), ordered([[2, -1, 3]], 4)
    steps, _ = open_steps(Heldout(truth, seen))
    assert sorted(steps.open()[0].items.tolist()) == [-1, 2, 3]
    assert all(-1 not in one for one in in_order(steps.open()[1]))


def test_a_scorer_gets_the_id_of_each_history() -> None:
    """A method that keeps what users did, such as user-knn, has to leave out the user's own part."""
    seen, truth = ordered([[1], [2], [3]], 8), ordered([[4, 5, 6], [], [7]], 8)
    told: list[int] = []

    def score(histories: Clients) -> np.ndarray:
        told.extend(histories.ids.tolist())
        return np.zeros((len(histories), 8), np.float32)

    asked = EvaluationConfig(k=(1,), local_only_users=0)
    evaluate_steps(score, Heldout(truth, seen), Catalog(Vocabulary(np.arange(8))), asked, Key(1))
    assert told == [0, 0, 0, 2]


def test_a_users_value_is_the_mean_over_the_steps() -> None:
    """The next number is recommended: of 2, 3, 5 after 1, two of three are found; one user has one step."""
    n = 8
    seen, truth = ordered([[1], [4]], n), ordered([[2, 3, 5], [5]], n)

    def score(histories: Clients) -> np.ndarray:
        newest = [one[-1] for one in in_order(histories)]
        return np.eye(n, dtype=np.float32)[[(item + 1) % n for item in newest]]

    asked = EvaluationConfig(k=(1,), local_only_users=0)
    found = evaluate_steps(score, Heldout(truth, seen), Catalog(Vocabulary(np.arange(n))), asked, Key(1))
    assert found.of("HR@1").tolist() == pytest.approx([2 / 3, 1.0])
    assert found.users.tolist() == [0, 1]


@pytest.mark.parametrize("method", ["slist", "ease", "markov", "fed-slist"])
def test_with_one_item_held_out_every_step_is_the_one(method: str) -> None:
    how = {"data": TOWN, "split": {"kind": "leave-last-out"}, "method": method}
    one, every = (
        tacit.run(tacit.Experiment.model_validate({**how, "evaluation": {"steps": steps, "local_only_users": 0}}))
        for steps in ("one", "every")
    )
    assert one.metrics == pytest.approx(every.metrics)


@pytest.mark.parametrize("split", [{"kind": "random"}, {"kind": "k-fold"}, {"cold_items": 0.1}], ids=str)
def test_steps_need_a_split_in_which_nothing_known_is_later(split: dict[str, object]) -> None:
    how = {"data": TOWN, "method": "ease", "split": split, "evaluation": {"steps": "every"}}
    with pytest.raises(ConfigError, match="steps"):
        tacit.Experiment.from_options(how, "the experiment")


def test_a_method_with_a_vector_per_user_is_refused() -> None:
    how = {"data": TOWN, "method": {"name": "bpr-mf", "epochs": 1}, "evaluation": {"steps": "every"}}
    with pytest.raises(MethodError, match="vector per user"):
        tacit.run(tacit.Experiment.model_validate(how))
