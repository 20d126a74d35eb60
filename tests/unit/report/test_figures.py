"""Figures: PNG and SVG, the same bytes each time, a look of its own for each method, labels apart."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from helpers.report_runs import METHODS, Comparing, made_row
from helpers.waiting import LONG
from tacit.report.canvas import keep_layout, legend_below, new_figure, percent_axis, report_style
from tacit.report.figures import draw, save_figures
from tacit.report.labels import name_points, spread_positions
from tacit.report.marks import line_styles

pytestmark = pytest.mark.slow

ALL = ["results", "curves", "coverage", "people", "tail", "cost"]


@pytest.fixture(scope="module")
def twelve(comparison: Comparing) -> dict[str, Figure]:
    return draw(comparison(12))


@pytest.mark.parametrize("n", [1, 12])
def test_each_figure_is_saved_as_png_and_svg(
    n: int, twelve: dict[str, Figure], comparison: Comparing, tmp_path: Path
) -> None:
    figures = twelve if n == 12 else draw(comparison(n))
    assert list(figures) == (ALL if n > 1 else [name for name in ALL if name not in ("curves", "coverage")])
    paths = save_figures(figures, tmp_path)
    assert sorted(paths) == sorted((tmp_path / "figures").iterdir())
    assert len(paths) == 2 * len(figures)
    for path in paths:
        if path.suffix == ".svg":
            assert ET.parse(path).getroot().tag.endswith("svg")
        else:
            data = path.read_bytes()
            assert data[:8] == b"\x89PNG\r\n\x1a\n"
            assert int.from_bytes(data[16:20], "big") == 900, "4.5 inches at 200 dpi"


def test_the_same_comparison_gives_the_same_bytes(comparison: Comparing, tmp_path: Path) -> None:
    rows = [made_row("als", 0), made_row("ease", 1)]
    first = save_figures(draw(comparison(rows=rows)), tmp_path / "a")
    again = save_figures(draw(comparison(rows=rows)), tmp_path / "b")
    for one, other in zip(first, again, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name


def test_an_axis_of_shares_is_labelled_with_its_exact_values() -> None:
    figure, (axes,) = new_figure(2.0)
    axes.plot([0, 1], [0.0, 0.2])
    axes.set_yticks([0.0, 0.025, 0.05, 0.075, 1.0])
    percent_axis(axes.yaxis)
    figure.draw_without_rendering()
    shown = [label.get_text() for label in axes.get_yticklabels()]
    assert [float(text.removesuffix(" %")) for text in shown] == [0.0, 2.5, 5.0, 7.5, 100.0]


def test_names_of_points_do_not_cover_each_other(twelve: dict[str, Figure]) -> None:
    figure = twelve["coverage"]
    figure.draw_without_rendering()
    boxes = {text.get_text(): text.get_window_extent() for text in figure.axes[0].texts if text.get_text()}
    assert set(boxes) == set(METHODS)
    pairs = [(a, b) for i, a in enumerate(boxes) for b in list(boxes)[:i] if boxes[a].overlaps(boxes[b])]
    assert pairs == []


TOUR = {  # of `tacit demo`: coverage and NDCG@10, of which several are close together
    "als": (191, 0.2135),
    "fed-svd": (191, 0.2076),
    "ease": (227, 0.2003),
    "user-knn": (245, 0.1930),
    "pure-svd": (163, 0.1908),
    "bpr-mf": (462, 0.1902),
    "fpl": (418, 0.1817),
    "item-knn": (642, 0.1653),
}


def test_a_name_is_by_far_nearest_to_its_own_point_or_a_line_leads_there() -> None:
    figure, (axes,) = new_figure(3.4)
    axes.set_xscale("log")
    axes.scatter(*np.array(list(TOUR.values())).T)
    axes.set_ylim(-0.01, 0.24)
    xs, ys = zip(*TOUR.values(), strict=True)
    name_points(figure, axes, xs, ys, [(name, "#444444") for name in TOUR])
    figure.draw_without_rendering()
    points = dict(zip(TOUR, axes.transData.transform(list(TOUR.values())), strict=True))
    names = [text for text in axes.texts if text.get_text()]
    lines = {tuple(text.xy) for text in axes.texts if not text.get_text()}
    assert {text.get_text() for text in names} == TOUR.keys()
    for text in names:
        box, own = text.get_window_extent(), text.get_text()
        middle = np.array([box.x0 + box.x1, box.y0 + box.y1]) / 2
        half = np.array([box.width, box.height]) / 2
        away = {name: np.hypot(*np.maximum(np.abs(point - middle) - half, 0)) for name, point in points.items()}
        others = min(distance for name, distance in away.items() if name != own)
        assert others >= 1.5 * away[own] or TOUR[own] in lines, own


def test_nothing_is_cut_off(comparison: Comparing) -> None:
    long = [made_row("bpr-mf factors=64 learning_rate=0.05", 0), *(made_row(label, 1) for label in METHODS[1:])]
    for name, figure in draw(comparison(rows=long)).items():
        figure.draw_without_rendering()
        whole = figure.bbox.padded(1)
        texts = [text for axes in figure.axes for text in (*axes.texts, axes.xaxis.label, axes.yaxis.label)]
        texts += [text for axes in figure.axes if name in ("results", "cost") for text in axes.get_yticklabels()]
        texts += [text for legend in figure.legends for text in legend.get_texts()]
        for text in texts:
            box = text.get_window_extent()
            inside = whole.x0 <= box.x0 and box.x1 <= whole.x1 and whole.y0 <= box.y0 and box.y1 <= whole.y1
            assert inside or not text.get_text(), (name, text.get_text(), box)


def test_a_leaking_run_is_named_in_the_results_and_drawn_nowhere(comparison: Comparing) -> None:
    figures = draw(comparison(rows=[made_row("ease", 0), made_row("als", 1), made_row("gmf", 2, leaks=True)]))
    texts = [text.get_text() for text in figures["results"].axes[0].texts]
    assert "leaking: not reported" in texts
    for name in ("curves", "coverage", "people", "tail", "cost"):
        figure = figures[name]
        named = [text.get_text() for axes in figure.axes for text in (*axes.texts, *axes.get_yticklabels())]
        named += [text.get_text() for legend in figure.legends for text in legend.get_texts()]
        assert "gmf" not in named, name


def test_the_distribution_over_people_is_exact(comparison: Comparing) -> None:
    compared = comparison(1)
    values = compared.rows[0].runs[0].users["NDCG@10"].to_numpy()
    line = draw(compared)["people"].axes[0].lines[0]
    for x, share in zip(line.get_xdata(), line.get_ydata(), strict=True):
        assert share == pytest.approx(np.mean(values <= x))


def test_shares_of_the_tail_end_at_one(twelve: dict[str, Figure]) -> None:
    for line in twelve["tail"].axes[0].lines[:13]:
        assert np.asarray(line.get_ydata())[-1] == pytest.approx(1.0)
        assert np.all(np.diff(np.asarray(line.get_ydata())) >= 0)


def test_looks_differ_for_sixty_labels() -> None:
    made = line_styles([str(i) for i in range(60)])
    assert len({(look.colour, look.marker, str(look.dash)) for look in made.values()}) == 60
    assert len({look.colour for look in list(made.values())[:12]}) == 12


@given(st.lists(st.floats(0, 1), max_size=20))
def test_spread_out_keeps_order_gap_and_bounds(wanted: list[float]) -> None:
    gap = 0.04
    placed = spread_positions(wanted, gap, 0.0, 1.0)
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    apart = np.diff([placed[i] for i in order])
    assert np.all(apart >= gap - 1e-9)
    assert all(-1e-9 <= y <= 1 + 1e-9 for y in placed)


def test_importing_the_report_does_not_import_matplotlib() -> None:
    code = "import sys, tacit.report.page; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=LONG).returncode == 0


@pytest.mark.parametrize("name", ["short", "a name that takes more than half of the figure's width"])
def test_a_legend_below_fits_the_width(name: str) -> None:
    with report_style():
        figure, (axes,) = new_figure(3.0)
        for n in range(4):
            axes.plot([0, 1], [n, n], label=f"{name} {n}")
        legend_below(figure)
        keep_layout(figure)
        box = figure.legends[0].get_window_extent()
    assert len(figure.legends) == 1
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.width
