"""Centralised learning in this process, and the same method learning alone: the local-only twin."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from pydantic import Field
from threadpoolctl import threadpool_limits

from tacit.errors import MethodError
from tacit.methods.base import Centralised
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Config, Floats, Model

Look = Callable[[Model], Mapping[str, float]]
Progress = Callable[[str, int, int], None]  # what is being done, how far, out of how much (0: unknown)


class RuntimeConfig(Config):
    """Where and how long learning runs."""

    threads: int = Field(1, ge=1, le=256, description="worker threads; the numbers do not depend on it")
    look_every: int = Field(0, ge=0, description="passes between looks at the validation part; 0: never look")
    patience: int = Field(0, ge=0, description="looks without a better one before stopping; 0: never stop early")
    keep: str = Field("best", pattern="^(best|last)$", description="the model of the best look, or of the last pass")


@dataclass(frozen=True)
class Learnt:
    """A model and how it came about."""

    model: Model
    passes: int  # after which the kept model was taken
    seconds: float  # spent learning, looks left out
    curve: list[dict[str, float]] = field(default_factory=list)  # one row per look


def learn(
    method: Centralised,
    clients: Clients,
    catalog: Catalog,
    key: Key,
    config: RuntimeConfig,
    *,
    look: Look | None = None,
    primary: str = "",
    progress: Progress = lambda what, done, total: None,
) -> Learnt:
    """Learn from a cohort. With a `look` at the validation part, keep the best pass by `primary` and stop early."""
    total = int(getattr(getattr(method, "config", None), "epochs", 1))
    curve: list[dict[str, float]] = []
    kept: Model | None = None
    kept_at, best, worse, passes, spent = 0, -np.inf, 0, 0, 0.0
    model: Model | None = None
    with one_blas_thread():
        started = time.perf_counter()
        for model in method.fit(clients, catalog, key):
            passes += 1
            spent += time.perf_counter() - started
            progress("learning", passes, total)
            if look is not None and config.look_every and (passes % config.look_every == 0 or passes == total):
                seen = look(model)
                curve.append({"pass": passes, "seconds": spent, **seen})
                if config.keep == "best" and seen[primary] > best:
                    best, kept, kept_at, worse = seen[primary], model.copy(), passes, 0
                elif config.patience:
                    worse += 1
                    if worse >= config.patience:
                        break
            started = time.perf_counter()
    if model is None:
        raise MethodError("The method learnt nothing: it made no pass over the data.", "Set its epochs to at least 1.")
    return Learnt(kept or model, kept_at or passes, spent, curve)


def score_alone(method: Centralised, clients: Clients, catalog: Catalog, key: Key) -> Callable[[Array], Floats]:
    """Return a scorer in which every person is served by a model that learnt from her own history only."""

    def score(positions: Array) -> Floats:
        rows = np.empty((len(positions), clients.n_items), np.float32)
        with one_blas_thread():
            for row, position in enumerate(positions):
                person = clients.take([position])
                for model in method.fit(person, catalog, key):
                    last = model
                rows[row] = method.score(last.shared, last.private, person)[0]
        return rows

    return score


def one_blas_thread() -> threadpool_limits:
    """Sums inside BLAS depend on how many threads share them; one thread gives the same bits on every machine size."""
    return threadpool_limits(limits=1, user_api="blas")
