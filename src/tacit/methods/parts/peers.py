"""Peer samplers: whom a peer sends its model to next. A new one is one function.

A sampler sees what its own peer knows: which peers it has judged, and which it has lately learnt about, in random
order.

    random         any peer it knows of
    personalised   some of those whose models served it best, the rest at random (PEPPER, algorithm 3)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.random import mix

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class KnownPeers:
    """What a peer knows of others; it is in none of the lists itself."""

    judged: Ids  # who has sent it models
    worths: NDArray[np.float32]  # what the last model of each was worth, above 0
    offered: Ids  # who else there is, in random order


Sampler = Callable[[KnownPeers, int, float, np.uint64], Ids]  # with the view's size, how many best ones, a draw


def random_peers(known: KnownPeers, view: int, best: float, chance: np.uint64) -> Ids:
    """Return `view` of those on offer."""
    return known.offered[:view]


def personalised_peers(known: KnownPeers, view: int, best: float, chance: np.uint64) -> Ids:
    """Return the `best` most useful senders, equally useful ones at random, and others to fill the view.

    A fraction is taken by chance: 1.2 of 3 is one, and two in every fifth choice.
    """
    n_best = min(int(best + float(chance >> np.uint64(11)) * 2.0**-53), len(known.judged))
    kept: list[int] = []
    if n_best:
        last = np.partition(known.worths, -n_best)[-n_best]  # of those taken, the least useful
        near = np.flatnonzero(known.worths >= last)
        if len(near) > n_best:
            ids = known.judged[near].astype(np.uint64)
            near = near[np.lexsort((mix(chance ^ mix(ids)), -known.worths[near]))][:n_best]
        kept = known.judged[near].tolist()
    others = [peer for peer in known.offered.tolist() if peer not in kept]
    return np.array([*kept, *others[: view - len(kept)]], np.int64)


SAMPLERS: dict[str, Sampler] = {"random": random_peers, "personalised": personalised_peers}
