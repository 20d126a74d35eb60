"""A run folder is written whole or not at all, and replaces nothing but a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tacit.errors import StorageError
from tacit.report.folder import Run, whole_folder


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
    with pytest.raises(StorageError, match="not the folder of a run"), whole_folder(precious):
        pytest.fail("the folder was handed out")
    (tmp_path / "file").write_text("...")
    with pytest.raises(StorageError, match="not the folder of a run"), whole_folder(tmp_path / "file"):
        pytest.fail("the file was handed out")
    assert (precious / "chapter1.tex").exists()


def test_a_broken_run_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text("{")
    (tmp_path / "experiment.yaml").write_text("method: ease\n")
    with pytest.raises(StorageError, match="cannot be read"):
        Run.open(tmp_path)
