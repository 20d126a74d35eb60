"""fed-svd: the leading item directions of everybody's histories, found by sums alone.

Subspace iteration on X'X needs only sum over people of x_u (x_u' Q): each person multiplies her history with the
basis on her device and sends one row per item of hers; the server adds and orthonormalises. What she is, Q' x_u,
never leaves. A handful of rounds gives the subspace that a centralised SVD has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from pydantic import Field

from tacit.errors import MethodError
from tacit.kernels.outer import add_item_rows, item_rows, person_sums
from tacit.methods import reasons
from tacit.methods.base import Schedule, register
from tacit.privacy.disclosure import Disclosure
from tacit.privacy.outbound import row_bytes
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Config, Floats, Model, Reason
from tacit.updates import Release, Ring, Rows, Total, Update

LONG_HISTORY = 4096.0  # a history of this length contributes at most 1 in any direction


class FedSVDConfig(Config):
    """Options of fed-svd."""

    factors: int = Field(32, gt=0, description="k: how many directions are kept")
    epochs: int = Field(6, gt=0, description="rounds; everybody is asked in each")
    item_weight: float = Field(
        0.25, ge=0, le=1, description="an item that n people have counts n^-w: popular ones speak less loudly"
    )
    person_weight: float = Field(
        0.0,
        ge=0,
        le=0.5,
        description="a history of n items counts n^-v; at 0.5 everybody's contribution is bounded by 1",
    )


@register("fed-svd", FedSVDConfig)
class FedSVD:
    """The singular value decomposition of all histories by sums: exact, in a few rounds, nobody's vector leaves."""

    uses_features: ClassVar[bool] = False
    tables: ClassVar[tuple[str, ...]] = ("basis",)

    def __init__(self, config: FedSVDConfig) -> None:
        self.config = config

    def schedule(self, clients: Clients) -> Schedule:
        """Everybody, every round."""
        return Schedule(self.config.epochs, 1, len(clients))

    def init(self, clients: Clients, catalog: Catalog, key: Key) -> Model:
        """Draw a random basis; the weights of items are learnt from the first sum."""
        k, n_items = self.config.factors, catalog.n_items
        if k > n_items:
            raise MethodError(f"fed-svd is asked for {k} directions among {n_items} items.", "Lower method.factors.")
        start = np.linalg.qr(key.child("basis").normal(np.arange(n_items), k).astype(np.float64))[0]
        return Model(
            {
                "basis": start.astype(np.float32),
                "weights": np.ones(n_items, np.float32),
                "angles": np.zeros(0, np.float32),
            },
            {},
        )

    def people(self, shared: Mapping[str, Array], clients: Clients) -> Floats:
        """Return Q' x_u of each person, [C, k]: from the history alone, so that strangers have one too."""
        found = np.empty((len(clients), shared["basis"].shape[1]), np.float32)
        person_sums(clients.ptr, clients.items, shared["weights"], shared["basis"], found)
        return found

    def _sent(self, shared: Mapping[str, Array], clients: Clients) -> Floats:
        """Return what each person multiplies her items' weights with: Q' x_u, scaled so that it fits the ring.

        |Q' x_u| is at most the root of her history's length; a common factor is lost when the sum is orthonormalised.
        """
        power = self.config.person_weight
        scale = np.maximum(clients.sizes, 1).astype(np.float32) ** np.float32(-2.0 * power)
        return self.people(shared, clients) * (scale * np.float32(LONG_HISTORY ** (power - 0.5)))[:, None]

    def learn(
        self, shared: Mapping[str, Array], private: Mapping[str, Array], clients: Clients, ring: Ring, key: Key
    ) -> tuple[Update, Mapping[str, Array]]:
        """Make a row for every item of hers: all of them speak of something she did."""
        rows = np.empty((len(clients.items), shared["basis"].shape[1]), np.float32)
        item_rows(clients.ptr, clients.items, shared["weights"], self._sent(shared, clients), ring.scale, rows)
        every = np.ones(len(rows), bool)
        return Update(clients.ids, {"basis": Rows(clients.ptr, clients.items, rows)}, {"basis": every}), {}

    def sum_cohort(
        self,
        shared: Mapping[str, Array],
        private: Mapping[str, Array],
        clients: Clients,
        ring: Ring,
        disclosure: Disclosure | None,
        keys: tuple[Key, Key],
        total: Total,
    ) -> tuple[Release, Mapping[str, Array]]:
        """Add up a cohort's rows without writing them out."""
        every = np.ones(len(clients.items), bool)
        kept = np.ones(len(every), np.uint8)
        if disclosure is not None:
            kept = disclosure.keep(clients.ids, clients.ptr, clients.items, every, keys[1])
        people = self._sent(shared, clients)
        ring.fits(float(np.abs(people).max(initial=0.0)))
        sums, counts = total.sums["basis"], total.counts["basis"]
        add_item_rows(clients.ptr, clients.items, shared["weights"], people, ring.scale, kept, sums, counts)
        n_sent = np.bincount(clients.rows, weights=kept, minlength=len(clients)).astype(np.int64)
        return Release(n_sent, np.zeros_like(n_sent), n_sent * row_bytes(sums.shape[1], ring)), {}

    def apply(self, shared: Mapping[str, Array], total: Total, ring: Ring) -> Mapping[str, Array]:
        """Orthonormalise the sum; the first one also says how many people have each item. No rows move nothing."""
        if not total.sums["basis"].any():
            return {**shared, "angles": np.append(shared["angles"], np.float32(0.0))}
        basis, r = np.linalg.qr(ring.decode(total.sums["basis"]).astype(np.float64))
        basis *= np.where(np.diag(r) < 0, -1.0, 1.0)  # one sign, whatever the library's habit
        weights: Array = shared["weights"]
        if not len(shared["angles"]):
            people = np.maximum(total.counts["basis"], 1).astype(np.float64)
            weights = (people**-self.config.item_weight).astype(np.float32)
        angle = largest_angle(shared["basis"].astype(np.float64), basis)
        moved = {"basis": basis.astype(np.float32), "weights": weights}
        return {**shared, **moved, "angles": np.append(shared["angles"], np.float32(angle))}

    def score(self, shared: Mapping[str, Array], private: Mapping[str, Array], clients: Clients) -> Floats:
        """Return (x W) Q Q' W^-1: her weighted history, seen through the kept directions, unweighted again."""
        through = shared["basis"] / shared["weights"][:, None]
        return np.asarray(self.people(shared, clients) @ through.T, np.float32)

    def explain(
        self, shared: Mapping[str, Array], private: Mapping[str, Array], client: Clients, item: int
    ) -> list[Reason]:
        """Return the part of each of her items in the score."""
        parts = shared["weights"][client.items] * (shared["basis"][client.items] @ shared["basis"][item])
        return reasons.from_history(client.items, parts)


def largest_angle(before: Array, after: Array) -> float:
    """Return the largest principal angle between two subspaces in radians: 0 once the iteration stands still."""
    cosines = np.linalg.svd(before.T @ after, compute_uv=False)
    return float(np.arccos(np.clip(cosines.min(), 0.0, 1.0)))
