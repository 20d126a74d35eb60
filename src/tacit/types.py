"""The data types that all packages share, and `Config`, the frozen base of all options."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from tacit.errors import DataError, nearest
from tacit.refusals import refusal

Progress = Callable[[str, int, int], None]  # what is being done, how far, out of how much (0: unknown)

if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
    from scipy import sparse
else:
    ModelMetaclass = type(BaseModel)  # it has no public name

Array: TypeAlias = NDArray[Any]
Floats: TypeAlias = NDArray[np.float32]
Label: TypeAlias = str | int
T = TypeVar("T")
_NOTICED: set[str] = set()


def notice_former_name(old: str, new: str) -> None:
    """Say once on standard error that a name has changed; old names work for one version."""
    if old not in _NOTICED:
        _NOTICED.add(old)
        print(f"{old} is now {new}; the old name goes with 0.3", file=sys.stderr)


class _ConfigKind(ModelMetaclass):
    """Turns what pydantic refuses into one ConfigError, also where options are given in Python."""

    def __call__(self, *args: Any, **given: Any) -> Any:
        try:
            return super().__call__(*args, **given)
        except ValidationError as error:
            raise refusal(cast("type[BaseModel]", self), error, self.__name__) from None


class Config(BaseModel, metaclass=_ConfigKind):
    """Options of one part, declared beside the code that reads them: frozen, and unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")
    former_names: ClassVar[Mapping[str, str]] = {}  # dotted, old -> new: "runtime.old" -> "runtime.new"

    @model_validator(mode="before")
    @classmethod
    def _take_former_names(cls, given: Any) -> Any:
        if not cls.former_names or not isinstance(given, Mapping):
            return given
        taken = dict(given)
        for old, new in cls.former_names.items():
            option = old.rpartition(".")[2]
            if option in taken:  # an override may stand beside the default under the new name, and wins
                taken[new.rpartition(".")[2]] = taken.pop(option)
                notice_former_name(old, new)
        return taken

    @classmethod
    def from_options(cls, given: Mapping[str, Any], where: str) -> Self:
        """Validate options; the first problem becomes one ConfigError that names the option and the nearest known."""
        try:
            return cls.model_validate(dict(given))
        except ValidationError as error:
            raise refusal(cls, error, where) from None


@dataclass(frozen=True)
class Vocabulary:
    """Outside labels by index; labels are unique integers or unique strings."""

    labels: Array  # [n] int64 or str objects

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Label:
        label = self.labels[index]
        return int(label) if isinstance(label, np.integer) else str(label)

    @cached_property
    def _index(self) -> dict[Label, int]:
        return {label: i for i, label in enumerate(self.labels.tolist())}

    def place(self, label: Label) -> int | None:
        """Return the index of a label as it is written, or none; a list is no label."""
        return self._index.get(label) if isinstance(label, Hashable) else None

    def find(self, label: Label) -> int | None:
        """Return the index of a label, or none; '42' finds 42."""
        found = self.place(label)
        if found is None and isinstance(label, str) and re.fullmatch(r"-?[0-9]{1,19}", label):
            found = self._index.get(int(label))
        if found is None and isinstance(label, int):
            found = self._index.get(str(label))
        return found

    def index(self, label: Label, what: str = "id") -> int:
        """Return the index of a label; '42' finds 42. Unknown labels are a DataError with the nearest known one."""
        found = self.find(label)
        if found is None:
            some = [str(x) for x in self.labels[:1000].tolist()]
            hint = nearest(str(label), some) if len(some) < 30 else f"Ids look like {', '.join(some[:3])}."
            raise DataError(f"There is no {what} '{label}' among the {len(self)} in the data.", hint)
        return found

    def take(self, rows: Array) -> Vocabulary:
        """Return the labels of some rows, in that order."""
        return Vocabulary(self.labels[rows])


