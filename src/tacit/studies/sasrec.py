"""SASRec and GRU4Rec in torch, which is an extra: neural rivals of `slist` that are only measured.

A net reads a history, oldest first, and gives at every step a vector whose products with the item table are the logits
of the next item. The loss is the softmax over all items (Klenitskiy and Vasilev, 2023), or over the next item and
`negatives` items that all users of a batch share, corrected by how often each is drawn. Adam, batches of whole users.

A batch is also what a cohort of as many clients would send in one round of federated gradient descent with Adam on the
server: the same sum of gradients. So the curve over epochs is that of a federated model, without rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tacit.methods.parts.order import newest_rows
from tacit.random import Key
from tacit.studies.cnn import torch
from tacit.types import Clients, Floats

Ints = NDArray[np.int64]
AT_ONCE = 512  # steps


@dataclass(frozen=True)
class NextItemOptions:
    """Options of a neural next-item model."""

    kind: Literal["attention", "gru"] = "attention"
    factors: int = 64  # d: length of an item vector and of the state
    blocks: int = 2  # attention blocks; a gru has one layer
    length: int = 50  # so many of the newest items are read; an epoch reads a window of so many steps of each user
    dropout: float = 0.2
    negatives: int = 0  # shared by a batch; 0: the softmax goes over all items
    batch: int = 64  # users
    learning_rate: float = 1e-3

    def block_numbers(self) -> int:
        """Return how many numbers are learnt beside the item table."""
        d = self.factors
        if self.kind == "gru":
            return 6 * d * d + 6 * d
        return self.length * d + self.blocks * (6 * d * d + 10 * d) + 2 * d


class NextItemNet:
    """A neural model of the next item, trained epoch by epoch."""

    def __init__(self, n_items: int, options: NextItemOptions, seed: int) -> None:
        t = torch()
        t.manual_seed(seed)
        self.n_items, self.options, self.seed = n_items, options, seed
        self.items = t.nn.Embedding(n_items + 1, options.factors, padding_idx=n_items)
        with t.no_grad():
            self.items.weight.normal_(0, options.factors**-0.5)
            self.items.weight[n_items] = 0
        self.body = _Gru(options) if options.kind == "gru" else _Attention(options)
        self.dropout = t.nn.Dropout(options.dropout)
        self.parameters = [*self.items.parameters(), *self.body.module.parameters()]
        self.adam = t.optim.Adam(self.parameters, lr=options.learning_rate, betas=(0.9, 0.98))
        self.epoch = 0

    def states(self, padded: Any) -> Any:
        """Return the state after every step, [B, L, d]."""
        return self.body(self.dropout(self.items(padded) * self.options.factors**0.5))

    def learn(self, clients: Clients) -> float:
        """Go over all users once; return the mean loss of a batch."""
        t = torch()
        generator = Key(self.seed).child("epoch", self.epoch).generator()
        histories = [self._window(one, generator) for one in newest_histories(clients)]
        order = generator.permutation([at for at, one in enumerate(histories) if len(one) > 1])
        counts = (np.bincount(clients.items, minlength=self.n_items) + 1).astype(np.float64)
        self._train(True)
        losses = []
        for some in np.array_split(order, max(1, len(order) // self.options.batch)):
            padded = t.from_numpy(pad([histories[at] for at in some], self.n_items))
            before, after = padded[:, :-1], padded[:, 1:]
            is_step = (after < self.n_items) & (before < self.n_items)
            self.adam.zero_grad()
            states, wanted = self.states(before)[is_step], after[is_step]
            drawn = self._draw(counts, generator)
            # Logits of a few steps at a time stay in the cache; their gradients add up to that of the batch.
            cut, loss = states.detach().requires_grad_(), 0.0
            for at in range(0, len(wanted), AT_ONCE):
                part = self._loss(cut[at : at + AT_ONCE], wanted[at : at + AT_ONCE], drawn) / len(wanted)
                part.backward()
                loss += float(part.detach())
            states.backward(cut.grad)
            self.adam.step()
            losses.append(loss)
        self.epoch += 1
        return float(np.mean(losses))

    def score(self, clients: Clients) -> Floats:
        """Return the logits of the next item, [C, n_items]; zeros without a history."""
        t = torch()
        self._train(False)
        histories = [one[-self.options.length :] for one in newest_histories(clients)]
        scores = np.zeros((len(histories), self.n_items), np.float32)
        has = [at for at, one in enumerate(histories) if len(one)]
        if has:
            with t.no_grad():
                last = self.states(t.from_numpy(pad([histories[at] for at in has], self.n_items)))[:, -1]
                scores[has] = (last @ self.items.weight[: self.n_items].T).numpy()
        return scores

    def weights(self) -> list[Any]:
        """Return copies of all parameters."""
        return [one.detach().clone() for one in self.parameters]

    def load(self, weights: list[Any]) -> None:
        """Take parameters over."""
        with torch().no_grad():
            for one, given in zip(self.parameters, weights, strict=True):
                one.copy_(given)

    def _window(self, history: Ints, generator: np.random.Generator) -> Ints:
        """Return so many items in a row as an epoch reads, at a random place."""
        spare = max(0, len(history) - self.options.length - 1)
        start = int(generator.integers(spare + 1))
        return history[start : start + self.options.length + 1]

    def _draw(self, counts: NDArray[np.float64], generator: np.random.Generator) -> tuple[Any, Any] | None:
        """Return items drawn by popularity, and the logarithm of how often each item is drawn; none: all items."""
        t, n = torch(), self.options.negatives
        if not n:
            return None
        chances = counts / counts.sum()
        drawn = generator.choice(self.n_items, n, p=chances)
        return t.from_numpy(drawn), t.from_numpy(np.log(n * chances).astype(np.float32))

    def _loss(self, states: Any, wanted: Any, negatives: tuple[Any, Any] | None) -> Any:
        """Return the summed cross-entropy of the wanted items."""
        t, table = torch(), self.items.weight[: self.n_items]
        if negatives is None:
            return t.nn.functional.cross_entropy(states @ table.T, wanted, reduction="sum")
        drawn, expected = negatives
        others = states @ table[drawn].T - expected[drawn]
        others = others.masked_fill(drawn[None, :] == wanted[:, None], -1e9)
        own = (states * table[wanted]).sum(1, keepdim=True) - expected[wanted][:, None]
        return -t.log_softmax(t.cat([own, others], 1), 1)[:, 0].sum()

    def _train(self, on: bool) -> None:
        for module in (self.items, self.body.module, self.dropout):
            module.train(on)


class _Attention:
    """Blocks of causal self-attention with one head and two layers of width d, normalised before each (SASRec)."""

    def __init__(self, options: NextItemOptions) -> None:
        t, d = torch(), options.factors
        layers, self.options = t.nn, options
        blocks = [
            layers.ModuleDict(
                {
                    "before": layers.LayerNorm(d),
                    "qkv": layers.Linear(d, 3 * d),
                    "out": layers.Linear(d, d),
                    "between": layers.LayerNorm(d),
                    "up": layers.Linear(d, d),
                    "down": layers.Linear(d, d),
                }
            )
            for _ in range(options.blocks)
        ]
        self.module = layers.ModuleDict(
            {
                "places": layers.Embedding(options.length, d),
                "blocks": layers.ModuleList(blocks),
                "end": layers.LayerNorm(d),
            }
        )
        with t.no_grad():
            self.module["places"].weight.normal_(0, d**-0.5)

    def __call__(self, x: Any) -> Any:
        t, rate = torch(), self.options.dropout
        f, training = t.nn.functional, self.module.training
        length = x.shape[1]
        x = x + self.module["places"].weight[-length:]  # the newest item has the same place in every history
        for block in self.module["blocks"]:
            q, k, v = block["qkv"](block["before"](x)).chunk(3, dim=-1)
            seen = f.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + f.dropout(block["out"](seen), rate, training)
            h = f.dropout(f.relu(block["up"](block["between"](x))), rate, training)
            x = x + f.dropout(block["down"](h), rate, training)
        return self.module["end"](x)


class _Gru:
    """One layer of gated recurrent units (GRU4Rec)."""

    def __init__(self, options: NextItemOptions) -> None:
        self.module = torch().nn.GRU(options.factors, options.factors, batch_first=True)

    def __call__(self, x: Any) -> Any:
        return self.module(x)[0]


def newest_histories(clients: Clients) -> list[Ints]:
    """Return the items of each client, each once at its newest place, oldest first."""
    once = newest_rows(clients)
    return np.split(once.items[once.in_order].astype(np.int64), once.ptr[1:-1])


def pad(histories: list[Ints], empty: int) -> Ints:
    """Return histories as [B, L], with `empty` in front of the shorter ones."""
    padded = np.full((len(histories), max(len(one) for one in histories)), empty, np.int64)
    for row, one in zip(padded, histories, strict=True):
        row[len(row) - len(one) :] = one
    return padded
