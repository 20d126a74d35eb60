"""Sampled ranking: each held-out item against unseen items of its own, drawn by key."""

from __future__ import annotations

import numpy as np
from numba import njit

from tacit.kernels.sampling import GAMMA, high, lane, mix_word
from tacit.kernels.topk import NOT_FOUND


@njit(cache=True, nogil=True, error_model="numpy")
def _draw(state, excluded, stamp, unseen, n, drawn):
    """Fill `drawn` [n] with distinct items whose mark in `excluded` is below `stamp`; marks what it drew.

    `unseen` is how many such items there are. Where n takes more than half of them, rejection would be slow: they
    are listed and shuffled instead.
    """
    n_items = excluded.size
    if 2 * n > unseen:
        pool = np.empty(unseen, np.int32)
        at = 0
        for item in range(n_items):
            if excluded[item] < stamp:
                pool[at] = item
                at += 1
        for q in range(n):
            state += GAMMA
            other = q + np.int64(high(mix_word(state), unseen - q))
            pool[q], pool[other] = pool[other], pool[q]
            drawn[q] = pool[q]
        return
    taken = 0
    while taken < n:
        state += GAMMA
        found = np.int64(high(mix_word(state), n_items))
        if excluded[found] < stamp:
            excluded[found] = stamp
            drawn[taken] = found
            taken += 1
    for q in range(n):
        excluded[drawn[q]] = 0


@njit(cache=True, nogil=True, error_model="numpy")
def draw_candidates(word, ids, rows, seen_ptr, seen, truth_ptr, truth, n_items, n):
    """Return (ptr, items, is_short): the unseen items each held-out item of a block is ranked against.

    Held-out items of the users at `rows` are taken one after the other. The draw of each depends on the word, the
    user's id and the position among the user's held-out items only. An item outside the catalogue (-1) gets none.
    `is_short` [B] marks users who have fewer than n unseen items: they get all of them.
    """
    held = 0
    for u in rows:
        held += truth_ptr[u + 1] - truth_ptr[u]
    ptr = np.zeros(held + 1, np.int64)
    items = np.empty(held * min(n, n_items), np.int32)
    is_short = np.zeros(rows.size, np.bool_)
    excluded = np.zeros(n_items, np.int64)  # the stamp of the user who may not be given this item
    at = 0
    h = 0
    for b in range(rows.size):
        u = rows[b]
        stamp = np.int64(b + 1)
        unseen = n_items
        for q in range(seen_ptr[u], seen_ptr[u + 1]):
            unseen -= excluded[seen[q]] != stamp
            excluded[seen[q]] = stamp
        for q in range(truth_ptr[u], truth_ptr[u + 1]):
            if truth[q] >= 0:
                unseen -= excluded[truth[q]] != stamp
                excluded[truth[q]] = stamp
        take = min(n, unseen)
        is_short[b] = unseen < n
        user = lane(word, ids[u])
        for q in range(truth_ptr[u], truth_ptr[u + 1]):
            if truth[q] >= 0:
                _draw(lane(user, q - truth_ptr[u]), excluded, stamp, unseen, take, items[at : at + take])
                at += take
            h += 1
            ptr[h] = at
    return ptr, items[:at], is_short


@njit(cache=True, nogil=True, error_model="numpy")
def count_rivals(own, others, ptr):
    """Return (better, tied), [H] each: how many others beat each own score, and how many equal it, itself included.

    An own score of NaN is that of an item which is no candidate: NOT_FOUND are better, and nothing ties.
    """
    better, tied = np.empty(own.size, np.int64), np.empty(own.size, np.int64)
    for h in range(own.size):
        above, equal = 0, 1
        for q in range(ptr[h], ptr[h + 1]):
            above += others[q] > own[h]
            equal += others[q] == own[h]
        better[h] = NOT_FOUND if np.isnan(own[h]) else above
        tied[h] = equal
    return better, tied
