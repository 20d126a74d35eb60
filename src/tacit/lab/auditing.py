"""Audit of a guarantee: train once with canaries, and see how well a reader of the noisy sums tells who took part.

Canaries are clients of one item each, all different, beside the real ones. Each is put in by a fair coin; the message
of one that is left out is replaced by zeros, which is what adding or removing a client means. What a canary learns is
lengthened, so that its message is as long as the bound allows. Everything else is a run of the lab: the same stage, the
same noise, the same rounds. The reader knows all real clients, what each canary would have sent, and the noisy sums.

It scores a canary by the inner product of its message and what the sums hold beyond the real clients, in units of the
noise that is really there. If it is right more often than the ledger allows, the ledger is wrong.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.errors import ConfigError
from tacit.lab.guarantee import PrivacyLog, build_privacy
from tacit.lab.simulation import SimulationOptions, simulate
from tacit.lab.training import RuntimeConfig
from tacit.methods.base import Federated
from tacit.numerics import one_blas_thread
from tacit.privacy.audit import bound_by_one_run, bound_gaussian
from tacit.privacy.dp import DifferentialPrivacy, DPConfig
from tacit.privacy.draft import Draft, DraftRows
from tacit.privacy.meter import Exposure, measure_exposure
from tacit.privacy.noise import NoiseSource
from tacit.privacy.pure import LaplacePrivacy
from tacit.protocols.federated import UpdatePath
from tacit.random import Key
from tacit.types import Catalog, Clients, Floats, offsets
from tacit.updates import Total

CONFIDENCE = 0.999  # of the whole audit
FEWEST = 10
LONG = np.float32(2.0**12)  # times what a canary learns: the bound shortens it again
Tables = dict[str, NDArray[np.float64]]


@dataclass(frozen=True)
class _Rows:
    """Rows of one table that a canary would add: dense, or weights times one vector."""

    table: str
    ids: NDArray[np.int32]
    values: Floats  # [R, D], or [D] where rows are outer
    weights: Floats | None = None  # [R]

    def add_to(self, tables: Tables, times: float) -> None:
        """Add the rows, multiplied, to the sum of their table."""
        table = tables[self.table]
        rows = self._values(table.shape[1]) if self.weights is None else self.weights[:, None] * self.values
        if np.all(self.ids[1:] > self.ids[:-1]):
            table[self.ids] += times * rows
        else:
            np.add.at(table, self.ids, times * rows.astype(np.float64))

    def dot(self, tables: Tables) -> float:
        """Return the inner product with a table."""
        rows = tables[self.table][self.ids]
        if self.weights is not None:
            return float(self.weights @ rows @ self.values)
        return float((rows * self._values(rows.shape[1])).sum())

    def _values(self, width: int) -> Floats:
        """Return dense rows without the padding before their last number."""
        return np.concatenate([self.values[:, : width - 1], self.values[:, -1:]], axis=1)


@dataclass(frozen=True)
class AuditedPrivacy(DifferentialPrivacy):
    """A stage under audit: it bounds and draws as it always does, and keeps what a reader of the sums needs."""

    canaries: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))  # ids
    is_member: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    scores: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    pending: dict[int, list[_Rows]] = field(default_factory=dict)  # of the round that is being summed

    def shape(self, draft: Draft, key: Key) -> None:
        """Let canaries send as much as a client may, bound all clients, and leave out those whose coin says so."""
        place = np.searchsorted(self.canaries, draft.clients)
        is_canary = self.canaries[np.minimum(place, len(self.canaries) - 1)] == draft.clients
        for part in draft.parts:
            long = np.where(is_canary, LONG, np.float32(1))
            owner = slice(None) if part.is_outer else np.repeat(np.arange(len(is_canary)), np.diff(part.planned.ptr))
            part.values = part.values * long[owner][:, None]
        super().shape(draft, key)
        for at in np.flatnonzero(is_canary):
            found = [rows for part in draft.parts for rows in self._rows_of(part, int(at))]
            self.pending[int(draft.clients[at])] = found
        is_out = is_canary.copy()
        is_out[is_canary] = ~self.is_member[place[is_canary]]
        draft.multiply(np.where(is_out, np.float32(0), np.float32(1)))

    def _rows_of(self, part: DraftRows, at: int) -> list[_Rows]:
        """Return what the client at a position of a draft adds to a table, and to its counts where they are read."""
        rows = slice(int(part.planned.ptr[at]), int(part.planned.ptr[at + 1]))
        kept = np.flatnonzero(part.kept[rows]) if len(part.kept) else slice(None)
        table, ids, factors = part.planned.table, part.ids[rows][kept], part.factors[rows][kept]
        if part.is_outer:
            found = [_Rows(table, ids, part.values[at].copy(), part.row_weights()[rows][kept])]
        else:
            found = [_Rows(table, ids, part.values[rows][kept] * factors[:, None])]
        if table in self.count_units:
            found.append(_Rows(_counts_of(table), ids, factors[:, None] * np.float32(self.count_units[table])))
        return found

    def add_noise(self, total: Total, share: float, n_asked: int, source: NoiseSource) -> Total:
        """Add noise, and score each canary by what the noisy sums hold beyond the real clients."""
        noisy = super().add_noise(total, share, n_asked, source)
        unit = float(self.ring.scale)
        seen: Tables = {name: (noisy.sums[name] - sums) / unit for name, sums in total.sums.items()}
        for name in self.count_units:
            seen[_counts_of(name)] = ((noisy.counts[name] - total.counts[name]) / unit)[:, None]
        precisions = {name: 1.0 / max(float(np.square(array).mean()), 1e-12) for name, array in seen.items()}
        for at, rows in self._asked():
            for one in rows:
                one.add_to(seen, float(self.is_member[at]) - 0.5)
        for at, rows in self._asked():
            self.scores[at] += sum(one.dot(seen) * precisions[one.table] for one in rows)
        self.pending.clear()
        return noisy

    def _asked(self) -> list[tuple[int, list[_Rows]]]:
        return [(int(np.searchsorted(self.canaries, client)), rows) for client, rows in sorted(self.pending.items())]


@dataclass(frozen=True)
class AuditedLaplace(AuditedPrivacy, LaplacePrivacy):
    """The same with Laplace noise."""


def _counts_of(table: str) -> str:
    return f"counts of {table}"


@dataclass(frozen=True)
class AuditResult:
    """What the ledger states, and what was measured."""

    epsilon_server: float  # by the ledger
    delta: float
    bounds: dict[str, float]  # lower bounds of epsilon, by what they assume
    canaries: int  # of all runs together
    right: int  # guesses, one for each canary
    runs: int
    rounds: int  # of each run
    confidence: float
    exposure: Exposure  # by the meter: whom of the canaries a reader would name, each as likely in as out before

    @property
    def epsilon_lower(self) -> float:
        """The largest lower bound; it holds with the stated confidence."""
        return max(self.bounds.values())

    @property
    def ok(self) -> bool:
        """Whether what was measured is within the ledger."""
        return self.epsilon_lower <= self.epsilon_server

    def to_dict(self) -> dict[str, Any]:
        """Return what `tacit audit --json` prints of it."""
        found = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "exposure"}
        found["exposure"] = asdict(self.exposure)
        return {**found, "epsilon_lower": self.epsilon_lower, "ok": self.ok, "simulated_noise": True}


@dataclass(frozen=True)
class AuditConfig:
    """How an audit is made."""

    canaries: int = 500
    runs: int = 1
    confidence: float = CONFIDENCE


def audit(
    method: Federated,
    clients: Clients,
    catalog: Catalog,
    key: Key,
    runtime: RuntimeConfig,
    config: DPConfig,
    how: AuditConfig = AuditConfig(),  # noqa: B008 - frozen
) -> AuditResult:
    """Train with canaries, once or more often, and return the ledger's epsilon beside what a reader could prove."""
    if config.mode == "local":
        raise ConfigError(
            "In privacy.mode=local the server reads every message, and a simulation draws the noise of their sum only.",
            "Audit privacy.mode=central or distributed: the noise of one message is that of a whole sum there.",
        )
    n_canaries = min(how.canaries, catalog.n_items)
    if n_canaries < FEWEST:
        raise ConfigError(f"An audit needs {FEWEST} canaries, each with an item of its own.", "Use more items.")
    cohort = add_canaries(clients, n_canaries)
    scores, members, ledger, rounds = [], [], 0.0, 0
    with one_blas_thread():
        for number in range(how.runs):
            run_key = key.child("audit", number)
            built = build_privacy(config, method, cohort, catalog, run_key, runtime.ring, runtime.rounds)
            stage = _watch(built, cohort.ids[-n_canaries:])
            coins = run_key.child("coins").uniform(stage.canaries, 1)[:, 0] < 0.5
            stage.is_member[:] = coins
            log = PrivacyLog()
            options = SimulationOptions(runtime.rounds, runtime.secure, privacy_log=log)
            for _ in simulate(UpdatePath(method, [stage], runtime.ring), cohort, catalog, run_key, None, options):
                pass
            scores.append(stage.scores)
            members.append(coins)
            ledger = max(ledger, log.guarantee(len(cohort), stage.delta).epsilon_server)
            rounds = max(rounds, len(log.rounds))
    guessed, truth = np.concatenate(scores), np.concatenate(members)
    each = 1 - (1 - how.confidence) / 2
    bounds = {"any_mechanism": bound_by_one_run(guessed, truth, stage.delta, each)}
    if not isinstance(stage, LaplacePrivacy):
        bounds["gaussian_noise"] = bound_gaussian(guessed, truth, stage.delta, each)
    right = int(((guessed > 0) == truth).sum())
    exposure = measure_exposure(np.flatnonzero(truth), np.ones(len(truth)), guessed)
    return AuditResult(ledger, stage.delta, bounds, len(truth), right, how.runs, rounds, how.confidence, exposure)


