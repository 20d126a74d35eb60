"""What a peer knows and has done, in counts: for `tacit peer status`, and for whoever looks after a network."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from statistics import median

import numpy as np

from tacit.errors import MethodError
from tacit.field.device import Device
from tacit.field.device.ledger import MAY_HAVE_LEFT
from tacit.field.device.sent_periods import count_sent_periods
from tacit.field.peer.membership import PeerMembership, require_membership
from tacit.field.peer.peer_file import read_peer_state, unpack_arrays, unpack_records
from tacit.field.peer.peer_history import PeerHistory
from tacit.methods.base import options
from tacit.protocols.peer_sampling import NO_PEER
from tacit.serving.lists import Recommendation
from tacit.serving.recommender import Recommender
from tacit.types import Model, Vocabulary

CLOCK_OFF = 120.0  # seconds, above which the clock is named as a problem


@dataclass(frozen=True)
class PeerStatus:
    """Counts, not names."""

    network: str
    method: str
    is_running: bool
    is_paused: bool
    periods: int
    known: int  # peers with a valid record
    view: int  # peers that the model goes to
    sampled: int  # different peers in the slots of the sampler
    dead: int  # peers that did not answer and are left out
    senders: int  # different peers whose models it read since it last chose its view: its in-degree
    received: int  # models that were read
    refused: int  # models that were no models, or a second one of a period
    sent: int  # messages that may have left, by the ledger
    receivers: int  # different peers that they were for
    age: int  # how often the model was updated
    clock_off: float  # seconds by which the clocks of others are ahead, in the middle
    routers: tuple[str, ...]
    epsilon: float | None  # what all sent models tell of the history, by the local guarantee; none without one
    epsilon_limit: float | None  # and at most will
    periods_to_send: int | None  # in which it will still send; none: no end

    def as_json(self) -> dict[str, object]:
        """Return it as a JSON object."""
        return asdict(self)


def read_status(device: Device) -> PeerStatus:
    """Read the status from the device's file; a running peer is not disturbed."""
    member, store = require_membership(device.store), device.store
    about = read_peer_state(store) or {}
    records = unpack_records(store.get("peer_records" if about else "peer_introductions") or b"")
    mine = [entry for entry in device.ledger.list() if entry.to.startswith(f"{member.network.title}: peer ")]
    left = [entry for entry in mine if entry.state in MAY_HAVE_LEFT]
    models = store.get("peer_models")
    slots = about.get("sampler", {}).get("slots", [])
    ticks = max(about.get("ticks", 0), count_sent_periods(store, member.network.digest))
    spent, limit, left_periods = _read_guarantee(member, ticks, models)
    return PeerStatus(
        member.network.title,
        member.network.method,
        device.participation.is_running,
        device.sharing.paused,
        about.get("ticks", 0),
        sum(record.is_valid(member.network.digest, time.time()) for record in records),
        len(about.get("view", [])),
        len({peer for peer in slots if peer != NO_PEER}),
        len(about.get("sampler", {}).get("gone", [])),
        len(about.get("senders", [])),
        about.get("received", 0),
        about.get("refused", 0),
        len(left),
        len({entry.to for entry in left}),
        0 if models is None else int(unpack_arrays(models)["age"][0]),
        float(median(about.get("clock") or [0.0])),
        member.routers,
        spent,
        limit,
        left_periods,
    )


def _read_guarantee(
    member: PeerMembership, ticks: int, models: bytes | None
) -> tuple[float | None, float | None, int | None]:
    """Return what was spent of a guarantee, what will be at most, and how many periods are left to send in."""
    release = member.network.built.release
    if release is None:
        return None, None, None
    left = max(0, release.periods - ticks) if release.periods else None
    if not release.noise:
        return None, None, left
    arrays = {} if models is None else unpack_arrays(models)
    numbers = max(1, sum(arrays[name].size for name in member.network.built.sent if name in arrays))
    sent = min(ticks, release.periods)
    return release.epsilon(sent, numbers), release.epsilon(release.periods, numbers), left


def recommend_from_peer(device: Device, n: int) -> list[Recommendation]:
    """Return the best n items that are neither in the history nor hidden, from the model of this peer."""
    member: PeerMembership = require_membership(device.store)
    stored = device.store.get("peer_models")
    if stored is None:
        raise MethodError("This peer has no model yet.", "Take part first: tacit peer run.")
    method, config = member.network.method, options(member.network.method, member.network.options)
    clients = device.history.clients(0, member.catalog)
    PeerHistory(device, member.catalog, 0).cohort()  # refuses an empty one
    shared = member.network.built.init(clients, member.catalog, member.network.key).shared
    model = Model(shared, unpack_arrays(stored))
    counter = Recommender(method, config, model, clients, member.catalog, Vocabulary(np.zeros(1, np.int64)))
    hidden = device.preferences.hidden
    return [found for found in counter.recommend(0, n + len(hidden)) if found.item not in hidden][:n]
