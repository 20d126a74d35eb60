"""What a method is: a new one is one new file in this folder, which `methods.registry` finds.

A centralised method has `fit` and `score`. `fit` yields the model after every pass over the data, so that whoever
drives it can draw curves, stop early and keep the best; a one-shot method yields once. The arrays of a yielded model
may change at the next step: copy what you keep.

A federated method has a `spec`, `init`, `plan`, `learn`, `apply` and `score`. The spec says what its arrays are to a
runtime. `plan` says which rows a client's update will have and which of them are sensitive. `learn` computes them into
a sink. Both see a cohort (a device is a cohort of one). `apply` is what the server does with the sum.

A gossip method has `init`, `learn`, `mix`, `choose` and `score`. Every peer holds a whole model, learns on its own,
mixes in what a peer sent and chooses whom to send to. There is no server.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeVar

from numpy.typing import NDArray

from tacit.errors import ConfigError
from tacit.methods.parts.class_check import check_class
from tacit.methods.parts.growth import Growth, grow_arrays
from tacit.methods.registry import Entry as Entry
from tacit.methods.registry import Kind as Kind
from tacit.methods.registry import build as build
from tacit.methods.registry import entry as entry
from tacit.methods.registry import methods as methods
from tacit.methods.registry import names as names
from tacit.methods.registry import options as options
from tacit.methods.registry import remember
from tacit.privacy.disclosure import Disclosure
from tacit.privacy.update_sink import UpdateSink
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Config, Floats, Model, Reason, refuse_unknown_items
from tacit.updates import PeerModels, Release, Ring, Total, UpdatePlan

if TYPE_CHECKING:
    from tacit.privacy.peer_release import PeerRelease


class Method(ABC):
    """What every method provides, however it was learnt.

    `shared` and `private` are the two halves of its model, `private` already narrowed to `clients`.
    """

    kind: ClassVar[Kind]
    scores_pairs: ClassVar[bool] = False  # `score_pairs` is much cheaper than scoring all items
    uses_features: bool = False  # scores from item features: a local-only model may then be good honestly

    @abstractmethod
    def score(self, shared: Mapping[str, Array], private: Mapping[str, Array], clients: Clients) -> Floats:
        """Return [C, n_items]: higher is better; finite everywhere."""

    def score_pairs(
        self, shared: Mapping[str, Array], private: Mapping[str, Array], rows: Array, items: Array, clients: Clients
    ) -> Floats:
        """Return the scores [M] of `items[m]` for the client at position `rows[m]`."""
        scores: Floats = self.score(shared, private, clients)[rows, items]
        return scores

    def explain(
        self, shared: Mapping[str, Array], private: Mapping[str, Array], client: Clients, item: int
    ) -> list[Reason]:
        """Return what carried the score of an item for a cohort of one, strongest first; empty: nothing to say."""
        return []

    def remarks(self, shared: Mapping[str, Array], private: Mapping[str, Array]) -> list[str]:
        """Return what a reader of the method's figures should know, such as items of which it knows nothing."""
        return []

    def popularity(self, shared: Mapping[str, Array]) -> Floats | None:
        """Return a positive number per item, in proportion to its popularity as the shared model shows it, or None."""
        return None


class Centralised(Method):
    """A method that needs all histories in one place."""

    kind = "centralised"

    def __init_subclass__(cls, **given: Any) -> None:
        """Let `fit` refuse histories of another catalogue before a kernel reads them, whoever calls it."""
        super().__init_subclass__(**given)
        if "fit" in vars(cls):
            cls.fit = _with_known_items(vars(cls)["fit"])  # type: ignore[method-assign, assignment]

    @abstractmethod
    def fit(self, clients: Clients, catalog: Catalog, key: Key) -> Iterator[Model]:
        """Yield the model after each pass."""


Fit = Callable[[Any, Clients, Catalog, Key], Iterator[Model]]


