"""Next-item evaluation at every step: each held-out item is asked for after the ones before it have become known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tacit.evaluation.config import EvaluationConfig
from tacit.evaluation.evaluate import SAMPLE, evaluate
from tacit.evaluation.heldout import sample_users, select_heldout
from tacit.evaluation.ranking import EvaluationOptions
from tacit.evaluation.result import Evaluation
from tacit.heldout import Heldout
from tacit.random import Key
from tacit.types import Catalog, Clients, Floats, offsets, ragged_rows


def evaluate_steps(
    score: Callable[[Clients], Floats],
    heldout: Heldout,
    catalog: Catalog,
    config: EvaluationConfig,
    key: Key,
    threads: int = 1,
) -> Evaluation:
    """Measure a scorer of histories: one value per user, the mean over the user's steps. There are no lists.

    At step t the history is what training knew of the user and the first t held-out items, oldest first; the next one
    alone is to be found. Items outside the catalogue are asked for, never found, and no part of a history.
    """
    chosen = sample_users(heldout, config.users or len(heldout), SAMPLE)
    steps, owners = open_steps(select_heldout(heldout, chosen))
    truth, _ = heldout.open()
    _, histories = steps.open()
    histories = replace(histories, ids=truth.ids[chosen][owners])  # who it is: some methods keep what a user did
    single = config.model_copy(update={"users": 0})
    options = EvaluationOptions(threads=threads, lists=False)
    found = evaluate(lambda positions: score(histories.take(positions)), steps, catalog, single, key, options)
    n_steps = np.bincount(owners, minlength=len(chosen))
    values = {name: np.bincount(owners, value, len(chosen)) / n_steps for name, value in found.values.items()}
    return replace(
        found,
        users=truth.ids[chosen],
        rows=chosen,
        values=values,
        overall={name: float(value.mean()) for name, value in values.items()},
        notes=(*found.notes, f"{len(owners):,} steps of {len(chosen):,} users; a user's value is the mean over steps"),
    )


def open_steps(heldout: Heldout) -> tuple[Heldout, NDArray[np.int64]]:
    """Return one user for every held-out item, with the history before it, and whose step it is: positions [steps]."""
    truth, seen = heldout.open()
    sizes, known = truth.sizes, seen.sizes
    owners = np.repeat(np.arange(len(truth)), sizes)
    step = np.arange(len(owners)) - np.repeat(truth.ptr[:-1], sizes)  # how many held-out items came before
    asked = truth.items[truth.in_order]
    place = np.empty(len(seen.items), np.int64)
    place[seen.in_order] = np.arange(len(place)) - np.repeat(seen.ptr[:-1], known)

    of_seen = ragged_rows(seen.ptr, owners)
    of_truth = ragged_rows(truth.ptr, owners)
    at_truth = np.repeat(np.arange(len(owners)), sizes[owners])
    ahead = of_truth - truth.ptr[owners[at_truth]]
    is_before = (ahead < step[at_truth]) & (asked[of_truth] >= 0)
    at = np.concatenate([np.repeat(np.arange(len(owners)), known[owners]), at_truth[is_before]])
    items = np.concatenate([seen.items[of_seen], asked[of_truth[is_before]]])
    places = np.concatenate([place[of_seen], known[owners[at_truth[is_before]]] + ahead[is_before]])
    order = np.argsort(at * (np.int64(seen.n_items) + 1) + items, kind="stable")
    ids = np.arange(len(owners))  # candidates of a sampled protocol are drawn for each step
    history = Clients(
        ids,
        offsets(np.bincount(at, minlength=len(owners))),
        items[order],
        seen.n_items,
        places=places[order].astype(np.int32),
    )
    return Heldout(Clients(ids, np.arange(len(owners) + 1), asked, truth.n_items), history), owners
