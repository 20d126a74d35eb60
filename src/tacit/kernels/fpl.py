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
from tacit.kernels.llvm.triples import preference, settle_row, step_and_add, step_and_apply, step_and_write
from tacit.kernels.membership import has, word_of
from tacit.kernels.sampling import GAMMA, U64, high, lane, low, mix_word

_UNIT = 2.0**-53
_BLOCK = 512  # draws made together: they stay in the nearest cache
_AHEAD = 128  # rounds drawn ahead: what they will read stays there too
_NEAR = 2**20  # bytes of a table that need not be asked for ahead
_SHARED = 8  # triples of a client: their look-ups share what was loaded
_TOGETHER = U64(16)  # triples that go side by side


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
    z = np.zeros(_TOGETHER, np.float32)
    for start in range(U64(0), n_clients, _TOGETHER):
        stop = min(n_clients, start + _TOGETHER)
        for t in range(n_triples):
            for c in range(start, stop):
                z[c - start] = preference(users, c, table, U64(positives[c, t]), U64(negatives[c, t]))
            for k in range(_TOGETHER):
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
    z = np.zeros(_TOGETHER, np.float32)
    for start in range(U64(0), n_clients, _TOGETHER):
        stop = min(n_clients, start + _TOGETHER)
        for t in range(n_triples):
            for c in range(start, stop):
                z[c - start] = preference(users, c, table, U64(positives[c, t]), U64(negatives[c, t]))
            for k in range(_TOGETHER):
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


# --- many rounds at once --------------------------------------------------------------------------------------------


@njit(inline="always")
def _coin(stream, state, item, per_item):
    drawn = mix_word(lane(stream, item) + GAMMA) if per_item else mix_word(state)
    return (drawn >> U64(11)) * _UNIT


@njit(cache=True, nogil=True, error_model="numpy")
def rounds_of_one_triple(
    first,
    n_rounds,
    words,
    ids,
    ptr,
    items,
    taken,
    n_items,
    users,
    table,
    scale,
    rate,
    reg,
    pi,
    is_secret,
    per_item,
    sent,
    peaks,
):
    """Run whole rounds of one client and one triple each; `clients` and `table` move, `sent` [C, 2] counts rows.

    `words` are those of choosing, learning and sealing; round r takes lane r of each. Rounds are drawn ahead in
    blocks, so that their look-ups in memory overlap, and rounds that share neither client nor item go side by side:
    none of them could tell that the others were not there yet.
    """
    zero, one, n_clients = U64(0), U64(1), U64(len(ids))
    shrink, reg_i, reg_j = rate * reg[0], scale * reg[1], scale * reg[2]
    gain = rate / scale
    who, likes, other = np.empty(_AHEAD, np.uint32), np.empty(_AHEAD, np.uint32), np.empty(_AHEAD, np.uint32)
    leaves, is_refused = np.empty(_AHEAD, np.uint8), np.empty(_AHEAD, np.uint8)
    refused, states = np.empty(_AHEAD + 1, np.uint32), np.empty(_AHEAD, np.uint64)
    marks, bits, n_words = np.empty(len(ids), np.uint64), taken.bits, U64(taken.bits.shape[1])
    for c in range(n_clients):
        marks[c] = mix_word(U64(ids[c]) + GAMMA)
    is_choosy = pi.min() < 1.0 or is_secret.any()
    client_used, item_used = np.zeros(len(ids), np.uint32), np.zeros(len(table), np.uint32)
    z = np.zeros(_TOGETHER, np.float32)
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
            while stop < size and stop - at < _TOGETHER:
                c, i, j = U64(who[stop]), U64(likes[stop]), U64(other[stop])
                if client_used[c] > since or item_used[i] > since or item_used[j] > since:
                    break
                now += np.uint32(1)
                client_used[c] = item_used[i] = item_used[j] = now
                stop += one
            for k in range(at, stop):
                z[k - at] = preference(users, U64(who[k]), table, U64(likes[k]), U64(other[k]))
            for k in range(_TOGETHER):
                z[k] = sigmoid_complement(z[k])
            for k in range(at, stop):
                c, i, j, sure = U64(who[k]), U64(likes[k]), U64(other[k]), z[k - at]
                step_and_apply(
                    users,
                    users,
                    table,
                    c,
                    i,
                    j,
                    rate * sure,
                    shrink,
                    scale * sure,
                    reg_i,
                    reg_j,
                    gain,
                    leaves[k],
                    peaks,
                )
            at = stop


