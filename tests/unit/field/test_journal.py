"""A journal that an older version wrote is brought up to date, and loses nothing."""

from __future__ import annotations

import json
import resource
import signal
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from helpers.small_federation import CATALOG, first_shared, founded
from tacit.errors import StorageError
from tacit.field.coordinator import CoordinatorJournal
from tacit.field.coordinator.journal_file import FILE
from tacit.field.coordinator.round_log import RoundRecord
from tacit.field.coordinator.round_stats import PhaseCounts, RoundStats, SummedQuality
from tacit.protocols.secure_aggregation import Identity
from tacit.reasons import ReasonCode, RoundReason, describe_reason
from tacit.storage.database import FileFormat, connect
from tacit.wire.enrolment import enrolment_statement
from tacit.wire.messages import pack, write_welcome

pytest.importorskip("flwr", reason="the field needs Flower")
from tacit.field.carriers.loopback import Loopback
from tacit.field.metrics import registry_of

NEW_COLUMNS = {
    "rounds": ("called_off", "masked", "reason"),
    "devices": ("summed", "spent", "batch", "half", "label", "shown", "stays", "cohorts", "missing"),
    "models": ("amendment",),
    "invitations": ("label",),
}
HAPPENED = RoundRecord(0, "finished", 5, 4, 1, 0, 1000, 5000, 1.5)


def test_rounds_of_before_there_were_phases_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = CoordinatorJournal.create(path, founded(), CATALOG, seed=1)
    journal.finish(HAPPENED, first_shared(founded()), [])
    journal.close()
    with sqlite3.connect(path) as old:
        for trigger in ("identities_differ", "directory_grows", "revocations_are_noticed"):
            old.execute(f"DROP TRIGGER {trigger}")
        for table in (
            "phases",
            "quality",
            "sums",
            "strikes",
            "spendings",
            "amendments",
            "directory",
            "checkpoints",
            "former_keys",
            "notices",
        ):
            old.execute(f"DROP TABLE {table}")
        for table, columns in NEW_COLUMNS.items():
            for column in columns:
                old.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        old.execute("DELETE FROM versions WHERE version > 2")
    old.close()
    journal = CoordinatorJournal.open(path)
    assert journal.rounds.records() == [HAPPENED]
    assert (journal.rounds.stats(), journal.rounds.phase_sums(), journal.rounds.quality()) == (
        {},
        [],
        SummedQuality(0, 0),
    )
    course = RoundStats((PhaseCounts(1, "adverts", 5, 4, 0, 0, 10, 20, 0.5),), SummedQuality(1, 4))
    journal.rounds.abandon(RoundRecord(1, "abandoned", 5, 4, 0, 1, 10, 20, 0.5), course)
    journal.close()
    journal = CoordinatorJournal.open(path)
    assert journal.rounds.stats() == {1: course}
    assert journal.rounds.stats(since=2) == {}
    assert journal.rounds.phase_sums() == list(course.phases)
    assert [version.round for version in journal.versions()] == [0]
    journal.close()


VERSION_4 = (
    "CREATE TABLE versions (version INTEGER PRIMARY KEY)",
    "INSERT INTO versions VALUES (1), (2), (3), (4)",
    "CREATE TABLE facts (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
    "CREATE TABLE devices (number INTEGER PRIMARY KEY AUTOINCREMENT, key BLOB NOT NULL UNIQUE, "
    "counted INTEGER NOT NULL DEFAULT -1, revoked INTEGER NOT NULL DEFAULT 0, identity BLOB NOT NULL DEFAULT x'')",
    "CREATE TABLE invitations (digest TEXT PRIMARY KEY, expires INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE models (round INTEGER PRIMARY KEY, content BLOB NOT NULL)",
    "CREATE TABLE rounds (number INTEGER PRIMARY KEY, state TEXT NOT NULL, asked INTEGER NOT NULL, "
    "answered INTEGER NOT NULL, refused INTEGER NOT NULL, lost INTEGER NOT NULL, bytes_up INTEGER NOT NULL, "
    "bytes_down INTEGER NOT NULL, seconds REAL NOT NULL, called_off INTEGER NOT NULL DEFAULT 0, "
    "masked INTEGER NOT NULL DEFAULT 0, why TEXT NOT NULL DEFAULT '')",
    "CREATE TABLE phases (round INTEGER NOT NULL, place INTEGER NOT NULL, stage INTEGER NOT NULL, name TEXT NOT NULL, "
    "asked INTEGER NOT NULL, answered INTEGER NOT NULL, refused INTEGER NOT NULL, called_off INTEGER NOT NULL, "
    "bytes_up INTEGER NOT NULL, bytes_down INTEGER NOT NULL, seconds REAL NOT NULL, PRIMARY KEY (round, place)) "
    "WITHOUT ROWID",
    "CREATE TABLE quality (round INTEGER PRIMARY KEY, hits INTEGER NOT NULL, people INTEGER NOT NULL)",
    "CREATE TABLE sums (round INTEGER NOT NULL, stage INTEGER NOT NULL, device INTEGER NOT NULL, "
    "PRIMARY KEY (round, stage, device)) WITHOUT ROWID",
)
"""The journal as the version before reasons had codes made it."""
SENTENCES = [
    "13 rested devices are here, a sum under masks takes 13",
    "0 of 5 devices are rested, a sum under masks takes 5",
    'nothing was unmasked: Person 7654321 gave a "wrong" share, naïvely.',
    "",
]


