"""Full ranking: the best items of each client, and where the held-out items stand among all candidates.

Scores are compared as 32-bit integers that sort as the floats do (`_load`), so that the passes over a row vectorise and
still find NaN. Seen items become the one integer that no finite float has.
"""

from __future__ import annotations

import numpy as np
from numba import njit

MASKED = np.int32(-(2**31))  # what no finite score becomes: an item that is not a candidate
_ABS = np.int32(0x7FFFFFFF)
_NOT_FINITE = np.int32(0x7F800000)  # bits of infinity; NaN has more
_GROUPS = 256  # of items at least: few enough to be in cache, many enough that a group has few items
_GROUPS_PER_PLACE = 8  # of a list: the best items of a row are then in about as many groups
_SPARE = 3  # groups that may be searched in vain: a closer threshold would cost more than they do
_FEW = 64  # words: so many are compared each with each, which vectorises
_SHORT = 256  # held-out items
NOT_FOUND = 2**31 - 1  # how many candidates are better than an item that is not within the longest list
_SIGN = np.int32(31)
_ZERO = np.int32(0)


@njit(cache=True, nogil=True, error_model="numpy")
def _load(bits, seen, keys):
    """Fill `keys` with one row of score bits in sorting order and mask the seen items; False if one is not finite."""
    largest = _ZERO
    for j in range(bits.size):
        b = bits[j]
        largest = max(largest, np.int32(b & _ABS))
        b = _ZERO if b == MASKED else b  # -0.0 equals 0.0
        keys[j] = b ^ ((b >> _SIGN) & _ABS)
    for item in seen:
        keys[item] = MASKED
    return largest < _NOT_FINITE


@njit(cache=True, nogil=True, error_model="numpy")
def _raise_to(tops, keys):
    """Raise each of `tops` to the key at its place."""
    for group in range(tops.size):
        tops[group] = max(tops[group], keys[group])


@njit(cache=True, nogil=True, error_model="numpy")
def _count_from(tops, key):
    """Return how many of `tops` are `key` or larger."""
    total = _ZERO
    for group in range(tops.size):
        total += np.int32(tops[group] >= key)
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def _threshold(tops, k):
    """Return a key that at least k of `tops` reach, and seldom many more: the k best keys of a row reach it too.

    Found by halving the range of keys: counting vectorises, and sorting does not.
    """
    least, most = tops[0], tops[0]
    for top in tops:
        least, most = min(least, top), max(most, top)
    low, high = np.int64(least), np.int64(most)
    while low < high:
        middle = (low + high + 1) >> 1
        reach = _count_from(tops, np.int32(middle))
        if reach < k:
            high = middle - 1
            continue
        low = middle
        if reach <= k + _SPARE:
            break
    return np.int32(low) if tops.size >= k else MASKED


@njit(cache=True, nogil=True, error_model="numpy")
def _find(keys, tops, threshold, groups, found):
    """Write the items whose keys reach the threshold into `found`; returns how many. Without branches in its loops."""
    n_found, n_reach, n_groups = 0, 0, tops.size
    for group in range(n_groups):
        groups[n_reach] = group
        n_reach += tops[group] >= threshold
    for at in range(n_reach):
        for item in range(groups[at], keys.size, n_groups):
            found[n_found] = item
            n_found += keys[item] >= threshold
    return n_found


@njit(cache=True, nogil=True, error_model="numpy")
def _sort_few(words, best):
    """Put each word at the place that as many larger ones give it. No two words are equal."""
    for word in words:
        place = 0
        for other in words:
            place += other > word
        if place < best.size:
            best[place] = word


@njit(cache=True, nogil=True, error_model="numpy")
def _sort_many(words, best):
    """Insert the words one after the other."""
    last = best.size - 1
    for word in words:
        if word <= best[last]:
            continue
        place = last
        while place > 0 and best[place - 1] < word:
            best[place] = best[place - 1]
            place -= 1
        best[place] = word


@njit(cache=True, nogil=True, error_model="numpy")
def _best(keys, tops, order, shift, groups, found, words, best):
    """Fill `best` with the largest (key, place) words, descending; places without a candidate keep the least word.

    Items are grouped by their remainder modulo `tops.size`; `tops` becomes the largest key of each group, so that few
    groups have to be searched. `keys` is padded to whole rows of groups. The place of an item among tied ones is
    order[item] + shift, counted around the end of the catalogue. `groups`, `found` and `words` are room to work in.
    """
    k, n, n_groups = best.size, order.size, tops.size
    tops[:] = keys[:n_groups]
    for start in range(n_groups, keys.size, n_groups):
        _raise_to(tops, keys[start : start + n_groups])
    n_found = _find(keys, tops, max(_threshold(tops, k), np.int32(MASKED + 1)), groups, found)
    for at in range(n_found):
        place = order[found[at]] + shift
        words[at] = (np.int64(keys[found[at]]) << 32) | (place - n if place >= n else place)
    best[:] = np.int64(MASKED) << 32
    if n_found <= _FEW:
        _sort_few(words[:n_found], best)
    else:
        _sort_many(words[:n_found], best)


