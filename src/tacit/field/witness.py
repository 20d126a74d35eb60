"""The witness of a directory: a party that is not the operator, with its own copy of the list of members.

It connects to the coordinator, which never has to reach it: a member can be a witness behind any router.

    signs    the list that it holds, with its own time, and leaves that checkpoint there
    gets     the entries after those, and the root that they lead to
    adds     them to its list, on disk, if they lead to that root; then it signs and leaves the new one

It signs nothing but its own list, so that there is one: a coordinator with another one gets no signature. What it adds
within a day has a limit, so that a coordinator cannot fill the directory at once.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tacit.errors import FieldError, StorageError
from tacit.field.coordinator_requests import CoordinatorRequests, DamagedCertificateError, NoAnswerError
from tacit.protocols.directory import DAY, LOG_BYTES, DirectoryCheckpoint, DirectoryGrowth
from tacit.protocols.merkle import MerkleTree
from tacit.protocols.notices import notice_log
from tacit.protocols.secure_aggregation.identity import KEY_BYTES, Identity
from tacit.reasons import ReasonCode
from tacit.storage.database import FileFormat, connect
from tacit.wire.lines import read_line, write_line

PREFIX = "tacitw1:"
ROUTE = "/v1/tacit/witness"
MOST_A_DAY = 200  # new identities that are signed in 24 hours, unless the witness decides otherwise
MIGRATIONS = (
    """
    CREATE TABLE entries (
        log TEXT NOT NULL, place INTEGER NOT NULL, identity BLOB NOT NULL, seen INTEGER NOT NULL,
        PRIMARY KEY (log, place), UNIQUE (log, identity)
    ) WITHOUT ROWID;
    """,
    """
    CREATE TABLE coordinators (
        log TEXT PRIMARY KEY, address TEXT NOT NULL, roots TEXT NOT NULL
    ) WITHOUT ROWID;
    """,
    "ALTER TABLE entries ADD COLUMN counted INTEGER;",  # since when, where a clock said later
)
FILE = FileFormat(0x54435754, "a witness's file", MIGRATIONS, StorageError, "Restore a copy of it.")


@dataclass(frozen=True)
class WitnessLine:
    """Where a witness finds the coordinator of a federation, and how to know that it is the right one."""

    address: str
    roots: str
    log: str  # the federation's id
    name: str

    def line(self) -> str:
        """Write it as one line."""
        return write_line(PREFIX, {"a": self.address, "r": self.roots, "l": self.log, "n": self.name})

    @classmethod
    def parse(cls, line: str) -> WitnessLine:
        """Read it from one line."""
        try:
            about = read_line(PREFIX, line)
            parts = tuple(about[name] for name in ("a", "r", "l", "n"))
            if not all(isinstance(part, str) for part in parts) or len(bytes.fromhex(parts[2])) != LOG_BYTES:
                raise ValueError
        except (ValueError, KeyError):
            raise FieldError(
                "This is not a line for a witness, or a part of it is missing.",
                "The operator makes it: tacit enroll FILE --witness. Copy all of it, from 'tacitw1:' on.",
            ) from None
        return cls(*parts)


class Witness:
    """A key, and the lists that it has signed."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time, most_a_day: int = MOST_A_DAY) -> None:
        self._clock, self._most = clock, most_a_day
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.identity = _open_key(folder / "witness.key")
        self._path = folder / "witness.db"
        is_new = not self._path.exists()
        with FILE.complaints(self._path):
            if is_new:
                connection = FILE.make(self._path)
                connection.execute("COMMIT")
                connection.close()
            self._connection = connect(self._path)
            FILE.check(self._path, self._connection)
            FILE.upgrade(self._connection)
        self._trees: dict[str, MerkleTree] = {}

    @property
    def key(self) -> bytes:
        """The public key, which invitations name."""
        return self.identity.public

    def close(self) -> None:
        """Let the file go."""
        self._connection.close()

    def _tree(self, log: str) -> MerkleTree:
        if log not in self._trees:
            with FILE.complaints(self._path):
                rows = self._connection.execute("SELECT identity FROM entries WHERE log = ? ORDER BY place", (log,))
                self._trees[log] = MerkleTree(identity for (identity,) in rows)
        return self._trees[log]

    def refuse_other_coordinator(self, line: WitnessLine) -> None:
        """Refuse a coordinator that names the federation of another one, which was visited before.

        One id has one list, or two lists would be signed for it; entries of the other coordinator would end up in it. A
        coordinator may move, or have another certificate; both at once is another coordinator.
        """
        asked = "SELECT address, roots FROM coordinators WHERE log = ?"
        for log in _logs(line):  # nor may it name the other's list of notices
            known = self._connection.execute(asked, (log,)).fetchone()
            if known is None or line.address == known[0] or (line.roots and _digest(line.roots) == known[1]):
                continue
            raise FieldError(
                f"Another coordinator was visited for the federation of this line: {known[0]}.",
                "Ask both operators. A coordinator that moves to another address keeps its certificate meanwhile.",
            )

    def know(self, line: WitnessLine) -> None:
        """Note that a coordinator was visited for its federation."""
        rows = [(log, line.address, _digest(line.roots)) for log in _logs(line)]
        with FILE.transaction(self._path, self._connection):
            self._connection.executemany("INSERT OR REPLACE INTO coordinators VALUES (?, ?, ?)", rows)

    def sign_held(self, log: str) -> DirectoryCheckpoint:
        """Return what the witness holds, signed now."""
        tree, now = self._tree(log), int(self._clock())
        return DirectoryCheckpoint.sign(self.identity, bytes.fromhex(log), len(tree), tree.root(), now)

    def add(self, log: str, growth: DirectoryGrowth) -> int:
        """Add what is new, and return how much of it: no more than may be added in a day. A list that forks is refused.

        When this returns, it is on disk: no other list can be signed any more, also after a crash.
        """
        tree, now, entries = self._tree(log), int(self._clock()), growth.entries
        wanted = tree.copy()
        for entry in entries:
            wanted.append(entry)
        if (len(wanted), wanted.root()) != (growth.size, growth.root):
            raise FieldError.because(ReasonCode.DIRECTORY_FORKED)
        with FILE.transaction(self._path, self._connection):
            self._count_future(log, now)
            since = "SELECT count(*) FROM entries WHERE log = ? AND (seen BETWEEN ? AND ? OR counted > ?)"
            (today,) = self._connection.execute(since, (log, now - DAY + 1, now, now - DAY)).fetchone()
            added = entries[: max(0, self._most - today)]
            rows = [(log, len(tree) + at, entry, now) for at, entry in enumerate(added)]
            insert = "INSERT INTO entries (log, place, identity, seen) VALUES (?, ?, ?, ?)"
            try:
                self._connection.executemany(insert, rows)
            except sqlite3.IntegrityError:  # an entry twice, or another program of this witness has added others
                del self._trees[log]
                raise FieldError.because(ReasonCode.DIRECTORY_FORKED) from None
        for entry in added:
            tree.append(entry)
        return len(added)

    def _count_future(self, log: str, now: int) -> None:
        """Let what was added by a clock that was ahead count for a day from now on, and not until that time comes.

        A clock that is put back frees nothing at once. Nor does one that was behind, as that of a machine that starts
        without the time: once it is right again, entries count by when they were added as well.
        """
        change = "UPDATE entries SET counted = ? WHERE log = ? AND seen > ? AND coalesce(counted, seen) > ?"
        self._connection.execute(change, (now, log, now, now))


