"""The coordinator's list of notices: who was revoked, and who signs with another key. It only grows."""

from __future__ import annotations

from tacit.errors import ForgedError
from tacit.field.coordinator.journal_file import JournalFile
from tacit.protocols.directory import DirectoryCheckpoint
from tacit.protocols.notices import (
    MOST_CHANGES,
    MOST_NOTICES,
    MemberKeys,
    Notice,
    NoticeKind,
    NoticeList,
    check_key_change,
)

SIGNED = "notices signed"
MOST_NEW_KEYS = MOST_NOTICES // 2  # of all identities: no device reads a longer list, and revocations need room


class NoticeBook:
    """The notices in a journal."""

    def __init__(self, file: JournalFile, log: bytes) -> None:
        self._file, self._log = file, log

    def list(self) -> NoticeList:
        """Return all of them, with what the witness has signed last."""
        listed = "SELECT kind, identity, key, by_old, by_new FROM notices ORDER BY place"
        found = tuple(Notice(NoticeKind(kind), *parts) for kind, *parts in self._file.read(listed))
        signed = self._file.fact(SIGNED)
        return NoticeList(found, DirectoryCheckpoint.decode(signed) if signed else None)

    def keys(self) -> MemberKeys:
        """Return who is out, and by which keys the others sign."""
        return self.list().member_keys(self._log)

    def key_of(self, identity: bytes) -> bytes:
        """Return the key that signs for an identity now."""
        newest = "SELECT key FROM notices WHERE identity = ? AND kind = ? ORDER BY place DESC LIMIT 1"
        found = self._file.read(newest, (identity, NoticeKind.NEW_KEY))
        return bytes(found[0][0]) if found else identity

    def change_key(self, notice: Notice) -> bool:
        """Let an identity be signed for by another key, if both keys signed that; say whether it is. Twice is fine."""
        with self._file.transaction():
            return self._change_key(notice)

    def _change_key(self, notice: Notice) -> bool:
        if notice.kind != NoticeKind.NEW_KEY:
            return False
        may_sign = "SELECT 1 FROM devices WHERE identity = ? AND NOT revoked"
        if self._file.connection.execute(may_sign, (notice.identity,)).fetchone() is None:
            return False
        same = "SELECT 1 FROM notices WHERE identity = ? AND key = ? AND by_old = ? AND by_new = ?"
        given = notice.identity, notice.key, notice.by_old, notice.by_new
        if self._file.connection.execute(same, given).fetchone() is not None:
            return self.key_of(notice.identity) == notice.key
        try:  # first, and alone: a forged notice costs as little with many notices as with none
            check_key_change(notice, self.key_of(notice.identity), self._log)
        except ForgedError:
            return False
        taken = "SELECT 1 FROM directory WHERE identity = ? UNION ALL SELECT 1 FROM notices WHERE key = ?"
        if self._file.connection.execute(taken, (notice.key, notice.key)).fetchone() is not None:
            return False
        changes = "SELECT count(*), coalesce(sum(identity = ?), 0) FROM notices WHERE kind = ?"
        of_all, own = self._file.connection.execute(changes, (notice.identity, NoticeKind.NEW_KEY)).fetchone()
        if own >= MOST_CHANGES or of_all >= MOST_NEW_KEYS:
            return False
        row = notice.kind, notice.identity, notice.key, notice.by_old, notice.by_new
        into = "INSERT INTO notices (kind, identity, key, by_old, by_new) VALUES (?, ?, ?, ?, ?)"
        self._file.connection.execute(into, row)
        return True

    def note_signed(self, checkpoint: DirectoryCheckpoint) -> None:
        """Store what the witness has signed of the notices."""
        with self._file.transaction():
            self._file.keep_fact(SIGNED, checkpoint.encode())

    def forget_signed(self) -> None:
        """Forget what a former witness has signed, inside a transaction."""
        self._file.forget_fact(SIGNED)
