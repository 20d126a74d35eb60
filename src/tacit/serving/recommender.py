"""A model that serves: recommendations with reasons, saved and loaded without the training data."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tacit.errors import DataError, MethodError, StorageError
from tacit.evaluation.ranking import TieOrder
from tacit.languages import translate
from tacit.methods.base import Federated, Method, build, options, score_clients
from tacit.numerics import one_blas_thread
from tacit.random import Key
from tacit.serving.lists import ListFilter, Recommendation, Recommendations, take_filter, take_ids, take_length
from tacit.serving.model_files import ModelArrays, read_arrays, write_arrays
from tacit.types import (
    Array,
    Catalog,
    Clients,
    Config,
    Floats,
    Label,
    Labels,
    Model,
    Reason,
    Vocabulary,
    offsets,
    refuse_unknown_items,
)

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Recommender:
    """A method, its model and the histories it must not recommend again."""

    name: str
    options: Config
    model: Model
    clients: Clients
    catalog: Catalog
    user_ids: Vocabulary
    seed: int = 0  # of the run: lists break ties as its evaluation did

    def __post_init__(self) -> None:
        refuse_unknown_items(self.clients, self.catalog)

    @cached_property
    def ties(self) -> TieOrder:
        """The order of tied items."""
        return TieOrder.draw(Key(self.seed).child("candidates").child("ties"), self.catalog.n_items)

    @cached_property
    def method(self) -> Method:
        """The method that reads the model."""
        return build(self.name, self.options)

    def score(self, positions: Array) -> Floats:
        """Score all items for some users, by position in the cohort."""
        return score_rows(self.method, self.model.take(positions), self.clients.take(positions))

    def score_pairs(self, positions: Array, items: Array) -> Floats:
        """Score single items for users by position, where the method can do that cheaply."""
        model = self.model
        scores: Floats = self.method.score_pairs(model.shared, model.private, positions, items, self.clients)
        return scores

    def recommend(self, user: Label, k: int = 10, among: ListFilter | None = None) -> Recommendations:
        """Return the k best items that are not in the history, best first, each with its reason.

        `among` says which items may be listed. A user whose history is empty gets popular items. Where fewer than k
        items are left, the list has these.
        """
        position = self.user_ids.index(user, "user")
        return self._serve(self.model.take(np.array([position])), self.clients.take([position]), k, among)

    def recommend_for(
        self,
        history: Sequence[Label],
        k: int = 10,
        among: ListFilter | None = None,
        times: Sequence[int] | None = None,
    ) -> Recommendations:
        """Return recommendations for someone the model has never seen, from a history given now, the oldest item first.

        With `times`, the history may stand in any order. They are unix seconds, or all in one finer unit; units that
        are mixed are refused. An item that occurs again counts as new. Items that the model does not know are ignored,
        with a notice. If none is left, popular items are listed.
        """
        history = take_ids(history, "A history")
        places = [self.catalog.find(label) for label in history]
        strange = list(dict.fromkeys(str(label) for label, place in zip(history, places, strict=True) if place is None))
        in_order = (self.catalog.find(label) for label in _oldest_first(history, times, self.catalog))
        known = [place for place in in_order if place is not None]
        if known and self.model.private:
            raise MethodError(
                f"'{self.name}' keeps a vector per user and cannot recommend to a user it was not trained on.",
                "Use a method that scores from the history: ease, item-knn, pure-svd, multi-vae.",
            )
        newest = {place: at for at, place in enumerate(known)}
        items = np.array(sorted(newest), np.int32)
        order = np.array([newest[item] for item in items.tolist()], np.int32)
        new_user = Clients(np.array([-1]), offsets(np.array([len(items)])), items, self.catalog.n_items, places=order)
        found = self._serve(self.model, new_user, k, among)
        more = [f"Not known, and ignored: {', '.join(strange)}."] if strange else []
        return Recommendations(found, (*more, *found.notices))

    def recommend_all(
        self, users: Sequence[Label] | None = None, k: int = 10, among: ListFilter | None = None
    ) -> pl.DataFrame:
        """Return the lists of many users, or of all, as one table: user, rank, item, title, score; without reasons."""
        import polars as pl

        positions = (
            np.arange(len(self.clients))
            if users is None
            else np.array([self.user_ids.index(user, "user") for user in take_ids(users, "users")], np.int64)
        )
        allowed, k = take_filter(among).items(self.catalog), take_length(k)
        with one_blas_thread():
            parts = [
                self.best_items(position, np.setdiff1d(allowed, self.clients.of(position)), k)
                for position in positions.tolist()
            ]
        sizes = [len(items) for items, _ in parts]
        who = np.repeat(positions, sizes)
        items, scores = (np.concatenate([part[i] for part in parts]) if parts else np.zeros(0) for i in range(2))
        ranks = [rank for size in sizes for rank in range(1, size + 1)]
        return pl.DataFrame(
            {
                "user": [self.user_ids[int(user)] for user in who],
                "rank": np.array(ranks, np.int32),
                "item": [self.catalog.item_ids[int(item)] for item in items],
                "title": [self.catalog.title(int(item)) for item in items],
                "score": scores.astype(np.float32),
            },
            schema_overrides={"title": pl.String},
        )

    def best_items(self, position: int, listed: Array, k: int) -> tuple[Array, Floats]:
        """Return the k best of some items for a user by position, and their scores.

        Users are scored one by one: in a block, single numbers could have other last bits than in a list of one user.
        """
        client = self.clients.take([position])
        scores = self._popularity if self._is_unknown(client) else self._finite(self.score(np.array([position]))[0])
        best = self.ties.best(scores, client.ids[0], listed, k)
        return best, scores[best]

    @cached_property
    def _popularity(self) -> Floats:
        """How many users have each item."""
        return np.asarray(self.clients.matrix().getnnz(axis=0), np.float32)

    def _is_unknown(self, client: Clients) -> bool:
        """Say whether nothing is known of a client while something is known of others: then popular items serve."""
        return len(client.items) == 0 and len(self.clients.items) > 0

    def _finite(self, scores: Floats) -> Floats:
        if not np.isfinite(scores).all():
            raise MethodError(
                f"'{self.name}' gave a score that is not finite.",
                "It has probably diverged: train it again with a lower learning rate.",
            )
        return scores

    def _serve(self, model: Model, client: Clients, k: int, among: ListFilter | None) -> Recommendations:
        method, is_unknown = self.method, self._is_unknown(client)
        listed, k = np.setdiff1d(take_filter(among).items(self.catalog), client.items), take_length(k)
        found = Recommendations(notices=["The history is empty: these are popular items."] if is_unknown else [])
        with one_blas_thread():
            scores = self._popularity if is_unknown else self._finite(score_rows(method, model, client)[0])
            for item in self.ties.best(scores, client.ids[0], listed, k).tolist():
                reasons = (
                    [Reason("popularity", int(scores[item]), 1.0)]
                    if is_unknown
                    else method.explain(model.shared, model.private, client, item)
                )
                label, title = self.catalog.item_ids[item], self.catalog.title(item)
                found.append(Recommendation(label, title, float(scores[item]), explain_in_words(reasons, self.catalog)))
        return found

    def save(self, folder: Path | str) -> None:
        """Write everything needed to serve into a folder."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        shared, method = self.model.shared, self.method
        served = method.spec.received(shared) if isinstance(method, Federated) else shared
        by_row: dict[str, Array] = {"items": self.clients.items}
        if self.clients.has_order:
            by_row["places"] = _places(self.clients)
        arrays = ModelArrays(served, self.model.private, self.clients.ids, self.clients.ptr, by_row)
        write_arrays(folder, arrays)
        chosen = self.options.model_dump(mode="json")
        about = {"method": self.name, "options": chosen, "seed": self.seed, "format": 1}
        (folder / "method.json").write_text(json.dumps(about, indent=2), encoding="utf-8")
        import polars as pl  # here: a device recommends without it

        pl.DataFrame({"user": label_column(self.user_ids.labels)}).write_parquet(folder / "users.parquet")
        (folder / "people.parquet").unlink(missing_ok=True)  # before 0.2; of another model
        _catalog_frame(self.catalog).write_parquet(folder / "catalog.parquet")

    @classmethod
    def load(cls, folder: Path | str) -> Recommender:
        """Read what `save` wrote."""
        folder = Path(folder)
        import polars as pl

        try:
            about = json.loads((folder / "method.json").read_text(encoding="utf-8"))
            arrays = read_arrays(folder)
            users = read_users(folder)["user"]
            catalog = _read_catalog(pl.read_parquet(folder / "catalog.parquet"))
        except (OSError, ValueError, KeyError, pl.exceptions.PolarsError) as error:
            raise StorageError(f"'{folder}' has no readable model: {error}.", "Run the experiment again.") from None
        parts: dict[str, dict[str, Array]] = {"shared": {}, "private": {}, "history": {}}
        for name, array in arrays.items():
            part, _, field = name.partition(".")
            parts[part][field] = array
        history = parts["history"]
        clients = Clients(
            history["ids"], history["ptr"], history["items"], catalog.n_items, places=history.get("places")
        )
        name = str(about["method"])
        model = Model(parts["shared"], parts["private"])
        seed = int(about.get("seed", 0))  # models of earlier versions have none
        return cls(name, options(name, about["options"]), model, clients, catalog, _vocabulary(users), seed)


