"""A report says who counted how much, and why, where people counted by criteria; it does not say who they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from helpers.report_runs import made_row
from tacit.protocols.criteria import weigh_clients
from tacit.protocols.weighing import WeightLog
from tacit.report.comparison import ComparisonResult
from tacit.report.figures import draw
from tacit.report.page import write_report
from tacit.report.weights import criteria_of, draw_rounds, draw_weights, explain_weights, over_rounds

pytestmark = pytest.mark.slow

N, ROUNDS = 40, 12


def told(score: str = "priority", scale: str = "share") -> pl.DataFrame:
    """Weights of twelve rounds in which size decides and diversity is alike for all."""
    kept, draws = WeightLog(), np.random.default_rng(3)
    for number in range(ROUNDS):
        measured = np.array([draws.integers(1, 90, N), np.full(N, 5)])
        kept.note(number, 7_000_000 + np.arange(N), weigh_clients(("size", "diversity"), measured, score, scale))
    return kept.frame()


def weighed(frame: pl.DataFrame) -> ComparisonResult:
    """A comparison of two methods of which the second weighs people."""
    plain, other = made_row("ease"), made_row("bpr-mf", 1)
    runs = tuple(replace(run, weighed=frame) for run in other.runs)
    return ComparisonResult("tour", "NDCG@10", (plain, replace(other, runs=runs)))


def test_rounds_show_how_unequally_users_counted_and_by_what() -> None:
    columns, lines = over_rounds(told())
    assert columns == [
        "round",
        "clients",
        "heaviest",
        "median",
        "lightest",
        "held by a tenth",
        "by size",
        "by diversity",
    ]
    assert [line[0] for line in lines[:1] + lines[-1:]] == ["1", str(ROUNDS)]
    assert len(lines) == 8
    for line in lines:
        assert float(line[2]) > float(line[3]) > float(line[4])
        assert line[-2:] == ["1.00", "alike"]
    assert len(over_rounds(told().filter(pl.col("round") == 3))[1]) == 1


@pytest.mark.parametrize("score", ["priority", "mean"])
@pytest.mark.parametrize("scale", ["share", "relative"])
def test_bars_reach_the_weight_whatever_the_score(score: str, scale: str) -> None:
    frame = told(score, scale)
    axes = draw_weights(frame).axes[0]
    outline = axes.collections[-1].get_paths()[0].vertices
    last = frame.filter(pl.col("round") == ROUNDS - 1)["factor"].sort(descending=True).to_numpy()
    tops = [outline[np.isclose(outline[:, 0], place + 0.5), 1].max() for place in range(len(last))]
    np.testing.assert_allclose(tops[0], last[0], rtol=1e-4)
    np.testing.assert_allclose(tops[1:], last[:-1], rtol=1e-4)  # a step's left edge reaches up to the one before
    assert ("of all" in explain_weights(frame)[0]) == (scale == "share")


def test_people_who_meet_no_criterion_are_drawn_alike() -> None:
    frame = told().with_columns(pl.lit(0.0).alias(name) for name in (*criteria_of(told()), "score"))
    axes = draw_weights(frame.with_columns(factor=pl.lit(1.0))).axes[0]
    assert axes.get_legend().get_texts()[-1].get_text() == "alike"
    assert axes.collections[-1].get_paths()[0].vertices[:, 1].max() == 1.0


def test_all_rounds_are_drawn() -> None:
    (line,) = [line for line in draw_rounds(told()).axes[0].lines if len(line.get_xdata()) > 2]
    assert list(line.get_xdata()) == list(range(1, ROUNDS + 1))


def test_the_page_shows_weights_without_names(tmp_path: Path) -> None:
    compared = weighed(told())
    assert {"weights", "weights_rounds"} <= set(draw(compared))
    write_report(compared, tmp_path / "report.html")
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "bpr-mf weighed clients by size, then diversity" in html
    assert f"1 of {N}" in html
    assert 'id="figure-weights"' in html
    assert 'id="figure-weights_rounds"' in html
    assert "7000" not in html, "people of a round are named in the run folder only"


def test_without_criteria_nothing_is_reported(tmp_path: Path) -> None:
    compared = ComparisonResult("tour", "NDCG@10", (made_row("ease"),))
    assert not {"weights", "weights_rounds"} & set(draw(compared))
    write_report(compared, tmp_path / "report.html")
    assert 'id="weights"' not in (tmp_path / "report.html").read_text(encoding="utf-8")
