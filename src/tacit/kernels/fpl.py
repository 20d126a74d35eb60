"""Federated pair-wise learning on a cohort: draw triples, move the person's vector, make the rows that may be sent.

A row of the item table is [q, b]: the vector and, last, the bias; a person's row is [p, 1]. So the preference of i
over j is x = [p, 1] . ([q_i, b_i] - [q_j, b_j]), and with z = 1 / (1 + e^x) a triple makes two rows for the server:

    positive   z [p, 1] - reg_i [q_i, 0]
    negative  -z [p, 1] - reg_j [q_j, 0]

Each of the two terms is rounded to the grid of the ring (multiples of 1/scale), so that sums of rows are sums of
whole numbers. Items stay as received for the whole round, so the second term of an item is the same in every row.
`rows_of_pairs` writes the rows out, which is what a device sends; `sum_of_pairs` adds the first terms of many devices
at once and `shrink_touched` subtracts the second ones, counted. The sums agree to the last bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from tacit.kernels.exponential import doubt
from tacit.kernels.membership import has
from tacit.kernels.rowvec import Row, chunks, spread
from tacit.kernels.sampling import GAMMA, U64, high, lane, low, mix

_F32 = ir.FloatType()
_I32 = ir.IntType(32)
_I64 = ir.IntType(64)
_UNIT = 2.0**-53
_BLOCK = 512  # rounds drawn ahead: they stay in the nearest cache
_TOGETHER = U64(8)  # clients advanced in step: their chains of dependent operations overlap


# --- code for whole rows ------------------------------------------------------------------------------------------


def _call(builder: Any, name: str, *args: Any) -> Any:
    """Code for an LLVM intrinsic on equal vectors."""
    kind = args[0].type
    function = ir.FunctionType(kind, [kind] * len(args))
    return builder.call(cgutils.get_or_insert_function(builder.module, function, f"{name}.v{kind.count}f32"), args)


def _fma(builder: Any, a: list[Any], b: list[Any], c: list[Any]) -> list[Any]:
    return [_call(builder, "llvm.fma", x, y, z) for x, y, z in zip(a, b, c, strict=True)]


def _minus(builder: Any, a: list[Any], b: list[Any]) -> list[Any]:
    return [builder.fsub(x, y) for x, y in zip(a, b, strict=True)]


def _filled(builder: Any, scalar: Any, like: list[Any], last: float | None = None) -> list[Any]:
    """Code for a row that holds one number everywhere, with `last` in the place of the bias."""
    row = [spread(builder, scalar, vector.type.count) for vector in like]
    if last is not None:
        at = ir.Constant(_I32, row[-1].type.count - 1)
        row[-1] = builder.insert_element(row[-1], ir.Constant(_F32, last), at)
    return row


def _dot(builder: Any, a: list[Any], b: list[Any]) -> Any:
    """Code for a dot product in one fixed order: halves of the widest chunk, joined by the narrower ones on the way."""
    total = None
    for x, y in zip(a, b, strict=True):
        width = x.type.count
        while total is not None and total.type.count > width:
            total = _halved(builder, total)
        total = builder.fmul(x, y) if total is None else _call(builder, "llvm.fma", x, y, total)
    while total.type.count > 1:
        total = _halved(builder, total)
    return builder.extract_element(total, ir.Constant(_I32, 0))


def _halved(builder: Any, vector: Any) -> Any:
    half = vector.type.count // 2
    kind = ir.VectorType(_I32, half)
    lower = builder.shuffle_vector(vector, vector, ir.Constant(kind, list(range(half))))
    upper = builder.shuffle_vector(vector, vector, ir.Constant(kind, list(range(half, 2 * half))))
    return builder.fadd(lower, upper)


def _on_grid(builder: Any, scalar: Any, row: list[Any], last: float | None = None) -> list[Any]:
    """Code for round(scalar row): whole numbers, still as floats."""
    products = zip(_filled(builder, scalar, row, last), row, strict=True)
    return [_call(builder, "llvm.rint", builder.fmul(factor, vector)) for factor, vector in products]


@intrinsic
def preference(typing_context, left, u, right, i, j):
    """Return left[u] . (right[i] - right[j])."""

    def generate(context, builder, signature, args):
        p = Row(context, builder, left, args[0], args[1]).load()
        q_i = Row(context, builder, right, args[2], args[3]).load()
        q_j = Row(context, builder, right, args[2], args[4]).load()
        return _dot(builder, p, _minus(builder, q_i, q_j))

    return types.float32(left, types.uint64, right, types.uint64, types.uint64), generate


class _Step:
    """Code for one triple: the rows it reads, the person's step, and z [p, 1] on the grid."""

    def __init__(self, context: Any, builder: Any, kinds: Any, args: Any) -> None:
        moved, people, table = kinds
        self.builder = builder
        self.row = Row(context, builder, moved, args[0], args[3])
        self.p = Row(context, builder, people, args[1], args[3]).load()
        self.q_i = Row(context, builder, table, args[2], args[4]).load()
        self.q_j = Row(context, builder, table, args[2], args[5]).load()

    def advance(self, step: Any, shrink: Any) -> None:
        """Move the person: += step (q_i - q_j) - shrink p, but for the last place, where her 1 stays."""
        builder, p = self.builder, self.p
        kept = _fma(builder, _filled(builder, builder.fneg(shrink), p, last=0.0), p, self.row.load())
        self.row.store(_fma(builder, _filled(builder, step, p, last=0.0), _minus(builder, self.q_i, self.q_j), kept))

    def pull(self, z: Any) -> list[Any]:
        """Return round(z [p, 1])."""
        return _on_grid(self.builder, z, self.p)


