"""Large arrays that processes of one simulation share, as memory-mapped files.

Processes of one machine map a file: nothing is copied, and what was removed can still be read. On a cluster a file may
change under its reader, so it is read whole.
"""

from __future__ import annotations

import mmap
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from tacit.types import Array

_WORD = 8  # bytes that say how long the head is
_LINE = 64  # bytes: where arrays begin
_PIECE = 2**20  # bytes compared at a time


def write_value(path: Path, value: object) -> None:
    """Write a value whole or not at all; its arrays stand in the file as they are."""
    buffers: list[pickle.PickleBuffer] = []
    body = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    arrays = [buffer.raw() for buffer in buffers]
    head = pickle.dumps((body, [array.nbytes for array in arrays]), protocol=5)
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    with partial.open("wb") as file:
        file.write(len(head).to_bytes(_WORD, "little"))
        file.write(head)
        for array in arrays:
            file.write(bytes(-file.tell() % _LINE))
            file.write(array)
    partial.replace(path)


def read_value(path: Path, maps: bool) -> Any:
    """Read what `write_value` wrote. Arrays of a mapped file can only be read."""
    with path.open("rb") as file:
        whole = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if maps else bytearray(file.read()))
    end = _WORD + int.from_bytes(whole[:_WORD], "little")
    body, sizes = pickle.loads(whole[_WORD:end])
    buffers = []
    for size in sizes:
        start = end + -end % _LINE
        end = start + size
        buffers.append(whole[start:end])
    return pickle.loads(body, buffers=buffers)


def write_array(path: Path, array: Array) -> None:
    """Write an array whole or not at all."""
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    with partial.open("wb") as file:
        np.save(file, np.asarray(array), allow_pickle=False)
    partial.replace(path)


def map_array(path: Path) -> Array:
    """Return the array of a file as a memory map, to read."""
    found: Array = np.load(path, mmap_mode="r", allow_pickle=False).view(np.ndarray)
    return found


def is_same_array(left: Array, right: Array) -> bool:
    """Whether two arrays have the same type, shape and bits."""
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    a, b = (np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in (left, right))
    return all(np.array_equal(a[at : at + _PIECE], b[at : at + _PIECE]) for at in range(0, a.size, _PIECE))