def old_journal(path: Path) -> None:
    """Write what the version before would have written."""
    with sqlite3.connect(path) as old:
        old.execute(f"PRAGMA application_id = {FILE.mark}")
        for statement in VERSION_4:
            old.execute(statement)
        facts = {"welcome": write_welcome(founded(), CATALOG), "seed": b"1", "begun": b"2", "tried": b"5"}
        old.executemany("INSERT INTO facts VALUES (?, ?)", facts.items())
        old.execute("INSERT INTO devices (key, counted, identity) VALUES (x'01', 0, x'02')")
        old.execute("INSERT INTO models VALUES (0, ?)", (pack(first_shared(founded())),))
        counts = [
            (5, 4, 1, 0, 1000, 5000, 1.5, 0, 1),
            (0,) * 9,
            (5, 4, 0, 1, 10, 20, 2.5, 0, 1),
            (5, 1, 0, 4, 1, 2, 9.0, 0, 0),
        ]
        states = ("finished", "rested", "abandoned", "abandoned")
        for number, (state, row, said) in enumerate(zip(states, counts, SENTENCES, strict=True)):
            old.execute(f"INSERT INTO rounds VALUES ({', '.join('?' * 12)})", (number, state, *row, said))
        old.execute("INSERT INTO phases VALUES (0, 0, 1, 'adverts', 5, 4, 1, 0, 10, 20, 0.5)")
        old.execute("INSERT INTO quality VALUES (0, 1, 4)")
        old.execute("INSERT INTO sums VALUES (0, 2, 1)")
    old.close()


def test_sentences_of_the_version_before_are_kept_counted_and_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    old_journal(path)
    for _ in range(2):  # it is brought up to date once
        journal = CoordinatorJournal.open(path)
        rounds = journal.rounds.records()
        assert [happened.state for happened in rounds] == ["finished", "skipped", "abandoned", "abandoned"]
        texts = [happened.reason.parameters["text"] for happened in rounds if happened.reason is not None]
        assert texts == SENTENCES[:3], "nothing is lost"
        assert {happened.reason.code for happened in rounds if happened.reason is not None} == {ReasonCode.LEGACY}
        assert rounds[3].reason is None
        assert (rounds[2].asked, rounds[2].seconds, rounds[2].masked) == (5, 2.5, 1)
        assert (journal.sums.last_begun_round, journal.sums.participants(), journal.sums.has_begun) == (
            2,
            {(0, 2): {1}},
            True,
        )
        assert [(one.number, one.counted, one.identity) for one in journal.members.devices()] == [(1, 0, b"\2")]
        assert journal.rounds.stats() == {
            0: RoundStats((PhaseCounts(1, "adverts", 5, 4, 1, 0, 10, 20, 0.5),), SummedQuality(1, 4))
        }
        assert [version.round for version in journal.versions()] == [0]
        public = json.dumps([happened.public() for happened in rounds])
        shown = (
            f"{public} {[str(describe_reason(happened.reason)) for happened in rounds if happened.reason is not None]}"
        )
        assert not any(part in shown for part in ("7654321", "rested", "Person"))
        journal.close()
    text = generate_latest(registry_of(path, Loopback({}))).decode()
    for state in ("finished", "skipped", "abandoned"):
        assert f'tacit_round_reasons_total{{code="legacy",state="{state}"}} 1.0' in text.splitlines()
    assert "7654321" not in text


