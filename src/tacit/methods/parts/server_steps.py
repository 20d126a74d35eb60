"""How a server applies the average move of its devices: as it is, with momentum, or with a step size per number.

The average move takes the place of a gradient (Reddi et al., Adaptive Federated Optimization, 2021). With b for
`server_momentum`, per number of a row:

    sgd    m = b m + move                                      w += rate m
    adam   m = b m + (1 - b) move,  v += .01 (move^2 - v)      w += rate m / (sqrt(v) + .001)
    yogi   the same,  v -= .01 move^2 sign(v - move^2)

Without momentum `sgd` is plain averaging. A row without an update stays, and so do its moments: its average is not a
move of zero but no move. What a server remembers is stored beside the tables in the shared model, under names of its
own, so that a coordinator continues with it after a restart. Devices never receive it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
from pydantic import Field

from tacit.types import Array, Config, Floats

FORGETS = np.float32(0.01)  # 1 - b2
TAU = np.float32(1e-3)  # how small a usual move must be before it is no longer scaled up; v begins with its square


class ServerConfig(Config):
    """Options of a server's steps."""

    server_optimiser: Literal["sgd", "adam", "yogi"] = Field(
        "sgd", description="optimiser of the server on the averaged update: plain, or adaptive for each number"
    )
    server_rate: float = Field(1.0, gt=0, description="server learning rate: factor of the averaged update")
    server_momentum: float = Field(
        0.0, ge=0, le=0.999, description="momentum: share of earlier updates that is carried on; 0: none"
    )


def server_state(config: ServerConfig, tables: Mapping[str, Array]) -> dict[str, Array]:
    """Return the arrays in which a server keeps what it remembers of its tables before the first round."""
    found: dict[str, Array] = {}
    for name, table in tables.items():
        if config.server_momentum:
            found[f"{name}_momentum"] = np.zeros_like(table)
        if config.server_optimiser != "sgd":
            found[f"{name}_size"] = np.full_like(table, TAU * TAU)
    return found


def is_plain(config: ServerConfig) -> bool:
    """Whether the average move is made as it is, so that rows without an update stay whatever happens to others."""
    return not config.server_momentum and config.server_optimiser == "sgd"


def apply_server_step(
    config: ServerConfig, shared: Mapping[str, Array], moves: Mapping[str, Floats], received: Mapping[str, Array]
) -> dict[str, Array]:
    """Return the shared model after the average moves were made, of those rows that `received` an update."""
    found, b, rate = dict(shared), np.float32(config.server_momentum), np.float32(config.server_rate)
    is_scaled = config.server_optimiser != "sgd"
    for name, move in moves.items():
        if is_plain(config):  # of which most runs are
            found[name] = shared[name] + rate * move
            continue
        is_received, step = received[name][:, None], move
        if b:
            step = b * shared[f"{name}_momentum"] + (1 - b if is_scaled else np.float32(1)) * move
            found[f"{name}_momentum"] = np.where(is_received, step, shared[f"{name}_momentum"])
        if is_scaled:
            usual, square = shared[f"{name}_size"], move * move
            by = np.sign(square - usual) * square if config.server_optimiser == "yogi" else square - usual
            usual = usual + FORGETS * by
            found[f"{name}_size"] = np.where(is_received, usual, shared[f"{name}_size"])
            step = step / (np.sqrt(usual) + TAU)
        found[name] = np.where(is_received, shared[name] + rate * step, shared[name])
    return found
