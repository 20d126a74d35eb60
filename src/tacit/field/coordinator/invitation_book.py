"""The invitations in a coordinator's journal: hashes of words that enrol one device each, once, and not for ever.

A label is for the operator alone. It stays with the device that enrols by the invitation, so that it can be found again
when it is to be revoked; no log, page, metric or message has it.
"""

from __future__ import annotations

import secrets
import sqlite3
from dataclasses import dataclass

from tacit.wire.catalogue import digest_of

NAME_LENGTH = 8  # of a digest, by which an operator names a pending invitation


@dataclass(frozen=True)
class PendingInvitation:
    """An invitation that was not used: its short name, its label and when it expires, in unix seconds."""

    name: str
    label: str
    expires: int


class InvitationBook:
    """The invitations in an open journal; changes happen inside a transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def add(self, expires: int, label: str = "") -> str:
        """Make a word that enrols one device, once, until `expires` (unix seconds)."""
        word = secrets.token_urlsafe(24)
        row = (digest_of(word.encode()), expires, label)
        self._connection.execute("INSERT INTO invitations (digest, expires, label) VALUES (?, ?, ?)", row)
        return word

    def use(self, word: str, now: int) -> str | None:
        """Use an invitation up, and return its label; none if the word is wrong, used, revoked or expired."""
        digest = digest_of(word.encode())
        which = "FROM invitations WHERE digest = ? AND expires > ?"
        found = self._connection.execute(f"SELECT label {which}", (digest, now)).fetchone()
        if found is None:
            return None
        self._connection.execute(f"DELETE {which}", (digest, now))
        return str(found[0])

    def pending(self, now: int) -> list[PendingInvitation]:
        """Return the invitations that can still be used, those that expire first in front."""
        rows = "SELECT digest, label, expires FROM invitations WHERE expires > ? ORDER BY expires, digest"
        return [
            PendingInvitation(digest[:NAME_LENGTH], label, expires)
            for digest, label, expires in self._connection.execute(rows, (now,))
        ]

    def revoke(self, name: str) -> int:
        """Take pending invitations back, by short name or by label; return how many."""
        gone = "DELETE FROM invitations WHERE substr(digest, 1, ?) = ? OR (label = ? AND label != '')"
        return self._connection.execute(gone, (NAME_LENGTH, name, name)).rowcount

    def forget_expired(self, before: int) -> None:
        """Delete what expired before a time: labels are kept no longer than needed."""
        self._connection.execute("DELETE FROM invitations WHERE expires <= ?", (before,))