def test_a_reason_is_stored_as_code_and_counts_without_personal_parameters(tmp_path: Path) -> None:
    journal = CoordinatorJournal.create(tmp_path / "journal.db", founded(), CATALOG, seed=1)
    told = {"left": 2, "needed": 7, "phase": "vectors"}
    reason = RoundReason(ReasonCode.TOO_FEW_NEIGHBOURS, told | {"participant": 7_654_321})
    journal.rounds.abandon(replace(HAPPENED, state="abandoned", reason=reason))
    (row,) = journal.file.connection.execute("SELECT reason FROM rounds").fetchone()
    assert json.loads(row) == {"code": "too-few-neighbours", "parameters": told}
    assert [happened.reason for happened in journal.rounds.records()] == [
        RoundReason(ReasonCode.TOO_FEW_NEIGHBOURS, told)
    ]
    journal.close()


def test_two_programs_may_bring_one_file_up_to_date_at_once(tmp_path: Path) -> None:
    kind = FileFormat(7, "a file", ("CREATE TABLE one (x);",), StorageError, "Restore it.")
    newer = replace(kind, migrations=(*kind.migrations, "ALTER TABLE one ADD COLUMN y;"))
    path = tmp_path / "file.db"
    made = kind.make(path)
    made.execute("COMMIT")
    made.close()
    first, second = connect(path), connect(path)
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


def proved(identity: Identity, word: str, key: bytes) -> tuple[bytes, bytes]:
    return identity.public, identity.sign(enrolment_statement(word, key))


def test_no_device_enrols_with_the_identity_of_another(tmp_path: Path) -> None:
    journal = CoordinatorJournal.create(tmp_path / "journal.db", founded(), CATALOG, seed=1)
    own, impostor = Identity.fresh(), Identity.fresh()
    words = [journal.invitations.make(expires=100) for _ in range(4)]
    first = journal.members.enrol(words[0], b"key", 50, *proved(own, words[0], b"key"))
    assert first == 1
    _, other = proved(impostor, words[1], b"impostor's")
    overheard = own.sign(enrolment_statement(words[0], b"key"))
    for proof in (b"", bytes(64), other, overheard):
        assert journal.members.enrol(words[1], b"impostor's", 50, own.public, proof) is None
    assert journal.members.enrol(words[1], b"impostor's", 50, *proved(own, words[1], b"another key")) is None
    assert journal.members.enrol(words[1], b"impostor's", 50, *proved(impostor, words[1], b"impostor's")) == 2, (
        "the word was not spent"
    )
    with pytest.raises(StorageError), journal.file.transaction():
        journal.members.add(b"third", own.public)
    unknown = proved(Identity.fresh(), "no word", b"key")
    assert journal.members.enrol("no word", b"key", 50, *unknown) is None, "a member's key is no invitation"
    assert journal.members.enrol("no word", b"key", 50, *proved(own, "no word", b"key")) == 1, "its answer was lost"
    assert journal.members.enrol(words[2], b"new key", 50, *proved(own, words[2], b"new key")) == 3, (
        "the device left and came back"
    )
    assert [(one.number, one.revoked, one.identity) for one in journal.members.devices()] == [
        (1, True, b""),
        (2, False, impostor.public),
        (3, False, own.public),
    ]
    journal.members.revoke(3)
    assert journal.members.enrol(words[3], b"newer", 50, *proved(own, words[3], b"newer")) is None, "revoked is revoked"
    journal.close()


def test_a_full_disk_loses_no_finished_round(tmp_path: Path) -> None:
    """Nothing of the round that does not fit is kept, and the coordinator goes on once there is space."""
    path = tmp_path / "journal.db"
    journal = CoordinatorJournal.create(path, founded(), CATALOG, seed=1)
    shared = first_shared(founded())
    journal.finish(HAPPENED, shared, [])
    limit, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 4096, limit[1]))
    try:
        with pytest.raises(StorageError):
            journal.invitations.make_many(20_000, 2**40)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, handler)
    assert journal.rounds.records() == [HAPPENED]
    assert not journal.invitations.pending(0)
    journal.finish(replace(HAPPENED, number=1), shared, [])
    journal.close()
    again = CoordinatorJournal.open(path)
    assert [happened.number for happened in again.rounds.records()] == [0, 1]
    assert again.model() is not None
    again.close()
