"""Merkle trees over lists that only grow (RFC 6962, RFC 9162): short proofs that a list has grown, and what is in it.

    leaf    SHA-256(0x00 | entry)
    node    SHA-256(0x01 | left | right), where left holds the largest power of two of entries below all of them
    empty   SHA-256 of nothing

A proof of growth is the RFC's consistency proof. A proof of members is one for several entries at once: the hashes of
all subtrees that hold none of them, from left to right. Every subtree that holds one is taken apart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

HASH_BYTES = 32
EMPTY = hashlib.sha256().digest()


def leaf_hash(entry: bytes) -> bytes:
    """Return the hash of one entry.

    >>> leaf_hash(b"").hex()[:16]
    '6e340b9cffb37a98'
    """
    return hashlib.sha256(b"\0" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of two subtrees."""
    return hashlib.sha256(b"\1" + left + right).digest()


def _split(size: int) -> int:
    """Return the largest power of two below a size of two or more."""
    return 1 << ((size - 1).bit_length() - 1)


class MerkleTree:
    """A list of entries as hashes: all complete subtrees are kept, so that roots and proofs take few steps."""

    def __init__(self, entries: Iterable[bytes] = ()) -> None:
        self._levels: list[list[bytes]] = [[]]
        for entry in entries:
            self.append(entry)

    def __len__(self) -> int:
        return len(self._levels[0])

    def append(self, entry: bytes) -> None:
        """Add one entry at the end."""
        made = leaf_hash(entry)
        for level, row in enumerate(self._levels):
            row.append(made)
            if len(row) % 2:
                return
            made = node_hash(row[-2], row[-1])
            if level + 1 == len(self._levels):
                self._levels.append([made])
                return

    def copy(self) -> MerkleTree:
        """Return a tree of the same entries, to which others may be added."""
        made = MerkleTree()
        made._levels = [list(level) for level in self._levels]
        return made

    def root(self, size: int | None = None) -> bytes:
        """Return the root of the first `size` entries, of all by default."""
        size = len(self) if size is None else size
        if not 0 <= size <= len(self):
            raise ValueError(f"there are {len(self)} entries, not {size}")
        return self._hash(0, size) if size else EMPTY

    def _hash(self, start: int, end: int) -> bytes:
        size = end - start
        if size & (size - 1) == 0:
            return self._levels[size.bit_length() - 1][start // size]
        middle = start + _split(size)
        return node_hash(self._hash(start, middle), self._hash(middle, end))

    def prove_growth(self, before: int, size: int) -> list[bytes]:
        """Return the proof that the first `before` entries are the beginning of the first `size`."""
        found: list[bytes] = []
        start, end, is_whole, later = 0, size, True, list[bytes]()
        while before not in (0, end - start):
            middle = start + _split(end - start)
            if start + before <= middle:
                later.append(self._hash(middle, end))
                end = middle
            else:
                later.append(self._hash(start, middle))
                before, start, is_whole = before - (middle - start), middle, False
        if before and not is_whole:
            found.append(self._hash(start, end))
        return found + later[::-1]

    def prove_members(self, places: Iterable[int], size: int) -> list[bytes]:
        """Return the proof that the entries at some places are in the first `size`."""
        wanted = sorted(places)
        return [self._hash(start, end) for start, end, here in _parts(0, size, wanted) if not here]


def _parts(start: int, end: int, places: Sequence[int]) -> Iterator[tuple[int, int, Sequence[int]]]:
    """Yield the subtrees without any of the places, and the places themselves, from left to right."""
    if not places or end - start == 1:
        yield start, end, places
        return
    middle = start + _split(end - start)
    yield from _parts(start, middle, [place for place in places if place < middle])
    yield from _parts(middle, end, [place for place in places if place >= middle])


def is_growth(before: int, old_root: bytes, size: int, root: bytes, proof: Sequence[bytes]) -> bool:
    """Say whether a proof shows that a list of `size` entries begins with the `before` entries of an older root."""
    if not 0 <= before <= size:
        return False
    if before in (0, size):
        return not proof and old_root == (EMPTY if before == 0 else root)
    hashes = iter(proof)

    def both(before: int, size: int, is_whole: bool) -> tuple[bytes, bytes]:
        """Return the hashes of a subtree, of its older entries and of all."""
        if before == size:
            made = old_root if is_whole else next(hashes)
            return made, made
        left_size = _split(size)
        if before <= left_size:
            old, new = both(before, left_size, is_whole)
            return old, node_hash(new, next(hashes))
        old, new = both(before - left_size, size - left_size, False)
        left = next(hashes)
        return node_hash(left, old), node_hash(left, new)

    try:
        seen = both(before, size, True)
    except StopIteration:
        return False
    return seen == (old_root, root) and next(hashes, None) is None


def has_members(entries: Mapping[int, bytes], size: int, root: bytes, proof: Sequence[bytes]) -> bool:
    """Say whether a proof shows that these entries, by place, are in the list of `size` entries with this root."""
    places = sorted(entries)
    if not places or places[0] < 0 or places[-1] >= size:
        return False
    hashes = iter(proof)

    def subtree(start: int, end: int, here: Sequence[int]) -> bytes:
        if not here:
            return next(hashes)
        if end - start == 1:
            return leaf_hash(entries[start])
        middle = start + _split(end - start)
        left = subtree(start, middle, [place for place in here if place < middle])
        return node_hash(left, subtree(middle, end, [place for place in here if place >= middle]))

    try:
        return subtree(0, size, places) == root and next(hashes, None) is None
    except StopIteration:
        return False
