"""The one path: data -> split -> learn -> score -> metrics per person -> verdict -> a run folder."""

from __future__ import annotations

import hashlib
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from tacit.config import Experiment, to_yaml
from tacit.data import Dataset, Split, describe, load, split
from tacit.errors import ConfigError
from tacit.evaluation import Evaluation, Leak, evaluate, narrow, sample_people, verdict
from tacit.methods.base import Centralised, ScoresPairs, build
from tacit.random import Key
from tacit.report.folder import Run
from tacit.runtimes.central import Learnt, Progress, learn, one_blas_thread, score_alone
from tacit.runtimes.recommender import Recommender
from tacit.types import Array, Floats, Heldout, Model

try:
    import resource
except ImportError:  # Windows has no such module
    resource = None  # type: ignore[assignment]


def silent(what: str, done: int, total: int) -> None:
    """Report no progress."""


@dataclass(frozen=True)
class Bench:
    """A dataset, cut: every run on it is judged on the same held-out items against the same candidates."""

    name: str
    parts: Split
    about: dict[str, Any]


def prepare(experiment: Experiment, data: Dataset | None = None, progress: Progress = silent) -> Bench:
    """Load and cut the data of an experiment; comparisons do it once for many methods."""
    progress("loading data", 0, 0)
    dataset = load(experiment.data) if data is None else data
    parts = split(dataset, experiment.split, Key(experiment.seed).child("split"))
    return Bench(dataset.name, parts, describe(dataset))


def run(
    experiment: Experiment,
    data: Dataset | None = None,
    *,
    folder: Path | str | None = None,
    progress: Progress = silent,
    bench: Bench | None = None,
) -> Run:
    """Run an experiment. With a `folder`, write it there; `data` takes the place of the configured source."""
    log = _Log()
    bench = bench or prepare(experiment, data, progress)
    log.add(f"data {bench.name}: {dict(bench.parts.counts)}")
    parts, key, config = bench.parts, Key(experiment.seed), experiment.evaluation
    method = experiment.method.build()
    if not isinstance(method, Centralised):
        raise ConfigError(f"'{experiment.method.name}' does not learn in one place.", "Choose a centralised method.")

    def look(model: Model) -> dict[str, float]:
        assert parts.validation is not None
        return judged(model, parts.validation, lists=False).overall

    def judged(model: Model, heldout: Heldout, lists: bool = True) -> Evaluation:
        def score(positions: Array) -> Floats:
            part = model.take(positions)
            scores: Floats = method.score(part.shared, part.private, parts.train.take(positions))
            return scores

        def score_pairs(rows: Array, items: Array) -> Floats:
            scores: Floats = method.score_pairs(model.shared, model.private, rows, items, parts.train)
            return scores

        with one_blas_thread():
            return evaluate(
                score,
                heldout,
                parts.catalog,
                config,
                key.child("candidates"),
                threads=experiment.runtime.threads,
                score_pairs=score_pairs if isinstance(method, ScoresPairs) else None,
                lists=lists,
            )

    learnt = learn(
        method,
        parts.train,
        parts.catalog,
        key.child("learn"),
        experiment.runtime,
        look=look if parts.validation is not None else None,
        primary=config.primary,
        progress=progress,
    )
    log.add(f"learnt {experiment.method.name}: {learnt.passes} passes kept")
    progress("evaluating", 0, 0)
    started = time.perf_counter()
    evaluation = judged(learnt.model, parts.test)
    seconds = time.perf_counter() - started
    log.add(f"evaluated {len(evaluation.people)} people")
    leak = check_leak(method, experiment, parts, progress)
    if leak is not None:
        log.add(f"leak verdict: {leak.reason}")
    finished = _finished(experiment, bench, learnt, evaluation, leak, seconds, log)
    return finished.save(Path(folder)) if folder is not None else finished


