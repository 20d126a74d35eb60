"""Tests of methods, in this repository and in plug-ins: the contract, and small cohorts whose right answer is known.

from tacit.testing import check_federated, two_tastes

check_federated(MyMethod(MyConfig()))  # raises ContractError with the rule that is broken
clients, catalog = two_tastes()        # client 0 likes items 0, 2, 4, ...; client 1 likes items 1, 3, 5, ...
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tacit.errors import MethodError
from tacit.methods.base import Federated
from tacit.privacy.clipping import Clipping
from tacit.privacy.disclosure import Disclosure
from tacit.protocols.federated import Contribution, UpdatePath, device_round, server_round
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Labels, Model, Triples, Vocabulary, offsets, refuse_unknown_items
from tacit.updates import Ring, Total, Update

__all__ = ["ContractError", "check_federated", "make_clients", "two_tastes"]

NEW_ITEMS = 3  # that the catalogue of the check grows by
RINGS = (Ring(), Ring(bits=32, fraction=14))


def make_clients(
    histories: Sequence[Any], n_items: int, *, ids: Sequence[int] | None = None, avoid: Clients | None = None
) -> Clients:
    """Return the clients with these histories of items, oldest first: `make_clients([[2, 0], [1]], n_items=3)`."""
    places = [np.argsort(np.asarray(history, np.int32), kind="stable") for history in histories]
    rows = [np.asarray(history, np.int32)[order] for history, order in zip(histories, places, strict=True)]
    who = np.arange(len(rows)) if ids is None else np.asarray(ids, np.int64)
    items, order = (np.concatenate([[], *parts]).astype(np.int32) for parts in (rows, places))
    sizes = np.array([len(row) for row in rows], np.int64)
    return Clients(who, offsets(sizes), items, n_items, avoid=avoid, places=order)


def two_tastes(n_clients: int = 40, n_items: int = 24, seed: int = 0) -> tuple[Clients, Catalog]:
    """Return clients of two tastes, and a catalogue that says as much of the items.

    Even clients like even items, odd clients like odd ones. A client's history is a random half of what it likes, so
    the right recommendation is the other half: the items of its parity that it does not have yet. Its items came 45
    minutes apart. Item i has the label i + 100. Its categories and its statements in the graph name its parity, beside
    others that do not matter; its vector is its parity alone.
    """
    rng = np.random.default_rng(seed)
    liked = [np.arange(client % 2, n_items, 2) for client in range(n_clients)]
    clients = make_clients([rng.choice(own, len(own) // 2, replace=False) for own in liked], n_items)
    assert clients.places is not None
    clients = replace(clients, times=clients.places.astype(np.int64) * 45 * 60)
    items = np.arange(n_items)
    marks = [mark for item in range(n_items) for mark in ([item % 2, 2] if item % 5 == 0 else [item % 2])]
    categories = Labels(offsets(1 + (items % 5 == 0)), np.array(marks, np.int32), ["even", "odd", "fifth"])
    parity = np.eye(2, dtype=np.float32)[items % 2]
    return clients, Catalog(Vocabulary(items + 100), None, categories, graph=_parity_graph(n_items), vectors=parity)


def _parity_graph(n_items: int) -> Triples:
    """Return statements about the items: their parity, and one maker for every three in a row."""
    items = np.arange(n_items)
    makers = n_items + 2 + items // 3
    names = [f"item {i}" for i in items] + ["even", "odd"] + [f"maker {m}" for m in range(n_items // 3 + 1)]
    return Triples(
        np.tile(items, 2).astype(np.int32),
        np.repeat([0, 1], n_items).astype(np.int32),
        np.concatenate([n_items + items % 2, makers]).astype(np.int32),
        Vocabulary(np.array(names, dtype=object)),
        ["parity", "made by"],
        items.astype(np.int32),
    )


class ContractError(MethodError):
    """A federated method breaks a rule of the contract; `rule` is its name, the same in every version."""

    def __init__(self, rule: str, message: str) -> None:
        self.rule = rule
        super().__init__(f"[{rule}] {message}", "docs/methods/README.md has the contract, rule by rule.")


def check_federated(
    method: Federated, clients: Clients | None = None, catalog: Catalog | None = None, *, rings: Sequence[Ring] = RINGS
) -> None:
    """Refuse a federated method that breaks a rule of the contract, on a cohort of two tastes or on one of yours.

    The rules, in this order: declares-shared, declares-private, inits-alone, fills-tables, marks-own-rows,
    repeats-rows, bounds-rows, inputs-untouched, keeps-private, message-is-total, ignores-order, learns-alone,
    keeps-shapes, scores-everything, grows.
    """
    if clients is None or catalog is None:
        clients, catalog = two_tastes()
    check = _Contract(method, clients, catalog)
    check.declarations()
    check.plan()
    for ring in rings:
        check.cohorts(ring)
    check.server()
    check.growth()


class _Contract:
    """One method on one cohort."""

    def __init__(self, method: Federated, clients: Clients, catalog: Catalog) -> None:
        refuse_unknown_items(clients, catalog)
        self.method, self.spec, self.clients, self.catalog = method, method.spec, clients, catalog
        self.key = Key(7).child("learn")
        self.model = method.init(clients, catalog, self.key.child("init"))

    def declarations(self) -> None:
        """declares-shared, declares-private, inits-alone."""
        spec, model = self.spec, self.model
        _need("declares-shared", {*spec.downloads, *spec.constants, *spec.server_state}, model.shared)
        self._private(model.private)
        some = np.array([min(5, len(self.clients) - 1), 0])
        alone = self.method.init(self.clients.take(some), self.catalog, self.key.child("init")).private
        for name, array in alone.items():
            if not np.array_equal(array, model.private[name][some]):
                raise ContractError(
                    "inits-alone", f"The first '{name}' of a client depends on who else is in the cohort."
                )

    def plan(self) -> None:
        """fills-tables, marks-own-rows, repeats-rows, bounds-rows."""
        plan = self.method.plan(self._received(self.clients), self.clients, self.key.child("learn", 0))
        _need("fills-tables", self.spec.tables, {part.table: part for part in plan.parts})
        own = self.clients.matrix()
        for part in plan.parts:
            owner = np.repeat(np.arange(len(self.clients)), np.diff(part.ptr))
            if part.table not in self.spec.item_tables or part.ids is None or not len(owner):
                continue
            is_own = np.asarray(own[owner, part.ids]).ravel() > 0
            if (is_own & ~part.marks()).any() and self.spec.item_rows != "pairs":
                raise ContractError(
                    "marks-own-rows", f"A row of '{part.table}' about an item of the client is not marked as sensitive."
                )
            if self.spec.item_rows == "own" and not is_own.all():
                raise ContractError(
                    "marks-own-rows", f"item_rows is 'own', and a client plans a row of '{part.table}' of another item."
                )
        for table in () if self.spec.rows_repeat else self.spec.tables:
            rows = [part for part in plan.parts if part.table == table]
            for c in range(len(self.clients)):
                own = [np.arange(np.diff(p.ptr)[c]) if p.ids is None else p.ids[p.ptr[c] : p.ptr[c + 1]] for p in rows]
                ids = np.concatenate(own)
                if len(np.unique(ids)) < len(ids):
                    raise ContractError("repeats-rows", f"A client sends a row of '{table}' twice: set rows_repeat.")
        most = self.method.most_rows(self.model.shared) or {}
        for part in plan.parts:
            sent = np.sum([np.diff(other.ptr) for other in plan.parts if other.table == part.table], axis=0)
            if part.table in most and sent.max(initial=0) > most[part.table]:
                raise ContractError("bounds-rows", f"A client plans more rows of '{part.table}' than most_rows says.")

    def cohorts(self, ring: Ring) -> None:
        """inputs-untouched, message-is-total, ignores-order, learns-alone; with and without stages."""
        secret = np.zeros(self.catalog.n_items, np.bool_)
        secret[0] = True
        half = Disclosure(np.full(int(self.clients.ids.max()) + 1, 0.5), secret, per_item=False)
        for stages in ((), (half,), (Clipping(row=0.05, person=0.2),), (half, Clipping(person=0.1))):
            path = UpdatePath(self.method, stages, ring)
            before = self.model.copy()
            together = device_round(path, self._received(self.clients), self.clients, self.key, 0)
            _same("inputs-untouched", before.shared, self.model.shared, "learning changed the shared")
            _same("inputs-untouched", before.private, self.model.private, "learning changed the private")
            self._private(together.private)
            assert together.message is not None
            self._kept_private(together.message.read(ring), ring)
            total = Total.zero(self.method.shapes(self.model.shared))
            summed = device_round(path, self._received(self.clients), self.clients, self.key, 0, total)
            added = total.zero_like()
            added.add(together.message)
            _same("message-is-total", added.sums, total.sums, "messages give another sum of")
            _same("message-is-total", added.counts, total.counts, "messages give another count of")
            _same("message-is-total", together.private, summed.private, "messages leave another private")
            order = np.arange(len(self.clients))[::-1]
            reversed_order = self.clients.take(order)
            other = device_round(path, self._received(reversed_order, order), reversed_order, self.key, 0)
            back = {name: array[order] for name, array in other.private.items()}
            _same("ignores-order", together.private, back, "the order of clients changes the private")
            for c in range(len(self.clients)) if not stages else (0, len(self.clients) // 2):
                self._alone(path, c, together)

    def server(self) -> None:
        """keeps-shapes: the model after a round is of the form of the first one; an empty sum moves nothing."""
        path = UpdatePath(self.method, (), Ring())
        shared = self.model.shared
        total = Total.zero(self.method.shapes(shared))
        device_round(path, self._received(self.clients), self.clients, self.key, 0, total)
        before = self.model.copy()
        after = server_round(path, shared, total)
        _same("inputs-untouched", before.shared, shared, "applying changed the shared")
        _need("keeps-shapes", shared, after)
        for name in self.spec.downloads:
            seen, wanted = after[name], shared[name]
            if (seen.shape, seen.dtype) != (wanted.shape, wanted.dtype) or not np.isfinite(seen).all():
                raise ContractError("keeps-shapes", f"'{name}' has another shape, type or no numbers after a round.")
        for name in self.spec.constants:
            if not np.array_equal(after[name], shared[name]):
                raise ContractError("keeps-shapes", f"'{name}' is declared constant and has changed.")
        received = self.spec.received(after, self.clients.ids)
        scores = self.method.score(received, self.model.private, self.clients)
        if scores.shape != (len(self.clients), self.catalog.n_items) or not np.isfinite(scores).all():
            raise ContractError("scores-everything", f"'score' returns {scores.shape}, or numbers that are not finite.")

    def growth(self) -> None:
        """grows: a model of the catalogue without its last items becomes one of the whole, and learns on."""
        method, path, n_old = self.method, UpdatePath(self.method, (), Ring()), max(1, self.catalog.n_items - NEW_ITEMS)
        catalog = self.catalog.take(np.arange(n_old))
        clients = make_clients(
            [self.clients.of(c)[self.clients.of(c) < n_old] for c in range(len(self.clients))],
            n_old,
            ids=self.clients.ids.tolist(),
        )
        model, first = (method.init(clients, catalog, self.key.child("init")) for _ in range(2))
        shared, private = dict(model.shared), dict(model.private)
        for number in range(2):
            total, own = Total.zero(method.shapes(shared)), Model(self.spec.received(shared, clients.ids), private)
            private = dict(device_round(path, own, clients, self.key, number, total).private)
            shared = dict(server_round(path, shared, total))
        later = replace(clients, n_items=self.catalog.n_items)
        after = method.init(later, self.catalog, self.key.child("init"))
        grown = method.grow(shared, first.shared, after.shared)
        grown_private = method.grow_private(private, first.shared, after.shared)
        _need("grows", shared, grown)
        for name in self.spec.downloads:
            if (grown[name].dtype, grown[name].shape) != (after.shared[name].dtype, after.shared[name].shape):
                raise ContractError(
                    "grows", f"'{name}' is {grown[name].shape}, a first one {after.shared[name].shape}."
                )
        new = method.score(self.spec.received(grown, clients.ids), grown_private, later)
        if new.shape != (len(later), self.catalog.n_items) or not np.isfinite(new).all():
            raise ContractError("grows", f"'score' returns {new.shape}, or numbers that are not finite.")
        total = Total.zero(method.shapes(grown))
        own = Model(self.spec.received(grown, self.clients.ids), grown_private)
        device_round(path, own, self.clients, self.key, 2, total)
        server_round(path, grown, total)

    def _kept_private(self, update: Update, ring: Ring) -> None:
        """keeps-private: no row that is sent holds a private array as it is."""
        for name, array in self.model.private.items():
            own = np.asarray(array, np.float64).reshape(len(array), -1)
            for table, rows in update.tables.items():
                owner = np.repeat(np.arange(len(update.clients)), np.diff(rows.ptr))
                if rows.values.shape[1] != own.shape[1] or not len(owner):
                    continue
                on_grid = np.rint(own[owner] * float(ring.scale)) / float(ring.scale)
                if ((rows.values == on_grid).all(axis=1) & on_grid.any(axis=1)).any():
                    raise ContractError("keeps-private", f"A row of '{table}' is the private '{name}' of its client.")

    def _alone(self, path: UpdatePath, c: int, together: Contribution) -> None:
        one = self.clients.take([c])
        alone = device_round(path, self._received(one, np.array([c])), one, self.key, 0)
        own = {name: array[[c]] for name, array in together.private.items()}
        _same("learns-alone", own, alone.private, "a client alone gets another private")
        assert alone.message is not None
        assert together.message is not None
        for table, (ptr, ids, numbers) in together.message.tables.items():
            rows = slice(int(ptr[c]), int(ptr[c + 1]))
            _, own_ids, own_numbers = alone.message.tables[table]
            if not np.array_equal(ids[rows], own_ids) or not np.array_equal(numbers[rows], own_numbers):
                raise ContractError("learns-alone", f"A client alone sends other rows of '{table}' than in a cohort.")

    def _received(self, clients: Clients, positions: Array | None = None) -> Model:
        private = self.model.private if positions is None else self.model.take(positions).private
        return Model(self.spec.received(self.model.shared, clients.ids), private)

    def _private(self, private: Mapping[str, Array]) -> None:
        _need("declares-private", self.spec.private, private)
        for name, array in private.items():
            if str(array.dtype) != self.spec.private[name] or len(array) != len(self.clients):
                raise ContractError(
                    "declares-private",
                    f"'{name}' is {array.dtype} {array.shape}; declared: {self.spec.private[name]}, a row per client.",
                )


def _need(rule: str, wanted: Collection[str], seen: Mapping[str, Any]) -> None:
    missing, extra = set(wanted) - seen.keys(), seen.keys() - set(wanted)
    if missing:
        raise ContractError(rule, f"{_names(missing)} is declared and not there.")
    if extra:
        raise ContractError(rule, f"{_names(extra)} is there and not declared.")


def _same(rule: str, left: Mapping[str, Array], right: Mapping[str, Array], what: str) -> None:
    for name, array in left.items():
        if not np.array_equal(array, right[name]):
            raise ContractError(rule, f"{what} '{name}'.".capitalize())


def _names(names: Collection[str]) -> str:
    return ", ".join(f"'{name}'" for name in sorted(names))
