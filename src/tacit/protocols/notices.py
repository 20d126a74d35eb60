"""Notices of a directory: what changed for its identities after they were enrolled, as a list that only grows.

    revocation   the operator asks this identity no more: devices refuse cohorts with it
    new key      the identity is signed for by another key from here on; the key before and the new one both signed that

An identity is a name for as long as a device is in a federation: cohorts, and who stays with them, go by it. Only the
key that signs for it changes, so that a device with a new key is the same participant, and no cohort looks like another
one. Notices are few. Every device is shown all of them, and where there is a witness, its signature of the list. None
can be left out for one device without a second list, and the witness signs one.

Without a witness a coordinator can show any list, and in each round another one. So a device checks the signatures of
those changes only that it goes by, of its cohort and of itself, and each identity has a few changes at most.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property, lru_cache

from tacit.errors import DevicePolicyError, ForgedError, MessageError
from tacit.protocols.directory import AHEAD, DAY, LOG_BYTES, DirectoryCheckpoint
from tacit.protocols.merkle import MerkleTree
from tacit.protocols.secure_aggregation.bytes import ByteReader, ByteWriter
from tacit.protocols.secure_aggregation.identity import KEY_BYTES, SIGNATURE_BYTES, Identity, verify
from tacit.reasons import ReasonCode

MOST_NOTICES = 2**17
MOST_CHANGES = 16  # new keys of one identity: every device is shown all of them for ever
MOST_BYTES = 1 + 2 * KEY_BYTES + 2 * SIGNATURE_BYTES


class NoticeKind(IntEnum):
    """What a notice says."""

    REVOKED = 1
    NEW_KEY = 2


_FORMS = {  # by their first byte
    b"\x01": (NoticeKind.REVOKED, struct.Struct(f"<B{KEY_BYTES}s")),
    b"\x02": (NoticeKind.NEW_KEY, struct.Struct(f"<B{KEY_BYTES}s{KEY_BYTES}s{SIGNATURE_BYTES}s{SIGNATURE_BYTES}s")),
}


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
        kind, form = _FORMS.get(data[:1], (NoticeKind.REVOKED, None))
        if form is None or len(data) != form.size:
            raise MessageError(f"A notice is malformed: {len(data)} bytes are of no kind.")
        return cls(kind, *form.unpack(data)[1:])

    @property
    def entry(self) -> bytes:
        """What stands for it in the list that a witness holds."""
        return hashlib.sha256(b"tacit notice" + self.encode()).digest()


def key_change(identity: Identity, new: Identity, log: bytes) -> Notice:
    """Let an identity be signed for by the key of `new` from now on, in the federation whose id is `log`."""
    statement = _statement(log, identity.public, identity.key, new.key)
    return Notice(NoticeKind.NEW_KEY, identity.public, new.key, identity.sign(statement), new.sign(statement))


def check_key_change(notice: Notice, old: bytes, log: bytes) -> None:
    """Refuse a change of keys that the key before and the new one have not both signed."""
    statement = _statement(log, notice.identity, old, notice.key)
    try:
        verify(old, statement, notice.by_old, 0)
        verify(notice.key, statement, notice.by_new, 0)
    except ForgedError:
        raise ForgedError.because(ReasonCode.NOTICE_FORGED) from None


def _statement(log: bytes, identity: bytes, old: bytes, new: bytes) -> bytes:
    return b"tacit new key" + log + identity + old + new


def notice_log(log: bytes) -> bytes:
    """Return the id under which a witness holds the notices of a federation."""
    return hashlib.sha256(b"tacit notices" + log).digest()[:LOG_BYTES]


class ChangedKeys(Mapping[bytes, bytes]):
    """The keys that sign for identities now, where it is not the first one; each is checked when it is asked for."""

    def __init__(self, log: bytes, changes: Mapping[bytes, Sequence[Notice]]) -> None:
        self._log, self._changes = log, changes
        self._checked: dict[bytes, bytes] = {}

    def __getitem__(self, identity: bytes) -> bytes:
        """Return the key of an identity; a change of it that is not signed by both keys is refused."""
        if identity not in self._checked:
            key = identity
            for notice in self._changes[identity]:
                check_key_change(notice, key, self._log)
                key = notice.key
            self._checked[identity] = key
        return self._checked[identity]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._changes)

    def __len__(self) -> int:
        return len(self._changes)

    def __eq__(self, other: object) -> bool:
        """Say whether two follow from the same changes: nothing is checked for that."""
        if isinstance(other, ChangedKeys):
            return (self._log, self._changes) == (other._log, other._changes)
        return isinstance(other, Mapping) and len(self) == len(other) and super().__eq__(other)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True)
class MemberKeys:
    """What follows from all notices: who is out, and by which keys the others sign."""

    revoked: frozenset[bytes] = frozenset()
    changed: Mapping[bytes, bytes] = field(default_factory=dict)  # by identity, only where it is another key

    def key_of(self, identity: bytes) -> bytes:
        """Return the key that signs for an identity now; a change that is not signed is refused."""
        return self.changed.get(identity, identity)

    @classmethod
    def read(cls, notices: Iterable[Notice], log: bytes) -> MemberKeys:
        """Go through all notices; a list that goes back to a former key, or changes one too often, is refused.

        Signatures are checked for those identities whose keys are asked for.
        """
        revoked, changes, used = set[bytes](), dict[bytes, list[Notice]](), set[bytes]()
        for notice in notices:
            if notice.kind == NoticeKind.REVOKED:
                revoked.add(notice.identity)
                continue
            own = changes.setdefault(notice.identity, [])
            if notice.key in used or notice.key == notice.identity or len(own) >= MOST_CHANGES:
                raise ForgedError.because(ReasonCode.NOTICE_FORGED)
            own.append(notice)
            used.add(notice.key)
        return cls(frozenset(revoked), ChangedKeys(log, changes))


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
        return _decode_list(data)

    def member_keys(self, log: bytes) -> MemberKeys:
        """Return what follows from all of them, in the federation with this id."""
        if log not in self._found:
            self._found[log] = MemberKeys.read(self.notices, log)
        return self._found[log]

    @cached_property
    def _found(self) -> dict[bytes, MemberKeys]:
        """What followed before: a round reads the same list several times."""
        return {}


@lru_cache(maxsize=2)
def _decode_list(data: bytes) -> NoticeList:
    reader = ByteReader(data, "A list of notices")
    signed = reader.block()
    checkpoint = DirectoryCheckpoint.decode(signed) if signed else None
    found = tuple(Notice.decode(reader.block(MOST_BYTES)) for _ in range(reader.number(4, MOST_NOTICES)))
    reader.end()
    return NoticeList(found, checkpoint)


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
        return self.newest(shown).member_keys(self.log)

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
    """Refuse a cohort with a revoked identity, and to take part with a key that is not this identity's any more.

    So are changes of the cohort's keys that are not signed.
    """
    if own.public in members.revoked:
        raise DevicePolicyError.because(ReasonCode.DEVICE_REVOKED)
    if members.key_of(own.public) != own.key:
        raise DevicePolicyError.because(ReasonCode.KEY_REPLACED)
    if members.revoked.intersection(cohort):
        raise DevicePolicyError.because(ReasonCode.REVOKED_MEMBER)
    for identity in cohort:
        members.key_of(identity)
