"""The prepared data of one dataset: search on validation, then run on test, each experiment once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tacit.config import Experiment, apply_overrides, to_yaml
from tacit.data import Split
from tacit.errors import DivergedError
from tacit.lab.experiments import PreparedData, prepare_data, run
from tacit.lab.jobs import JobFailure, JobsConfig, PreparedParts, raise_failures, run_jobs
from tacit.lab.tuning import Tuning, TuningResult, tune
from tacit.report.folder import Run, write_json
from tacit.types import Progress

FIRST_SEED = 42
VALIDATION = 0.2  # share of the training part that a search validates on


@dataclass(frozen=True)
class StudyJob:
    """One run of a study, with its lists and its model."""

    label: str
    experiment: Experiment

    def run(self, parts: PreparedParts, progress: Progress) -> Run:
        """Make the run."""
        return run(self.experiment, progress=progress, prepared=parts.prepare(self.experiment, progress))


class StudySetup:
    """One dataset cut as a paper says. A search sees the validation part only; a run learns from all but the test."""

    def __init__(
        self,
        source: str,
        recipe: Mapping[str, Any],
        settings: Mapping[str, Any],
        *,
        seeds: int,
        quick: bool,
        choices: Path,
        progress: Progress,
    ) -> None:
        self.base = apply_overrides({"seed": FIRST_SEED, "method": "random", **recipe}, settings)
        self.seeds = range(FIRST_SEED, FIRST_SEED + seeds)
        self.quick, self.choices, self.progress = quick, choices, progress
        self.jobs = JobsConfig()  # how many trials and seeds run side by side
        self.name = Path(source).stem
        self.is_named = source == self.name  # published numbers belong to datasets known by name
        self._runs: dict[str, Run | None] = {}

    def vary(self, settings: Mapping[str, Any]) -> StudySetup:
        """Return a prepared data of the same data under other settings, such as a published way of sampling."""
        other = StudySetup(
            self.name,
            self.base,
            settings,
            seeds=len(self.seeds),
            quick=self.quick,
            choices=self.choices,
            progress=self.progress,
        )
        other.jobs = self.jobs
        other.is_named = self.is_named
        return other

    @cached_property
    def prepared(self) -> PreparedData:
        """Training and test part."""
        return prepare_data(Experiment.from_options(self.base, "the recipe"), progress=self.progress)

    @property
    def parts(self) -> Split:
        """How the data is parted for runs."""
        return self.prepared.parts

    @cached_property
    def practice(self) -> PreparedData:
        """The same test part, and a validation part carved from training."""
        return prepare_data(Experiment.from_options(self.validation_split(), "the recipe"), progress=self.progress)

    def validation_split(self) -> dict[str, Any]:
        """The recipe with a validation part: a share, or one more row where single rows are held out."""
        single = self.base.get("split", {}).get("kind") == "leave-last-out"
        return apply_overrides(self.base, {"split.validation": True if single else VALIDATION})

    def search(
        self,
        label: str,
        method: Mapping[str, Any],
        values: Mapping[str, Sequence[Any]],
        runtime: Mapping[str, Any] | None = None,
        repeat: int = 1,
    ) -> TuningResult:
        """Try values of a method's options on the validation part, each with `repeat` seeds."""
        given = self.validation_split() | {
            "method": dict(method),
            "search": dict(values),
            "runtime": dict(runtime or {}),
        }
        given["repeat"] = repeat
        return tune(
            Tuning.from_options(given, "the recipe"),
            None,
            self._label(f"choosing {label}"),
            prepared=None if self.jobs.is_spread else self.practice,
            jobs=self.jobs,
            kept=self.choices / "trials",
        )

    def runs(
        self, label: str, method: Mapping[str, Any], *, seeds: int | None = None, local_only_users: int = 0
    ) -> list[Run]:
        """Run a method on the test part with each seed, the same experiment only once; diverged runs are left out.

        With `local_only_users`, so many users also learn alone under the first seed, for the leak verdict.
        """
        asked = self.seeds[:seeds]
        experiments = [self._experiment(method, seed, local_only_users if seed == FIRST_SEED else 0) for seed in asked]
        missing = [one for one in experiments if to_yaml(one) not in self._runs]
        jobs = [StudyJob(f"{label}, seed {one.seed}", one) for one in missing]
        prepared = None if self.jobs.is_spread or not jobs else self.prepared
        found = run_jobs(jobs, self.jobs, self._label(label), prepared=prepared)
        diverged = [isinstance(one, JobFailure) and isinstance(one.error, DivergedError) for one in found]
        raise_failures([one for one, is_diverged in zip(found, diverged, strict=True) if not is_diverged])
        for experiment, one in zip(missing, found, strict=True):
            self._runs[to_yaml(experiment)] = None if isinstance(one, JobFailure) else one
        made = [self._runs[to_yaml(experiment)] for experiment in experiments]
        return [one for one in made if one is not None]

    def recall(self, what: str, asked: Mapping[str, Any], make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return choices made before under the same question on the same data; otherwise make and keep them."""
        question = json.dumps({"asked": asked, "base": self.base, "cut": dict(self.practice.parts.counts)}, default=str)
        fingerprint = hashlib.blake2b(question.encode(), digest_size=4).hexdigest()
        path = self.choices / f"{what}-{self.name}-{fingerprint}.json"
        if path.is_file():
            kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            return kept
        chosen = make()
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, chosen)
        return chosen

    def _experiment(self, method: Mapping[str, Any], seed: int, local_only_users: int) -> Experiment:
        given = apply_overrides(
            self.base, {"seed": seed, "method": dict(method), "evaluation.local_only_users": local_only_users}
        )
        return Experiment.from_options(given, "the recipe")

    def _label(self, label: str) -> Progress:
        return lambda what, done, total: self.progress(f"{self.name}: {label}: {what}", done, total)