def _with_known_items(fit: Fit) -> Fit:
    @wraps(fit)
    def checked(self: Any, clients: Clients, catalog: Catalog, key: Key) -> Iterator[Model]:
        refuse_unknown_items(clients, catalog)
        return fit(self, clients, catalog, key)

    return checked


@dataclass(frozen=True)
class Schedule:
    """How a federated method spends its rounds. A pass is what curves and early stopping count."""

    passes: int
    rounds_per_pass: int
    clients_per_round: int
    most_rounds: int | None = None  # the last pass may be cut short
    partition: bool = False  # a pass asks every client once, in random groups; otherwise each round draws again

    @property
    def rounds(self) -> int:
        """All rounds."""
        every = self.passes * self.rounds_per_pass
        return every if self.most_rounds is None else min(every, self.most_rounds)

    def rounds_of(self, number: int) -> range:
        """The rounds of a pass."""
        start = number * self.rounds_per_pass
        return range(start, min(start + self.rounds_per_pass, self.rounds))


@dataclass(frozen=True)
class FederatedSpec:
    """What the arrays of a federated method are to a runtime; lab, field, serving, ledger and report read it.

    Devices send rows of *tables*: `item_tables` (row i is about item i), `other_tables` (rows are not items: layers,
    Gramians, features) and `client_tables` (one row per client: a device receives and sends its own row only; a method
    sees the rows of its cohort, in the cohort's order). A table need not be one of the shared arrays: `shapes` says how
    large the sums are.

    Every shared array is one of: `downloads`, which devices receive (all they need to learn and to score); `constants`,
    which follow from options and catalogue alone and are never sent; `server_state`, which stays on the server and is
    no part of a served model.

    `item_rows` says what a reader of a message sees: *pairs* of positives that rise and negatives that fall,
    rows of the client's *own* items and no others, or a *mixed* set for which the privacy meter has no model.

    `growth` says how the part of a shared array that is about new items begins, when items join the catalogue: as in
    the *first* model (the default), with *zeros*, or with what keeps columns *orthonormal*. An array that is *public*
    follows from the new catalogue as a whole.
    """

    item_tables: tuple[str, ...] = ()
    other_tables: tuple[str, ...] = ()
    client_tables: tuple[str, ...] = ()
    downloads: tuple[str, ...] = ()
    constants: tuple[str, ...] = ()
    server_state: tuple[str, ...] = ()
    private: Mapping[str, str] = field(default_factory=dict)  # name -> dtype; stays on the device, survives a restart
    rows_repeat: bool = False  # a client may send the same row more than once in a round
    # public inputs beyond ids and titles; times
    needs: tuple[Literal["features", "coordinates", "times", "vectors"], ...] = ()
    counted: tuple[
        str, ...
    ] = ()  # tables whose counts `apply` reads: under differential privacy only these are counted
    bound: float | None = None  # largest length of what a client adds to a sum, by construction; None: it has none
    item_rows: Literal["pairs", "own", "mixed"] = "mixed"  # what readable rows of item tables are: see `privacy.meter`
    shows_order: bool = False  # rows depend on what came when: their reader learns the order of the items too
    schedule_options: tuple[str, ...] = ("epochs",)  # options that only `schedule` reads: a real federation has none
    growth: Mapping[str, Growth] = field(default_factory=dict)  # how an array begins for new items, if not as the first

    @property
    def tables(self) -> tuple[str, ...]:
        """All tables that devices send rows of."""
        return (*self.item_tables, *self.other_tables, *self.client_tables)

    def received(self, shared: Mapping[str, Array], ids: NDArray[Any] | None = None) -> dict[str, Array]:
        """Return the shared arrays that clients learn and score with: downloads and constants.

        Of client tables they have their own rows: those of `ids`, or all that are there.
        """
        found = {name: shared[name] for name in (*self.downloads, *self.constants)}
        if ids is not None:
            found |= {name: shared[name][ids] for name in self.client_tables}
        return found


