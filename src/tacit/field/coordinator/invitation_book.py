"""The invitations in a coordinator's journal: hashes of words that enrol one device each, once, and not for ever.

A label is for the operator alone. It stays with the device that enrols by the invitation, so that it can be found again
when it is to be revoked. No log, page, metric or message has it.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from tacit.field.coordinator.journal_file import JournalFile
from tacit.wire.catalogue import digest_of

NAME_LENGTH = 8  # of a digest, by which an operator names a pending invitation


@dataclass(frozen=True)
class PendingInvitation:
    """An invitation that was not used: its short name, its label and when it expires, in unix seconds."""

    name: str
    label: str
    expires: int


class InvitationBook:
    """The invitations in an open journal."""

    def __init__(self, file: JournalFile) -> None:
        self._file = file

    def make(self, expires: int, label: str = "") -> str:
        """Make a word that enrols one device, once, until `expires` (unix seconds); its label is the operator's."""
        return self.make_many(1, expires, label)[0]

    def make_many(self, count: int, expires: int, label: str = "") -> list[str]:
        """Make as many words as are wanted, all or none."""
        with self._file.transaction():
            return [self._add(expires, label) for _ in range(count)]

    def _add(self, expires: int, label: str) -> str:
        word = secrets.token_urlsafe(24)
        row = (digest_of(word.encode()), expires, label)
        self._file.connection.execute("INSERT INTO invitations (digest, expires, label) VALUES (?, ?, ?)", row)
        return word

    def use(self, word: str, now: int) -> str | None:
        """Use an invitation up, inside a transaction; return its label, none if it is wrong, used, revoked or old."""
        digest = digest_of(word.encode())
        which = "FROM invitations WHERE digest = ? AND expires > ?"
        found = self._file.connection.execute(f"SELECT label {which}", (digest, now)).fetchone()
        if found is None:
            return None
        self._file.connection.execute(f"DELETE {which}", (digest, now))
        return str(found[0])

    def pending(self, now: int) -> list[PendingInvitation]:
        """Return the invitations that can still be used, those that expire first in front."""
        rows = "SELECT digest, label, expires FROM invitations WHERE expires > ? ORDER BY expires, digest"
        return [
            PendingInvitation(digest[:NAME_LENGTH], label, expires)
            for digest, label, expires in self._file.read(rows, (now,))
        ]

    def revoke(self, name: str) -> int:
        """Take pending invitations back, by short name or by label; return how many."""
        gone = "DELETE FROM invitations WHERE substr(digest, 1, ?) = ? OR (label = ? AND label != '')"
        with self._file.transaction():
            return self._file.connection.execute(gone, (NAME_LENGTH, name, name)).rowcount

    def forget_expired(self, before: int) -> None:
        """Delete what expired before a time, inside a transaction: labels are kept no longer than needed."""
        self._file.connection.execute("DELETE FROM invitations WHERE expires <= ?", (before,))
