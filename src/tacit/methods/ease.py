"""EASE (Steck, 2019): every item predicted from the others by one ridge regression in closed form.

With X the users-items matrix and G = X'X, the weights are B = -P / diag(P) off the diagonal, 0 on it, where P = (G +
reg I)^-1. Items without users would only add zero rows and columns and are left out. Where there are fewer users than
items, the same B is stored in its dual form: P = (I - A A') / reg with A = X' L'^-1 and L L' = X X' + reg I. So nothing
of the size items x items is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from pydantic import Field
from scipy import linalg
from scipy.linalg import lapack

from tacit.errors import MethodError
from tacit.kernels.neighbours import count_pairs
from tacit.methods.base import Centralised, register
from tacit.methods.parts import reasons
from tacit.methods.parts.order import RECENCY, newest_item, recent_history, recent_matrix
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Config, Floats, Model, Reason

MOST_BYTES = 11e9  # what the inverse may take: about 30,000 items with as many users
_BYTES_PER_CELL = 12  # float64 to invert in, float32 to keep


class EASEConfig(Config):
    """Options of EASE."""

    reg: float = Field(300.0, gt=0, description="lambda: L2 regularisation of the item-to-item weights")
    recency: float | None = Field(None, gt=0, description=RECENCY)


@register("ease", EASEConfig)
class EASE(Centralised):
    """EASE: a linear model from items to items in closed form; strong on small catalogues."""

    def __init__(self, config: EASEConfig) -> None:
        self.config = config

    def fit(self, clients: Clients, catalog: Catalog, key: Key) -> Iterator[Model]:
        """Solve for the weights at once."""
        x = clients.matrix()
        items = np.flatnonzero(x.getnnz(axis=0)).astype(np.int32)
        x = x[:, items]
        _refuse_if_too_large(*x.shape)
        model = {"items": items, "n_items": np.asarray(catalog.n_items)}
        if x.shape[0] < x.shape[1]:
            maps, own = _dual(x, self.config.reg)
            yield Model({**model, "maps": maps, "own": own}, {})
        else:
            yield Model({**model, "weights": _primal(x, self.config.reg)}, {})

    def score(self, shared: Mapping[str, Array], private: Mapping[str, Array], clients: Clients) -> Floats:
        """Return X B; items without interactions score 0."""
        x = recent_matrix(clients, self.config.recency)[:, shared["items"]]
        if "weights" in shared:
            found = x @ shared["weights"]
        else:
            own = shared["own"]
            found = (x @ shared["maps"]) @ shared["maps"].T
            found -= x.multiply(own).toarray()
            found /= 1.0 - own
        scores = np.zeros((len(clients), int(shared["n_items"])), np.float32)
        scores[:, shared["items"]] = found
        return scores

    def explain(
        self, shared: Mapping[str, Array], private: Mapping[str, Array], client: Clients, item: int
    ) -> list[Reason]:
        """Return items of the history by their weight towards the item: the score is their sum."""
        known = shared["items"]
        history, weights = recent_history(client, self.config.recency)
        is_known = np.isin(history, known)
        history, weights = history[is_known], weights[is_known]
        at, target = np.searchsorted(known, history), int(np.searchsorted(known, item))
        if target == len(known) or known[target] != item:
            return []
        if "weights" in shared:
            parts = shared["weights"][at, target]
        else:
            parts = shared["maps"][at] @ shared["maps"][target] / (1.0 - shared["own"][target])
        return reasons.from_history(
            history, np.where(history == item, 0.0, weights * parts), newest_item(client, self.config.recency)
        )


def _primal(x: Any, reg: float) -> Floats:
    """Return B [items, items] from the inverse of G + reg I."""
    inverse = count_pairs(x.indptr, x.indices, x.shape[1])
    n = len(inverse)
    inverse.flat[:: n + 1] += reg
    # Symmetric, so the transpose is the same matrix in the order LAPACK works on in place.
    factor, failed = lapack.dpotrf(inverse.T, lower=1, overwrite_a=1)
    if not failed:
        inverse, failed = lapack.dpotri(factor, lower=1, overwrite_c=1)
    if failed:
        raise MethodError("ease cannot invert its matrix: the regularisation is too weak.", "Raise method.reg.")
    for column in range(n):
        inverse[column, column + 1 :] = inverse[column + 1 :, column]
    weights = np.empty((n, n), np.float32)
    np.divide(inverse, -np.diagonal(inverse).copy(), out=weights, casting="same_kind")
    np.fill_diagonal(weights, 0.0)
    return weights


def _dual(x: Any, reg: float) -> tuple[Floats, Floats]:
    """Return A [items, users] and the diagonal of A A', [items]."""
    gram = count_pairs(*_by_columns(x), x.shape[0])
    gram.flat[:: len(gram) + 1] += reg
    factor = linalg.cholesky(gram, lower=True, overwrite_a=True, check_finite=False)
    maps = linalg.solve_triangular(factor, x.toarray().astype(np.float64), lower=True, check_finite=False)
    own = np.einsum("ci,ci->i", maps, maps)
    return np.ascontiguousarray(maps.T, np.float32), own.astype(np.float32)


def _by_columns(x: Any) -> tuple[Array, Array]:
    columns = x.tocsc()
    return columns.indptr, columns.indices


def _refuse_if_too_large(n_users: int, n_items: int) -> None:
    size = _BYTES_PER_CELL * n_items * min(n_users, n_items)
    if size > MOST_BYTES:
        raise MethodError(
            f"ease needs about {size / 1e9:.0f} GB for {n_users:,} users and {n_items:,} items that occur "
            f"(limit {MOST_BYTES / 1e9:.0f} GB).",
            "Use item-knn, als or bpr-mf, or keep fewer items (data.min_per_item).",
        )