def label_column(labels: Array) -> pl.Series:
    """Return labels as a column; numbers go over without an object for each."""
    import polars as pl

    return pl.Series(labels if labels.dtype.kind in "iu" else labels.tolist())


def read_users(folder: Path) -> pl.DataFrame:
    """Read the table of users of a run or model folder; before 0.2 its file was `people.parquet`."""
    import polars as pl

    file, former = folder / "users.parquet", folder / "people.parquet"
    return pl.read_parquet(former if former.exists() and not file.exists() else file)


def score_rows(method: Method, model: Model, clients: Clients) -> Floats:
    """Return the scores of clients; one alone is scored twice, so that it has the bits it has among others."""
    if len(clients) != 1:
        return score_clients(method, model, clients)
    twice = np.zeros(2, np.int64)
    return score_clients(method, model.take(twice), clients.take(twice))[:1]


def _oldest_first(history: Sequence[Label], times: Sequence[int] | None, catalog: Catalog) -> list[Label]:
    """Return a history in order of its times; at equal ones the smaller item is later, as in training."""
    if times is None:
        return list(history)
    if len(times) != len(history):
        raise DataError(f"There are {len(times)} times for {len(history)} items.", "Give one time for each item.")
    try:
        moments = [int(moment) for moment in times]
    except (TypeError, ValueError, OverflowError):
        raise DataError("A time of the history is no number.", "Give times as unix seconds.") from None
    if moments:
        from tacit.data.clock import (
            require_one_unit,
        )  # here: the package of data imports polars, which devices do not need

        require_one_unit(np.array(moments, np.float64), lambda at: f"item {at + 1} of the history")
    found = ((moment, -(catalog.find(label) or 0), label) for moment, label in zip(moments, history, strict=True))
    return [label for *_, label in sorted(found, key=itemgetter(0, 1))]


