"""Every reproduction of FPL runs on the built-in town; a real one reaches what was published."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tacit.errors import ConfigError
from tacit.studies import ReproductionResult, fpl_published, reproduce, reproductions
from tacit.studies.base import present
from tacit.studies.fpl import recipe
from tacit.studies.fpl_choices import CONFIGURATIONS, choices
from tacit.studies.setup import StudySetup

pytestmark = pytest.mark.slow

TINY = {"data.users": 120, "data.places": 80}


def quickly(name: str, out: Path) -> ReproductionResult:
    return reproduce(name, "town", quick=True, settings=TINY, out=out)[0]


PRINTED = [name for name, found in reproductions().items() if name.startswith("fpl-") and "our own" not in found.source]


@pytest.mark.parametrize("name", PRINTED)
def test_it_leaves_rows_tables_and_figures(name: str, tmp_path: Path) -> None:
    made = quickly(name, tmp_path)
    assert made.folder == tmp_path / f"reproduce-{name}-town"
    stored = json.loads((made.folder / "result.json").read_text())
    wanted = {"method", "metric", "published", "ours", "sd", "seeds", "sampling", "data"}
    assert stored["rows"]
    assert all(wanted <= row.keys() for row in stored["rows"])
    assert all(row["published"] is None for row in stored["rows"]), "nothing is published about the town"
    assert all(np.isfinite(row["ours"]) and row["seeds"] == 1 for row in stored["rows"])
    assert set(CONFIGURATIONS) <= stored["detail"]["configurations"].keys()
    table = (made.folder / "table.md").read_text()
    assert "Quick: fixed options" in table
    for figure in made.found.figures:
        assert (made.folder / "figures" / f"{figure}.svg").read_text().startswith("<?xml")
        assert (made.folder / "figures" / f"{figure}.png").stat().st_size > 5_000
    assert not list(tmp_path.glob(".*")), "a scratch folder was left behind"


def test_pi_of_zero_sends_no_positives_and_costs_less(tmp_path: Path) -> None:
    rows = {(row.method, row.metric): row.ours for row in quickly("fpl-communication", tmp_path).found.rows}
    cost = "TCC [1e12 vectors]"
    assert rows["sFPL pi=0", cost] < rows["sFPL pi=0.5", cost] < rows["sFPL pi=1", cost]  # type: ignore[operator]
    assert rows["pFPL+ pi=1", cost] < rows["pFPL pi=1", cost] / 5  # type: ignore[operator]


def test_updates_follow_popularity_only_when_positives_leave(tmp_path: Path) -> None:
    rows = {(row.method, row.metric): row.ours for row in quickly("fpl-popularity", tmp_path).found.rows}
    like = "correlation of updates with popularity"
    assert rows["sFPL+ pi=0", like] < 0 < 0.5 < rows["sFPL+ pi=1", like]  # type: ignore[operator]


@pytest.mark.fuzz
def test_options_are_searched_on_validation_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "RATES": (0.05, 500.0),
        "STEPS": (0.05, 500.0),
        "FCF_PASSES": 2,
        "FCF_EVALUATE_EVERY": 1,
        "FACTORS": (4, 6),
        "PASSES": 4,
        "EVALUATE_EVERY": 2,
        "STEPS_AT": (1.0,),
        "PIS": (0.0, 1.0),
        "LONG_PIS": (0.0, 1.0),
        "SHORT_PIS": (1.0,),
        "NEIGHBOURS": (10, 20),
        "LONG_PASSES": 8,
        "LONG_EVALUATE_EVERY": 4,
    }.items():
        monkeypatch.setattr(f"tacit.studies.fpl_choices.{name}", value)

    def setup() -> StudySetup:
        return StudySetup(
            "town", recipe("town"), TINY, seeds=1, quick=False, choices=tmp_path, progress=lambda *_: None
        )

    first = choices(setup())
    assert first.baselines["bpr-mf"]["learning_rate"] == 0.05, "the other step diverges"
    assert all(first.fpl[name].passes.keys() == {0.0, 1.0} for name in CONFIGURATIONS)
    assert all(choice.pi == 1.0 for choice in first.fpl.values()), "pi = 0 is never the best"
    assert all(choice.passes[1.0] in (2, 4, 8) for choice in first.fpl.values())
    monkeypatch.setattr(StudySetup, "search", None)  # a second search would fail
    assert choices(setup()) == first
    assert len(list(tmp_path.glob("fpl-*-town-*.json"))) == 8, (
        "the baselines, FCF, four configurations and two short ones"
    )


def test_data_of_ones_own_has_no_published_numbers(tmp_path: Path) -> None:
    draws = np.random.default_rng(5)
    lines = ["user,item,timestamp"]
    for user in range(60):
        lines += [f"{user},{item},{user * 100 + i}" for i, item in enumerate(draws.permutation(50)[:22])]
    file = tmp_path / "ml-1m.csv"
    file.write_text("\n".join(lines))
    made = reproduce("fpl-accuracy", str(file), quick=True, out=tmp_path / "out")[0]
    assert made.data == "ml-1m"
    assert all(row.published is None for row in made.found.rows)


def test_published_numbers_stand_beside_ours_where_the_data_is_the_papers() -> None:
    chosen = reproductions()["fpl-accuracy"]
    assert set(chosen.datasets) == set(fpl_published.TABLE_2)


def test_without_real_data_the_town_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tacit.studies.base.datasets", list)
    assert present(reproductions()["fpl-pi"]) == ["town"]


def test_an_unknown_name_is_refused_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="fpl-accuracy"):
        reproduce("fpl-acuracy", out=tmp_path)
