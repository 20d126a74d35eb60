"""The kernels of the update sink against naive references: ragged clients, rows that stay, NaN, padding."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from tacit.kernels.llvm.rowsum import add_row, square_of_row
from tacit.kernels.llvm.rowvec import rows_of
from tacit.kernels.sampling import U64
from tacit.kernels.update_sink import (
    add_dense,
    add_outer,
    add_repeated,
    add_rows,
    clip_dense,
    clip_outer,
    clip_rows,
    count_release,
    count_rows,
    largest_dense,
    largest_outer,
    multiply_rows,
    write_dense,
)
from tacit.types import offsets

SCALE = np.float32(2**20)
N_ROWS, WIDTHS = 7, (1, 5, 16, 37)
ALL = np.zeros(0, np.uint8)
ONES = np.zeros(0, np.float32)
NO_SQUARES = np.zeros(0)
NONE_OF_THEM = [np.nan, np.inf, -np.inf, 1e30]


@dataclass
class Part:
    """A part of a plan with values; `bad` [C] are clients who have a number that the ring cannot hold."""

    ptr: np.ndarray
    ids: np.ndarray
    kept: np.ndarray
    values: np.ndarray  # [R, D]
    weights: np.ndarray  # [R]
    vectors: np.ndarray  # [C, D]
    factors: np.ndarray  # [R]
    bad: np.ndarray

    @property
    def n_clients(self) -> int:
        return len(self.ptr) - 1

    @property
    def owner(self) -> np.ndarray:
        return np.repeat(np.arange(self.n_clients), np.diff(self.ptr))

    def leaves(self, is_fit: np.ndarray | None = None) -> np.ndarray:
        """Which rows leave."""
        kept = np.ones(len(self.ids), bool) if self.kept is ALL else self.kept > 0
        return kept if is_fit is None else kept & is_fit[self.owner]


@st.composite
def parts(draw: st.DrawFn, width: int | None = None) -> Part:
    sizes = np.array(draw(st.lists(st.integers(0, 5), min_size=1, max_size=6)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, d, c = int(sizes.sum()), width or draw(st.integers(1, 40)), len(sizes)
    reach = draw(st.sampled_from([0.0, 1e-4, 1.0, 15.0]))
    values, vectors = (rng.uniform(-reach, reach, (rows, d)).astype(np.float32) for rows in (n, c))
    weights = rng.uniform(-1, 1, n).astype(np.float32)
    kept = ALL if draw(st.booleans()) else rng.integers(0, 2, n).astype(np.uint8)
    factors = np.ones(n, np.float32) if draw(st.booleans()) else rng.uniform(0, 2, n).astype(np.float32)
    part = Part(
        offsets(sizes), rng.integers(0, N_ROWS, n).astype(np.int32), kept, values, weights, vectors, factors,
        np.zeros(c, bool),
    )  # fmt: skip
    for client in draw(st.sets(st.integers(0, c - 1), max_size=2)):
        if sizes[client]:
            row = int(part.ptr[client] + rng.integers(sizes[client]))
            values[row, rng.integers(d)] = draw(st.sampled_from(NONE_OF_THEM))
            part.bad[client] = True
    return part


def whole(values: np.ndarray) -> np.ndarray:
    return np.rint(values).astype(np.int64)


def summed(part: Part, rows: np.ndarray, is_fit: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Add the rows [R, D] that leave, one after the other."""
    sums, counts, leaves = np.zeros((N_ROWS, rows.shape[1]), np.int64), np.zeros(N_ROWS, np.int64), part.leaves(is_fit)
    for r in np.flatnonzero(leaves):
        sums[part.ids[r]] += whole(rows[r])
        counts[part.ids[r]] += 1
    return sums, counts


# --- clipping ---------------------------------------------------------------------------------------------------------


def clipped(part: Part, rows: np.ndarray, limit: float) -> tuple[np.ndarray, np.ndarray]:
    """Factors and squared lengths in double precision; rows [R, D] are without factors."""
    factors, squares, leaves = part.factors.astype(np.float64), np.zeros(part.n_clients), part.leaves()
    for r in np.flatnonzero(leaves):
        with np.errstate(over="ignore", invalid="ignore"):
            square = float((rows[r].astype(np.float32) ** 2).sum(dtype=np.float32)) * factors[r] ** 2
        length = np.sqrt(square)
        if not np.isfinite(length):
            factors[r], length = np.nan, np.nan
        elif length > limit:
            factors[r] *= limit / length
            length = limit
        squares[part.owner[r]] += length**2
    return factors, squares


