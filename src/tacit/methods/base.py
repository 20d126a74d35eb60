"""What a method is: a new one is one new file in this folder, which `methods.registry` finds.

A centralised method has `fit` and `score`. `fit` yields the model after every pass over the data, so that whoever
drives it can draw curves, stop early and keep the best; a one-shot method yields once. The arrays of a yielded model
may change at the next step: copy what you keep.

A federated method has `init`, `learn`, `apply` and `score`: `learn` is what a device does with its own history (a
cohort of one; the simulator passes thousands), `apply` is what the server does with the sum.

A gossip method has `init`, `learn`, `mix`, `choose` and `score`: every node holds a whole model, learns on its own,
mixes in what a peer sent and chooses whom to send to. Nobody is in the middle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

from tacit.methods.registry import Entry as Entry
from tacit.methods.registry import build as build
from tacit.methods.registry import entry as entry
from tacit.methods.registry import methods as methods
from tacit.methods.registry import options as options
from tacit.methods.registry import register as register
from tacit.privacy.disclosure import Disclosure
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Floats, Model, Reason
from tacit.updates import Letters, Release, Ring, Total, Update


class Method(Protocol):
    """What every method answers, however it was learnt.

    `shared` and `private` are the two halves of its model, `private` already narrowed to `clients`.
    """

    uses_features: ClassVar[bool]  # scores from item features, so that a twin that learns alone may be good honestly

    def score(self, shared: Mapping[str, Array], private: Mapping[str, Array], clients: Clients) -> Floats:
        """Return [C, n_items]: higher is better; finite everywhere."""
        ...


@runtime_checkable
class Centralised(Method, Protocol):
    """A method that needs all histories in one place."""

    def fit(self, clients: Clients, catalog: Catalog, key: Key) -> Iterator[Model]:
        """Yield the model after each pass."""
        ...


@dataclass(frozen=True)
class Schedule:
    """How a federated method spends its rounds. A pass is what curves and early stopping count."""

    passes: int
    rounds_per_pass: int
    clients_per_round: int
    most_rounds: int | None = None  # the last pass may be cut short
    partition: bool = False  # a pass asks everybody once, in random groups; otherwise each round draws anew

    @property
    def rounds(self) -> int:
        """All rounds."""
        every = self.passes * self.rounds_per_pass
        return every if self.most_rounds is None else min(every, self.most_rounds)

    def rounds_of(self, number: int) -> range:
        """The rounds of a pass."""
        start = number * self.rounds_per_pass
        return range(start, min(start + self.rounds_per_pass, self.rounds))


@runtime_checkable
class Federated(Method, Protocol):
    """A method whose histories stay where they are: devices learn, the server adds and applies."""

    tables: ClassVar[tuple[str, ...]]  # the shared arrays that updates speak of, row by row

    def schedule(self, clients: Clients) -> Schedule:
        """Return how many rounds there are, and how many clients each one asks."""
        ...

    def init(self, clients: Clients, catalog: Catalog, key: Key) -> Model:
        """Return the first model; each client's private part follows from her id and the key alone."""
        ...

    def learn(
        self,
        shared: Mapping[str, Array],
        private: Mapping[str, Array],
        clients: Clients,
        ring: Ring,
        key: Key,
    ) -> tuple[Update, Mapping[str, Array]]:
        """Return what a cohort learnt, on the ring's grid, and its new private part; inputs stay untouched."""
        ...

    def apply(self, shared: Mapping[str, Array], total: Total, ring: Ring) -> Mapping[str, Array]:
        """Return the shared model moved by a sum of updates."""
        ...


