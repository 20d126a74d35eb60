"""A rival that is only measured: the recipe of IFedRec (Zhang et al., WWW 2024) in numpy, on top of PFedRec.

Every client keeps a linear score function and moves a copy of the item table by binary cross-entropy, five negatives
for each positive; the server averages the tables. A network of the server maps item attributes to the average (mean
squared error, Adam). Clients are pulled towards what it says (`reg`). An item without a row is scored by the network's
output. Names and default values of options are those of the paper's code; the pull is applied once per round.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tacit.kernels.ifedrec import ifedrec_round
from tacit.types import Array, Clients, Floats, offsets

BATCH, NEGATIVES, HIDDEN = 256, 5, 300


@dataclass(frozen=True)
class IFedRecOptions:
    """Options of the recipe."""

    factors: int = 64
    rounds: int = 40
    lr_client: float = 0.1
    lr_eta: float = 80.0  # the item table moves by lr_client x items x eta
    lr_server: float = 0.005
    reg: float = 10.0
    server_steps: int = 1


class AttributeNetwork:
    """One hidden layer of rectified units and a tanh output, moved by Adam."""

    def __init__(self, width: int, factors: int, rate: float, rng: np.random.Generator) -> None:
        sizes = ((width, HIDDEN), (HIDDEN,), (HIDDEN, factors), (factors,))
        fans = (width, width, HIDDEN, HIDDEN)
        self.weights = [
            rng.uniform(-1, 1, size) / np.sqrt(fan) for size, fan in zip(sizes, fans, strict=True)
        ]  # as torch begins
        self.first = [np.zeros(size) for size in sizes]
        self.second = [np.zeros(size) for size in sizes]
        self.rate, self.steps = rate, 0

    def __call__(self, vectors: Array) -> NDArray[np.float64]:
        """Return the rows of items with these attributes."""
        a, b, c, d = self.weights
        rows: NDArray[np.float64] = np.tanh(np.maximum(vectors @ a + b, 0) @ c + d)
        return rows

    def learn(self, vectors: Array, target: Array) -> None:
        """Make one step of Adam on the mean squared error."""
        a, b, c, d = self.weights
        hidden = np.maximum(vectors @ a + b, 0)
        out = np.tanh(hidden @ c + d)
        outer = 2 * (out - target) * (1 - out**2) / out.size
        inner = (outer @ c.T) * (hidden > 0)
        self.steps += 1
        for at, grad in enumerate((vectors.T @ inner, inner.sum(0), hidden.T @ outer, outer.sum(0))):
            self.first[at] += 0.1 * (grad - self.first[at])
            self.second[at] += 0.001 * (grad**2 - self.second[at])
            mean, spread = self.first[at] / (1 - 0.9**self.steps), self.second[at] / (1 - 0.999**self.steps)
            self.weights[at] = self.weights[at] - self.rate * mean / (np.sqrt(spread) + 1e-8)


@dataclass
class IFedRec:
    """The state of all clients and of the server."""

    clients: Clients
    vectors: Floats  # [n_items, width]
    options: IFedRecOptions = field(default_factory=IFedRecOptions)
    seed: int = 0

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        n_items, factors = len(self.vectors), self.options.factors
        self.known = np.unique(self.clients.items)
        self.own = [np.unique(self.clients.of(client)) for client in range(len(self.clients))]
        self.table = self.rng.normal(size=(n_items, factors))
        self.scorers = self.rng.uniform(-1, 1, (len(self.clients), factors + 1)) / np.sqrt(factors)
        self.network = AttributeNetwork(self.vectors.shape[1], factors, self.options.lr_server, self.rng)

    def rounds(self) -> Iterator[int]:
        """Run the rounds, one by one; every client takes part in each."""
        for number in range(self.options.rounds):
            self._round()
            yield number

    def _round(self) -> None:
        o, known = self.options, self.known
        item_rate = o.lr_client * len(known) * o.lr_eta
        drawn = [self._draw(client) for client in range(len(self.clients))]
        ptr = offsets(np.array([len(order) for order, _ in drawn]))
        order, is_own = (np.concatenate(parts) for parts in zip(*drawn, strict=True))
        moves = np.zeros_like(self.table)
        ifedrec_round(ptr, order, is_own, self.table, self.scorers, o.lr_client, BATCH, moves)
        self.table -= item_rate / len(self.clients) * moves
        pull = min(1.0, item_rate * o.reg * 2 / (len(known) * o.factors))
        self.table[known] += pull * (self.network(self.vectors[known]) - self.table[known])
        for _ in range(o.server_steps):
            self.network.learn(self.vectors[known], self.table[known])

    def _draw(self, client: int) -> tuple[Array, NDArray[np.bool_]]:
        """Return the client's items and its negatives in the order of the round, and which are its own."""
        own = self.own[client]
        is_other = np.ones(len(self.known), bool)
        is_other[np.searchsorted(self.known, own)] = False
        others = self.known[is_other]
        drawn = self.rng.choice(others, min(NEGATIVES * len(own), len(others)), replace=False, shuffle=False)
        order = self.rng.permutation(len(own) + len(drawn))
        return np.concatenate([own, drawn])[order], order < len(own)

    def score(self, positions: Array) -> Floats:
        """Score all items for some clients; those without a row by the network."""
        rows = self.network(self.vectors)
        rows[self.known] = self.table[self.known]
        scorers = self.scorers[positions]
        return np.asarray(scorers[:, :-1] @ rows.T + scorers[:, -1:], np.float32)
