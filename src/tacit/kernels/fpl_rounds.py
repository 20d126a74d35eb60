"""Whole passes of fpl in one kernel, where a round is one triple, one client, or one triple of every client.

Such rounds are too small to leave the kernel after each. Their draws, steps and sums are those of `kernels.fpl`, and
tables stay padded from round to round.

All take `draws`, which say whose turn it is and what is drawn: the first round, their number, the words of choosing,
learning and sealing (round r takes lane r of each), ids, ptr and items of the histories, what each client has, and the
size of the catalogue. `tables` move; `numbers` are scale, rate and regs; `coins` say which positives leave: pi [C],
which items are secret, and whether an item has one coin for good. `sent` [C, 2] counts rows.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tacit.kernels.fpl import TOGETHER, sum_of_pairs
from tacit.kernels.llvm.exponential import sigmoid_complement
from tacit.kernels.llvm.held_triples import held_preference, held_step, settle_row
from tacit.kernels.llvm.rowvalue import load_row, store_row
from tacit.kernels.llvm.rowvec import prefetch, prefetch_one
from tacit.kernels.llvm.triples import preference, step_and_apply
from tacit.kernels.membership import has, word_of
from tacit.kernels.sampling import GAMMA, U64, high, lane, low, mix_word

_UNIT = 2.0**-53
_LOW, _NEGATIVE = U64(0xFFFFFFFF), U64(1 << 32)  # a count has positives in its lower half, negatives in the upper
_ITEMS_IN_LINE, _WORDS_IN_LINE = 16, 8  # numbers in a line of the cache
_AHEAD = 128  # rounds drawn ahead: what they will read stays in the nearest cache


@njit(inline="always")
def _coin(stream, state, item, per_item):
    drawn = mix_word(lane(stream, item) + GAMMA) if per_item else mix_word(state)
    return (drawn >> U64(11)) * _UNIT


@njit(inline="always")
def _mark(ids):
    """Return what the lanes of clients are made of, but for the word."""
    marks = np.empty(len(ids), np.uint64)
    for c in range(U64(len(ids))):
        marks[c] = mix_word(U64(ids[c]) + GAMMA)
    return marks


@njit(cache=True, nogil=True, error_model="numpy")
def rounds_of_one_triple(draws, tables, numbers, coins, sent, peaks):
    """Run rounds of one client and one triple each. `tables` are users and items.

    Rounds are drawn ahead in blocks, so that their look-ups in memory overlap, and rounds that share neither client nor
    item go side by side: none of them could tell that the others were not there yet.
    """
    first, n_rounds, words, ids, ptr, items, taken, n_items = draws
    (users, table), (scale, rate, reg), (pi, is_secret, per_item) = tables, numbers, coins
    zero, one, n_clients = U64(0), U64(1), U64(len(ids))
    shrink, reg_i, reg_j = rate * reg[0], scale * reg[1], scale * reg[2]
    gain = rate / scale
    who, likes, other = np.empty(_AHEAD, np.uint32), np.empty(_AHEAD, np.uint32), np.empty(_AHEAD, np.uint32)
    leaves, is_refused = np.empty(_AHEAD, np.uint8), np.empty(_AHEAD, np.uint8)
    refused, states = np.empty(_AHEAD + 1, np.uint32), np.empty(_AHEAD, np.uint64)
    marks, bits, n_words = _mark(ids), taken.bits, U64(taken.bits.shape[1])
    is_choosy = pi.min() < 1.0 or is_secret.any()
    client_used, item_used = np.zeros(len(ids), np.uint32), np.zeros(len(table), np.uint32)
    z = np.zeros(TOGETHER, np.float32)
    now = np.uint32(0)  # numbers the rounds from 1 on: 0 is before all of them
    for start in range(first, first + n_rounds, _AHEAD):
        size = U64(min(_AHEAD, first + n_rounds - start))
        for k in range(size):
            number = U64(start) + k
            c = high(mix_word(lane(words[0], number) + GAMMA), n_clients)
            begin = U64(ptr[c])
            state = mix_word(lane(words[1], number) ^ marks[c])  # the lane of the client's id
            drawn = mix_word(state + GAMMA)
            i, j = begin + high(drawn, U64(ptr[c + one]) - begin), low(drawn, n_items)
            who[k], likes[k], other[k], states[k] = c, i, j, state
            prefetch_one(items, i)
            prefetch_one(bits, word_of(n_words, c, j))  # harmless where there are none
            prefetch(users, c)
        for k in range(size):
            likes[k] = items[U64(likes[k])]
            is_refused[k] = has(taken, U64(who[k]), U64(other[k]))
        n_refused = zero
        for k in range(size):  # apart from the loads: the address of a write does not wait
            refused[n_refused] = k
            n_refused += U64(is_refused[k])
        for r in range(n_refused):
            k = U64(refused[r])
            c, j, second = U64(who[k]), U64(other[k]), mix_word(states[k])
            while has(taken, c, j):
                second += GAMMA
                j = high(mix_word(second), n_items)
            other[k] = j
        for k in range(size):
            c, i = U64(who[k]), U64(likes[k])
            prefetch(table, i)
            prefetch(table, U64(other[k]))
            leaves[k] = one
            if is_choosy:
                stream = mix_word(lane(lane(words[2], U64(start) + k), zero) ^ marks[c])
                leaves[k] = not is_secret[i] and _coin(stream, stream + GAMMA, i, per_item) < pi[c]
            sent[c, zero] += leaves[k]
            sent[c, one] += np.uint32(1)
        at = zero
        while at < size:
            stop, since = at, now
            while stop < size and stop - at < TOGETHER:
                c, i, j = U64(who[stop]), U64(likes[stop]), U64(other[stop])
                if client_used[c] > since or item_used[i] > since or item_used[j] > since:
                    break
                now += np.uint32(1)
                client_used[c] = item_used[i] = item_used[j] = now
                stop += one
            for k in range(at, stop):
                z[k - at] = preference(users, U64(who[k]), table, U64(likes[k]), U64(other[k]))
            for k in range(TOGETHER):
                z[k] = sigmoid_complement(z[k])
            for k in range(at, stop):
                c, i, j, sure = U64(who[k]), U64(likes[k]), U64(other[k]), z[k - at]
                step, pull = rate * sure, scale * sure
                step_and_apply(users, users, table, c, i, j, step, shrink, pull, reg_i, reg_j, gain, leaves[k], peaks)
            at = stop


@njit(inline="always")
def _settle_item(table, totals, item, count, numbers, top):
    """Apply a round's sum of an item that was sent as positives and, above 32 bits, as negatives; return max(top)."""
    scale, rate, reg = numbers
    often = np.float64(count & _LOW), np.float64(count >> U64(32))
    regs = scale * reg[1], scale * reg[2]
    return settle_row(table, totals, item, *often, *regs, np.float32(1.0) / scale, rate, top)


