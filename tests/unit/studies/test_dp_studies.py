"""What a guarantee costs, and how many people it needs: made on the built-in town."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tacit.studies import dp_growth, dp_quality, reproduce
from tacit.studies.dp_growth import GrowthPoint, find_people
from tacit.studies.setup import StudySetup

TINY = {"data.users": 150, "data.places": 80}


@pytest.mark.slow
def test_quality_over_epsilon_leaves_rows_tables_and_a_figure(tmp_path: Path) -> None:
    made = reproduce("dp-quality", "town", quick=True, settings=TINY, out=tmp_path)[0]
    stored = json.loads((made.folder / "result.json").read_text())
    rows = {(row["method"], row["metric"]): row for row in stored["rows"]}
    assert all(np.isfinite(row["ours"]) and row["published"] is None for row in rows.values())
    for name in dp_quality.PRIVATE:
        assert {(f"{name}, epsilon {epsilon:g}", "NDCG@10") for epsilon in (1, 4)} <= rows.keys()
    assert stored["detail"].keys() == {"leave-last-out", "temporal"}
    assert (made.folder / "figures" / "quality-epsilon.svg").stat().st_size > 5_000


@pytest.mark.slow
def test_growth_compares_with_the_method_without_noise(tmp_path: Path) -> None:
    made = reproduce("dp-growth", "town", quick=True, settings=TINY, out=tmp_path)[0]
    points = json.loads((made.folder / "result.json").read_text())["detail"]["points"]
    assert [(point["people"], point["epsilon"]) for point in points] == [(150, 1.0), (150, 4.0)]
    assert all(point["loss"] == pytest.approx(1 - point["value"] / point["reference"]) for point in points)
    assert (made.folder / "figures" / "people-loss.svg").stat().st_size > 5_000


@pytest.mark.slow
def test_scaled_noise_is_that_of_clients_that_are_really_repeated(tmp_path: Path) -> None:
    """The same ratio of signal and noise: values differ by chance only."""
    given = {"users": 200, "places": 40, "visits": 20, "min_per_user": 2}
    recipe = {**dp_growth.recipe("town"), "data": {"source": "town", **given}}
    setup = StudySetup("town", recipe, {}, seeds=4, quick=False, choices=tmp_path, progress=lambda *_: None)
    repeated, scaled = (
        np.mean([dp_growth._value(setup, 1.0, seed, copies, is_repeated) for seed in setup.seeds])
        for copies, is_repeated in ((16, True), (16, False))
    )
    assert repeated == pytest.approx(scaled, rel=0.1)


def test_people_are_found_between_points() -> None:
    points = [
        GrowthPoint(n, 1.0, 1 - loss, 1.0, "scaled", 1.0) for n, loss in ((100, 0.3), (1000, 0.03), (10_000, 0.01))
    ]
    found = find_people(points, 1.0)
    assert found is not None
    assert found == pytest.approx(10**3.5)
    assert find_people(points[:2], 1.0) is None
    assert find_people([points[2]], 1.0) == 10_000


def test_cells_have_three_digits() -> None:
    assert dp_quality._cell((0.31251, 0.5)) == ".313 (.500)"
    assert dp_quality._cell((None, None)) == "–"
