"""A real peer: the functions of `protocols.gossip` on a device, with its state in the device's encrypted file.

It has no carrier and no clock of its own: a runner gives it what arrived and sends what it returns.

    begin_period   -> messages to send; the ledger has them already, as "releasing"
    settle         what became of one of them: acknowledged, or not
    receive        a message that arrived -> the reply
    end_period     learn

Every step is one transaction: model, view, sequence numbers and ledger are on disk together before a byte leaves and
before an arrival is acknowledged. What was about to leave when the process died is not sent again.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC

import numpy as np

from tacit.errors import ConsentError, TacitError, WireError
from tacit.field.device import Device
from tacit.field.device.consent import refuse_if_silent
from tacit.field.device.ledger import Clock, MentionedItems, system_clock
from tacit.field.device.sent_periods import count_sent_periods
from tacit.field.peer.membership import require_membership
from tacit.field.peer.peer_file import (
    PeerFile,
    make_sampler,
    read_peer_state,
    refuse_diverged,
    restore_peer_file,
    unpack_arrays,
    unpack_records,
)
from tacit.field.peer.peer_history import PeerHistory, same_history
from tacit.protocols.gossip import (
    STRIKES,
    Ids,
    Peer,
    begin_period,
    end_period,
    first_models,
    forget_peer,
    note_acknowledgement,
    receive_model,
)
from tacit.protocols.peer_sampling import MOST_NAMED
from tacit.random import Key
from tacit.types import Array, Clients
from tacit.updates import PeerModels
from tacit.wire.peer_messages import (
    GOODBYE,
    JOIN,
    MODEL,
    PULL,
    PUSH,
    RECORDS,
    WELCOME,
    OpenedMessage,
    PeerEnvelope,
    count_bytes,
    most_bytes,
    read_model,
    read_records,
    write_model,
    write_records,
)
from tacit.wire.peer_records import RECORD_BYTES, PeerRecord, peer_number
from tacit.wire.peer_refusals import PeerMessageError, PeerRefusal

Offer = Callable[[int, int], Ids]
CLOCKS = 9  # acknowledgements whose times are kept
RECORD_KEPT = 3600  # seconds that this peer's record is sent before it is signed anew


@dataclass(frozen=True)
class PeerSend:
    """A message that is ready to leave."""

    kind: int
    to: PeerRecord
    number: int
    sequence: int
    content: bytes


class PeerDevice:
    """A member of a network of peers. All functions may be called from any thread."""

    def __init__(
        self,
        device: Device,
        clock: Clock = system_clock,
        number_of: Callable[[bytes], int] = peer_number,
        offer: Offer | None = None,
    ) -> None:
        """Open what the device's file holds. `number_of` and `offer` are for tests that compare with a simulation."""
        self.device, self._store, self._clock = device, device.store, clock
        self.member = require_membership(self._store)
        self.seal, self.identity = self.member.seal, self.member.seal.identity
        self._number_of, self._offer = number_of, offer or self._offer_sampled
        self.number = number_of(self.identity.id)
        self._guard, self._draws = threading.RLock(), random.SystemRandom()
        root = self._store.get_json("root")
        self._key, self._lane = Key(root["seed"]).child("learn"), int(root["lane"])
        self._history = PeerHistory(device, self.member.catalog, self._lane)
        self._own_record: PeerRecord | None = None
        self.trouble = ""  # why this device itself failed to read a message last
        self._store.lock.take()
        self._load()

    # --- what is on disk ----------------------------------------------------------------------------------------------

    def _load(self) -> None:
        """Read the state from the file; without one, begin with the first model."""
        method, about = self.member.network.built, read_peer_state(self._store)
        self._clients = self._history.cohort()
        stored = self._store.get("peer_models")
        models = first = self._first_models(self._clients)
        if stored is not None and about is not None:
            models = unpack_arrays(stored)
        state = Peer(self.number, models, method.own(self._shared, models, self._clients), [], one_vote=True)
        if method.release is not None:
            from tacit.privacy.noise import SystemNoise

            state.first, state.noise = first, SystemNoise()
        sampler = make_sampler(self.number, None if about is None else about["sampler"])
        self.file = PeerFile(state, sampler) if about is None else restore_peer_file(about, state, sampler)
        if method.release is not None:
            sent = count_sent_periods(self._store, self.seal.network)
            state.ticks = max(state.ticks, min(sent, method.release.periods))
        known = self._store.get("peer_records" if about is not None else "peer_introductions") or b""
        self._meet(unpack_records(known))
        if about is None:
            self.file.sampler.introduce(self.file.records)
        example = method.peer_models(models, np.array([self.number]), state.own).take(np.array([0]))
        self._most = max(most_bytes(RECORD_BYTES + count_bytes(write_model(example))), most_bytes(RECORD_BYTES * 2))

    def _follow_history(self) -> None:
        """Take up what the user changed; a model that was learnt from what is now forbidden begins anew."""
        clients, state, method = self._history.cohort(), self.file.state, self.member.network.built
        is_forbidden = bool(set(self.file.learnt) & set(self._history.forbidden().tolist()))
        if same_history(self._clients, clients) and not is_forbidden:
            return
        self._clients = clients
        fresh = self._first_models(clients)
        if is_forbidden:
            state.models, self.file.learnt = fresh, []
        else:
            state.models = {**state.models, **{name: fresh[name] for name in method.history_arrays}}
        state.own = method.own(self._shared, state.models, clients)

    def _first_models(self, clients: Clients) -> dict[str, Array]:
        network = self.member.network
        first = first_models(network.built, clients, self.member.catalog, network.key, self._key.child("init"))
        self._shared = first.shared
        return dict(first.private)

    @contextmanager
    def _change(self) -> Iterator[None]:
        """Change state and ledger together; if that fails, the state is again what the file holds."""
        with self._guard:
            try:
                with self._store.transaction():
                    self._refuse_if_left()
                    yield
                    self.file.write(self._store)
            except BaseException:
                if self._store.get("network") is not None:
                    self._load()
                raise

    def _refuse_if_left(self) -> None:
        if self._store.get("network") != self.member.content:
            raise ConsentError("This device has left its network of peers.", "Join again: tacit peer join.")

    # --- sending ------------------------------------------------------------------------------------------------------

    def begin_period(self) -> list[PeerSend]:
        """Begin a period: return a model for each peer of the view, noted in the ledger as on its way."""
        with self._change():
            refuse_if_silent(self.device.sharing)
            self._settle_outbox()
            self._follow_history()
            state, lane = self.file.state, np.array([self._lane])
            method = self.member.network.built
            peer_model = begin_period(
                method,
                state,
                self._offer,
                lambda number: np.uint64(self._key.child("choose", number).bits(lane, 1)[0, 0]),
            )
            if peer_model is None:
                return []
            refuse_diverged(peer_model)
            content = write_model(peer_model)
            return [self._release(number, content) for number in state.view if number in self.file.records]

    def _release(self, number: int, content: list[bytes | memoryview]) -> PeerSend:
        """Seal a model for one peer, and write the entry of the ledger, inside a transaction."""
        send = self._sealed(MODEL, self.file.records[number], *content)
        to = f"{self.member.network.title}: peer {send.to.id.hex()[:6]}"
        rows = MentionedItems([], [], 0, derived=self.member.catalog.n_items, whole=True)
        entry = self.device.ledger.write(self._now_text(), to, self.file.state.ticks, rows, send.content, masked=False)
        self.device.ledger.mark(entry, "releasing", self._now_text())
        self.file.outbox[str(send.sequence)] = entry
        return send

    def _sealed(self, kind: int, to: PeerRecord, *content: bytes | memoryview) -> PeerSend:
        """Seal a message under the next sequence number, inside a transaction. Numbers follow the clock, so that they
        go on rising on a device that was restored from a copy."""
        self.file.sequence = max(self.file.sequence + 1, int(self._now() * 1000))
        sealed = self.seal.seal(to, self.file.sequence, self._now(), kind, self._record().packed, *content)
        return PeerSend(kind, to, self._number_of(to.id), self.file.sequence, sealed)

    def _record(self) -> PeerRecord:
        now, mine = int(self._now()), self._own_record
        if mine is None or not 0 <= now - mine.issued < RECORD_KEPT:
            mine = self._own_record = self.identity.record(self.seal.network, now)
        return mine

    def _settle_outbox(self) -> None:
        """Note of what was on its way when the process died that it may have left; it is not sent again."""
        for entry in self.file.outbox.values():
            self.device.ledger.mark(entry, "may have left", self._now_text(), "the program ended before an answer came")
        self.file.outbox = {}

    def settle(self, send: PeerSend, reply: bytes | None) -> bool:
        """Note what became of a message; say whether it was acknowledged. The reply of a pull is read."""
        return self.settle_all([(send, reply)]) == 1

    def settle_all(self, outcomes: Sequence[tuple[PeerSend, bytes | None]]) -> int:
        """Note what became of messages, all at once; return how many were acknowledged."""
        with self._change():
            return sum([self._settle_one(send, reply) for send, reply in outcomes])

    def withdraw(self, sends: Sequence[PeerSend]) -> None:
        """Note of messages that they were not sent, because the user paused after they were made."""
        with self._change():
            for send in sends:
                entry = self.file.outbox.pop(str(send.sequence), None)
                if entry is not None:
                    self.device.ledger.mark(entry, "not sent", self._now_text(), "paused before it left")

    def _settle_one(self, send: PeerSend, reply: bytes | None) -> bool:
        ack = None if reply is None else self.seal.read_ack(reply, send.content)
        is_read = ack is not None and ack.is_read
        if ack is not None:
            self.file.clock = [*self.file.clock, ack.time - self._now()][-CLOCKS:]
        entry = self.file.outbox.pop(str(send.sequence), None)
        if entry is not None and is_read:
            self.device.ledger.mark(entry, "sent", self._now_text())
        elif entry is not None:
            why = "it was refused" if ack is not None else "it was not acknowledged"
            self.device.ledger.mark(entry, "may have left", self._now_text(), why)
        if send.kind == PULL and ack is not None and is_read:
            self._read_pull(send, ack.rest)
        self._note(send.number, is_read)
        return is_read

    def _note(self, number: int, is_read: bool) -> None:
        """Count whether a peer acknowledges; one that does not, time and again, is forgotten."""
        strikes = self.file.state.strikes.get(number, 0)
        note_acknowledgement(self.file.state, number, is_read)
        if is_read:
            self.file.sampler.note_answer(number)
        elif strikes + 1 >= STRIKES:
            self.file.sampler.drop(number)

    def end_period(self) -> None:
        """End a period: learn, if nothing arrived or the method learns once in each; draw the next view of others."""
        with self._change():
            self._follow_history()
            end_period(self.member.network.built, self.file.state)
            self._note_learnt()
            self.file.sampler.end_period(self._draws)
            self.file.forget(self._now())

    def warm_up(self) -> None:
        """Learn and mix once for nothing: what must be compiled is compiled before others wait for an answer."""
        method, state = self.member.network.built, self.file.state
        own = method.peer_models(state.models, np.array([self.number]), state.own).take(np.array([0]))
        method.learn(method.mix(state.models, own, state.own)[0], state.own)

    def _note_learnt(self) -> None:
        self.file.learnt = sorted({*self.file.learnt, *self._clients.items.tolist()})

    def goodbye(self) -> list[PeerSend]:
        """Return a goodbye for everyone who sends to this peer or receives from it."""
        with self._change():
            state = self.file.state
            known = [number for number in sorted({*state.senders, *state.view}) if number in self.file.records]
            return [self._sealed(GOODBYE, self.file.records[number]) for number in known]

    # --- peer sampling ------------------------------------------------------------------------------------------------

    def exchange_records(self) -> list[PeerSend]:
        """Return the pushes and pulls of this period."""
        with self._change():
            refuse_if_silent(self.device.sharing)
            pushes, pulls = self.file.sampler.targets(self._draws)
            known = self.file.records
            return [
                self._sealed(kind, known[number])
                for kind, numbers in ((PUSH, pushes), (PULL, pulls))
                for number in numbers
                if number in known
            ]

    def ask_again(self) -> list[PeerSend]:
        """Return a push for each peer that did not acknowledge what it was last sent: a dead one is soon left out."""
        with self._change():
            if self.device.sharing.paused:
                return []
            known = self.file.records
            return [self._sealed(PUSH, known[number]) for number in sorted(self.file.state.strikes) if number in known]

    def _read_pull(self, send: PeerSend, reply: bytes) -> None:
        try:
            envelope, inside = self.seal.open_reply(reply, send.content, self._now(), RECORDS)
            if envelope.sender != send.to.id:
                return
            checked = {record.packed for record in self.file.records.values()}
            named = read_records(inside, self.seal.network, self._now(), checked)
        except WireError:
            return
        self.file.sampler.note_pull(self._meet(named))

    def _meet(self, records: list[PeerRecord]) -> list[int]:
        """Keep records of others; return their numbers."""
        found = [(self._number_of(record.id), record) for record in records if record.id != self.identity.id]
        for number, record in found:
            known = self.file.records.get(number)
            if known is None or known.issued < record.issued:
                self.file.records[number] = record
        return [number for number, _ in found]

    def _offer_sampled(self, number: int, n: int) -> Ids:
        return np.array(self.file.sampler.offer(n, self._draws), np.int64)

    # --- receiving ----------------------------------------------------------------------------------------------------

    def receive(self, content: bytes) -> bytes:
        """Read a message; return the reply, empty if it is refused and its sender is not known to be the sender."""
        try:
            envelope = self.seal.read(content, self._most)
            try:
                envelope.refuse_if_expired(self._now())
            except PeerMessageError:
                self.seal.refuse_if_forged(envelope)
                return self.seal.open(envelope).acknowledge(False, self._now())
            with self._guard:
                self._refuse_if_repeated(envelope)
                self.seal.refuse_if_forged(envelope)
                opened, record, inside = self._open(envelope)
                kind = opened.kind
                peer_model = read_model(inside, self._number_of(record.id)) if kind == MODEL else None
                with self._change():
                    refuse_if_silent(self.device.sharing)
                    rest = self._obey(kind, record, envelope, peer_model)
                    self.file.marks[envelope.sender.hex()] = (envelope.sequence, self._now())
            return opened.acknowledge(True, self._now()) + rest
        except (WireError, ConsentError):
            return b""
        except TacitError as error:  # the disk is full, say: nothing was changed, and the sender is not told more
            self.trouble = str(error)
            return b""

    def _refuse_if_repeated(self, envelope: PeerEnvelope) -> None:
        """Refuse a message that was read already, or after a later one of its sender."""
        last = self.file.marks.get(envelope.sender.hex())
        if last is not None and envelope.sequence <= last[0]:
            raise PeerMessageError(PeerRefusal.REPEATED)

    def _open(self, envelope: PeerEnvelope) -> tuple[OpenedMessage, PeerRecord, memoryview]:
        """Return what is inside, the sender's record and the rest of a message; the record must be the sender's own."""
        opened = self.seal.open(envelope)
        if len(opened.content) < RECORD_BYTES or opened.kind in (RECORDS, WELCOME):
            raise PeerMessageError(PeerRefusal.MALFORMED)
        record = self._read_record(bytes(opened.content[:RECORD_BYTES]), envelope.sender)
        if record is None or record.signing != envelope.signing:
            raise PeerMessageError(PeerRefusal.FORGED)
        return opened, record, opened.content[RECORD_BYTES:]

    def _read_record(self, packed: bytes, sender: bytes) -> PeerRecord | None:
        """Return a valid record; one that is known byte by byte has been checked but for its time."""
        known = self.file.records.get(self._number_of(sender))
        if known is not None and known.packed == packed:
            return known if known.is_current(self._now()) else None
        record = PeerRecord.unpack(packed)
        return record if record.is_valid(self.seal.network, self._now()) else None

    def _obey(self, kind: int, record: PeerRecord, envelope: PeerEnvelope, peer_model: PeerModels | None) -> bytes:
        """Do what a message asks for, inside a transaction; return what follows the acknowledgement."""
        (number,) = self._meet([record])
        if peer_model is not None:
            receive_model(self.member.network.built, self.file.state, peer_model)
            self._note_learnt()
            self.file.received += 1
        elif kind == PUSH:
            self.file.sampler.note_push(number)
        elif kind == PULL:
            return self._reply(envelope, record, RECORDS, write_records(self._known_records()))
        elif kind == GOODBYE:
            forget_peer(self.file.state, number)
            self.file.sampler.drop(number)
        elif kind == JOIN:
            self.file.sampler.note_push(number)
            return self._reply(envelope, record, WELCOME, self.member.content)
        return b""

    def _reply(self, envelope: PeerEnvelope, to: PeerRecord, kind: int, content: bytes) -> bytes:
        return self.seal.seal(to, envelope.sequence, self._now(), kind, content, about=envelope.digest)

    def _known_records(self) -> list[PeerRecord]:
        named = self.file.sampler.offer(MOST_NAMED, self._draws)
        return [self.file.records[number] for number in named if number in self.file.records]

    # --- time ---------------------------------------------------------------------------------------------------------

    def _now(self) -> float:
        return self._clock().timestamp()

    def _now_text(self) -> str:
        return self._clock().astimezone(UTC).isoformat(timespec="seconds")
