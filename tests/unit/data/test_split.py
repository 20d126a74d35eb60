"""The split parts each person's rows exactly, and nothing held out is in training."""

from __future__ import annotations

import itertools

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.data import SplitConfig, load, split
from tacit.errors import ConfigError, DataError
from tacit.random import Key

KEY = Key(7)


def frame(rows, columns=("user", "item", "timestamp")):
    return pl.DataFrame(rows, schema=list(columns), orient="row")


def heldout(parted, person):
    truth, _ = parted.test.open()
    return parted.catalog.item_ids.labels[truth.of(person)].tolist()


def labels(parted, cohort, person):
    return parted.catalog.item_ids.labels[cohort.of(person)].tolist()


def test_the_newest_share_is_held_out_rounded_down():
    data = load(frame([(1, item, 100 + item) for item in range(1, 15)]))  # 14 rows: floor(2.8) = 2
    parted = split(data, SplitConfig(test=0.2), KEY)
    assert heldout(parted, 0) == [13, 14]
    assert labels(parted, parted.train, 0) == list(range(1, 13))


def test_floor_is_exact_where_floats_are_not():
    data = load(frame([(1, item, item) for item in range(100)]))
    assert int(0.29 * 100) == 28  # what floats would say
    assert len(heldout(split(data, SplitConfig(test=0.29), KEY), 0)) == 29


@pytest.mark.parametrize(("ties", "expected"), [("smaller-item", [2]), ("larger-item", [10]), ("file-order", [9])])
def test_ties_in_time(ties, expected):
    rows = [(1, 10, 5), (1, 2, 5), (1, 9, 5), (1, 1, 1), (1, 3, 1)]
    assert heldout(split(load(frame(rows)), SplitConfig(ties=ties), KEY), 0) == expected


def test_ids_that_are_text_are_compared_as_text():
    rows = [("a", "10", 5), ("a", "2", 5), ("a", "x", 1), ("a", "y", 1), ("a", "z", 1)]
    assert heldout(split(load(frame(rows)), SplitConfig(), KEY), 0) == ["10"]


def test_ids_that_are_integers_in_text_are_compared_as_numbers():
    rows = [("a", "10", 5), ("a", "2", 5), ("a", "3", 1), ("a", "4", 1), ("a", "5", 1)]
    assert heldout(split(load(frame(rows)), SplitConfig(), KEY), 0) == [2]


def test_leave_last_out_with_validation():
    data = load(frame([(person, item, item) for person in (1, 2) for item in range(1, 6)]))
    parted = split(data, SplitConfig(kind="leave-last-out", validation=True), KEY)
    truth, seen = parted.validation.open()
    assert heldout(parted, 1) == [5]
    assert labels(parted, truth, 1) == [4]
    assert labels(parted, parted.train, 1) == [1, 2, 3]
    assert labels(parted, parted.test.open()[1], 1) == [1, 2, 3, 4]
    assert seen is parted.train or seen.items.tolist() == parted.train.items.tolist()


def test_validation_is_carved_in_the_same_way():
    data = load(frame([(1, item, item) for item in range(20)]))
    parted = split(data, SplitConfig(test=0.2, validation=True), KEY)
    assert heldout(parted, 0) == [16, 17, 18, 19]
    assert labels(parted, parted.validation.open()[0], 0) == [13, 14, 15]  # floor(0.2 * 16)


def test_people_with_too_little_stay_in_training_and_keep_their_place():
    data = load(frame([(1, 1, 1), (1, 2, 2)] + [(2, item, item) for item in range(10)]))
    parted = split(data, SplitConfig(), KEY)
    truth, seen = parted.test.open()
    assert np.diff(truth.ptr).tolist() == [0, 2]
    assert truth.ids.tolist() == seen.ids.tolist() == parted.train.ids.tolist() == [0, 1]
    assert parted.counts["users_tested"] == 1


