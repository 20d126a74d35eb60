"""What devices learn from in a round: positives and fresh negatives of every local epoch, and the rows they touch.

Samples are words `slot << 1 | label`, where slots number the items a device touches in the order of their first use.
What leaves is sorted by item, since the order of use would reveal positives: all of them are used in the first local
epoch.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tacit.kernels.sampling import GAMMA, high, lane, low, mix_word

_MINE, _BARRED = np.uint8(1), np.uint8(2)
SPARSE = 16  # below one free (or touched) item in so many, list them instead of trying (or passing over) all


@njit(cache=True, nogil=True, error_model="numpy")
def draw_local_rounds(ids, ptr, items, avoid_ptr, avoid_items, n_items, negatives, epochs, word):
    """Draw what each client learns from: its positives and fresh negatives of every local epoch, shuffled.

    Returns `starts` [C + 1] into `samples` (the epochs of a client one after the other, equally long) and `row_ptr`
    [C + 1] into `rows` (the items it touches, ascending), `slots` (their places in the order of first use) and
    `is_positive`. Draws are keyed by its id. A client with no item left to draw has its positives alone.
    """
    n_clients = ids.size
    most = 0
    for c in range(n_clients):
        most += min(n_items, (ptr[c + 1] - ptr[c]) * (1 + negatives * epochs))
    starts, row_ptr = np.zeros(n_clients + 1, np.int64), np.zeros(n_clients + 1, np.int64)
    samples = np.empty(items.size * (1 + negatives) * epochs, np.uint32)
    rows = np.empty(most + 1, np.int32)  # one more than can be used: it is written to before it is known to count
    slots, is_positive = np.empty(most, np.int32), np.empty(most, np.bool_)
    marks = np.zeros(n_items, np.uint8)
    slot_of = np.full(n_items, -1, np.int32)
    free = np.empty(n_items // SPARSE + 1, np.int32)
    used = np.empty(n_items + 1, np.int32)
    at = 0
    for c in range(n_clients):
        mine, barred = items[ptr[c] : ptr[c + 1]], avoid_items[avoid_ptr[c] : avoid_ptr[c + 1]]
        n_free = n_items - mark(marks, mine, barred)
        listed = n_free * SPARSE < n_items
        if listed:
            list_free(marks, free)
        state = lane(word, ids[c])
        n_used = 0
        for _ in range(epochs):
            first = at
            for i in mine:
                state += GAMMA
                _insert(samples[first:], at - first, np.uint32(i) << np.uint32(1) | np.uint32(1), mix_word(state))
                at += 1
                for _ in range(negatives if n_free > 0 else 0):
                    state += GAMMA
                    drawn = mix_word(state)
                    if listed:
                        j = np.int64(free[high(drawn, n_free)])
                    else:
                        j = np.int64(high(drawn, n_items))
                        while marks[j]:
                            state += GAMMA
                            drawn = mix_word(state)
                            j = np.int64(high(drawn, n_items))
                    _insert(samples[first:], at - first, np.uint32(j) << np.uint32(1), drawn)
                    at += 1
            n_used = _give_slots(samples[first:at], slot_of, used, n_used)
        starts[c + 1] = at
        row_ptr[c + 1] = row_ptr[c] + n_used
        _write_sorted(used[:n_used], slot_of, marks, rows[row_ptr[c] :], slots[row_ptr[c] :], is_positive[row_ptr[c] :])
        unmark(marks, mine, barred)
    n_rows = row_ptr[n_clients]
    return starts, samples[:at], row_ptr, rows[:n_rows], slots[:n_rows], is_positive[:n_rows]


@njit(inline="always")
def _insert(samples, n, sample, word):
    """Put one more sample into n shuffled ones; its place follows from the lower half of a word."""
    place = low(word, n + 1)
    samples[np.uint64(n)] = samples[place]
    samples[place] = sample


@njit(cache=True, nogil=True)
def _give_slots(samples, slot_of, used, n_used):
    """Put slots in the place of items, new ones in the order of use; return how many there are."""
    for k in range(samples.size):
        item = samples[k] >> np.uint32(1)
        known = slot_of[item]
        is_new = known < 0
        slot = n_used if is_new else np.int64(known)
        slot_of[item] = slot
        used[n_used] = item  # overwritten by the next one where it is not new
        n_used += is_new
        samples[k] = np.uint32(slot) << np.uint32(1) | (samples[k] & np.uint32(1))
    return n_used


@njit(cache=True, nogil=True)
def mark(marks, mine, barred):
    """Mark a history and what else must not be drawn; return how many items that are. -1 is not in the catalogue."""
    n = 0
    for i in mine:
        n += marks[i] == 0
        marks[i] = _MINE
    for i in barred:
        if i >= 0 and marks[i] == 0:
            n += 1
            marks[i] = _BARRED
    return n


@njit(cache=True, nogil=True)
def unmark(marks, mine, barred):
    """Take the marks of `mark` away."""
    for i in mine:
        marks[i] = 0
    for i in barred:
        if i >= 0:
            marks[i] = 0


@njit(cache=True, nogil=True)
def list_free(marks, free):
    """Write the items without a mark into `free`, ascending."""
    n = 0
    for i in range(marks.size):
        if marks[i] == 0:
            free[n] = i
            n += 1


@njit(cache=True, nogil=True)
def _write_sorted(used, slot_of, marks, rows, slots, is_positive):
    """Write the used items in ascending order with their slots and marks, and forget their slots."""
    if used.size * SPARSE < slot_of.size:
        used.sort()
        for n in range(used.size):
            rows[n] = used[n]
    else:
        n = 0
        for i in range(slot_of.size):
            rows[n] = i
            n += slot_of[i] >= 0
    for n in range(used.size):
        i = rows[n]
        slots[n] = slot_of[i]
        is_positive[n] = marks[i] == _MINE
        slot_of[i] = -1
