"""GMF, MLP and NeuMF (He et al., 2017; with the sizes of FedNCF): one definition each, however they are trained.

A user and an item are vectors. The product half multiplies them entry by entry, the tower half passes them through
ReLU layers, and the head weighs both. The item table and the layers are shared; a user's vector is
private. GMF has the product only, MLP the tower only, NeuMF both, joined in the head.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tacit.errors import MethodError
from tacit.kernels.ncf import add_tower_scores, pair_scores
from tacit.random import Key
from tacit.types import Array, Floats


@dataclass(frozen=True)
class NCF:
    """The shape of a model, and what does not depend on how it is trained: layout, first values, scores.

    A row of `items` or `users` is [product half | tower half], each of length `factors` where the model has it.
    """

    factors: int
    layers: tuple[int, ...]  # the tower's widths; empty: no tower
    has_product: bool

    @property
    def product(self) -> int:
        """Length of the product half."""
        return self.factors if self.has_product else 0

    @property
    def width(self) -> int:
        """Length of a user's or an item's vector."""
        return self.product + (self.factors if self.layers else 0)

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Widths of the tower from its input to its top; empty: no tower."""
        return np.array((2 * self.factors, *self.layers) if self.layers else (), np.int64)

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The layers by name, in the order they have in the flat vector that is trained."""
        shapes: dict[str, tuple[int, ...]] = {}
        for k in range(len(self.layers)):
            shapes[f"layer{k + 1}"] = (int(self.sizes[k]), int(self.sizes[k + 1]))
            shapes[f"bias{k + 1}"] = (int(self.sizes[k + 1]),)
        shapes["head"] = (self.product + (self.layers[-1] if self.layers else 0),)
        shapes["head_bias"] = (1,)
        return shapes

    @cached_property
    def n_layers(self) -> int:
        """How many numbers the layers have together."""
        return sum(int(np.prod(shape)) for shape in self.shapes.values())

    def init_shared(self, n_items: int, key: Key, scale: float) -> dict[str, Array]:
        """Return the first item table, normal(0, scale), and layers: Xavier uniform, biases zero.

        The tower's head has as many negative as positive weights. With several negatives per positive, learning first
        lowers every score. If all weights of the head happened to be positive (one of 64 heads), that would switch all
        units off for good; units with a negative weight grow.
        """
        shared: dict[str, Array] = {"items": key.child("items").normal(np.arange(n_items), self.width, scale)}
        for name, shape in self.shapes.items():
            if "bias" in name:
                shared[name] = np.zeros(shape, np.float32)
            else:
                fan_in, fan_out = shape if len(shape) == 2 else (shape[0], 1)
                limit = np.sqrt(6.0 / (fan_in + fan_out))
                drawn = key.child(name).uniform(np.arange(fan_in), fan_out)
                shared[name] = ((2.0 * drawn - 1.0) * limit).reshape(shape).astype(np.float32)
        tower = shared["head"][self.product :]
        tower[:] = np.abs(tower) * np.where(np.arange(len(tower)) % 2, 1, -1)
        return shared

    def init_private(self, ids: NDArray[np.int64], key: Key, scale: float) -> dict[str, Array]:
        """Return the first vectors of these users, normal(0, scale), each keyed by its id alone."""
        return {"users": key.child("users").normal(ids, self.width, scale)}

    def flatten(self, shared: Mapping[str, Array]) -> Floats:
        """Return a copy of all layers as one vector [P]."""
        flat: Floats = np.concatenate([shared[name].ravel() for name in self.shapes]).astype(np.float32, copy=False)
        return flat

    def unflatten(self, flat: Floats) -> dict[str, Array]:
        """Return the layers by name as views of one vector [P]: they change as it does."""
        views: dict[str, Array] = {}
        at = 0
        for name, shape in self.shapes.items():
            size = int(np.prod(shape))
            views[name] = flat[at : at + size].reshape(shape)
            at += size
        return views

    def score(self, shared: Mapping[str, Array], users: Floats) -> Floats:
        """Return the logits [C, n_items] of all items for users with these vectors [C, width]."""
        self._check(shared, users)
        items, head, d = shared["items"], shared["head"], self.product
        if d:
            scores = (users[:, :d] * head[:d]) @ items[:, :d].T + shared["head_bias"]
        else:
            scores = np.repeat(shared["head_bias"][:, None], len(users), 0) * np.ones(len(items), np.float32)
        if self.layers:
            layer1 = shared["layer1"]  # [2 factors, h_1]: the half of the user, then that of the item
            first_users = users[:, d:] @ layer1[: self.factors] + shared["bias1"]
            first_items = np.ascontiguousarray(items[:, d:]) @ layer1[self.factors :]
            add_tower_scores(first_users, first_items, self.flatten(shared), self.sizes, d, scores)
        return np.asarray(scores, np.float32)

    def score_pairs(self, shared: Mapping[str, Array], users: Floats, rows: Array, items: Array) -> Floats:
        """Return the logits [M] of items[m] for the user with vector users[rows[m]]."""
        self._check(shared, users)
        _within(rows, len(users), "person")
        _within(items, len(shared["items"]), "item")
        found: Floats = pair_scores(rows, items, users, shared["items"], self.flatten(shared), self.sizes, self.product)
        return found

    def _check(self, shared: Mapping[str, Array], users: Array) -> None:
        for name, shape in {"items": (-1, self.width), "users": (-1, self.width), **self.shapes}.items():
            seen = users.shape if name == "users" else shared[name].shape if name in shared else None
            if (
                seen is None
                or len(seen) != len(shape)
                or any(e not in (-1, s) for e, s in zip(shape, seen, strict=True))
            ):
                raise MethodError(
                    f"'{name}' should have shape {shape}, seen: {seen}.",
                    "The model was trained with other values of 'factors' or 'layers'.",
                )


def _within(index: Array, n: int, what: str) -> None:
    if len(index) and (index.min() < 0 or index.max() >= n):
        raise MethodError(f"There are {n} of '{what}', but index {index.min()}..{index.max()} was asked for.")


def gmf(factors: int) -> NCF:
    """Return the shape of generalised matrix factorisation: the product alone."""
    return NCF(factors, (), True)


def mlp(factors: int, layers: Iterable[int]) -> NCF:
    """Return the shape of the multi-layer perceptron: the tower alone."""
    return NCF(factors, tuple(layers), False)


def neumf(factors: int, layers: Iterable[int]) -> NCF:
    """Return the shape of neural matrix factorisation: product and tower."""
    return NCF(factors, tuple(layers), True)
