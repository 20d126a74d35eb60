"""The placebo test: with random items in place of the held-out ones, training must give the same model.

A method is never given the held-out items, so its model must not depend on them. To check that, it is trained once more
while every held-out item is replaced by a placebo, a random item.

If the model and its scores keep their bits, they do not depend on what was held out. If they change, the method is
trained a third time as at first. If that gives the first bits again, only the held-out items can have changed them: a
leak for certain. Otherwise the method draws without the key, and bits cannot be compared. Then the ranks of placebos
are compared with those of controls, which were drawn alike and never held out. Given the training data, either of the
two is equally likely to be the placebo. So flipping the signs of users' differences is an exact test, also for personal
models and for methods with item features.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.evaluation.heldout import open_heldout
from tacit.evaluation.leak import LEVEL, discounted_gains, rank_among_rivals
from tacit.evaluation.metrics import Values
from tacit.heldout import Heldout
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Floats, offsets, ragged_rows

TURNS = 9999  # random sign flips: the least p-value is 1 / (TURNS + 1), for each of two statistics
BLOCK = 256  # users whose items are drawn at once


@dataclass(frozen=True)
class Placebo:
    """Per user as many placebos as items were held out, and as many controls, drawn alike from unseen items.

    A user with few unseen items has fewer of both. Held-out items are neither.
    """

    placebos: Clients
    controls: Clients


@dataclass(frozen=True)
class PlaceboResult:
    """Whether training depends on what was held out. `is_repeatable` is none where that did not have to be known."""

    changed: bool
    is_repeatable: bool | None = None
    users: int = 0  # users whose placebos and controls were compared
    p_values: dict[str, float] = field(default_factory=dict)  # per statistic, corrected for there being two

    @property
    def ok(self) -> bool:
        """False if the test found a leak."""
        if not self.changed:
            return True
        return not self.is_repeatable and min(self.p_values.values(), default=1.0) >= LEVEL

    @property
    def is_exact(self) -> bool:
        """True if the result is certain, not a matter of probability."""
        return not self.changed or bool(self.is_repeatable)

    @property
    def reason(self) -> str:
        """What the test found, in a sentence."""
        if not self.changed:
            return "With random items held out, training gives the same model"
        if self.is_repeatable:
            return "Training reads what was held out: with random items held out it gives another model"
        name = min(self.p_values, key=lambda one: self.p_values[one], default="")
        chance = f" ({name}, p = {self.p_values[name]:.2g}, {self.users} users)" if name else ""
        if self.ok:
            return f"The method is not repeatable; random items held out rank no better than others{chance}"
        return f"Training reads what was held out: random items held out rank better than others{chance}"

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain JSON."""
        return {
            "ok": self.ok,
            "changed": self.changed,
            "is_repeatable": self.is_repeatable,
            "users": self.users,
            "p_values": dict(self.p_values),
            "reason": f"{self.reason}.",
        }


def draw_placebo(heldout: Heldout, catalog: Catalog, key: Key) -> Placebo:
    """Draw placebos and controls for every user; a draw depends on the key and the user."""
    data, (truth, _) = open_heldout(heldout, catalog), heldout.open()
    chosen: list[tuple[Array, Array]] = []
    for start in range(0, len(data), BLOCK):
        ids = data.ids[start : start + BLOCK]
        draws = key.uniform(ids, catalog.n_items)
        for row in range(len(ids)):
            u = start + row
            out = data.truth[data.truth_ptr[u] : data.truth_ptr[u + 1]]
            draws[row, out[out >= 0]] = draws[row, data.seen[data.seen_ptr[u] : data.seen_ptr[u + 1]]] = 2.0
            n = min(int(truth.sizes[u]), int((draws[row] < 1).sum()) // 2)
            best = np.argsort(draws[row], kind="stable")[: 2 * n]
            chosen.append((np.sort(best[::2]), np.sort(best[1::2])))
    return Placebo(*(_with_items(truth, [pair[which] for pair in chosen]) for which in (0, 1)))


def _with_items(truth: Clients, items: list[Array]) -> Clients:
    """Return held-out parts with other items, which keep ratings and times of the rows they stand for."""
    ptr = offsets(np.array([len(own) for own in items]))
    rows = ragged_rows(ptr, np.arange(len(items)))
    at = rows - np.repeat(ptr[:-1], np.diff(ptr)) + np.repeat(truth.ptr[:-1], np.diff(ptr))
    return Clients(
        truth.ids,
        ptr,
        np.concatenate([*items, np.empty(0, np.int64)]).astype(np.int32),
        truth.n_items,
        None if truth.values is None else truth.values[at],
        None if truth.times is None else truth.times[at],
    )


@contextmanager
def hold_out(heldout: Heldout, placebo: Placebo, train: Clients) -> Iterator[Clients]:
    """Put placebos in the place of the held-out items, and yield training parts that spare these where any do.

    The held-out object itself changes, so code that has got hold of it reads placebos too. It is as before afterwards.
    """
    truth, _ = heldout.open()
    spared = train.avoid
    with heldout.replace(placebo.placebos):
        if spared is None:
            yield train
        else:
            kept = [
                np.union1d(np.setdiff1d(spared.of(u), truth.of(u)), placebo.placebos.of(u)) for u in range(len(truth))
            ]
            avoid = Clients(
                truth.ids,
                offsets(np.array([len(own) for own in kept])),
                np.concatenate(kept).astype(np.int32),
                train.n_items,
            )
            yield Clients(train.ids, train.ptr, train.items, train.n_items, train.values, train.times, avoid)


def compare_ranks(
    scores: Floats, positions: NDArray[np.int64], placebo: Placebo, heldout: Heldout, key: Key
) -> tuple[int, dict[str, float]]:
    """Return how many users were compared, and how likely placebos lead controls so far by chance, per statistic.

    `scores` [P, n_items] are those of the users at `positions`. Two corrections are part of the p-values: for there
    being two statistics, and for random sign flips instead of all.
    """
    _, seen = heldout.open()
    gains = discounted_gains(seen.n_items)
    leads = []
    for row, u in enumerate(positions.tolist()):
        pair = (placebo.placebos.of(u), placebo.controls.of(u))
        is_rival = np.ones(seen.n_items, np.bool_)
        for taken in (*pair, seen.of(u)):
            is_rival[taken] = False
        if len(pair[0]) and is_rival.any():
            own, other = (rank_among_rivals(scores[row], items, is_rival, gains) for items in pair)
            leads.append((own[0] - other[0], own[1] - other[1]))
    table = np.array(leads).reshape(-1, 2)
    turns = [key.child(name) for name in ("AUC", "gain")]
    p_values = [min(1.0, 2 * turn_signs(table[:, at], turns[at])) for at in (0, 1)]
    return len(table), {"AUC": p_values[0], "gain": p_values[1]}


def turn_signs(differences: Values, key: Key) -> float:
    """Return the one-sided p-value of a positive mean when either sign is equally likely.

    >>> turn_signs(np.ones(20), Key(1)) < 0.001, turn_signs(np.zeros(20), Key(1))
    (True, 1.0)
    """
    nonzero = differences[differences != 0]
    if not len(nonzero):
        return 1.0
    observed, at_least = nonzero.sum() * (1 - 1e-12), 1
    rng = key.generator()
    for start in range(0, TURNS, 500):
        signs = rng.integers(0, 2, (min(500, TURNS - start), len(nonzero)), np.int8)
        at_least += int(np.count_nonzero((2.0 * signs - 1.0) @ nonzero >= observed))
    return at_least / (TURNS + 1)