@runtime_checkable
class Gossip(Method, Protocol):
    """A method without a server: nodes hold whole models and speak to their peers only.

    Nodes are arrays with the node axis first, all of them private; a real node is a cohort of one. `shared` holds only
    what is public beforehand. What a node has of its person's history (`own`) is made from the training part alone, and
    never leaves it.
    """

    config: Any  # has at least: epochs (rounds), view, renew_every, learns ('round' or 'receipt')

    def memory(self, n_nodes: int, n_items: int) -> int:
        """Return the bytes that so many nodes need."""
        ...

    def init(self, clients: Clients, catalog: Catalog, key: Key) -> Model:
        """Return the first model of every node, its chance included; it follows from its person's id and the key."""
        ...

    def own(self, shared: Mapping[str, Array], nodes: Mapping[str, Array], clients: Clients) -> Any:
        """Return what nodes have of their people's histories: what to learn from, what to weigh with."""
        ...

    def letters(self, nodes: Mapping[str, Array], ids: Array, own: Any) -> Letters:
        """Return what each node would send now; it may share memory with the node."""
        ...

    def learn(self, nodes: Mapping[str, Array], own: Any) -> Mapping[str, Array]:
        """Return the nodes after each has learnt from its own samples; inputs stay untouched."""
        ...

    def mix(self, nodes: Mapping[str, Array], letters: Letters, own: Any) -> tuple[Mapping[str, Array], Floats]:
        """Return the nodes after each has mixed one letter in, and its worth to each (-1: not judged)."""
        ...

    def choose(self, known: Any, chance: Any) -> Array:
        """Return whom a node sends to next, from what it knows of others; see `methods.peers`."""
        ...


@runtime_checkable
class CountsRows(Protocol):
    """A federated method whose clients speak of few rows; others are taken to speak of all."""

    def rows_per_client(self, shared: Mapping[str, Array]) -> int:
        """Return about how many rows a client makes in a round: cohorts are cut into chunks by it."""
        ...


@runtime_checkable
class Distributes(Protocol):
    """A federated method whose devices are sent other arrays than the tables they speak of."""

    downloads: ClassVar[tuple[str, ...]]  # the shared arrays a device receives in every round


@runtime_checkable
class SpeaksOfOthers(Protocol):
    """A federated method with tables whose rows are not items, however many there are."""

    not_items: ClassVar[tuple[str, ...]]


@dataclass(frozen=True)
class Cohort:
    """Some clients in a round, with all that learning and sealing need."""

    shared: Mapping[str, Array]
    private: Mapping[str, Array]
    clients: Clients
    ring: Ring
    disclosure: Disclosure | None
    learning: Key
    disclosing: Key


@runtime_checkable
class RepeatsRows(Protocol):
    """A federated method in which one person may speak of a row more than once in a round."""

    repeats_rows: ClassVar[bool]


@runtime_checkable
class SumsCohorts(Protocol):
    """A federated method that can add up what a cohort sends without writing it out: the same sums, only faster."""

    def sum_cohort(self, cohort: Cohort, total: Total) -> tuple[Release, Mapping[str, Array]]:
        """Add into the arrays of `total`; return what was sent and the new private part."""
        ...


@runtime_checkable
class RunsRounds(Protocol):
    """A federated method that can run many rounds of one client each at once: the same model, only faster."""

    def run_rounds(
        self,
        shared: Mapping[str, Array],
        private: Mapping[str, Array],
        clients: Clients,
        ring: Ring,
        disclosure: Disclosure | None,
        key: Key,
        rounds: range,
    ) -> tuple[Release, Array]:
        """Run rounds of one client each, moving `shared` and `private` in place; say how often each was asked."""
        ...


@runtime_checkable
class ScoresPairs(Protocol):
    """A method for which scoring a few items is much cheaper than scoring all."""

    def score_pairs(
        self, shared: Mapping[str, Array], private: Mapping[str, Array], rows: Array, items: Array, clients: Clients
    ) -> Floats:
        """Return the scores [M] of `items[m]` for the client at position `rows[m]`."""
        ...


@runtime_checkable
class Explains(Protocol):
    """A method that can say what carried a score."""

    def explain(
        self, shared: Mapping[str, Array], private: Mapping[str, Array], client: Clients, item: int
    ) -> list[Reason]:
        """Return reasons for one item and a cohort of one, strongest first."""
        ...


@runtime_checkable
class Remarks(Protocol):
    """A method that knows what a reader of its figures should be told, such as items of which it knows nothing."""

    def remarks(self, shared: Mapping[str, Array], private: Mapping[str, Array]) -> list[str]:
        """Return sentences for the notes of a run; none if there is nothing to say."""
        ...


@runtime_checkable
class KnowsPopularity(Protocol):
    """A method whose shared model tells how popular items are."""

    def popularity(self, shared: Mapping[str, Array]) -> Floats:
        """Return a positive number per item, in proportion to how many people have it as far as the model tells."""
        ...
