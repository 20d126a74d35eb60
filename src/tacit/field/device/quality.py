"""The quality of recommendations, measured on the device: would the newest item have been in the list?

An item is tested first and learnt from afterwards. The arriving model and the private part have not learnt from items
added since the last round. So no item is held back from learning, and no learnt item is tested. The answer is one yes
or no. It leaves only inside the two stages of a secure sum, where users are counted before anything is added, and only
about an item that may leave at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tacit.errors import DeviceError
from tacit.field.device.history import History
from tacit.field.device.learning import private_before
from tacit.field.device.membership import Membership
from tacit.field.device.settings import Sharing
from tacit.numerics import one_blas_thread
from tacit.protocols.secure_aggregation.two_stage import QUALITY
from tacit.random import Key
from tacit.types import Clients, Label
from tacit.updates import Message
from tacit.wire.messages import Request

if TYPE_CHECKING:
    from tacit.privacy.disclosure import Disclosure

SHOWN = 10  # items in the list


@dataclass(frozen=True)
class QualityMeasurement:
    """One measurement: in which round, on which item if there was one to measure, and whether it was in the list."""

    round: int
    item: Label | None = None
    hit: bool = False


@dataclass(frozen=True)
class AllowedItems:
    """The items of a history that the settings allow messages about.

    Coins that are tossed once for each item come from `coins`: an item that is kept back is none of them.
    """

    member: Membership
    sharing: Sharing
    history: History
    client_id: int
    coins: Key

    def has(self, item: Label | None) -> bool:
        """Return whether an item is one of them."""
        if item is None or not self.sharing.measure or self.sharing.pi == 0:
            return False
        if item not in {entry.item for entry in self.history.list()}:
            return False
        place, stage = self.member.catalog.item_ids.place(item), self._stage
        return place is not None and not stage.kept_back(self.client_id, np.array([place]))[0]

    @cached_property
    def _stage(self) -> Disclosure:
        return self.sharing.stage(self.client_id, self.member.catalog, self.coins)


def measure_quality(allowed: AllowedItems, hidden: Sequence[Label], request: Request, key: Key) -> QualityMeasurement:
    """Measure, or return what was measured in this round before; of no item where there is none to measure."""
    member, history, client_id = allowed.member, allowed.history, allowed.client_id
    last, learnt_from, nothing = (
        member.last_measurement(),
        member.read_learnt_items(),
        QualityMeasurement(request.round),
    )
    if last is not None and last["round"] == request.round:
        again = QualityMeasurement(**last)
        return again if allowed.has(again.item) else nothing
    if learnt_from is None:
        return nothing
    item = _newest(allowed, learnt_from)
    clients = _without_new(history.clients(client_id, member.catalog), learnt_from)
    if item is None or not len(clients.items):
        return nothing
    with one_blas_thread():
        private = private_before(member, request, clients, key)
        scores = member.federation.built.score(request.shared, private, clients)[0]
    place, places = member.catalog.item_ids.index(item, "item"), np.arange(member.catalog.n_items)
    is_better = (scores > scores[place]) | ((scores == scores[place]) & (places < place))
    is_better[clients.items] = False
    for hidden_at in map(member.catalog.item_ids.place, hidden):
        if hidden_at is not None:  # it may have been hidden in another federation's catalogue
            is_better[hidden_at] = False
    return QualityMeasurement(request.round, item, int(is_better.sum()) < SHOWN)


def measure_for_sum(allowed: AllowedItems, hidden: Sequence[Label], request: Request, key: Key) -> QualityMeasurement:
    """Measure for a secure sum; what cannot be measured with this history and this model is about no item."""
    try:
        return measure_quality(allowed, hidden, request, key)
    except DeviceError:
        raise
    except Exception:
        return QualityMeasurement(request.round)


def with_quality(message: Message, found: QualityMeasurement | None) -> Message:
    """Return a message with one more table: whether the item was in the list, or nothing."""
    n = 0 if found is None or found.item is None else 1
    number = np.full((n, 1), 0 if found is None else int(found.hit), np.int64)
    table = np.array([0, n], np.int64), np.zeros(n, np.int32), number
    return replace(message, tables={**message.tables, QUALITY: table})


def _newest(allowed: AllowedItems, learnt_from: NDArray[np.bool_]) -> Label | None:
    """Return the last added item that was not learnt from yet and that may be sent."""
    for entry in reversed(allowed.history.list()):
        place = allowed.member.catalog.item_ids.place(entry.item)
        if place is not None and not learnt_from[place] and allowed.has(entry.item):
            return entry.item
    return None


def _without_new(clients: Clients, learnt_from: NDArray[np.bool_]) -> Clients:
    """Return the history of the last round, without items removed since."""
    old = learnt_from[clients.items]
    return clients.keep(old)
