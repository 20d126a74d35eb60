"""How long FPL's tables take on some data and this machine, said before they start.

Every kind of pass that the search makes is timed once on the data itself, and an evaluation too; `fpl_choices` says how
many of each there are at most. Trials that stop improving, and choices that are kept from before, make it shorter.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from tacit.config import Experiment, apply_overrides
from tacit.lab.experiments import TrainingJob
from tacit.lab.training import PassOptions, passes
from tacit.numerics import one_blas_thread
from tacit.random import Key
from tacit.studies import fpl_choices as search
from tacit.studies.setup import StudySetup

TIMED_PASSES = 2  # the first may still load compiled code
USUAL_RATE = 0.005  # small enough not to diverge


def estimate_seconds(setup: StudySetup) -> float:
    """Return about how many seconds search and test runs take at most; the local-only models are not counted."""
    total = 0.0
    for label in (*search.CONFIGURATIONS, *search.SHORTENED):
        method = {
            "name": "fpl",
            "preset": label.removesuffix(search.SHORT),
            "learning_rate": USUAL_RATE,
            **search.PAPERS_REGS,
        }
        limits = search.limits_of(label)
        most, seeds = search.most_passes(setup, label), search.seeds_of(setup, label)
        runs = search.count_trials(label, most) * seeds
        a_pass, a_checkpoint = _time(setup, method)
        total += (runs + len(setup.seeds)) * most * a_pass + runs * (most / limits["evaluate_every"]) * a_checkpoint
    bpr_runs = len(search.RATES) * len(search.FACTORS)
    a_pass, a_checkpoint = _time(setup, {"name": "bpr-mf", "learning_rate": USUAL_RATE})
    total += (
        bpr_runs + len(setup.seeds)
    ) * search.PASSES * a_pass + bpr_runs * search.PASSES / search.EVALUATE_EVERY * a_checkpoint
    a_pass, a_checkpoint = _time(setup, {"name": "fcf", "learning_rate": search.FCF_RATE})
    total += (
        1 + len(setup.seeds)
    ) * search.FCF_PASSES * a_pass + search.FCF_PASSES / search.FCF_EVALUATE_EVERY * a_checkpoint
    for name in ("user-knn", "item-knn"):
        total += (len(search.NEIGHBOURS) + 1) * sum(_time(setup, {"name": name}))
    return total


def _time(setup: StudySetup, method: Mapping[str, Any]) -> tuple[float, float]:
    """Return the seconds of one pass and of one evaluation."""
    setup.progress(f"{setup.name}: estimating how long it takes: {method['name']}", 0, 0)
    given = apply_overrides(
        setup.base, {"method": {**method, "epochs": TIMED_PASSES} if _has_passes(method) else method}
    )
    experiment = Experiment.from_options(given, "the recipe")
    parts, spent = setup.parts, 0.0
    with one_blas_thread():
        learning = passes(experiment.method.build(), parts.train, parts.catalog, Key(0), PassOptions())
        started = time.perf_counter()
        for model in learning:
            spent = time.perf_counter() - started
            last, started = model, time.perf_counter()
        started = time.perf_counter()
        TrainingJob.from_split(experiment, parts).evaluate(last, parts.test, lists=False)
    return spent, time.perf_counter() - started


def _has_passes(method: Mapping[str, Any]) -> bool:
    return method["name"] not in ("user-knn", "item-knn")