def add_canaries(clients: Clients, n_canaries: int) -> Clients:
    """Return the cohort with so many canaries behind it: each has one item, the most frequent ones first."""
    counts = np.bincount(clients.items, minlength=clients.n_items)
    items = np.argsort(-counts, kind="stable")[:n_canaries].astype(np.int32)
    first = int(clients.ids.max(initial=-1)) + 1
    latest = 0 if clients.times is None else int(clients.times.max(initial=0))
    return Clients(
        np.concatenate([clients.ids, np.arange(first, first + n_canaries)]),
        offsets(np.concatenate([clients.sizes, np.ones(n_canaries, np.int64)])),
        np.concatenate([clients.items, items]),
        clients.n_items,
        None if clients.values is None else np.concatenate([clients.values, np.ones(n_canaries, np.float32)]),
        None if clients.times is None else np.concatenate([clients.times, np.full(n_canaries, latest)]),
        None,
        None if clients.places is None else np.concatenate([clients.places, np.zeros(n_canaries, np.int32)]),
    )


def _watch(stage: DifferentialPrivacy, canaries: NDArray[np.int64]) -> AuditedPrivacy:
    """Return the same stage, which keeps what a reader of its sums needs."""
    given = {one.name: getattr(stage, one.name) for one in fields(stage)}
    kind = AuditedLaplace if isinstance(stage, LaplacePrivacy) else AuditedPrivacy
    return kind(**given, canaries=canaries, is_member=np.zeros(len(canaries), np.bool_), scores=np.zeros(len(canaries)))
