"""dp-svd: item directions from a few noisy sums, made for differential privacy.

Every client adds vectors of length 1 to four to seven sums, whatever its history, so that little noise suffices:

    counts       x / |x|: how popular items are. Items that stand out of the noise are kept, the others come last.
    directions   x~ = W x / |W x| over the kept items, p = L Q' x~ scaled to length 1 (most of the signal comes from
                 that; L makes strong directions lean less); the client adds a x~ and b (x~ - (x~ . m) m) p', together
                 of length 1, where m is popularity.

The server puts all sums side by side, each in units of its own noise, and takes the posterior mean of their rows given
popularity and public features of items. So rare items are shrunk towards what is known of them. Widths and shares of
the budget follow from noisy sums, the number of clients and the catalogue. A client's own list is made on its device,
from its whole history. Without a guarantee sums are exact, and the same steps learn without noise. After Nicolas et al.
(2024, 2025), who run a private power method under secure aggregation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from tacit.errors import MethodError
from tacit.kernels.outer import client_sums
from tacit.methods.base import Federated, FederatedSpec, Schedule, register
from tacit.methods.parts import reasons
from tacit.methods.parts.denoising import (
    Reals,
    decompose,
    find_directions,
    find_posterior,
    public_features,
)
from tacit.methods.parts.noisy_counts import NoisyCounts
from tacit.methods.parts.sum_plan import COUNTS, DONE, FIRST_SHARE, HEAD, MOST_SUMS, SumPlan
from tacit.methods.parts.sums import disclose_histories, distinct, plan_items, shared_floats, to_float64
from tacit.privacy.update_sink import UpdateSink
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Config, Floats, Model, Reason
from tacit.updates import PlannedRows, Ring, Total, UpdatePlan

POPULARITY_PART = 0.3  # a
RIDGE = 0.005
LEAN, LEAN_FLOOR = 0.25, 0.1  # p is divided by the strength of directions to this power, from this share of the largest
PRIOR_SIZE = 0.2  # rows of items counted n times are about n^g large
LONG_HISTORY = 64  # items: whoever has more is shown a little more of what is popular
EXACT = 1e9  # people x mu where there is no noise


class DPSVDConfig(Config):
    """Options of dp-svd: it has no others, because choosing them by data would cost privacy."""

    factors: int = Field(64, gt=0, description="most directions that are kept; noise decides how many")
    epochs: int = Field(MOST_SUMS, gt=0, description="most sums; every client is asked in each, until the plan is done")
    item_weight: float = Field(
        0.2, ge=0, le=1, description="weight of an item counted n times is n^-w: popular items count less"
    )


@register("dp-svd", DPSVDConfig)
class DPSVD(Federated):
    """Item directions from a few noisy sums of vectors of length 1: made for differential privacy, nothing to tune."""

    spec = FederatedSpec(
        item_tables=("popularity", "directions"),
        downloads=("basis", "weights", "popular", "lean", "filter", "ranking", "plan"),
        server_state=("counts", "found", "popular_sums", "precision", "features"),
        bound=1.0,
        item_rows="mixed",
        growth={"basis": "zeros", "weights": "zeros", "features": "public"},  # what was not counted is not kept
    )

    def __init__(self, config: DPSVDConfig) -> None:
        self.config = config

    def schedule(self, clients: Clients) -> Schedule:
        """All clients in every sum; steps that the plan leaves out ask none."""
        return Schedule(self.config.epochs, 1, len(clients))

    def budget_share(self, shared: Mapping[str, Array]) -> float:
        """Return the share of the next sum."""
        return SumPlan.read(shared["plan"]).share

    def init(self, clients: Clients, catalog: Catalog, key: Key) -> Model:
        """Draw the first directions, at random; everything else is learnt."""
        n_items = catalog.n_items
        if n_items < 2:
            raise MethodError("dp-svd finds directions among items, and there is only one.", "Use more items.")
        width = min(self.config.factors, n_items)
        drawn = key.child("basis").normal(np.arange(n_items), width)
        nothing = np.zeros(n_items)
        arrays: dict[str, Array] = {
            "basis": drawn,
            "weights": np.ones(n_items),
            "popular": nothing,
            "lean": np.ones(width),
            "filter": np.zeros(width),
            "ranking": nothing,  # counts in proportion: they do not grow with the number of clients
            "counts": nothing,
            "found": np.zeros((n_items, 0)),
            "popular_sums": np.zeros((2, n_items)),  # weighted sum, and the precision of it
            "precision": np.zeros(1),  # of the counts
            "features": public_features(catalog),
        }
        plan = SumPlan(COUNTS, 0, (FIRST_SHARE,)).write()
        return Model({**shared_floats(arrays), "plan": plan}, {})

    def shapes(self, shared: Mapping[str, Array]) -> dict[str, tuple[int, ...]]:
        """A number per item, and as many directions as the next sum is wide."""
        n_items, width = len(shared["weights"]), SumPlan.read(shared["plan"]).width
        return {"popularity": (n_items, 1), "directions": (n_items, max(1, width))}

    def plan(self, model: Model, clients: Clients, key: Key) -> UpdatePlan:
        """A number for every item of the client, and a row for every item there is."""
        n_clients, n_items = len(clients), clients.n_items
        plan = SumPlan.read(model.shared["plan"])
        none = PlannedRows("directions", np.zeros(n_clients + 1, np.int64), np.zeros(0, np.int32), False)
        if plan.step == DONE:
            return UpdatePlan(clients.ids, (replace(none, table="popularity"), none))
        every = PlannedRows("directions", np.arange(n_clients + 1) * n_items, None, False)
        return UpdatePlan(clients.ids, (plan_items("popularity", clients), none if plan.counts else every))

    def learn(
        self, model: Model, clients: Clients, plan: UpdatePlan, sink: UpdateSink, key: Key
    ) -> Mapping[str, Array]:
        """Put a vector of length 1, made of the disclosed items alone."""
        shared, now = model.shared, SumPlan.read(model.shared["plan"])
        known = disclose_histories(clients, plan.parts[0])
        if now.step == DONE:
            sink.put(0, np.zeros((0, 1), np.float32))
        else:
            own = distinct(clients)
            weights = np.ones(clients.n_items, np.float32) if now.counts else shared["weights"]
            part = np.ones(len(clients), np.float32)
            if not now.counts:
                part = self._put_directions(shared, known, now.width, sink)
            lengths = _lengths(known, weights)
            values = weights[own.items] * (part / lengths)[own.rows]
            sink.put(0, np.ascontiguousarray(values[:, None], np.float32))
        if now.counts or now.step == DONE:
            sink.put(1, np.zeros((0, self.shapes(shared)["directions"][1]), np.float32))
        return {}

    def _put_directions(self, shared: Mapping[str, Array], known: Clients, width: int, sink: UpdateSink) -> Floats:
        """Put the rows of directions; return what the popularity part of each client is multiplied by."""
        a, weights, popular = POPULARITY_PART, shared["weights"], shared["popular"]
        vectors = np.empty((len(known), width + 1), np.float32)
        table = np.column_stack([shared["basis"][:, :width], popular]).astype(np.float32)
        client_sums(known.ptr, known.items, weights, table, vectors)
        vectors /= _lengths(known, weights)[:, None]
        p, on_popular = vectors[:, :width] * shared["lean"][:width], vectors[:, width]
        p = p / np.maximum(np.sqrt((p * p).sum(axis=1, keepdims=True)), np.float32(1e-12))
        whole = np.sqrt(a * a + (1 - a * a) * np.maximum(1 - on_popular.astype(np.float64) ** 2, 0.0))
        rows = -on_popular[:, None] * popular[None, :]  # [C, n_items]: x~ less its part along popularity
        held = (weights[known.items] / _lengths(known, weights)[known.rows]).astype(np.float32)
        rows[known.rows, known.items] += held
        scale = (np.sqrt(1 - a * a) / whole).astype(np.float32)
        sink.put_outer(1, np.ascontiguousarray(p * scale[:, None]), rows.reshape(-1))
        return (a / whole).astype(np.float32)

    def apply(self, shared: Mapping[str, Array], total: Total, ring: Ring) -> Mapping[str, Array]:
        """Learn from the next sum what it was for."""
        plan = SumPlan.read(shared["plan"])
        if plan.step == DONE:
            return shared
        noise = total.noise
        popularity = to_float64(total.sums["popularity"], ring)[:, 0]
        if plan.counts:
            return self._apply_counts(shared, plan, popularity, noise, total.n_clients)
        directions = to_float64(total.sums["directions"], ring)
        return self._apply_directions(shared, plan, popularity, directions, total)

    def _apply_counts(
        self, shared: Mapping[str, Array], plan: SumPlan, sums: Reals, noise: float, n_clients: int
    ) -> Mapping[str, Array]:
        """Add one more count to the others by precision; decide which items are kept, and what comes next."""
        is_exact = noise == 0.0
        before, new = float(shared["precision"][0]), 1.0 if is_exact else noise**-2
        counts = (shared["counts"].astype(np.float64) * before + sums * new) / (before + new)
        counted, n_items = NoisyCounts.of(counts, before + new, is_exact), len(counts)
        strength = EXACT if is_exact else n_clients / (noise * np.sqrt(plan.share))
        if plan.step == COUNTS:
            plan = plan.choose_shares(counted.n_outstanding, n_items, strength)
        plan = plan.advance()
        arrays = {
            "counts": counts,
            "ranking": counts / max(1.0, float(counts.max())),
            "precision": np.array([before + new]),
        }
        kept = counted.kept()
        if plan.step == DONE:
            return {**shared, **shared_floats({**arrays, **counted.popular_only()}), "plan": plan.write()}
        if plan.step == HEAD:
            wide = int(np.clip(strength / 100, 16, self.config.factors))
            head = kept[: int(np.clip(strength / 20, 200, 2000))]
            arrays |= counted.weigh(kept, head, self.config.item_weight)
            plan = replace(plan, width=min(wide, len(head) - 1, shared["basis"].shape[1]))
            arrays["basis"] = _orthonormal(shared["basis"], head, arrays["popular"], plan.width)
        return {**shared, **shared_floats(arrays), "plan": plan.write()}

    def _apply_directions(
        self, shared: Mapping[str, Array], plan: SumPlan, popularity: Reals, directions: Reals, total: Total
    ) -> Mapping[str, Array]:
        """Put the sum beside those before; the directions found in all of them are the next basis."""
        is_exact, is_head = total.noise == 0.0, plan.step == HEAD
        rate = 1.0 if is_exact else 1.0 / total.noise
        counted = NoisyCounts.read(shared, is_exact)
        popular, rows = shared["popular"].astype(np.float64), np.flatnonzero(shared["weights"])
        popular /= np.linalg.norm(popular)
        directions = (directions - np.outer(popular, popular @ directions)) * rate
        before = shared["found"].astype(np.float64)
        found = directions if is_head or is_exact else np.concatenate([before, directions], axis=1)
        spectrum, most = find_directions(found[rows], is_exact=is_exact), shared["basis"].shape[1]
        n_out, width = int((spectrum.agreement > 0).sum()), min(spectrum.vectors.shape[1], most)
        has_prior, is_last = shared["features"].shape[1] > 0, plan.advance().step == DONE
        if not is_exact:
            wanted = int(1.5 * n_out) + 4 if has_prior else n_out if is_last else max(8, int(1.5 * n_out))
            width = max(1, min(width, plan.width if is_head else most, wanted))
        seen, lengths = spectrum.vectors, spectrum.values
        if not is_exact and (has_prior or is_last):
            seen, lengths = self._posterior(shared, found[rows], width, has_prior)
        basis, lean = np.zeros((len(popular), most)), np.ones(most)
        basis[rows[:, None], np.arange(width)] = seen[:, :width]
        if has_prior:
            lean[:width] = np.maximum(lengths[:width], LEAN_FLOOR * lengths[0]) ** -LEAN
        sums = shared["popular_sums"].astype(np.float64)
        if not is_head:
            new = 1.0 if is_exact else (rate * POPULARITY_PART) ** 2
            sums = sums + np.array([new * popularity / POPULARITY_PART, np.full(len(popular), new)])
        arrays: dict[str, Array] = {"basis": basis, "lean": lean / lean.max(), "popular_sums": sums}
        arrays["found"] = np.zeros((len(popular), 0)) if is_head else found
        plan = replace(plan.advance(), width=width)
        if is_head:
            kept = counted.kept()
            arrays |= counted.weigh(kept, kept, self.config.item_weight)
        else:
            arrays |= self._finish({**shared, **arrays}, lengths[:width], total)
        return {**shared, **shared_floats(arrays), "plan": plan.write()}

    def _posterior(self, shared: Mapping[str, Array], found: Reals, k: int, has_prior: bool) -> tuple[Reals, Reals]:
        """Return the directions of the posterior rows of the sums, and their lengths.

        With public features, rows of items are the larger the more they are counted; without, all are alike.
        """
        rows = np.flatnonzero(shared["weights"])
        popular = shared["popular"].astype(np.float64)[rows]
        counts = np.maximum(shared["counts"].astype(np.float64)[rows], 1.0 / np.sqrt(float(shared["precision"][0])))
        sizes = counts ** (PRIOR_SIZE if has_prior else 0.0)
        sizes /= np.sqrt(np.square(sizes).mean())
        features = shared["features"].astype(np.float64)[rows]
        clean = find_posterior(found, sizes, min(k, found.shape[1]), features)
        clean -= np.outer(popular, popular @ clean)
        left, length, _ = decompose(clean)
        return left[:, :k], length[:k]

    def _finish(self, shared: Mapping[str, Array], lengths: Reals, total: Total) -> dict[str, Reals]:
        """Return popularity from counts and sums by precision, and how much each direction is believed."""
        is_exact = total.noise == 0.0
        counted = NoisyCounts.read(shared, is_exact)
        counts, sigma = counted.counts, counted.sigma
        weights = shared["weights"].astype(np.float64)
        rows = np.flatnonzero(weights)
        seen, precision = shared["popular_sums"].astype(np.float64)
        seen = seen[rows] / np.maximum(precision[rows], 1e-30)
        pv = np.maximum(counts[rows], sigma) * weights[rows]
        ratio = float(pv @ seen) / float(pv @ pv)
        old = 0.0 if is_exact else 1.0 / np.maximum(ratio * sigma * weights[rows], 1e-30) ** 2
        merged = (ratio * counts[rows] * weights[rows] * old + seen * precision[rows]) / (old + precision[rows])
        merged = np.maximum(merged, 0.0 if is_exact else 0.5 / np.sqrt(old + precision[rows]))
        popular = np.zeros(len(counts))
        popular[rows] = merged / max(float(np.linalg.norm(merged)), 1e-30)
        trust, sizes = np.ones(len(lengths)), lengths
        if not is_exact:
            found = shared["found"].astype(np.float64)[rows]
            basis = shared["basis"].astype(np.float64)[rows][:, : len(lengths)]
            right = found.T @ basis
            right /= np.maximum(np.linalg.norm(right, axis=0), 1e-30)
            noisy = np.square(found @ right).sum(axis=0)
            sizes = np.maximum(lengths, np.sqrt(np.maximum(noisy - len(rows), 1e-9)))
            trust = np.square(lengths / sizes)
            sizes = sizes * POPULARITY_PART / np.sqrt(float(precision.max()))  # in units of clients
        ridge = RIDGE * total.n_clients * min(1.0, len(lengths) / 128)
        believed = np.zeros(shared["basis"].shape[1])
        believed[: len(lengths)] = trust / (1 + ridge / np.maximum(sizes, 1e-9))
        return {"popular": popular, "filter": believed}

    def score(self, shared: Mapping[str, Array], private: Mapping[str, Array], clients: Clients) -> Floats:
        """Return (x W m) m' / W + (x W U) f U' / W; items that are not kept come last, by their noisy counts."""
        weights, own = shared["weights"], distinct(clients)
        table = np.column_stack([shared["basis"], shared["popular"]]).astype(np.float32)
        people = np.empty((len(own), table.shape[1]), np.float32)
        client_sums(own.ptr, own.items, weights, table, people)
        people *= np.append(shared["filter"], np.float32(1.0))
        people[:, -1] *= np.maximum(own.sizes / np.float32(LONG_HISTORY), np.float32(1.0)) ** np.float32(0.25)
        kept = weights > 0
        scores = np.asarray(people @ (table / np.where(kept, weights, 1.0)[:, None]).T, np.float32)
        ranking = shared["ranking"]
        below = scores[:, kept].min(axis=1, initial=0.0) - 1.0 - float(ranking.max(initial=0.0))
        scores[:, ~kept] = below[:, None] + ranking[~kept]
        return scores

    def popularity(self, shared: Mapping[str, Array]) -> Floats:
        """Return the noisy counts in proportion, where they are above nothing."""
        return np.maximum(shared["ranking"], np.float32(1e-6))

    def explain(
        self, shared: Mapping[str, Array], private: Mapping[str, Array], client: Clients, item: int
    ) -> list[Reason]:
        """Return the part of each item of the history in the score."""
        history = distinct(client).items
        table = np.column_stack([shared["basis"] * shared["filter"], shared["popular"]])
        plain = np.column_stack([shared["basis"], shared["popular"]])
        return reasons.from_history(history, shared["weights"][history] * (table[history] @ plain[item]))


def _lengths(clients: Clients, weights: Floats) -> Floats:
    """Return |W x| of each client, 1 where it has none of the weighted items."""
    squares = np.bincount(clients.rows, np.square(weights[clients.items], dtype=np.float64), minlength=len(clients))
    return np.where(squares > 0, np.sqrt(squares), 1.0).astype(np.float32)


def _orthonormal(basis: Array, rows: NDArray[np.int64], popular: Reals, width: int) -> Reals:
    """Return directions over some rows, orthogonal to popularity and to each other; the others are zero."""
    some = basis[rows][:, :width].astype(np.float64)
    some -= np.outer(popular[rows], popular[rows] @ some)
    found = np.zeros(basis.shape)
    found[rows[:, None], np.arange(width)] = np.linalg.qr(some)[0]
    return found
