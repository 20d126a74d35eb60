"""From the values of a cohort's rows to whole numbers of the ring: measured, multiplied, added or written out.

A row of a part has a value [D] and a factor; what leaves is round(value scale factor). Rows come in two forms: *dense*,
each row with its own numbers, and *outer*, where row r of client c is a weight times the client's vector. Outer rows
(sums of outer products) are never written out to be added. Every sum runs in one fixed order, so a client gives the
same bits alone, in any cohort and on every machine.

`ids` [R] are rows of the table. `kept` [R] says which rows leave; an empty `kept` stands for all of them. `is_fit` [C]
says whose rows the ring can hold.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tacit.kernels.llvm.rowsum import add_row, square_of_row
from tacit.kernels.sampling import U64

LARGEST = np.finfo(np.float64).max
FARTHEST = 2.0**60  # a weight, or a length: single precision keeps its digits up to there, and its products fit


@njit(inline="always")
def _square(values, r):
    """Return |row|^2 in eight lanes of double precision, joined in one order: a long row loses nothing."""
    n = values.shape[1]
    a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = np.float64(0)
    whole = n - n % 8
    for d in range(0, whole, 8):
        x0, x1, x2, x3 = (
            np.float64(values[r, d]),
            np.float64(values[r, d + 1]),
            np.float64(values[r, d + 2]),
            np.float64(values[r, d + 3]),
        )
        x4, x5, x6, x7 = (
            np.float64(values[r, d + 4]),
            np.float64(values[r, d + 5]),
            np.float64(values[r, d + 6]),
            np.float64(values[r, d + 7]),
        )
        a0 += x0 * x0
        a1 += x1 * x1
        a2 += x2 * x2
        a3 += x3 * x3
        a4 += x4 * x4
        a5 += x5 * x5
        a6 += x6 * x6
        a7 += x7 * x7
    for d in range(whole, n):
        a0 += np.float64(values[r, d]) * np.float64(values[r, d])
    return np.float32(((a0 + a4) + (a2 + a6)) + ((a1 + a5) + (a3 + a7)))  # beyond single precision: too long


@njit(inline="always")
def shorten(square, limit):
    """Return the factor, at most 1, that makes a length fit, and the squared length after it; NaN stays NaN.

    The one place that says what clipping is: of a row or a client, written out or not. It has no branch, so a loop over
    it becomes vectors.
    """
    most = min(limit * limit, LARGEST)  # infinity is above it, whatever the limit
    nothing = square - square  # NaN, where the square is not finite
    is_short = square <= most
    by = np.float32(1) if is_short else np.float32(limit / np.sqrt(square) + nothing)
    return by, square if is_short else limit * limit + nothing


@njit(cache=True, nogil=True, error_model="numpy")
def clip_rows(ptr, kept, rows, factors, limit, squares, of_rows):
    """`clip_dense` for rows of a known width (`rows_of`)."""
    most = min(limit * limit, LARGEST)
    for c in range(U64(ptr.size - 1)):
        total = np.float64(0)
        for r in range(U64(ptr[c]), U64(ptr[c + U64(1)])):
            if kept.size == 0 or kept[r]:
                square, f = np.float64(square_of_row(rows, r)), factors[r]
                if f != np.float32(1):
                    square *= np.float64(f) * np.float64(f)
                if not square <= most:  # rarely: apart from the others it costs them nothing
                    by, square = shorten(square, limit)
                    factors[r] = f * by
                total += square
                if of_rows.size:
                    of_rows[r] = square
        squares[c] += total


@njit(cache=True, nogil=True, error_model="numpy")
def add_rows(ptr, ids, kept, rows, factors, is_fit, scale, cells):
    """Add rows of a known width to `cells` [n, D], as wide as they are."""
    for c in range(U64(ptr.size - 1)):
        if not is_fit[c]:
            continue
        for r in range(U64(ptr[c]), U64(ptr[c + U64(1)])):
            if kept.size and not kept[r]:
                continue
            add_row(rows, r, scale * factors[r] if factors.size else scale, cells, U64(ids[r]))


@njit(cache=True, nogil=True, error_model="numpy")
def count_rows(ptr, ids, kept, is_fit, counts):
    """Count in `counts` [n] how often each row leaves."""
    for c in range(U64(ptr.size - 1)):
        if is_fit[c]:
            for r in range(U64(ptr[c]), U64(ptr[c + U64(1)])):
                if kept.size == 0 or kept[r]:
                    counts[U64(ids[r])] += 1


@njit(cache=True, nogil=True, error_model="numpy")
def clip_dense(ptr, kept, values, factors, limit, squares, of_rows):
    """Let no kept row be longer than `limit`; add the squared lengths of each client's rows to `squares` [C].

    `of_rows` [R] become the squared lengths of kept rows, unless it is empty.
    """
    for c in range(ptr.size - 1):
        total = np.float64(0)
        for r in range(ptr[c], ptr[c + 1]):
            if kept.size == 0 or kept[r]:
                f = np.float64(factors[r])
                by, square = shorten(np.float64(_square(values, r)) * f * f, limit)
                factors[r] *= by
                total += square
                if of_rows.size:
                    of_rows[r] = square
        squares[c] += total


@njit(cache=True, nogil=True, error_model="numpy")
def clip_outer(ptr, kept, weights, vectors, factors, limit, squares, of_rows):
    """The same for rows that are a weight times the client's vector."""
    for c in range(ptr.size - 1):
        total, length = np.float64(0), np.float64(0)
        for d in range(vectors.shape[1]):  # in double precision: a tiny vector times a huge weight is no short row
            length += np.float64(vectors[c, d]) * np.float64(vectors[c, d])
        for r in range(ptr[c], ptr[c + 1]):
            if kept.size == 0 or kept[r]:
                f = np.float64(factors[r]) * np.float64(weights[r])
                if not abs(weights[r]) <= FARTHEST or not length <= FARTHEST * FARTHEST:
                    f = np.nan  # single precision would overflow, or lose all its digits, on the way to whole numbers
                by, square = shorten(length * f * f, limit)
                factors[r] *= by
                total += square
                if of_rows.size:
                    of_rows[r] = square
        squares[c] += total


