"""The arrays of a model as files: one, or above a size the shared ones in one and those of users in parts.

model.npz       shared arrays; the private arrays and histories of all users, unless they are larger than a part
users-1.npz     those of the first users, and so on, each part at most `PART_BYTES` large

Arrays are written slice by slice, and read into place, so that neither needs a second copy of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from tacit.types import Array

PART_BYTES = 2**30
HISTORY = "history."  # of each user's rows: `ptr` says which rows are whose


@dataclass(frozen=True)
class ModelArrays:
    """What a model has in common for all users, and what it has for each of them."""

    shared: Mapping[str, Array]
    private: Mapping[str, Array]  # a row for each user
    ids: Array
    ptr: Array
    by_row: Mapping[str, Array]  # a row for each thing in a history

    def cut(self, low: int, high: int) -> dict[str, Array]:
        """Return the arrays of a range of users by name; they are views."""
        first, last = int(self.ptr[low]), int(self.ptr[high])
        found = {f"private.{name}": array[low:high] for name, array in self.private.items()}
        found |= {f"{HISTORY}ids": self.ids[low:high], f"{HISTORY}ptr": self.ptr[low : high + 1] - first}
        return found | {f"{HISTORY}{name}": array[first:last] for name, array in self.by_row.items()}


def write_arrays(folder: Path, arrays: ModelArrays) -> None:
    """Write the files of a model."""
    for former in folder.glob("users-*.npz"):
        former.unlink()
    shared = {f"shared.{name}": array for name, array in arrays.shared.items()}
    cuts = _cut(arrays)
    if len(cuts) == 2:
        np.savez(folder / "model.npz", **shared, **arrays.cut(*cuts))  # type: ignore[arg-type]
        return
    parts = {"parts.users": np.array(cuts), "parts.rows": arrays.ptr[cuts]}
    np.savez(folder / "model.npz", **shared, **parts)  # type: ignore[arg-type]
    for number, (low, high) in enumerate(pairwise(cuts), 1):
        np.savez(folder / f"users-{number}.npz", **arrays.cut(low, high))  # type: ignore[arg-type]


def read_arrays(folder: Path) -> dict[str, Array]:
    """Return all arrays of a model by name."""
    with np.load(folder / "model.npz", allow_pickle=False) as stored:
        found = dict(stored)
    users, rows = (found.pop(f"parts.{what}", np.zeros(0, np.int64)).tolist() for what in ("users", "rows"))
    ranges = zip(pairwise(users), pairwise(rows), strict=True)
    for number, ((low, high), (first, last)) in enumerate(ranges, 1):
        with np.load(folder / f"users-{number}.npz", allow_pickle=False) as stored:
            for name in stored.files:
                array = stored[name]
                is_ptr, is_of_users = name == f"{HISTORY}ptr", name.startswith("private.") or name == f"{HISTORY}ids"
                if number == 1:
                    length = users[-1] + is_ptr if is_ptr or is_of_users else rows[-1]
                    found[name] = np.zeros((length, *array.shape[1:]), array.dtype)
                if is_ptr:
                    found[name][low + 1 : high + 1] = array[1:] + first
                else:
                    found[name][slice(low, high) if is_of_users else slice(first, last)] = array
    return found


def _cut(arrays: ModelArrays) -> list[int]:
    """Return where parts begin, and the end."""
    n_users = len(arrays.ids)
    each = sum(array.nbytes for array in arrays.private.values()) / max(1, n_users) + 16
    row = sum(array.itemsize for array in arrays.by_row.values())
    ends = each * np.arange(1, n_users + 1) + row * arrays.ptr[1:]  # bytes up to and with each user
    if not n_users or ends[-1] <= PART_BYTES:
        return [0, n_users]
    cuts = [0]
    while cuts[-1] < n_users:  # at least one user in each
        before = ends[cuts[-1] - 1] if cuts[-1] else 0
        cuts.append(max(cuts[-1] + 1, int(np.searchsorted(ends, before + PART_BYTES, side="right"))))
    return cuts
