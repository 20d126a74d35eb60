"""Neural rivals of slist and fed-slist, in the same evaluation: how good they are, and what they would cost by sums.

Every rival learns without the validation part and keeps the epoch that is best there by NDCG@10, as published figures
are made; the test reads the whole history. A batch of users is the cohort of a round of federated gradient descent with
Adam on the server, so an epoch is one participation of every client: what it receives is the model, what it sends is a
gradient for its items, for the shared negatives and for the blocks, in 8 bytes per number.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from tacit.config import Experiment, apply_overrides
from tacit.data import Split
from tacit.evaluation import EvaluationOptions, evaluate
from tacit.heldout import Heldout
from tacit.lab.experiments import TrainingJob
from tacit.methods.parts.order import newest_rows
from tacit.numerics import one_blas_thread
from tacit.random import Key
from tacit.studies.base import StudyResult, reproduction
from tacit.studies.cnn import torch
from tacit.studies.order import METRICS, SPLITS, recipe
from tacit.studies.sasrec import NextItemNet, NextItemOptions
from tacit.studies.setup import FIRST_SEED, StudySetup
from tacit.studies.sheets import PublishedRow, Sheet

DATASETS = ("ml-1m", "ml-100k")
RIVALS: dict[str, NextItemOptions] = {
    "SASRec, softmax": NextItemOptions(learning_rate=3e-3),
    "SASRec, 32 factors, 256 negatives": NextItemOptions(factors=32, negatives=256, learning_rate=5e-3),
    "GRU, 32 factors, 256 negatives": NextItemOptions("gru", factors=32, negatives=256, learning_rate=5e-3),
}
LARGE = {"SASRec, softmax": NextItemOptions(negatives=512, learning_rate=3e-3)}  # above LARGE_LOG training rows
LARGE_LOG = 500_000
EPOCHS, LARGE_EPOCHS, QUICK_EPOCHS = 80, 40, 2
EVERY, PATIENCE = 5, 3  # epochs between checks on validation; checks without a gain that end a training
VALIDATION = 0.05  # share of the training rows, by the clock
PUBLISHED = {"SASRec, softmax": (0.316, 0.186)}  # Klenitskiy and Vasilev (2023), MovieLens 1M, leave-last-out


@reproduction("order-neural", "Neural rivals of slist", "SASRec and a GRU beside slist", DATASETS, recipe, seeds=1)
def neural_study(setup: StudySetup) -> StudyResult:
    """Neural next-item models under both splits, and their validation curve in bytes beside fed-slist."""
    torch().set_num_threads(1)
    rows, sheets, detail = [], [], {}
    for split, changes in SPLITS.items():
        here, names = setup.vary(changes), tuple(RIVALS)[1:2] if setup.quick else tuple(RIVALS)
        if split == "global time":
            names = names[:1]  # costs are compared under leave-last-out
        rivals = {name: _recall_rival(here, split, name) for name in names}
        ours = {name: _own_row(here, split, name) for name in ("slist", "fed-slist")}
        known = PUBLISHED if setup.name == "ml-1m" and setup.is_named and split == "leave-last-out" else {}
        for name, found in {**rivals, **ours}.items():
            for at, metric in enumerate(METRICS):
                printed = known[name][at] if name in known else None
                rows.append(PublishedRow.of(f"{name}, {split}", metric, [found["test"][metric]], printed))
        sheets += [_test_sheet(split, {**rivals, **ours}), _curve_sheet(split, rivals, ours["fed-slist"])]
        detail[split] = {**rivals, **ours}
    notes = ["Rivals learn without the validation part; slist and fed-slist learn from all but the test."]
    return StudyResult(rows, sheets, {}, notes, detail)


def options_for(setup: StudySetup, name: str) -> tuple[NextItemOptions, int]:
    """Return a rival's options and its epochs at most: on large logs the softmax goes over shared negatives."""
    is_large = setup.parts.counts["train"] > LARGE_LOG
    options = LARGE.get(name, RIVALS[name]) if is_large else RIVALS[name]
    return options, QUICK_EPOCHS if setup.quick else LARGE_EPOCHS if is_large else EPOCHS


def _recall_rival(setup: StudySetup, split: str, name: str) -> dict[str, Any]:
    options, epochs = options_for(setup, name)
    asked = {"options": asdict(options), "epochs": epochs, "split": split}
    file = "order-neural-" + "".join(sign if sign.isalnum() else "-" for sign in name)
    return setup.recall(file, asked, lambda: _train(setup, f"{name}, {split}", options, epochs))


