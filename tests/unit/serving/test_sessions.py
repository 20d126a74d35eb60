"""Recommendations from a session given now: its order counts, by position or by times; what is wrong is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import tacit
from helpers.commands import run_command
from tacit.errors import DataError
from tacit.methods.base import entry, names
from tacit.serving.recommender import explain_in_words

MIXED = [1_700_000_000_000, 1_700_000_060]  # milliseconds, seconds
TOWN = {"source": "town", "people": 40, "places": 45, "visits": 12}


def served(method: str) -> tacit.Recommender:
    given = {"epochs": 1} if "epochs" in entry(method).config.model_fields else {}
    return tacit.fit(tacit.Experiment(method={"name": method, **given}, data={**TOWN, "graph": True}))


@pytest.fixture(scope="module")
def model() -> tacit.Recommender:
    return served("slist")


def items(found: tacit.Recommender, history: list[int], **given: object) -> list[tuple[object, float]]:
    return [(one.item, one.score) for one in found.recommend_for(history, 5, **given)]  # type: ignore[arg-type]


@pytest.mark.parametrize("method", [*names("centralised"), *names("federated")])
def test_every_method_that_scores_from_a_history_serves_a_session(method: str, tmp_path: Path) -> None:
    found = served(method)
    if found.model.private:
        return
    known = [found.catalog.item_ids[place] for place in (3, 1, 2)]
    found.save(tmp_path / "model")
    asked = tacit.Recommender.load(tmp_path / "model").recommend_for(known, 5, times=[30, 10, 20])
    assert len(asked) == 5
    assert not {one.item for one in asked} & set(known)
    assert asked == found.recommend_for([known[1], known[2], known[0]], 5)


def test_the_order_of_a_session_counts(model: tacit.Recommender) -> None:
    a, b, c = (model.catalog.item_ids[place] for place in (4, 9, 17))
    assert items(model, [a, b, c]) != items(model, [c, b, a])
    assert items(model, [a, b, c]) == items(model, [c, a, b], times=[3, 1, 2])
    assert items(model, [a, b, a]) == items(model, [b, a]), "what came again counts as new"
    assert items(model, [a, b], times=[5, 5]) == items(model, [b, a]), "at equal times the smaller item is later"
    assert items(model, [a, b], times=[1, 2**36]) == items(model, [a, b]), "a time in the future is a later time"
    assert items(model, [a, b], times=[1_700_000_000_001, 1_700_000_000_000]) == items(model, [b, a]), "milliseconds"


@pytest.mark.parametrize(("name", "reads_order"), [("slist", True), ("markov", True), ("ease", False)])
def test_what_came_last_is_a_reason_where_order_counts(name: str, reads_order: bool) -> None:
    found = served(name)
    one = found.clients.take([0])
    newest = int(one.items[one.in_order[-1]])
    shared, private = found.model.shared, found.model.private
    why = [found.method.explain(shared, private, one, item) for item in range(one.n_items) if item not in one.items]
    first = [reasons[0] for reasons in why if reasons]
    marked = [reason for reason in first if reason.is_newest]
    assert bool(marked) == reads_order
    assert {reason.about for reason in marked} <= {newest}
    sentences = {explain_in_words([reason], found.catalog) for reason in first if reason.about == newest}
    assert len(sentences) <= 1
    if reads_order:
        plain = explain_in_words([replace(marked[0], is_newest=False)], found.catalog)
        assert sentences != {plain}, "the list says that it came last"


@pytest.mark.parametrize("times", [[1], [1, 2, 3], ["noon", 2], [float("nan"), 1], [float("inf"), 1], [None, 1], MIXED])
def test_times_that_do_not_fit_are_refused(model: tacit.Recommender, times: list[object]) -> None:
    with pytest.raises(DataError):
        model.recommend_for([model.catalog.item_ids[0], model.catalog.item_ids[1]], times=times)  # type: ignore[arg-type]


def test_a_session_of_one_item_and_of_unknown_ones(model: tacit.Recommender) -> None:
    first = model.catalog.item_ids[2]
    assert len(model.recommend_for([first], 3)) == 3
    unknown = model.recommend_for([first, "nowhere"], 3, times=[1, 2])
    assert [one.item for one in unknown] == [one.item for one in model.recommend_for([first], 3)]
    assert len(unknown.notices) == 1


@pytest.mark.slow
def test_the_command_takes_a_session(
    model: tacit.Recommender, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "model")
    model.save(folder)
    known = [str(model.catalog.item_ids[place]) for place in (4, 9, 17)]
    code, out, _ = run_command(capsys, "recommend", folder, "--items", ", ".join(known), "--json")
    shown = [one["item"] for one in json.loads(out)["recommendations"]]
    assert (code, shown) == (0, [one.item for one in model.recommend_for(known)])
    code, out, _ = run_command(capsys, "recommend", folder, "--items", known[0], "--user", "1", "--json")
    assert (code != 0, json.loads(out)["error"]["kind"]) == (True, "ConfigError")
