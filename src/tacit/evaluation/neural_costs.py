"""What a device computes and sends when it learns a neural model of collaborative filtering (FedNCF, section 4.5).

A model is given by its sizes: D factors, the widths h_1, ..., h_L of its tower (none: no tower) and whether it has a
product. `product + tower` is a user's or an item's vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

FLOAT_BYTES = 4  # a number as devices usually send it; sums in a ring take 4 or 8


@dataclass(frozen=True)
class NeuralCost:
    """The costs of one model."""

    factors: int
    layers: tuple[int, ...] = ()
    has_product: bool = True

    @property
    def width(self) -> int:
        """Numbers in an item's row."""
        return self.factors * (self.has_product + bool(self.layers))

    @property
    def layer_numbers(self) -> int:
        """Numbers in the layers, biases and head included.

        >>> NeuralCost(12).layer_numbers, NeuralCost(12, (48, 24, 12, 6), False).layer_numbers
        (13, 2761)
        """
        sizes = (2 * self.factors, *self.layers)
        tower = sum((a + 1) * b for a, b in zip(sizes, self.layers, strict=False))
        return tower + self._head + 1

    @property
    def _head(self) -> int:
        return self.factors * self.has_product + (self.layers[-1] if self.layers else 0)

    @property
    def forward(self) -> int:
        """Operations of one prediction: a multiply-add is one, so is adding a bias and a ReLU or sigmoid.

        The product, D; every layer, h_k (h_(k-1) + 2); the head, as wide as it is, + 2.

        >>> NeuralCost(12).forward, NeuralCost(12, (48, 24, 12, 6), False).forward
        (26, 2852)
        """
        sizes = (2 * self.factors, *self.layers)
        tower = sum((a + 2) * b for a, b in zip(sizes, self.layers, strict=False))
        return self.factors * self.has_product + tower + self._head + 2

    def dense(self, n_items: int) -> int:
        """Numbers a device sends when it sends the whole item table and the layers, as in the paper's section 3.4."""
        return self.width * n_items + self.layer_numbers

    def sparse_bytes(self, rows: float, number_bytes: int = FLOAT_BYTES, id_bytes: int = 4) -> float:
        """Bytes a device sends when it sends so many rows with their ids, and the layers with their weight and id."""
        return rows * (id_bytes + self.width * number_bytes) + id_bytes + (self.layer_numbers + 1) * number_bytes


def local_flops(per_sample: float, observations: float, negatives: int = 4, passes: int = 1) -> float:
    """Operations of forward passes over a device's samples: every observation with its negatives, `passes` times.

    >>> local_flops(32, 20)
    3200
    """
    return per_sample * observations * (1 + negatives) * passes


def touched_rows(observations: float, n_items: int, negatives: int = 4, epochs: int = 2) -> float:
    """Return how many rows a device touches in a round, on average: positives and distinct negatives."""
    free = max(n_items - observations, 1.0)
    missed: float = (1.0 - 1.0 / free) ** (observations * negatives * epochs)
    return observations + free * (1.0 - missed)


def masks(cost: NeuralCost, n_items: int, clients: int) -> int:
    """Numbers a device draws for pairwise masks among so many clients: model and counts, once per other client.

    >>> masks(NeuralCost(12), 1000, 10)
    117117
    """
    return (clients - 1) * (cost.dense(n_items) + n_items)


def spread_of(values: Sequence[float]) -> tuple[float, float, float]:
    """Return mean, least and most."""
    return sum(values) / len(values), min(values), max(values)
