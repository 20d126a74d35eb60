"""The one path: data -> split -> learn -> score -> metrics per client -> verdict -> a run folder."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tacit.config import Comparison, Experiment, read_config, to_yaml
from tacit.data import HANDED_OVER, DataConfig, Dataset, Split, describe, load, split
from tacit.errors import ConfigError, DivergedError, EvaluationError, MethodError, TacitError
from tacit.evaluation import (
    Evaluation,
    EvaluationOptions,
    LeakVerdict,
    evaluate,
    evaluate_cold_items,
    evaluate_steps,
)
from tacit.heldout import Heldout
from tacit.lab.engine import EngineConfig
from tacit.lab.inputs import digest_inputs
from tacit.lab.leak_check import Trainer, check_leak, check_placebo, wants_placebo
from tacit.lab.shard_worker import WorkerIdentity
from tacit.lab.sharded_ranking import LEAST_SCORES, SpreadRanking
from tacit.lab.training import TrainingContext, TrainingResult, learn
from tacit.lab.workers import Workers, open_workers
from tacit.numerics import one_blas_thread
from tacit.privacy.clipping import Clipping, ClippingConfig
from tacit.privacy.disclosure import Disclosure, DisclosureConfig
from tacit.privacy.dp import DPConfig
from tacit.privacy.update_sink import Stage
from tacit.random import Key
from tacit.report.finish import Findings, assemble_run
from tacit.report.folder import Run, check_writable
from tacit.serving.recommender import Recommender, score_rows
from tacit.types import Array, Catalog, Clients, Floats, Model, Progress, Vocabulary

SettingsT = TypeVar("SettingsT", Experiment, Comparison)


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
    return PreparedData(dataset.name, parts, {**describe(dataset), "digest": dataset.digest})


def take_settings(kind: type[SettingsT], given: SettingsT | Path | str) -> SettingsT:
    """Return settings as they are, or read those of a YAML file."""
    if isinstance(given, str | Path):
        return read_config(kind, Path(given))
    if not isinstance(given, kind):
        raise ConfigError(
            f"{kind.__name__}s are run, or the YAML files of some, and this is of type {type(given).__name__}.",
            f'Write tacit.{kind.__name__}(...), for example tacit.Experiment(method="ease").',
        )
    return given


def take_data(settings: Experiment | Comparison, data: Any) -> Dataset | None:
    """Return a dataset as it is; a frame, a path or a name is loaded with the settings' options for data."""
    if data is None or isinstance(data, Dataset):
        return data
    return load(data, **settings.data.model_dump(exclude={"source"}, exclude_unset=True))


def name_data(settings: SettingsT, data: Dataset | None) -> SettingsT:
    """Return the settings with the data that was handed over: how to load it again, or a fingerprint of it."""
    if data is None:
        return settings
    source = data.request
    if not isinstance(source, DataConfig):
        source = settings.data.model_copy(update={"source": f"{HANDED_OVER}{data.name}-{data.fingerprint}"})
    return settings.model_copy(update={"data": source})


