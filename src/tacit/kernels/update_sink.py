"""From the values of a cohort's rows to whole numbers of the ring: measured, multiplied, added or written out.

A row of a part has a value [D] and a factor; what leaves is round(value scale factor). Rows come in two forms: *dense*,
each row with its own numbers, and *outer*, where row r of client c is a weight times the client's vector (sums of outer
products): these are never written out to be added. Every sum runs in one fixed order, so a client gives the same bits
alone, in any cohort and on every machine.

`ids` [R] are rows of the table. `kept` [R] says which rows leave; an empty `kept` stands for all of them. `is_fit` [C]
says whose rows the ring can hold.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tacit.kernels.rowsum import add_row, square_of_row
from tacit.kernels.sampling import U64

LARGEST = np.finfo(np.float64).max


@njit(inline="always")
def _square(values, r):
    """Return |row|^2 in eight lanes, joined in one order."""
    n = values.shape[1]
    a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = np.float32(0)
    whole = n - n % 8
    for d in range(0, whole, 8):
        a0 += values[r, d] * values[r, d]
        a1 += values[r, d + 1] * values[r, d + 1]
        a2 += values[r, d + 2] * values[r, d + 2]
        a3 += values[r, d + 3] * values[r, d + 3]
        a4 += values[r, d + 4] * values[r, d + 4]
        a5 += values[r, d + 5] * values[r, d + 5]
        a6 += values[r, d + 6] * values[r, d + 6]
        a7 += values[r, d + 7] * values[r, d + 7]
    for d in range(whole, n):
        a0 += values[r, d] * values[r, d]
    return ((a0 + a4) + (a2 + a6)) + ((a1 + a5) + (a3 + a7))


@njit(inline="always")
def _shorten(square, limit):
    """Return the factor, at most 1, that makes a length fit, and the squared length after it; no number stays none."""
    if not square < np.inf:
        return np.float32(np.nan), np.nan
    if square <= limit * limit:
        return np.float32(1), square
    return np.float32(limit / np.sqrt(square)), limit * limit


@njit(cache=True, nogil=True, error_model="numpy")
def clip_rows(ptr, kept, rows, factors, limit, squares):
    """`clip_dense` for rows of a known width (`rows_of`)."""
    most = min(limit * limit, LARGEST)  # infinity is above it, whatever the limit
    for c in range(U64(ptr.size - 1)):
        total = np.float64(0)
        for r in range(U64(ptr[c]), U64(ptr[c + U64(1)])):
            if kept.size == 0 or kept[r]:
                square, f = np.float64(square_of_row(rows, r)), factors[r]
                if f != np.float32(1):
                    square *= np.float64(f) * np.float64(f)
                if not square <= most:
                    by, square = _shorten(square, limit)
                    factors[r] = f * by
                total += square
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
def clip_dense(ptr, kept, values, factors, limit, squares):
    """Let no kept row be longer than `limit`; add the squared lengths of each client's rows to `squares` [C]."""
    for c in range(ptr.size - 1):
        total = np.float64(0)
        for r in range(ptr[c], ptr[c + 1]):
            if kept.size == 0 or kept[r]:
                f = np.float64(factors[r])
                by, square = _shorten(np.float64(_square(values, r)) * f * f, limit)
                factors[r] *= by
                total += square
        squares[c] += total


@njit(cache=True, nogil=True, error_model="numpy")
def clip_outer(ptr, kept, weights, vectors, factors, limit, squares):
    """The same for rows that are a weight times the client's vector."""
    for c in range(ptr.size - 1):
        total, length = np.float64(0), np.float64(0)
        for d in range(vectors.shape[1]):  # in double precision: a tiny vector times a huge weight is no short row
            length += np.float64(vectors[c, d]) * np.float64(vectors[c, d])
        for r in range(ptr[c], ptr[c + 1]):
            if kept.size == 0 or kept[r]:
                f = np.float64(factors[r]) * np.float64(weights[r])
                by, square = _shorten(length * f * f, limit)
                factors[r] *= by
                total += square
        squares[c] += total


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
    for c in range(ptr.size - 1):
        if not is_fit[c]:
            continue
        for r in range(ptr[c], ptr[c + 1]):
            if kept.size and not kept[r]:
                continue
            row = ids[r]
            counts[row] += 1
            weight = (weights[row] if by_row else weights[r]) * scale
            for d in range(vectors.shape[1]):
                sums[row, d] += np.int64(np.rint(weight * vectors[c, d]))


@njit(cache=True, nogil=True, error_model="numpy")
def add_repeated(ptr, ids, kept, numbers, is_fit, sums, counts):
    """Add the whole numbers [C, D] of a client to every kept row of hers."""
    for c in range(ptr.size - 1):
        if not is_fit[c]:
            continue
        for r in range(ptr[c], ptr[c + 1]):
            if kept.size and not kept[r]:
                continue
            row = ids[r]
            counts[row] += 1
            for d in range(numbers.shape[1]):
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
def count_kept(ptr, kept, sensitive, counts):
    """Add to `counts` [2, C] how many kept rows of each client are sensitive, and how many are not."""
    for c in range(ptr.size - 1):
        for r in range(ptr[c], ptr[c + 1]):
            if kept.size == 0 or kept[r]:
                counts[0 if sensitive[r] else 1, c] += 1