@njit(cache=True, nogil=True, error_model="numpy")
def rounds_of_one_client(
    first,
    n_rounds,
    words,
    ids,
    ptr,
    items,
    taken,
    n_items,
    users,
    frozen,
    table,
    totals,
    n_triples,
    scale,
    rate,
    reg,
    pi,
    is_secret,
    per_item,
    sent,
    peaks,
    tops,
):
    """Run whole rounds of one client and many triples each; `totals` [n_items + 1, D] are zero, before and after.

    `frozen` are the vectors that gradients are taken at: `users` itself, or a copy that follows after each round.
    `peaks` [1] keeps the largest terms, `tops` [1] the largest sums, place by place. Return how often an item was sent
    in a round at most.
    """
    unsent, is_choosy = U64(totals.shape[0] - 1), pi.min() < 1.0 or is_secret.any()
    counts = np.zeros((2, totals.shape[0]), np.int32)
    pairs = np.empty((2, 2, n_triples), np.uint32)
    refused = np.empty(n_triples + 1, np.uint32)
    touched = np.empty(2 * n_triples + 1, np.uint32)
    shrink, unit = rate * reg[0], np.float32(1.0) / scale
    reg_i, reg_j = scale * reg[1], scale * reg[2]
    zero, one, n_steps = U64(0), U64(1), U64(n_triples)
    most = np.int32(0)
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
        n_touched, n_refused = zero, zero
        learns = number >= first
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
            z = sigmoid_complement(preference(frozen, c, table, i, j))
            a = i if leaves else unsent
            step_and_add(users, frozen, table, c, i, j, rate * z, shrink, scale * z, totals, a, peaks)
            touched[n_touched] = i  # no branch: what was there already is written over
            n_touched += U64(leaves and counts[zero, i] + counts[one, i] == 0)
            counts[zero, a] += 1
            touched[n_touched] = j
            n_touched += U64(counts[zero, j] + counts[one, j] == 0)
            counts[one, j] += 1
            sent[c, zero] += leaves
        for k in range(n_refused):
            t = U64(refused[k])
            negative = U64(next_pair[one, t])
            while has(taken, next_c, negative):
                second += GAMMA
                negative = high(mix_word(second), n_items)
            next_pair[one, t] = negative
        if learns:
            sent[c, one] += np.uint32(n_triples)
            for k in range(n_touched):
                item = U64(touched[k])
                n_positive, n_negative = counts[zero, item], counts[one, item]
                most = max(most, n_positive + n_negative)
                settle_row(
                    table,
                    totals,
                    item,
                    np.float64(n_positive),
                    np.float64(n_negative),
                    reg_i,
                    reg_j,
                    unit,
                    rate,
                    tops,
                )
                counts[zero, item] = 0
                counts[one, item] = 0
            frozen[c] = users[c]
        c, pair = next_c, next_pair
    return most


@njit(cache=True, nogil=True, error_model="numpy")
def rounds_of_all_clients(
    first,
    n_rounds,
    words,
    ids,
    ptr,
    items,
    taken,
    n_items,
    users,
    frozen,
    table,
    totals,
    cells,
    scale,
    rate,
    reg,
    pi,
    is_secret,
    per_item,
    sent,
    peaks,
    tops,
):
    """Run whole rounds of all clients, one triple each; arguments and answer are those of `rounds_of_one_client`.

    `cells` [n_items + 1] are the totals as rows.
    """
    n_clients, n_rows, is_choosy = U64(len(ids)), U64(totals.shape[0] - 1), pi.min() < 1.0 or is_secret.any()
    marks, states = np.empty(len(ids), np.uint64), np.empty(len(ids), np.uint64)
    drawn = np.empty((3, len(ids)), np.uint32)
    likes, others, leaving = drawn[0], drawn[1], drawn[2]
    as_pairs = drawn.reshape((3, len(ids), 1))
    refused, is_refused = np.empty(len(ids) + 1, np.uint32), np.empty(len(ids), np.uint8)
    counts = np.zeros((2, totals.shape[0]), np.int32)
    unit, reg_i, reg_j = np.float32(1.0) / scale, scale * reg[1], scale * reg[2]
    zero, one, is_apart = U64(0), U64(1), frozen.ctypes.data != users.ctypes.data
    most = np.int32(0)
    for c in range(n_clients):
        marks[c] = mix_word(U64(ids[c]) + GAMMA)
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
            counts[zero, target] += 1
            counts[one, U64(others[c])] += 1
            sent[c, zero] += np.uint32(target == i)
            sent[c, one] += np.uint32(1)
        sum_of_pairs(
            frozen, users, table, as_pairs[0], as_pairs[1], as_pairs[2], totals, cells, peaks, scale, rate, reg
        )
        for item in range(n_rows):
            n_positive, n_negative = counts[zero, item], counts[one, item]
            counts[zero, item] = 0
            counts[one, item] = 0
            if n_positive + n_negative == 0:
                continue
            most = max(most, n_positive + n_negative)
            settle_row(
                table,
                totals,
                item,
                np.float64(n_positive),
                np.float64(n_negative),
                reg_i,
                reg_j,
                unit,
                rate,
                tops,
            )
        if is_apart:
            for c in range(n_clients):
                frozen[c] = users[c]
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
