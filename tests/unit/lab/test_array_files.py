"""Arrays of a simulation as files: read as they were written, whole or mapped."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tacit.lab.array_files import is_same_array, map_array, read_value, write_array, write_value
from tacit.updates import Release, Total


@pytest.mark.parametrize("maps", [False, True])
def test_a_value_is_read_as_it_was_written(maps: bool, tmp_path: Path) -> None:
    total = Total({"a": np.arange(12).reshape(3, 4)}, {"a": np.ones(3, np.int64)}, 7)
    release = Release(np.zeros(0, np.int64), np.arange(5), np.arange(5)[::-1])
    write_value(tmp_path / "value", (total, release, slice(2, 5), "text"))
    found, sent, part, text = read_value(tmp_path / "value", maps)
    np.testing.assert_array_equal(found.sums["a"], total.sums["a"])
    np.testing.assert_array_equal(sent.bytes, release.bytes)
    assert (len(sent.positives), found.n_clients, part, text) == (0, 7, slice(2, 5), "text")
    assert found.sums["a"].flags.aligned
    assert found.sums["a"].flags.writeable is not maps
    assert [path.name for path in tmp_path.iterdir()] == ["value"], "nothing half-written stays"


@pytest.mark.skipif("sys.platform == 'win32'", reason="a mapped file cannot be removed there")
def test_a_mapped_file_can_be_read_after_it_was_removed(tmp_path: Path) -> None:
    write_value(tmp_path / "value", np.arange(10**5))
    found = read_value(tmp_path / "value", True)
    (tmp_path / "value").unlink()
    assert found.sum() == 10**5 * (10**5 - 1) // 2


def test_arrays_are_the_same_if_their_bits_are() -> None:
    array = np.array([0.0, np.nan, 1.0], np.float32)
    large = np.zeros(2**20, np.float32)
    other = large.copy()
    other[-1] = -0.0
    assert is_same_array(array, array.copy())
    assert is_same_array(np.array(3), np.array(3))
    assert is_same_array(large, large.copy())
    assert not is_same_array(large, other), "minus zero has other bits"
    assert not is_same_array(array, array.astype(np.float64))
    assert not is_same_array(large, large.reshape(2, -1))


def test_an_array_is_mapped_to_read(tmp_path: Path) -> None:
    write_array(tmp_path / "table.npy", np.arange(6.0).reshape(2, 3))
    found = map_array(tmp_path / "table.npy")
    np.testing.assert_array_equal(found, np.arange(6.0).reshape(2, 3))
    assert type(found) is np.ndarray
    with pytest.raises(ValueError, match="read-only"):
        found[0] = 1


@pytest.mark.parametrize("n_totals", [1, 2, 3])
@pytest.mark.parametrize("is_mapped", [False, True])
def test_totals_that_can_only_be_read_are_joined_without_being_changed(n_totals: int, is_mapped: bool) -> None:
    totals = [Total({"a": np.full((2, 2), at)}, {"a": np.full(2, at)}, 1) for at in range(1, n_totals + 1)]
    for total in totals if is_mapped else []:
        for array in (*total.sums.values(), *total.counts.values()):
            array.flags.writeable = False
    joined = Total.join(totals)
    assert (joined.sums["a"] == sum(range(1, n_totals + 1))).all()
    assert (joined.counts["a"] == sum(range(1, n_totals + 1))).all()
    assert joined.n_clients == n_totals
    joined.add_total(joined.zero_like())  # whoever joined them may go on adding
