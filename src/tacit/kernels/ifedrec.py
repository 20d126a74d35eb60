"""A round of the rival IFedRec: all clients' batches, one after the other."""

from __future__ import annotations

import numpy as np
from numba import njit

from tacit.kernels import FAST

FARTHEST = 30.0  # scores beyond are taken as this


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def ifedrec_round(ptr, order, is_own, table, scorers, rate, batch, moves):
    """Move the score functions [C, F + 1] in place; add the slopes of the item table [n_items, F] to `moves`.

    Client c goes over the items `order[ptr[c]:ptr[c + 1]]` in batches. A batch takes one step of its score function by
    the mean cross-entropy; then the slope of each of its items is taken at the new score function. The table stands
    still for the whole round.
    """
    factors = table.shape[1]
    gradient = np.empty(factors + 1)
    for client in range(len(ptr) - 1):
        scorer = scorers[client]
        for start in range(ptr[client], ptr[client + 1], batch):
            end = min(start + batch, ptr[client + 1])
            gradient[:] = 0.0
            for at in range(start, end):
                row = table[order[at]]
                slope = _slope(row, scorer, is_own[at]) / (end - start)
                for f in range(factors):
                    gradient[f] += slope * row[f]
                gradient[factors] += slope
            for f in range(factors + 1):
                scorer[f] -= rate * gradient[f]
            for at in range(start, end):
                slope = _slope(table[order[at]], scorer, is_own[at]) / (end - start)
                move = moves[order[at]]
                for f in range(factors):
                    move[f] += slope * scorer[f]


@njit(nogil=True, error_model="numpy", fastmath=FAST)
def _slope(row, scorer, is_own):
    score = scorer[len(row)]
    for f in range(len(row)):
        score += row[f] * scorer[f]
    chance = 1.0 / (1.0 + np.exp(-min(max(score, -FARTHEST), FARTHEST)))
    return chance - 1.0 if is_own else chance
