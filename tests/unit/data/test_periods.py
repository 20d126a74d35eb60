"""Order and time: what came when, one moment for all users, rolling windows, sessions, the next item."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from tacit.data import load
from tacit.data.split import Split, split
from tacit.data.split_config import SplitConfig
from tacit.errors import ConfigError, DataError
from tacit.random import Key
from tacit.testing import make_clients
from tacit.types import Clients

DAY = 86_400
ROWS = [  # user, item, day
    ("ada", "a", 1),
    ("ada", "c", 2),
    ("ada", "b", 9),
    ("ada", "d", 10),
    ("bob", "b", 3),
    ("bob", "a", 3),
    ("bob", "e", 12),
    ("cyd", "c", 11),  # a user and, below, an item that no user has before day 9
    ("cyd", "f", 12),
]


def parted(rows: Any = ROWS, **given: Any) -> Split:
    users, items, days = zip(*rows, strict=True)
    frame = pl.DataFrame({"user": users, "item": items, "timestamp": [int(day * DAY) for day in days]})
    return split(load(frame), SplitConfig.from_options(given, "split"), Key(1))


def listed(clients: Clients, found: Split) -> list[list[str]]:
    """The items of each user, oldest first."""
    items = clients.items[clients.in_order]
    names = [str(found.catalog.item_ids[int(i)]) if i >= 0 else "?" for i in items]
    return [names[a:b] for a, b in zip(clients.ptr, clients.ptr[1:], strict=False)]


def test_histories_are_in_the_order_of_time_and_ties_follow_the_rule() -> None:
    rows = [("ada", "c", 1), ("ada", "a", 5), ("ada", "b", 5), ("ada", "d", 3), ("ada", "e", 9)]
    orders = {ties: listed(parted(rows, kind="leave-last-out", ties=ties).train, parted(rows))[0] for ties in TIES}
    assert orders == {"smaller-item": list("cdba"), "larger-item": list("cdab"), "file-order": list("cdab")}
    turned = [rows[2], rows[1], *rows[3:], rows[0]]
    found = parted(turned, kind="leave-last-out", ties="file-order")
    assert listed(found.train, found)[0] == list("cdba")


TIES = ("smaller-item", "larger-item", "file-order")


def test_order_survives_taking_some_clients_and_keeping_some_rows() -> None:
    clients = make_clients([[4, 1, 3], [2], [0, 4]], 5)
    taken = clients.take([2, 0])
    assert taken.items[taken.in_order].tolist() == [0, 4, 4, 1, 3]
    kept = taken.keep(taken.items != 1)
    assert kept.items[kept.in_order].tolist() == [0, 4, 4, 3]
    assert kept.ptr.tolist() == [0, 2, 4]


def test_histories_without_times_have_no_order() -> None:
    bare = Clients(np.arange(1), np.array([0, 2]), np.array([0, 1], np.int32), 2)
    assert not bare.has_order
    with pytest.raises(DataError):
        _ = bare.in_order
    assert bare.keep(np.array([True, False])).in_order.tolist() == [0]  # one row is in order


def test_without_times_the_rows_of_a_file_may_be_the_order() -> None:
    frame = pl.DataFrame({"user": ["ada"] * 4, "item": ["d", "a", "c", "b"]})
    found = split(load(frame), SplitConfig(kind="leave-last-out", ties="file-order"), Key(1))
    assert listed(found.train, found) == [["d", "a", "c"]]


def test_one_moment_parts_all_users_and_new_ones_are_left_out_and_counted() -> None:
    found = parted(kind="global-time", date="1970-01-10")
    truth, seen = found.test.open()
    assert listed(found.train, found) == [["a", "c"], ["b", "a"], []]
    assert listed(truth, found) == [["b", "d"], ["e"], []]
    assert listed(seen, found) == listed(found.train, found)
    assert (found.counts["unused"], found.counts["test_of_new_users"], found.counts["test_of_new_items"]) == (2, 0, 2)
    kept = parted(kind="global-time", date="1970-01-10", new_users="keep")
    assert listed(kept.test.open()[0], kept)[2] == ["c", "f"]
    assert kept.counts["test_of_new_users"] == 2
    narrow = parted(kind="global-time", date="1970-01-10", catalog="train")
    assert listed(narrow.test.open()[0], narrow)[:2] == [["b", "?"], ["?"]]
    assert narrow.counts["test_of_new_items"] == 2


def test_no_training_row_is_as_late_as_a_test_row() -> None:
    rng = np.random.default_rng(5)
    rows = [(f"u{u}", f"i{i}", int(d)) for u in range(20) for i, d in enumerate(rng.integers(1, 9, 12))]
    for share in (0.1, 0.5):
        found = parted(rows, kind="global-time", test=share, validation=0.2)
        truth, validation = found.test.open()[0], found.validation
        assert validation is not None
        middle = validation.open()[0]
        for part in (found.train, middle, truth):
            assert part.times is not None
            assert len(part.times) > 0
        assert found.train.times.max() < middle.times.min() <= middle.times.max() < truth.times.min()  # type: ignore[union-attr]
        assert not any("futures" in note for note in found.notes)


def test_windows_roll_and_never_use_what_comes_later() -> None:
    days = [("u", f"i{d}", d) for d in range(1, 11)]
    for window, test in ((1, ["i5", "i6", "i7"]), (2, ["i8", "i9", "i10"])):
        found = parted(days, kind="global-time", date="1970-01-06", windows=2, window=window)
        before = [f"i{d}" for d in range(1, 11)]
        assert listed(found.test.open()[0], found) == [test]
        assert listed(found.train, found) == [before[: before.index(test[0])]]
        assert found.counts["unused"] == 10 - before.index(test[-1]) - 1


def test_the_last_session_is_held_out_and_a_first_one_never() -> None:
    rows = [
        ("ada", "a", 1),
        ("ada", "b", 1.01),
        ("ada", "c", 3),
        ("ada", "d", 3.02),
        ("bob", "a", 2),
        ("bob", "c", 2.01),
    ]
    found = parted(rows, kind="last-session", gap=60)
    assert listed(found.train, found) == [["a", "b"], ["a", "c"]]
    assert listed(found.test.open()[0], found) == [["c", "d"], []]
    first = parted(rows, kind="last-session", gap=60, targets="next")
    assert listed(first.test.open()[0], first) == [["c"], []]
    assert listed(parted(rows, kind="last-session", gap=10).test.open()[0], found) == [["d"], ["c"]]
    middle = parted(rows, kind="last-session", gap=10, validation=True)
    assert middle.validation is not None
    assert listed(middle.validation.open()[0], middle) == [["c"], []]


def test_the_next_item_is_the_oldest_held_out() -> None:
    found = parted(kind="global-time", date="1970-01-10", targets="next")
    assert listed(found.test.open()[0], found) == [["b"], ["e"], []]
    assert found.counts["unused"] == 3


def test_futures_in_training_and_ties_that_decided_are_noted() -> None:
    found = parted(
        [("ada", "a", 1), ("ada", "b", 2), ("bob", "a", 5), ("bob", "c", 6), ("bob", "b", 6)], kind="leave-last-out"
    )
    assert len(found.notes) == 2
    assert parted(kind="random", test=0.4).notes == ()


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"kind": "global-time", "date": "yesterday"}, ConfigError),
        ({"kind": "global-time", "date": "1980-01-01"}, DataError),
        ({"kind": "global-time", "date": "1960-01-01"}, DataError),
        ({"kind": "global-time", "windows": 2, "window": 3}, ConfigError),
        ({"kind": "temporal", "date": "1970-01-10"}, ConfigError),
        ({"kind": "temporal", "gap": 5}, ConfigError),
        ({"kind": "random", "targets": "next"}, ConfigError),
        ({"kind": "last-session", "gap": 1e9}, DataError),  # one session holds everything: no user has two
        ({"kind": "last-session", "validation": 0.3}, ConfigError),
    ],
)
def test_what_cannot_be_parted_is_refused(given: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        parted(**given)


@pytest.mark.parametrize("kind", ["global-time", "last-session", "temporal"])
def test_all_times_equal_or_none_at_all(kind: str) -> None:
    with pytest.raises(DataError):
        split(load(pl.DataFrame({"user": [1, 1], "item": [1, 2]})), SplitConfig(kind=kind), Key(1))  # type: ignore[arg-type]
    if kind != "temporal":  # there the rule for ties decides
        with pytest.raises(DataError):
            parted([("ada", "a", 1), ("ada", "b", 1), ("bob", "a", 1), ("bob", "c", 1)], kind=kind)
