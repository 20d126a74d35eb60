"""The journal: what a coordinator must not forget. The model after each finished round, who is enrolled, what happened.

It holds nothing of what a single device learnt: answers are added in memory and gone when the round is. A device that
sent what no honest device sends has a strike: its number, the round and a code. Why a round ended as it did is a code
with counts. Of secure sums the journal holds who was in them, by number, because nearly the same
people must not be summed again; so it also tells who was lost between the two stages of one.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tacit.errors import ForgedError, StorageError
from tacit.field.coordinator.round_stats import PhaseCounts, RoundStats, SummedQuality
from tacit.protocols.secure_aggregation.identity import verify
from tacit.reasons import ReasonCode, RoundReason
from tacit.storage.database import FileFormat, connect
from tacit.types import Array, Catalog
from tacit.wire.catalogue import digest_of
from tacit.wire.enrolment import enrolment_statement
from tacit.wire.federation import Federation
from tacit.wire.messages import pack, read_welcome, unpack, write_welcome

MIGRATIONS = (
    """
    CREATE TABLE facts (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
    CREATE TABLE devices (
        number INTEGER PRIMARY KEY AUTOINCREMENT, key BLOB NOT NULL UNIQUE, counted INTEGER NOT NULL DEFAULT -1,
        revoked INTEGER NOT NULL DEFAULT 0
    );
    CREATE TABLE invitations (digest TEXT PRIMARY KEY, expires INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE models (round INTEGER PRIMARY KEY, content BLOB NOT NULL);
    CREATE TABLE rounds (
        number INTEGER PRIMARY KEY, state TEXT NOT NULL, asked INTEGER NOT NULL, answered INTEGER NOT NULL,
        refused INTEGER NOT NULL, lost INTEGER NOT NULL, bytes_up INTEGER NOT NULL, bytes_down INTEGER NOT NULL,
        seconds REAL NOT NULL
    );
    """,
    "ALTER TABLE devices ADD COLUMN identity BLOB NOT NULL DEFAULT x'';",
    """
    ALTER TABLE rounds ADD COLUMN called_off INTEGER NOT NULL DEFAULT 0;
    CREATE TABLE phases (
        round INTEGER NOT NULL, place INTEGER NOT NULL, stage INTEGER NOT NULL, name TEXT NOT NULL,
        asked INTEGER NOT NULL, answered INTEGER NOT NULL, refused INTEGER NOT NULL, called_off INTEGER NOT NULL,
        bytes_up INTEGER NOT NULL, bytes_down INTEGER NOT NULL, seconds REAL NOT NULL, PRIMARY KEY (round, place)
    ) WITHOUT ROWID;
    CREATE TABLE quality (round INTEGER PRIMARY KEY, hits INTEGER NOT NULL, people INTEGER NOT NULL);
    """,
    """
    ALTER TABLE rounds ADD COLUMN masked INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE rounds ADD COLUMN why TEXT NOT NULL DEFAULT '';
    CREATE TABLE sums (
        round INTEGER NOT NULL, stage INTEGER NOT NULL, device INTEGER NOT NULL, PRIMARY KEY (round, stage, device)
    ) WITHOUT ROWID;
    """,
    """
    ALTER TABLE rounds RENAME COLUMN why TO reason;
    UPDATE rounds SET reason = json_object('code', 'legacy', 'parameters', json_object('text', reason))
        WHERE reason != '';
    UPDATE rounds SET state = 'skipped' WHERE state = 'rested';
    """,
    """
    CREATE TABLE strikes (
        device INTEGER NOT NULL, round INTEGER NOT NULL, code TEXT NOT NULL, PRIMARY KEY (device, round, code)
    ) WITHOUT ROWID;
    """,
    """
    CREATE TRIGGER identities_differ BEFORE INSERT ON devices
        WHEN NEW.identity != x'' AND EXISTS (SELECT 1 FROM devices WHERE identity = NEW.identity)
        BEGIN SELECT RAISE(ABORT, 'another device has this identity'); END;
    """,
)
FILE = FileFormat(0x54434A4E, "a coordinator's journal", MIGRATIONS, StorageError, "Restore a copy of it.")
KEPT_MODELS = 3


@dataclass(frozen=True)
class RoundRecord:
    """What happened in a round, in counts."""

    number: int
    state: str  # finished, abandoned, or skipped: nobody was asked
    asked: int
    answered: int
    refused: int
    lost: int
    bytes_up: int
    bytes_down: int
    seconds: float
    called_off: int = 0  # not waited for: enough others had answered
    masked: int = 0  # 1: answers could be read as a sum only
    reason: RoundReason | None = None  # why it was masked or not, skipped or abandoned; none in old journals

    def public(self) -> dict[str, Any]:
        """Return it for logs and programs, without what tells of a single device."""
        return vars(self) | {"reason": None if self.reason is None else self.reason.public().as_dict()}


@dataclass(frozen=True)
class ModelVersion:
    """A model that is kept: after which round, under which digest, in how many bytes."""

    round: int
    digest: str
    bytes: int


@dataclass(frozen=True)
class Strikes:
    """In how many rounds a device sent what no honest device sends, when last, and what."""

    device: int
    count: int
    last_round: int
    codes: tuple[ReasonCode, ...]


@dataclass(frozen=True)
class EnrolledDevice:
    """A device that may take part."""

    number: int
    key: bytes  # its public key, as the carrier knows it
    counted: int  # the last round in which its answer was added
    revoked: bool
    identity: bytes  # its public key in secure sums


class CoordinatorJournal:
    """An open journal."""

    def __init__(self, path: Path, federation: Federation, catalog: Catalog) -> None:
        self.path, self.federation, self.catalog = path, federation, catalog
        self._connection = connect(path)

    @classmethod
    def create(
        cls, path: Path, federation: Federation, catalog: Catalog, seed: int | None = None
    ) -> CoordinatorJournal:
        """Found a federation; `seed` is for tests that compare with a simulation."""
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            raise StorageError(f"'{path}' exists already.", "Open it, or choose another folder.") from None
        try:
            with FILE.complaints(path):
                connection = FILE.make(path)
                root = secrets.randbits(63) if seed is None else seed
                facts = (("welcome", write_welcome(federation, catalog)), ("seed", str(root).encode()))
                connection.executemany("INSERT INTO facts VALUES (?, ?)", facts)
                connection.execute("COMMIT")
                connection.close()
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return cls(path, federation, catalog)

    @classmethod
    def open(cls, path: Path) -> CoordinatorJournal:
        """Go on with a federation."""
        if not path.is_file():
            raise StorageError(f"There is no journal '{path}'.", "Start the coordinator: tacit serve.")
        with FILE.complaints(path):
            connection = connect(path)
            try:
                FILE.check(path, connection)
                FILE.upgrade(connection)
                (welcome,) = connection.execute("SELECT value FROM facts WHERE name = 'welcome'").fetchone()
            finally:
                connection.close()
        return cls(path, *read_welcome(welcome))

    def close(self) -> None:
        """Let the file go."""
        self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with FILE.transaction(self.path, self._connection):
            yield

    @property
    def welcome(self) -> bytes:
        """What a device needs to join."""
        return write_welcome(self.federation, self.catalog)

    @property
    def seed(self) -> int:
        """Where the coordinator's own draws come from."""
        return int(self._connection.execute("SELECT value FROM facts WHERE name = 'seed'").fetchone()[0])

    # --- rounds -------------------------------------------------------------------------------------------------------

    def rounds(self) -> list[RoundRecord]:
        """Return what happened, round by round."""
        with FILE.complaints(self.path):
            found = self._connection.execute("SELECT * FROM rounds ORDER BY number").fetchall()
            return [RoundRecord(*(*counts, _reason(stored))) for *counts, stored in found]

    @property
    def next_round(self) -> int:
        """The number of the round that comes next."""
        with FILE.complaints(self.path):
            return int(self._connection.execute("SELECT coalesce(max(number) + 1, 0) FROM rounds").fetchone()[0])

    def model(self) -> dict[str, Array] | None:
        """Return the model after the last finished round, none before the first."""
        with FILE.complaints(self.path):
            row = self._connection.execute("SELECT content FROM models ORDER BY round DESC LIMIT 1").fetchone()
        return None if row is None else unpack(row[0])

    def versions(self) -> list[ModelVersion]:
        """Return the models that are kept, newest first."""
        with FILE.complaints(self.path):
            found = self._connection.execute("SELECT round, content FROM models ORDER BY round DESC").fetchall()
        return [ModelVersion(number, digest_of(content), len(content)) for number, content in found]

    def round_stats(self, since: int = 0, until: int = 2**31) -> dict[int, RoundStats]:
        """Return how rounds went, from one to another; rounds of which that was not written down are left out."""
        phases: dict[int, list[PhaseCounts]] = {}
        which = "WHERE round BETWEEN ? AND ? ORDER BY round"
        with FILE.complaints(self.path):
            told = self._connection.execute(f"SELECT * FROM phases {which}, place", (since, until))
            for number, _, *values in told:
                phases.setdefault(number, []).append(PhaseCounts(*values))
            rated = self._connection.execute(f"SELECT * FROM quality {which}", (since, until))
            quality = {number: SummedQuality(hits, people) for number, hits, people in rated}
        return {
            number: RoundStats(tuple(phases.get(number, ())), quality.get(number)) for number in {*phases, *quality}
        }

    def phase_sums(self) -> list[PhaseCounts]:
        """Return each phase summed over all rounds."""
        columns = ("asked", "answered", "refused", "called_off", "bytes_up", "bytes_down", "seconds")
        sums = ", ".join(f"sum({name})" for name in columns)
        with FILE.complaints(self.path):
            found = self._connection.execute(
                f"SELECT stage, name, {sums} FROM phases GROUP BY stage, name ORDER BY min(place)"
            )
            return [PhaseCounts(*row) for row in found]

    def quality(self, last: int | None = None) -> SummedQuality:
        """Return the quality summed over all rounds, or the last that have one; of nobody where none has."""
        with FILE.complaints(self.path):
            rated = "SELECT hits, people FROM quality ORDER BY round DESC LIMIT ?"
            asked = (-1 if last is None else last,)
            hits, people = self._connection.execute(
                f"SELECT coalesce(sum(hits), 0), coalesce(sum(people), 0) FROM ({rated})", asked
            ).fetchone()
        return SummedQuality(hits, people)

    def finish(
        self, happened: RoundRecord, shared: dict[str, Array], counted: Iterable[int], course: RoundStats | None = None
    ) -> None:
        """Close a round whose sum was applied: model, statistics and whose answers counted, all or nothing."""
        with self._transaction():
            self._note(happened, course)
            self._connection.execute("INSERT INTO models VALUES (?, ?)", (happened.number, pack(shared)))
            self._connection.execute(
                "DELETE FROM models WHERE round NOT IN (SELECT round FROM models ORDER BY round DESC LIMIT ?)",
                (KEPT_MODELS,),
            )
            changes = [(happened.number, number) for number in counted]
            self._connection.executemany("UPDATE devices SET counted = ? WHERE number = ?", changes)

    def begin(self, number: int, asked: Iterable[int], cool_down: int) -> None:
        """Note that a secure sum has begun, and with whom: its round cannot be asked for again, also after a crash.

        Who was asked for an earlier one is forgotten as soon as their cool-down of so many rounds is over.
        """
        with self._transaction():
            self._keep("begun", number)
            self._connection.execute("DELETE FROM sums WHERE stage = 0 AND round < ?", (number - cool_down,))
            self._connection.executemany("INSERT INTO sums VALUES (?, 0, ?)", [(number, one) for one in asked])

    def note_sum(self, number: int, stage: int, people: Iterable[int]) -> None:
        """Note who is in a sum, before anybody is asked to unmask it."""
        with self._transaction():
            rows = [(number, stage, one) for one in people]
            self._connection.executemany("INSERT INTO sums VALUES (?, ?, ?)", rows)

    def sums(self) -> dict[tuple[int, int], frozenset[int]]:
        """Return who was lately asked for a secure sum (stage 0), and who was in one, by round and stage."""
        found: dict[tuple[int, int], set[int]] = {}
        with FILE.complaints(self.path):
            for number, stage, device in self._connection.execute("SELECT round, stage, device FROM sums"):
                found.setdefault((number, stage), set()).add(device)
        return {which: frozenset(people) for which, people in found.items()}

    @property
    def is_summed(self) -> bool:
        """Whether devices were ever asked for the vectors of a secure sum: from then on they refuse to be read."""
        if self._kept_digests("settled", 0):
            return True
        with FILE.complaints(self.path):
            return bool(self._connection.execute("SELECT EXISTS(SELECT 1 FROM sums WHERE stage = 2)").fetchone()[0])

    def settle(self) -> None:
        """Note that the vectors of a secure sum are asked for, whatever becomes of it."""
        with self._transaction():
            self._keep("settled", 1)

    @property
    def tried(self) -> int:
        """How many devices were in the last sum that would have shown too little, 0 if none did."""
        return self._kept_digests("tried", 0)

    def try_later(self, n_devices: int) -> None:
        """Note that a sum of so many devices would have shown too little."""
        with self._transaction():
            self._keep("tried", n_devices)

    def _keep(self, name: str, value: int) -> None:
        self._connection.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, str(value).encode()))

    def _kept_digests(self, name: str, otherwise: int) -> int:
        with FILE.complaints(self.path):
            found = self._connection.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return otherwise if found is None else int(found[0])

    @property
    def last_begun_round(self) -> int:
        """The last round whose secure sum was begun, -1 before the first."""
        return self._kept_digests("begun", -1)

    def abandon(self, happened: RoundRecord, course: RoundStats | None = None) -> None:
        """Close a round in which nothing was added: too few answered, or nobody was asked."""
        with self._transaction():
            self._note(happened, course)

    def _note(self, happened: RoundRecord, course: RoundStats | None) -> None:
        reason = "" if happened.reason is None else happened.reason.public().to_json()
        self._insert("rounds", tuple((vars(happened) | {"reason": reason}).values()))
        for place, phase in enumerate(() if course is None else course.phases):
            self._insert("phases", (happened.number, place, *asdict(phase).values()))
        if course is not None and course.quality is not None:
            self._insert("quality", (happened.number, *asdict(course.quality).values()))

    def _insert(self, table: str, values: tuple[object, ...]) -> None:
        self._connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(values))})", values)

    def strike(self, number: int, strikes: Mapping[int, ReasonCode]) -> None:
        """Note which devices sent what no honest device sends in a round, and what it was."""
        with self._transaction():
            rows = [(device, number, str(code)) for device, code in sorted(strikes.items())]
            self._connection.executemany("INSERT OR IGNORE INTO strikes VALUES (?, ?, ?)", rows)

    def strikes(self) -> list[Strikes]:
        """Return the strikes of every device that has any, most first."""
        with FILE.complaints(self.path):
            found = self._connection.execute(
                "SELECT device, count(DISTINCT round), max(round), group_concat(DISTINCT code) FROM strikes "
                "GROUP BY device ORDER BY 2 DESC, 1"
            )
            return [
                Strikes(device, count, last, tuple(ReasonCode(code) for code in sorted(codes.split(","))))
                for device, count, last, codes in found
            ]

    # --- who may take part --------------------------------------------------------------------------------------------

    def devices(self) -> list[EnrolledDevice]:
        """Return all devices that were ever enrolled."""
        with FILE.complaints(self.path):
            found = self._connection.execute(
                "SELECT number, key, counted, revoked, identity FROM devices ORDER BY number"
            )
            return [
                EnrolledDevice(number, key, counted, bool(off), identity)
                for number, key, counted, off, identity in found
            ]

    def invite(self, expires: int) -> str:
        """Make a word that enrols one device, once, until `expires` (unix seconds)."""
        word = secrets.token_urlsafe(24)
        with self._transaction():
            self._connection.execute("INSERT INTO invitations VALUES (?, ?)", (digest_of(word.encode()), expires))
        return word

    def enrol(self, word: str, key: bytes, now: int, identity: bytes = b"", proof: bytes = b"") -> int | None:
        """Enrol a device by its invitation; none if the word is wrong, used or expired. Twice with one key is fine.

        `proof` shows that the identity is the device's own, else it is refused. A device that comes back with another
        key, after it left, has a new number, and the old one is revoked. An identity that was revoked stays out.
        """
        if identity and not _is_proved(identity, word, key, proof):
            return None
        with self._transaction():
            known = self._connection.execute("SELECT number, revoked FROM devices WHERE key = ?", (key,)).fetchone()
            if known is not None:
                return None if known[1] else int(known[0])
            same = "identity = ? AND identity != x''"
            if self._connection.execute(f"SELECT 1 FROM devices WHERE revoked AND {same}", (identity,)).fetchone():
                return None
            spent = self._connection.execute(
                "DELETE FROM invitations WHERE digest = ? AND expires > ?", (digest_of(word.encode()), now)
            )
            if spent.rowcount != 1:
                return None
            self._connection.execute(f"UPDATE devices SET revoked = 1, identity = x'' WHERE {same}", (identity,))
            return self.add(key, identity)

    def add(self, key: bytes, identity: bytes = b"") -> int:
        """Enrol a device whose keys are at hand; return its number."""
        added = self._connection.execute("INSERT INTO devices (key, identity) VALUES (?, ?)", (key, identity))
        return int(added.lastrowid or 0)

    def revoke(self, number: int) -> bool:
        """Ask a device no more; say whether there was one."""
        with self._transaction():
            return self._connection.execute("UPDATE devices SET revoked = 1 WHERE number = ?", (number,)).rowcount == 1


def _is_proved(identity: bytes, word: str, key: bytes, proof: bytes) -> bool:
    try:
        verify(identity, enrolment_statement(word, key), proof, 0)
    except ForgedError:
        return False
    return True


def _reason(stored: str) -> RoundReason | None:
    return RoundReason.from_json(stored) if stored else None
