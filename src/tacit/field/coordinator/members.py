"""The members in a coordinator's journal: which devices are enrolled, under which keys, and who was revoked."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from tacit.errors import ForgedError
from tacit.field.coordinator.invitation_book import InvitationBook
from tacit.field.coordinator.journal_file import JournalFile
from tacit.field.coordinator.login import LABEL, LoginRules, read_token
from tacit.field.coordinator.login import PREFIX as TOKEN
from tacit.field.coordinator.notice_book import NoticeBook
from tacit.protocols.secure_aggregation.identity import verify
from tacit.wire.catalogue import digest_of
from tacit.wire.enrolment import enrolment_statement, hand_over_statement

UNAGREED = "unagreed"  # name of a fact
EXPIRED_KEPT = 30 * 86_400  # seconds that an expired invitation, and its label, stay


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


class Members:
    """The members in an open journal."""

    def __init__(self, file: JournalFile, invitations: InvitationBook, notices: NoticeBook, federation: str) -> None:
        self._file, self._invitations, self._notices, self._federation = file, invitations, notices, federation

    def devices(self) -> list[EnrolledDevice]:
        """Return all devices that were ever enrolled."""
        found = self._file.read(
            "SELECT number, key, counted, revoked, identity, summed, batch, half, stays, cohorts, missing, label "
            "FROM devices ORDER BY 1"
        )
        return [
            EnrolledDevice(number, key, counted, bool(off), identity, summed, batch, half, bool(stays), *others)
            for number, key, counted, off, identity, summed, batch, half, stays, *others in found
        ]

    def hand_over(self, old: bytes, new: bytes, proof: bytes) -> bool:
        """Let a device have a new key in place of its old one, if its identity signed that; twice is fine.

        A key that another device has, or that any device had before, cannot be a new one.
        """
        with self._file.transaction():
            found = self._file.read(
                "SELECT number, key, identity FROM devices WHERE key IN (?, ?) AND NOT revoked AND identity != x''",
                (old, new),
            )
            if len(found) != 1 or not self._is_signed(found[0][2], hand_over_statement(old, new), proof):
                return False
            taken = "SELECT 1 FROM devices WHERE key = ? AND number != ?"
            if self._file.read(taken, (new, found[0][0])) or self._is_former(new):
                return False
            if found[0][1] != new:
                self._file.connection.execute("INSERT INTO former_keys VALUES (?)", (found[0][1],))
                self._file.connection.execute("UPDATE devices SET key = ? WHERE number = ?", (new, found[0][0]))
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
        return bool(self._file.read("SELECT 1 FROM former_keys WHERE key = ?", (key,)))

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
        with self._file.transaction():
            known = self._file.connection.execute(
                "SELECT number, revoked, identity FROM devices WHERE key = ?", (key,)
            ).fetchone()
            if known is not None:
                return None if known[1] or known[2] != identity else int(known[0])
            if self._is_former(key):
                return None
            same = "identity = ? AND identity != x''"
            if self._file.connection.execute(f"SELECT 1 FROM devices WHERE revoked AND {same}", (identity,)).fetchone():
                return None
            self._invitations.forget_expired(now - EXPIRED_KEPT)  # a clock may be wrong for a while
            is_token = login is not None and word.startswith(TOKEN)
            label = self._use_token(word, login, now) if is_token else self._invitations.use(word, now)
            if label is None:
                return None
            self._file.connection.execute(f"UPDATE devices SET revoked = 1, identity = x'' WHERE {same}", (identity,))
            return self.add(key, identity, label)

    def _use_token(self, token: str, login: LoginRules | None, now: int) -> str | None:
        """Return the label of an account that may enrol another device; none if it may not."""
        pseudonym = None if login is None else read_token(token, login, self._federation, now)
        if login is None or pseudonym is None:
            return None
        label = f"{LABEL}{digest_of(pseudonym.encode())[:16]}"
        known = self._file.read_number("SELECT count(*) FROM devices WHERE label = ?", (label,))
        return label if known < login.devices else None

    def add(self, key: bytes, identity: bytes = b"", label: str = "") -> int:
        """Enrol a device whose keys are at hand; return its number."""
        row = (key, identity, label)
        added = self._file.connection.execute("INSERT INTO devices (key, identity, label) VALUES (?, ?, ?)", row)
        return int(added.lastrowid or 0)

    def revoke(self, number: int) -> bool:
        """Ask a device no more; say whether there was one."""
        with self._file.transaction():
            return (
                self._file.connection.execute("UPDATE devices SET revoked = 1 WHERE number = ?", (number,)).rowcount
                == 1
            )

    def note_counted(self, number: int, devices: Iterable[int]) -> None:
        """Note whose answers counted in a round, inside a transaction."""
        changes = [(number, device) for device in devices]
        self._file.connection.executemany("UPDATE devices SET counted = ? WHERE number = ?", changes)

    @property
    def unagreed(self) -> frozenset[int]:
        """The devices that have sent nothing since the method was replaced: their users may not have agreed yet."""
        found = self._file.fact(UNAGREED)
        waiting = () if found is None else json.loads(found)
        return frozenset(waiting) - {device.number for device in self.devices() if device.revoked}

    def note_agreed(self, devices: Iterable[int]) -> None:
        """Note that devices have sent something under the method of now: their users have agreed to it."""
        before, agreed = self.unagreed, set(devices)
        if before & agreed:
            with self._file.transaction():
                self.keep_unagreed(before - agreed)

    def keep_unagreed(self, devices: Iterable[int]) -> None:
        """Store whose users have not agreed to the method of now, inside a transaction."""
        self._file.keep_fact(UNAGREED, json.dumps(sorted(devices)).encode())