def check_leak(method: Any, experiment: Experiment, parts: Split, progress: Progress = silent) -> Leak | None:
    """Let a sample of people learn alone; whoever beats Most Popular so has been told what was held out."""
    config, key = experiment.evaluation, Key(experiment.seed)
    people = sample_people(parts.test, config.twin_people, key.child("twin"))
    if not len(people):
        return None
    progress("learning alone", 0, 0)
    learn_key = key.child("learn")
    popular = build("most-popular")
    counted = next(iter(popular.fit(parts.train, parts.catalog, learn_key)))
    alone = score_alone(method, parts.train, parts.catalog, learn_key)

    def by_popularity(positions: Array) -> Floats:
        scores: Floats = popular.score(counted.shared, counted.private, parts.train.take(people[positions]))
        return scores

    def by_herself(positions: Array) -> Floats:
        return alone(people[positions])

    sample = narrow(parts.test, people)
    twin, reference = (
        evaluate(score, sample, parts.catalog, config, key.child("candidates"), lists=False, auc=True)
        for score in (by_herself, by_popularity)
    )
    return verdict(twin, reference, config.primary, method.uses_features)


def folder_name(experiment: Experiment) -> str:
    """Return the same folder name for the same configuration: data, method, seed and a fingerprint."""
    fingerprint = hashlib.blake2b(to_yaml(experiment).encode(), digest_size=4).hexdigest()
    return f"{Path(experiment.data.source).stem}-{experiment.method.name}-{experiment.seed}-{fingerprint}"


def _finished(
    experiment: Experiment,
    bench: Bench,
    learnt: Learnt,
    evaluation: Evaluation,
    leak: Leak | None,
    seconds: float,
    log: _Log,
) -> Run:
    parts = bench.parts
    labels = parts.user_ids.labels
    # A centralised method is sent every history whole: an item id of four bytes for each thing a person did.
    ledger = pl.DataFrame(
        {
            "user": labels[parts.train.ids].tolist(),
            "round": np.zeros(len(parts.train), np.int32),
            "what": ["whole history"] * len(parts.train),
            "rows": parts.train.sizes,
            "bytes": parts.train.sizes * 4,
        }
    )
    counts = np.bincount(parts.train.items, minlength=parts.catalog.n_items)
    items = pl.DataFrame(
        {
            "item": parts.catalog.item_ids.labels.tolist(),
            "title": [parts.catalog.title(i) for i in range(parts.catalog.n_items)],
            "train_count": counts,
            "recommended": evaluation.recommended[evaluation.k[-1]],
        }
    )
    people = pl.DataFrame({"user": labels[evaluation.people].tolist(), **evaluation.values})
    result = {
        "run": None,
        "name": experiment.name,
        "method": experiment.method.name,
        "data": bench.name,
        "protocol": experiment.evaluation.protocol,
        "sampling": parts.sampling,
        "seed": experiment.seed,
        "rounds": learnt.passes,
        "metrics": evaluation.overall,
        "ci": {name: list(evaluation.ci(name)) for name in evaluation.values},
        "users": len(evaluation.people),
        "train_seconds": learnt.seconds,
        "evaluate_seconds": seconds,
        "bytes_up": int(ledger["bytes"].sum()),
        "bytes_down": 0,
        "leak": None if leak is None else leak.to_dict(),
        "peak_mb": peak_megabytes(),
        "notes": list(evaluation.notes),
        "about_data": {**bench.about, "counts": dict(parts.counts)},
    }
    trained = Recommender(
        experiment.method.name,
        experiment.method.options,
        learnt.model,
        parts.train,
        parts.catalog,
        parts.user_ids,
    )
    return Run(
        experiment, result, people, items, pl.DataFrame(learnt.curve), ledger, log.lines, None, trained, evaluation
    )


def peak_megabytes() -> float:
    """Return the peak memory of this process so far."""
    if resource is None:
        return float("nan")
    unit = 1 if sys.platform == "darwin" else 1024
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20, 1)


class _Log:
    def __init__(self) -> None:
        self.started = time.perf_counter()
        self.lines: list[str] = []

    def add(self, text: str) -> None:
        self.lines.append(f"{time.perf_counter() - self.started:8.2f} s  {text}")
