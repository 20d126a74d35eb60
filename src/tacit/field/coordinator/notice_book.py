"""The coordinator's list of notices: who was revoked, and who signs with another key. It only grows."""

from __future__ import annotations

import sqlite3

from tacit.errors import ForgedError
from tacit.protocols.directory import DirectoryCheckpoint
from tacit.protocols.notices import (
    MOST_NOTICES,
    MemberKeys,
    Notice,
    NoticeKind,
    NoticeList,
    check_key_change,
)

SIGNED = "notices signed"
MOST_CHANGES = 16  # new keys of one identity: every device is shown all of them for ever
MOST_NEW_KEYS = MOST_NOTICES // 2  # of all identities: no device reads a longer list, and revocations need room


class NoticeBook:
    """The notices in a journal."""

    def __init__(self, connection: sqlite3.Connection, log: bytes) -> None:
        self._connection, self._log = connection, log

    def list(self) -> NoticeList:
        """Return all of them, with what the witness has signed last."""
        listed = "SELECT kind, identity, key, by_old, by_new FROM notices ORDER BY place"
        found = tuple(Notice(NoticeKind(kind), *parts) for kind, *parts in self._connection.execute(listed))
        signed = self._connection.execute("SELECT value FROM facts WHERE name = ?", (SIGNED,)).fetchone()
        return NoticeList(found, DirectoryCheckpoint.decode(signed[0]) if signed else None)

    def keys(self) -> MemberKeys:
        """Return who is out, and by which keys the others sign."""
        return MemberKeys.read(self.list().notices, self._log)

    def key_of(self, identity: bytes) -> bytes:
        """Return the key that signs for an identity now."""
        newest = "SELECT key FROM notices WHERE identity = ? AND kind = ? ORDER BY place DESC LIMIT 1"
        found = self._connection.execute(newest, (identity, NoticeKind.NEW_KEY)).fetchone()
        return identity if found is None else bytes(found[0])

    def change_key(self, notice: Notice) -> bool:
        """Take a change of keys, inside a transaction; say whether it holds now. Twice is fine."""
        if notice.kind != NoticeKind.NEW_KEY:
            return False
        may_sign = "SELECT 1 FROM devices WHERE identity = ? AND NOT revoked"
        if self._connection.execute(may_sign, (notice.identity,)).fetchone() is None:
            return False
        same = "SELECT 1 FROM notices WHERE identity = ? AND key = ? AND by_old = ? AND by_new = ?"
        given = notice.identity, notice.key, notice.by_old, notice.by_new
        if self._connection.execute(same, given).fetchone() is not None:
            return self.key_of(notice.identity) == notice.key
        try:  # first, and alone: whoever sends what is not signed costs as little with many notices as with none
            check_key_change(notice, self.key_of(notice.identity), self._log)
        except ForgedError:
            return False
        taken = "SELECT 1 FROM directory WHERE identity = ? UNION ALL SELECT 1 FROM notices WHERE key = ?"
        if self._connection.execute(taken, (notice.key, notice.key)).fetchone() is not None:
            return False
        changes = "SELECT count(*), coalesce(sum(identity = ?), 0) FROM notices WHERE kind = ?"
        of_all, own = self._connection.execute(changes, (notice.identity, NoticeKind.NEW_KEY)).fetchone()
        if own >= MOST_CHANGES or of_all >= MOST_NEW_KEYS:
            return False
        row = notice.kind, notice.identity, notice.key, notice.by_old, notice.by_new
        into = "INSERT INTO notices (kind, identity, key, by_old, by_new) VALUES (?, ?, ?, ?, ?)"
        self._connection.execute(into, row)
        return True

    def note_signed(self, checkpoint: DirectoryCheckpoint | None) -> None:
        """Keep what the witness has signed, or forget it, inside a transaction."""
        if checkpoint is None:
            self._connection.execute("DELETE FROM facts WHERE name = ?", (SIGNED,))
        else:
            row = SIGNED, checkpoint.encode()
            self._connection.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", row)