def _train(setup: StudySetup, label: str, options: NextItemOptions, most: int) -> dict[str, Any]:
    """Train with checks on validation; return the curve and the test figures of the best epoch."""
    practice = _practice(setup)
    net = NextItemNet(practice.catalog.n_items, options, FIRST_SEED)
    best, kept, curve, started = -1.0, net.weights(), [], time.process_time()
    for epoch in range(1, most + 1):
        loss = net.learn(practice.train)
        setup.progress(f"{setup.name}: {label}: loss {loss:.3f}", epoch, most)
        if epoch % EVERY and epoch != most:
            continue
        assert practice.validation is not None
        found = _measure(setup, net, practice, practice.validation)
        curve.append({"epoch": epoch, "loss": loss, "seconds": time.process_time() - started, **found})
        if found["NDCG@10"] > best:
            best, kept = found["NDCG@10"], net.weights()
        elif epoch - max(curve, key=lambda one: one["NDCG@10"])["epoch"] >= EVERY * PATIENCE:
            break
    net.load(kept)
    chosen = max(curve, key=lambda one: one["NDCG@10"])["epoch"]
    test = _measure(setup, net, setup.parts, setup.parts.test)
    return {"options": asdict(options), "epoch": chosen, "curve": curve, "test": test, "bytes": _bytes(setup, options)}


def _practice(setup: StudySetup) -> Split:
    """Return the parts with a validation part: another last item, or the newest training rows by the clock."""
    is_single = setup.base["split"]["kind"] == "leave-last-out"
    return setup.vary({"split.validation": True if is_single else VALIDATION}).parts


def _measure(setup: StudySetup, net: NextItemNet, parts: Split, heldout: Heldout) -> dict[str, float]:
    experiment = Experiment.from_options(setup.base, "the recipe")
    with one_blas_thread():
        found = evaluate(
            lambda positions: net.score(parts.train.take(positions)),
            heldout,
            parts.catalog,
            experiment.evaluation,
            Key(FIRST_SEED).child("candidates"),
            EvaluationOptions(lists=False),
        )
    return {metric: found.overall[metric] for metric in METRICS}


def _bytes(setup: StudySetup, options: NextItemOptions) -> dict[str, float]:
    """Return what a client receives and sends on average in one participation."""
    n_items, blocks = setup.parts.catalog.n_items, options.block_numbers()
    own = np.minimum(newest_rows(setup.parts.train).sizes, options.length + 1)
    rows = float(np.mean(own)) + options.negatives if options.negatives else float(n_items)
    return {
        "down": 4.0 * (n_items * options.factors + blocks),
        "up": 8.0 * (min(rows, n_items) * options.factors + blocks),
    }


def _own_row(setup: StudySetup, split: str, name: str) -> dict[str, Any]:
    """Run a method of ours with its defaults, on the test part and on the rivals' validation part."""
    run = setup.runs(f"{name}, {split}", {"name": name})[0]
    practice = _practice(setup)
    experiment = Experiment.from_options(apply_overrides(setup.base, {"method": {"name": name}}), "the recipe")
    job = TrainingJob.from_split(experiment, practice)
    assert practice.validation is not None
    found = job.evaluate(job.learn().model, practice.validation, lists=False).overall
    n, result = len(setup.parts.train), run.result
    return {
        "test": {metric: run.metrics[metric] for metric in METRICS},
        "validation": {metric: found[metric] for metric in METRICS},
        "bytes": {way: (result.get(f"bytes_{way}") or 0) / n for way in ("up", "down")},
    }


def _test_sheet(split: str, found: Mapping[str, Mapping[str, Any]]) -> Sheet:
    lines = [
        [name, *(f"{one['test'][metric]:.3f}" for metric in METRICS), str(one.get("epoch", "–"))]
        for name, one in found.items()
    ]
    return Sheet(f"Test, {split}", ["method", *METRICS, "epoch"], lines)


def _curve_sheet(split: str, rivals: Mapping[str, Mapping[str, Any]], ours: Mapping[str, Any]) -> Sheet:
    """Lay the validation figures of each participation beside fed-slist's whole cost."""
    lines = [_line("fed-slist", "all rounds", ours["bytes"], ours["validation"])]
    for name, one in rivals.items():
        for point in one["curve"]:
            spent = {way: size * point["epoch"] for way, size in one["bytes"].items()}
            lines.append(_line(name, str(point["epoch"]), spent, point))
    columns = ["method", "participations", "MB down", "MB up", *METRICS]
    return Sheet(f"Validation, {split}: by megabytes of a client", columns, lines)


def _line(name: str, when: str, spent: Mapping[str, float], found: Mapping[str, float]) -> Sequence[str]:
    sizes = [f"{spent[way] / 1e6:.1f}" for way in ("down", "up")]
    return [name, when, *sizes, *(f"{found[metric]:.3f}" for metric in METRICS)]
