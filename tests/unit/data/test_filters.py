"""Filters keep what they say, in their fixed order."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.data import load
from tacit.errors import ConfigError, DataError


def frame(rows):
    return pl.DataFrame(rows, schema=["user", "item", "rating", "timestamp"], orient="row")


def told(data):
    log = data.interactions
    return [
        (log.user_ids[u], log.item_ids[i], float(r), int(t))
        for u, i, r, t in zip(log.users, log.items, log.values, log.times, strict=True)
    ]


def test_the_latest_of_repeated_rows_stays():
    rows = [(1, 1, 5.0, 10), (1, 1, 3.0, 30), (1, 1, 4.0, 20), (1, 2, 1.0, 5)]
    assert told(load(frame(rows))) == [(1, 1, 3.0, 30), (1, 2, 1.0, 5)]
    assert len(load(frame(rows), duplicates="keep")) == 4


def test_at_equal_times_the_highest_rating_stays():
    assert told(load(frame([(1, 1, 2.0, 10), (1, 1, 4.0, 10), (1, 1, 3.0, 10)]))) == [(1, 1, 4.0, 10)]


def test_without_times_the_last_row_stays():
    data = load(frame([(1, 1, 2.0, 0), (1, 1, 4.0, 0), (1, 1, 3.0, 0)]).drop("timestamp"))
    assert data.interactions.values.tolist() == [3.0]


def test_items_are_counted_by_people_and_people_by_rows():
    rows = [(1, 1, 1.0, 1), (1, 1, 1.0, 2), (1, 2, 1.0, 3), (2, 2, 1.0, 4)]
    assert {row[1] for row in told(load(frame(rows), duplicates="keep", min_per_item=2))} == {2}
    assert {row[0] for row in told(load(frame(rows), duplicates="keep", min_per_user=3))} == {1}
    with pytest.raises(DataError):
        load(frame(rows), min_per_user=3)  # without repeats the user has two rows
    after = load(frame(rows), duplicates="latest-after", min_per_user=3)
    assert told(after) == [(1, 1, 1.0, 2), (1, 2, 1.0, 3)], "counted with repeats, then left with none"
    assert [step.what for step in after.steps] == ["as read", "min_per_user=3", "duplicates=latest-after"]


def test_vocabularies_shrink_with_the_rows():
    data = load(frame([(1, 1, 1.0, 1), (2, 5, 5.0, 2), (3, 7, 5.0, 2)]), min_rating=4)
    assert data.interactions.user_ids.labels.tolist() == [2, 3]
    assert data.catalog.item_ids.labels.tolist() == [5, 7]
    assert data.interactions.items.tolist() == [0, 1]


def test_filters_that_leave_nothing_say_what_each_removed():
    rows = [(person, item, 3.0, 1) for person in range(4) for item in range(3)]
    with pytest.raises(DataError) as error:
        load(frame(rows), core=4)
    assert "as read 12 rows, 4 users, 3 items" in str(error.value)
    assert "core=4 0 rows" in str(error.value)
    with pytest.raises(DataError, match="min_rating=4 0 rows"):
        load(frame(rows), min_rating=4)


def test_a_threshold_needs_ratings():
    with pytest.raises(DataError, match="min_rating needs ratings"):
        load(frame([(1, 1, 1.0, 1)]).drop("rating"), min_rating=4)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"min_per_usr": 3}, "Did you mean 'min_per_user'"),
        ({"core": -1}, "data: option 'core' must be at least 0"),
        ({"users": 5}, "belongs to source 'town'"),
        ({"columns": {"usr": "user"}}, "no role 'usr'"),
        ({"table": "tags"}, "has no table 'tags'"),
    ],
)
def test_options_that_cannot_be(options, words):
    with pytest.raises(ConfigError) as error:
        load(frame([(1, 1, 1.0, 1)]), **options)
    assert words in str(error.value)


@settings(max_examples=60)
@given(st.sets(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=1), st.integers(2, 4))
def test_every_member_of_a_core_has_k(pairs, k):
    try:
        data = load(frame([(user, item, 1.0, 1) for user, item in sorted(pairs)]), core=k)
    except DataError:
        return
    rows = told(data)
    kept = {(user, item) for user, item, _, _ in rows}
    assert all(sum(u == user for u, _ in kept) >= k for user, _ in kept)
    assert all(sum(i == item for _, i in kept) >= k for _, item in kept)
    assert kept <= pairs