class Federated(Method):
    """A method whose histories stay where they are: devices learn, the server adds and applies."""

    kind = "federated"
    spec: FederatedSpec

    @abstractmethod
    def schedule(self, clients: Clients) -> Schedule:
        """Return how many rounds there are, and how many clients each one asks."""

    @abstractmethod
    def init(self, clients: Clients, catalog: Catalog, key: Key) -> Model:
        """Return the first model; each client's private part follows from its id, its history and the key alone."""

    @abstractmethod
    def plan(self, model: Model, clients: Clients, key: Key) -> UpdatePlan:
        """Return which rows the update of each client will have, and which of them are sensitive."""

    @abstractmethod
    def learn(
        self, model: Model, clients: Clients, plan: UpdatePlan, sink: UpdateSink, key: Key
    ) -> Mapping[str, Array]:
        """Put the values of all planned rows into the sink; return the new private part. Inputs stay untouched.

        `plan` is the one that `plan` returned, with some rows not kept: nothing of these may be in the values of
        others.
        """

    @abstractmethod
    def apply(self, shared: Mapping[str, Array], total: Total, ring: Ring) -> Mapping[str, Array]:
        """Return the shared model moved by a sum of updates."""

    def shapes(self, shared: Mapping[str, Array]) -> dict[str, tuple[int, ...]]:
        """Return rows and width of the sum of each table; usually that of the shared array of its name."""
        return {name: shared[name].shape for name in self.spec.tables}

    def rows_per_client(self, shared: Mapping[str, Array]) -> int:
        """Return about how many rows a client sends in a round: cohorts are cut into chunks by it."""
        return sum(shape[0] for name, shape in self.shapes(shared).items() if name not in self.spec.client_tables)

    def most_rows(self, shared: Mapping[str, Array]) -> dict[str, int] | None:
        """Return how many rows of each table a client sends in a round at most; None: that has no bound.

        By default each row of a table once, and of client tables one. A method whose rows repeat says it itself: a
        coordinator reads no more of an answer than these rows take.
        """
        if self.spec.rows_repeat:
            return None
        own = self.spec.client_tables
        return {name: 1 if name in own else shape[0] for name, shape in self.shapes(shared).items()}

    def grow(
        self, shared: Mapping[str, Array], before: Mapping[str, Array], after: Mapping[str, Array]
    ) -> dict[str, Array]:
        """Return shared arrays that were learnt under one catalogue as they are under a later one.

        `before` and `after` are the first shared arrays of the two. Items never lose their place: new ones come behind.
        """
        constants: dict[str, Growth] = dict.fromkeys(self.spec.constants, "public")
        return grow_arrays(shared, before, after, {**self.spec.growth, **constants})

    def grow_private(
        self, private: Mapping[str, Array], before: Mapping[str, Array], after: Mapping[str, Array]
    ) -> dict[str, Array]:
        """Return the private part under a later catalogue; it stays as it is, unless it points at rows that move."""
        return dict(private)

    def budget_share(self, shared: Mapping[str, Array]) -> float | None:
        """Return which share of a client's privacy budget the next round spends; None: equal shares of all rounds.

        It follows from what devices receive, so that a device can compute what a round costs it. 0: there is nothing
        more to learn, and no client is asked.
        """
        return None

    def run_rounds(
        self, model: Model, clients: Clients, ring: Ring, disclosure: Disclosure | None, key: Key, rounds: range
    ) -> tuple[Release, Array] | None:
        """Run rounds of one client each, or of all, at once; move the model in place and say how often each was asked.

        The bits are those of the rounds one by one. None: the method has no such kernel, and nothing was moved.
        """
        return None


class GossipOptions(Protocol):
    """What runtimes read of the options of a gossip method."""

    @property
    def epochs(self) -> int:
        """Rounds."""

    @property
    def view(self) -> int:
        """How many peers a peer sends to."""

    @property
    def renew_every(self) -> int:
        """Rounds between two choices of a view."""

    @property
    def learns(self) -> str:
        """When a peer learns: once in a 'round', or at each 'receipt' of a model."""

    @property
    def learning_rate(self) -> float:
        """The step; messages about divergence name it."""