@njit(inline="always")
def lengthen(square, lengths, row):
    """Add a row's length to `lengths`[row], and return by how much the square of that goes up."""
    length, before = np.sqrt(square), lengths[row]
    lengths[row] = before + length
    return length * (length + np.float64(2) * before)


@njit(cache=True, nogil=True, error_model="numpy")
def square_sums(ptrs, ids, kept, of_rows, lengths, squares):
    """Add to `squares` [C] the squared length that each client's rows of a table have at most when they are added up.

    Rows with the same number are counted by the triangle inequality: their lengths add up. Client c has the rows from
    ptrs[n, c] to ptrs[n, c + 1] of each part n of the table. `lengths` [n] are zeros before and after.
    """
    for c in range(ptrs.shape[1] - 1):
        total = np.float64(0)
        for n in range(ptrs.shape[0]):
            for r in range(ptrs[n, c], ptrs[n, c + 1]):
                if kept[r]:
                    total += lengthen(of_rows[r], lengths, ids[r])
        for n in range(ptrs.shape[0]):
            for r in range(ptrs[n, c], ptrs[n, c + 1]):
                lengths[ids[r]] = 0.0
        squares[c] += total


@njit(cache=True, nogil=True, error_model="numpy")
def count_repeats(ptr, ids, kept, seen, most):
    """Add to `most` [C] how often each client sends the row that it sends most often; `seen` [n] is zero, and stays."""
    for c in range(ptr.size - 1):
        largest = 0
        for r in range(ptr[c], ptr[c + 1]):
            if kept.size == 0 or kept[r]:
                seen[ids[r]] += 1
                largest = max(largest, seen[ids[r]])
        for r in range(ptr[c], ptr[c + 1]):
            seen[ids[r]] = 0
        most[c] += largest


@njit(cache=True, nogil=True, error_model="numpy")
def count_weighted(ptr, ids, kept, factors, unit, is_fit, counts):
    """Add to `counts` [n] what rows count: their factors in whole numbers, `unit` of them for a factor of 1."""
    for c in range(ptr.size - 1):
        if is_fit[c]:
            for r in range(ptr[c], ptr[c + 1]):
                if kept.size == 0 or kept[r]:
                    counts[ids[r]] += np.int64(np.rint(factors[r] * unit))


@njit(cache=True, nogil=True, error_model="numpy")
def square_counts(ptr, kept, factors, square_unit, squares):
    """Add to `squares` [C] the squares of what each client's kept rows count: `square_unit` for a factor of 1."""
    for c in range(U64(ptr.size - 1)):
        total = np.float64(0)
        for r in range(U64(ptr[c]), U64(ptr[c + U64(1)])):
            if kept.size == 0 or kept[r]:
                total += np.float64(factors[r]) * np.float64(factors[r])
        squares[c] += square_unit * total


@njit(cache=True, nogil=True, error_model="numpy")
def clip_clients(squares, limit, by):
    """Write to `by` [C] what makes each client's rows together fit; `squares` [C] become the squared lengths then."""
    for c in range(squares.size):
        by[c], squares[c] = shorten(squares[c], limit)


@njit(cache=True, nogil=True, error_model="numpy")
def multiply_rows(ptr, by, factors):
    """Multiply the factors of all rows of each client."""
    for c in range(ptr.size - 1):
        if by[c] != np.float32(1):
            for r in range(ptr[c], ptr[c + 1]):
                factors[r] *= by[c]


@njit(cache=True, nogil=True, error_model="numpy")
def largest_dense(ptr, kept, values, factors, largest):
    """Raise `largest` [C] to the largest number that each client's kept rows hold; NaN stays."""
    for c in range(ptr.size - 1):
        most = largest[c]
        for r in range(ptr[c], ptr[c + 1]):
            if kept.size == 0 or kept[r]:
                f = abs(factors[r]) if factors.size else np.float32(1)
                for d in range(values.shape[1]):
                    x = abs(values[r, d]) * f
                    if not x <= most and most == most:
                        most = x
        largest[c] = most


