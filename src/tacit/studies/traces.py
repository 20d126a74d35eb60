"""A method followed pass by pass: validation and test measured on the way, the pass chosen by validation alone."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tacit.config import Experiment, apply_overrides
from tacit.errors import DivergedError
from tacit.lab.experiments import PreparedData, TrainingJob
from tacit.lab.training import PassOptions, passes, passes_of
from tacit.numerics import one_blas_thread
from tacit.random import Key
from tacit.studies.setup import StudySetup
from tacit.types import Model

PRIMARY = "NDCG@10"
METRICS = ("HR@10", "NDCG@10")


@dataclass(frozen=True)
class Checkpoint:
    """A model after some passes."""

    passes: int
    seconds: float  # spent learning until then
    validation: dict[str, float]
    test: dict[str, float]


@dataclass(frozen=True)
class Trace:
    """A method's checkpoints, one line per seed."""

    label: str
    lines: list[list[Checkpoint]]
    settings: str = ""

    def best_checkpoints(self) -> list[Checkpoint]:
        """Return the checkpoint of each seed that was best on validation."""
        return [max(line, key=lambda checkpoint: checkpoint.validation[PRIMARY]) for line in self.lines]

    def test_values(self, metric: str) -> list[float]:
        """Return the test metric of each seed at the chosen checkpoint."""
        return [checkpoint.test[metric] for checkpoint in self.best_checkpoints()]

    def curve(self, metric: str) -> list[tuple[float, float]]:
        """Return (passes, mean of the test metric over seeds)."""
        return [
            (checkpoints[0].passes, float(np.mean([checkpoint.test[metric] for checkpoint in checkpoints])))
            for checkpoints in zip(*self.lines, strict=False)  # as far as all seeds came
        ]

    def passes_to(self, metric: str, level: float) -> int | None:
        """Return after how many passes the mean over seeds first reaches a level of the test metric."""
        return next((int(at) for at, value in self.curve(metric) if value >= level), None)

    def as_json(self) -> dict[str, Any]:
        """Return all checkpoints."""
        return {
            "settings": self.settings,
            "lines": [[asdict(checkpoint) for checkpoint in line] for line in self.lines],
        }


def trace_method(
    setup: StudySetup,
    label: str,
    method: Mapping[str, Any],
    checkpoints: int,
    *,
    seeds: Sequence[int] | None = None,
    prepared: PreparedData | None = None,
) -> Trace:
    """Learn with each seed, with about so many checkpoints; on the lab's prepared data unless another is given."""
    prepared = prepared or setup.practice
    lines = [
        _line(setup, label, method, seed, checkpoints, prepared) for seed in (setup.seeds if seeds is None else seeds)
    ]
    return Trace(label, lines, " ".join(f"{key}={value}" for key, value in method.items() if key != "name"))


def _line(
    setup: StudySetup, label: str, method: Mapping[str, Any], seed: int, checkpoints: int, prepared: PreparedData
) -> list[Checkpoint]:
    given = apply_overrides(
        setup.validation_split(), {"seed": seed, "method": dict(method), "evaluation.local_only_users": 0}
    )
    experiment = Experiment.from_options(given, "the recipe")
    parts, built = prepared.parts, experiment.method.build()
    job = TrainingJob.from_split(experiment, parts)
    assert parts.validation is not None
    total = passes_of(built, parts.train)
    every = max(1, total // checkpoints)
    found: list[Checkpoint] = []
    spent = 0.0
    how = PassOptions(ring=experiment.runtime.ring)
    learning = passes(built, parts.train, parts.catalog, Key(seed).child("learn"), how)
    with one_blas_thread():
        started = time.perf_counter()
        for done, model in enumerate(_until_diverged(learning, found), start=1):
            spent += time.perf_counter() - started
            setup.progress(f"{setup.name}: {label}, seed {seed}", done, total)
            if done % every == 0 or done == total:
                seen = [job.evaluate(model, part, lists=False).overall for part in (parts.validation, parts.test)]
                found.append(Checkpoint(done, round(spent, 2), *({m: one[m] for m in METRICS} for one in seen)))
            started = time.perf_counter()
    return found


def _until_diverged(learning: Iterator[Model], found: list[Checkpoint]) -> Iterator[Model]:
    """Yield the models of a run; one that diverges ends with what was `found` of it, if anything was."""
    try:
        yield from learning
    except DivergedError:
        if not found:
            raise
