"""Which clients are asked in a round: keyed by the round, or by the pass if a pass asks every client once."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tacit.methods.base import Schedule
from tacit.random import GAMMA, Key, mix


def select_clients(schedule: Schedule, key: Key, number: int, n_clients: int) -> NDArray[np.int64]:
    """Return the positions of the clients that a schedule asks in round `number`, ascending, each at most once."""
    if schedule.partition:
        return one_of_groups(key, number, n_clients, schedule.clients_per_round, schedule.rounds_per_pass)
    return sample_clients(key, number, n_clients, schedule.clients_per_round)


def one_of_groups(key: Key, number: int, n_clients: int, n_asked: int, rounds_per_pass: int) -> NDArray[np.int64]:
    """Return the group of round `number`, where each pass divides all clients into random groups of `n_asked`."""
    in_pass, group = divmod(number, rounds_per_pass)
    return np.sort(_shuffle_clients(key.child("pass", in_pass), n_clients)[group * n_asked : (group + 1) * n_asked])


@lru_cache(maxsize=2)
def _shuffle_clients(key: Key, n_clients: int) -> NDArray[np.int64]:
    """All clients in a random order; the rounds of a pass share it."""
    generator = np.random.Generator(np.random.Philox(key=int(key.word)))
    order: NDArray[np.int64] = generator.permutation(n_clients)
    order.flags.writeable = False
    return order


def sample_clients(key: Key, number: int, n_clients: int, n_asked: int) -> NDArray[np.int64]:
    """Return the positions of the clients asked in round `number`, ascending, each at most once."""
    if n_asked >= n_clients:
        return np.arange(n_clients)
    word = key.child(number).word
    if n_asked == 1:  # what kernels of many small rounds draw too
        drawn = int(mix(np.array([word]) + GAMMA)[0])
        return np.array([((drawn >> 32) * n_clients) >> 32])
    generator = np.random.Generator(np.random.Philox(key=int(word)))
    return np.sort(generator.choice(n_clients, n_asked, replace=False, shuffle=False))