class Gossip(Method):
    """A method without a server: peers hold whole models and exchange them with each other only.

    Peers are arrays with the peer axis first, all of them private; a real peer is a cohort of one. `shared` holds only
    what is public beforehand. What a peer has of its user's history (`own`) is made from the training part alone, and
    never leaves it.
    """

    kind = "gossip"
    config: GossipOptions
    release: PeerRelease | None = None  # how peer models are shaped before they leave; none: as they are

    @property
    def common(self) -> tuple[str, ...]:
        """The arrays that all peers start with alike: they follow from the key of the network."""
        return ()

    @property
    def sent(self) -> tuple[str, ...]:
        """The arrays that a peer model carries."""
        return ()

    @property
    def history_arrays(self) -> tuple[str, ...]:
        """The private arrays that follow from a history alone: they are made anew when it has changed."""
        return ()

    @property
    @abstractmethod
    def n_best(self) -> float:
        """How many of its peers a peer keeps on average for what their models were worth."""

    @abstractmethod
    def memory(self, n_peers: int, n_items: int) -> int:
        """Return the bytes that so many peers need."""

    @abstractmethod
    def init(self, clients: Clients, catalog: Catalog, key: Key) -> Model:
        """Return the first model of every peer, its chance included; it follows from its client's id and the key."""

    @abstractmethod
    def own(self, shared: Mapping[str, Array], models: Mapping[str, Array], clients: Clients) -> Any:
        """Return what peers have of their users' histories: what to learn from, what to weigh with."""

    @abstractmethod
    def peer_models(self, models: Mapping[str, Array], ids: Array, own: Any) -> PeerModels:
        """Return what each peer would send now; it may share memory with the peer."""

    @abstractmethod
    def learn(self, models: Mapping[str, Array], own: Any) -> Mapping[str, Array]:
        """Return the peers after each has learnt from its own samples; inputs stay untouched."""

    @abstractmethod
    def mix(self, models: Mapping[str, Array], peer_models: PeerModels, own: Any) -> tuple[Mapping[str, Array], Floats]:
        """Return the peers after each has mixed one model in, and its worth to each (-1: not judged)."""

    @abstractmethod
    def choose(self, known: Any, chance: Any) -> Array:
        """Return whom a peer sends to next, from what it knows of others; see `methods.peers`."""

    @abstractmethod
    def step(
        self, models: dict[str, Array], spare: Array, peer_models: PeerModels, inbox: Any, own: Any, each: Any
    ) -> NDArray[Any]:
        """Let every peer read what it received and learn, all of one round at once; return each model's worth."""


def score_clients(method: Method, model: Model, clients: Clients) -> Floats:
    """Return the scores [C, n_items] of clients by a whole model; its private part is theirs already."""
    shared = model.shared
    if isinstance(method, Federated) and method.spec.client_tables:
        shared = method.spec.received(shared, clients.ids)
    return method.score(shared, model.private, clients)


T = TypeVar("T", bound=type)


def register(name: str, config: type[Config]) -> Callable[[T], T]:
    """Class decorator: make a method known under `name`, with `config` as its options."""

    def keep(cls: T) -> T:
        check_class(name, cls, (Centralised, Federated, Gossip))
        remember(name, config, cls)
        return cls

    return keep


def build_federated(name: str, config: Config | None = None) -> Federated:
    """Return a federated method ready to learn; any other kind is refused."""
    method = build(name, config)
    if isinstance(method, Federated):
        return method
    why = "it needs all histories in one place" if method.kind == "centralised" else "its peers have no server"
    raise ConfigError(f"'{name}' is not federated: {why}.", f"Choose one of {', '.join(names('federated'))}.")
