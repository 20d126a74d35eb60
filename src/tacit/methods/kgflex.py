"""KGFlex: a sparse factorisation of features from a knowledge graph (Ferrara's thesis, chapter 6; RecSys 2021).

A client is described by the features that separate its items from others, weighed by information gain; an
item by what is known of it. The server keeps a vector and a bias of every feature, a device its own view of the
features that matter to it: r_ui = sum over shared features of k_uf (p_f^u . g_f + b_f), learnt by BPR.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from tacit.errors import MethodError
from tacit.kernels.kgflex import (
    add_feature_rows,
    affinities,
    choose_features,
    gradient_factors,
    move_own,
    rows_that_mention,
    score_items,
    write_rows,
)
from tacit.kernels.membership import OwnedItems, owned_items
from tacit.methods.base import Centralised, Federated, FederatedSpec, Schedule, register
from tacit.methods.parts import reasons
from tacit.methods.parts.features import FeatureKind, Features, features_of
from tacit.methods.parts.growth import match_rows
from tacit.privacy.update_sink import UpdateSink
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Config, Floats, Model, Reason, offsets
from tacit.updates import PlannedRows, Ring, Total, UpdatePlan

DRAWN_AT_ONCE = 2**22  # first values: more would only take memory


class KGFlexConfig(Config):
    """Options of kgflex."""

    factors: int = Field(10, gt=0, description="m: length of a feature's vectors")
    learning_rate: float = Field(
        0.1, gt=0, description="alpha: learning rate of devices and server; updates are summed"
    )
    epochs: int = Field(
        30, gt=0, description="passes; a pass has 1 / share rounds and asks as many clients as there are"
    )
    share: float = Field(0.1, gt=0, le=1, description="q: share of the clients asked in a round; 1 is centralised")
    features: FeatureKind = Field(
        "any", description="features of an item: its graph, its categories; any: the graph if there is one"
    )
    features_per_hop: tuple[int, ...] = Field(
        (100, 100), min_length=1, description="most informative features that a client keeps of 1 hop, of 2 hops, ..."
    )
    gain_draws: Literal["list", "set"] = Field(
        "list", description="negatives for the information gain: every draw counts, or each distinct item counts once"
    )
    gain_ratio: int = Field(1, gt=0, description="negatives drawn for each item of the history")
    init_scale: float = Field(0.1, gt=0, description="standard deviation of the initial p, g and b")


@register("kgflex", KGFlexConfig)
class KGFlex(Federated):
    """Knowledge-aware federated learning: features weighed by what they tell about a client; it says why.

    Every row is about a feature of an item of the history, so all rows pass the disclosure.
    """

    uses_features = True
    spec = FederatedSpec(
        other_tables=("features",),
        downloads=("features",),
        constants=("item_ptr", "item_features", "feature_ptr", "feature_items", "hops", "kept", "names"),
        private={"features": "int32", "weights": "float32", "p": "float32"},
        needs=("features",),
        schedule_options=("epochs", "share"),
    )

    def __init__(self, config: KGFlexConfig) -> None:
        self.config = config

    def schedule(self, clients: Clients) -> Schedule:
        """Each round asks a share of the clients, drawn anew."""
        asked = min(len(clients), int(np.ceil(self.config.share * len(clients))))
        return Schedule(self.config.epochs, max(1, round(len(clients) / asked)), asked)

    def rows_per_client(self, shared: Mapping[str, Array]) -> int:
        """One for each feature of the client."""
        return max(1, int(shared["kept"].sum()))

    def init(self, clients: Clients, catalog: Catalog, key: Key) -> Model:
        """Weigh every client's features, and draw g, b and p."""
        c = self.config
        known = features_of(catalog, c.features, "kgflex")
        kept = np.array([min(most, int((known.hops == h + 1).sum())) for h, most in enumerate(c.features_per_hop)])
        if kept.min() < 0:
            raise MethodError("method.features_per_hop has a number below 0.", "Give numbers of features, 0 or more.")
        carriers = known.carriers()
        shared: dict[str, Array] = {
            "features": key.child("features").normal(np.arange(len(known)), c.factors + 1, c.init_scale),
            "item_ptr": known.ptr,
            "item_features": known.ids,
            "feature_ptr": carriers[0],
            "feature_items": carriers[1],
            "hops": known.hops,
            "kept": kept,
            "names": np.array(known.names),
        }
        features, weights = self.weigh(known, kept, clients, key.child("gain"))
        return Model(shared, {"features": features, "weights": weights, "p": self._views(clients, kept, key)})

    def weigh(self, known: Features, kept: Array, clients: Clients, key: Key) -> tuple[NDArray[np.int32], Floats]:
        """Return each client's most telling features [C, S], -1 behind the last, and their information gain."""
        features = np.empty((len(clients), max(1, int(kept.sum()))), np.int32)
        weights = np.empty(features.shape, np.float32)
        history = clients.ids, clients.ptr, clients.items, clients.derive_once("taken", _owned_items), clients.n_items
        choices = kept, self.config.gain_ratio, self.config.gain_draws == "set"
        choose_features(key.word, *history, known.ptr, known.ids, known.hops, *choices, features, weights)
        return features, weights

    def _views(self, clients: Clients, kept: Array, key: Key) -> Floats:
        """Draw p, a few clients at a time."""
        slots, factors = max(1, int(kept.sum())), self.config.factors
        views = np.empty((len(clients), slots, factors), np.float32)
        size = max(1, DRAWN_AT_ONCE // (slots * factors))
        for start in range(0, len(clients), size):
            ids = clients.ids[start : start + size]
            drawn = key.child("people").normal(ids, slots * factors, self.config.init_scale)
            views[start : start + size] = drawn.reshape(len(ids), slots, factors)
        return views

    def _pull(self, model: Model, clients: Clients, key: Key) -> tuple[Floats, Floats]:
        """Return the gradient factor of each feature of each client in a round, and p after the step."""
        shared, private = model.shared, model.private
        features, weights, p = private["features"], private["weights"], private["p"]
        affinity, pull = np.empty(features.shape, np.float32), np.empty(features.shape, np.float32)
        affinities(features, weights, p, shared["features"], affinity)
        history = clients.ids, clients.ptr, clients.items, clients.derive_once("taken", _owned_items), clients.n_items
        known = shared["item_ptr"], shared["item_features"]
        gradient_factors(key.word, *history, *known, features, weights, affinity, pull)
        moved = np.empty_like(p)
        move_own(features, p, shared["features"], pull, np.float32(self.config.learning_rate), moved)
        return pull, moved

    def plan(self, model: Model, clients: Clients, key: Key) -> UpdatePlan:
        """A row for every feature of the client."""
        features = model.private["features"]
        is_own = features >= 0

        def mentions(is_meant: NDArray[np.bool_]) -> NDArray[np.bool_]:
            return _mention(model.shared, features, clients, is_meant)

        rows = PlannedRows("features", offsets(is_own.sum(axis=1)), features[is_own], True, mentions)
        return UpdatePlan(clients.ids, (rows,))

    def learn(
        self, model: Model, clients: Clients, plan: UpdatePlan, sink: UpdateSink, key: Key
    ) -> Mapping[str, Array]:
        """Take one step on as many pairs as the client has items."""
        pull, moved = self._pull(model, clients, key)
        features, p, rate = model.private["features"], model.private["p"], np.float32(self.config.learning_rate)
        rows, scale, total = plan.parts[0], sink.ring.scale, sink.direct()
        if total is None:
            values = np.empty((rows.n_rows, p.shape[2] + 1), np.float32)
            write_rows(features, p, pull, rate, scale, values)
            sink.put(0, values)
        else:
            kept = np.ones(rows.n_rows, np.uint8) if rows.kept is None else rows.kept
            sums, counts = total.sums["features"], total.counts["features"]
            sink.check(float(add_feature_rows(features, p, pull, rate, scale, kept, sums, counts)) / float(scale))
        return {**model.private, "p": moved}

    def apply(self, shared: Mapping[str, Array], total: Total, ring: Ring) -> Mapping[str, Array]:
        """Add the sum, with no averaging: devices have multiplied by alpha."""
        return {**shared, "features": shared["features"] + ring.decode(total.sums["features"])}

    def grow(
        self, shared: Mapping[str, Array], before: Mapping[str, Array], after: Mapping[str, Array]
    ) -> dict[str, Array]:
        """Find each feature again by its name; a new one begins as in the first model, one that is gone is dropped."""
        place = match_rows(before["names"], after["names"])
        grown = {name: after[name] for name in shared}
        if "features" in shared:
            grown["features"] = after["features"].copy()
            grown["features"][place[place >= 0]] = shared["features"][place >= 0]
        return grown

    def grow_private(
        self, private: Mapping[str, Array], before: Mapping[str, Array], after: Mapping[str, Array]
    ) -> dict[str, Array]:
        """Let a client's features point at their new places; the number of its slots stays."""
        place, features = match_rows(before["names"], after["names"]), private["features"]
        moved = np.where(features >= 0, place[np.maximum(features, 0)], -1).astype(np.int32)
        order = np.argsort(np.where(moved >= 0, moved, np.iinfo(np.int32).max), axis=1, kind="stable")  # ascending
        return {
            "features": np.take_along_axis(moved, order, 1),
            "weights": np.take_along_axis(private["weights"], order, 1),
            "p": np.take_along_axis(private["p"], order[:, :, None], 1),
        }

    def score(self, shared: Mapping[str, Array], private: Mapping[str, Array], clients: Clients) -> Floats:
        """Return the sum over shared features of k (p . g + b); nothing shared is 0."""
        features, affinity = private["features"], self._affinities(shared, private)
        scores = np.empty((len(features), clients.n_items), np.float32)
        score_items(features, affinity, shared["feature_ptr"], shared["feature_items"], scores)
        return scores

    def _affinities(self, shared: Mapping[str, Array], private: Mapping[str, Array]) -> Floats:
        affinity = np.empty(private["features"].shape, np.float32)
        affinities(private["features"], private["weights"], private["p"], shared["features"], affinity)
        return affinity

    def explain(
        self, shared: Mapping[str, Array], private: Mapping[str, Array], client: Clients, item: int
    ) -> list[Reason]:
        """Return the features that the client and the item share, by their part of the score."""
        own, affinity = private["features"][0], self._affinities(shared, private)[0]
        carried = shared["item_features"][shared["item_ptr"][item] : shared["item_ptr"][item + 1]]
        common = np.flatnonzero(np.isin(own, carried))
        found = reasons.strongest(affinity[common])
        made = []
        for at, weight in found:
            feature = own[common[at]]
            carriers = shared["feature_items"][shared["feature_ptr"][feature] : shared["feature_ptr"][feature + 1]]
            carriers_of_own = tuple(np.intersect1d(carriers, client.items).tolist())
            made.append(Reason("feature", str(shared["names"][feature]), weight, carriers_of_own))
        return made

    def remarks(self, shared: Mapping[str, Array], private: Mapping[str, Array]) -> list[str]:
        """Return how many items have no feature, and how many clients no informative one: their scores tie at 0."""
        sizes = np.diff(shared["item_ptr"])
        bare = int((sizes == 0).sum()), len(sizes), "items carry no feature: they score 0 and tie with each other"
        carried = [each.tobytes() for each in np.split(shared["item_features"], shared["item_ptr"][1:-1])]
        times = Counter(carried)
        alike = sum(1 for each in carried if each and times[each] > 1)
        made = "items carry the very features of another, and tie with it: a graph tells more (data.graph, data.hops)"
        same = alike if 2 * alike > len(sizes) else 0, len(sizes), made
        own = private["features"] >= 0
        lost = int((~own.any(axis=1)).sum()), len(own), "users have no feature that tells: all items tie for them"
        return [f"{some:,} of {every:,} {what}" for some, every, what in (bare, same, lost) if some]


@register("kgflex-central", KGFlexConfig)
class KGFlexCentral(Centralised):
    """KGFlex with all histories in one place: the same steps, on random batches of `share` of the clients."""

    uses_features = True

    def __init__(self, config: KGFlexConfig) -> None:
        self.config = config
        self._steps = KGFlex(config)

    def fit(self, clients: Clients, catalog: Catalog, key: Key) -> Iterator[Model]:
        """Yield the model after each pass; in a pass every client is in one batch."""
        steps, ring = self._steps, Ring()
        model = steps.init(clients, catalog, key.child("init"))
        shared, private = dict(model.shared), dict(model.private)
        schedule = steps.schedule(clients)
        for number in range(schedule.rounds):
            at = number % schedule.rounds_per_pass
            if at == 0:
                order = key.child("order", number).generator().permutation(len(clients))
            batch = np.sort(order[at :: schedule.rounds_per_pass])
            own = Model(shared, {name: array[batch] for name, array in private.items()})
            some, learning = clients.take(batch), key.child("learn", number)
            total, plan = Total.zero(steps.shapes(shared)), steps.plan(own, some, learning)
            sink = UpdateSink(plan, (), ring, steps.shapes(shared), total)
            private["p"][batch] = steps.learn(own, some, plan, sink, learning)["p"]
            sink.finish()
            shared = dict(steps.apply(shared, total, ring))
            if at == schedule.rounds_per_pass - 1:
                yield Model(shared, private)

    def score(self, shared: Mapping[str, Array], private: Mapping[str, Array], clients: Clients) -> Floats:
        """Return the sum over shared features of k (p . g + b)."""
        return self._steps.score(shared, private, clients)

    def explain(
        self, shared: Mapping[str, Array], private: Mapping[str, Array], client: Clients, item: int
    ) -> list[Reason]:
        """Return the features that the client and the item share, by their part of the score."""
        return self._steps.explain(shared, private, client, item)

    def remarks(self, shared: Mapping[str, Array], private: Mapping[str, Array]) -> list[str]:
        """Return how many items have no feature, and how many clients no informative one: their scores tie at 0."""
        return self._steps.remarks(shared, private)


def _owned_items(clients: Clients) -> OwnedItems:
    return owned_items(clients)


def _mention(
    shared: Mapping[str, Array], features: Array, clients: Clients, is_meant: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Return which rows [R] are about a feature of one of the given items of the client."""
    out = np.empty(int((features >= 0).sum()), np.bool_)
    known = shared["item_ptr"], shared["item_features"]
    rows_that_mention(clients.ptr, clients.items, *known, features, is_meant, out)
    return out
