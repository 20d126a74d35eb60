"""A device's part in secure sums, stored in its own encrypted file.

The protocol's state machine (`tacit.protocols.secure_aggregation`) writes each answer down before it returns it; here
that happens in the same transaction as the ledger's entry and what was learnt.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

import numpy as np

from tacit.errors import RangeError, WireError
from tacit.field.device.budget import Debit
from tacit.field.device.device_file import read_identity
from tacit.field.device.learning import LocalUpdate
from tacit.field.device.ledger import MentionedItems
from tacit.field.device.membership import late_round_error
from tacit.field.device.quality import QualityMeasurement, with_quality
from tacit.field.device.store import Store
from tacit.protocols.notices import MemberKeys, NoticeList
from tacit.protocols.secure_aggregation import DevicePolicy, Identity, ServerPhase, Terms, encode_message
from tacit.protocols.secure_aggregation import SecureDevice as Machine
from tacit.protocols.secure_aggregation.context import Session
from tacit.protocols.secure_aggregation.device_policy import has_ended
from tacit.protocols.secure_aggregation.encoding import SegmentKind, counts_layout, rows_layout
from tacit.protocols.secure_aggregation.journal import Record
from tacit.protocols.secure_aggregation.masks import Vector
from tacit.protocols.secure_aggregation.messages import SessionInvitation
from tacit.protocols.secure_aggregation.two_stage import QUALITY, QUALITY_SHAPE, Shapes
from tacit.reasons import ReasonCode
from tacit.types import Array
from tacit.updates import Ring
from tacit.wire.federation import Federation
from tacit.wire.messages import SecureRequest, model_in, pack, read_request, unpack


@dataclass(frozen=True)
class LastReply:
    """The last answer, its ledger entry if it has an update, and the settings when it was made."""

    answer: bytes
    entry: int | None
    under: str


@dataclass(frozen=True)
class PreparedVector:
    """What a device adds to one session, kept with the session's first message.

    Its masks are fixed from there on. A copy of the file that continues the session gives the same vector under them,
    whatever its history has become: the difference of two vectors would show what changed.
    """

    context: bytes  # of the session
    vector: bytes
    rows: MentionedItems
    private: dict[str, Array] | None
    items: list[int]  # of the history that was learnt from
    found: QualityMeasurement
    under: str  # the settings, as JSON
    debit: Debit | None = None  # what the sum costs of the privacy budget; noise for it is in the vector

    def pack(self) -> bytes:
        """Write it for the store."""
        private = b"" if self.private is None else pack(self.private)
        head = {
            "context": self.context.hex(),
            "rows": asdict(self.rows),
            "items": self.items,
            "found": asdict(self.found),
            "under": self.under,
            "debit": None if self.debit is None else asdict(self.debit),
            "private": None if self.private is None else len(private),
        }
        return json.dumps(head).encode() + b"\n" + private + self.vector

    @classmethod
    def unpack(cls, stored: bytes) -> PreparedVector:
        """Read it from the store."""
        line, _, rest = stored.partition(b"\n")
        head = json.loads(line)
        n_private = head["private"] or 0
        private = None if head["private"] is None else unpack(rest[:n_private])
        rows, found = MentionedItems(**head["rows"]), QualityMeasurement(**head["found"])
        context, debit = bytes.fromhex(head["context"]), head.get("debit")
        debit = None if debit is None else Debit(**debit)
        return cls(context, rest[n_private:], rows, private, head["items"], found, head["under"], debit)


class DeviceFileJournal:
    """The machine's journal, in the device's file; records are kept when the caller's transaction is."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def records(self) -> list[Record]:
        """Return all records, oldest first."""
        return [(value["kind"], base64.b64decode(value["content"])) for _, value in self._store.rows("turns")]

    def append(self, kind: int, content: bytes) -> None:
        """Store one more record."""
        self._store.add("turns", {"kind": int(kind), "content": base64.b64encode(content).decode()})

    def rewrite(self, records: Iterable[Record]) -> None:
        """Replace all records."""
        self._store.clear_session()
        for kind, content in records:
            self.append(kind, content)


