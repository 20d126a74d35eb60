"""The recipe of IFedRec: its compiled rounds against the same rounds written out, and what it learns."""

from __future__ import annotations

import numpy as np

from tacit.studies.ifedrec import BATCH, IFedRec, IFedRecOptions
from tacit.testing import make_clients, two_tastes
from tacit.types import Array

N_ITEMS, WIDTH = 90, 7


def written_out(learner: IFedRec) -> None:
    """Make one round in plain numpy; the draws are the learner's."""
    options, table, known = learner.options, learner.table, learner.known
    moves = np.zeros_like(table)
    for client, scorer in enumerate(learner.scorers):
        order, is_own = learner._draw(client)
        for start in range(0, len(order), BATCH):
            items, wanted = order[start : start + BATCH], is_own[start : start + BATCH]
            rows = np.hstack([table[items], np.ones((len(items), 1))])
            scorer -= options.lr_client * slopes(rows, scorer, wanted) @ rows
            moves[items] += slopes(rows, scorer, wanted)[:, None] * scorer[:-1]
    rate = options.lr_client * len(known) * options.lr_eta
    table -= rate / len(learner.clients) * moves
    pull = min(1.0, rate * options.reg * 2 / (len(known) * options.factors))
    table[known] += pull * (learner.network(learner.vectors[known]) - table[known])
    learner.network.learn(learner.vectors[known], table[known])


def slopes(rows: Array, scorer: Array, wanted: Array) -> Array:
    found: Array = (1 / (1 + np.exp(-np.clip(rows @ scorer, -30, 30))) - wanted) / len(rows)
    return found


def test_a_round_is_that_of_the_formulas() -> None:
    rng = np.random.default_rng(3)
    sizes = [0, 1, 5, 60, 80]  # no batch, a batch that is not full, more than one
    clients = make_clients([rng.choice(N_ITEMS - 5, size, replace=False) for size in sizes], N_ITEMS)
    vectors = rng.normal(size=(N_ITEMS, WIDTH)).astype(np.float32)
    options = IFedRecOptions(factors=4, rounds=3, lr_eta=1.0)
    fast, plain = (IFedRec(clients, vectors, options, seed=2) for _ in range(2))
    for _ in fast.rounds():
        written_out(plain)
    np.testing.assert_allclose(fast.scorers, plain.scorers, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(fast.table, plain.table, rtol=1e-9, atol=1e-12)


def test_items_without_a_row_are_scored_by_their_vectors() -> None:
    """The vector of an item says its parity, and nothing else is known of items 4 and 9."""
    clients, catalog = two_tastes()
    assert catalog.vectors is not None
    histories = clients.keep(~np.isin(clients.items, (4, 9)))
    learner = IFedRec(histories, catalog.vectors, IFedRecOptions(factors=4, rounds=150, lr_eta=2.0, reg=1.0), seed=1)
    list(learner.rounds())
    found, is_even = learner.score(np.arange(len(clients))), clients.ids % 2 == 0
    assert np.mean(found[is_even, 4] > found[is_even, 9]) > 0.9
    assert np.mean(found[~is_even, 9] > found[~is_even, 4]) > 0.9
