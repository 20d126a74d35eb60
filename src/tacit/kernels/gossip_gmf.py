"""A gossiping peer's GMF: learning on its own samples, and judging a peer's model on its weighting set.

Tables are transposed, [peers, D, n_items]; `layers` are [peers, D + 1], the head and its bias. Every draw comes from
the peer's own root of chance and the number of things it has done before.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tacit.kernels import FAST
from tacit.kernels.adam import adam_step
from tacit.kernels.llvm.denormals import flush_denormals, restore_denormals
from tacit.kernels.llvm.lazy_adam import STATE, catch_up, catch_up_all, not_before, room_for, sort_out
from tacit.kernels.local_samples import draw_local_rounds
from tacit.kernels.losses import BCE
from tacit.kernels.products import take_products
from tacit.kernels.sampling import GAMMA, high, lane, low, mix_word

CANDIDATES = 100  # unseen items that each item of a weighting set is ranked against, drawn or in proportion
CUT = 20  # a list's length when a model is judged


@njit(cache=True, nogil=True, error_model="numpy")
def learn_gmf(rows, chance, done, ptr, own_items, avoid_ptr, avoid_items, how, pace, items, layers, users, kept, like):
    """Let the peers `rows` learn from their own samples; their items, layers, users and counters move in place.

    `how` is (negatives, epochs, batch). Adam is made anew each time, unless `kept` brings the moments of items, layers
    and users, each [peers, 2, ...], and the steps done; no steps mean anew. `pace` covers all steps; `like` is any
    table of rows as wide as a client's vector (`rows_of`).

    A peer learns on the rows that it touches, or on all where moments are kept, since those move on without a gradient.
    """
    before = flush_denormals()
    negatives, epochs, batch = how
    moments, layer_moments, user_moments, steps = kept
    keeps = steps.size > 0
    width, n_items = items.shape[1], items.shape[2]
    most, longest = n_items if keeps else 0, 0
    for n in rows:
        longest = max(longest, (ptr[n + 1] - ptr[n]) * (1 + negatives))
        most = max(most, min(n_items, (ptr[n + 1] - ptr[n]) * (1 + negatives * epochs)))
    state, when = np.empty(most * STATE * width, np.float32), np.empty(most, np.int64)
    room = room_for(min(batch, longest))
    z, c = np.empty(min(batch, longest), np.float32), np.empty(width, np.float32)
    own, head = np.empty((4, width), np.float32), np.empty((4, width + 1), np.float32)
    whole, no_user = np.zeros(2, np.int64), np.zeros(2, np.int64)
    everything = np.arange(n_items if keeps else 0).astype(np.int32)
    for n in rows:
        mine, barred = own_items[ptr[n] : ptr[n + 1]], avoid_items[avoid_ptr[n] : avoid_ptr[n + 1]]
        whole[1], no_user[1] = mine.size, barred.size
        word = lane(chance[n], done[n])
        done[n] += 1
        _, samples, _, touched, slots, _ = draw_local_rounds(
            np.zeros(1, np.int64), whole, mine, no_user, barred, n_items, negatives, epochs, word
        )
        own[0], own[1:] = users[n], 0
        head[0], head[1:] = layers[n], 0
        step = np.int64(0)
        if keeps:
            _as_items(samples, touched, slots)
            touched, slots = everything, everything
            own[1], own[2] = user_moments[n, 0], user_moments[n, 1]
            head[1], head[2] = layer_moments[n, 0], layer_moments[n, 1]
            step = steps[n]
            _load(moments[n, 0], touched, slots, 1, state)
            _load(moments[n, 1], touched, slots, 2, state)
            when[:] = not_before(step)
        else:
            state[: touched.size * STATE * width] = 0
            when[: touched.size] = -1
        _load(items[n], touched, slots, 0, state)
        size = samples.size // epochs
        for epoch in range(epochs):
            first = epoch * size
            for k in range(first, first + size, batch):
                part = samples[k : min(k + batch, first + size)]
                counts = sort_out(part, step, when, room)
                catch_up(state, like, width, room, counts[2], step, pace)
                take_products(part, state, like, width, room, counts, own, head, c, z, BCE)
                adam_step(own[0], own[1], own[2], own[3], pace.rate[step], pace.root[step])
                adam_step(head[0], head[1], head[2], head[3], pace.rate[step], pace.root[step])
                step += 1
        catch_up_all(state, like, width, when[: touched.size], step, pace)
        users[n], layers[n] = own[0], head[0]
        _store(items[n], touched, slots, 0, state)
        if keeps:
            user_moments[n, 0], user_moments[n, 1] = own[1], own[2]
            layer_moments[n, 0], layer_moments[n, 1] = head[1], head[2]
            _store(moments[n, 0], touched, slots, 1, state)
            _store(moments[n, 1], touched, slots, 2, state)
            steps[n] = step
    restore_denormals(before)


@njit(cache=True, nogil=True)
def _as_items(samples, touched, slots):
    """Put items in the place of slots."""
    item_of = np.empty(touched.size, np.uint32)
    for r in range(touched.size):
        item_of[slots[r]] = touched[r]
    for k in range(samples.size):
        samples[k] = item_of[samples[k] >> np.uint32(1)] << np.uint32(1) | (samples[k] & np.uint32(1))


@njit(cache=True, nogil=True)
def _load(columns, touched, slots, part, state):
    """Put columns of a transposed table [D, n_items] into their slots, as w (part 0), m (1) or v (2)."""
    width = np.uint64(columns.shape[0])
    for r in range(touched.size):
        at, item = (np.uint64(slots[r]) * np.uint64(STATE) + np.uint64(part)) * width, np.uint64(touched[r])
        for f in range(width):
            state[at + f] = columns[f, item]


@njit(cache=True, nogil=True)
def _store(columns, touched, slots, part, state):
    """Put w, m or v of slots into the columns of a transposed table."""
    width = np.uint64(columns.shape[0])
    for r in range(touched.size):
        at, item = (np.uint64(slots[r]) * np.uint64(STATE) + np.uint64(part)) * width, np.uint64(touched[r])
        for f in range(width):
            columns[f, item] = state[at + f]


@njit(cache=True, nogil=True, error_model="numpy")
def judge_gmf(rows, at, chance, done, weigh_ptr, weigh, seen_ptr, seen, own, peer_models, sends, samples, worths):
    """Fill `worths` [R, 2, 2]: (own, peer model's) mean (HR, NDCG) of a weighting set.

    Each of its items is ranked against 100 unseen ones drawn for it (`samples`), or against all unseen ones, its place
    taken in proportion to 100: no chance in it. `own` and `peer_models` are (items, layers, users). Without a weighting
    set, or with nothing unseen, all stay -1. A peer model is judged with the reader's vector unless it `sends` another.
    """
    before = flush_denormals()
    n_items = own[0].shape[2]
    scores = np.empty((2, n_items), np.float32)
    marks = np.zeros(n_items, np.uint8)
    c = np.empty(own[0].shape[1], np.float32)
    for r in range(rows.size):
        n, p = rows[r], at[r]
        worths[r] = -1
        state = lane(chance[n], done[n])
        done[n] += 1
        n_free = n_items
        for i in seen[seen_ptr[n] : seen_ptr[n + 1]]:
            n_free -= marks[i] == 0
            marks[i] = 1
        mine, known = weigh[weigh_ptr[n] : weigh_ptr[n + 1]], seen[seen_ptr[n] : seen_ptr[n + 1]]
        if mine.size > 0 and n_free > 0:
            _logits(own[0][n], own[1][n], own[2][n], c, scores[0])
            theirs = peer_models[2][p] if sends else own[2][n]
            _logits(peer_models[0][p], peer_models[1][p], theirs, c, scores[1])
            _rank(mine, scores, marks, known, n_free, samples, state, worths[r])
        for i in seen[seen_ptr[n] : seen_ptr[n + 1]]:
            marks[i] = 0
    restore_denormals(before)


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _logits(table, head, vector, c, scores):
    """scores[l] = bias + sum over f of head[f] vector[f] table[f, l]."""
    for f in range(c.size):
        c[f] = head[f] * vector[f]
    scores[:] = head[c.size]
    for f in range(table.shape[0]):
        row, weight = table[f], c[f]
        for k in range(scores.size):
            scores[k] += weight * row[k]


@njit(cache=True, nogil=True, error_model="numpy")
def _rank(mine, scores, marks, seen, n_free, samples, state, worth):
    """Set worth [2, 2] to HR and NDCG of two models: where `mine` stand among unmarked items, all or a sample."""
    worth[:] = 0
    drawn = np.empty(CANDIDATES, np.int64)
    for i in mine:
        if samples:
            state = draw_unseen(marks, state, drawn)
        for model in range(2):
            one = scores[model]
            if one[i] != one[i]:  # NaN never ranks above anything
                continue
            if samples:
                better = 0
                for k in range(CANDIDATES):
                    better += (one[drawn[k]] > one[i]) + (one[drawn[k]] >= one[i])
                add_credit(0.5 * better, worth[model])
            else:
                better = ahead(one[i], one)
                for j in seen:  # once each: a place visited twice is marked by 2 after the first
                    if marks[j] == 1:
                        better -= (one[j] > one[i]) + (one[j] >= one[i])
                        marks[j] = 2
                for j in seen:
                    marks[j] = 1
                add_credit(CANDIDATES * 0.5 * better / n_free, worth[model])
    worth /= mine.size


@njit(cache=True, nogil=True)
def draw_unseen(marks, state, drawn):
    """Fill `drawn` with unmarked items, two from each word of chance; return its state after it."""
    n_items = np.uint64(marks.size)
    k = 0
    while k < drawn.size:
        state += GAMMA
        word = mix_word(state)
        drawn[k] = np.int64(high(word, n_items))
        k += marks[drawn[k]] == 0
        if k < drawn.size:
            drawn[k] = np.int64(low(word, n_items))
            k += marks[drawn[k]] == 0
    return state


@njit(cache=True, nogil=True, error_model="numpy")
def ahead(own, others):
    """Return twice the number of better ones, ties once."""
    found = np.int32(0)
    for k in range(others.size):
        found += np.int32(others[k] > own) + np.int32(others[k] >= own)
    return found


@njit(cache=True, nogil=True, error_model="numpy")
def add_credit(better, worth):
    """Add what a place behind so many of 100 earns; just behind the last place of the list it earns a part."""
    place = 1.0 + better
    hit = min(max(CUT + 1.0 - place, 0.0), 1.0)
    if hit > 0:
        worth[0] += hit
        worth[1] += hit / np.log2(place + 1.0)