@njit(cache=True, nogil=True, error_model="numpy")
def _count_equal(keys, key):
    total = 0
    for other in keys:
        total += other == key
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def _places(keys, best, truth, better, tied):
    """Write how many candidates are better than each held-out item and how many tie with it, itself included.

    The items are put in ascending order of the first. Beyond the longest list, and where an item is no candidate, it
    is NOT_FOUND and ties with nothing.
    """
    k = best.size
    last = np.int32(best[k - 1] >> 32)
    tied_with_last = -1  # counted over the row at most once, and only if a held-out item is in that group
    for t in range(truth.size):
        above, equal = NOT_FOUND, 1
        item = truth[t]
        key = keys[item] if item >= 0 else MASKED
        if key != MASKED and key >= last:
            above, equal = 0, 0
            for q in range(k):
                other = np.int32(best[q] >> 32)
                if other > key:
                    above += 1
                elif other == key:
                    equal += 1
            if key == last:
                if tied_with_last < 0:
                    tied_with_last = _count_equal(keys, key)
                equal = tied_with_last
        at = t
        while at > 0 and better[at - 1] > above:
            better[at], tied[at] = better[at - 1], tied[at - 1]
            at -= 1
        better[at], tied[at] = above, equal


@njit(cache=True, nogil=True, error_model="numpy")
def rank_rows(bits, rows, seen_ptr, seen, truth_ptr, truth, order, item_at, shifts, top, better, tied):
    """Rank all unseen items for a block of clients; returns the first row with a score that is not finite, or -1.

    bits [B, n] are float32 scores seen as int32; row b belongs to client rows[b] of the ragged arrays. `order` [n] is
    the place of each item in the order that breaks ties of the lists (larger first), `item_at` its inverse; for each
    client it begins `shifts` [clients] places later. Writes top [clients, k], padded with -1, and better and tied [H],
    aligned with `truth_ptr` and ascending within a client (see `_places`).
    """
    n, k = bits.shape[1], top.shape[1]
    n_groups = min(n, max(_GROUPS, _GROUPS_PER_PLACE * k))
    keys = np.full((n + n_groups - 1) // n_groups * n_groups, MASKED, np.int32)
    tops, groups = np.empty(n_groups, np.int32), np.empty(n_groups + 1, np.int32)
    found, words = np.empty(keys.size + 1, np.int32), np.empty(keys.size, np.int64)
    best = np.empty(k, np.int64)
    for b in range(rows.size):
        u = rows[b]
        if not _load(bits[b], seen[seen_ptr[u] : seen_ptr[u + 1]], keys):
            return b
        _best(keys, tops, order, shifts[u], groups, found, words, best)
        for q in range(best.size):
            is_padding = np.int32(best[q] >> 32) == MASKED
            at = (best[q] & 0xFFFFFFFF) - shifts[u]
            top[u, q] = -1 if is_padding else item_at[at + n if at < 0 else at]
        first, end = truth_ptr[u], truth_ptr[u + 1]
        if end > first:
            _places(keys[:n], best, truth[first:end], better[first:end], tied[first:end])
    return -1


@njit(cache=True, nogil=True, error_model="numpy")
def auc_rows(bits, rows, seen_ptr, seen, truth_ptr, truth, auc):
    """Write, for each held-out item, the share of unseen items that it beats; returns as `rank_rows` does.

    Unseen means neither seen nor held out; a tie counts half. An item that is no candidate gets 0, one without any
    unseen item to beat gets 0.5.
    """
    keys = np.empty(bits.shape[1], np.int32)
    for b in range(rows.size):
        u = rows[b]
        if not _load(bits[b], seen[seen_ptr[u] : seen_ptr[u + 1]], keys):
            return b
        first, end = truth_ptr[u], truth_ptr[u + 1]
        own = np.full(end - first, MASKED, np.int32)
        for t in range(end - first):
            item = truth[first + t]
            if item >= 0:
                own[t] = keys[item]
        for t in range(end - first):
            if truth[first + t] >= 0:
                keys[truth[first + t]] = MASKED
        others = keys.size - _count_equal(keys, MASKED)
        for t in range(end - first):
            if own[t] == MASKED:
                auc[first + t] = 0.0
                continue
            better = 0
            for key in keys:
                better += key > own[t]
            equal = _count_equal(keys, own[t])
            auc[first + t] = (others - better - 0.5 * equal) / others if others else 0.5
    return -1


@njit(cache=True, nogil=True, error_model="numpy")
def _holds(own, item):
    """Whether the ascending array holds the item; a short one is compared whole, which vectorises."""
    if own.size <= _SHORT:
        equal = _ZERO
        for other in own:
            equal |= np.int32(other == item)
        return equal != 0
    at = np.searchsorted(own, item)
    return at < own.size and own[at] == item


@njit(cache=True, nogil=True, error_model="numpy")
def listed_truth(top, truth_ptr, truth):
    """Return [users, k]: whether each listed item is held out for that user; `truth` ascends within a user."""
    found = np.zeros(top.shape, np.bool_)
    for u in range(top.shape[0]):
        own = truth[truth_ptr[u] : truth_ptr[u + 1]]
        for q in range(top.shape[1]):
            found[u, q] = top[u, q] >= 0 and _holds(own, top[u, q])
    return found


@njit(cache=True, nogil=True, error_model="numpy")
def seen_before(truth_ptr, truth, seen_ptr, seen):
    """Return [H]: whether each held-out item is in the user's own history; both ascend."""
    found = np.zeros(truth.size, np.bool_)
    for u in range(truth_ptr.size - 1):
        at, end = seen_ptr[u], seen_ptr[u + 1]
        for t in range(truth_ptr[u], truth_ptr[u + 1]):
            while at < end and seen[at] < truth[t]:
                at += 1
            found[t] = at < end and seen[at] == truth[t]
    return found


@njit(cache=True, nogil=True, error_model="numpy")
def is_distinct(ptr, items):
    """Whether the items of every user ascend, each once; items outside the catalogue (-1) may repeat."""
    for u in range(ptr.size - 1):
        for j in range(ptr[u] + 1, ptr[u + 1]):
            if items[j] < items[j - 1] or (items[j] == items[j - 1] and items[j] >= 0):
                return False
    return True
