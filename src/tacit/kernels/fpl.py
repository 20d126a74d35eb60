"""Federated pair-wise learning on a cohort: draw triples, move the client's vector, make the rows that may be sent.

A row of the item table is [q, b]: the vector and, last, the bias; a client's row is [p, 1]. So the preference of i
over j is x = [p, 1] . ([q_i, b_i] - [q_j, b_j]), and with z = 1 / (1 + e^x) a triple makes two rows for the server:

    positive   z [p, 1] - reg_i [q_i, 0]
    negative  -z [p, 1] - reg_j [q_j, 0]

Each of the two terms is rounded to the grid of the ring (multiples of 1/scale), so that sums of rows are sums of
whole numbers. Items stay as received for the whole round, so the second term of an item is the same in every row.
`rows_of_pairs` writes the rows out, which is what a device sends; `sum_of_pairs` adds the first terms of many devices
at once and `settle` subtracts the second ones, counted. The sums agree to the last bit.

Tables and clients come padded (`kernels.triples`). A triple is a chain of dependent operations some hundred cycles
long, so the fast kernels carry several independent ones through it side by side.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tacit.kernels.llvm.exponential import sigmoid_complement
from tacit.kernels.llvm.rowvec import prefetch, prefetch_one
from tacit.kernels.llvm.triples import preference, step_and_add, step_and_write
from tacit.kernels.membership import has, word_of
from tacit.kernels.sampling import GAMMA, U64, high, lane, low, mix_word

_BLOCK = 512  # draws made together: they stay in the nearest cache
_NEAR = 2**20  # bytes of a table that need not be asked for ahead
_SHARED = 8  # triples of a client: their look-ups share what was loaded
TOGETHER = U64(16)  # triples that go side by side


@njit(cache=True, nogil=True, error_model="numpy")
def draw_pairs(word, ids, ptr, items, taken, n_items, positives, negatives):
    """Fill positives and negatives [C, T] for clients `ids` [C]; each client's draws follow from (word, id) alone.

    A positive is uniform over the history, a negative uniform over the catalogue, redrawn while the client has it. Draw
    t takes word t of the client's stream for both; redraws take the words of a second stream, one by one. Blocks of
    draws are made in three steps: compute addresses, load, and redraw the few that were refused, so that many loads
    overlap.
    """
    n_clients, n_triples = U64(positives.shape[0]), U64(positives.shape[1])
    n_together = max(U64(1), U64(_BLOCK) // max(U64(1), n_triples))
    refused = np.empty((2, n_together * n_triples + U64(1)), np.uint32)
    is_refused = np.empty(n_together * n_triples, np.uint8)
    bits, n_words = taken.bits, U64(taken.bits.shape[1])
    for start in range(U64(0), n_clients, n_together):
        stop = min(n_clients, start + n_together)
        for c in range(start, stop):
            begin = U64(ptr[c])
            size = U64(ptr[c + U64(1)]) - begin
            state = lane(word, ids[c])
            for t in range(n_triples):
                state += GAMMA
                drawn = mix_word(state)
                i, j = begin + high(drawn, size), low(drawn, n_items)
                positives[c, t], negatives[c, t] = i, j
                if n_triples < U64(_SHARED):  # more of them lie near each other
                    prefetch_one(items, i)
                    prefetch_one(bits, word_of(n_words, c, j))  # harmless where there are none
        at = U64(0)
        for c in range(start, stop):
            for t in range(n_triples):
                positives[c, t] = items[U64(positives[c, t])]
                is_refused[at] = has(taken, c, U64(negatives[c, t]))
                at += U64(1)
        at, n_refused = U64(0), U64(0)
        for c in range(start, stop):  # apart from the loads: the address of a write does not wait
            for t in range(n_triples):
                refused[U64(0), n_refused] = c
                refused[U64(1), n_refused] = t
                n_refused += U64(is_refused[at])
                at += U64(1)
        last, second = n_clients, U64(0)
        for r in range(n_refused):
            c, t = U64(refused[U64(0), r]), U64(refused[U64(1), r])
            if c != last:
                last, second = c, mix_word(lane(word, ids[c]))
            negative = U64(negatives[c, t])
            while has(taken, c, negative):
                second += GAMMA
                negative = high(mix_word(second), n_items)
            negatives[c, t] = negative


@njit(cache=True, nogil=True, error_model="numpy")
def rows_of_pairs(users, moved, table, positives, negatives, rows, scale, rate, reg):
    """Take every client's local steps and write the rows: `rows` [2 C T], all positives first, then all negatives.

    `clients` are the vectors that gradients are taken at, `moved` those that move: the same array where p moves after
    every triple, another one where all gradients are taken at the old p. `reg` [3] is for client, positive, negative.
    """
    n_clients, n_triples = U64(positives.shape[0]), U64(positives.shape[1])
    shrink, reg_i, reg_j = rate * reg[0], scale * reg[1], scale * reg[2]
    unit, half = np.float32(1.0) / scale, n_clients * n_triples
    z = np.zeros(TOGETHER, np.float32)
    for start in range(U64(0), n_clients, TOGETHER):
        stop = min(n_clients, start + TOGETHER)
        for t in range(n_triples):
            for c in range(start, stop):
                z[c - start] = preference(users, c, table, U64(positives[c, t]), U64(negatives[c, t]))
            for k in range(TOGETHER):
                z[k] = sigmoid_complement(z[k])
            for c in range(start, stop):
                i, j, sure, at = U64(positives[c, t]), U64(negatives[c, t]), z[c - start], c * n_triples + t
                step, pull = rate * sure, scale * sure
                step_and_write(
                    moved, users, table, c, i, j, step, shrink, pull, reg_i, reg_j, unit, rows, at, at + half
                )


@njit(cache=True, nogil=True, error_model="numpy")
def count_sent(positives, negatives, is_sent, targets, counts):
    """Count in `counts` [2, n_items + 1] how often each item is sent as a positive and as a negative.

    `targets` [C, T] become the positives that are sent, and n_items, which is no item, for those that are not.
    """
    unsent = U64(counts.shape[1] - 1)
    for c in range(U64(positives.shape[0])):
        for t in range(U64(positives.shape[1])):
            target = U64(positives[c, t]) if is_sent[c, t] else unsent
            targets[c, t] = target
            counts[U64(0), target] += np.int32(1)
            counts[U64(1), U64(negatives[c, t])] += np.int32(1)


@njit(cache=True, nogil=True, error_model="numpy")
def sum_of_pairs(users, moved, table, positives, negatives, targets, totals, cells, peaks, scale, rate, reg):
    """Take every client's local steps and add z [p, 1] of what it sends to `totals` [n_items + 1, D], whole numbers.

    `cells` [n_items + 1] are the same totals as rows. `peaks` [1] keeps the largest terms, place by place.
    """
    n_clients, n_triples = U64(positives.shape[0]), U64(positives.shape[1])
    shrink = rate * reg[0]
    is_far = table.nbytes > _NEAR
    z = np.zeros(TOGETHER, np.float32)
    for start in range(U64(0), n_clients, TOGETHER):
        stop = min(n_clients, start + TOGETHER)
        for t in range(n_triples):
            for c in range(start, stop):
                z[c - start] = preference(users, c, table, U64(positives[c, t]), U64(negatives[c, t]))
            for k in range(TOGETHER):
                z[k] = sigmoid_complement(z[k])
            if is_far and t + U64(1) < n_triples:
                for c in range(start, stop):
                    prefetch(table, U64(positives[c, t + U64(1)]))
                    prefetch(table, U64(negatives[c, t + U64(1)]))
                    prefetch(cells, U64(targets[c, t + U64(1)]))
                    prefetch(cells, U64(negatives[c, t + U64(1)]))
            for c in range(start, stop):
                i, j, a, sure = U64(positives[c, t]), U64(negatives[c, t]), U64(targets[c, t]), z[c - start]
                step_and_add(moved, users, table, c, i, j, rate * sure, shrink, scale * sure, totals, a, peaks)


@njit(cache=True, nogil=True, error_model="numpy")
def settle(table, totals, counts, sums, touched, scale, reg):
    """Move `totals` [n_items + 1, D] into `sums` [n_items, F + 1], less the second terms of all rows counted.

    `touched` [n_items] goes up by how often each item was sent.
    """
    n_items, width = sums.shape
    last = table.shape[1] - 1
    reg_i, reg_j = scale * reg[1], scale * reg[2]
    for item in range(U64(n_items)):
        n_positive, n_negative = np.int64(counts[U64(0), item]), np.int64(counts[U64(1), item])
        if n_positive + n_negative == 0:
            continue
        touched[item] += n_positive + n_negative
        for d in range(U64(width - 1)):
            q = table[item, d]
            shrunk = n_positive * np.int64(np.rint(reg_i * q)) + n_negative * np.int64(np.rint(reg_j * q))
            sums[item, d] += totals[item, d] - shrunk
        sums[item, U64(width - 1)] += totals[item, U64(last)]
