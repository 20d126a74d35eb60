"""slist: the next items predicted from the past ones by one ridge regression in closed form.

Each step t of a history has a source s_t and a target (Choi et al., 2021). The source is the items so far, weighted by
exp(-age / decay); the target is the items to come, weighted alike by their distance. With S and T stacking them over
all steps of all clients, B = (S'S + reg I)^-1 S'T. Both products are sums over pairs of items in histories, whose
weights depend on how far apart two items are and follow in closed form: see `kernels.sequences`. A score is the source
after the last step times B.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.linalg import lapack

from tacit.errors import MethodError
from tacit.kernels.sequences import add_step_pairs
from tacit.methods.base import Centralised, register
from tacit.methods.parts import reasons
from tacit.methods.parts.order import Decays, newest_item, newest_rows, recent_history, recent_matrix
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Config, Floats, Model, Reason

MOST_BYTES = 11e9  # what the two products may take: about 26,000 items
DECAY = "a past item counts exp(-age / decay); its age is how many items came after it"
TARGET_DECAY = "an item to come counts exp(-distance / target_decay), the next one 1; 0: the next one alone"


class SLISTConfig(Config):
    """Options of slist."""

    decay: float = Field(3.0, gt=0, le=100, description=DECAY)
    target_decay: float = Field(1.0, ge=0, le=100, description=TARGET_DECAY)
    reg: float = Field(100.0, gt=0, description="lambda: L2 regularisation of the item-to-item weights")
    user_weight: float = Field(0.0, ge=0, le=1, description="weight of the steps of a history of n items is n^-v")


@register("slist", SLISTConfig)
class SLIST(Centralised):
    """A linear model from past items to the next ones in closed form: what comes next, from order."""

    def __init__(self, config: SLISTConfig) -> None:
        self.config = config

    def fit(self, clients: Clients, catalog: Catalog, key: Key) -> Iterator[Model]:
        """Solve for the weights at once."""
        c, once = self.config, newest_rows(clients)
        items = np.unique(once.items).astype(np.int32)
        n, sizes = len(items), once.sizes
        if 16.0 * n * n > MOST_BYTES:
            raise MethodError(
                f"slist needs about {16 * n * n / 1e9:.0f} GB for {n:,} items that occur (limit "
                f"{MOST_BYTES / 1e9:.0f} GB).",
                "Use fed-slist, markov or session-knn, or keep fewer items (data.min_per_item).",
            )
        gram, cross = np.zeros((n, n)), np.zeros((n, n))
        in_order = np.searchsorted(items, once.items[once.in_order])
        shares = np.maximum(sizes, 1) ** -c.user_weight
        tables = Decays(c.decay, c.target_decay).tables(int(sizes.max(initial=1)))
        add_step_pairs(once.ptr, in_order, shares, *tables, gram, cross)
        yield Model({"items": items, "n_items": np.asarray(catalog.n_items), "weights": _solve(gram, cross, c.reg)}, {})

    def score(self, shared: Mapping[str, Array], private: Mapping[str, Array], clients: Clients) -> Floats:
        """Return s B for the source s after the last step; items without interactions score 0."""
        sources = recent_matrix(clients, self.config.decay)[:, shared["items"]]
        scores = np.zeros((len(clients), int(shared["n_items"])), np.float32)
        scores[:, shared["items"]] = sources @ shared["weights"]
        return scores

    def explain(
        self, shared: Mapping[str, Array], private: Mapping[str, Array], client: Clients, item: int
    ) -> list[Reason]:
        """Return items of the history by their part of the score, which is their sum: recent ones weigh more."""
        known = shared["items"]
        history, weights = recent_history(client, self.config.decay)
        is_known, target = np.isin(history, known), int(np.searchsorted(known, item))
        if target == len(known) or known[target] != item:
            return []
        history, weights = history[is_known], weights[is_known]
        return reasons.from_history(
            history,
            weights * shared["weights"][np.searchsorted(known, history), target],
            newest_item(client, self.config.decay),
        )


def _solve(gram: NDArray[np.float64], cross: NDArray[np.float64], reg: float) -> Floats:
    """Return (S'S + reg I)^-1 S'T; both are used up."""
    if not len(gram):
        return np.zeros((0, 0), np.float32)
    gram.flat[:: len(gram) + 1] += reg
    # Symmetric, so the transpose is the same matrix in the order LAPACK works on in place.
    factor, failed = lapack.dpotrf(gram.T, lower=1, overwrite_a=1)
    if failed:
        raise MethodError("slist cannot invert its matrix: the regularisation is too weak.", "Raise method.reg.")
    found, _ = lapack.dpotrs(factor, np.asfortranarray(cross), lower=1, overwrite_b=1)
    return np.ascontiguousarray(found, np.float32)