@njit(inline="always")
def _both(count):
    return np.int64((count & _LOW) + (count >> U64(32)))


@njit(inline="always")
def _ask_for_client(client, ptr, items, taken, users):
    """Ask ahead for what drawing for a client reads: its history, what it has, its row."""
    prefetch(users, client)
    for at in range(ptr[client], ptr[client + U64(1)], _ITEMS_IN_LINE):
        prefetch_one(items, U64(at))
    n_words = U64(taken.bits.shape[1])
    for word in range(client * n_words, (client + U64(1)) * n_words, _WORDS_IN_LINE):
        prefetch_one(taken.bits, U64(word))


@njit(cache=True, nogil=True, error_model="numpy")
def rounds_of_one_client(draws, tables, n_triples, numbers, coins, sent, peaks, tops):
    """Run rounds of one client and many triples each.

    `tables` are users, the vectors that gradients are taken at (users itself, or a copy that follows after each round),
    items, and totals [n_items + 1, D], which are zero, before and after. `peaks` [1] keeps the largest terms, `tops`
    [1] the largest sums, place by place. Return how often an item was sent in a round at most.
    """
    first, n_rounds, words, ids, ptr, items, taken, n_items = draws
    (users, frozen, table, totals), (scale, rate, reg), (pi, is_secret, per_item) = tables, numbers, coins
    unsent, is_choosy = U64(totals.shape[0] - 1), pi.min() < 1.0 or is_secret.any()
    is_apart, shrink = frozen.ctypes.data != users.ctypes.data, rate * reg[0]
    counts = np.zeros(totals.shape[0], np.uint64)
    pairs = np.empty((2, 2, n_triples), np.uint32)
    refused = np.empty(n_triples + 1, np.uint32)
    touched = np.empty(2 * n_triples + 1, np.uint32)
    zero, one, n_steps = U64(0), U64(1), U64(n_triples)
    most, peak, top = np.int64(0), load_row(peaks, zero), load_row(tops, zero)
    c, pair = U64(0), pairs[0]
    for number in range(first - 1, first + n_rounds):  # in the one before the first, clients are only drawn
        # The next client is drawn beside this one's triples: these wait for each other, and leave the processor idle.
        following = number + 1
        next_c, next_pair = high(mix_word(lane(words[0], following) + GAMMA), len(ids)), pairs[following & 1]
        begin = U64(ptr[next_c])
        length = U64(ptr[next_c + one]) - begin
        drawing = lane(lane(words[1], following), ids[next_c])
        second = mix_word(drawing)
        stream = lane(lane(lane(words[2], number), 0), ids[c])
        state = stream
        n_touched, n_refused, n_left = zero, zero, zero
        learns = number >= first
        p = moved = load_row(frozen, c)  # both stay in registers
        _ask_for_client(high(mix_word(lane(words[0], following + 1) + GAMMA), len(ids)), ptr, items, taken, users)
        for t in range(n_steps):
            drawing += GAMMA
            drawn = mix_word(drawing)
            negative = low(drawn, n_items)
            next_pair[zero, t] = items[begin + high(drawn, length)]
            next_pair[one, t] = negative
            refused[n_refused] = t
            n_refused += U64(has(taken, next_c, negative))
            if not learns:
                continue
            i, j = U64(pair[zero, t]), U64(pair[one, t])
            state += GAMMA
            leaves = not is_choosy or (not is_secret[i] and _coin(stream, state, i, per_item) < pi[c])
            z = sigmoid_complement(held_preference(p, table, i, j))
            a = i if leaves else unsent
            moved, peak = held_step(moved, p, table, i, j, rate * z, shrink, scale * z, totals, a, peak)
            if not is_apart:
                p = moved
            touched[n_touched] = i  # no branch: what was there already is written over
            n_touched += U64(leaves and counts[i] == zero)
            counts[a] += one
            touched[n_touched] = j
            n_touched += U64(counts[j] == zero)
            counts[j] += _NEGATIVE
            n_left += U64(leaves)
        for k in range(n_refused):
            negative = U64(next_pair[one, U64(refused[k])])
            while has(taken, next_c, negative):
                second += GAMMA
                negative = high(mix_word(second), n_items)
            next_pair[one, U64(refused[k])] = negative
        if learns:
            sent[c, zero] += np.uint32(n_left)
            sent[c, one] += np.uint32(n_triples)
            for k in range(n_touched):
                item = U64(touched[k])
                count, counts[item] = counts[item], zero
                most = max(most, _both(count))
                top = _settle_item(table, totals, item, count, numbers, top)
            store_row(users, c, moved)
            store_row(frozen, c, moved)
        c, pair = next_c, next_pair
    store_row(peaks, zero, peak)
    store_row(tops, zero, top)
    return most


