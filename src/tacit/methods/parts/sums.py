"""What methods by sums have in common: histories without repeats, sums of outer products, an earlier run to start from.

The sum over clients of x_u (x_u' T), for any table T [n_items, D], needs of each client one row per item it has: w_i
s_u (T' x_u). Here x_u holds the weights w_i of its items, and s_u makes it fit the ring. Every row is made of the whole
history, so rows are computed from the disclosed items alone: what is kept back has no part in them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from zipfile import BadZipFile

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tacit.errors import MethodError
from tacit.kernels.outer import client_sums
from tacit.methods.base import Federated, Schedule
from tacit.methods.parts.cold_items import ColdItemMap, ColdItemsConfig
from tacit.numerics import inner_product, map_blocks, multiply_table
from tacit.privacy.update_sink import UpdateSink
from tacit.types import Array, Catalog, Clients, Floats
from tacit.updates import PlannedRows, Ring, Total, UpdatePlan

LONG_HISTORY = 4096.0  # ranges are chosen for a history of this length; longer ones fit up to the ring's own limit
WARM = "folder of an earlier run of this method to start from; items are matched by their labels"
NEARLY_ORTHONORMAL = 1e-2  # of a Gramian: so far from one it may be for the second factorisation to correct it
_ROWS = 64  # about how many rows of 64 numbers a client makes: cohorts are cut into chunks by it


def distinct(clients: Clients) -> Clients:
    """Return the cohort with each item at most once per client."""
    return clients.derive_once("distinct", _distinct)


def _distinct(clients: Clients) -> Clients:
    again = np.zeros(len(clients.items), np.bool_)
    again[1:] = (clients.items[1:] == clients.items[:-1]) & (clients.rows[1:] == clients.rows[:-1])
    return keep_items(clients, ~again) if again.any() else clients


def keep_items(clients: Clients, kept: NDArray[np.bool_]) -> Clients:
    """Return the cohort with the kept items [N] only."""
    return clients.keep(kept)


def plan_items(table: str, clients: Clients) -> PlannedRows:
    """Return one row for every different item of each client: all of them are about something the client did."""
    own = distinct(clients)
    return PlannedRows(table, own.ptr, own.items, True)


def disclose_histories(clients: Clients, rows: PlannedRows) -> Clients:
    """Return clients with the items whose rows may leave, and no others."""
    own = distinct(clients)
    return own if rows.kept is None or rows.kept.all() else keep_items(own, rows.kept.astype(np.bool_))


class SumOptions(Protocol):
    """Options of a method by sums."""

    @property
    def epochs(self) -> int:
        """Rounds; every client is asked in each."""
        ...

    @property
    def cold_items(self) -> ColdItemsConfig | None:
        """How cold items get a row."""
        ...


class BySums(Federated):
    """What methods by sums do alike: in every round every client sends a row for each of its items.

    A score is a vector of the client times the row of an item, so cold items can be given a row.
    """

    def __init__(self, config: SumOptions) -> None:
        self._rounds = config.epochs
        self.cold = ColdItemMap(config.cold_items)
        self.spec = self.cold.extend_spec(type(self).spec)
        self.uses_features = config.cold_items is not None

    @abstractmethod
    def solve(self, shared: Mapping[str, Array], total: Total, ring: Ring) -> Mapping[str, Array]:
        """Return the shared model moved by a sum of updates; without any rows, the same one."""

    @abstractmethod
    def learnt_rows(self, shared: Mapping[str, Array]) -> Floats:
        """Return the rows [n_items, D] of items as the sums have them."""

    def moves_rows(self, shared: Mapping[str, Array]) -> bool:
        """Say whether the next sum is for the rows, and not only for how a later one is made."""
        return True

    def scored_rows(self, shared: Mapping[str, Array]) -> Floats:
        """Return the rows that items are scored with: those of cold items are made from public vectors."""
        return self.cold.fill(shared, self.learnt_rows(shared))

    def apply(self, shared: Mapping[str, Array], total: Total, ring: Ring) -> Mapping[str, Array]:
        """Solve for the item tables, then for the map from public vectors, where there is one."""
        found = self.solve(shared, total, ring)
        if self.cold.config is None or found is shared or not self.moves_rows(shared):
            return found
        rows, to_learn = self.learnt_rows(found), self.rows_to_map(shared, found, total, ring)
        return {**found, **self.cold.learn(shared, rows, to_learn, total.counts[self.spec.counted[0]])}

    def rows_to_map(
        self, before: Mapping[str, Array], found: Mapping[str, Array], total: Total, ring: Ring
    ) -> NDArray[np.floating]:
        """Return the rows [n_items, D] that the map for cold items learns from, those before and after a sum known."""
        return self.learnt_rows(found)

    def schedule(self, clients: Clients) -> Schedule:
        """All clients in every round."""
        return Schedule(self._rounds, 1, len(clients))

    def rows_per_client(self, shared: Mapping[str, Array]) -> int:
        """Return the usual number of rows, more where they are wide."""
        return _ROWS * max(1, int(self.shapes(shared)[self.spec.item_tables[0]][1]) // _ROWS)


def to_float64(sums: NDArray[np.int64], ring: Ring) -> NDArray[np.float64]:
    """Return sums as float64, which holds them exactly."""
    found = np.empty(sums.shape)
    map_blocks(lambda rows: np.divide(sums[rows], float(ring.scale), out=found[rows]), len(sums))
    return found


@dataclass(frozen=True)
class OuterSum:
    """The sum over clients of s_u x_u (x_u' T): a client's part as rows, or a cohort's added at once.

    s_u = n^-2v 4096^(v - 1/2) for n items: with |x_u|^2 <= n and orthonormal T, a client's part is at most
    n^(1 - 2v) 4096^(v - 1/2) long (Frobenius), and no number in it above n^(1/2 - 2v) 4096^(v - 1/2).
    """

    user_weight: float = 0.0  # v

    @property
    def unit(self) -> float:
        """What the sums are multiplied with so that they fit."""
        return float(LONG_HISTORY ** (self.user_weight - 0.5))

    def bound(self, n_items: int) -> float:
        """Return the largest Frobenius norm of the part of a client with so many items, before rounding."""
        return float(n_items ** (1.0 - 2.0 * self.user_weight) * self.unit)

    def project_users(self, table: Floats, weights: Floats, clients: Clients) -> Floats:
        """Return T' x_u of each client, [C, D]."""
        found = np.empty((len(clients), table.shape[1]), np.float32)
        client_sums(clients.ptr, clients.items, weights, table, found)
        return found

    def put(self, table: Floats, weights: Floats, clients: Clients, plan: UpdatePlan, sink: UpdateSink) -> None:
        """Put a row for every item: its weight times s_u (T' x_u), made of the disclosed items alone."""
        known = disclose_histories(clients, plan.parts[0])
        lengths = np.maximum(known.sizes, 1).astype(np.float32)
        scale = lengths ** np.float32(-2.0 * self.user_weight) * np.float32(self.unit)
        users = self.project_users(table, weights, known)
        users *= scale[:, None]
        sink.put_outer(0, users, weights, by_row=True)


def earlier(folder: str, names: tuple[str, ...], catalog: Catalog) -> tuple[dict[str, Array], Array, Array]:
    """Read shared arrays of an earlier run: (arrays, places of known items there, the same items' places here)."""
    model = Path(folder) / "model"
    try:
        with (model / "model.npz").open("rb") as file, np.load(file, allow_pickle=False) as stored:
            missing = [name for name in names if f"shared.{name}" not in stored]
            arrays = {} if missing else {name: stored[f"shared.{name}"] for name in names}
        labels = pl.read_parquet(model / "catalog.parquet")["item"].to_list()
    except (OSError, ValueError, EOFError, BadZipFile, pl.exceptions.PolarsError) as error:
        raise MethodError(f"warm_start: '{folder}' holds no readable run: {error}.", "Give a run's folder.") from None
    if missing:
        raise MethodError(f"warm_start: the run in '{folder}' has no '{missing[0]}'.", "Give a run of the same method.")
    place = {str(label): at for at, label in enumerate(labels)}
    there = np.array([place.get(str(label), -1) for label in catalog.item_ids.labels.tolist()], np.int64)
    if not (there >= 0).any():
        raise MethodError(
            f"warm_start: no item of this catalogue occurs in '{folder}'.", "Give a run on the same data."
        )
    here = np.flatnonzero(there >= 0)
    return arrays, there[here], here


def start_table(start: Floats, folder: str | None, name: str, catalog: Catalog) -> Floats:
    """Return a start table whose known items come from an earlier run's; what it lacks stays as drawn."""
    if folder is None:
        return start
    arrays, there, here = earlier(folder, (name,), catalog)
    before = arrays[name]
    if before.ndim != 2:
        raise MethodError(
            f"warm_start: '{name}' of the run in '{folder}' is not a table.", "Give a run of the same method."
        )
    width = min(before.shape[1], start.shape[1])
    warm = start.copy()
    warm[here[:, None], np.arange(width)] = before[there, :width]
    return warm


def orthonormal(sums: NDArray[np.float64], noise: float) -> NDArray[np.float64]:
    """Return an orthonormal basis of the columns, signs settled; a column that adds no more than noise becomes zero.

    Rows of zeros, items of no client, stay zero, and cost nothing.
    """
    empty = np.flatnonzero(sums[:, 0] == 0)  # few at most: whole rows are looked at only there
    empty = empty[~sums[empty].any(axis=1)]
    rows: Array | slice = np.delete(np.arange(len(sums)), empty) if len(empty) else slice(None)
    found, lengths = _factorise(sums[rows])
    found[:, lengths <= noise] = 0.0
    if found.shape == sums.shape:
        return found
    basis = np.zeros_like(sums)
    basis[rows, : found.shape[1]] = found
    return basis


def _factorise(table: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return Q and the diagonal of R, as long as there are rows or columns, with all signs positive.

    Cholesky's factors of the Gramian, twice: nothing but matrix products, a tenth of the time of Householder's
    reflections, and orthonormal to the last digits (Yamamoto et al., 2015). That needs columns that do not nearly
    depend on each other, which the second Gramian shows; otherwise reflections do it.
    """
    found, lengths = table, np.ones(table.shape[1])
    for is_second in (False, True):
        gramian = inner_product(found, found)
        if is_second and not np.abs(gramian - np.eye(len(gramian))).max(initial=0.0) < NEARLY_ORTHONORMAL:
            break
        try:
            lower = np.linalg.cholesky(gramian)
        except np.linalg.LinAlgError:
            break
        found = multiply_table(found, np.linalg.inv(lower).T)
        lengths *= np.diag(lower)
    else:
        return found, lengths
    found, r = np.linalg.qr(table)
    ends = np.diag(r)
    found *= np.where(ends < 0, -1.0, 1.0)
    return found, np.abs(ends)


def rounding(counts: NDArray[np.int64], ring: Ring) -> float:
    """Return how long a column of nothing but rounding errors may be: each row sent is off by half a step at most."""
    return 4.0 * float(np.sqrt(counts.sum() / 12.0)) / float(ring.scale)


def shared_floats(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return arrays as float32, the precision in which models travel."""
    return {name: np.ascontiguousarray(array, np.float32) for name, array in arrays.items()}