def _places(clients: Clients) -> NDArray[np.int32]:
    """Return the place of each row in its client's order: a served model needs the order, and no dates."""
    places = np.empty(len(clients.items), np.int32)
    places[clients.in_order] = np.arange(len(places)) - np.repeat(clients.ptr[:-1], clients.sizes)
    return places


def explain_in_words(reasons: list[Reason], catalog: Catalog) -> str:
    """Return the strongest reasons as one plain sentence."""
    if not reasons:
        return ""
    first = reasons[0]
    if first.is_newest:
        return translate("because of what you did last, {names}", names=_join_names([catalog.title(int(first.about))]))
    if first.kind == "history":
        names = [catalog.title(int(reason.about)) for reason in reasons if reason.kind == "history"][:3]
        return translate("because of {names}", names=_join_names(names))
    if first.kind == "feature":
        texts = [_feature(reason, catalog) for reason in reasons if reason.kind == "feature"][:3]
        return translate("you like {features}", features=_join_sentences(texts))
    if first.kind == "people":
        return translate("{n} people with a taste like yours chose it", n=int(first.about))
    return translate("chosen by {n} people", n=int(first.about))


def _feature(reason: Reason, catalog: Catalog) -> str:
    """Return a feature in words; if its object has a number for a name, with an item of the history that has it."""
    name = str(reason.about)
    nameless = name.rpartition(": ")[2].isdigit() and reason.shown_by
    if not nameless:
        return translate("“{name}”", name=name)
    return translate("“{name}” (as in “{title}”)", name=name, title=catalog.title(reason.shown_by[0]))


def _join_names(names: list[str]) -> str:
    return _join_sentences([translate("“{name}”", name=name) for name in names])


def _join_sentences(texts: list[str]) -> str:
    if len(texts) == 1:
        return texts[0]
    return translate("{first} and {last}", first=", ".join(texts[:-1]), last=texts[-1])


def _vocabulary(series: pl.Series) -> Vocabulary:
    whole = series.dtype.is_integer()
    return Vocabulary(series.to_numpy() if whole else np.array(series.to_list(), dtype=object))


def _catalog_frame(catalog: Catalog) -> pl.DataFrame:
    columns: dict[str, Any] = {"item": catalog.item_ids.labels.tolist()}
    if catalog.titles is not None:
        columns["title"] = list(catalog.titles)
    if catalog.categories is not None:
        columns["categories"] = [catalog.categories.of(i) for i in range(catalog.n_items)]
    if catalog.coordinates is not None:
        columns["lat"], columns["lon"] = catalog.coordinates[:, 0], catalog.coordinates[:, 1]
    import polars as pl

    return pl.DataFrame(
        columns, schema_overrides={"categories": pl.List(pl.String)} if "categories" in columns else None
    )


def _read_catalog(frame: pl.DataFrame) -> Catalog:
    categories = None
    if "categories" in frame.columns:
        lists = frame["categories"].to_list()
        names = sorted({name for row in lists for name in row})
        index = {name: i for i, name in enumerate(names)}
        ids = np.array([index[name] for row in lists for name in row], np.int32)
        categories = Labels(offsets(np.array([len(row) for row in lists])), ids, names)
    return Catalog(
        _vocabulary(frame["item"]),
        frame["title"].to_list() if "title" in frame.columns else None,
        categories,
        frame.select("lat", "lon").to_numpy() if "lat" in frame.columns else None,
    )