@dataclass(frozen=True)
class Interactions:
    """The log: one row per thing a user did. Indices point into the two vocabularies."""

    users: NDArray[np.int32]  # [N]
    items: NDArray[np.int32]  # [N]
    values: Floats | None  # [N] ratings or counts
    times: NDArray[np.int64] | None  # [N] unix seconds
    user_ids: Vocabulary
    item_ids: Vocabulary

    def __len__(self) -> int:
        return len(self.users)

    def take(self, rows: Array) -> Interactions:
        """Return some rows (mask or indices); vocabularies stay whole."""
        return Interactions(
            self.users[rows],
            self.items[rows],
            None if self.values is None else self.values[rows],
            None if self.times is None else self.times[rows],
            self.user_ids,
            self.item_ids,
        )


@dataclass(frozen=True)
class Labels:
    """Ragged labels of items: item i carries `names[ids[ptr[i]:ptr[i + 1]]]` (categories, features)."""

    ptr: NDArray[np.int64]  # [n_items + 1]
    ids: NDArray[np.int32]
    names: Sequence[str]

    def of(self, item: int) -> list[str]:
        """Return the names an item carries."""
        return [self.names[j] for j in self.ids[self.ptr[item] : self.ptr[item + 1]]]

    def take(self, items: Array) -> Labels:
        """Return the labels of some items, in that order; names stay whole."""
        counts = self.ptr[1:][items] - self.ptr[:-1][items]
        return Labels(offsets(counts), self.ids[ragged_rows(self.ptr, items)], self.names)

    def matrix(self) -> sparse.csr_matrix:
        """Return [n_items, n_names] of ones."""
        from scipy import sparse

        shape = (len(self.ptr) - 1, len(self.names))
        return sparse.csr_matrix((np.ones(len(self.ids), np.float32), self.ids, self.ptr), shape=shape)


@dataclass(frozen=True)
class Triples:
    """A knowledge graph: (head, relation, tail) as indices into `entities` and `relations`."""

    heads: NDArray[np.int32]
    relations: NDArray[np.int32]
    tails: NDArray[np.int32]
    entities: Vocabulary
    relation_names: Sequence[str]
    item_entity: NDArray[np.int32]  # [n_items] the item's entity, -1 where it has none

    def __len__(self) -> int:
        return len(self.heads)


@dataclass(frozen=True)
class Catalog:
    """Public knowledge about the items; it holds nothing about users."""

    item_ids: Vocabulary
    titles: Sequence[str] | None = None
    categories: Labels | None = None
    coordinates: NDArray[np.float64] | None = None  # [n_items, 2] latitude, longitude in degrees; NaN where unknown
    graph: Triples | None = None
    retired: NDArray[np.int32] | None = None  # items that are not recommended any more, ascending; their places stay
    vectors: Floats | None = None  # [n_items, width] what an encoder says of each item, at length 1
    popularity: NDArray[np.float64] | None = None  # [n_items] >= 0, as the operator gives it; nothing is learnt from it

    @property
    def n_items(self) -> int:
        """How many items there are."""
        return len(self.item_ids)

    def title(self, item: int) -> str:
        """Return the best name of an item."""
        return self.titles[item] if self.titles is not None else str(self.item_ids[item])

    def find(self, name: Label) -> int | None:
        """Return an item by its id, or else by its title if exactly one item has it, in upper or lower case."""
        found = self.item_ids.find(name)
        return self._titled.get(str(name).casefold()) if found is None else found

    @cached_property
    def _titled(self) -> dict[str, int | None]:
        """Items by title; none where several have it."""
        found: dict[str, int | None] = {}
        for item, title in enumerate(self.titles or ()):
            found[title.casefold()] = None if title.casefold() in found else item
        return found

    def called(self, label: Label) -> str:
        """Return the best name of an item by its id; one that is not here is called by its id."""
        item = self.item_ids.place(label)
        return str(label) if item is None else self.title(item)

    def take(self, items: Array) -> Catalog:
        """Return a catalogue of some items, in that order."""
        graph = self.graph
        if graph is not None:
            graph = Triples(
                graph.heads,
                graph.relations,
                graph.tails,
                graph.entities,
                graph.relation_names,
                graph.item_entity[items],
            )
        return Catalog(
            self.item_ids.take(items),
            None if self.titles is None else [self.titles[i] for i in items],
            None if self.categories is None else self.categories.take(items),
            None if self.coordinates is None else self.coordinates[items],
            graph,
            None if self.retired is None else np.flatnonzero(np.isin(items, self.retired)).astype(np.int32),
            None if self.vectors is None else self.vectors[items],
            None if self.popularity is None else self.popularity[items],
        )