def test_catalogue_of_training_items_only():
    rows = [(1, item, item) for item in range(10)] + [(2, item, item) for item in range(5)]
    parted = split(load(frame(rows)), SplitConfig(catalog="train"), KEY)
    truth, _ = parted.test.open()
    assert parted.catalog.n_items == parted.train.n_items == 8
    assert truth.of(0).tolist() == [-1, -1]
    assert truth.of(1).tolist() == [4]
    assert parted.counts["not_in_catalog"] == 2


def test_legacy_gives_held_out_items_to_training_and_clean_does_not():
    data = load(frame([(1, item, item) for item in range(10)]))
    legacy = split(data, SplitConfig(negatives="legacy", validation=True), KEY)
    assert legacy.sampling == "legacy"
    assert legacy.train.avoid.of(0).tolist() == [7, 8, 9]
    clean = split(data, SplitConfig(), KEY)
    assert clean.sampling == "clean"
    assert clean.train.avoid is None


def test_random_split_is_keyed_per_person():
    rows = [(person, item, 0) for person in range(5) for item in range(20)]
    data = load(frame(rows))
    config = SplitConfig(kind="random", test=0.25)
    one, two = split(data, config, KEY), split(data, config, KEY)
    assert one.test.open()[0].items.tolist() == two.test.open()[0].items.tolist()
    assert split(data, config, Key(8)).test.open()[0].items.tolist() != one.test.open()[0].items.tolist()
    assert len({tuple(heldout(one, person)) for person in range(5)}) > 1