class MaskedRounds:
    """Where a device stands in a secure sum."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._machine: Machine | None = None

    @property
    def identity(self) -> Identity:
        """The key by which others in this federation know this device."""
        return read_identity(self._store)

    def _member_keys(self, federation: Federation) -> MemberKeys:
        """Return what follows from the notices that this device saw last."""
        stored = self._store.get("notices")
        return MemberKeys() if stored is None else NoticeList.decode(stored).member_keys(bytes.fromhex(federation.id))

    @contextmanager
    def careful(self) -> Iterator[None]:
        """Forget what is in memory if what happens inside does not reach the disk."""
        try:
            yield
        except BaseException:
            self._machine = None
            raise

    def last_reply(self, content: bytes) -> LastReply | None:
        """Return what was answered to the very same request, if it was the last."""
        last, answer = self._store.get_json("turn"), self._store.get("turned")
        if last is None or answer is None or last["turn"] != hashlib.sha256(content).hexdigest():
            return None
        return LastReply(answer, last["entry"], last.get("under", ""))

    def keep(self, content: bytes, reply: LastReply) -> None:
        """Remember the last request and its reply, inside a transaction."""
        asked = hashlib.sha256(content).hexdigest()
        self._store.put_json("turn", {"turn": asked, "entry": reply.entry, "under": reply.under})
        self._store.put("turned", reply.answer)

    def refuse_if_opened(self, number: int) -> None:
        """Refuse a round in the clear if it, or a later one, was opened under masks."""
        stored = self._store.get("opening")
        if stored is not None and int(stored[:8].hex(), 16) >= number:
            raise late_round_error(number, int(stored[:8].hex(), 16))

    def opening(self, number: int) -> bytes:
        """Return the request with which a round was opened."""
        stored = self._store.get("opening")
        if stored is None or int(stored[:8].hex(), 16) != number:
            raise WireError.because(ReasonCode.SUM_NOT_OPENED, round=number)
        return stored[8:]

    def note_first_rows(self) -> bool:
        """Return whether this vector is the first that may be added to a sum of rows; recorded in a transaction."""
        session = None if self._machine is None else self._machine.session
        if session is None or session.terms.stage == 1 or self._store.get("masked") is not None:
            return False
        self._store.put("masked", b"since")
        return True

    def adopt_key(self, identity: Identity) -> None:
        """Sign with another key for the same identity, inside a transaction."""
        self.leave_session()
        self._store.put("identity", identity.secret + identity.name)

    def renew_identity(self) -> None:
        """Take a new identity, inside a transaction: no two federations know a device by the same key."""
        self.leave_session()
        self._store.put("identity", Identity.fresh().secret)

    def _machine_of(self, federation: Federation, device_policy: DevicePolicy) -> Machine:
        device_policy = federation.policy(device_policy)
        identity, machine, changed = self.identity, self._machine, self._member_keys(federation).changed
        known = None if machine is None else (machine.device_policy, machine.identity, machine.changed_keys)
        if machine is None or known != (device_policy, identity, changed):
            journal = DeviceFileJournal(self._store)
            machine = self._machine = Machine(identity, device_policy, journal, changed_keys=changed)
        return machine

    def check_invitation(
        self, federation: Federation, device_policy: DevicePolicy, asked: SecureRequest, opening: bytes
    ) -> Session:
        """Refuse a session that must not be joined, before anything is learnt for it; nothing changes."""
        self._check_terms(federation, asked, opening)
        return self._machine_of(federation, device_policy).check(asked.content, federation.lineage.hex())

    def find_smallest_sum(self, task: str) -> int | None:
        """Return how many participants the smallest sum of a task had that this device knows to have been in."""
        history = Machine(self.identity, DevicePolicy(), DeviceFileJournal(self._store)).history.of(task)
        return min((len(past.participants) for past in history.sums if past.participants), default=None)

    def has_ended(self, federation: Federation, device_policy: DevicePolicy) -> bool:
        """Say whether this device can be in no sum of a federation any more, by the notices that it saw last."""
        revoked, task = self._member_keys(federation).revoked, federation.lineage.hex()
        if not revoked:
            return False
        history = Machine(self.identity, DevicePolicy(), DeviceFileJournal(self._store)).history.of(task)
        return has_ended(federation.policy(device_policy), history, revoked)

    def leave_session(self) -> None:
        """Forget a session that has begun, inside a transaction; its round cannot be joined again."""
        Machine(self.identity, DevicePolicy(), DeviceFileJournal(self._store)).leave()
        for place in ("prepared", "turn", "turned"):
            self._store.drop(place)
        self._machine = None

    def suppose_sums(self, task: str, number: int, device_policy: DevicePolicy) -> None:
        """Count the sums up to round `number` that a restored device may have been in, inside a transaction.

        Between two there is a cool-down, so that there are only so many since the last one that it knows of.
        """
        machine = Machine(self.identity, device_policy, DeviceFileJournal(self._store))
        known = max([-1, *machine.history.of(task).rounds])
        rounds = range(number, known, -1 - device_policy.cool_down)
        machine.suppose_sums(task, rounds[: device_policy.most_rounds])
        self._machine = None

    def read_prepared(self) -> PreparedVector:
        """Return what was prepared for the session that this device is in."""
        stored = self._store.get("prepared")
        if stored is None:
            raise WireError.because(ReasonCode.OUT_OF_TURN)
        return PreparedVector.unpack(stored)

    def step(
        self,
        federation: Federation,
        device_policy: DevicePolicy,
        asked: SecureRequest,
        made: PreparedVector | None,
    ) -> bytes:
        """Let the machine answer, inside a transaction. `made` is kept with an advert, and sent as the vector."""
        machine = self._machine_of(federation, device_policy)
        if asked.phase == ServerPhase.ADVERTS and made is not None:
            if asked.request:
                self._store.put("opening", asked.round.to_bytes(8, "big") + asked.request)
            self._check_terms(federation, asked, self.opening(asked.round))
            machine.switch_to(federation.lineage.hex())
            advert = machine.advertise(asked.content)
            self._store.put("prepared", made.pack())
            return advert
        if asked.phase == ServerPhase.SHARES:
            return machine.share(asked.content)
        if asked.phase == ServerPhase.VECTORS and made is not None and machine.session is not None:
            if made.context != machine.session.context:
                raise WireError.because(ReasonCode.OUT_OF_TURN)
            self._store.drop("prepared")
            return machine.submit(asked.content, Vector(machine.session.terms.layout.sizes, made.vector))
        if asked.phase == ServerPhase.CONFIRMATIONS:
            return machine.confirm(asked.content)
        if asked.phase == ServerPhase.UNMASKINGS:
            return machine.unmask(asked.content)
        raise WireError.because(ReasonCode.OUT_OF_TURN)

    def _check_terms(self, federation: Federation, asked: SecureRequest, request: bytes) -> None:
        """Refuse a sum of something else than what this federation agreed on, in this round, from this model."""
        session = SessionInvitation.decode(asked.content).session
        terms = session.terms
        shapes = federation.built.shapes(read_request(federation, request).shared)
        if terms.task != federation.lineage.hex() or terms.round != asked.round or terms.model != model_in(request):
            raise WireError.because(ReasonCode.OTHER_TERMS)
        both = {**shapes, QUALITY: QUALITY_SHAPE}
        for part in terms.layout.segments:
            wide = 1 if part.kind is not SegmentKind.NUMBERS else both.get(part.table, (0, 0))[1]
            if part.table not in both or part.n_rows != both[part.table][0] or part.width != wide:
                raise WireError.because(ReasonCode.UNKNOWN_TABLE, table=part.table)
        if federation.guarantee is not None:
            counted = federation.guarantee.count_units
            layout = rows_layout(shapes, federation.ring, session.n_participants, counted=counted)
            is_agreed = terms.stage == 2 and terms.layout == layout
        else:
            is_agreed = is_layout_of(terms, session.n_participants, shapes, federation.ring)
        if not is_agreed:
            raise WireError.because(ReasonCode.OTHER_TERMS)


def is_layout_of(terms: Terms, n_participants: int, shapes: Shapes, ring: Ring) -> bool:
    """Say whether parts, bits and bounds are those that a ring gives for so many participants.

    A bound of the coordinator's choice would reveal whose numbers exceed it.
    """
    both, layout = {**shapes, QUALITY: QUALITY_SHAPE}, terms.layout
    if terms.stage == 1:
        return layout in (counts_layout(both, n_participants), counts_layout(shapes, n_participants))
    if all(part.rows is None for part in layout.segments):
        return layout == rows_layout(shapes, ring, n_participants)
    listed = dict.fromkeys(both, np.zeros(0, np.int64)) | {part.table: part.listed for part in layout.segments}
    return layout == rows_layout(both, ring, n_participants, listed)


def vector_of(
    learnt: LocalUpdate, found: QualityMeasurement | None, terms: Terms
) -> tuple[Vector, bool, ReasonCode | None]:
    """Return what is added to a sum, whether a measurement is in it, and why it is only zeros, if it is.

    An update that this sum cannot hold becomes zeros: a refusal would reveal something about the history.
    """
    is_wanted = terms.k_min > 1 and any(part.table == QUALITY for part in terms.layout.segments)
    measured = found if is_wanted and learnt.zeros is None else None
    try:
        vector = encode_message(with_quality(learnt.message, measured), terms.layout)
    except RangeError as error:
        return Vector(terms.layout.sizes), False, error.code
    return vector, measured is not None and measured.item is not None, learnt.zeros
