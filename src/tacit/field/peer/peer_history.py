"""What a peer learns from: the user's history without what is never shared."""

from __future__ import annotations

from typing import Any

import numpy as np

from tacit.errors import MethodError
from tacit.field.device import Device, Sharing
from tacit.types import Array, Catalog, Clients, Label


class PeerHistory:
    """The history of a device as a peer sees it."""

    def __init__(self, device: Device, catalog: Catalog, lane: int) -> None:
        self._device, self._catalog, self._lane = device, catalog, lane
        self._never: tuple[Any, Array] | None = None

    def cohort(self) -> Clients:
        """Return the history as a cohort of one; nothing is learnt from items of the never list."""
        clients = self._device.history.clients(self._lane, self._catalog)
        forbidden = self.forbidden()
        clients = clients.keep(~np.isin(clients.items, forbidden)) if len(forbidden) else clients
        if not len(clients.items):
            raise MethodError(
                "Your history is empty, or all of it is on your never list: there is nothing to learn from.",
                "Add items: tacit device history add.",
            )
        return clients

    def forbidden(self) -> Array:
        """Return the items of the never list, as it is on disk now."""
        sharing: Sharing = self._device.sharing
        settings = (sharing.never_items, sharing.never_categories)
        if self._never is None or self._never[0] != settings:
            self._never = (settings, find_never(self._catalog, *settings))
        return self._never[1]


def find_never(catalog: Catalog, items: tuple[Label, ...], categories: tuple[str, ...]) -> Array:
    """Return the items that are never shared, by their own name or by a category."""
    found = {catalog.item_ids.place(label) for label in items}
    labels = catalog.categories
    if labels is not None and categories:
        found |= {item for item in range(catalog.n_items) if set(labels.of(item)) & set(categories)}
    return np.array(sorted(item for item in found if item is not None), np.int64)


def same_history(before: Clients, after: Clients) -> bool:
    """Say whether two cohorts of one hold the same history."""
    return all(
        (mine is None and theirs is None) or (mine is not None and theirs is not None and np.array_equal(mine, theirs))
        for mine, theirs in (
            (before.items, after.items),
            (before.times, after.times),
            (before.places, after.places),
            (before.values, after.values),
        )
    )