@dataclass(frozen=True)
class TrainingJob:
    """An experiment with its training and validation parts. It holds no test items."""

    experiment: Experiment
    train: Clients
    validation: Heldout | None
    catalog: Catalog
    user_ids: Vocabulary
    cold: Mapping[str, NDArray[np.int32]] = field(default_factory=dict)  # part -> items without a training row
    workers: Workers | None = None  # of the engine, where they serve more than one step

    @classmethod
    def from_split(cls, experiment: Experiment, parts: Split) -> TrainingJob:
        """Take from a split what may be learnt from."""
        return cls(experiment, parts.train, parts.validation, parts.catalog, parts.user_ids, parts.cold)

    @property
    def engine(self) -> EngineConfig:
        """Where clients learn and users are ranked."""
        return replace(self.experiment.runtime.engine_config, workers=self.workers)

    @contextmanager
    def with_workers(self) -> Iterator[TrainingJob]:
        """Give the same job with the workers of its engine, which end afterwards: every step uses the same ones."""
        if self.workers is not None or self.engine.kind == "local":
            yield self
            return
        with open_workers(self.engine) as workers:
            yield replace(self, workers=workers)

    def learn(self, progress: Progress = silent) -> TrainingResult:
        """Train, with checkpoints as the runtime says."""
        with self.with_workers() as job:
            return job._learn(progress)

    def _learn(self, progress: Progress) -> TrainingResult:
        experiment, key, validation = self.experiment, Key(self.experiment.seed), self.validation
        checkpoint = None if validation is None else lambda model: self.evaluate(model, validation, lists=False).overall
        return learn(
            experiment.method.build(),
            self.train,
            self.catalog,
            key.child("learn"),
            experiment.runtime,
            [self._stage(stage) for stage in experiment.stages],
            TrainingContext(checkpoint, experiment.evaluation.primary, self.user_ids, progress, self.workers),
        )

    def _stage(self, config: DisclosureConfig | ClippingConfig | DPConfig) -> Stage | DPConfig:
        if isinstance(config, DPConfig):
            return config  # noise follows from the rounds, which `learn` knows
        if isinstance(config, ClippingConfig):
            return Clipping.build(config)
        return Disclosure.build(config, self.user_ids, self.catalog, Key(self.experiment.seed).child("people"))

    def make_recommender(self, model: Model) -> Recommender:
        """Wrap a trained model in a Recommender."""
        chosen, seed = self.experiment.method, self.experiment.seed
        return Recommender(chosen.name, chosen.options, model, self.train, self.catalog, self.user_ids, seed)

    def _spread(self, recommender: Recommender, heldout: Heldout, lists: bool) -> SpreadRanking | None:
        """Return how users are ranked over the engine; none where this process does it sooner."""
        scores_few = not lists and self.experiment.evaluation.sampled and recommender.method.scores_pairs
        if self.engine.kind == "local" or scores_few or len(heldout) * self.catalog.n_items < LEAST_SCORES:
            return None
        return SpreadRanking(self.engine, recommender)

    def evaluate(self, model: Model, heldout: Heldout, lists: bool = True) -> Evaluation:
        """Evaluate a model on a held-out part; every experiment of one seed ranks the same candidates."""
        recommender, config = self.make_recommender(model), self.experiment.evaluation
        if config.steps == "every" and model.private:
            raise MethodError(
                f"'{recommender.name}' keeps a vector per user, which does not follow the items of later steps.",
                "Set evaluation.steps=one, or use a method that scores from the history.",
            )
        key, threads = Key(self.experiment.seed).child("candidates"), self.experiment.runtime.threads
        pairs = recommender.score_pairs if recommender.method.scores_pairs else None
        options = EvaluationOptions(threads=threads, score_pairs=pairs, lists=lists)
        spread = self._spread(recommender, heldout, lists)
        with one_blas_thread():
            found = evaluate(recommender.score, heldout, self.catalog, config, key, replace(options, spread=spread))
            cold = self.cold.get("validation" if heldout is self.validation else "test")
            if cold is not None:
                apart = evaluate_cold_items(recommender.score, heldout, self.catalog, cold, config, key, options)
                found = replace(found, overall=found.overall | apart)
            if config.steps == "one":
                return found

            def score(histories: Clients) -> Floats:
                return score_rows(recommender.method, model, histories)

            return evaluate_steps(score, heldout, self.catalog, config, key, threads).with_lists_of(found)


