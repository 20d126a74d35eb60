"""The one path: data -> split -> learn -> score -> metrics per person -> verdict -> a run folder."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tacit.config import Experiment, to_yaml
from tacit.data import Dataset, Split, describe, load, split
from tacit.evaluation import (
    Evaluation,
    EvaluationOptions,
    LeakVerdict,
    evaluate,
    is_decided,
    judge_leak,
    sample_people,
    sample_stages,
    select_heldout,
    swap,
)
from tacit.lab.training import Observer, TrainingResult, learn, score_alone
from tacit.methods.base import Centralised, Method, build
from tacit.numerics import one_blas_thread
from tacit.privacy.clipping import Clipping, ClippingConfig
from tacit.privacy.disclosure import Disclosure, DisclosureConfig
from tacit.privacy.update_sink import Stage
from tacit.random import Key
from tacit.report.finish import Findings, assemble_run
from tacit.report.folder import Run
from tacit.serving.recommender import Recommender
from tacit.types import Array, Catalog, Clients, Floats, Heldout, Model, Progress, Vocabulary

SPARED = 12  # people who learn alone once more, where training is given held-out items to spare


def silent(what: str, done: int, total: int) -> None:
    """Report no progress."""


@dataclass(frozen=True)
class PreparedData:
    """A dataset, cut: every run on it is judged on the same held-out items against the same candidates."""

    name: str
    parts: Split
    about: dict[str, Any]


def prepare_data(experiment: Experiment, data: Dataset | None = None, progress: Progress = silent) -> PreparedData:
    """Load and cut the data of an experiment; comparisons do it once for many methods."""
    progress("loading data", 0, 0)
    dataset = (
        load(experiment.data, lambda done, total: progress("downloading", done, total or 0)) if data is None else data
    )
    parts = split(dataset, experiment.split, Key(experiment.seed).child("split"))
    return PreparedData(dataset.name, parts, describe(dataset))


@dataclass(frozen=True)
class TrainingJob:
    """An experiment with its training and validation parts. It holds no test items."""

    experiment: Experiment
    train: Clients
    validation: Heldout | None
    catalog: Catalog
    user_ids: Vocabulary

    @classmethod
    def from_split(cls, experiment: Experiment, parts: Split) -> TrainingJob:
        """Take from a split what may be learnt from."""
        return cls(experiment, parts.train, parts.validation, parts.catalog, parts.user_ids)

    def learn(self, progress: Progress = silent) -> TrainingResult:
        """Train, with checkpoints as the runtime says."""
        experiment, key, validation = self.experiment, Key(self.experiment.seed), self.validation
        look = None if validation is None else lambda model: self.evaluate(model, validation, lists=False).overall
        return learn(
            experiment.method.build(),
            self.train,
            self.catalog,
            key.child("learn"),
            experiment.runtime,
            [self._stage(stage) for stage in experiment.stages],
            Observer(look, experiment.evaluation.primary, self.user_ids, progress),
        )

    def _stage(self, config: DisclosureConfig | ClippingConfig) -> Stage:
        if isinstance(config, ClippingConfig):
            return Clipping.build(config)
        return Disclosure.build(config, self.user_ids, self.catalog, Key(self.experiment.seed).child("people"))

    def make_recommender(self, model: Model) -> Recommender:
        """Put a model behind a counter."""
        chosen, seed = self.experiment.method, self.experiment.seed
        return Recommender(chosen.name, chosen.options, model, self.train, self.catalog, self.user_ids, seed)

    def evaluate(self, model: Model, heldout: Heldout, lists: bool = True) -> Evaluation:
        """Evaluate a model on a held-out part; every experiment of one seed ranks the same candidates."""
        recommender = self.make_recommender(model)
        with one_blas_thread():
            return evaluate(
                recommender.score,
                heldout,
                self.catalog,
                self.experiment.evaluation,
                Key(self.experiment.seed).child("candidates"),
                EvaluationOptions(
                    threads=self.experiment.runtime.threads,
                    score_pairs=recommender.score_pairs if recommender.method.scores_pairs else None,
                    lists=lists,
                ),
            )


def run(
    experiment: Experiment,
    data: Dataset | None = None,
    *,
    folder: Path | str | None = None,
    progress: Progress = silent,
    prepared: PreparedData | None = None,
) -> Run:
    """Run an experiment. With a `folder`, write it there; `data` takes the place of the configured source."""
    log = _Log()
    if data is not None:  # a configuration cannot bring back what it was handed: say so instead of naming other data
        handed = experiment.data.model_copy(update={"source": f"given-{data.name}"})
        experiment = experiment.model_copy(update={"data": handed})
    prepared = prepared or prepare_data(experiment, data, progress)
    parts = prepared.parts
    log.add(f"data {prepared.name}: {dict(parts.counts)}")
    job = TrainingJob.from_split(experiment, parts)
    learnt = job.learn(progress)
    log.add(f"learnt {experiment.method.name}: kept the model of pass {learnt.passes}")
    progress("evaluating", 0, 0)
    started = time.perf_counter()
    evaluation = job.evaluate(learnt.model, parts.test)
    seconds = time.perf_counter() - started
    log.add(f"evaluated {len(evaluation)} people")
    leak = check_leak(experiment.method.build(), experiment, parts, progress, early=True)
    log.add(f"leak verdict: {leak.reason if leak else 'not asked for'}")
    findings = Findings(learnt, evaluation, seconds, leak, log.lines)
    result = assemble_run(
        experiment, prepared.name, prepared.about, parts, job.make_recommender(learnt.model), findings
    )
    return result.save(Path(folder)) if folder is not None else result


def check_leak(
    method: Method, experiment: Experiment, parts: Split, progress: Progress = silent, *, early: bool = False
) -> LeakVerdict | None:
    """Let a sample of people learn alone; a model that knows what was held out from its own person was told.

    With `early`, people learn in stages, until the verdict is clear or there is no sign of a leak.
    """
    config, key = experiment.evaluation, Key(experiment.seed)
    everybody = sample_people(parts.test, config.local_only_people, key.child("twin"))
    if not len(everybody):
        return None
    shuffled = everybody[np.argsort(key.child("stages").bits(parts.train.ids[everybody], 1)[:, 0], kind="stable")]

    def learn_alone(clients: Clients, positions: Array) -> Floats:
        ring = experiment.runtime.ring
        return score_alone(method, clients, parts.catalog, key.child("learn"), ring, progress)(positions)

    first, *more = sample_stages(len(shuffled)) if early else [len(shuffled)]
    people = shuffled[:first]
    scores = learn_alone(parts.train, people)
    others = _spare_items_of_others(parts.train.take(people[:SPARED]))
    reads_held_out = others is not None and not np.array_equal(
        scores[:SPARED], learn_alone(others, np.arange(len(others)))
    )
    swapped = swap(scores, select_heldout(parts.test, people), parts.catalog)
    for n in more:
        if is_decided(swapped) or reads_held_out or method.uses_features:
            break
        people, scores = shuffled[:n], np.concatenate([scores, learn_alone(parts.train, shuffled[len(scores) : n])])
        swapped = swap(scores, select_heldout(parts.test, people), parts.catalog)
    popular = build("most-popular")
    assert isinstance(popular, Centralised)
    counted = next(iter(popular.fit(parts.train, parts.catalog, key)))

    def by_popularity(positions: Array) -> Floats:
        popularity: Floats = popular.score(counted.shared, counted.private, parts.train.take(people[positions]))
        return popularity

    sample = select_heldout(parts.test, people)
    local_only, reference = (
        evaluate(
            score, sample, parts.catalog, config, key.child("candidates"), EvaluationOptions(lists=False, auc=True)
        )
        for score in (lambda positions: scores[positions], by_popularity)
    )
    return judge_leak(local_only, reference, swapped, method.uses_features, reads_held_out)


def _spare_items_of_others(clients: Clients) -> Clients | None:
    """Return clients whose negatives spare the next client's held-out items; None if theirs spare nothing."""
    if clients.avoid is None:
        return None
    return replace(clients, avoid=replace(clients.avoid.take(np.roll(np.arange(len(clients)), -1)), ids=clients.ids))


def folder_name(experiment: Experiment) -> str:
    """Return the same folder name for the same configuration: data, method, seed and a fingerprint."""
    fingerprint = hashlib.blake2b(to_yaml(experiment).encode(), digest_size=4).hexdigest()
    return f"{Path(experiment.data.source).stem}-{experiment.method.name}-{experiment.seed}-{fingerprint}"


class _Log:
    def __init__(self) -> None:
        self.started = time.perf_counter()
        self.lines: list[str] = []

    def add(self, text: str) -> None:
        self.lines.append(f"{time.perf_counter() - self.started:8.2f} s  {text}")
