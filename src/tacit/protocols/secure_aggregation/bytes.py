"""Bytes of the protocol, written and read in one way only: fixed widths, little endian, every length capped."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any

from tacit.errors import MessageError

MOST_PARTICIPANTS = 16_384  # in one cohort
MOST_BYTES = 2**28  # of one message
MOST_TEXT = 200


class ByteWriter:
    """Collects the parts of a message."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def raw(self, data: bytes) -> ByteWriter:
        """Add bytes whose length the reader knows."""
        self._parts.append(data)
        return self

    def number(self, value: int, width: int) -> ByteWriter:
        """Add a whole number from 0 on, `width` bytes wide."""
        self._parts.append(value.to_bytes(width, "little"))
        return self

    def block(self, data: bytes) -> ByteWriter:
        """Add bytes after their length."""
        return self.number(len(data), 4).raw(data)

    def text(self, words: str) -> ByteWriter:
        """Add a short text."""
        return self.block(words.encode())

    def done(self) -> bytes:
        """Return all of it."""
        return b"".join(self._parts)


class ByteReader:
    """Takes a message apart; whatever is missing, too long or left over is a MessageError."""

    def __init__(self, data: bytes, what: str, most: int = MOST_BYTES) -> None:
        if len(data) > most:
            raise MessageError(f"{what}: {len(data):,} bytes are more than the {most:,} it may have.")
        self._data, self._at, self._what = data, 0, what

    def raw(self, size: int) -> bytes:
        """Take `size` bytes."""
        end = self._at + size
        if end > len(self._data):
            raise MessageError(f"{self._what} ends too early: byte {end:,} is missing, it has {len(self._data):,}.")
        part = self._data[self._at : end]
        self._at = end
        return part

    def number(self, width: int, most: int | None = None, least: int = 0) -> int:
        """Take a whole number and hold it to its bounds."""
        value = int.from_bytes(self.raw(width), "little")
        if value < least or (most is not None and value > most):
            raise self.wrong(f"a number is {value}, not between {least} and {most}")
        return value

    def block(self, most: int = MOST_BYTES) -> bytes:
        """Take bytes that stand after their length."""
        return self.raw(self.number(4, most))

    def text(self) -> str:
        """Take a short text."""
        try:
            return self.block(MOST_TEXT).decode()
        except UnicodeDecodeError:
            raise self.wrong("a text is not UTF-8") from None

    def entries(self, form: struct.Struct, most: int) -> list[tuple[Any, ...]]:
        """Take a counted list of entries of one form."""
        n_entries = self.number(4, most)
        return list(form.iter_unpack(self.raw(n_entries * form.size)))

    def rest(self) -> bytes:
        """Take all that is left."""
        return self.raw(len(self._data) - self._at)

    @property
    def n_left(self) -> int:
        """How many bytes are left."""
        return len(self._data) - self._at

    @property
    def is_over(self) -> bool:
        """Whether all of it was taken."""
        return self._at == len(self._data)

    def end(self) -> None:
        """Refuse anything left over."""
        if not self.is_over:
            raise self.wrong(f"{len(self._data) - self._at} bytes stand after its end")

    def wrong(self, problem: str) -> MessageError:
        """Return the error that says what is wrong with this message."""
        return MessageError(f"{self._what} is malformed: {problem}.")


def write_entries(writer: ByteWriter, form: struct.Struct, entries: Iterable[tuple[object, ...]]) -> ByteWriter:
    """Add a counted list of entries of one form."""
    packed = [form.pack(*entry) for entry in entries]
    return writer.number(len(packed), 4).raw(b"".join(packed))


def to_bits(members: Iterable[int], n_participants: int) -> bytes:
    """Return positions in a cohort as one bit each.

    >>> to_bits([0, 9], 12).hex()
    '0102'
    """
    bits = bytearray((n_participants + 7) // 8)
    for member in members:
        bits[member >> 3] |= 1 << (member & 7)
    return bytes(bits)


def from_bits(bits: bytes, n_participants: int) -> frozenset[int]:
    """Return the positions that `to_bits` wrote; bits beyond the cohort are refused."""
    if len(bits) != (n_participants + 7) // 8:
        raise MessageError(
            f"A set of {n_participants} participants takes {(n_participants + 7) // 8} bytes, not {len(bits)}."
        )
    members = frozenset(_ones(bits))
    if members and max(members) >= n_participants:
        raise MessageError(f"A set names a position outside a cohort of {n_participants}.")
    return members


def _ones(bits: bytes) -> Iterator[int]:
    for place, byte in enumerate(bits):
        while byte:
            low = byte & -byte
            yield 8 * place + low.bit_length() - 1
            byte ^= low
