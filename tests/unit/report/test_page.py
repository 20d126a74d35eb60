"""The report page: whole, safe to open, honest about leaks, the same bytes for the same runs."""

from __future__ import annotations

import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import get_args

import pytest

from helpers.report_runs import METHODS, Comparing, made_row
from tacit.data import SplitConfig
from tacit.report.comparison import ComparisonResult
from tacit.report.page import KINDS, write_report

pytestmark = pytest.mark.slow

VOID = {"meta", "br", "hr", "img", "input", "link"}


class Page(HTMLParser):
    """Reads a page and complains about tags that are not closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.stack: list[str] = []
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.text: list[str] = []
        self.feed(html)
        self.close()
        assert self.stack == [], f"never closed: {self.stack}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.stack, f"</{tag}> closes nothing"
        assert self.stack[-1] == tag, f"</{tag}> closes <{self.stack[-1]}>"
        self.stack.pop()

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def values(self, name: str) -> list[str]:
        return [value for _, key, value in self.attributes if key == name]


def page(compared: ComparisonResult, folder: Path, figures: bool = True) -> tuple[str, Page]:
    write_report(compared, folder / "deep" / "report.html", None if figures else {})
    html = (folder / "deep" / "report.html").read_text(encoding="utf-8")
    return html, Page(html)


def words(read: Page) -> str:
    return " ".join(" ".join(read.text).split())


@pytest.fixture(scope="module")
def six(comparison: Comparing, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Page]:
    """The page of six methods."""
    return page(comparison(6), tmp_path_factory.mktemp("six"))


def test_the_page_is_one_file_that_loads_nothing(six: tuple[str, Page]) -> None:
    html, read = six
    assert not read.tags.keys() & {"script", "link", "iframe", "img", "object", "embed", "base", "form"}
    assert not read.values("src")
    assert all(target.startswith("#") for target in read.values("href"))
    assert not re.search(r"https?://|@import|url\((?!#)", html)
    policy = next(value for value in read.values("content") if "default-src" in value)
    assert policy == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def test_ids_are_unique_and_every_reference_is_met(six: tuple[str, Page]) -> None:
    html, read = six
    ids = Counter(read.values("id"))
    assert [name for name, n in ids.items() if n > 1] == []
    wanted = {target[1:] for target in read.values("href")} | set(re.findall(r"url\(#([^)]+)\)", html))
    assert wanted <= ids.keys()


@pytest.mark.parametrize("n", [1, 12])
def test_every_method_is_in_the_page(n: int, comparison: Comparing, tmp_path: Path) -> None:
    _, read = page(comparison(n), tmp_path)
    text = words(read)
    for label in METHODS[:n]:
        assert label in text
        assert f"tacit run runs/town-{label}-42/experiment.yaml" in text
    assert read.tags["svg"] == (4 if n == 1 else 6), "ease alone has neither curves nor a trade-off"
    assert "whole histories" in text
    assert "120 users, 300 items, 9,000 interactions" in text


def test_hostile_labels_are_text(comparison: Comparing, tmp_path: Path) -> None:
    hostile = '<script>alert("x")</script>--><img src=x onerror=y> $\\frac{1}$ & \x07 {{ 7 * 7 }}'
    _, read = page(comparison(rows=[made_row(hostile, 0), made_row("als", 1), made_row(hostile + "2", 2)]), tmp_path)
    assert read.tags["script"] == 0
    assert read.tags["img"] == 0
    assert "<script>alert" in words(read)
    assert "{{ 7 * 7 }}" in words(read)
    assert "onerror" not in [name for _, name, _ in read.attributes]


def test_a_leaking_run_is_named_but_not_reported(comparison: Comparing, tmp_path: Path) -> None:
    leaking = made_row("fed-leaky", 0, leaks=True)
    rows = [made_row("ease", 1), leaking, made_row("als", 2)]
    html, read = page(comparison(rows=rows), tmp_path, figures=False)
    text = words(read)
    assert "<s>fed-leaky</s>" in html
    assert "leaking: not reported" in text
    assert "Its local-only models reach NDCG@10 0.3100 (Most Popular 0.1200)" in text
    for name in ("NDCG@10", "HR@10", "Recall@10", "MRR@10"):
        assert f"{leaking.metrics[name]:.4f}" not in text, name
    assert "ease has the highest NDCG@10" in text


def test_the_page_says_what_the_check_cannot_see(comparison: Comparing, tmp_path: Path) -> None:
    rows = [made_row("ease", 0), made_row("als", 1)]
    for row in rows:
        row.runs[0].result["leak"]["blind_to"] = ["a server that peeks", "few of the items"]
    _, read = page(comparison(rows=rows), tmp_path, figures=False)
    assert "a server that peeks; few of the items" in words(read)
    _, before = page(comparison(2), tmp_path, figures=False)  # saved before verdicts listed it
    assert "cannot see" not in words(before)


def test_when_all_leak_the_page_says_so(comparison: Comparing, tmp_path: Path) -> None:
    _, read = page(comparison(rows=[made_row("a", 0, leaks=True), made_row("b", 1, leaks=True)]), tmp_path)
    assert "No run is reported: all of them leak." in words(read)
    assert read.tags["svg"] == 1


def test_legacy_sampling_is_labelled(comparison: Comparing, tmp_path: Path) -> None:
    html, read = page(
        comparison(rows=[made_row("gmf", 0, sampling="legacy"), made_row("als", 1)]), tmp_path, figures=False
    )
    assert html.count("legacy sampling</span>") == 4, "beside the name in every table"
    assert "Do not compare its figures with others" in words(read)
    clean, _ = page(comparison(2), tmp_path, figures=False)
    assert "legacy" not in clean.lower().replace("negatives: clean", "")


def test_the_best_is_bold_and_the_others_are_tested_against_it(comparison: Comparing, tmp_path: Path) -> None:
    html, read = page(comparison(3), tmp_path, figures=False)
    assert "item-knn is not significantly different from it" in words(read)
    assert html.count('<span class="mark">†</span>') == 1, "only user-knn has p below 0.05"
    best = made_row("ease", 0).metrics["NDCG@10"]
    assert f"<b>{best:.4f}</b>" in html


def test_several_seeds_give_standard_deviations(comparison: Comparing, tmp_path: Path) -> None:
    compared = comparison(2, seeds=(42, 43, 44))
    _, read = page(compared, tmp_path, figures=False)
    text = words(read)
    assert "Means of 3 seeds ± standard deviation over the seeds." in text
    assert f"± {compared.rows[0].sd['NDCG@10']:.4f}" in text
    assert "with 3 seeds" in text
    assert text.count("tacit run runs/") == 6


def test_a_run_without_folder_or_leak_check_is_reported(comparison: Comparing, tmp_path: Path) -> None:
    row = made_row("ease", 0)
    row.runs[0].result.update(run=None, leak=None)
    _, read = page(comparison(rows=[row]), tmp_path, figures=False)
    text = words(read)
    assert "tacit run experiment.yaml" in text
    assert "not checked" in text
    assert "ease on town" in text


def test_the_same_runs_give_the_same_bytes(six: tuple[str, Page], comparison: Comparing, tmp_path: Path) -> None:
    again, _ = page(comparison(6), tmp_path)
    assert again == six[0]


def test_a_report_has_words_for_every_kind_of_split() -> None:
    assert KINDS.keys() == set(get_args(SplitConfig.model_fields["kind"].annotation))
