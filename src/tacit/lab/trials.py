"""One trial of a search: a combination of options, learnt with each seed and judged on the validation part."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tacit.config import Experiment, to_yaml
from tacit.errors import DataError, DivergedError
from tacit.lab.experiments import PreparedData, TrainingJob, silent
from tacit.lab.inputs import digest_inputs
from tacit.lab.jobs import JobFailure, PreparedParts
from tacit.lab.shard_worker import WorkerIdentity
from tacit.report.folder import write_whole
from tacit.types import Progress


@dataclass(frozen=True)
class Trial:
    """One combination and what it reached on the validation part, on average over its seeds; none if one diverged."""

    settings: dict[str, Any]
    value: float | None
    passes: int  # of the best checkpoint; 0 if learning diverged
    seconds: float  # of all seeds
    metrics: dict[str, float]
    problem: str = ""
    users: int = 0  # over whom the value is a mean
    is_hidden: bool = False  # the choice is private: what it reached is not reported
    failed: bool = False  # `problem` says why

    @property
    def diverged(self) -> bool:
        """True if learning left the finite numbers."""
        return self.value is None and not self.is_hidden and not self.failed

    @property
    def outcome(self) -> str:
        """In a word, why there is no value to show; empty if there is one."""
        return "failed" if self.failed else "diverged" if self.diverged else "not told" if self.is_hidden else ""


@dataclass(frozen=True)
class TrialOutcome:
    """A trial, what its trainings guarantee, and on which data it was made."""

    trial: Trial
    trainings: tuple[dict[str, Any], ...]
    data: str
    is_reused: bool = False
    failure: JobFailure | None = None


@dataclass(frozen=True)
class TrialJob:
    """One combination with all its seeds; `kept` is where finished trials lie."""

    settings: dict[str, Any]
    base: Experiment  # whose data and split it is
    experiments: tuple[Experiment, ...]  # one for each seed
    kept: Path | None
    again: bool = False

    @property
    def label(self) -> str:
        """The settings in a few words."""
        return describe_settings(self.settings)

    def run(self, parts: PreparedParts, progress: Progress) -> TrialOutcome:
        """Make the trial, unless it was made before of the same data by the same code."""
        prepared = parts.prepare(self.base, progress)
        question = None if self.kept is None else self._question(prepared)
        file = None if self.kept is None or question is None else self.kept / f"{question}.json"
        if file is not None and not self.again and (found := _read_trial(file)) is not None:
            return TrialOutcome(replace(found, settings=self.settings), (), prepared.name, True)
        trainings: list[dict[str, Any]] = []
        jobs = [TrainingJob.from_split(experiment, prepared.parts) for experiment in self.experiments]
        trial = run_trial(jobs, self.settings, progress, trainings)
        if file is not None:
            write_whole(file, {"settings": describe_settings(self.settings), "trial": asdict(trial)})
        return TrialOutcome(trial, tuple(trainings), prepared.name)

    def _question(self, prepared: PreparedData) -> str | None:
        """Return a digest of all that decides what a trial reaches; none where that is not known."""
        inputs = [digest_inputs(experiment.method, experiment.stages) for experiment in self.experiments]
        if None in inputs:
            return None
        asked = [to_yaml(experiment.model_copy(update={"name": "run"})) for experiment in self.experiments]
        made_by = repr(WorkerIdentity.of_this_process().bits)
        text = "\n".join([*asked, *map(str, inputs), str(prepared.about.get("digest")), made_by])
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _read_trial(file: Path) -> Trial | None:
    try:
        return Trial(**json.loads(file.read_text(encoding="utf-8"))["trial"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def run_trial(
    jobs: Sequence[TrainingJob],
    settings: Mapping[str, Any],
    progress: Progress = silent,
    trainings: list[dict[str, Any]] | None = None,
) -> Trial:
    """Learn from the training part with each seed and measure on the validation part; divergence is a result.

    What each training guarantees is added to `trainings`, where there is a guarantee.
    """
    learnt, judged = [], []
    for job in jobs:
        if job.validation is None:
            raise DataError("No user has an item in the validation part.", "Raise split.validation.")
        try:
            learnt.append(job.learn(progress))
            privacy = learnt[-1].privacy
            if trainings is not None and privacy is not None:
                trainings.append(privacy)
        except DivergedError as error:
            return Trial(dict(settings), None, 0, 0.0, {}, error.message)
        measured = job.evaluate(learnt[-1].model, job.validation, lists=False)
        judged.append(measured.overall)
    seconds = sum(one.seconds for one in learnt)
    if len(jobs) > 1 and learnt[0].curve:  # the pass that is best on average, among those that all seeds reached
        checkpoints = [_average(rows) for rows in zip(*(one.curve for one in learnt), strict=False)]
        best = max(checkpoints, key=lambda checkpoint: checkpoint[jobs[0].experiment.evaluation.primary])
        metrics, passes = {name: best[name] for name in judged[0] if name in best}, int(best["pass"])
    else:
        metrics, passes = _average(judged), learnt[0].passes
    value = metrics[jobs[0].experiment.evaluation.primary]
    return Trial(dict(settings), value, passes, seconds, metrics, users=len(measured))


def _average(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of every number that all rows have."""
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0] if all(name in row for row in rows)}


def describe_settings(settings: Mapping[str, Any]) -> str:
    """Return settings in a few words.

    >>> describe_settings({"method.learning_rate": 0.05, "method.factors": 10})
    'learning_rate=0.05 factors=10'
    """
    return " ".join(f"{path.split('.')[-1]}={value}" for path, value in settings.items())
