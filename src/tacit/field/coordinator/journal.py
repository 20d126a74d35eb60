"""The journal: what a coordinator must not forget. The model after each finished round, who is enrolled, what happened.

It holds nothing of what a single device learnt: answers are added in memory and gone when the round is. A device that
sent what no honest device sends has a strike: its number, the round and a code. Why a round ended as it did is a code
with counts. Of secure sums the journal holds who was in them, by number, because nearly the same
users must not be summed again; so it also tells who was lost between the two stages of one.
"""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tacit.errors import ForgedError, StorageError
from tacit.field.coordinator.amendments import AUTHORITY, AmendmentLog
from tacit.field.coordinator.invitation_book import InvitationBook, PendingInvitation
from tacit.field.coordinator.login import LABEL, LoginRules, read_token
from tacit.field.coordinator.login import PREFIX as TOKEN
from tacit.field.coordinator.notice_book import NoticeBook
from tacit.field.coordinator.round_stats import PhaseCounts, RoundStats, SummedQuality
from tacit.field.coordinator.spending import NoisySum
from tacit.privacy.accounting import PrivacyEvent
from tacit.protocols.directory import DirectoryCheckpoint
from tacit.protocols.notices import MemberKeys, Notice, NoticeList
from tacit.protocols.secure_aggregation.identity import Identity, verify
from tacit.reasons import ReasonCode, RoundReason
from tacit.storage.database import FileFormat, connect, read_copy
from tacit.types import Array, Catalog
from tacit.wire.catalogue import digest_of, strip_names
from tacit.wire.enrolment import enrolment_statement, hand_over_statement
from tacit.wire.federation import Federation
from tacit.wire.messages import pack, read_welcome, write_welcome

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
    "CREATE TABLE spendings (round INTEGER PRIMARY KEY, share REAL NOT NULL, event TEXT NOT NULL);",
    """
    ALTER TABLE devices ADD COLUMN summed INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE devices ADD COLUMN spent REAL NOT NULL DEFAULT 0;
    """,
    """
    ALTER TABLE devices ADD COLUMN batch INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE devices ADD COLUMN half INTEGER NOT NULL DEFAULT 0;
    UPDATE devices SET batch = coalesce(
        (SELECT max(round) + 1 FROM sums WHERE stage > 0 AND device = devices.number), 0);
    """,
    """
    CREATE TABLE amendments (number INTEGER PRIMARY KEY, before BLOB NOT NULL UNIQUE, content BLOB NOT NULL);
    ALTER TABLE models ADD COLUMN amendment INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE invitations ADD COLUMN label TEXT NOT NULL DEFAULT '';
    ALTER TABLE devices ADD COLUMN label TEXT NOT NULL DEFAULT '';
    """,
    """
    CREATE TABLE directory (place INTEGER PRIMARY KEY, identity BLOB NOT NULL UNIQUE);
    INSERT INTO directory (identity) SELECT identity FROM devices WHERE length(identity) = 32 ORDER BY number;
    CREATE TRIGGER directory_grows AFTER INSERT ON devices WHEN length(NEW.identity) = 32
        BEGIN INSERT OR IGNORE INTO directory (identity) VALUES (NEW.identity); END;
    CREATE TABLE checkpoints (
        size INTEGER NOT NULL, time INTEGER NOT NULL, root BLOB NOT NULL, signature BLOB NOT NULL,
        PRIMARY KEY (size, time)
    ) WITHOUT ROWID;
    ALTER TABLE devices ADD COLUMN shown INTEGER NOT NULL DEFAULT 0;
    """,
    """
    ALTER TABLE devices ADD COLUMN stays INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE devices ADD COLUMN cohorts INTEGER NOT NULL DEFAULT 0;
    UPDATE devices SET stays = 1, cohorts = 1 WHERE batch > 0;
    """,
    "CREATE TABLE former_keys (key BLOB PRIMARY KEY) WITHOUT ROWID;",
    "ALTER TABLE devices ADD COLUMN missing INTEGER NOT NULL DEFAULT 0;",
    """
    CREATE TABLE notices (
        place INTEGER PRIMARY KEY, kind INTEGER NOT NULL, identity BLOB NOT NULL, key BLOB NOT NULL DEFAULT x'',
        by_old BLOB NOT NULL DEFAULT x'', by_new BLOB NOT NULL DEFAULT x''
    );
    INSERT INTO notices (kind, identity)
        SELECT 1, identity FROM devices WHERE revoked AND length(identity) = 32 ORDER BY number;
    CREATE TRIGGER revocations_are_noticed AFTER UPDATE OF revoked ON devices
        WHEN NEW.revoked AND NOT OLD.revoked AND length(NEW.identity) = 32
        BEGIN INSERT INTO notices (kind, identity) VALUES (1, NEW.identity); END;
    """,
)
KEPT_MODELS = 10
SETTLED_SECONDS = 2.0  # the clock of a file system may stand still between two changes that follow each other
ROLLED_BACK = "rolled back"
UNAGREED = "unagreed"  # name of a fact
EXPIRED_KEPT = 30 * 86_400  # seconds that an expired invitation, and its label, stay
FILE = FileFormat(0x54434A4E, "a coordinator's journal", MIGRATIONS, StorageError, "Restore a copy of it.")


