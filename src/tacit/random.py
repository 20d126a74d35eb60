"""Keyed draws: each depends on (seed, purpose, lane, position) only, never on batch, thread or order.

A `Key` is a seed and a path of names. Its word starts a counter-based generator: draw number `t` of lane `l` is
`mix(lane_state(word, l) + (t + 1) * GAMMA)`, so any draw can be made alone. Kernels make the same draws with
`kernels.sampling`; a test holds the two together. Secrets (keys, masks, noise in the field) never come from here.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

GAMMA = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: the step of SplitMix64
_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)
_ALL = 2**64 - 1


def mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finaliser: a bijection of 64-bit words that looks random."""
    x = (x ^ (x >> np.uint64(30))) * _M1
    x = (x ^ (x >> np.uint64(27))) * _M2
    return x ^ (x >> np.uint64(31))


def _hash(word: int, name: str = "") -> int:
    text = f"{word}/{name}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def _lane(word: int, index: int) -> int:
    """The scalar form of the lanes in `Key.bits`, in plain integers."""
    return _mix(word ^ _mix(index + int(GAMMA)))


def _mix(x: int) -> int:
    x &= _ALL
    x = ((x ^ (x >> 30)) * int(_M1)) & _ALL
    x = ((x ^ (x >> 27)) * int(_M2)) & _ALL
    return x ^ (x >> 31)


@dataclass(frozen=True, slots=True)
class Key:
    """A named source of random draws. `key.child("learn", round)` is independent of every other path."""

    seed: int
    path: tuple[str | int, ...] = ()

    def child(self, *names: str | int) -> Key:
        """Return the key of a narrower purpose."""
        return Key(self.seed, self.path + names)

    @property
    def word(self) -> np.uint64:
        """64 bits that stand for this key; kernels start from them. Numbers on the path are lanes, as in `bits`."""
        word = _hash(int(self.seed))
        for part in self.path:
            word = _hash(word, part) if isinstance(part, str) else _lane(word, int(part))
        return np.uint64(word)

    def bits(self, lanes: NDArray[np.integer], n: int) -> NDArray[np.uint64]:
        """Random words [len(lanes), n]; row l depends on the lane's number only."""
        lane = mix(self.word ^ mix(np.asarray(lanes).astype(np.uint64) + GAMMA))
        steps = np.arange(1, n + 1, dtype=np.uint64) * GAMMA
        return mix(lane[:, None] + steps[None, :])

    def uniform(self, lanes: NDArray[np.integer], n: int) -> NDArray[np.float64]:
        """Numbers in [0, 1), [len(lanes), n]."""
        return (self.bits(lanes, n) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def normal(self, lanes: NDArray[np.integer], n: int, scale: float = 1.0) -> NDArray[np.float32]:
        """Gaussian numbers [len(lanes), n] of mean 0 (Box-Muller on two words each)."""
        u = self.uniform(lanes, 2 * n)
        radius = np.sqrt(-2.0 * np.log1p(-u[:, :n]))
        return (scale * radius * np.cos(2.0 * np.pi * u[:, n:])).astype(np.float32)

    def generator(self) -> np.random.Generator:
        """A numpy generator for draws that have no lanes (whole-table initialisation, permutations)."""
        return np.random.Generator(np.random.Philox(key=int(self.word)))
