"""The demonstration: one real device in the generated town; all other users are simulated.

The device is the one that a user has: an encrypted file, a ledger, messages in bytes. Only the others and the
coordinator live in this process; a round is the same two functions as everywhere.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from pathlib import Path

import numpy as np

from tacit.data import load
from tacit.errors import ConsentError
from tacit.field.device import Device, ScryptCost
from tacit.field.device.history import HistoryEntry
from tacit.field.exchange import respond
from tacit.numerics import one_blas_thread
from tacit.privacy.disclosure import Disclosure, DisclosureConfig
from tacit.protocols.federated import UpdatePath, device_round, server_round
from tacit.random import Key
from tacit.reasons import ReasonCode
from tacit.types import Array, Catalog, Clients, Model, Progress, Vocabulary
from tacit.updates import Total
from tacit.wire.federation import Federation
from tacit.wire.messages import Request, read_update, write_request, write_welcome

METHOD = {"learning_rate": 0.05, "local_steps": 24, "reg_user": 0.05, "reg_positive": 0.05, "reg_negative": 0.005}
BEFORE = 60  # rounds of the others before the user joins
WITH_USER = 3  # rounds of the user before the page opens
OTHERS_PI = 0.5
SEED = 42
MOST_OWN = 45  # items of the history that the user gets: enough to learn from, few enough to read


class Town:
    """A federation of simulated users, and one real device."""

    def __init__(self, federation: Federation, catalog: Catalog, others: Clients, key: Key) -> None:
        self.federation, self.catalog, self.others, self._key = federation, catalog, others, key
        self.n_others = len(others)
        self.device: Device | None = None
        self.number = 0
        self._counted = -1  # the last round in which an answer of the user was added
        self._shared = federation.first_model(catalog, key.child("init"))
        self._private = dict(federation.built.init(others, catalog, key.child("init")).private)
        ids_of_others = Vocabulary(np.arange(int(others.ids.max()) + 1))
        self._stages = (Disclosure.build(DisclosureConfig(pi=OTHERS_PI), ids_of_others, catalog, key),)

    @classmethod
    def create(cls, path: Path, progress: Progress) -> Town:
        """Found a federation in the town, train it, and create the user's device at `path`."""
        data = load("town")
        log, catalog = data.interactions, data.catalog
        pairs = np.unique(np.stack([log.users, log.items]), axis=1)
        sizes = np.bincount(pairs[0])
        user = int(np.flatnonzero(sizes <= MOST_OWN)[np.argmax(sizes[sizes <= MOST_OWN])])
        others = _cohort(pairs[:, pairs[0] != user], catalog.n_items)
        federation = Federation.create(secrets.token_hex(16), "Tacit Town", "fpl", METHOD, catalog)
        town = cls(federation, catalog, others, Key(SEED))
        for at in range(BEFORE):
            progress("the town learns", at, BEFORE)
            town.round()
        town.device = Device.create(path, secrets.token_urlsafe(32), cost=ScryptCost(log_n=12))
        town.device.join(write_welcome(federation, catalog), "simulation", accepts={ReasonCode.NO_GUARANTEE})
        # the page shows what leaves in a readable round; the simulated server is this program
        town.device.change(lambda before: before.model_copy(update={"masked_only": False}))
        mine = log.users == user
        times = log.times[mine] if log.times is not None else np.zeros(int(mine.sum()), np.int64)
        newest = dict(sorted(zip(log.items[mine].tolist(), times.tolist(), strict=True), key=lambda did: did[1]))
        town.device.history.add([HistoryEntry(catalog.item_ids[item], when) for item, when in newest.items()], catalog)
        for _ in range(WITH_USER):
            town.round()
        return town

    def round(self) -> None:
        """Run one round: all learn; the device too, unless it is paused, has left or has an empty history."""
        method, ring, shared = self.federation.built, self.federation.ring, self._shared
        path, shapes = UpdatePath(method, self._stages, ring), method.shapes(shared)
        total = Total.zero(shapes)
        with one_blas_thread():
            model = Model(shared, self._private)
            self._private = dict(device_round(path, model, self.others, self._key, self.number, total).private)
            for content in self._ask_device():
                total.add(read_update(self.federation, self.number, content, shapes))
                self._counted = self.number
            self._shared = dict(server_round(path, shared, total))
        if self.device is not None and self.device.membership is not None:
            self.device.receive(self._request(learn=False))
        self.number += 1

    def _ask_device(self) -> list[bytes]:
        """Ask the device; return its message, if there is one."""
        device = self.device
        answers: list[bytes] = []
        if device is not None and device.membership is not None and not device.sharing.paused and len(device.history):
            with suppress(ConsentError):  # the user may have chosen secure sums only, and these neighbours have none
                respond(device, self._request(learn=True), answers.append)
        return answers

    def _request(self, learn: bool) -> bytes:
        return write_request(
            self.federation, Request(self.number, self.federation.download(self._shared), learn, self._counted)
        )


def _cohort(pairs: Array, n_items: int) -> Clients:
    """Return clients, numbered from 1, from (user, item) pairs in order; 0 is the real device."""
    n_others, ptr = np.unique(pairs[0], return_index=True)
    ends = np.append(ptr, pairs.shape[1]).astype(np.int64)
    return Clients(np.arange(1, len(n_others) + 1), ends, pairs[1].astype(np.int32), n_items)
