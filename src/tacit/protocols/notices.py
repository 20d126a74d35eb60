"""Notices of a directory: what changed for its identities after they were enrolled, as a list that only grows.

    revocation   the operator asks this identity no more: devices refuse cohorts with it
    new key      the identity is signed for by another key from here on; the key before and the new one both signed that

An identity is a name for as long as a device is in a federation: cohorts, and who stays with them, go by it. Only the
key that signs for it changes, so that a device with a new key is the same participant, and no cohort looks like another
one. Notices are few. Every device is shown all of them, and where there is a witness, its signature of the list. None
can be left out for one device without a second list, and the witness signs one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from tacit.errors import DevicePolicyError, ForgedError
from tacit.protocols.directory import AHEAD, DAY, LOG_BYTES, DirectoryCheckpoint
from tacit.protocols.merkle import MerkleTree
from tacit.protocols.secure_aggregation.bytes import ByteReader, ByteWriter
from tacit.protocols.secure_aggregation.identity import KEY_BYTES, SIGNATURE_BYTES, Identity, verify
from tacit.reasons import ReasonCode

MOST_NOTICES = 2**17
MOST_BYTES = 1 + 2 * KEY_BYTES + 2 * SIGNATURE_BYTES


class NoticeKind(IntEnum):
    """What a notice says."""

    REVOKED = 1
    NEW_KEY = 2


@dataclass(frozen=True)
class Notice:
    """One entry of the list."""

    kind: NoticeKind
    identity: bytes
    key: bytes = b""  # the new one
    by_old: bytes = b""  # signatures of the change, by the key before and by the new one
    by_new: bytes = b""

    def encode(self) -> bytes:
        """Return its bytes."""
        head = ByteWriter().number(self.kind, 1).raw(self.identity)
        return head.raw(self.key).raw(self.by_old).raw(self.by_new).done()

    @classmethod
    def decode(cls, data: bytes) -> Notice:
        """Read it."""
        reader = ByteReader(data, "A notice", MOST_BYTES)
        kind, identity = reader.number(1, max(NoticeKind), min(NoticeKind)), reader.raw(KEY_BYTES)
        signed = (KEY_BYTES, SIGNATURE_BYTES, SIGNATURE_BYTES) if kind == NoticeKind.NEW_KEY else ()
        found = cls(NoticeKind(kind), identity, *(reader.raw(size) for size in signed))
        reader.end()
        return found

    @property
    def entry(self) -> bytes:
        """What stands for it in the list that a witness holds."""
        return hashlib.sha256(b"tacit notice" + self.encode()).digest()


def key_change(identity: Identity, new: Identity, log: bytes) -> Notice:
    """Let an identity be signed for by the key of `new` from now on, in the federation whose id is `log`."""
    statement = _statement(log, identity.public, identity.key, new.key)
    return Notice(NoticeKind.NEW_KEY, identity.public, new.key, identity.sign(statement), new.sign(statement))


def check_key_change(notice: Notice, old: bytes, log: bytes, at: int = 0) -> None:
    """Refuse a change of keys that the key before and the new one have not both signed."""
    statement = _statement(log, notice.identity, old, notice.key)
    try:
        verify(old, statement, notice.by_old, at)
        verify(notice.key, statement, notice.by_new, at)
    except ForgedError:
        raise ForgedError.because(ReasonCode.NOTICE_FORGED) from None


def _statement(log: bytes, identity: bytes, old: bytes, new: bytes) -> bytes:
    return b"tacit new key" + log + identity + old + new


def notice_log(log: bytes) -> bytes:
    """Return the id under which a witness holds the notices of a federation."""
    return hashlib.sha256(b"tacit notices" + log).digest()[:LOG_BYTES]


@dataclass(frozen=True)
class MemberKeys:
    """What follows from all notices: who is out, and by which keys the others sign."""

    revoked: frozenset[bytes] = frozenset()
    changed: Mapping[bytes, bytes] = field(default_factory=dict)  # by identity, only where it is another key

    def key_of(self, identity: bytes) -> bytes:
        """Return the key that signs for an identity now."""
        return self.changed.get(identity, identity)

    @classmethod
    def read(cls, notices: Iterable[Notice], log: bytes) -> MemberKeys:
        """Go through all notices; a change of keys that is not signed, or goes back to a former key, is refused."""
        revoked, changed, used = set[bytes](), dict[bytes, bytes](), set[bytes]()
        for at, notice in enumerate(notices):
            if notice.kind == NoticeKind.REVOKED:
                revoked.add(notice.identity)
                continue
            old = changed.get(notice.identity, notice.identity)
            if notice.key in used or notice.key == notice.identity:
                raise ForgedError.because(ReasonCode.NOTICE_FORGED)
            check_key_change(notice, old, log, at)
            changed[notice.identity] = notice.key
            used.add(notice.key)
        return cls(frozenset(revoked), changed)


@dataclass(frozen=True)
class NoticeList:
    """All notices of a federation, and what the witness has signed of them: all but the newest, perhaps."""

    notices: tuple[Notice, ...] = ()
    signed: DirectoryCheckpoint | None = None

    def encode(self) -> bytes:
        """Return its bytes."""
        writer = ByteWriter().block(b"" if self.signed is None else self.signed.encode())
        writer.number(len(self.notices), 4)
        for notice in self.notices:
            writer.block(notice.encode())
        return writer.done()

    @classmethod
    def decode(cls, data: bytes) -> NoticeList:
        """Read it."""
        reader = ByteReader(data, "A list of notices")
        signed = reader.block()
        checkpoint = DirectoryCheckpoint.decode(signed) if signed else None
        found = tuple(Notice.decode(reader.block(MOST_BYTES)) for _ in range(reader.number(4, MOST_NOTICES)))
        reader.end()
        return cls(found, checkpoint)


@dataclass(frozen=True)
class NoticeView:
    """What a device checks with: the federation, its witness's key if it has one, and what it saw last."""

    log: bytes
    witness: bytes | None = None
    fresh_days: float = 0.0  # after which the witness's signature is too old
    known: NoticeList = field(default_factory=NoticeList)

    def read(self, shown: NoticeList, now: float) -> MemberKeys:
        """Return what follows from a list; one that the witness has not signed, or not lately, is refused."""
        if self.witness is not None:
            self._check_signed(shown, self.witness, now)
        return MemberKeys.read(self.newest(shown).notices, self.log)

    def newest(self, shown: NoticeList) -> NoticeList:
        """Return the list to go by: where the witness has signed more than is shown, what this device saw of that.

        A round shows the list of its beginning. A device that connects meanwhile has fetched a longer one already.
        """
        known = self.known
        if self.witness is None or known.signed is None or known.signed.size <= len(shown.notices):
            return shown
        return known

    def _check_signed(self, shown: NoticeList, witness: bytes, now: float) -> None:
        signed, tree = shown.signed, MerkleTree(notice.entry for notice in shown.notices)
        if signed is None:
            raise DevicePolicyError.because(ReasonCode.DIRECTORY_MISSING)
        if signed.log != notice_log(self.log) or not signed.is_signed_by(witness):
            raise ForgedError.because(ReasonCode.DIRECTORY_FORGED)
        if signed.size > len(tree) or tree.root(signed.size) != signed.root:
            raise ForgedError.because(ReasonCode.DIRECTORY_FORKED)
        known = self.known.signed or signed
        if known.size <= len(tree):
            is_same = tree.root(known.size) == known.root
        else:  # an earlier list
            is_same = self.known.notices[: len(tree)] == shown.notices
        if not is_same:
            raise ForgedError.because(ReasonCode.DIRECTORY_FORKED)
        if not now - self.fresh_days * DAY <= signed.time <= now + AHEAD:
            raise DevicePolicyError.because(ReasonCode.DIRECTORY_STALE, days=self.fresh_days)


def check_members(members: MemberKeys, cohort: Sequence[bytes], own: Identity) -> None:
    """Refuse a cohort with a revoked identity, and to take part with a key that is not this identity's any more."""
    if own.public in members.revoked:
        raise DevicePolicyError.because(ReasonCode.DEVICE_REVOKED)
    if members.key_of(own.public) != own.key:
        raise DevicePolicyError.because(ReasonCode.KEY_REPLACED)
    if members.revoked.intersection(cohort):
        raise DevicePolicyError.because(ReasonCode.REVOKED_MEMBER)
