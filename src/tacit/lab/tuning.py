"""Search for good options on the validation part; the test part is not passed on, so no trial can use it."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field, field_validator

from tacit.config import Experiment, apply_overrides, to_yaml
from tacit.data import Dataset
from tacit.errors import ConfigError, DataError, DivergedError
from tacit.lab.experiments import PreparedData, TrainingJob, prepare_data, silent
from tacit.methods.choice import MethodChoice
from tacit.random import Key
from tacit.report.folder import whole_folder, write_json
from tacit.types import Progress

SEARCH_GROUPS = ("method", "privacy", "runtime")  # what a search may vary: the rest decides what the figures mean


class Tuning(Experiment):
    """An experiment, and the values of its options to try: every combination, or some of them drawn by chance."""

    search: dict[str, tuple[Any, ...]] = Field(min_length=1, description="option path -> values to try")
    trials: int = Field(0, ge=0, description="number of combinations to try, drawn at random; 0: all")
    repeat: int = Field(1, ge=1, description="seeds s, s+1, ... per combination; their mean is compared")

    @field_validator("search")
    @classmethod
    def _something_to_try(cls, search: dict[str, tuple[Any, ...]]) -> dict[str, tuple[Any, ...]]:
        for path, values in search.items():
            if path.split(".")[0] not in SEARCH_GROUPS:
                known = ", ".join(f"{section}." for section in SEARCH_GROUPS)
                raise ValueError(f"'{path}' would change what is measured; a search varies {known}")
            if not values:
                raise ValueError(f"'{path}' has no values to try")
        return search

    def points(self) -> list[tuple[dict[str, Any], Experiment]]:
        """Return (settings, experiment) of every trial; a value that cannot be is refused here, before any runs."""
        if not self.split.validation:
            raise ConfigError(
                "A search needs a validation part, but split.validation is not set.",
                "Set split.validation to true, or to a share such as 0.2 of the training part.",
            )
        base = {
            **self.model_dump(mode="json", exclude={"search", "trials", "repeat"}),
            "method": _given_options(self.method),
        }
        every = [dict(zip(self.search, values, strict=True)) for values in product(*self.search.values())]
        chosen = np.arange(len(every))
        if 0 < self.trials < len(every):
            draws = Key(self.seed).child("search").uniform(chosen, 1)[:, 0]
            chosen = np.sort(np.argsort(draws)[: self.trials])
        points = [every[i] for i in chosen]
        return [
            (point, Experiment.from_options(apply_overrides(base, point), f"search, {describe_settings(point)}"))
            for point in points
        ]


@dataclass(frozen=True)
class Trial:
    """One combination and what it reached on the validation part, on average over its seeds; none if one diverged."""

    settings: dict[str, Any]
    value: float | None
    passes: int  # of the best checkpoint; 0 if learning diverged
    seconds: float  # of all seeds
    metrics: dict[str, float]
    problem: str = ""

    @property
    def diverged(self) -> bool:
        """True if learning left the finite numbers."""
        return self.value is None


@dataclass(frozen=True)
class TuningResult:
    """The trials in the order they were made, and the experiment that the best of them stands for."""

    primary: str
    data: str
    trials: tuple[Trial, ...]
    best: Trial
    experiment: Experiment  # learns from training and validation part together, as long as was best
    folder: Path | None = None

    def rank(self) -> list[Trial]:
        """Return the trials, the best first, diverged ones last."""
        return sorted(self.trials, key=lambda trial: -np.inf if trial.value is None else trial.value, reverse=True)

    def as_json(self) -> dict[str, Any]:
        """Return the document that `tacit tune --json` prints."""
        return {
            "best": self.best.settings,
            "metric": self.primary,
            "value": self.best.value,
            "passes": self.best.passes,
            "data": self.data,
            "trials": [{**asdict(trial), "diverged": trial.diverged} for trial in self.trials],
            "experiment": None if self.folder is None else str(self.folder / "best.yaml"),
        }


def tune(
    tuning: Tuning,
    out: Path | None = Path("runs"),
    progress: Progress = silent,
    data: Dataset | None = None,
    prepared: PreparedData | None = None,
) -> TuningResult:
    """Try every point of a search on the validation part and write a folder with the trials and `best.yaml`."""
    points = tuning.points()
    prepared = prepared or prepare_data(tuning, data, progress)
    seeds = range(tuning.seed, tuning.seed + tuning.repeat)
    jobs = [
        (
            settings,
            [TrainingJob.from_split(experiment.model_copy(update={"seed": seed}), prepared.parts) for seed in seeds],
        )
        for settings, experiment in points
    ]
    trials = tuple(_count_progress(jobs, progress))
    finite = [i for i, trial in enumerate(trials) if not trial.diverged]
    if not finite:
        raise DivergedError(
            f"All {len(trials)} trials diverged. {trials[0].problem}", "Try smaller values of the learning rate."
        )
    at = max(finite, key=lambda i: trials[i].value or 0.0)
    best, experiment = trials[at], final_experiment(points[at][1], trials[at].passes)
    folder = None if out is None else out / _folder_name(tuning)
    tuned = TuningResult(tuning.evaluation.primary, prepared.name, trials, best, experiment, folder)
    if folder is not None:
        with whole_folder(folder) as partial:
            (partial / "search.yaml").write_text(to_yaml(tuning), encoding="utf-8")
            (partial / "best.yaml").write_text(to_yaml(experiment), encoding="utf-8")
            write_json(partial / "result.json", tuned.as_json())
            _write_csv(partial / "trials.csv", tuned)
    return tuned


def run_trial(jobs: Sequence[TrainingJob], settings: Mapping[str, Any], progress: Progress = silent) -> Trial:
    """Learn from the training part with each seed and measure on the validation part; divergence is a result."""
    learnt, judged = [], []
    for job in jobs:
        if job.validation is None:
            raise DataError("No user has an item in the validation part.", "Raise split.validation.")
        try:
            learnt.append(job.learn(progress))
        except DivergedError as error:
            return Trial(dict(settings), None, 0, 0.0, {}, error.message)
        judged.append(job.evaluate(learnt[-1].model, job.validation, lists=False).overall)
    seconds = sum(one.seconds for one in learnt)
    if len(jobs) > 1 and learnt[0].curve:  # the pass that is best on average, among those that all seeds reached
        looks = [_average(rows) for rows in zip(*(one.curve for one in learnt), strict=False)]
        best = max(looks, key=lambda look: look[jobs[0].experiment.evaluation.primary])
        metrics, passes = {name: best[name] for name in judged[0] if name in best}, int(best["pass"])
    else:
        metrics, passes = _average(judged), learnt[0].passes
    return Trial(dict(settings), metrics[jobs[0].experiment.evaluation.primary], passes, seconds, metrics)


def _average(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of every number that all rows have."""
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0] if all(name in row for row in rows)}


