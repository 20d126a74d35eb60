"""Search for good options on the validation part; the test part is not passed on, so no trial can use it."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field, field_validator

from tacit.config import Experiment, apply_overrides, to_yaml
from tacit.data import Dataset
from tacit.errors import ConfigError, DataError, DivergedError, TacitError
from tacit.lab.experiments import PreparedData, TrainingJob, silent
from tacit.lab.inputs import digest_inputs
from tacit.lab.jobs import JobFailure, JobsConfig, PreparedParts, raise_failures, run_jobs
from tacit.lab.private_choice import PrivateChoiceConfig, account_search, choose_trial, refuse_unbounded
from tacit.lab.search_space import Range, list_points
from tacit.lab.shard_worker import WorkerIdentity
from tacit.methods.choice import MethodChoice
from tacit.privacy.dp import DPConfig
from tacit.random import Key
from tacit.report.folder import check_writable, whole_folder, write_json, write_whole
from tacit.types import Progress

SEARCH_IS_A_RELEASE = (
    "The search looked at what clients did, and its cost is not counted: the epsilon of a trial covers that trial "
    "alone. Search on public data, or use options that need no search."
)
SEARCH_IS_COUNTED = (
    "The epsilon of this search counts every training and the choice among them; what trials reached is not told. "
    "Training the best once more costs its own epsilon on top. Simulated noise."
)
SEARCH_GROUPS = ("method", "privacy", "runtime")  # what a search may vary: the rest decides what the figures mean


class Tuning(Experiment):
    """An experiment, and the values of its options to try: every combination, or some of them drawn by chance."""

    search: dict[str, Range | tuple[Any, ...]] = Field(
        min_length=1, description="option path -> values to try, or a range {low, high, log} to draw from"
    )
    trials: int = Field(0, ge=0, description="number of combinations to try, drawn at random; 0: all")
    repeat: int = Field(1, ge=1, description="seeds s, s+1, ... per combination; their mean is compared")
    private_choice: PrivateChoiceConfig | None = Field(
        None, description="choose the best trial by the exponential mechanism, and count what the search costs"
    )

    @field_validator("search")
    @classmethod
    def _something_to_try(cls, search: dict[str, Range | tuple[Any, ...]]) -> dict[str, Range | tuple[Any, ...]]:
        for path, values in search.items():
            if path.split(".")[0] not in SEARCH_GROUPS:
                known = ", ".join(f"{section}." for section in SEARCH_GROUPS)
                raise ValueError(f"'{path}' would change what is measured; a search varies {known}")
            if not isinstance(values, Range) and not values:
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
            **self.model_dump(mode="json", exclude={"search", "trials", "repeat", "private_choice"}),
            "method": _given_options(self.method),
        }
        points = list_points(self.search, self.trials, Key(self.seed).child("search"))
        made = [
            (point, Experiment.from_options(apply_overrides(base, point), f"search, {describe_settings(point)}"))
            for point in points
        ]
        if self.private_choice is not None:
            _refuse_unaccounted_trials([experiment for _, experiment in made])
        return made


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
    is_hidden: bool = False  # the choice is private: what it reached is not told
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
class TuningResult:
    """The trials in the order they were made, and the experiment that the best of them stands for."""

    primary: str
    data: str
    trials: tuple[Trial, ...]
    best: Trial
    experiment: Experiment  # learns from training and validation part together, as long as was best
    folder: Path | None = None
    privacy: dict[str, Any] | None = None  # what the search cost, where that is counted
    reused: int = 0  # trials that were finished before

    def rank(self) -> list[Trial]:
        """Return the trials, the best first, diverged ones last."""
        return sorted(self.trials, key=lambda trial: -np.inf if trial.value is None else trial.value, reverse=True)

    @property
    def notes(self) -> list[str]:
        """What a reader of the best trial should know."""
        if not self.is_private:
            return []
        return [SEARCH_IS_A_RELEASE if self.privacy is None else SEARCH_IS_COUNTED]

    @property
    def is_private(self) -> bool:
        """Whether the best trial states a guarantee of differential privacy."""
        has_stage = any(isinstance(stage, DPConfig) for stage in self.experiment.stages)
        return has_stage or getattr(self.experiment.method.options, "epsilon", None) is not None

    def as_json(self) -> dict[str, Any]:
        """Return the document that `tacit tune --json` prints."""
        return {
            "privacy": self.privacy or ({"counts_search": False} if self.is_private else None),
            "notes": self.notes,
            "best": self.best.settings,
            "metric": self.primary,
            "value": self.best.value,
            "passes": self.best.passes,
            "data": self.data,
            "trials": [{**asdict(trial), "diverged": trial.diverged} for trial in self.trials],
            "experiment": None if self.folder is None else str(self.folder / "best.yaml"),
        }


@dataclass(frozen=True)
class TrialOutcome:
    """A trial, what its trainings guarantee, and on which data it was made."""

    trial: Trial
    trainings: tuple[dict[str, Any], ...]
    data: str
    is_reused: bool = False


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


def _make_trials(
    tuning: Tuning,
    points: Sequence[tuple[dict[str, Any], Experiment]],
    kept: Path | None,
    config: JobsConfig,
    given: tuple[Progress, Dataset | None, PreparedData | None],
) -> list[TrialOutcome]:
    """Make every trial; one that fails, and does not diverge, is a trial without a value."""
    progress, data, prepared = given
    seeds = range(tuning.seed, tuning.seed + tuning.repeat)
    common = tuning.model_dump(mode="json", include=set(Experiment.model_fields))
    base = Experiment.from_options(common, "the search")
    jobs = [
        TrialJob(
            settings,
            base,
            tuple(config.place(experiment.model_copy(update={"seed": seed})) for seed in seeds),
            None if tuning.private_choice is not None else kept,  # what private trials reached is not told
            config.again,
        )
        for settings, experiment in points
    ]
    found = run_jobs(jobs, config, progress, data, prepared)
    outcomes: list[TrialOutcome] = []
    for job, one in zip(jobs, found, strict=True):
        if isinstance(one, JobFailure):
            problem = one.error.message if isinstance(one.error, TacitError) else repr(one.error)
            one = TrialOutcome(Trial(dict(job.settings), None, 0, 0.0, {}, problem, failed=True), (), "")
        outcomes.append(one)
    if all(one.trial.failed for one in outcomes):
        raise_failures(found)
    return outcomes


def tune(
    tuning: Tuning,
    out: Path | None = Path("runs"),
    progress: Progress = silent,
    data: Dataset | None = None,
    prepared: PreparedData | None = None,
    jobs: JobsConfig | int = 1,
    kept: Path | None = None,
) -> TuningResult:
    """Try every point of a search on the validation part and write a folder with the trials and `best.yaml`.

    `jobs` says how many trials are made side by side, and where. Trials that are finished are reused; they lie in
    `kept`, or beside the folder.
    """
    points = tuning.points()
    config = JobsConfig.of(jobs, tuning.runtime) if isinstance(jobs, int) else jobs
    if out is not None:
        check_writable(out)
        kept = kept or out / "trials"
    outcomes = _make_trials(tuning, points, kept, config, (progress, data, prepared))
    trials = tuple(outcome.trial for outcome in outcomes)
    trainings = [privacy for outcome in outcomes for privacy in outcome.trainings]
    name = next(outcome.data for outcome in outcomes if outcome.data)
    finite = [i for i, trial in enumerate(trials) if not trial.diverged and not trial.failed]
    if not finite:
        raise DivergedError(
            f"All {len(trials)} trials diverged. {trials[0].problem}", "Try smaller values of the learning rate."
        )
    privacy, key = None, Key(tuning.seed)
    if tuning.private_choice is None:
        at = max(finite, key=lambda i: trials[i].value or 0.0)
    else:
        if len(finite) < len(trials):
            raise DivergedError(
                "A trial diverged after sums that are not counted: a private choice cannot say what the search cost.",
                "Leave out the values with which it did.",
            )
        at = choose_trial([(trial.value or 0.0) * trial.users for trial in trials], tuning.private_choice, key)
        privacy = account_search(trainings, tuning.private_choice)
        trials = tuple(replace(trial, value=None, metrics={}, is_hidden=True) for trial in trials)
    best, experiment = trials[at], final_experiment(points[at][1], trials[at].passes)
    folder = None if out is None else out / _folder_name(tuning)
    reused = sum(outcome.is_reused for outcome in outcomes)
    tuned = TuningResult(tuning.evaluation.primary, name, trials, best, experiment, folder, privacy, reused)
    if folder is not None:
        with whole_folder(folder) as partial:
            (partial / "search.yaml").write_text(to_yaml(tuning), encoding="utf-8")
            (partial / "best.yaml").write_text(to_yaml(experiment), encoding="utf-8")
            write_json(partial / "result.json", tuned.as_json())
            _write_csv(partial / "trials.csv", tuned)
    return tuned


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


def _refuse_unaccounted_trials(experiments: Sequence[Experiment]) -> None:
    """Refuse a private choice among trials that tell something of clients without an account."""
    if any(not any(isinstance(stage, DPConfig) for stage in experiment.stages) for experiment in experiments):
        raise ConfigError(
            "private_choice needs trials that learn under differential privacy: their models tell of clients too.",
            "Add the privacy stage 'dp', or remove private_choice.",
        )
    if any(experiment.runtime.evaluate_every for experiment in experiments):
        raise ConfigError(
            "Checkpoints on the validation part are releases that private_choice does not count.",
            "Set runtime.evaluate_every=0.",
        )
    refuse_unbounded(experiments[0].evaluation.primary)


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