@given(parts(), st.sampled_from([0.1, 3.0, np.inf]))
@settings(max_examples=80)
def test_no_dense_row_is_longer_than_the_limit(part: Part, limit: float) -> None:
    expected, lengths = clipped(part, part.values, limit)
    factors, squares = part.factors.copy(), np.zeros(part.n_clients)
    clip_dense(part.ptr, part.kept, part.values, factors, limit, squares, NO_SQUARES)
    np.testing.assert_allclose(factors, expected, rtol=2e-6)
    np.testing.assert_allclose(squares, lengths, rtol=1e-5, atol=1e-30)
    for c in range(part.n_clients):  # alone, every client has the same bits
        own = slice(part.ptr[c], part.ptr[c + 1])
        alone, square = part.factors[own].copy(), np.zeros(1)
        kept = part.kept if part.kept is ALL else part.kept[own]
        clip_dense(part.ptr[c : c + 2] - part.ptr[c], kept, part.values[own], alone, limit, square, NO_SQUARES)
        if part.kept is ALL or own.stop > own.start:
            assert np.array_equal(alone, factors[own], equal_nan=True)
            assert np.array_equal(square, squares[c : c + 1], equal_nan=True)


@pytest.mark.parametrize("width", WIDTHS)
@given(data=st.data(), limit=st.sampled_from([0.1, 3.0, np.inf]))
@settings(max_examples=40)
def test_whole_rows_are_clipped_as_dense_ones(width: int, data: st.DataObject, limit: float) -> None:
    part = data.draw(parts(width))
    expected, lengths = clipped(part, part.values, limit)
    factors, squares = part.factors.copy(), np.zeros(part.n_clients)
    clip_rows(part.ptr, part.kept, rows_of(part.values), factors, limit, squares, NO_SQUARES)
    np.testing.assert_allclose(factors, expected, rtol=2e-6)
    np.testing.assert_allclose(squares, lengths, rtol=1e-5, atol=1e-30)


@given(parts(), st.sampled_from([0.1, 3.0, np.inf]))
@settings(max_examples=80)
def test_no_outer_row_is_longer_than_the_limit(part: Part, limit: float) -> None:
    expected, lengths = clipped(part, part.weights[:, None] * part.vectors[part.owner], limit)
    factors, squares = part.factors.copy(), np.zeros(part.n_clients)
    clip_outer(part.ptr, part.kept, part.weights, part.vectors, factors, limit, squares, NO_SQUARES)
    np.testing.assert_allclose(factors, expected, rtol=2e-6)
    np.testing.assert_allclose(squares, lengths, rtol=1e-5, atol=1e-30)


@given(parts(), st.integers(0, 2**32 - 1))
@settings(max_examples=40)
def test_all_rows_of_a_client_are_multiplied(part: Part, seed: int) -> None:
    by = np.random.default_rng(seed).choice([1.0, 0.5, 0.3], part.n_clients).astype(np.float32)
    factors = part.factors.copy()
    multiply_rows(part.ptr, by, factors)
    assert np.array_equal(factors, part.factors * by[part.owner])


# --- what fits --------------------------------------------------------------------------------------------------------


@given(parts(), st.booleans(), st.floats(0, 2, width=32))
@settings(max_examples=80)
def test_the_largest_number_of_each_client_is_found_and_no_number_stays(
    part: Part, has_factors: bool, before: float
) -> None:
    factors, largest = part.factors if has_factors else ONES, np.full(part.n_clients, before, np.float32)
    largest_dense(part.ptr, part.kept, part.values, factors, largest)
    with np.errstate(over="ignore"):
        sizes = np.abs(part.values) * (np.abs(factors)[:, None] if has_factors else np.float32(1))
    for c in range(part.n_clients):
        own = (part.owner == c) & part.leaves()
        expected = np.max(sizes[own], initial=np.float32(before))  # NaN wins
        assert np.array_equal(largest[c], expected, equal_nan=True)


