"""A peer's state in the device's file: model, view, worths, sequence numbers, records of others."""

from __future__ import annotations

import io
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tacit.errors import DivergedError
from tacit.field.device.store import Store
from tacit.numerics import DIVERGENCE_LIMIT
from tacit.protocols.gossip import Peer, forget_peer
from tacit.protocols.peer_sampling import VIEW, PeerSampler
from tacit.types import Array
from tacit.updates import PeerModels
from tacit.wire.peer_records import RECORD_BYTES, PeerRecord

MARKS_KEPT = 3600.0  # seconds: messages expire long before
MOST_RECORDS = 4096  # of other peers that are kept
LISTS = ("view", "senders", "voters")


@dataclass
class PeerFile:
    """All that a peer remembers beside its models."""

    state: Peer
    sampler: PeerSampler
    records: dict[int, PeerRecord] = field(default_factory=dict)
    sequence: int = 0  # of the last message that this peer sealed
    marks: dict[str, tuple[int, float]] = field(default_factory=dict)  # sender -> its last sequence, and when
    outbox: dict[str, int] = field(default_factory=dict)  # sequence -> entry of the ledger, until it is settled
    learnt: list[int] = field(default_factory=list)  # items that the model was ever learnt from
    clock: list[float] = field(default_factory=list)  # what the last acknowledgements say: seconds ahead of ours
    received: int = 0
    _stored: Mapping[str, Array] | None = field(default=None, repr=False)  # the models that the file holds
    _stored_records: bytes | None = field(default=None, repr=False)  # and the records

    def write(self, store: Store) -> None:
        """Write everything, inside a transaction."""
        state = self.state
        about = {
            **{name: sorted(getattr(state, name)) if name != "view" else state.view for name in LISTS},
            "judged": {str(peer): float(worth) for peer, worth in state.judged.items()},
            "strikes": {str(peer): n for peer, n in state.strikes.items()},
            "ticks": state.ticks,
            "unread": state.unread,
            "refused": state.refused,
            "sampler": self.sampler.as_json(),
            "sequence": self.sequence,
            "marks": self.marks,
            "outbox": self.outbox,
            "learnt": self.learnt,
            "clock": self.clock,
            "received": self.received,
        }
        store.put_json("peer_state", about)
        if state.models is not self._stored:  # no function changes a model in place
            store.put("peer_models", pack_arrays(state.models))
            self._stored = state.models
        records = b"".join([record.packed for record in self.records.values()])
        if records != self._stored_records:
            store.put("peer_records", records)
            self._stored_records = records

    def forget(self, now: float) -> None:
        """Forget expired records, and the oldest of too many; and marks of senders whose messages have expired.

        If all have expired, because this peer was away for long, the last ones are kept: whoever is found by them
        answers with new ones. Without any record a peer could never ask others again.
        """
        state, sampler = self.state, self.sampler
        needed = {*state.view, *state.judged, *sampler.view, *sampler.slots}
        kept = {number: record for number, record in self.records.items() if record.expires > now}
        if not kept:
            last = sorted(self.records, key=lambda number: self.records[number].issued)[-VIEW:]
            kept = {number: self.records[number] for number in last}
        spare = sorted((number for number in kept if number not in needed), key=lambda number: kept[number].issued)
        for number in spare[: max(0, len(kept) - MOST_RECORDS)]:
            del kept[number]
        for number in self.records.keys() - kept.keys():
            forget_peer(state, number)
            sampler.drop(number)
        sampler.gone &= kept.keys()
        self.records = kept
        self.marks = {sender: mark for sender, mark in self.marks.items() if now - mark[1] < MARKS_KEPT}


def read_peer_state(store: Store) -> dict[str, Any] | None:
    """Return the stored state as JSON; none before the first period."""
    found: dict[str, Any] | None = store.get_json("peer_state")
    return found


def restore_peer_file(about: Mapping[str, Any], state: Peer, sampler: PeerSampler) -> PeerFile:
    """Put what was stored into a fresh state."""
    state.view = [int(peer) for peer in about["view"]]
    state.senders, state.voters = set(about["senders"]), set(about["voters"])
    state.judged = {int(peer): np.float32(worth) for peer, worth in about["judged"].items()}
    state.strikes = {int(peer): int(n) for peer, n in about["strikes"].items()}
    state.ticks, state.unread, state.refused = about["ticks"], about["unread"], about["refused"]
    return PeerFile(
        state,
        sampler,
        {},
        about["sequence"],
        {sender: (int(mark[0]), float(mark[1])) for sender, mark in about["marks"].items()},
        dict(about["outbox"]),
        list(about["learnt"]),
        list(about["clock"]),
        about["received"],
    )


def make_sampler(me: int, about: Mapping[str, Any] | None) -> PeerSampler:
    """Return the sampler of a peer: as it was stored, or a new one with a secret of its own."""
    if about is None:
        return PeerSampler(me, secrets.token_bytes(32))
    return PeerSampler(
        me,
        bytes.fromhex(about["secret"]),
        view=list(about["view"]),
        slots=list(about["slots"]),
        gone=set(about["gone"]),
        introduced=list(about.get("introduced", ())),
    )


def unpack_records(content: bytes) -> list[PeerRecord]:
    """Read the records of other peers."""
    return [PeerRecord.unpack(content[at : at + RECORD_BYTES]) for at in range(0, len(content), RECORD_BYTES)]


def pack_arrays(arrays: Mapping[str, Array]) -> bytes:
    """Write arrays of any shape, for this file only."""
    buffer = io.BytesIO()
    np.savez(buffer, **dict(arrays))  # type: ignore[arg-type]
    return buffer.getvalue()


def unpack_arrays(content: bytes) -> dict[str, Array]:
    """Read arrays back."""
    with np.load(io.BytesIO(content), allow_pickle=False) as found:
        return {name: found[name] for name in found.files}


def refuse_diverged(peer_model: PeerModels) -> None:
    """Refuse to send a model that has diverged."""
    for table in peer_model.tables.values():
        if not float(np.abs(table).max(initial=0.0)) < DIVERGENCE_LIMIT:
            raise DivergedError("Learning on this device has diverged; nothing was sent.", "Leave and join again.")
