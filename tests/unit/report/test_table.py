"""The results table as text: parses back, marks the best, says nothing about leaking runs."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.report_runs import METHODS, Comparing, made_row
from tacit.errors import ConfigError
from tacit.report.table import (
    as_csv,
    as_latex,
    as_markdown,
    as_text,
    decimals,
    format_number,
    p_value,
    table,
    tabulate,
    write_tables,
)


def test_the_primary_metric_comes_first_and_the_best_method_on_top(comparison: Comparing) -> None:
    made = tabulate(comparison(rows=[made_row("random", 9), made_row("ease", 0), made_row("als", 3)]))
    assert made.metrics[0] == "NDCG@10"
    assert [line.label for line in made.lines] == ["ease", "als", "random"]
    assert [cell.is_best for cell in made.lines[0].cells] == [True] * len(made.metrics)
    assert made.titles[-1] == "PopRSP@10 ↓"
    assert made.short_titles[0] == "NDCG ↑"


def test_lower_is_better_where_it_is(comparison: Comparing) -> None:
    rows = [made_row("ease", 0), made_row("als", 1)]
    rows[0].runs[0].metrics["PopREO@10"] = 0.9
    made = tabulate(comparison(rows=rows))
    at = made.metrics.index("PopREO@10")
    assert [line.cells[at].is_best for line in made.lines] == [False, True]


def test_a_metric_that_one_method_lacks_is_a_dash(comparison: Comparing) -> None:
    rows = [made_row("ease", 0), made_row("als", 1)]
    del rows[1].runs[0].metrics["PopREO@10"]
    made = tabulate(comparison(rows=rows))
    assert made.lines[1].cells[made.metrics.index("PopREO@10")].text == "–"


@pytest.mark.parametrize(
    ("p_t", "p_wilcoxon", "marked"), [(0.001, 0.002, True), (0.001, 0.2, False), (0.2, 0.001, False), (0.2, 0.3, False)]
)
def test_a_difference_is_marked_where_both_tests_see_it(
    p_t: float, p_wilcoxon: float, marked: bool, comparison: Comparing
) -> None:
    rows = [made_row("ease", 0), replace(made_row("als", 1), p_t=p_t, p_wilcoxon=p_wilcoxon)]
    first, second = tabulate(comparison(rows=rows)).lines
    assert (first.is_worse, second.is_worse) == (False, marked)
    assert second.p == f"{max(p_t, p_wilcoxon):.3f}"


@pytest.mark.parametrize("n", [1, 12])
def test_markdown_parses(n: int, comparison: Comparing) -> None:
    compared = comparison(n)
    lines = [line for line in as_markdown(compared).splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert len({len(row) for row in cells}) == 1
    assert [row[0].removesuffix(" †") for row in cells[2:]] == list(METHODS[:n])
    mean, _, half = cells[2][1].replace("*", "").partition(" ± ")
    assert float(mean) == pytest.approx(compared.rows[0].metrics["NDCG@10"], abs=5e-5)
    assert float(half) > 0


def test_a_hostile_label_stays_one_markdown_cell(comparison: Comparing) -> None:
    made = as_markdown(comparison(rows=[made_row("a|b\n<i>*x*", 0)])).splitlines()[2]
    assert made.startswith(r"| a\|b \<i\>\*x\* |")


@pytest.mark.parametrize("n", [1, 12])
def test_latex_is_balanced(n: int, comparison: Comparing) -> None:
    rows = [made_row(f"{label}_{place}%", place) for place, label in enumerate(METHODS[:n])]
    made = as_latex(comparison(rows=rows))
    body = [line for line in made.splitlines() if line.endswith(r"\\")]
    spec = re.search(r"\\begin\{tabular\}\{(\w+)\}", made)
    assert spec is not None
    assert {len(re.split(r"(?<!\\)&", line)) for line in body} == {len(spec[1])}
    assert made.count("{") - made.count(r"\{") == made.count("}") - made.count(r"\}")
    assert r"ease\_0\%" in made
    assert made.count(r"\begin{tabular}") == made.count(r"\end{tabular}") == 1
    assert made.isascii(), "compiles with any engine"


def test_csv_has_every_metric_at_full_precision(comparison: Comparing) -> None:
    compared = comparison(3)
    rows = list(csv.DictReader(io.StringIO(as_csv(compared))))
    assert [row["label"] for row in rows] == ["ease", "item-knn", "user-knn"]
    for name, value in compared.rows[0].metrics.items():
        assert float(rows[0][name]) == value
    low, high = compared.rows[0].ci["NDCG@10"]
    assert (float(rows[0]["NDCG@10 low"]), float(rows[0]["NDCG@10 high"])) == (low, high)


def test_leaking_runs_have_no_numbers_in_any_format(comparison: Comparing) -> None:
    leaking = made_row("gmf", 0, leaks=True)
    compared = comparison(rows=[made_row("ease", 1), leaking, made_row("als", 2)])
    value = leaking.metrics["NDCG@10"]
    for made in (as_text(compared), as_markdown(compared), as_latex(compared), as_csv(compared)):
        assert f"{value:.4f}" not in made
        assert "gmf" in made
    row = next(row for row in csv.DictReader(io.StringIO(as_csv(compared))) if row["label"] == "gmf")
    assert (row["leaking"], row["NDCG@10"], row["p_t"]) == ("true", "", "")


def test_spreadsheets_do_not_run_labels(comparison: Comparing) -> None:
    rows = list(csv.DictReader(io.StringIO(as_csv(comparison(rows=[made_row("=cmd()", 0)])))))
    assert rows[0]["label"] == "'=cmd()"


def test_the_terminal_table_is_aligned(comparison: Comparing) -> None:
    lines = as_text(comparison(4)).splitlines()
    rule = lines[1]
    assert all(len(line) <= len(rule) for line in lines[:6])
    assert {line[len(rule) :] for line in lines[2:6]} == {""}


def test_formats_by_name(comparison: Comparing, tmp_path: Path) -> None:
    compared = comparison(2)
    assert table(compared, "latex") == as_latex(compared)
    with pytest.raises(ConfigError, match="Did you mean 'markdown'"):
        table(compared, "markdwn")
    paths = write_tables(compared, tmp_path / "out")
    assert [path.name for path in paths] == ["results.md", "results.tex", "results.csv"]
    assert paths[2].read_text(encoding="utf-8") == as_csv(compared)


def test_numbers() -> None:
    assert decimals([0.1, 1.0]) == 4
    assert decimals([0.1, 9.87]) == 2
    assert decimals([606.5, 17.0]) == 0
    assert decimals([26.0]) == 0
    assert format_number(1234.4, 0) == "1,234"
    assert format_number(float("nan"), 4) == format_number(None, 4) == "–"
    assert p_value(0.0004) == "< 0.001"
    assert p_value(None) == "–"
