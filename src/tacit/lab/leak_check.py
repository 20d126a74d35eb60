"""The checks behind a leak verdict: local-only models of single clients, and the joint model with placebos."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from tacit.config import Experiment
from tacit.data import Split
from tacit.evaluation import (
    EvaluationConfig,
    EvaluationOptions,
    LeakVerdict,
    PlaceboResult,
    compare_ranks,
    draw_placebo,
    evaluate,
    hold_out,
    is_decided,
    judge_leak,
    sample_stages,
    sample_users,
    select_heldout,
    swap,
)
from tacit.lab.engine import EngineConfig
from tacit.lab.local_only import LocalOnlyTraining, score_alone
from tacit.methods.base import Centralised, Method, build
from tacit.random import Key
from tacit.types import Array, Clients, Floats, Model, Progress

SPARED = 12  # clients who learn alone once more, where training is given held-out items to spare
SCORED = 1000  # clients whose scores are compared, beside the whole model


def ignore_progress(what: str, done: int, total: int) -> None:
    """Report no progress."""


def check_leak(
    method: Method,
    experiment: Experiment,
    parts: Split,
    progress: Progress = ignore_progress,
    *,
    early: bool = False,
    engine: EngineConfig | None = None,
) -> LeakVerdict | None:
    """Let a sample of clients learn alone; a model that knows the held-out items of its own client leaks.

    With `early`, clients learn in stages, until the verdict is clear or there is no sign of a leak. `engine`: whose
    threads or running workers let clients learn; none: threads as the experiment says.
    """
    engine = engine or experiment.runtime.engine_config
    config, key = experiment.evaluation.model_copy(update={"users": 0}), Key(experiment.seed)
    sampled = sample_users(parts.test, config.local_only_users, key.child("twin"))
    if not len(sampled):
        return None
    shuffled = sampled[np.argsort(key.child("stages").bits(parts.train.ids[sampled], 1)[:, 0], kind="stable")]

    def learn_alone(clients: Clients, positions: Array) -> Floats:
        training = LocalOnlyTraining(method, parts.catalog, key.child("learn"), experiment.runtime.ring)
        return score_alone(training, clients, positions, engine, progress)

    first, *more = sample_stages(len(shuffled)) if early else [len(shuffled)]
    chosen = shuffled[:first]
    scores = learn_alone(parts.train, chosen)
    others = _spare_items_of_others(parts.train.take(chosen[:SPARED]))
    reads_held_out = others is not None and not np.array_equal(
        scores[:SPARED], learn_alone(others, np.arange(len(others)))
    )
    swapped = swap(scores, select_heldout(parts.test, chosen), parts.catalog)
    for n in more:
        if is_decided(swapped) or reads_held_out or method.uses_features:
            break
        chosen, scores = shuffled[:n], np.concatenate([scores, learn_alone(parts.train, shuffled[len(scores) : n])])
        swapped = swap(scores, select_heldout(parts.test, chosen), parts.catalog)
    popular = build("most-popular")
    assert isinstance(popular, Centralised)
    counted = next(iter(popular.fit(parts.train, parts.catalog, key)))

    def by_popularity(positions: Array) -> Floats:
        popularity: Floats = popular.score(counted.shared, counted.private, parts.train.take(chosen[positions]))
        return popularity

    sample = select_heldout(parts.test, chosen)
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


@dataclass(frozen=True)
class Trainer:
    """How the run under test learns from training parts, and how its model scores clients by position."""

    learn: Callable[[Clients], Model]
    score: Callable[[Model, Clients, Array], Floats]


def wants_placebo(config: EvaluationConfig, method: Method) -> bool:
    """Say whether the joint model is trained once more: the laws of this package's tests hold its own methods to it."""
    return config.placebo == "always" or (config.placebo == "auto" and not type(method).__module__.startswith("tacit."))


def check_placebo(trainer: Trainer, model: Model, parts: Split, key: Key) -> PlaceboResult:
    """Train once more with random items held out; `model` is what training gave with the true ones."""
    placebo = draw_placebo(parts.test, parts.catalog, key.child("draw"))
    positions = sample_users(parts.test, SCORED, key.child("users"))
    first = trainer.score(model, parts.train, positions)
    with hold_out(parts.test, placebo, parts.train) as clients:
        other = trainer.learn(clients)
        scores = trainer.score(other, clients, positions)
    if _same_models(model, other) and _same_bits(first, scores):
        return PlaceboResult(changed=False)
    again = trainer.learn(parts.train)
    if _same_models(model, again) and _same_bits(first, trainer.score(again, parts.train, positions)):
        return PlaceboResult(changed=True, is_repeatable=True)
    users, p_values = compare_ranks(scores, positions, placebo, parts.test, key.child("turns"))
    return PlaceboResult(True, False, users, p_values)


def _same_models(one: Model, other: Model) -> bool:
    return _same_tables(one.shared, other.shared) and _same_tables(one.private, other.private)


def _same_tables(one: Mapping[str, Array], other: Mapping[str, Array]) -> bool:
    return one.keys() == other.keys() and all(_same_bits(one[name], other[name]) for name in one)


def _same_bits(one: Array, other: Array) -> bool:
    """Whether two arrays are equal to the last bit; NaN equals itself."""
    one, other = np.asarray(one), np.asarray(other)
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
