"""Opening, narrowing and sampling the held-out part of a split."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tacit.errors import EvaluationError
from tacit.heldout import Heldout
from tacit.kernels.topk import is_distinct, seen_before
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, offsets


@dataclass(frozen=True)
class HeldoutItems:
    """Held-out and seen items as ragged arrays over the same users, each item once per user and ascending."""

    ids: NDArray[np.int64]  # [users]
    truth_ptr: NDArray[np.int64]
    truth: NDArray[np.int32]  # -1 where the item is not in the catalogue
    seen_ptr: NDArray[np.int64]
    seen: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def truth_seen(self) -> NDArray[np.bool_]:
        """Which held-out items are in the user's history too, [H]."""
        seen: NDArray[np.bool_] = seen_before(self.truth_ptr, self.truth, self.seen_ptr, self.seen)
        return seen

    @property
    def with_truth(self) -> NDArray[np.int64]:
        """Positions of users with something held out."""
        return np.flatnonzero(np.diff(self.truth_ptr))

    def cut(self, rows: slice) -> HeldoutItems:
        """Return the same of a range of users; its arrays are views."""
        truth, seen = (ptr[rows.start : rows.stop + 1] for ptr in (self.truth_ptr, self.seen_ptr))
        return HeldoutItems(
            self.ids[rows],
            truth - truth[0],
            self.truth[truth[0] : truth[-1]],
            seen - seen[0],
            self.seen[seen[0] : seen[-1]],
        )


def open_heldout(heldout: Heldout, catalog: Catalog) -> HeldoutItems:
    """Open what was held out and check that it fits the catalogue and that there is something to evaluate."""
    truth, seen = heldout.open()
    if len(truth) != len(seen) or not np.array_equal(truth.ids, seen.ids):
        raise EvaluationError(
            f"Held-out items of {len(truth)} users do not match the histories of {len(seen)} users.",
            "Both must list the same users in the same order.",
        )
    for what, clients in (("held-out", truth), ("seen", seen)):
        least = -1 if what == "held-out" else 0
        if len(clients.items) and not (least <= clients.items.min() and clients.items.max() < catalog.n_items):
            raise EvaluationError(
                f"A {what} item is outside the catalogue of {catalog.n_items} items.",
                "Evaluate with the catalogue of the split.",
            )
    if len(truth.items) == 0:
        raise EvaluationError(
            f"There is nothing to evaluate: none of the {len(truth)} users has a held-out item.",
            "Hold out more (split.test), or keep users with longer histories.",
        )
    truth_ptr, truth_items = _distinct(truth)
    seen_ptr, seen_items = _distinct(seen)
    return HeldoutItems(truth.ids, truth_ptr, truth_items, seen_ptr, seen_items)


def _distinct(clients: Clients) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return (ptr, items) with each item once per user; items outside the catalogue stay apart."""
    if is_distinct(clients.ptr, clients.items):
        return clients.ptr, clients.items
    items, rows = clients.items, clients.rows
    same_user = rows[1:] == rows[:-1]
    if np.any(same_user & (items[1:] < items[:-1])):
        items = items[np.lexsort((items, rows))]
    keep = np.ones(len(items), np.bool_)
    keep[1:] = ~(same_user & (items[1:] == items[:-1])) | (items[1:] < 0)
    return offsets(np.bincount(rows[keep], minlength=len(clients))), items[keep]


def select_heldout(heldout: Heldout, positions: Array) -> Heldout:
    """Return what was held out from some users, in that order; the scorer then gets positions among these."""
    truth, seen = heldout.open()
    return Heldout(truth.take(positions), seen.take(positions))


def sample_users(heldout: Heldout, n: int, key: Key) -> NDArray[np.int64]:
    """Choose n users with something held out (all, if there are fewer): their positions, ascending.

    Whether a user is chosen depends on the key and the ids, not on the order of users.
    """
    truth, _ = heldout.open()
    able = np.flatnonzero(truth.sizes)
    drawn = key.bits(truth.ids[able], 1)[:, 0]
    return np.sort(able[np.argsort(drawn, kind="stable")[:n]])
