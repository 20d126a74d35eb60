"""KGFlex on devices: which features matter to a client, how a round updates them, and the client's scores.

A client holds `features` [S] (ids, -1 behind the last), their `weights` [S] (information gain) and `p` [S, m]; the
server holds `table` [F, m + 1], whose last column is the bias. Work is proportional to the client's own features and to
those of the items at hand, never to all features.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tacit.kernels.llvm.exponential import sigmoid_complement
from tacit.kernels.membership import has
from tacit.kernels.sampling import GAMMA, U64, high, lane, mix_word

NO_GAIN = 1e-12  # rounding leaves about 1e-16 where the exact gain is zero


@njit(inline="always")
def _part(count, total):
    """One term of an entropy: -q log2 q."""
    if count <= 0.0 or total <= 0.0:
        return 0.0
    q = count / total
    return -q * np.log2(q)


@njit(cache=True, nogil=True, error_model="numpy")
def information_gain(positives, negatives, n):
    """Return IG (6.7) of a feature that `positives` of n liked and `negatives` of n other items carry."""
    present, absent = positives + negatives, 2.0 * n - positives - negatives
    h_present = _part(positives, present) + _part(negatives, present)
    h_absent = _part(n - positives, absent) + _part(n - negatives, absent)
    return 1.0 - (present * h_present + absent * h_absent) / (2.0 * n)


@njit(cache=True, nogil=True, error_model="numpy")
def choose_features(
    word,
    ids,
    ptr,
    items,
    taken,
    n_items,
    item_ptr,
    item_features,
    hops,
    limits,
    ratio,
    is_set,
    features,
    weights,
):
    """Fill `features` and `weights` [C, S]: the `limits[h]` most informative features of each hop, by id.

    A client draws `ratio` times as many items outside its history as it has different ones in it, uniformly and with
    replacement. With `is_set`, what was drawn twice counts once; the number of negatives is still the number drawn. Of
    equal gain, the smaller id wins. A client that has every item gets no feature, since it has no negatives.
    """
    n_features, n_hops = len(hops), len(limits)
    counts = np.zeros((2, n_features), np.int32)
    found, kept = np.empty(n_features, np.int32), np.empty(n_features, np.int32)
    gains = np.empty(n_features, np.float64)
    drawn_by = np.full(n_items, -1, np.int64)
    for c in range(len(ids)):
        features[c, :] = -1
        weights[c, :] = 0.0
        n_found, n_own, previous = 0, 0, -1
        for e in range(ptr[c], ptr[c + 1]):
            item = items[e]
            if item == previous:
                continue
            previous = item
            n_own += 1
            for a in range(item_ptr[item], item_ptr[item + 1]):
                f = item_features[a]
                if counts[0, f] == 0:
                    found[n_found] = f
                    n_found += 1
                counts[0, f] += 1
        if n_own > 0 and taken.ptr[c + 1] - taken.ptr[c] < n_items:
            state = lane(word, ids[c])
            for _ in range(n_own * ratio):
                state += GAMMA
                other = high(mix_word(state), n_items)
                while has(taken, U64(c), other):
                    state += GAMMA
                    other = high(mix_word(state), n_items)
                if is_set and drawn_by[other] == c:
                    continue
                drawn_by[other] = c
                for a in range(item_ptr[other], item_ptr[other + U64(1)]):
                    f = item_features[a]
                    if counts[0, f] > 0:
                        counts[1, f] += 1
            own = np.sort(found[:n_found])
            n_kept = 0
            for h in range(n_hops):
                n_here = 0
                for f in own:
                    if hops[f] == h + 1:
                        gain = information_gain(float(counts[0, f] * ratio), float(counts[1, f]), float(n_own * ratio))
                        if gain > NO_GAIN:
                            kept[n_kept + n_here] = f
                            gains[n_here] = -gain
                            n_here += 1
                order = np.argsort(gains[:n_here], kind="mergesort")[: limits[h]]
                chosen = kept[n_kept : n_kept + n_here][order]
                kept[n_kept : n_kept + len(chosen)] = chosen
                n_kept += len(chosen)
            final = np.sort(kept[:n_kept])
            for s in range(n_kept):
                f = final[s]
                features[c, s] = f
                weights[c, s] = information_gain(float(counts[0, f] * ratio), float(counts[1, f]), float(n_own * ratio))
        for k in range(n_found):
            counts[0, found[k]] = 0
            counts[1, found[k]] = 0


@njit(cache=True, nogil=True, error_model="numpy")
def affinities(features, weights, p, table, out):
    """Fill `out` [C, S] with k_uf (p_f . g_f + b_f)."""
    n_factors = p.shape[2]
    for c in range(len(features)):
        for s in range(features.shape[1]):
            f = features[c, s]
            if f < 0:
                out[c, s:] = np.float32(0)
                break
            dot = table[f, n_factors]
            for d in range(n_factors):
                dot += p[c, s, d] * table[f, d]
            out[c, s] = weights[c, s] * dot


@njit(cache=True, nogil=True, error_model="numpy")
def gradient_factors(
    word, ids, ptr, items, taken, n_items, item_ptr, item_features, features, weights, affinity, factor
):
    """Fill `factor` [C, S] with k_uf times the sum over pairs of sigma(-x) ([f in F_i] - [f in F_j]).

    Every item i of the history is paired with one j outside it, drawn uniformly; x = r_ui - r_uj. By (6.13), (6.14) the
    gradient of g_f is factor p_f, that of b_f is factor, that of p_f is factor g_f.
    """
    slot = np.full(table_size(item_features), -1, np.int32)
    for c in range(len(ids)):
        n_own = 0
        for s in range(features.shape[1]):
            if features[c, s] < 0:
                break
            slot[features[c, s]] = s
            n_own += 1
        factor[c, :] = np.float32(0)
        if taken.ptr[c + 1] - taken.ptr[c] < n_items:
            state = lane(word, ids[c])
            for e in range(ptr[c], ptr[c + 1]):
                state += GAMMA
                other = high(mix_word(state), n_items)
                while has(taken, U64(c), other):
                    state += GAMMA
                    other = high(mix_word(state), n_items)
                i, j = np.int64(items[e]), np.int64(other)
                x = np.float32(0)
                for a in range(item_ptr[i], item_ptr[i + 1]):
                    s = slot[item_features[a]]
                    if s >= 0:
                        x += affinity[c, s]
                for a in range(item_ptr[j], item_ptr[j + 1]):
                    s = slot[item_features[a]]
                    if s >= 0:
                        x -= affinity[c, s]
                wrong = sigmoid_complement(x)
                for a in range(item_ptr[i], item_ptr[i + 1]):
                    s = slot[item_features[a]]
                    if s >= 0:
                        factor[c, s] += wrong
                for a in range(item_ptr[j], item_ptr[j + 1]):
                    s = slot[item_features[a]]
                    if s >= 0:
                        factor[c, s] -= wrong
        for s in range(n_own):
            factor[c, s] *= weights[c, s]
            slot[features[c, s]] = -1


@njit(cache=True, nogil=True, error_model="numpy")
def table_size(ids):
    """Return one more than the largest id."""
    return int(ids.max()) + 1 if len(ids) else 0


@njit(cache=True, nogil=True, error_model="numpy")
def move_own(features, p, table, factor, rate, moved):
    """Fill `moved` [C, S, m] with p + rate factor g."""
    n_factors = p.shape[2]
    for c in range(len(features)):
        for s in range(features.shape[1]):
            f = features[c, s]
            step = rate * factor[c, s]
            for d in range(n_factors):
                moved[c, s, d] = p[c, s, d] + step * table[f, d] if f >= 0 else p[c, s, d]


@njit(cache=True, nogil=True, error_model="numpy")
def write_rows(features, p, factor, rate, scale, rows):
    """Fill `rows` [R, m + 1] with rate factor [p, 1] on the grid of 1/scale, client after client."""
    n_factors, at = p.shape[2], 0
    for c in range(len(features)):
        for s in range(features.shape[1]):
            if features[c, s] < 0:
                break
            step = rate * factor[c, s]
            for d in range(n_factors):
                rows[at, d] = np.rint(step * p[c, s, d] * scale) / scale
            rows[at, n_factors] = np.rint(step * scale) / scale
            at += 1


@njit(cache=True, nogil=True, error_model="numpy")
def add_feature_rows(features, p, factor, rate, scale, kept, sums, counts):
    """Add the kept rows, as `write_rows` makes them, to `sums` [F, m + 1] in whole steps; return the largest step."""
    n_factors, at, largest = p.shape[2], 0, np.float32(0)
    for c in range(len(features)):
        for s in range(features.shape[1]):
            f = features[c, s]
            if f < 0:
                break
            if kept[at]:
                step = rate * factor[c, s]
                for d in range(n_factors + 1):
                    value = np.rint((step * p[c, s, d] if d < n_factors else step) * scale)
                    if not abs(value) <= largest:  # NaN counts as infinity, which nothing exceeds
                        largest = abs(value) if value == value else np.float32(np.inf)
                    sums[f, d] += np.int64(value)
                counts[f] += 1
            at += 1
    return largest


@njit(cache=True, nogil=True, error_model="numpy")
def rows_that_mention(ptr, items, item_ptr, item_features, features, is_meant, out):
    """Fill `out` [R]: does one of the client's items in question carry the feature of this row?"""
    carried = np.zeros(table_size(item_features), np.uint8)
    at = 0
    for c in range(len(features)):
        for mark in (np.uint8(1), np.uint8(0)):
            for e in range(ptr[c], ptr[c + 1]):
                if is_meant[items[e]]:
                    for a in range(item_ptr[items[e]], item_ptr[items[e] + 1]):
                        carried[item_features[a]] = mark
            if mark == 1:
                for s in range(features.shape[1]):
                    if features[c, s] < 0:
                        break
                    out[at] = carried[features[c, s]] == 1
                    at += 1


@njit(cache=True, nogil=True, error_model="numpy")
def score_items(features, affinity, feature_ptr, feature_items, scores):
    """Fill `scores` [C, n_items] with the sum of the affinities of the features that the client and the item share."""
    scores[:] = np.float32(0)
    for c in range(len(features)):
        for s in range(features.shape[1]):
            f = features[c, s]
            if f < 0:
                break
            for a in range(feature_ptr[f], feature_ptr[f + 1]):
                scores[c, feature_items[a]] += affinity[c, s]
