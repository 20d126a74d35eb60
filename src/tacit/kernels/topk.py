"""Full ranking: the best items of each client, and where the held-out items stand among all candidates.

Scores are compared as 32-bit integers that sort as the floats do (`_load`), so that the passes over a row vectorise and
still find NaN. Seen items become the one integer that no finite float has.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tacit.kernels.llvm.groups import LANES, lowest_bit, raise_groups, reaching

MASKED = np.int32(-(2**31))  # what no finite score becomes: an item that is not a candidate
_ABS = np.int32(0x7FFFFFFF)
_NOT_FINITE = np.int32(0x7F800000)  # bits of infinity; NaN has more
_GROUPS_PER_PLACE = 8  # of a list: the best items of a row are then in about as many groups
_FOLD = 4  # groups to one of those that the threshold is found by: so many more places of a list, still
_SPARE = 3  # groups that may be searched in vain: a closer threshold would cost more than they do
_LEAST = np.int64(MASKED) << 32  # a word without a candidate
_AT_ONCE = 16  # words
_FEW = 64  # words: so many are compared each with each, which vectorises
NOT_FOUND = 2**31 - 1  # how many candidates are better than an item that is not within the longest list
_SIGN = np.int32(31)
_ZERO = np.int32(0)


@njit(inline="always")
def _whole(n, unit):
    """Return the least multiple of a unit, at least one, that n fits into."""
    return max(1, (n + unit - 1) // unit) * unit


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
def _find(keys, tops, threshold, found):
    """Write the items whose keys reach the threshold into `found`; returns how many."""
    n_found = 0
    for start in range(0, tops.size, LANES):
        left = reaching(tops, start, threshold)
        while left != 0:
            group = start + lowest_bit(left)
            left &= left - np.uint64(1)
            for item in range(group, keys.size, tops.size):  # without a branch
                found[n_found] = item
                n_found += keys[item] >= threshold
    return n_found


@njit(cache=True, nogil=True, error_model="numpy")
def _sort_few(words, n, best):
    """Put each of n words at the place that as many larger ones give it. No two are equal; what follows is changed."""
    end = _whole(n, _AT_ONCE)
    words[n:end] = _LEAST
    for at in range(n):
        place = 0
        for start in range(0, end, _AT_ONCE):
            for other in range(_AT_ONCE):  # a known number of times: this becomes a few vectors
                place += words[start + other] > words[at]
        if place < best.size:
            best[place] = words[at]


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
def _best(keys, order, shift, room, best):
    """Fill `best` with the largest (key, place) words, descending; places without a candidate keep the least word.

    Items are grouped by their remainder modulo the number of groups, and these again, so that few counts give a
    threshold and few groups have to be searched. `keys` is padded to whole rows of groups. The place of an item among
    tied ones is order[item] + shift, counted around the end of the catalogue. `room` is to work in.
    """
    tops, supers, found, words = room
    k, n = best.size, order.size
    raise_groups(keys, tops)
    raise_groups(tops, supers)
    n_found = _find(keys, tops, max(_threshold(supers, k), np.int32(MASKED + 1)), found)
    for at in range(n_found):
        place = order[found[at]] + shift
        words[at] = (np.int64(keys[found[at]]) << 32) | (place - n if place >= n else place)
    best[:] = _LEAST
    if n_found <= _FEW:
        _sort_few(words, n_found, best)
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
    better[:], tied[:], n_found = NOT_FOUND, 1, 0
    for item in truth:
        key = keys[item] if item >= 0 else MASKED
        if key < last or key == MASKED:
            continue
        above, equal = 0, 0
        for q in range(k):
            other = np.int32(best[q] >> 32)
            above += other > key
            equal += other == key
        if key == last:
            if tied_with_last < 0:
                tied_with_last = _count_equal(keys, key)
            equal = tied_with_last
        at = n_found
        while at > 0 and better[at - 1] > above:
            better[at], tied[at] = better[at - 1], tied[at - 1]
            at -= 1
        better[at], tied[at] = above, equal
        n_found += 1


@njit(cache=True, nogil=True, error_model="numpy")
def rank_rows(bits, rows, seen_ptr, seen, truth_ptr, truth, order, item_at, shifts, top, better, tied):
    """Rank all unseen items for a block of clients; returns the first row with a score that is not finite, or -1.

    bits [B, n] are float32 scores seen as int32; row b belongs to client rows[b] of the ragged arrays. `order` [n] is
    the place of each item in the order that breaks ties of the lists (larger first), `item_at` its inverse; for each
    client it begins `shifts` [clients] places later. Writes top [clients, k], padded with -1, and better and tied [H],
    aligned with `truth_ptr` and ascending within a client (see `_places`).
    """
    n, k = bits.shape[1], top.shape[1]
    n_groups = _whole(min(n, _GROUPS_PER_PLACE * k), _FOLD * LANES)
    keys = np.full(_whole(n, n_groups), MASKED, np.int32)
    tops, supers = np.empty(n_groups, np.int32), np.empty(n_groups // _FOLD, np.int32)
    found, words = np.empty(keys.size + 1, np.int32), np.empty(keys.size, np.int64)
    room, best = (tops, supers, found, words), np.empty(k, np.int64)
    for b in range(rows.size):
        u = rows[b]
        if not _load(bits[b], seen[seen_ptr[u] : seen_ptr[u + 1]], keys):
            return b
        _best(keys, order, shifts[u], room, best)
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
def _mark(largest):
    """Return a note for each item, and for -1, by which user it was last marked: by none."""
    return np.full(largest + 2, -1, np.int64)


@njit(cache=True, nogil=True, error_model="numpy")
def _largest(items):
    largest = np.int64(-1)
    for item in items.flat:
        largest = max(largest, np.int64(item))
    return largest


@njit(cache=True, nogil=True, error_model="numpy")
def listed_truth(top, truth_ptr, truth):
    """Return [users, k]: whether each listed item is held out for that user."""
    found = np.zeros(top.shape, np.bool_)
    marked_by = _mark(max(_largest(top), _largest(truth)))
    for u in range(top.shape[0]):
        for t in range(truth_ptr[u], truth_ptr[u + 1]):
            marked_by[truth[t]] = u
        for q in range(top.shape[1]):
            found[u, q] = top[u, q] >= 0 and marked_by[top[u, q]] == u
    return found


@njit(cache=True, nogil=True, error_model="numpy")
def seen_before(truth_ptr, truth, seen_ptr, seen):
    """Return [H]: whether each held-out item is in the user's own history."""
    found = np.zeros(truth.size, np.bool_)
    marked_by = _mark(max(_largest(truth), _largest(seen)))
    for u in range(truth_ptr.size - 1):
        for e in range(seen_ptr[u], seen_ptr[u + 1]):
            marked_by[seen[e]] = u
        for t in range(truth_ptr[u], truth_ptr[u + 1]):
            found[t] = marked_by[truth[t]] == u
    return found


@njit(cache=True, nogil=True, error_model="numpy")
def is_distinct(ptr, items):
    """Whether the items of every user ascend, each once; items outside the catalogue (-1) may repeat."""
    for u in range(ptr.size - 1):
        wrong = _ZERO
        for j in range(ptr[u] + 1, ptr[u + 1]):  # to the end of the user: this vectorises
            wrong |= np.int32(items[j] <= items[j - 1]) & np.int32((items[j] != items[j - 1]) | (items[j] >= 0))
        if wrong != 0:
            return False
    return True
