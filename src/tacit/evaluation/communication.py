"""The communication cost of federated learning, in vectors (Anelli et al., JIIS 2022, section 6.3) and in bytes.

A client that is asked in a round receives the |I| vectors of the item table and returns T (1 + pi). T of these are for
items outside its history, and the share pi of T for items of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def cost_per_epoch(
    rounds_per_epoch: float, clients_per_round: int, n_items: int, local_steps: float, pi: float
) -> float:
    """Return CCE = rpe |U-| (|I| + T (1 + pi)): the vectors exchanged in an epoch, both ways.

    >>> cost_per_epoch(rounds_per_epoch=10, clients_per_round=2, n_items=100, local_steps=4, pi=0.5)
    2120.0
    """
    return rounds_per_epoch * clients_per_round * (n_items + local_steps * (1 + pi))


def total_cost(cost_of_an_epoch: float, epochs: int) -> float:
    """Return TCC = CCE times the epochs that were needed."""
    return cost_of_an_epoch * epochs


def measure_cost(
    asked: NDArray[np.int64], rows_up: NDArray[np.int64], bytes_both: NDArray[np.int64], rows_down: int, epochs: int
) -> dict[str, Any]:
    """Return CCE as it was measured, and the bytes of a client in a round it was asked in.

    `asked`, `rows_up` and `bytes_both` are per client, over all `epochs`; `rows_down` is what each answer starts from.
    """
    times = int(asked.sum())
    vectors = times * rows_down + int(rows_up.sum())
    return {
        "cce": vectors / epochs if epochs else 0.0,
        "bytes_per_client_and_round": int(bytes_both.sum()) / times if times else 0.0,
    }