@dataclass(frozen=True)
class Clients:
    """A cohort: each client's own history. A device holds one of length 1.

    Items are sorted within a client. `in_order` returns the order of a client's rows: by `places` where these are
    given, otherwise by `times`. At equal times the smaller item counts as later. `avoid` holds items outside the
    history that training must not draw as negatives. Only the `legacy` switch of a split fills it, to reproduce the
    leak of published code.
    """

    ids: NDArray[np.int64]  # [C] who: index into the vocabulary of users; -1 for a user outside it
    ptr: NDArray[np.int64]  # [C + 1]
    items: NDArray[np.int32]  # [N]
    n_items: int
    values: Floats | None = None  # [N]
    times: NDArray[np.int64] | None = None  # [N] unix seconds
    avoid: Clients | None = None
    places: NDArray[np.int32] | None = None  # [N] place of a row in its client's order, the oldest first; all differ
    _kept: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if len(self.ptr) != len(self.ids) + 1 or self.ptr[0] != 0 or self.ptr[-1] != len(self.items):
            raise DataError(
                f"Histories of {len(self.ids)} clients need {len(self.ids) + 1} offsets from 0 to {len(self.items)}.",
                "Make them with offsets() from the lengths of the histories.",
            )
        if len(self.ids) > 1 and (self.ptr[1:] < self.ptr[:-1]).any():
            raise DataError(
                "The offsets of histories go down: a history cannot have less than no items.",
                "Make them with offsets() from the lengths of the histories.",
            )
        for name in ("values", "times", "places"):
            rows = getattr(self, name)
            if rows is not None and len(rows) != len(self.items):
                raise DataError(
                    f"There are {len(rows)} {name} for {len(self.items)} items.",
                    f"Give one of the {name} for each item.",
                )
        if len(self.items) and self.items.dtype.kind not in "iu":
            raise DataError(
                f"Items of histories are positions in the catalogue, not {self.items.dtype}.", "Give whole numbers."
            )
        if len(self.items) and not (self.items.min() >= -1 and self.items.max() < self.n_items):
            raise DataError(
                f"A history holds the item {self.items.max()}, and the catalogue has {self.n_items} items, from 0 on."
                if self.items.max() >= self.n_items
                else f"A history holds the item {self.items.min()}.",
                "Number items by the catalogue; -1 stands for one outside it.",
            )

    def __len__(self) -> int:
        return len(self.ids)

    def derive_once(self, name: str, make: Callable[[Clients], T]) -> T:
        """Return what `make` derives from this cohort, made once and kept with it."""
        if name not in self._kept:
            self._kept[name] = make(self)
        kept: T = self._kept[name]
        return kept

    @property
    def sizes(self) -> NDArray[np.int64]:
        """History length of each client, [C]."""
        return np.diff(self.ptr)

    @property
    def rows(self) -> NDArray[np.int32]:
        """The position of the client in the cohort for each interaction, [N]."""
        return np.repeat(np.arange(len(self), dtype=np.int32), self.sizes)

    def of(self, client: int) -> NDArray[np.int32]:
        """Return the history of one client (position in the cohort)."""
        return self.items[self.ptr[client] : self.ptr[client + 1]]

    def take(self, positions: Sequence[int] | Array) -> Clients:
        """Return the cohort of some clients, in that order."""
        chosen = np.asarray(positions, np.int64)
        at = ragged_rows(self.ptr, chosen)
        return Clients(
            self.ids[chosen],
            offsets(self.ptr[1:][chosen] - self.ptr[:-1][chosen]),
            self.items[at],
            self.n_items,
            None if self.values is None else self.values[at],
            None if self.times is None else self.times[at],
            None if self.avoid is None else self.avoid.take(chosen),
            None if self.places is None else self.places[at],
        )

    def keep(self, kept: NDArray[np.bool_]) -> Clients:
        """Return the cohort with the kept rows [N] only; what is to be avoided stays as it is."""
        return Clients(
            self.ids,
            offsets(np.bincount(self.rows[kept], minlength=len(self))),
            self.items[kept],
            self.n_items,
            None if self.values is None else self.values[kept],
            None if self.times is None else self.times[kept],
            self.avoid,
            None if self.places is None else self.places[kept],
        )

    @property
    def has_order(self) -> bool:
        """Whether the order of each history is known; a history of at most one row always has one."""
        return self.places is not None or self.times is not None or bool((self.sizes <= 1).all())

    @property
    def in_order(self) -> NDArray[np.int64]:
        """The rows client after client, the oldest first, [N]; clients without an order are a DataError."""
        return self.derive_once("in_order", _oldest_first)

    def matrix(self, weighted: bool = False) -> sparse.csr_matrix:
        """Return [C, n_items] in CSR form: ones, or the values where `weighted`; repeated rows count once."""
        from scipy import sparse

        data = self.values if weighted and self.values is not None else np.ones(len(self.items), np.float32)
        matrix = sparse.csr_matrix((data, self.items, self.ptr), shape=(len(self), self.n_items), copy=True)
        if not weighted:
            matrix.sum_duplicates()
            matrix.data[:] = 1.0
        return matrix


