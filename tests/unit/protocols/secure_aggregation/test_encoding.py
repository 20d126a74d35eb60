"""From what a person sends to a vector, and from the sum of vectors to a Total, bit for bit."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.refusals import refused
from tacit.errors import RangeError
from tacit.protocols.secure_aggregation.encoding import (
    MOST_MENTIONS,
    Segment,
    SegmentKind,
    VectorLayout,
    counts_layout,
    decode_counts,
    decode_sum,
    encode_message,
    rows_layout,
)
from tacit.protocols.secure_aggregation.masks import Vector
from tacit.reasons import ReasonCode
from tacit.updates import Message, Release, Ring, Total

SHAPES = {"items": (7, 3), "layers": (1, 5)}


def sent(rows: dict[str, tuple[list[int], list[list[int]]]]) -> Message:
    """Return one person's message."""
    none = np.zeros(1, np.int64)
    tables = {
        name: (
            np.array([0, len(ids)]),
            np.array(ids, np.int32),
            np.array(numbers, np.int64).reshape(len(ids), SHAPES[name][1]),
        )
        for name, (ids, numbers) in rows.items()
    }
    return Message(np.zeros(1, np.int64), tables, Release(none, none, none))


@st.composite
def messages(draw: st.DrawFn) -> list[Message]:
    def one() -> Message:
        ids = draw(st.lists(st.integers(0, 6), max_size=9))
        numbers = [draw(st.lists(st.integers(-(2**24), 2**24), min_size=3, max_size=3)) for _ in ids]
        layers = [draw(st.lists(st.integers(-(2**24), 2**24), min_size=5, max_size=5))]
        return sent({"items": (ids, numbers), "layers": ([0], layers)})

    return [one() for _ in range(draw(st.integers(2, 5)))]


@settings(max_examples=60)
@given(messages(), st.sampled_from([32, 64]))
def test_the_sum_of_vectors_is_the_plain_total(cohort: list[Message], bits: int) -> None:
    layout = rows_layout(SHAPES, Ring(bits=bits), len(cohort))
    layout.check(len(cohort))
    plain, total = Total.zero(SHAPES), Vector(layout.sizes)
    for message in cohort:
        plain.add(message)
        total.add(encode_message(message, layout).tobytes())
    found = decode_sum(total, layout, SHAPES, len(cohort))
    for name in SHAPES:
        assert np.array_equal(found.sums[name], plain.sums[name])
        assert np.array_equal(found.counts[name], plain.counts[name])
    assert found.n_clients == plain.n_clients


@settings(max_examples=40)
@given(messages(), st.sets(st.integers(0, 6)))
def test_unlisted_rows_stay_and_people_are_counted_once(cohort: list[Message], listed: set[int]) -> None:
    counts = counts_layout(SHAPES, len(cohort))
    people = Vector(counts.sizes)
    rows = {"items": np.array(sorted(listed), np.int64), "layers": np.array([0])}
    layout = rows_layout(SHAPES, Ring(), len(cohort), rows)
    plain, total = Total.zero(SHAPES), Vector(layout.sizes)
    for message in cohort:
        plain.add(message)
        people.add(encode_message(message, counts).tobytes())
        total.add(encode_message(message, layout).tobytes())
    found = decode_sum(total, layout, SHAPES, len(cohort))
    for row in range(7):
        expected = plain.sums["items"][row] if row in listed else np.zeros(3)
        assert np.array_equal(found.sums["items"][row], expected)
        speaking = sum(row in message.tables["items"][1] for message in cohort)
        assert decode_counts(people, counts)["items"][row] == speaking


def test_extremes_from_all_participants_decode_right_and_one_more_is_refused() -> None:
    for bits, n_participants in ((32, 1000), (32, 3), (64, 1000)):
        layout = rows_layout({"layers": (2, 5)}, Ring(bits=bits), n_participants)
        bound = layout.segments[0].bound
        assert n_participants * bound < 2 ** (bits - 1) <= n_participants * (bound + 1)
        largest = sent({"layers": ([0], [[bound, -bound, 0, 1, -1]])})
        total = Vector(layout.sizes)
        vector = encode_message(largest, layout).tobytes()
        for _ in range(n_participants):
            total.add(vector)
        expected = n_participants * np.array([bound, -bound, 0, 1, -1], dtype=object)
        assert (
            decode_sum(total, layout, {"layers": (2, 5)}, n_participants).sums["layers"][0].tolist()
            == expected.tolist()
        )
        with refused(RangeError, ReasonCode.VALUE_OUT_OF_RANGE, bound=bound, largest=bound + 1):
            encode_message(sent({"layers": ([0], [[bound + 1, 0, 0, 0, 0]])}), layout)


def test_dense_layers_have_64_bits_beside_rows_of_32() -> None:
    """A hundred thousand people's weighted layers, where the rows of a 32-bit ring have little room."""
    n_participants, layout = 100_000, rows_layout(SHAPES, Ring(bits=32), 100_000)
    bits = {part.table: (part.bits, part.bound) for part in layout.segments if part.kind is SegmentKind.NUMBERS}
    assert bits == {"items": (32, 21474), "layers": (64, (2**63 - 1) // n_participants)}
    layout.check(n_participants)
    large = 2**40
    message = sent({"items": ([], []), "layers": ([0], [[large, -large, 0, 1, -1]])})
    total = Vector(layout.sizes)
    for _ in range(3):
        total.add(encode_message(message, layout).tobytes())
    assert decode_sum(total, layout, SHAPES, 3).sums["layers"].tolist() == [[3 * large, -3 * large, 0, 3, -3]]


def test_a_layout_that_could_overflow_is_refused_at_the_boundary() -> None:
    for n_participants in (2, 1000):
        bound = (2**31 - 1) // n_participants
        VectorLayout.of([Segment("a", SegmentKind.NUMBERS, 1, 1, 32, bound)]).check(n_participants)
        with refused(RangeError, ReasonCode.SUM_OVERFLOW, bound=bound + 1):
            VectorLayout.of([Segment("a", SegmentKind.NUMBERS, 1, 1, 32, bound + 1)]).check(n_participants)


def test_too_many_mentions_are_refused() -> None:
    layout = rows_layout(SHAPES, Ring(), 2)
    ids = [0] * (MOST_MENTIONS + 1)
    with refused(RangeError, ReasonCode.VALUE_OUT_OF_RANGE, table="items"):
        encode_message(sent({"items": (ids, [[0, 0, 0]] * len(ids)), "layers": ([], [])}), layout)


def test_counts_take_two_bytes_a_row() -> None:
    assert counts_layout(SHAPES, 100).sizes == (0, 0, 8)
    assert counts_layout(SHAPES, 40_000).sizes == (0, 8, 0)