def final_experiment(experiment: Experiment, passes: int) -> Experiment:
    """Return the experiment that learns from training and validation part together, as many passes as were best."""
    changes: dict[str, Any] = {"split.validation": False, "runtime.evaluate_every": 0, "runtime.patience": 0}
    options = experiment.method.options
    if experiment.runtime.evaluate_every and hasattr(options, "epochs") and not getattr(options, "rounds", 0):
        changes["method.epochs"] = passes
    return Experiment.from_options(apply_overrides(experiment.model_dump(mode="json"), changes), "the best trial")


def describe_settings(settings: Mapping[str, Any]) -> str:
    """Return settings in a few words.

    >>> describe_settings({"method.learning_rate": 0.05, "method.factors": 10})
    'learning_rate=0.05 factors=10'
    """
    return " ".join(f"{path.split('.')[-1]}={value}" for path, value in settings.items())


def _count_progress(jobs: Sequence[tuple[dict[str, Any], list[TrainingJob]]], progress: Progress) -> Iterator[Trial]:
    for number, (settings, seeds) in enumerate(jobs, 1):

        def shown(
            what: str, done: int, total: int, label: str = f"{number}/{len(jobs)} {describe_settings(settings)}"
        ) -> None:
            progress(f"{label}: {what}", done, total)

        yield run_trial(seeds, settings, shown)


def _given_options(method: MethodChoice) -> dict[str, Any]:
    """Return a method with only the options that were given, so that a search may set a shorthand for others."""
    label = {} if method.label is None else {"label": method.label}
    return {"name": method.name, **label, **method.options.model_dump(mode="json", exclude_unset=True)}


def _folder_name(tuning: Tuning) -> str:
    fingerprint = hashlib.blake2b(to_yaml(tuning).encode(), digest_size=4).hexdigest()
    return f"tune-{Path(tuning.data.source).stem}-{tuning.method.name}-{tuning.seed}-{fingerprint}"


def _write_csv(path: Path, tuned: TuningResult) -> None:
    names = list(tuned.best.settings)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*names, tuned.primary, "passes", "seconds", "problem"])
        for trial in tuned.rank():
            value = "" if trial.value is None else trial.value
            settings = [trial.settings[name] for name in names]
            writer.writerow([*settings, value, trial.passes, round(trial.seconds, 3), trial.problem])