def _logs(line: WitnessLine) -> tuple[str, str]:
    """Return the ids of the lists of a federation: members, and notices."""
    return line.log, notice_log(bytes.fromhex(line.log)).hex()


def _digest(roots: str) -> str:
    return hashlib.sha256(roots.encode()).hexdigest() if roots else ""


def _open_key(path: Path) -> Identity:
    """Return the key in a file, made if there is none."""
    try:
        if not path.exists():
            secret = Identity.fresh().secret
            with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
                file.write(secret)
                file.flush()
                os.fsync(file.fileno())
        content = path.read_bytes()
    except OSError as error:
        raise StorageError(f"'{path}' cannot be used: {error.strerror}.", "Choose another folder.") from None
    if len(content) != KEY_BYTES:
        raise StorageError(f"'{path}' is not the key of a witness.", "Restore a copy of it.")
    return Identity(content)


class WitnessVisit:
    """A witness's way to one coordinator."""

    def __init__(self, witness: Witness, line: WitnessLine) -> None:
        self._witness, self._line = witness, line
        try:
            CoordinatorRequests(line.address, line.roots).close()
        except DamagedCertificateError:
            raise FieldError("The certificate in the line is damaged.", "Ask the operator for another line.") from None

    def run(self) -> tuple[DirectoryCheckpoint, int]:
        """Upload the signature of what is held, add new entries, sign them too; return it, and how many were not added.

        The same is done for the notices of who was revoked and who has another key, a list of its own.
        """
        self._witness.refuse_other_coordinator(self._line)
        with CoordinatorRequests(self._line.address, self._line.roots) as requests:
            found = self._take(requests, self._line.log)
            self._witness.know(self._line)
            self._take(requests, _logs(self._line)[1])
        return found

    def _take(self, requests: CoordinatorRequests, log: str) -> tuple[DirectoryCheckpoint, int]:
        while True:
            held = self._witness.sign_held(log)
            growth = DirectoryGrowth.decode(self._post(requests, held))
            if not growth.entries or not self._witness.add(log, growth):
                return held, len(growth.entries)

    def _post(self, requests: CoordinatorRequests, held: DirectoryCheckpoint) -> bytes:
        address = self._line.address
        try:
            answer = requests.post(ROUTE, held.encode())
        except NoAnswerError as error:
            raise FieldError(
                f"{address} cannot be reached, or has another certificate than the line says: {error.why}.",
                "It will be tried again.",
            ) from None
        if answer.status == 403:
            raise FieldError(
                f"{address} does not know this witness.",
                "Its operator must name your key (rounds.witness.key): tacit witness key.",
            )
        if answer.status == 409:
            raise FieldError.because(ReasonCode.DIRECTORY_FORKED)
        if answer.status != 200:
            raise FieldError(f"{address} refuses (HTTP {answer.status}).", "Ask the operator.")
        return answer.content
