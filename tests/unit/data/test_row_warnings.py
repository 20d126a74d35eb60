"""Rows without a rating, and ids that differ by spaces only: both are said, and neither stops a file."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import tacit
from tacit.errors import DataError


def test_a_row_without_a_rating_is_left_out_and_said(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("user,item,rating\nann,a,4\nann,b,\nbob,a,5\nbob,c, \n")
    data = tacit.load(str(path))
    assert len(data.interactions.items) == 2
    assert any("2 rows" in warning and "line 3" in warning for warning in data.warnings)


def test_a_frame_with_an_empty_rating_is_read_alike() -> None:
    frame = pl.DataFrame({"user": ["ann", "ann", "bob"], "item": ["a", "b", "a"], "rating": [4.0, None, 5.0]})
    data = tacit.load(frame)
    assert len(data.interactions.items) == 2
    assert any("1 row has" in warning for warning in data.warnings)


@pytest.mark.parametrize("kind", ["float64", "Float64", "object"])
def test_what_pandas_calls_missing_is_an_empty_rating(kind: str) -> None:
    pandas = pytest.importorskip("pandas")
    ratings = pandas.Series([4.0, None, 5.0], dtype=kind)
    data = tacit.load(pandas.DataFrame({"user": ["ann", "ann", "bob"], "item": ["a", "b", "a"], "rating": ratings}))
    assert data.interactions.values is not None
    assert data.interactions.values.tolist() == [4.0, 5.0]
    assert any("1 row has" in warning for warning in data.warnings)


def test_a_column_without_any_rating_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("user,item,rating\nann,a,\nbob,b,\n")
    with pytest.raises(DataError):
        tacit.load(str(path))


def test_a_rating_that_is_no_number_still_stops_the_file(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("user,item,rating\nann,a,4\nbob,b,good\n")
    with pytest.raises(DataError, match="line 3"):
        tacit.load(str(path))


def test_ids_that_differ_by_spaces_only_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("user,item\nann,a\n ann,b\nbob,a\n")
    data = tacit.load(str(path))
    assert len(data.interactions.user_ids) == 3
    assert [warning for warning in data.warnings if "spaces" in warning]


def test_spaces_around_ids_can_be_removed(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("user,item,genre\nann,a,x\n ann,b ,y\nbob,a,x\nbob,b,z\n")
    data = tacit.load(str(path), strip_ids=True)
    assert data.interactions.user_ids.labels.tolist() == ["ann", "bob"]
    assert data.catalog.item_ids.labels.tolist() == ["a", "b"]
    assert data.warnings == ()
    frame = pl.DataFrame({"user": ["ann ", "ann", "bob"], "item": [1, 2, 3]})
    assert tacit.load(frame, strip_ids=True).interactions.user_ids.labels.tolist() == ["ann", "bob"]
    with pytest.raises(tacit.TacitError):
        tacit.load("town", strip_ids=True)


def test_what_reading_left_out_is_a_note_of_the_run(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    rows = [f"u{user},i{(user + item) % 9},{item % 3 + 2}" for user in range(12) for item in range(6)]
    path.write_text("\n".join(["user,item,rating", *rows, "u1,i8,"]))
    experiment = tacit.Experiment(method="most-popular", split={"kind": "random"})
    assert [note for note in tacit.run(experiment, path).result["notes"] if "no rating" in note]