_STEP = [types.uint64] * 3 + [types.float32] * 3


@intrinsic
def step_and_write(typing_context, moved, people, table, c, i, j, step, shrink, z, reg_i, reg_j, unit, rows, a, b):
    """Move client c by a triple, and write its two rows to rows[a] and rows[b]; z and both regs come times the scale."""

    def generate(context, builder, signature, args):
        triple = _Step(context, builder, (moved, people, table), args)
        step, shrink, z, reg_i, reg_j, unit, target, a, b = args[6:]
        pull = triple.pull(z)
        push = [builder.fneg(vector) for vector in pull]
        for at, row, reg, q in ((a, pull, reg_i, triple.q_i), (b, push, reg_j, triple.q_j)):
            whole = _minus(builder, row, _on_grid(builder, reg, q, last=0.0))
            value = [builder.fmul(x, y) for x, y in zip(whole, _filled(builder, unit, whole), strict=True)]
            Row(context, builder, rows, target, at).store(value)
        triple.advance(step, shrink)
        return context.get_dummy_value()

    more = [types.float32] * 3 + [rows] + [types.uint64] * 2
    return types.void(moved, people, table, *_STEP, *more), generate


@intrinsic
def step_and_add(typing_context, moved, people, table, c, i, j, step, shrink, z, totals, is_sent):
    """Move client c by a triple, and add z [p, 1] to totals[i] if it is sent and subtract it from totals[j]."""
    bits = totals.dtype.bitwidth
    number = ir.IntType(bits)

    def generate(context, builder, signature, args):
        triple = _Step(context, builder, (moved, people, table), args)
        step, shrink, z, target, sent = args[6:]
        length = table.dtype.size // 4
        pull = []
        for vector in triple.pull(z):
            whole = builder.fptosi(vector, ir.VectorType(_I32, vector.type.count))
            pull.append(builder.sext(whole, ir.VectorType(number, whole.type.count)) if bits > 32 else whole)
        triple.advance(step, shrink)
        start = context.make_array(totals)(context, builder, target).data

        def change(item, operation):
            at = builder.gep(start, [builder.mul(item, ir.Constant(_I64, length))])
            for (offset, width), whole in zip(chunks(length), pull, strict=True):
                cell = builder.gep(at, [ir.Constant(_I64, offset)])
                cell = builder.bitcast(cell, ir.VectorType(number, width).as_pointer())
                builder.store(operation(builder.load(cell, align=bits // 8), whole), cell, align=bits // 8)

        change(args[5], builder.sub)
        with builder.if_then(builder.icmp_unsigned("!=", sent, sent.type(0))):
            change(args[4], builder.add)
        return context.get_dummy_value()

    return types.void(moved, people, table, *_STEP, totals, types.uint8), generate


# --- kernels ------------------------------------------------------------------------------------------------------


@njit(inline="always")
def _draw(word, client_id, start, size, items, taken, position, n_items, positives, negatives, refused):
    """Fill one client's positives and negatives [T]; `position` is hers in `taken`."""
    n_triples = U64(len(positives))
    first = lane(word, client_id)
    second = mix(first)
    n_refused = U64(0)
    for t in range(n_triples):
        first += GAMMA
        drawn = mix(first)
        positives[t] = items[start + high(drawn, size)]
        negatives[t] = low(drawn, n_items)
    for t in range(n_triples):
        refused[n_refused] = t
        n_refused += U64(has(taken, position, U64(negatives[t])))
    for k in range(n_refused):
        t = U64(refused[k])
        negative = U64(negatives[t])
        while has(taken, position, negative):
            second += GAMMA
            negative = high(mix(second), n_items)
        negatives[t] = negative


@njit(cache=True, nogil=True, error_model="numpy")
def draw_pairs(word, ids, ptr, items, taken, n_items, positives, negatives):
    """Fill positives and negatives [C, T] for clients `ids` [C]; each client's draws follow from (word, id) alone.

    A positive is uniform over her history, a negative uniform over the catalogue, redrawn while she has it. Draw t
    takes word t of her stream for both; redraws take the words of a second stream, one by one. First all are drawn,
    then the few refused ones are mended: no branch in between.
    """
    refused = np.empty(positives.shape[1], np.uint32)
    for c in range(U64(len(ids))):
        start = U64(ptr[c])
        size = U64(ptr[c + U64(1)]) - start
        _draw(word, ids[c], start, size, items, taken, c, n_items, positives[c], negatives[c], refused)


@njit(cache=True, nogil=True, error_model="numpy")
def rows_of_pairs(people, moved, table, positives, negatives, rows, scale, rate, reg):
    """Take every client's local steps and write her rows: `rows` [C * 2T], positives then negatives per client.

    `people` are the vectors that gradients are taken at, `moved` those that move: the same array where p moves after
    every triple, another one where all gradients are taken at the old p. `reg` [3] is for person, positive, negative.
    """
    n_clients, n_triples = positives.shape
    n_triples = U64(n_triples)
    shrink, reg_i, reg_j = rate * reg[0], scale * reg[1], scale * reg[2]
    unit = np.float32(1.0) / scale
    for c in range(U64(n_clients)):
        for t in range(n_triples):
            i, j = U64(positives[c, t]), U64(negatives[c, t])
            z = doubt(preference(people, c, table, i, j))
            at = c * U64(2) * n_triples + t
            step_and_write(
                moved, people, table, c, i, j, rate * z, shrink, scale * z, reg_i, reg_j, unit, rows, at, at + n_triples
            )


@njit(cache=True, nogil=True, error_model="numpy")
def sum_of_pairs(people, moved, table, positives, negatives, is_sent, totals, scale, rate, reg):
    """Take every client's local steps and add z [p, 1] of what she sends to `totals` [n_items, D] in the ring."""
    n_clients, n_triples = positives.shape
    shrink = rate * reg[0]
    for start in range(U64(0), U64(n_clients), _TOGETHER):
        stop = min(U64(n_clients), start + _TOGETHER)
        for t in range(U64(n_triples)):
            for c in range(start, stop):
                i, j = U64(positives[c, t]), U64(negatives[c, t])
                z = doubt(preference(people, c, table, i, j))
                step_and_add(moved, people, table, c, i, j, rate * z, shrink, scale * z, totals, is_sent[c, t])


@njit(cache=True, nogil=True, error_model="numpy")
def count_touched(positives, negatives, is_sent, counts):
    """Count in `counts` [2, n_items] how often each item is sent as a positive and as a negative."""
    for c in range(U64(positives.shape[0])):
        for t in range(U64(positives.shape[1])):
            counts[U64(0), U64(positives[c, t])] += is_sent[c, t]
            counts[U64(1), U64(negatives[c, t])] += np.uint8(1)


@njit(cache=True, nogil=True, error_model="numpy")
def shrink_touched(table, counts, totals, scale, reg):
    """Subtract the second terms of all rows that were counted: totals -= counts round(scale reg q), not for the bias."""
    for item in range(len(table)):
        for d in range(table.shape[1] - 1):
            for sign in range(2):
                if counts[sign, item]:
                    term = np.rint(scale * reg[1 + sign] * table[item, d])
                    totals[item, d] -= counts[sign, item] * np.int64(term)


# --- many rounds of one client each -------------------------------------------------------------------------------


@intrinsic
def step_and_apply(typing_context, moved, people, table, c, i, j, step, shrink, z, reg_i, reg_j, gain, is_sent):
    """Move client c by a triple, and the two items by gain times their rows: a whole round of one triple."""

    def generate(context, builder, signature, args):
        triple = _Step(context, builder, (moved, people, table), args)
        step, shrink, z, reg_i, reg_j, gain, sent = args[6:]
        pull = triple.pull(z)
        push = [builder.fneg(vector) for vector in pull]

        def change(item, row, reg, q):
            whole = _minus(builder, row, _on_grid(builder, reg, q, last=0.0))
            moved_by = zip(_filled(builder, gain, whole), whole, q, strict=True)
            Row(context, builder, table, args[2], item).store(
                [builder.fadd(r, builder.fmul(g, w)) for g, w, r in moved_by]
            )

        change(args[5], push, reg_j, triple.q_j)
        with builder.if_then(builder.icmp_unsigned("!=", sent, sent.type(0))):
            change(args[4], pull, reg_i, triple.q_i)
        triple.advance(step, shrink)
        return context.get_dummy_value()

    return types.void(moved, people, table, *_STEP, *[types.float32] * 3, types.uint8), generate


@njit(inline="always")
def _coin(stream, state, item, per_item):
    drawn = mix(lane(stream, item) + GAMMA) if per_item else mix(state)
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
    people,
    table,
    scale,
    rate,
    reg,
    pi,
    is_secret,
    per_item,
    sent,
):
    """Run whole rounds of one client and one triple each; `people` and `table` move, `sent` [2, C] counts rows.

    `words` are those of choosing, learning and sealing; round r takes lane r of each. Rounds are drawn ahead in
    blocks, so that their look-ups in memory overlap.
    """
    zero, one = U64(0), U64(1)
    shrink, reg_i, reg_j = rate * reg[0], scale * reg[1], scale * reg[2]
    gain = rate / scale
    block = np.empty((4, _BLOCK), np.uint32)
    refused = np.empty(1, np.uint32)
    for start in range(first, first + n_rounds, _BLOCK):
        size = U64(min(_BLOCK, first + n_rounds - start))
        for k in range(size):
            number = U64(start) + k
            c = high(mix(lane(words[0], number) + GAMMA), len(ids))
            block[zero, k] = c
            begin = U64(ptr[c])
            length = U64(ptr[c + one]) - begin
            pair = block[:, k : k + one]
            _draw(lane(words[1], number), ids[c], begin, length, items, taken, c, n_items, pair[1], pair[2], refused)
            stream = lane(lane(lane(words[2], number), 0), ids[c])
            item = U64(block[one, k])
            leaves = not is_secret[item] and _coin(stream, stream + GAMMA, item, per_item) < pi[c]
            block[U64(3), k] = leaves
            sent[zero, c] += leaves
            sent[one, c] += 1
        for k in range(size):
            c, i, j = U64(block[zero, k]), U64(block[one, k]), U64(block[U64(2), k])
            z = doubt(preference(people, c, table, i, j))
            leaves = np.uint8(block[U64(3), k])
            step_and_apply(people, people, table, c, i, j, rate * z, shrink, scale * z, reg_i, reg_j, gain, leaves)


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
    people,
    frozen,
    table,
    values,
    n_triples,
    scale,
    rate,
    reg,
    pi,
    is_secret,
    per_item,
    sent,
):
    """Run whole rounds of one client and many triples each; `values` [n_items, D] is the same table as `table`.

    `frozen` are the vectors that gradients are taken at: `people` itself, or a copy that follows after each round.
    """
    totals = np.zeros(values.shape, np.int64)
    counts = np.zeros((2, len(values)), np.int64)
    pair = np.empty((2, n_triples), np.uint32)
    refused = np.empty(n_triples, np.uint32)
    touched = np.empty(2 * n_triples, np.uint32)
    shrink, unit = rate * reg[0], np.float32(1.0) / scale
    for number in range(first, first + n_rounds):
        c = high(mix(lane(words[0], number) + GAMMA), len(ids))
        begin = U64(ptr[c])
        length = U64(ptr[c + U64(1)]) - begin
        _draw(lane(words[1], number), ids[c], begin, length, items, taken, c, n_items, pair[0], pair[1], refused)
        stream = lane(lane(lane(words[2], number), 0), ids[c])
        state = stream
        n_touched = U64(0)
        for t in range(U64(n_triples)):
            i, j = U64(pair[0, t]), U64(pair[1, t])
            state += GAMMA
            leaves = np.uint8(not is_secret[i] and _coin(stream, state, i, per_item) < pi[c])
            z = doubt(preference(frozen, c, table, i, j))
            step_and_add(people, frozen, table, c, i, j, rate * z, shrink, scale * z, totals, leaves)
            for sign, item in ((0, i), (1, j)):
                if sign == 0 and leaves == 0:
                    continue
                if counts[0, item] + counts[1, item] == 0:
                    touched[n_touched] = item
                    n_touched += U64(1)
                counts[sign, item] += 1
                sent[sign, c] += 1
        for k in range(n_touched):
            item = U64(touched[k])
            for d in range(values.shape[1]):
                total = totals[item, d]
                if d < values.shape[1] - 1:
                    for sign in range(2):
                        term = np.rint(scale * reg[1 + sign] * values[item, d])
                        total -= counts[sign, item] * np.int64(term)
                values[item, d] += rate * (np.float32(total) * unit)
                totals[item, d] = 0
            counts[0, item] = 0
            counts[1, item] = 0
        frozen[c] = people[c]