@dataclass(frozen=True)
class RoundRecord:
    """What happened in a round, in counts."""

    number: int
    state: str  # finished, abandoned, skipped (no device was asked), or rolled back
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
    summed: int = 0  # in how many sums it was that are not kept any more
    batch: int = 0  # those it is summed with, by number; 0: it was in no sum yet
    half: int = 0  # in which half of its batch its rows are counted
    stays: bool = False  # it can be summed with no others than those of its batch
    cohorts: int = 0  # in how many batches it was
    missing: int = 0  # since when its batch waits for it, in unix seconds, for the operator to see; 0: it does not
    label: str = field(default="", repr=False)  # of the invitation, for the operator alone


class CoordinatorJournal:
    """An open journal."""

    def __init__(
        self, path: Path, federation: Federation, catalog: Catalog, connection: sqlite3.Connection | None = None
    ) -> None:
        self.path, self.federation, self.catalog = path, federation, catalog
        self._connection = connect(path) if connection is None else connection
        self.amendments, self._invitations = AmendmentLog(self._connection), InvitationBook(self._connection)
        self._notices = NoticeBook(self._connection, bytes.fromhex(federation.id))

    @classmethod
    def create(
        cls,
        path: Path,
        federation: Federation,
        catalog: Catalog,
        seed: int | None = None,
        authority: Identity | None = None,
    ) -> CoordinatorJournal:
        """Found a federation, with the key of its authority; `seed` is for tests that compare with a simulation."""
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            raise StorageError(f"'{path}' exists already.", "Open it, or choose another folder.") from None
        try:
            with FILE.complaints(path):
                connection = FILE.make(path)
                root = secrets.randbits(63) if seed is None else seed
                facts = [("welcome", write_welcome(federation, catalog)), ("seed", str(root).encode())]
                facts += [] if authority is None else [(AUTHORITY, authority.secret)]
                connection.executemany("INSERT INTO facts VALUES (?, ?)", facts)
                connection.execute("COMMIT")
                connection.close()
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return cls(path, federation, catalog)

    @classmethod
    def open(cls, path: Path, is_trial: bool = False) -> CoordinatorJournal:
        """Go on with a federation; in a trial with a copy of it in memory, and the file stays as it is."""
        if not path.is_file():
            raise StorageError(f"There is no journal '{path}'.", "Start the coordinator: tacit serve.")
        with FILE.complaints(path):
            connection = read_copy(path) if is_trial else connect(path)
            try:
                FILE.check(path, connection)
                FILE.upgrade(connection)
                (welcome,) = connection.execute("SELECT value FROM facts WHERE name = 'welcome'").fetchone()
                about = read_welcome(welcome)
            except BaseException:
                connection.close()
                raise
        return cls(path, *about, connection)

    def again(self) -> CoordinatorJournal:
        """Open it once more, for another thread; what was read of the federation is not read again."""
        return CoordinatorJournal(self.path, self.federation, self.catalog)

    def written(self) -> tuple[int, int] | None:
        """Return a mark that changes with every change of the file; none while it could change unseen.

        The file is asked for and not opened: closing it would end the locks of this process.
        """
        about = self.path.stat()
        is_settled = about.st_mtime < time.time() - SETTLED_SECONDS
        return (about.st_mtime_ns, about.st_size) if is_settled else None

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
        """Return the model after the last finished round, none before the first of this method."""
        with FILE.complaints(self.path):
            stored = self.amendments.model()
        if stored is None or not self.amendments.at(stored.amendment)[0].learns_like(self.federation):
            return None
        return stored.shared

    @property
    def has_model(self) -> bool:
        """Whether any round of this method was finished."""
        with FILE.complaints(self.path):
            newest = "SELECT amendment FROM models ORDER BY round DESC LIMIT 1"
            found = self._connection.execute(newest).fetchone()
        return found is not None and (
            found[0] == self.federation.number or self.amendments.at(found[0])[0].learns_like(self.federation)
        )

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
            found_phases = self._connection.execute(f"SELECT * FROM phases {which}, place", (since, until))
            for number, _, *values in found_phases:
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
        """Return the quality summed over all rounds, or the last that have one; with no users where none has."""
        with FILE.complaints(self.path):
            rated = "SELECT hits, people FROM quality ORDER BY round DESC LIMIT ?"
            asked = (-1 if last is None else last,)
            hits, people = self._connection.execute(
                f"SELECT coalesce(sum(hits), 0), coalesce(sum(people), 0) FROM ({rated})", asked
            ).fetchone()
        return SummedQuality(hits, people)

    def finish(
        self,
        happened: RoundRecord,
        shared: dict[str, Array],
        counted: Iterable[int],
        course: RoundStats | None = None,
        keep_models: int = KEPT_MODELS,
    ) -> None:
        """Close a round whose sum was applied: model, statistics and whose answers counted, all or nothing.

        Of the models the newest ones are kept.
        """
        with self._transaction():
            self._note(happened, course)
            self._insert("models", (happened.number, pack(shared), self.federation.number))
            self._forget_models(keep_models)
            changes = [(happened.number, number) for number in counted]
            self._connection.executemany("UPDATE devices SET counted = ? WHERE number = ?", changes)

    def _forget_models(self, kept: int) -> None:
        old = "DELETE FROM models WHERE round NOT IN (SELECT round FROM models ORDER BY round DESC LIMIT ?)"
        self._connection.execute(old, (kept,))

    def publish(self, catalog: Catalog) -> None:
        """Amend the federation by a catalogue whose first items are those of the one before."""
        with self._transaction():
            amended = self.amendments.add(catalog)
        self.federation, self.catalog = amended.federation, strip_names(amended.catalog)

    def replace_method(self, method: str, chosen: Mapping[str, Any], catalog: Catalog) -> None:
        """Amend the federation by another method: devices take part in it once their users have agreed."""
        with self._transaction():
            amended = self.amendments.add(catalog, method=(method, chosen))
            self._keep_unagreed(device.number for device in self.devices())
        self.federation, self.catalog = amended.federation, strip_names(amended.catalog)

    @property
    def unagreed(self) -> frozenset[int]:
        """The devices that have sent nothing since the method was replaced: their users may not have agreed yet."""
        with FILE.complaints(self.path):
            found = self._connection.execute("SELECT value FROM facts WHERE name = ?", (UNAGREED,)).fetchone()
        waiting = () if found is None else json.loads(found[0])
        return frozenset(waiting) - {device.number for device in self.devices() if device.revoked}

    def note_agreed(self, devices: Iterable[int]) -> None:
        """Note that devices have sent something under the method of now: their users have agreed to it."""
        before, agreed = self.unagreed, set(devices)
        if before & agreed:
            with self._transaction():
                self._keep_unagreed(before - agreed)

    def _keep_unagreed(self, devices: Iterable[int]) -> None:
        row = UNAGREED, json.dumps(sorted(devices)).encode()
        self._connection.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", row)

    def skip_rounds(self, count: int) -> None:
        """Leave out so many numbers of rounds: after a restore, devices may have answered rounds with these."""
        number = self.next_round + count - 1
        skipped = RoundRecord(number, "skipped", 0, 0, 0, 0, 0, 0, 0.0, reason=RoundReason(ReasonCode.RESTORED))
        with self._transaction():
            self._note(skipped, None)

    def roll_back(self, to: int) -> None:
        """Put the model after an earlier round in force again, as a round of its own, and as an amendment."""
        number = self.next_round
        with self._transaction():
            found = self._connection.execute("SELECT content, amendment FROM models WHERE round = ?", (to,)).fetchone()
            if found is None:
                kept = ", ".join(str(version.round) for version in self.versions()) or "none"
                raise StorageError(
                    f"There is no model of round {to}. Kept are those of rounds {kept}.",
                    "Choose one of these; rounds.keep_models says how many are kept.",
                )
            if not self.amendments.at(found[1])[0].learns_like(self.federation):
                raise StorageError(
                    f"The model of round {to} is of another method than the federation has now.",
                    "To go back to that method, replace the method again: tacit federation replace-method.",
                )
            amended = self.amendments.add(self.amendments.at(self.federation.number)[1], (to, number))
            reason = RoundReason(ReasonCode.ROLLED_BACK, {"earlier": to})
            self._note(RoundRecord(number, ROLLED_BACK, 0, 0, 0, 0, 0, 0, 0.0, reason=reason), None)
            self._insert("models", (number, *found))
        self.federation = amended.federation

    def begin(self, number: int, n_asked: int, cool_down: int, kept: int) -> None:
        """Note that a secure sum has begun with so many: its round cannot be asked for again, also after a crash.

        Who was asked for an earlier one is forgotten as soon as their cool-down of so many rounds is over. Who was in
        one is forgotten after `kept` rounds, but for how often each device was.
        """
        with self._transaction():
            self._keep("begun", number)
            self._keep("begun with", n_asked)
            self._connection.execute("DELETE FROM sums WHERE stage = 0 AND round < ?", (number - cool_down,))
            old = "FROM sums WHERE stage > 0 AND round < ?"
            times = f"SELECT count(DISTINCT round) {old} AND device = devices.number"
            shares = (
                "SELECT coalesce(sum(share), 0) FROM sums JOIN spendings USING (round) WHERE stage = 2 AND round < ?"
            )
            spent = f"spent + ({shares} AND device = devices.number)"
            change = f"UPDATE devices SET summed = summed + ({times}), spent = {spent}"
            self._connection.execute(change, (number - kept, number - kept))
            self._connection.execute(f"DELETE {old}", (number - kept,))

    @property
    def n_begun_with(self) -> int:
        """How many devices the last secure sum was begun with."""
        return self._kept_digests("begun with", 0)

    def note_asked(self, number: int, devices: Iterable[int]) -> None:
        """Note who is asked for a vector of a secure sum: their cool-down begins, whatever becomes of it."""
        with self._transaction():
            rows = [(number, one) for one in devices]
            self._connection.executemany("INSERT OR IGNORE INTO sums VALUES (?, 0, ?)", rows)

    def note_sum(self, number: int, stage: int, people: Iterable[int]) -> None:
        """Note who is in a sum, before any device is asked to unmask it."""
        with self._transaction():
            rows = [(number, stage, one) for one in people]
            self._connection.executemany("INSERT INTO sums VALUES (?, ?, ?)", rows)

    def note_batch(self, batch: int, half: int, devices: Iterable[int], staying: Iterable[int] = ()) -> None:
        """Note who are summed together, and who of them stays with the others, before they learn of each other."""
        change = (
            "UPDATE devices SET batch = ?, half = ?, stays = 0, cohorts = cohorts + 1 WHERE number = ? AND batch != ?"
        )
        with self._transaction():
            self._connection.executemany(change, [(batch, half, device, batch) for device in devices])
            stay = "UPDATE devices SET stays = 1 WHERE number = ?"
            self._connection.executemany(stay, [(device,) for device in staying])

    def note_missing(self, devices: Iterable[int], now: int) -> None:
        """Note for which devices their batches wait; those that were waited for before keep their time."""
        before = {device.number for device in self.devices() if device.missing}
        changes = [(now, one) for one in set(devices) - before] + [(0, one) for one in before - set(devices)]
        if changes:
            with self._transaction():
                self._connection.executemany("UPDATE devices SET missing = ? WHERE number = ?", changes)

    @property
    def smallest_batch(self) -> int:
        """How many devices the smallest batch without a revoked one has; 0 without any."""
        sizes = "SELECT count(*) AS size FROM devices WHERE batch > 0 GROUP BY batch HAVING sum(revoked) = 0"
        with FILE.complaints(self.path):
            return int(self._connection.execute(f"SELECT coalesce(min(size), 0) FROM ({sizes})").fetchone()[0])

    def sums(self) -> dict[tuple[int, int], frozenset[int]]:
        """Return who was lately asked for a secure sum (stage 0), and who was in one, by round and stage."""
        found: dict[tuple[int, int], set[int]] = {}
        with FILE.complaints(self.path):
            for number, stage, device in self._connection.execute("SELECT round, stage, device FROM sums"):
                found.setdefault((number, stage), set()).add(device)
        return {which: frozenset(people) for which, people in found.items()}

    @property
    def is_summed(self) -> bool:
        """Whether a secure sum was ever begun: from then on devices are not asked in the clear."""
        if self.last_begun_round >= 0:
            return True
        with FILE.complaints(self.path):
            return bool(self._connection.execute("SELECT EXISTS(SELECT 1 FROM sums WHERE stage = 2)").fetchone()[0])

    def note_spending(self, spending: NoisySum) -> None:
        """Note what a sum costs its devices, before their vectors are asked for."""
        with self._transaction():
            self._insert("spendings", (spending.round, spending.share, json.dumps(spending.event.to_dict())))

    def spendings(self) -> list[NoisySum]:
        """Return all sums whose vectors were asked for, whatever became of them."""
        with FILE.complaints(self.path):
            found = self._connection.execute("SELECT round, share, event FROM spendings ORDER BY round").fetchall()
        return [NoisySum(number, share, PrivacyEvent.from_dict(json.loads(event))) for number, share, event in found]

    def spent_shares(self) -> dict[int, float]:
        """Return how much of its budget each device has spent in sums, as far as is known here."""
        with FILE.complaints(self.path):
            kept = "SELECT coalesce(sum(share), 0) FROM sums JOIN spendings USING (round) WHERE stage = 2"
            found = self._connection.execute(
                f"SELECT number, spent + ({kept} AND device = devices.number) FROM devices"
            )
            return {device: spent for device, spent in found if spent}

    @property
    def last_time(self) -> int:
        """When the last round ended, in unix seconds; 0 if that is not known."""
        return self._kept_digests("ended", 0)

    def note_time(self, now: int) -> None:
        """Note that a round ended now, in unix seconds."""
        with self._transaction():
            self._keep("ended", now)

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
        """Close a round in which nothing was added: too few answered, or none was asked."""
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
                "SELECT number, key, counted, revoked, identity, summed, batch, half, stays, cohorts, missing, label "
                "FROM devices ORDER BY 1"
            )
            return [
                EnrolledDevice(number, key, counted, bool(off), identity, summed, batch, half, bool(stays), *others)
                for number, key, counted, off, identity, summed, batch, half, stays, *others in found
            ]

    # --- the directory of identities ----------------------------------------------------------------------------------

    def identities(self, since: int = 0, most: int = -1) -> list[bytes]:
        """Return the identities that were ever enrolled, in the order of their enrolment, from a place on."""
        listed = "SELECT identity FROM directory ORDER BY place LIMIT ? OFFSET ?"
        with FILE.complaints(self.path):
            found = self._connection.execute(listed, (most, since))
            return [identity for (identity,) in found]

    def checkpoints(self) -> list[DirectoryCheckpoint]:
        """Return what a witness has signed, in the order of sizes: of each size the first, of the last the newest too.

        These are enough: the first says since when a size is known, and the newest that the witness is still there.
        """
        log = bytes.fromhex(self.federation.id)
        with FILE.complaints(self.path):
            found = self._connection.execute("SELECT size, root, time, signature FROM checkpoints ORDER BY size, time")
            return [DirectoryCheckpoint(log, *row) for row in found]

    def note_checkpoint(self, checkpoint: DirectoryCheckpoint) -> None:
        """Keep what a witness has signed, in place of what it repeats."""
        with self._transaction():
            given = checkpoint.size, checkpoint.time, checkpoint.root, checkpoint.signature
            self._connection.execute("INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?, ?)", given)
            repeated = (
                "time > (SELECT min(time) FROM checkpoints AS same WHERE same.size = checkpoints.size) AND "
                "(size, time) < (SELECT size, time FROM checkpoints ORDER BY size DESC, time DESC LIMIT 1)"
            )
            self._connection.execute(f"DELETE FROM checkpoints WHERE {repeated}")

    def forget_checkpoints(self) -> None:
        """Forget what a former witness has signed."""
        with self._transaction():
            self._connection.execute("DELETE FROM checkpoints")
            self._notices.note_signed(None)
            self._connection.execute("UPDATE devices SET shown = 0")

    def shown_sizes(self) -> dict[int, int]:
        """Return, by device, the size of the directory with which it joined a sum last; 0: it never did."""
        with FILE.complaints(self.path):
            return dict(self._connection.execute("SELECT number, shown FROM devices"))

    def note_shown(self, devices: Iterable[int], size: int) -> None:
        """Note that some devices have joined a sum with a directory of this size."""
        with self._transaction():
            rows = [(size, number) for number in devices]
            self._connection.executemany("UPDATE devices SET shown = ? WHERE number = ?", rows)

    def notices(self) -> NoticeList:
        """Return who was revoked and who signs with another key, with what the witness has signed of that."""
        with FILE.complaints(self.path):
            return self._notices.list()

    def member_keys(self) -> MemberKeys:
        """Return what follows from the notices."""
        with FILE.complaints(self.path):
            return self._notices.keys()

    def note_notices(self, signed: DirectoryCheckpoint) -> None:
        """Keep what the witness has signed of the notices."""
        with self._transaction():
            self._notices.note_signed(signed)

    def change_identity_key(self, notice: Notice) -> bool:
        """Let an identity be signed for by another key, if both keys have signed that; say whether it is."""
        with self._transaction():
            return self._notices.change_key(notice)

    # --- invitations --------------------------------------------------------------------------------------------------

    def invite(self, expires: int, label: str = "") -> str:
        """Make a word that enrols one device, once, until `expires` (unix seconds); its label is the operator's."""
        return self.invite_many(1, expires, label)[0]

    def invite_many(self, count: int, expires: int, label: str = "") -> list[str]:
        """Make as many words as are wanted, all or none."""
        with self._transaction():
            return [self._invitations.add(expires, label) for _ in range(count)]

    def pending(self, now: int) -> list[PendingInvitation]:
        """Return the invitations that can still be used."""
        with FILE.complaints(self.path):
            return self._invitations.pending(now)

    def revoke_invitation(self, name: str) -> int:
        """Take pending invitations back, by short name or by label; return how many."""
        with self._transaction():
            return self._invitations.revoke(name)

    def hand_over(self, old: bytes, new: bytes, proof: bytes) -> bool:
        """Let a device have a new key in place of its old one, if its identity signed that; twice is fine.

        A key that another device has, or that any device had before, cannot be a new one.
        """
        with self._transaction():
            found = self._connection.execute(
                "SELECT number, key, identity FROM devices WHERE key IN (?, ?) AND NOT revoked AND identity != x''",
                (old, new),
            ).fetchall()
            if len(found) != 1 or not self._is_signed(found[0][2], hand_over_statement(old, new), proof):
                return False
            taken = "SELECT 1 FROM devices WHERE key = ? AND number != ?"
            if self._connection.execute(taken, (new, found[0][0])).fetchone() or self._is_former(new):
                return False
            if found[0][1] != new:
                self._connection.execute("INSERT INTO former_keys VALUES (?)", (found[0][1],))
                self._connection.execute("UPDATE devices SET key = ? WHERE number = ?", (new, found[0][0]))
        return True

    def _is_signed(self, identity: bytes, statement: bytes, proof: bytes) -> bool:
        """Say whether the key that signs for an identity now has signed a statement."""
        try:
            verify(self._notices.key_of(identity), statement, proof, 0)
        except ForgedError:
            return False
        return True

    def _is_former(self, key: bytes) -> bool:
        """Say whether a device had this key and gave it up: it may be in other hands."""
        return self._connection.execute("SELECT 1 FROM former_keys WHERE key = ?", (key,)).fetchone() is not None

    def enrol(
        self,
        word: str,
        key: bytes,
        now: int,
        identity: bytes = b"",
        proof: bytes = b"",
        login: LoginRules | None = None,
    ) -> int | None:
        """Enrol a device by its invitation; none if the word is wrong, used or expired. Twice with one key is fine.

        With the rules of a `login`, a token that its server signed may stand in place of an invitation's word.

        `proof` shows that the identity is the device's own, else it is refused. A device that comes back with another
        key, after it left, has a new number, and the old one is revoked. An identity that was revoked stays out.
        """
        if identity and not self._is_signed(identity, enrolment_statement(word, key), proof):
            return None
        with self._transaction():
            known = self._connection.execute("SELECT number, revoked FROM devices WHERE key = ?", (key,)).fetchone()
            if known is not None:
                return None if known[1] else int(known[0])
            if self._is_former(key):
                return None
            same = "identity = ? AND identity != x''"
            if self._connection.execute(f"SELECT 1 FROM devices WHERE revoked AND {same}", (identity,)).fetchone():
                return None
            self._invitations.forget_expired(now - EXPIRED_KEPT)  # a clock may be wrong for a while
            is_token = login is not None and word.startswith(TOKEN)
            label = self._use_token(word, login, now) if is_token else self._invitations.use(word, now)
            if label is None:
                return None
            self._connection.execute(f"UPDATE devices SET revoked = 1, identity = x'' WHERE {same}", (identity,))
            return self.add(key, identity, label)

    def _use_token(self, token: str, login: LoginRules | None, now: int) -> str | None:
        """Return the label of an account that may enrol another device; none if it may not."""
        pseudonym = None if login is None else read_token(token, login, self.federation.id, now)
        if login is None or pseudonym is None:
            return None
        label = f"{LABEL}{digest_of(pseudonym.encode())[:16]}"
        (known,) = self._connection.execute("SELECT count(*) FROM devices WHERE label = ?", (label,)).fetchone()
        return label if known < login.devices else None

    def add(self, key: bytes, identity: bytes = b"", label: str = "") -> int:
        """Enrol a device whose keys are at hand; return its number."""
        row = (key, identity, label)
        added = self._connection.execute("INSERT INTO devices (key, identity, label) VALUES (?, ?, ?)", row)
        return int(added.lastrowid or 0)

    def revoke(self, number: int) -> bool:
        """Ask a device no more; say whether there was one."""
        with self._transaction():
            return self._connection.execute("UPDATE devices SET revoked = 1 WHERE number = ?", (number,)).rowcount == 1


def _reason(stored: str) -> RoundReason | None:
    return RoundReason.from_json(stored) if stored else None
