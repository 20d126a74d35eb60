"""Quality over epsilon in a report: lines of a method and mode, drawn where there are two epsilons of one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from helpers.report_runs import Comparing, made_row
from tacit.config import Comparison, apply_overrides
from tacit.errors import ConfigError
from tacit.report.comparison import MethodRow
from tacit.report.epsilon_curve import epsilon, gather_curves
from tacit.report.figures import draw

pytestmark = pytest.mark.slow


def private_row(place: int, epsilon: float, mode: str = "distributed") -> MethodRow:
    row = made_row("als", place)
    found = {"epsilon_server": epsilon, "mode": mode}
    runs = tuple(replace(run, result={**run.result, "privacy": found}) for run in row.runs)
    return replace(row, label=f"als epsilon={epsilon:g} {mode}", runs=runs)


def test_points_are_in_the_order_of_epsilon_by_method_and_mode(comparison: Comparing) -> None:
    rows = [private_row(0, 8.0), private_row(2, 1.0), private_row(1, 4.0), private_row(3, 1.0, "local")]
    curves = gather_curves([*rows, made_row("ease", 4)], "NDCG@10")
    assert {name: list(points) for name, points in curves.items()} == {
        "als, distributed": [1.0, 4.0, 8.0],
        "als, local": [1.0],
    }
    assert curves["als, distributed"][8.0] == rows[0].metrics["NDCG@10"]


def test_the_curve_is_drawn_where_there_is_one(comparison: Comparing) -> None:
    rows = [private_row(0, 8.0), private_row(2, 1.0), made_row("ease", 1)]
    assert "epsilon" in draw(comparison(rows=rows))
    figure = epsilon(comparison(rows=rows))
    assert figure is not None
    (axes,) = figure.axes
    assert axes.lines[0].get_xdata().tolist() == [1.0, 8.0]
    assert len(axes.lines) == 2, "ease has no guarantee: a level"
    assert epsilon(comparison(rows=rows[1:])) is None


def test_a_grid_over_epsilons_is_a_row_each() -> None:
    given = {
        "methods": ["dp-svd"],
        "privacy": [{"name": "dp", "epsilon": 1.0}],
        "grid": {"privacy.0.epsilon": [1.0, 2.0]},
    }
    made = list(Comparison.from_options(given, "a test").experiments())
    assert [(label, experiment.privacy[0].epsilon) for label, experiment in made] == [
        ("dp-svd epsilon=1.0", 1.0),
        ("dp-svd epsilon=2.0", 2.0),
    ]
    for path in ("privacy.1.epsilon", "privacy.first.epsilon", "privacy.-1.epsilon"):
        with pytest.raises(ConfigError):
            apply_overrides(given, {path: 2.0})
