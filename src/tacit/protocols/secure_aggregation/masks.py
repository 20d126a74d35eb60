"""Key streams and the numbers they hide: AES-256 in counter mode, added in place modulo 2^16, 2^32 or 2^64.

Each stream's key is derived for one round, one pair and one purpose, so the counter starts at zero. A stream is made a
piece at a time in a buffer that stays in cache, and added to the vector there: nothing is allocated per peer.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from tacit.types import Array

PIECE = 2**17  # bytes
WIDTHS = (64, 32, 16)  # bits, the order in which numbers stand in a vector: each part is aligned
_ZEROS = memoryview(bytes(PIECE))
_MODE = modes.CTR(bytes(16))


class Vector:
    """Whole numbers modulo 2^64, 2^32 and 2^16, in one buffer that travels as it is (little endian)."""

    def __init__(self, sizes: tuple[int, int, int], data: bytes | None = None) -> None:
        """`sizes`: how many numbers of 64, 32 and 16 bits; `data`: their bytes, otherwise all are zero."""
        self.sizes = sizes
        n_bytes = bytes_of(sizes)
        if data is None:
            self.buffer: NDArray[np.uint8] = np.zeros(n_bytes, np.uint8)
        else:
            self.buffer = np.frombuffer(data, np.uint8, n_bytes).copy()
        self.parts: list[Array] = []
        start = 0
        for bits, size in zip(WIDTHS, sizes, strict=True):
            end = start + size * bits // 8
            self.parts.append(self.buffer[start:end].view(np.dtype(f"<u{bits // 8}")))
            start = end

    def tobytes(self) -> bytes:
        """Return what travels."""
        return self.buffer.tobytes()

    def add(self, data: bytes) -> None:
        """Add the vector whose bytes these are."""
        start = 0
        for part in self.parts:
            part += np.frombuffer(data, part.dtype, len(part), start)
            start += part.nbytes


def bytes_of(sizes: tuple[int, int, int]) -> int:
    """Return how many bytes a vector has.

    >>> bytes_of((1, 2, 3))
    22
    """
    return sum(size * bits // 8 for bits, size in zip(WIDTHS, sizes, strict=True))


def mask(vector: Vector, plus: Iterable[bytes], minus: Iterable[bytes]) -> None:
    """Add the streams of some 32-byte keys to a vector, and take those of others away."""
    scratch = bytearray(min(PIECE, len(vector.buffer)) + 16)
    pieces = []
    for part in vector.parts:
        for start in range(0, len(part), PIECE // part.itemsize):
            piece = part[start : start + PIECE // part.itemsize]
            pieces.append((_ZEROS[: piece.nbytes], piece, np.frombuffer(scratch, part.dtype, len(piece))))
    for keys, change in ((plus, np.add), (minus, np.subtract)):
        for key in keys:
            stream = Cipher(algorithms.AES(key), _MODE).encryptor()
            for zeros, piece, made in pieces:
                stream.update_into(zeros, scratch)
                change(piece, made, piece)
