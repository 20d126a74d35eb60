"""A journal that an older version wrote is brought up to date, and loses nothing."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from small_field import CATALOG, first_shared, founded

from tacit.coordinator import Journal
from tacit.coordinator.course import Course, Phase, Quality
from tacit.coordinator.journal import Round

HAPPENED = Round(0, "finished", 5, 4, 1, 0, 1000, 5000, 1.5)


def test_rounds_of_before_there_were_phases_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = Journal.create(path, founded(), CATALOG, seed=1)
    journal.finish(HAPPENED, first_shared(founded()), [])
    journal.close()
    with sqlite3.connect(path) as old:
        for table in ("phases", "quality", "sums"):
            old.execute(f"DROP TABLE {table}")
        for column in ("called_off", "masked", "why"):
            old.execute(f"ALTER TABLE rounds DROP COLUMN {column}")
        old.execute("DELETE FROM versions WHERE version > 2")
    old.close()
    journal = Journal.open(path)
    assert journal.rounds() == [HAPPENED]
    assert (journal.courses(), journal.phase_sums(), journal.quality()) == ({}, [], Quality(0, 0))
    course = Course((Phase(1, "adverts", 5, 4, 0, 0, 10, 20, 0.5),), Quality(1, 4))
    journal.abandon(Round(1, "abandoned", 5, 4, 0, 1, 10, 20, 0.5), course)
    journal.close()
    journal = Journal.open(path)
    assert journal.courses() == {1: course}
    assert journal.courses(since=2) == {}
    assert journal.phase_sums() == list(course.phases)
    assert [version.round for version in journal.versions()] == [0]
    journal.close()
