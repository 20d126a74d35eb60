"""Every release, one by one, agrees with the totals and with what disclosure allowed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tacit.config import Experiment
from tacit.errors import ConfigError
from tacit.lab import events
from tacit.lab.experiments import run
from tacit.report.folder import Run

pytestmark = pytest.mark.slow


def town(method: dict[str, Any], **runtime: Any) -> Experiment:
    given = {
        "data": {"source": "town", "users": 40, "places": 60, "visits": 15},
        "method": {"name": "fpl", "epochs": 2, **method},
        "privacy": [{"name": "disclose", "pi": 0.5, "never_items": [3, 4]}] if method else [],
        "evaluation": {"local_only_users": 0},
        "runtime": runtime,
    }
    return Experiment.from_options(given, "test")


METHODS = [{"preset": "pFPL+"}, {"preset": "sFPL"}, {"preset": "sFPL+"}, {"clients_per_round": 7, "local_steps": 3}]


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_events_agree_with_the_ledger_and_change_no_number(
    method: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "BUFFERED_ROWS", 500)  # so that there are several parts
    quiet = run(town(method))
    told = run(town(method, ledger="events"), folder=tmp_path / "run")
    assert told.metrics == quiet.metrics
    assert told.ledger.equals(quiet.ledger)
    found = Run.open(tmp_path / "run").events
    assert found is not None
    assert told.events is not None
    frame = found.collect()
    assert frame.equals(told.events.collect())
    assert frame["round"].is_sorted()
    summed = frame.group_by("user").agg(
        rounds=pl.len().cast(pl.Int64),
        positives=pl.col("positives").list.len().sum().cast(pl.Int64),
        negatives=pl.col("negatives").list.len().sum().cast(pl.Int64),
        bytes_up=pl.col("bytes").sum(),
    )
    columns = ["user", "rounds", "positives", "negatives", "bytes_up"]
    asked = told.ledger.filter(pl.col("rounds") > 0).select(columns).sort("user")
    assert summed.select(columns).sort("user").equals(asked)
    assert not set(frame["positives"].explode().drop_nulls()) & {3, 4}, "an item left that never may"
    histories = {user: set(told.recommender.clients.of(c)) for c, user in enumerate(told.ledger["user"])}
    for user, positives, negatives in frame.select("user", "positives", "negatives").iter_rows():
        places = [told.recommender.catalog.item_ids.index(item) for item in positives]
        others = [told.recommender.catalog.item_ids.index(item) for item in negatives]
        assert histories[user].issuperset(places)
        assert not histories[user] & set(others)


def test_too_many_releases_are_refused_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MOST", 79)
    with pytest.raises(ConfigError, match=r"80 releases.*runtime.ledger=users"):
        run(town({"preset": "pFPL+"}, ledger="events"))


def test_a_centralised_method_has_no_events() -> None:
    experiment = town({}, ledger="events")
    given = {**experiment.model_dump(mode="json"), "method": "most-popular"}
    with pytest.raises(ConfigError, match="has no effect"):
        run(Experiment.from_options(given, "test"))


def test_a_run_without_them_has_none() -> None:
    assert run(town({"preset": "pFPL+"})).events is None


def test_layers_are_counted_as_a_row_but_are_no_item() -> None:
    told = run(town({"name": "fed-gmf"}, ledger="events"))
    assert told.events is not None
    frame = told.events.collect()
    index = told.recommender.catalog.item_ids.index
    histories = {user: set(told.recommender.clients.of(c)) for c, user in enumerate(told.ledger["user"])}
    for user, negatives in frame.select("user", "negatives").iter_rows():
        assert not histories[user] & {index(item) for item in negatives}
        assert len(set(negatives)) == len(negatives), "a device mentions an item once"
    assert frame["negatives"].list.len().sum() + len(frame) == told.ledger["negatives"].sum()
