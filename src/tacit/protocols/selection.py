"""Who is asked in a round: keyed by the round alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tacit.random import GAMMA, Key, mix


def chosen(key: Key, number: int, n_clients: int, n_asked: int) -> NDArray[np.int64]:
    """Return the positions of the clients asked in round `number`, ascending, each at most once."""
    if n_asked >= n_clients:
        return np.arange(n_clients)
    word = key.child(number).word
    if n_asked == 1:  # what kernels of many small rounds draw too
        drawn = int(mix(np.array([word]) + GAMMA)[0])
        return np.array([((drawn >> 32) * n_clients) >> 32])
    generator = np.random.Generator(np.random.Philox(key=int(word)))
    return np.sort(generator.choice(n_clients, n_asked, replace=False, shuffle=False))