@njit(cache=True, nogil=True, error_model="numpy")
def largest_outer(ptr, kept, weights, vectors, largest):
    """The same for rows that are a weight times the client's vector."""
    for c in range(ptr.size - 1):
        most, is_sent = largest[c], False
        for r in range(ptr[c], ptr[c + 1]):
            if kept.size == 0 or kept[r]:
                is_sent = True
                w = abs(weights[r])
                if not w <= most and most == most:
                    most = w
        peak = np.float32(0)
        for d in range(vectors.shape[1]):
            x = abs(vectors[c, d])
            if not x <= peak and peak == peak:
                peak = x
        largest[c] = most * peak if is_sent else np.float32(0)


@njit(cache=True, nogil=True, error_model="numpy")
def add_dense(ptr, ids, kept, values, last, factors, is_fit, scale, sums, counts):
    """Add rows to `sums` [n, D] and count them; the last number of a row stands at values[r, last]."""
    width = sums.shape[1]
    for c in range(ptr.size - 1):
        if not is_fit[c]:
            continue
        for r in range(ptr[c], ptr[c + 1]):
            if kept.size and not kept[r]:
                continue
            row = ids[r]
            f = factors[r] if factors.size else np.float32(1)
            counts[row] += 1
            for d in range(width - 1):
                sums[row, d] += np.int64(np.rint(values[r, d] * (scale * f)))
            sums[row, width - 1] += np.int64(np.rint(values[r, last] * (scale * f)))


@njit(cache=True, nogil=True, error_model="numpy")
def add_outer(ptr, ids, kept, weights, by_row, vectors, is_fit, scale, sums, counts):
    """Add rows that are a weight times the client's vector; weights are [R], or `by_row` of the table [n]."""
    width = U64(vectors.shape[1])
    for c in range(U64(ptr.size - 1)):
        if not is_fit[c]:
            continue
        for r in range(U64(ptr[c]), U64(ptr[c + U64(1)])):
            if kept.size and not kept[r]:
                continue
            row = U64(ids[r])
            counts[row] += 1
            weight = (weights[row] if by_row else weights[r]) * scale
            for d in range(width):
                sums[row, d] += np.int64(np.rint(weight * vectors[c, d]))


@njit(cache=True, nogil=True, error_model="numpy")
def add_repeated(ptr, ids, kept, numbers, is_fit, sums, counts):
    """Add the whole numbers [C, D] of a client to every kept row of it."""
    width = U64(numbers.shape[1])
    for c in range(U64(ptr.size - 1)):
        if not is_fit[c]:
            continue
        for r in range(U64(ptr[c]), U64(ptr[c + U64(1)])):
            if kept.size and not kept[r]:
                continue
            row = U64(ids[r])
            counts[row] += 1
            for d in range(width):
                sums[row, d] += numbers[c, d]


@njit(cache=True, nogil=True, error_model="numpy")
def write_dense(ptr, ids, kept, sensitive, values, last, factors, is_fit, scale, starts, out):
    """Write rows to (ids, numbers, marks), those of client c from starts[c] on."""
    row_ids, numbers, marks = out
    width = numbers.shape[1]
    for c in range(ptr.size - 1):
        if not is_fit[c]:
            continue
        at = starts[c]
        for r in range(ptr[c], ptr[c + 1]):
            if kept.size and not kept[r]:
                continue
            f = factors[r] if factors.size else np.float32(1)
            row_ids[at] = ids[r]
            marks[at] = sensitive[r]
            for d in range(width - 1):
                numbers[at, d] = np.int64(np.rint(values[r, d] * (scale * f)))
            numbers[at, width - 1] = np.int64(np.rint(values[r, last] * (scale * f)))
            at += 1


@njit(cache=True, nogil=True, error_model="numpy")
def count_release(ptr, kept, sensitive, is_sensitive, row_bytes, counts):
    """Add to `counts` [3, C] each client's kept rows that are sensitive, those that are not, and the bytes of both.

    An empty `sensitive` stands for `is_sensitive` everywhere.
    """
    one, two = U64(1), U64(2)
    for c in range(U64(ptr.size - 1)):
        start, stop = U64(ptr[c]), U64(ptr[c + one])
        n_rows = np.int64(stop - start)
        if kept.size:
            n_rows = np.int64(0)
            for r in range(start, stop):
                n_rows += np.int64(kept[r] != 0)
        n_own = n_rows if is_sensitive else np.int64(0)
        if sensitive.size:
            n_own = np.int64(0)
            for r in range(start, stop):
                n_own += np.int64(sensitive[r] and (kept.size == 0 or kept[r] != 0))
        counts[U64(0), c] += n_own
        counts[one, c] += n_rows - n_own
        counts[two, c] += n_rows * row_bytes