def run(
    experiment: Experiment | Path | str,
    data: Any = None,
    *,
    folder: Path | str | None = None,
    progress: Progress = silent,
    prepared: PreparedData | None = None,
    on_run: Callable[[Run], object] | None = None,
) -> Run:
    """Run an experiment, or the one in a YAML file. With a `folder`, write it there.

    `data` takes the place of the configured source: a dataset, a pandas or polars frame, a path or a name. `on_run` is
    called with the finished run.
    """
    log = _Log()
    if folder is not None:
        check_writable(Path(folder).parent)
    experiment = take_settings(Experiment, experiment)
    data = take_data(experiment, data)
    experiment = name_data(experiment, data)
    prepared = prepared or prepare_data(experiment, data, progress)
    parts, about = prepared.parts, {**prepared.about, "inputs": digest_inputs(experiment.method, experiment.stages)}
    log.add(f"data {prepared.name}: {dict(parts.counts)}")
    with TrainingJob.from_split(experiment, parts).with_workers() as job:
        learnt = job.learn(progress)
        log.add(f"learnt {experiment.method.name}: kept the model of pass {learnt.passes}")
        progress("evaluating", 0, 0)
        started = time.perf_counter()
        evaluation = job.evaluate(learnt.model, parts.test)
        seconds = time.perf_counter() - started
        log.add(f"evaluated {len(evaluation)} users")
        leak = _check_leaks(job, parts, learnt.model, progress)
        log.add(f"leak verdict: {leak.reason if leak else 'not asked for'}")
    findings = Findings(learnt, evaluation, seconds, leak, log.lines)
    result = assemble_run(experiment, prepared.name, about, parts, job.make_recommender(learnt.model), findings)
    finished = result.save(Path(folder)) if folder is not None else result
    if on_run is not None:
        on_run(finished)
    return finished


def _check_leaks(job: TrainingJob, parts: Split, model: Model, progress: Progress) -> LeakVerdict | None:
    """Make the checks that the experiment asks for; one that diverges costs the verdict and not the run."""
    experiment, method = job.experiment, job.experiment.method.build()
    local_only, placebo = None, None
    try:
        local_only = check_leak(method, experiment, parts, progress, early=True, engine=job.engine)
    except (DivergedError, EvaluationError) as error:
        local_only = LeakVerdict.of_error(error)

    def learn_again(clients: Clients) -> Model:
        return (
            replace(job, train=clients).learn(lambda what, done, n: progress(f"{what} for the placebo", done, n)).model
        )

    def score(model: Model, clients: Clients, positions: Array) -> Floats:
        with one_blas_thread():
            return replace(job, train=clients).make_recommender(model).score(positions)

    if wants_placebo(experiment.evaluation, method):
        try:
            key = Key(experiment.seed).child("placebo")
            placebo = check_placebo(Trainer(learn_again, score), model, parts, key)
        except (DivergedError, EvaluationError) as error:
            if local_only is None or local_only.ok:  # a leak that was found stays one
                local_only = LeakVerdict.of_error(error)
    return LeakVerdict.join(local_only, placebo)


def reopen_run(folder: Path, experiment: Experiment, prepared: PreparedData) -> Run | None:
    """Return a finished run of the same experiment on the same data, made by the same code; none if there is none."""
    try:
        found = Run.open(folder)
        made = json.loads((folder / "environment.json").read_text(encoding="utf-8")).get("arithmetic")
    except (TacitError, OSError, ValueError, AttributeError):
        return None
    about, inputs = found.result.get("about_data", {}), digest_inputs(experiment.method, experiment.stages)
    is_same_data = about.get("digest") == prepared.about["digest"]
    if made != dict(WorkerIdentity.of_this_process().bits) or not is_same_data:
        return None
    if inputs is None or about.get("inputs") != inputs:
        return None
    if _without_name(found.experiment) != _without_name(experiment):
        return None
    return replace(found, experiment=experiment, result={**found.result, "name": experiment.name})


def _without_name(experiment: Experiment) -> str:
    return to_yaml(experiment.model_copy(update={"name": "run"}))


def folder_name(experiment: Experiment) -> str:
    """Return the same folder name for the same configuration, whatever its name: data, method, seed, fingerprint.

    It has no spaces, so that it needs no quotes in a shell.
    """
    fingerprint = hashlib.blake2b(_without_name(experiment).encode(), digest_size=4).hexdigest()
    source = "_".join(Path(experiment.data.source).stem.split())
    return f"{source}-{experiment.method.name}-{experiment.seed}-{fingerprint}"


class _Log:
    def __init__(self) -> None:
        self.started = time.perf_counter()
        self.lines: list[str] = []

    def add(self, text: str) -> None:
        self.lines.append(f"{time.perf_counter() - self.started:8.2f} s  {text}")