def refuse_unknown_items(clients: Clients, catalog: Catalog) -> None:
    """Refuse histories that no table has rows for, before a kernel reads them."""
    if clients.n_items != catalog.n_items:
        raise DataError(
            f"The histories are of {clients.n_items} items, and the catalogue has {catalog.n_items}.",
            "Use the catalogue that the histories were made with.",
        )
    if len(clients.items) and clients.items.min() < 0:
        raise DataError(
            "A history holds an item outside the catalogue.", "Leave such items out of what is learnt from."
        )


def _oldest_first(clients: Clients) -> NDArray[np.int64]:
    if not clients.has_order:
        raise DataError(
            "It is not known in which order these histories came: they have no times.",
            "Name the column of times with data.columns, or set split.ties=file-order if rows are in order of time.",
        )
    if clients.places is not None:
        return np.lexsort((clients.places, clients.rows))
    if clients.times is None:
        return np.arange(len(clients.items))
    return np.lexsort((-clients.items, clients.times, clients.rows))


@dataclass(frozen=True)
class Model:
    """What was learnt. `private` has the client axis first and never leaves a device."""

    shared: Mapping[str, Array]
    private: Mapping[str, Array]

    def take(self, positions: Array | slice) -> Model:
        """Return the model of some clients."""
        return Model(self.shared, {name: array[positions] for name, array in self.private.items()})

    def copy(self) -> Model:
        """Return a copy that later training does not touch."""
        return Model({k: v.copy() for k, v in self.shared.items()}, {k: v.copy() for k, v in self.private.items()})


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason for a recommendation: what carried the score, and how much of it (0 to 1)."""

    kind: str  # "history": about is an item of the history; "users": a count; "feature": a name; "popularity": a count
    about: int | str
    weight: float
    shown_by: tuple[int, ...] = ()  # items of the history that have the feature
    is_newest: bool = False  # about is the newest item of the history, and the method reads order


def offsets(counts: Array) -> NDArray[np.int64]:
    """Turn lengths into the ptr array of a ragged structure."""
    ptr = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=ptr[1:])
    return ptr


def ragged_rows(ptr: NDArray[np.int64], chosen: Array) -> NDArray[np.int64]:
    """Return the positions of all entries of the chosen groups, group after group."""
    first = ptr[:-1][chosen]
    counts = ptr[1:][chosen] - first  # of the chosen ones only: others cost nothing
    starts = np.repeat(first - offsets(counts)[:-1], counts)
    return starts + np.arange(int(counts.sum()), dtype=np.int64)
