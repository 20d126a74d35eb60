"""The lab's page: runs side by side, tested as the comparison tests them, live."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from helpers.browser import barriers, opened
from helpers.page_visitor import Answer, Visitor
from helpers.waiting import LONG, wait_until
from tacit.config import Comparison, Experiment
from tacit.errors import StorageError
from tacit.lab.comparisons import compare, compare_runs
from tacit.lab.experiments import run
from tacit.report.comparison import ComparisonResult
from tacit.report.folder import Run
from tacit.web import lab as lab_module
from tacit.web.lab import RunFolders, key_of, lab_page
from tacit.web.server import serving

pytestmark = pytest.mark.slow

TWO = {
    "name": "two",
    "data": {"source": "town", "users": 60, "places": 50, "visits": 20},
    "runtime": {"ledger": "events"},
    "evaluation": {"local_only_users": 0},
    "methods": ["most-popular", {"name": "fpl", "epochs": 3, "learning_rate": 0.05}],
    "grid": {"method.pi": [0.2, 1.0]},
}


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> ComparisonResult:
    given = {**TWO, "methods": [TWO["methods"][1]]}  # type: ignore[index]
    out = tmp_path_factory.mktemp("runs")
    return compare(Comparison.from_options(given, "a test"), out=out)


@pytest.fixture
def runs(compared: ComparisonResult, tmp_path: Path) -> Path:
    assert compared.folder is not None
    return Path(shutil.copytree(compared.folder.parent, tmp_path / "runs"))


@pytest.fixture
def visitor(runs: Path) -> Iterator[Visitor]:
    with serving(lab_page(RunFolders([runs]))) as address:
        yield Visitor(address)


def test_runs_read_from_folders_are_compared_as_when_they_were_made(compared: ComparisonResult) -> None:
    opened = compare_runs([Run.open(run.folder) for row in compared.rows for run in row.runs if run.folder])
    assert len(opened) == 1
    assert [row.label for row in opened[0].rows] == ["fpl pi=0.2", "fpl pi=1.0"]
    for row, before in zip(opened[0].rows, compared.rows, strict=True):
        assert row.metrics == before.metrics
        assert row.ci == before.ci
        assert (row.p_t, row.p_wilcoxon) == (before.p_t, before.p_wilcoxon)


def test_the_page_has_the_figures_of_the_report_and_pi_against_exposure(visitor: Visitor) -> None:
    page = visitor.get("/")
    assert page.status == 200
    for name in ("results", "people", "tail", "disclosed"):
        assert f'id="figure-{name}"' in page.html
    assert "style=" not in page.html, "the policy forbids it"
    assert "Percentiles over users" in page.text
    assert visitor.get("/?set=99").status == visitor.get("/?set=x").status == 200


def drawn(visitor: Visitor, path: str) -> Answer:
    """Look until the figures are there, as the page does by itself."""
    pages: list[Answer] = []

    def is_drawn() -> bool:
        pages.append(visitor.get(path))
        return "data-wait=" not in pages[-1].html

    wait_until(is_drawn, LONG, f"the figures of {path} are drawn")
    return pages[-1]


def test_a_set_that_takes_long_to_draw_answers_at_once_and_goes_on(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    may_go_on, said = Event(), lab_module._describe

    def slowly(compared: ComparisonResult) -> dict[str, Any]:
        assert may_go_on.wait(LONG), "the test did not let it go on"
        return said(compared)

    lab = RunFolders([runs])
    with serving(lab_page(lab)) as address:
        visitor = Visitor(address)
        monkeypatch.setattr(lab_module, "_describe", slowly)
        gone = next(folder for folder in runs.iterdir() if (folder / "experiment.yaml").exists())
        gone.rename(runs.parent / gone.name)
        page = visitor.get("/")
        assert page.status == 200
        assert "Drawing the figures" in page.text
        assert 'http-equiv="refresh"' in page.html, "it goes on without script, too"
        assert b"waiting" in visitor.get("/drawing?set=0").body
        may_go_on.set()
        assert 'id="figure-results"' in drawn(visitor, "/").html
        assert b"over" in visitor.get("/drawing?set=0").body


def test_sets_that_look_alike_are_distinguished_and_every_figure_is_there(tmp_path: Path) -> None:
    """Runs with and without a validation part are no comparison; gossip draws its overlay, looks draw a curve."""
    runs: list[tuple[Any, bool]] = [({"name": "pepper", "epochs": 2}, True), ("most-popular", False)]
    for method, validation in runs:
        given = {"method": method, "split": {"validation": validation}, "runtime": {"evaluate_every": int(validation)}}
        whole = {"data": TWO["data"], "evaluation": TWO["evaluation"], **given}
        run(Experiment.from_options(whole, "a test"), folder=tmp_path / str(validation))
    lab = RunFolders([tmp_path])
    names = sorted(compared.name for compared in lab.sets())
    assert [name.rpartition(", ")[2] for name in names] == ["with validation", "without validation"]
    with serving(lab_page(lab)) as address:
        pages = [drawn(Visitor(address), f"/?set={key_of(compared)}") for compared in lab.sets()]
    (learnt,) = (page for page in pages if "figure-overlay" in page.html)
    assert 'id="figure-curves"' in learnt.html
    assert all("with validation" in page.text and "without validation" in page.text for page in pages)


def test_a_new_run_appears_and_a_lost_one_goes(visitor: Visitor, runs: Path) -> None:
    before = visitor.get("/state").body
    assert visitor.get("/state").body == before
    gone = next(folder for folder in runs.iterdir() if (folder / "experiment.yaml").exists())
    gone.rename(runs.parent / gone.name)
    assert visitor.get("/state").body != before
    assert "1 methods" not in drawn(visitor, "/").text
    (runs.parent / gone.name).rename(gone)
    assert visitor.get("/state").body == before


def test_a_run_made_twice_counts_once_and_what_was_not_tested_is_not_called_alike(runs: Path) -> None:
    first = next(folder for folder in runs.iterdir() if (folder / "experiment.yaml").exists())
    again = Path(shutil.copytree(first, runs / "again"))
    text = (again / "experiment.yaml").read_text(encoding="utf-8")
    (again / "experiment.yaml").write_text(text.replace("name: two", "name: other", 1), encoding="utf-8")
    (compared,) = RunFolders([runs]).sets()
    assert [len(row.runs) for row in compared.rows] == [1, 1]
    (again / "experiment.yaml").write_text(text.replace("seed: 42", "seed: 43", 1), encoding="utf-8")
    with serving(lab_page(RunFolders([runs]))) as address:
        page = Visitor(address).get("/").text
    assert "was not tested" in page
    assert "not distinguishable" not in page


def test_groups_of_options_that_others_lack_are_named_and_not_listed(tmp_path: Path) -> None:
    for place, more in enumerate(({}, {"runtime": {"secure": {"n_min": 5}}})):
        given = {"data": TWO["data"], "evaluation": TWO["evaluation"], **more}
        method = {"name": "fpl", "epochs": 1, "clients_per_round": 20}
        run(Experiment.from_options({**given, "method": method}, "a test"), folder=tmp_path / str(place))
    (compared,) = RunFolders([tmp_path]).sets()
    assert sorted(row.label for row in compared.rows) == ["fpl", "fpl with secure"]
    with serving(lab_page(RunFolders([tmp_path]))) as address:
        assert "was masked" in Visitor(address).get("/").text


def test_a_comparison_stands_for_its_runs_and_other_folders_are_refused(runs: Path, tmp_path: Path) -> None:
    assert len(RunFolders([runs / "two"]).folders()) == len(RunFolders([runs]).folders()) == 2
    for place in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(StorageError):
            lab_page(RunFolders([place]))


@pytest.mark.slow
def test_the_page_has_no_barrier_and_shows_a_new_run_by_itself(browser: Any, runs: Path) -> None:
    away = next(folder for folder in runs.iterdir() if (folder / "experiment.yaml").exists())
    away.rename(runs.parent / away.name)
    with serving(lab_page(RunFolders([runs]))) as address:
        assert barriers(browser, address, ["/"]) == []
        page = opened(browser, address)
        assert "2 methods" not in page.locator("main").inner_text()
        (runs.parent / away.name).rename(away)
        page.get_by_text("2 methods were compared").wait_for(timeout=30_000)
        assert page.complaints == []
        page.context.close()