@pytest.mark.parametrize("validation", [False, 0.25])
def test_folds_test_every_row_once_and_every_user_in_each(validation):
    rows = [(person, item, 0) for person in range(6) for item in range(5 + 3 * person)]
    data, seen = load(frame(rows)), []
    for cut in SplitConfig(kind="k-fold", folds=4, validation=validation).every_fold():
        parted = split(data, cut, KEY)
        again = split(data, cut, Key(99))
        assert parted.test.open()[0].items.tolist() == again.test.open()[0].items.tolist(), "the seed changes no fold"
        seen += [(person, item) for person in range(6) for item in heldout(parted, person)]
        sizes = np.array([len(heldout(parted, person)) for person in range(6)])
        n = np.arange(5, 23, 3)
        assert ((sizes == n // 4) | (sizes == n // 4 + 1)).all()
        assert parted.counts["train"] + parted.counts["test"] + parted.counts.get("validation", 0) == len(rows)
        assert parted.counts.get("validation", 0) == (int(((n - sizes) // 4).sum()) if validation else 0)
    assert sorted(seen) == sorted((person, item) for person, item, _ in rows)
    other = split(data, SplitConfig(kind="k-fold", folds=4, fold=1, draw=1), KEY).test.open()[0].items
    assert other.tolist() != split(data, SplitConfig(kind="k-fold", folds=4, fold=1), KEY).test.open()[0].items.tolist()


def test_folds_are_refused_where_they_cannot_be_made():
    data = load(frame([(1, item, 0) for item in range(3)] + [(2, item, 0) for item in range(9)]))
    with pytest.raises(DataError, match="min_per_user=5"):
        split(data, SplitConfig(kind="k-fold", fold=1), KEY)
    with pytest.raises(ConfigError, match=r"split\.fold"):
        split(data, SplitConfig(kind="k-fold", folds=2), KEY)
    for wrong in ({"kind": "k-fold", "fold": 6}, {"fold": 1}, {"kind": "random", "folds": 3}):
        with pytest.raises(ConfigError, match="fold"):
            SplitConfig.from_options(wrong, "split")


def test_repeated_rows_together_are_parted_as_if_there_were_one_of_each():
    rows = [(person, item, time) for person in range(5) for item in range(20) for time in range(1 + item % 3)]
    config = SplitConfig(kind="random", test=0.25)
    once = split(load(frame(rows)), config, KEY)
    together = SplitConfig(kind="random", test=0.25, together=True)
    parted = split(load(frame(rows), duplicates="keep"), together, KEY)
    for person in range(5):
        assert set(heldout(parted, person)) == set(heldout(once, person))
    assert parted.counts["heldout_also_in_train"] == 0
    assert parted.counts["train"] + parted.counts["test"] == len(rows)
    with pytest.raises(ConfigError, match="together"):
        SplitConfig.from_options({"together": True}, "split")


def test_a_given_split_from_a_column():
    rows = [(1, 1, "train"), (1, 2, "valid"), (1, 3, "test"), (2, 1, "train"), (2, 3, "Test")]
    data = load(frame(rows, ("user", "item", "split")))
    parted = split(data, SplitConfig(kind="given", validation=True), KEY)
    assert heldout(parted, 0) == [3]
    assert labels(parted, parted.validation.open()[0], 0) == [2]
    merged = split(data, SplitConfig(kind="given"), KEY)
    assert merged.validation is None
    assert labels(merged, merged.train, 0) == [1, 2]


@pytest.mark.parametrize(
    ("rows", "config", "words"),
    [
        ([(1, 1, 1), (1, 2, 2), (2, 1, 1)], SplitConfig(kind="leave-last-out"), ("1 of 2 users", "min_per_user=2")),
        ([(1, 1, 1), (1, 2, 2)], SplitConfig(kind="leave-last-out", validation=True), ("min_per_user=3",)),
        ([(1, 1, 1), (1, 2, 2)], SplitConfig(test=0.2), ("longest history has 2 rows", "split.test")),
        ([(1, 1, 1), (1, 2, 2)], SplitConfig(kind="given"), ("came without a split",)),
    ],
)
def test_splits_that_cannot_be_made(rows, config, words):
    with pytest.raises(DataError) as error:
        split(load(frame(rows)), config, KEY)
    assert all(word in str(error.value) for word in words), str(error.value)


def test_temporal_splits_need_times_or_file_order():
    data = load(frame([(1, item) for item in (5, 3, 9, 1, 7)], ("user", "item")))
    with pytest.raises(DataError, match="needs timestamps"):
        split(data, SplitConfig(), KEY)
    assert heldout(split(data, SplitConfig(ties="file-order"), KEY), 0) == [7]


def test_leave_last_out_takes_no_share_for_validation():
    data = load(frame([(1, item, item) for item in range(5)]))
    with pytest.raises(ConfigError, match="true or false"):
        split(data, SplitConfig(kind="leave-last-out", validation=0.1), KEY)


rows_of_people = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 12), st.integers(0, 6)), min_size=1, max_size=80)


@pytest.mark.slow
@settings(max_examples=120)
@given(
    rows=rows_of_people,
    kind=st.sampled_from(["temporal", "random"]),
    validation=st.sampled_from([False, True, 0.5]),
    test=st.sampled_from([0.1, 0.25, 0.5, 0.8]),
    shuffled=st.randoms(use_true_random=False),
)
def test_parts_make_up_the_whole_whatever_the_order_of_rows(rows, kind, validation, test, shuffled):
    data = load(frame(rows))
    config = SplitConfig(kind=kind, test=test, validation=validation)
    try:
        parted = split(data, config, KEY)
    except DataError:
        return  # no user has anything to hold out
    mixed = list(rows)
    shuffled.shuffle(mixed)
    again = split(load(frame(mixed)), config, KEY)
    wanted = {person: sorted({item for who, item, _ in rows if who == person}) for person in {row[0] for row in rows}}
    truth, seen = parted.test.open()
    checked = [parted.train, truth] + ([parted.validation.open()[0]] if parted.validation else [])
    for at, person in enumerate(sorted(wanted)):
        parts = [labels(parted, part, at) for part in checked]
        assert sorted(itertools.chain(*parts)) == wanted[person]  # a partition: nothing twice, nothing lost
        assert all(part == sorted(part) for part in parts)
        assert not set(parts[0]) & set(parts[1])
        assert sorted(set(wanted[person]) - set(parts[1])) == labels(parted, seen, at)
    assert truth.items.tolist() == again.test.open()[0].items.tolist()
    assert parted.train.items.tolist() == again.train.items.tolist()
    assert parted.train.times.tolist() == again.train.times.tolist()
