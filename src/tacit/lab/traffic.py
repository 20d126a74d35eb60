"""What each client of a simulation received and sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.methods.base import Federated
from tacit.types import Array
from tacit.updates import Release


@dataclass
class Traffic:
    """What each client was asked for and sent, summed over rounds, by position in the cohort."""

    rounds: NDArray[np.int64]  # in which the client's answer counted
    positives: NDArray[np.int64]
    negatives: NDArray[np.int64]
    bytes_up: NDArray[np.int64]
    bytes_down: NDArray[np.int64]
    lost: NDArray[np.int64]  # rounds in which the client was asked and its answer did not count
    refused: NDArray[np.int64]  # rounds in which the client's update did not fit the ring
    masked: NDArray[np.int64]  # rounds in which the client's answer was masked

    @classmethod
    def none(cls, n_clients: int) -> Traffic:
        """Return the traffic before the first round."""
        return cls(*(np.zeros(n_clients, np.int64) for _ in range(8)))

    def add(self, positions: Array | slice, release: Release, rounds: Array | int, down: int) -> None:
        """Count what the clients at some positions (each once) received and sent."""
        self.rounds[positions] += rounds
        self.positives[positions] += release.positives
        self.negatives[positions] += release.negatives
        self.bytes_up[positions] += release.bytes
        self.bytes_down[positions] += rounds * down


def download_bytes(method: Federated, shared: Mapping[str, Array]) -> int:
    """Return how many bytes of the model a device receives in a round: of client tables one row."""
    rows = dict.fromkeys(method.spec.client_tables, 1)
    return sum(shared[name][: rows.get(name)].nbytes for name in method.spec.downloads)