@given(parts(), st.sampled_from([None, np.nan, np.inf]))
@settings(max_examples=80)
def test_the_largest_number_of_outer_rows_is_a_product(part: Part, bad: float | None) -> None:
    if bad is not None:
        part.vectors[0, 0] = bad
    largest = np.zeros(part.n_clients, np.float32)
    largest_outer(part.ptr, part.kept, part.weights, part.vectors, largest)
    for c in range(part.n_clients):
        weights = np.abs(part.weights[(part.owner == c) & part.leaves()])
        peak = np.abs(part.vectors[c]).max()
        if not len(weights):
            assert largest[c] == 0, "whoever sends no row has no number that does not fit"
        elif np.isfinite(peak):
            assert largest[c] == weights.max() * peak
        else:
            assert not largest[c] <= 16


# --- sums and messages ------------------------------------------------------------------------------------------------


@given(parts(), st.booleans())
@settings(max_examples=80)
def test_dense_rows_are_added_and_counted(part: Part, has_factors: bool) -> None:
    factors, is_fit = part.factors if has_factors else ONES, ~part.bad
    with np.errstate(over="ignore", invalid="ignore"):
        rows = part.values * SCALE * (factors[:, None] if has_factors else np.float32(1))
    expected, times = summed(part, rows, is_fit)
    sums, counts = np.zeros_like(expected), np.zeros_like(times)
    arrays = part.ptr, part.ids, part.kept, part.values, part.values.shape[1] - 1, factors, is_fit
    add_dense(*arrays, SCALE, sums, counts)
    assert np.array_equal(sums, expected)
    assert np.array_equal(counts, times)
    again = np.zeros_like(times)
    count_rows(part.ptr, part.ids, part.kept, is_fit, again)
    assert np.array_equal(again, times)


@given(parts(), st.integers(0, 9))
@settings(max_examples=40)
def test_padded_rows_are_those_without_their_padding(part: Part, padding: int) -> None:
    width, is_fit = part.values.shape[1], ~part.bad
    wide = np.insert(part.values, [width - 1] * padding, 0.0, axis=1)
    found = []
    for values in (part.values, wide):
        sums, counts = np.zeros((N_ROWS, width), np.int64), np.zeros(N_ROWS, np.int64)
        arrays = part.ptr, part.ids, part.kept, values, values.shape[1] - 1, part.factors, is_fit
        add_dense(*arrays, SCALE, sums, counts)
        found += [sums, counts]
    assert np.array_equal(found[0], found[2])
    assert np.array_equal(found[1], found[3])


@pytest.mark.slow
@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("width", WIDTHS)
@given(data=st.data(), has_factors=st.booleans())
@settings(max_examples=30)
def test_whole_rows_are_added_as_dense_ones(kind: type, width: int, data: st.DataObject, has_factors: bool) -> None:
    part = data.draw(parts(width))
    factors, is_fit = part.factors if has_factors else ONES, ~part.bad
    sums, counts = np.zeros((N_ROWS, width), np.int64), np.zeros(N_ROWS, np.int64)
    add_dense(part.ptr, part.ids, part.kept, part.values, width - 1, factors, is_fit, SCALE, sums, counts)
    cells = np.zeros((N_ROWS, width), kind)
    add_rows(part.ptr, part.ids, part.kept, rows_of(part.values), factors, is_fit, SCALE, cells)
    assert np.array_equal(cells, sums)


@given(parts(), st.booleans(), st.integers(0, 2**32 - 1))
@settings(max_examples=80)
def test_outer_rows_are_added_without_being_written(part: Part, by_row: bool, seed: int) -> None:
    is_fit, table = ~part.bad, np.random.default_rng(seed).uniform(0, 1, N_ROWS).astype(np.float32)
    weights = table[part.ids] if by_row else part.weights
    expected, times = summed(part, weights[:, None] * SCALE * part.vectors[part.owner], is_fit)
    sums, counts = np.zeros_like(expected), np.zeros_like(times)
    given_weights = table if by_row else part.weights
    add_outer(part.ptr, part.ids, part.kept, given_weights, by_row, part.vectors, is_fit, SCALE, sums, counts)
    assert np.array_equal(sums, expected)
    assert np.array_equal(counts, times)


