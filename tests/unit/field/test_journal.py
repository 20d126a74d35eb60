"""A journal that an older version wrote is brought up to date, and loses nothing."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

from small_field import CATALOG, first_shared, founded

from tacit.coordinator import Journal
from tacit.coordinator.course import Course, Phase, Quality
from tacit.coordinator.journal import Round
from tacit.errors import StorageError
from tacit.runtimes.database import Kind, connected

HAPPENED = Round(0, "finished", 5, 4, 1, 0, 1000, 5000, 1.5)


def test_rounds_of_before_there_were_phases_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = Journal.create(path, founded(), CATALOG, seed=1)
    journal.finish(HAPPENED, first_shared(founded()), [])
    journal.close()
    with sqlite3.connect(path) as old:
        for table in ("phases", "quality", "sums"):
            old.execute(f"DROP TABLE {table}")
        for column in ("called_off", "masked", "reason"):
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


def test_two_programs_may_bring_one_file_up_to_date_at_once(tmp_path: Path) -> None:
    kind = Kind(7, "a file", ("CREATE TABLE one (x);",), StorageError, "Restore it.")
    newer = replace(kind, migrations=(*kind.migrations, "ALTER TABLE one ADD COLUMN y;"))
    path = tmp_path / "file.db"
    made = kind.make(path)
    made.execute("COMMIT")
    made.close()
    first, second = connected(path), connected(path)
    meanwhile = [second]

    def other(statement: str) -> None:
        if statement.startswith("BEGIN") and meanwhile:
            newer.upgrade(meanwhile.pop())  # between a look at the version and the lock

    first.set_trace_callback(other)
    with newer.complaints(path):
        newer.upgrade(first)
    assert not meanwhile
    assert first.execute("SELECT max(version), count(*) FROM versions").fetchone() == (2, 2)
    assert not first.in_transaction
    for connection in (first, second):
        connection.close()
