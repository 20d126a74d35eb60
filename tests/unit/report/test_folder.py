"""A run folder is written whole or not at all, and replaces nothing but a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tacit
from tacit.errors import StorageError
from tacit.lab.comparisons import compare_runs
from tacit.report.folder import Run, whole_folder
from tacit.report.page import write_report


def test_a_folder_appears_only_when_all_went_well(tmp_path: Path) -> None:
    def fails_halfway() -> None:
        with whole_folder(tmp_path / "run") as partial:
            (partial / "result.json").write_text("{}")
            raise RuntimeError("halfway")

    with pytest.raises(RuntimeError, match="halfway"):
        fails_halfway()
    assert list(tmp_path.iterdir()) == []
    with whole_folder(tmp_path / "run") as partial:
        (partial / "result.json").write_text("1")
    assert (tmp_path / "run" / "result.json").read_text() == "1"


def test_an_earlier_run_is_replaced_and_survives_a_failed_one(tmp_path: Path) -> None:
    for text in ("old", "new"):
        with whole_folder(tmp_path / "run") as partial:
            (partial / "result.json").write_text(text)
    assert (tmp_path / "run" / "result.json").read_text() == "new"
    with pytest.raises(KeyboardInterrupt), whole_folder(tmp_path / "run"):
        raise KeyboardInterrupt
    assert (tmp_path / "run" / "result.json").read_text() == "new"
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_nothing_but_a_run_is_ever_replaced(tmp_path: Path) -> None:
    precious = tmp_path / "thesis"
    precious.mkdir()
    (precious / "chapter1.tex").write_text("...")
    with pytest.raises(StorageError, match="not a run folder"), whole_folder(precious):
        pytest.fail("the folder was handed out")
    (tmp_path / "file").write_text("...")
    with pytest.raises(StorageError, match="not a run folder"), whole_folder(tmp_path / "file"):
        pytest.fail("the file was handed out")
    assert (precious / "chapter1.tex").exists()


def test_a_broken_run_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text("{")
    (tmp_path / "experiment.yaml").write_text("method: ease\n")
    with pytest.raises(StorageError, match="cannot be read"):
        Run.open(tmp_path)


def saved(method: str, folder: Path, **options: Any) -> dict[str, Any]:
    """Make a small run and return its result.json."""
    town = {"source": "town", "users": 60, "places": 40}
    given = {"method": {"name": method, **options}, "data": town, "evaluation": {"local_only_users": 0}}
    tacit.run(tacit.Experiment.from_options(given, "test"), folder=folder)
    result: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return result


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "options", "passes", "rounds"),
    [
        ("bpr-mf", {"epochs": 3}, 3, None),  # centralised: nothing is exchanged
        ("fcf", {"epochs": 3, "steps_per_epoch": 5}, 3, 15),  # five rounds are a pass
        ("fpl", {"clients_per_round": 20, "rounds": 7}, 3, 7),  # three rounds are a pass; the last one is cut short
        ("dec-fedavg", {"epochs": 4, "view": 3}, 4, 4),  # a round of gossip is a pass
    ],
)
def test_passes_and_rounds_are_distinguished(
    tmp_path: Path, method: str, options: dict[str, Any], passes: int, rounds: int | None
) -> None:
    result = saved(method, tmp_path / "run", **options)
    assert (result["passes"], result["passes_run"], result["rounds"]) == (passes, passes, rounds)


@pytest.mark.slow
def test_a_run_saved_when_passes_were_called_rounds_still_opens(tmp_path: Path) -> None:
    now = saved("most-popular", tmp_path / "run")
    before = {name: value for name, value in now.items() if name not in ("passes", "passes_run")} | {"rounds": 7}
    (tmp_path / "run" / "result.json").write_text(json.dumps(before))
    opened = Run.open(tmp_path / "run")
    assert (opened.result["passes"], opened.result["rounds"]) == (7, None)
    assert opened.metrics == now["metrics"]
    (compared,) = compare_runs([opened])
    assert compared.as_json()["rows"][0]["passes"] == 7
    write_report(compared, tmp_path / "report.html")
