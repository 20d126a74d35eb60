"""DPALS (Chien et al. 2021): implicit ALS whose item side is solved from noisy sums, by a server that is trusted.

The server reads all histories. In each step every client's vector p is solved from the item table, cut to length B, and

    G = sum p p'                 B^2 long for each client
    L_i = sum c_ui p p'          sqrt(b) B^2, because the squares of a client's weights c_ui add up to b
    R_i = sum c_ui p             sqrt(b) B

are released with Gaussian noise; items follow from them: (G + alpha L_i + reg B^2 I) q_i = (1 + alpha) R_i, where G and
L_i are moved to the nearest matrices without negative eigenvalues. Only the most counted items are learnt. Weights fall
with an item's count (Krichene et al. 2023). A client's own p, from its whole history, is for its own list only.

The published runs choose items by exact counts (`split="exact"`). That choice reveals something of clients and has no
noise: no epsilon follows, and none is stated. With `split="noisy"` it is made from noisy counts, which are accounted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from tacit.errors import ConfigError
from tacit.kernels.als import solve_rows
from tacit.methods.base import Centralised, register
from tacit.methods.parts.sums import distinct, keep_items
from tacit.privacy.accounting import PrivacyEvent, account, mu_for
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Config, Floats, Model

Reals = NDArray[np.float64]
COUNTS_SHARE = 0.1  # of the budget, where counts are accounted
PARTS = {"gram": 0.02, "left": 0.49, "right": 0.49}  # of the budget of a step


class DPALSConfig(Config):
    """Options of dpals. Choosing them by private data is a release too, which no account here covers."""

    epsilon: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="bound on what all releases tell of a client; none: no noise"
    )
    delta: float | None = Field(
        None, gt=0, lt=1, description="probability with which epsilon may not hold; none: one tenth of 1 / clients"
    )
    split: Literal["noisy", "exact"] = Field(
        "noisy",
        description="counts that choose items: noisy and accounted, or exact as published, which is not private",
    )
    kept: int = Field(1000, gt=0, description="number of items that are learnt; the others come last, by count")
    factors: int = Field(8, gt=0, le=128, description="F: length of a latent vector")
    epochs: int = Field(2, gt=0, description="steps; each one spends an equal share of the budget")
    bound: float = Field(0.2, gt=0, allow_inf_nan=False, description="B: largest length of a client's vector in sums")
    budget: float = Field(100.0, gt=0, allow_inf_nan=False, description="b: sum of a client's squared item weights")
    item_weight: float = Field(0.33, ge=0, le=1, description="weight of an item counted n times is n^-w, then scaled")
    alpha: float = Field(3.0, gt=0, description="weight of an item of the history is 1 + alpha, of any other item 1")
    reg: float = Field(60.0, gt=0, description="lambda: L2 regularisation of all vectors")


class _Releases:
    """What a server releases: adds the noise of each release, and keeps its event."""

    def __init__(self, epsilon: float | None, delta: float, key: Key) -> None:
        self.mu = np.inf if epsilon is None else mu_for(epsilon, delta)
        self.key, self.events = key, list[PrivacyEvent]()

    def release(self, sums: Reals, length: float, share: float, label: str) -> Reals:
        """Return sums, to which a client adds at most `length`, with noise that costs a share of the budget."""
        if np.isinf(self.mu):
            return sums
        multiplier = 1.0 / (self.mu * np.sqrt(share))
        self.events.append(PrivacyEvent("gaussian", noise_multiplier=float(multiplier), label=label))
        drawn = self.key.child(label).generator().standard_normal(sums.shape)
        return np.asarray(sums + length * multiplier * drawn)


@register("dpals", DPALSConfig)
class DPALS(Centralised):
    """Implicit ALS with noisy item sums (Chien et al. 2021): differential privacy by a trusted server."""

    def __init__(self, config: DPALSConfig) -> None:
        self.config = config

    def fit(self, clients: Clients, catalog: Catalog, key: Key) -> Iterator[Model]:
        """Yield the model after each step."""
        c, delta = self.config, self._delta(len(clients))
        releases = _Releases(c.epsilon, delta, key.child("noise"))
        own = distinct(clients)
        is_exact = c.split == "exact"
        counts = self._count(own, releases)
        kept = np.sort(np.argsort(-counts, kind="stable")[: min(c.kept, catalog.n_items)])
        is_kept = np.zeros(catalog.n_items, np.bool_)
        is_kept[kept] = True
        known = keep_items(own, is_kept[own.items])
        items = np.zeros((catalog.n_items, c.factors), np.float32)
        items[kept] = key.child("items").normal(kept, c.factors, 0.1)
        noise = 0.0 if np.isinf(releases.mu) or is_exact else 1.0 / (releases.mu * np.sqrt(COUNTS_SHARE))
        weights = self._weigh(known, counts, max(noise, 1e-2))
        share = (1.0 if is_exact else 1.0 - COUNTS_SHARE) / c.epochs
        for step in range(c.epochs):
            items[kept] = self._solve_items(known, weights, items, releases, (share, step))[kept]
            spent = np.zeros(2)
            if c.epsilon is not None and not is_exact:
                spent = np.array([account(releases.events, delta).epsilon_server, delta])
            shared: dict[str, Array] = {"items": items, "counts": counts.astype(np.float32), "is_kept": is_kept}
            yield Model({**shared, "spent": spent}, {})

    def _delta(self, n_clients: int) -> float:
        if self.config.delta is None:
            return 0.1 / max(n_clients, 1)
        if self.config.delta >= 1.0 / max(n_clients, 1):
            raise ConfigError(
                f"method.delta is {self.config.delta:g}, but there are {n_clients} clients: publishing one of them "
                "whole has that delta.",
                f"Set it below {1.0 / max(n_clients, 1):g}; 1 / (10 clients) is usual.",
            )
        return self.config.delta

    def _count(self, own: Clients, releases: _Releases) -> Reals:
        """Return exact counts of clients per item, or noisy sums of x / |x|."""
        if self.config.split == "exact":
            return np.bincount(own.items, minlength=own.n_items).astype(np.float64)
        lengths = np.sqrt(np.maximum(own.sizes, 1))
        sums = np.bincount(own.items, 1.0 / lengths[own.rows], minlength=own.n_items).astype(np.float64)
        return releases.release(sums, 1.0, COUNTS_SHARE, "counts")

    def _weigh(self, known: Clients, counts: Reals, least: float) -> Reals:
        """Return the weight of every interaction: the squares of a client's add up to the budget.

        Counts are taken as `least` at least, what noise alone makes of them.
        """
        raw = np.maximum(counts[known.items], least) ** -self.config.item_weight
        squares = np.bincount(known.rows, raw * raw, minlength=len(known))
        return np.asarray(raw * np.sqrt(self.config.budget / np.maximum(squares[known.rows], 1e-300)))

    def _solve_items(
        self, known: Clients, weights: Reals, items: Floats, releases: _Releases, now: tuple[float, int]
    ) -> Floats:
        """Release the sums of a step, and solve for every item."""
        c, (share, step) = self.config, now
        p = self._solve_clients(known, items).astype(np.float64)
        p *= np.minimum(1.0, c.bound / np.maximum(np.linalg.norm(p, axis=1, keepdims=True), 1e-12))
        by_items = _sparse(known, weights).T.tocsr()
        outer = (p[:, :, None] * p[:, None, :]).reshape(len(p), -1)
        square, long = (c.factors, c.factors), np.sqrt(c.budget)
        sums = {
            "gram": (p.T @ p, c.bound**2),
            "left": (np.asarray(by_items @ outer).reshape(-1, *square), long * c.bound**2),
            "right": (np.asarray(by_items @ p), long * c.bound),
        }
        noisy = {
            name: releases.release(exact, length, share * PARTS[name], f"step {step + 1}, {name}")
            for name, (exact, length) in sums.items()
        }
        system = _positive(noisy["gram"]) + c.alpha * _positive(noisy["left"])
        system += c.reg * c.bound**2 * np.eye(c.factors)
        solved = np.linalg.solve(system, (1.0 + c.alpha) * noisy["right"][..., None])[..., 0]
        return np.asarray(solved, np.float32)

    def _solve_clients(self, known: Clients, items: Floats) -> Floats:
        """Return the vector p of each client, from its items that are learnt."""
        wide = items.astype(np.float64)
        system = (wide.T @ wide + self.config.reg * np.eye(items.shape[1])).astype(np.float32)
        return np.asarray(solve_rows(known.ptr, known.items, items, system, np.float32(self.config.alpha)))

    def score(self, shared: Mapping[str, Array], private: Mapping[str, Array], clients: Clients) -> Floats:
        """Return P Q'; items that are not learnt come last, by count."""
        own, is_kept = distinct(clients), shared["is_kept"]
        people = self._solve_clients(keep_items(own, is_kept[own.items]), shared["items"])
        scores = np.asarray(people @ shared["items"].T, np.float32)
        counts = shared["counts"]
        below = scores[:, is_kept].min(axis=1, initial=0.0) - 1.0 - float(counts.max(initial=0.0))
        scores[:, ~is_kept] = below[:, None] + counts[~is_kept]
        return scores

    def remarks(self, shared: Mapping[str, Array], private: Mapping[str, Array]) -> list[str]:
        """Say what the guarantee is, or that there is none."""
        if self.config.epsilon is None:
            return ["No noise was added: nothing is guaranteed."]
        if self.config.split == "exact":
            return ["Items were chosen and weighed by exact counts, which no noise covers: no epsilon holds."]
        epsilon, delta = shared["spent"]
        return [
            f"Differential privacy: epsilon {epsilon:.4g} at delta {delta:.3g}, for one client with all it did, counts "
            "included. A trusted server reads all histories and adds the noise, which is simulated here. How options "
            "were chosen is not counted."
        ]


def _sparse(known: Clients, values: Reals) -> Any:
    """Return the weights as a matrix of clients x items."""
    from scipy.sparse import csr_matrix

    return csr_matrix((values, known.items, known.ptr), shape=(len(known), known.n_items))


def _positive(matrices: Reals) -> Reals:
    """Return the nearest symmetric matrices without negative eigenvalues."""
    values, vectors = np.linalg.eigh((matrices + np.swapaxes(matrices, -1, -2)) / 2)
    return np.asarray((vectors * np.maximum(values, 0.0)[..., None, :]) @ np.swapaxes(vectors, -1, -2))
