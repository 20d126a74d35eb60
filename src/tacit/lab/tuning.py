"""Search for good options on the validation part; the test part is not passed on, so no trial can use it."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from pydantic import Field, field_validator, model_validator

from tacit.config import Experiment, apply_overrides, to_yaml
from tacit.data import Dataset
from tacit.errors import ConfigError, DivergedError, TacitError
from tacit.lab.bayesian import BayesianConfig, Proposals
from tacit.lab.experiments import PreparedData, prepare_data, silent
from tacit.lab.jobs import JobFailure, JobsConfig, raise_failures, run_jobs
from tacit.lab.private_choice import PrivateChoiceConfig, account_search, choose_trial, refuse_unbounded
from tacit.lab.search_space import Range, list_points
from tacit.lab.trials import Trial, TrialJob, TrialOutcome, describe_settings
from tacit.methods.choice import MethodChoice
from tacit.privacy.dp import DPConfig
from tacit.random import Key
from tacit.report.folder import check_writable, whole_folder, write_json
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


Point = tuple[dict[str, Any], Experiment]  # settings of a trial, and what they make of the experiment


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
    bayesian: BayesianConfig | None = Field(
        None, description="propose points from what earlier trials reached; needs the extra 'optuna'"
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

    @model_validator(mode="after")
    def _bayesian_search_can_be(self) -> Self:
        if self.bayesian is not None and self.trials == 0:
            raise ValueError("a Bayesian search needs trials, the number of points to try")
        if self.bayesian is not None and self.private_choice is not None:
            raise ValueError("bayesian reads what trials reached, which private_choice does not count; use one of them")
        return self

    def points(self) -> list[Point]:
        """Return (settings, experiment) of every trial; a value that cannot be is refused here, before any runs."""
        return self.place(list_points(self.search, self.trials, Key(self.seed).child("search")))

    def place(self, points: Sequence[dict[str, Any]]) -> list[Point]:
        """Return (settings, experiment) of some points of the search."""
        if not self.split.validation:
            raise ConfigError(
                "A search needs a validation part, but split.validation is not set.",
                "Set split.validation to true, or to a share such as 0.2 of the training part.",
            )
        base = {
            **self.model_dump(mode="json", include=set(Experiment.model_fields)),
            "method": _given_options(self.method),
        }
        made = [
            (point, Experiment.from_options(apply_overrides(base, point), f"search, {describe_settings(point)}"))
            for point in points
        ]
        if self.private_choice is not None:
            _refuse_unaccounted_trials([experiment for _, experiment in made])
        return made


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


def _make_trials(
    tuning: Tuning,
    points: Sequence[Point],
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
            None if tuning.private_choice is not None else kept,  # what private trials reached is not reported
            config.again,
        )
        for settings, experiment in points
    ]
    found = run_jobs(jobs, config, progress, data, prepared)
    outcomes: list[TrialOutcome] = []
    for job, one in zip(jobs, found, strict=True):
        if isinstance(one, JobFailure):
            problem = one.error.message if isinstance(one.error, TacitError) else repr(one.error)
            failed = Trial(dict(job.settings), None, 0, 0.0, {}, problem, failed=True)
            one = TrialOutcome(failed, (), "", failure=one)
        outcomes.append(one)
    return outcomes


def _make_proposed_trials(
    tuning: Tuning,
    bayesian: BayesianConfig,
    kept: Path | None,
    config: JobsConfig,
    given: tuple[Progress, Dataset | None, PreparedData | None],
) -> tuple[list[Point], list[TrialOutcome]]:
    """Make trials batch by batch, each batch proposed from what those before it reached."""
    proposals = Proposals(tuning.search, bayesian, Key(tuning.seed).child("search"))
    points: list[Point] = []
    outcomes: list[TrialOutcome] = []
    progress, data, prepared = given
    if prepared is None and not config.is_spread:
        prepared = prepare_data(tuning, data, progress)  # once, for all batches
    while len(points) < tuning.trials:
        batch = tuning.place(proposals.propose(min(bayesian.batch, tuning.trials - len(points))))
        if not batch:
            break
        found = _make_trials(tuning, batch, kept, config, (progress, data, prepared))
        for (settings, _), outcome in zip(batch, found, strict=True):
            proposals.record(settings, outcome.trial.value)
        points, outcomes = [*points, *batch], [*outcomes, *found]
    return points, outcomes


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
    config = JobsConfig.of(jobs, tuning.runtime) if isinstance(jobs, int) else jobs
    points = [] if tuning.bayesian is not None else tuning.points()
    if out is not None:
        check_writable(out)
        kept = kept or out / "trials"
    given = (progress, data, prepared)
    if tuning.bayesian is not None:
        points, outcomes = _make_proposed_trials(tuning, tuning.bayesian, kept, config, given)
    else:
        outcomes = _make_trials(tuning, points, kept, config, given)
    if all(outcome.trial.failed for outcome in outcomes):
        raise_failures([outcome.failure for outcome in outcomes])
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


def final_experiment(experiment: Experiment, passes: int) -> Experiment:
    """Return the experiment that learns from training and validation part together, as many passes as were best."""
    changes: dict[str, Any] = {"split.validation": False, "runtime.evaluate_every": 0, "runtime.patience": 0}
    options = experiment.method.options
    if experiment.runtime.evaluate_every and hasattr(options, "epochs") and not getattr(options, "rounds", 0):
        changes["method.epochs"] = passes
    return Experiment.from_options(apply_overrides(experiment.model_dump(mode="json"), changes), "the best trial")


def _refuse_unaccounted_trials(experiments: Sequence[Experiment]) -> None:
    """Refuse a private choice among trials that reveal something of clients without an account."""
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