@njit(cache=True, nogil=True, error_model="numpy")
def rounds_of_all_clients(draws, tables, cells, numbers, coins, sent, peaks, tops):
    """Run rounds of all clients, one triple each; arguments and answer are those of `rounds_of_one_client`.

    `cells` [n_items + 1] are the totals as rows.
    """
    first, n_rounds, words, ids, ptr, items, taken, n_items = draws
    (users, frozen, table, totals), (scale, rate, reg), (pi, is_secret, per_item) = tables, numbers, coins
    n_clients, n_rows, is_choosy = U64(len(ids)), U64(totals.shape[0] - 1), pi.min() < 1.0 or is_secret.any()
    marks, states = _mark(ids), np.empty(len(ids), np.uint64)
    drawn = np.empty((3, len(ids)), np.uint32)
    likes, others, leaving = drawn[0], drawn[1], drawn[2]
    as_pairs = drawn.reshape((3, len(ids), 1))
    refused, is_refused = np.empty(len(ids) + 1, np.uint32), np.empty(len(ids), np.uint8)
    counts = np.zeros(totals.shape[0], np.uint64)
    zero, one, is_apart = U64(0), U64(1), frozen.ctypes.data != users.ctypes.data
    most, top = np.int64(0), load_row(tops, zero)
    for number in range(first, first + n_rounds):
        _draw_one_each(lane(words[1], number), marks, ptr, items, taken, n_items, states, likes, others, is_refused)
        n_refused = zero
        for c in range(n_clients):  # apart from the loads: the address of a write does not wait
            refused[n_refused] = c
            n_refused += U64(is_refused[c])
        for r in range(n_refused):
            c = U64(refused[r])
            negative, second = U64(others[c]), mix_word(states[c])
            while has(taken, c, negative):
                second += GAMMA
                negative = high(mix_word(second), n_items)
            others[c] = negative
        seal = lane(lane(words[2], number), 0)
        for c in range(n_clients):
            i, target = U64(likes[c]), U64(likes[c])
            if is_choosy:
                stream = mix_word(seal ^ marks[c])
                if is_secret[i] or not _coin(stream, stream + GAMMA, i, per_item) < pi[c]:
                    target = n_rows
            leaving[c] = target
            counts[target] += one
            counts[U64(others[c])] += _NEGATIVE
            sent[c, zero] += np.uint32(target == i)
            sent[c, one] += np.uint32(1)
        drawn_and_left = as_pairs[0], as_pairs[1], as_pairs[2]
        sum_of_pairs(frozen, users, table, *drawn_and_left, totals, cells, peaks, scale, rate, reg)
        for item in range(n_rows):
            count, counts[item] = counts[item], zero
            if count != zero:
                most = max(most, _both(count))
                top = _settle_item(table, totals, item, count, numbers, top)
        if is_apart:
            for c in range(n_clients):
                frozen[c] = users[c]
    store_row(tops, zero, top)
    return most


@njit(cache=True, nogil=True, error_model="numpy")
def _draw_one_each(word, marks, ptr, items, taken, n_items, states, likes, others, is_refused):
    """Draw a triple of every client as `draw_pairs` does; `is_refused` says whose negative is to be drawn again.

    `states` [C] become where the clients' streams start. What is computed stands apart from what is loaded: the one
    vectorises, and look-ups of the other overlap.
    """
    n_clients = U64(len(marks))
    for c in range(n_clients):
        states[c] = mix_word(word ^ marks[c])
    for c in range(n_clients):
        drawn, begin = mix_word(states[c] + GAMMA), U64(ptr[c])
        likes[c] = begin + high(drawn, U64(ptr[c + U64(1)]) - begin)
        others[c] = low(drawn, n_items)
    for c in range(n_clients):
        likes[c] = items[U64(likes[c])]
        is_refused[c] = has(taken, c, U64(others[c]))