@given(parts())
@settings(max_examples=40)
def test_one_row_of_each_client_is_added_again_and_again(part: Part) -> None:
    is_fit, numbers = ~part.bad, whole(part.vectors * SCALE)
    expected, times = summed(part, numbers[part.owner].astype(np.float64), is_fit)
    sums, counts = np.zeros_like(expected), np.zeros_like(times)
    add_repeated(part.ptr, part.ids, part.kept, numbers, is_fit, sums, counts)
    assert np.array_equal(sums, expected)
    assert np.array_equal(counts, times)


@given(parts(), st.booleans(), st.integers(0, 3), st.integers(0, 2**32 - 1))
@settings(max_examples=80)
def test_a_message_holds_the_rows_that_leave_in_the_order_of_the_plan(
    part: Part, has_factors: bool, gap: int, seed: int
) -> None:
    """Parts of one table stand one after the other for each client: `gap` rows of another part come first."""
    marks = np.random.default_rng(seed).integers(0, 2, len(part.ids)).astype(bool)
    factors, is_fit = part.factors if has_factors else ONES, ~part.bad
    leaves, width = part.leaves(is_fit), part.values.shape[1]
    sizes = np.bincount(part.owner[leaves], minlength=part.n_clients)
    starts = offsets(sizes + gap)[:-1] + gap
    n = int((sizes + gap).sum())
    out = np.full(n, -1, np.int32), np.full((n, width), -1, np.int64), np.zeros(n, np.bool_)
    write_dense(
        part.ptr, part.ids, part.kept, marks, part.values, width - 1, factors, is_fit, SCALE, starts.copy(), out
    )
    with np.errstate(over="ignore", invalid="ignore"):
        rows = part.values * SCALE * (factors[:, None] if has_factors else np.float32(1))
    for c in range(part.n_clients):
        own, place = (part.owner == c) & leaves, slice(starts[c], starts[c] + sizes[c])
        assert np.array_equal(out[0][place], part.ids[own])
        assert np.array_equal(out[1][place], whole(rows[own]))
        assert np.array_equal(out[2][place], marks[own])
        assert (out[0][starts[c] - gap : starts[c]] == -1).all(), "rows of other parts stay"
    for every in (None, False, True):
        own = marks if every is None else np.full(len(marks), every)
        counts = np.zeros((3, part.n_clients), np.int64)
        count_release(part.ptr, part.kept, marks if every is None else marks[:0], every is True, 12, counts)
        for row, chosen in enumerate((own, ~own)):
            expected = np.bincount(part.owner[chosen & part.leaves()], minlength=part.n_clients)
            assert np.array_equal(counts[row], expected)
        assert np.array_equal(counts[2], 12 * (counts[0] + counts[1]))


# --- whole rows by themselves -----------------------------------------------------------------------------------------


@njit
def squares_of(rows):
    found = np.empty(rows.size, np.float32)
    for r in range(U64(rows.size)):
        found[r] = square_of_row(rows, r)
    return found


@njit
def add_one(rows, by, cells):
    for r in range(U64(rows.size)):
        add_row(rows, r, by, cells, U64(rows.size) - U64(1) - r)


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_rows_are_measured_and_added_as_vectors(width: int, kind: type) -> None:
    rng = np.random.default_rng(width)
    values = rng.normal(size=(9, width)).astype(np.float32)
    found = squares_of(rows_of(values))
    np.testing.assert_allclose(found, (values.astype(np.float64) ** 2).sum(axis=1), rtol=1e-6)
    values[4, width // 2] = np.nan
    assert np.flatnonzero(np.isnan(squares_of(rows_of(values)))).tolist() == [4]
    values[4] = 0.0
    cells = rng.integers(-(2**20), 2**20, (9, width)).astype(kind)
    expected = cells + np.rint(values[::-1] * SCALE).astype(kind)
    add_one(rows_of(values), SCALE, cells)
    assert np.array_equal(cells, expected)


def test_halves_are_rounded_to_even_numbers() -> None:
    values = np.array([[0.5, 1.5, 2.5, -0.5, -1.5]], np.float32)
    cells = np.zeros((1, 5), np.int32)
    add_one(rows_of(values), np.float32(1), cells)
    assert cells.tolist() == [[0, 2, 2, 0, -2]]
