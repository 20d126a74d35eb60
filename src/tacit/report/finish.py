"""From a finished evaluation to a `Run`: the summary, the tables per user and per item, and what was sent."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from tacit.config import Experiment
from tacit.data import Split
from tacit.evaluation import Evaluation, LeakVerdict
from tacit.evaluation.communication import measure_cost, total_cost
from tacit.lab.training import TrainingResult, rounds_of
from tacit.methods.base import Federated, Gossip
from tacit.report.folder import Run
from tacit.serving.recommender import Recommender, label_column

try:
    import resource
except ImportError:  # Windows has no such module
    resource = None  # type: ignore[assignment]

ITEM_BYTES = 4  # what a centralised method is sent for each thing a user did: an item id


@dataclass(frozen=True)
class Findings:
    """The results of an experiment: the model, its evaluation, the leak verdict, times."""

    learnt: TrainingResult
    evaluation: Evaluation
    evaluate_seconds: float
    leak: LeakVerdict | None
    log: list[str]


def assemble_run(
    experiment: Experiment,
    data: str,
    about: dict[str, Any],
    parts: Split,
    recommender: Recommender,
    findings: Findings,
) -> Run:
    """Put together everything that a run folder holds."""
    learnt, evaluation, leak = findings.learnt, findings.evaluation, findings.leak
    labels, catalog, train = parts.user_ids.labels, parts.catalog, parts.train
    ledger = _ledger(parts, learnt, isinstance(recommender.method, Gossip))
    items = pl.DataFrame(
        {
            "item": catalog.item_ids.labels.tolist(),
            "title": [catalog.title(i) for i in range(catalog.n_items)],
            "train_count": np.bincount(train.items, minlength=catalog.n_items),
            "recommended": evaluation.recommended[evaluation.k[-1]],
        }
    )
    users = pl.DataFrame({"user": label_column(labels[evaluation.users]), **evaluation.values})
    result = {
        "run": None,
        "name": experiment.name,
        "method": experiment.method.name,
        "data": data,
        "protocol": experiment.evaluation.protocol,
        "sampling": _sampling(experiment, parts),
        "seed": experiment.seed,
        "passes": learnt.passes,
        "passes_run": learnt.all_passes,
        "rounds": rounds_of(recommender.method, train, learnt.all_passes),
        "metrics": evaluation.overall,
        "ci": {name: list(evaluation.ci(name)) for name in evaluation.values},
        "bias": {str(k): found.to_dict() for k, found in evaluation.bias.items()},
        "users": len(evaluation),
        "train_seconds": learnt.seconds,
        "evaluate_seconds": findings.evaluate_seconds,
        "bytes_up": int(ledger["bytes_up"].sum()),
        "bytes_down": int(ledger["bytes_down"].sum()),
        **_communication(recommender, learnt),
        "leak": None if leak is None else leak.to_dict(),
        "privacy": learnt.privacy,
        "peak_mb": peak_megabytes(),
        "notes": [
            *evaluation.notes,
            *parts.notes,
            *_remarks(recommender),
            *_note_idle_lottery(experiment, recommender, parts),
            *([leak.reason] if leak is not None and leak.ok is None else []),
        ],
        "about_data": {**about, "counts": dict(parts.counts)},
    }
    return Run(
        experiment,
        result,
        users,
        items,
        pl.DataFrame(learnt.curve),
        ledger,
        findings.log,
        None,
        recommender,
        evaluation,
        learnt.events,
        None if learnt.weight_log is None else learnt.weight_log.frame(),
    )


def _remarks(recommender: Recommender) -> list[str]:
    method, model = recommender.method, recommender.model
    return method.remarks(model.shared, model.private)


def _note_idle_lottery(experiment: Experiment, recommender: Recommender, parts: Split) -> list[str]:
    """Return a note if the participant lottery drew all clients."""
    secure, method, n_clients = experiment.runtime.secure, recommender.method, len(parts.train)
    if secure is None or not secure.draw or not isinstance(method, Federated):
        return []
    if method.schedule(parts.train).clients_per_round < n_clients:
        return []
    can_ask_fewer = hasattr(experiment.method.options, "clients_per_round")
    advice = f"set method.clients_per_round below {n_clients:,}" if can_ask_fewer else "this method asks every client"
    return [f"runtime.secure.draw drew all {n_clients:,} clients in every round, so it had no effect: {advice}"]


def _communication(recommender: Recommender, learnt: TrainingResult) -> dict[str, Any]:
    """Return CCE and TCC in vectors, and bytes per client and round, of a federated run."""
    traffic = learnt.traffic
    if traffic is None:
        return {}
    if isinstance(recommender.method, Gossip):
        moved, rounds = int((traffic.bytes_up + traffic.bytes_down).sum()), int(traffic.rounds.sum())
        each = moved / rounds if rounds else 0.0
        return {"bytes_per_client_and_round": each, "overlay": learnt.overlay}
    assert isinstance(recommender.method, Federated)
    spec, shared = recommender.method.spec, recommender.model.shared
    vectors = (name for name in spec.downloads if name not in spec.client_tables and shared[name].ndim == 2)
    rows_down = sum(len(shared[name]) for name in vectors)
    rows_up, both = traffic.positives + traffic.negatives, traffic.bytes_up + traffic.bytes_down
    cost = measure_cost(traffic.rounds, rows_up, both, rows_down, learnt.all_passes)
    losses = {"answers_lost": int(traffic.lost.sum()), "updates_refused": int(traffic.refused.sum())}
    return {**cost, "tcc": total_cost(cost["cce"], learnt.passes), **losses}


def _sampling(experiment: Experiment, parts: Split) -> str:
    """Return 'legacy' if training knew the held-out items, or if held-out rows that repeat the history were ranked."""
    repeats = experiment.evaluation.repeats == "rank" and parts.counts["heldout_also_in_train"] > 0
    return "legacy" if repeats else parts.sampling


def _ledger(parts: Split, learnt: TrainingResult, gossiped: bool) -> pl.DataFrame:
    """Return one row per client: how often it was asked, what it sent, and what it received."""
    users, train = label_column(parts.user_ids.labels[parts.train.ids]), parts.train
    if learnt.traffic is None:
        what = "whole history"
        nothing = np.zeros(len(train), np.int64)
        sent = {
            "rounds": np.ones(len(train), np.int64),
            "positives": train.sizes,
            "negatives": nothing,
            "bytes_up": train.sizes * ITEM_BYTES,
            "bytes_down": nothing,
            "lost": nothing,
            "refused": nothing,
            "masked": nothing,
        }
    else:
        traffic, what = learnt.traffic, "whole models, to peers" if gossiped else "rows of the item table"
        sent = {
            "rounds": traffic.rounds,
            "positives": traffic.positives,
            "negatives": traffic.negatives,
            "bytes_up": traffic.bytes_up,
            "bytes_down": traffic.bytes_down,
            "lost": traffic.lost,
            "refused": traffic.refused,
            "masked": traffic.masked,
        }
    rows = pl.col("positives") + pl.col("negatives")
    return pl.DataFrame({"user": users, **sent}).select("user", pl.lit(what).alias("what"), *sent, rows.alias("rows"))


def peak_megabytes() -> float:
    """Return the peak memory of this process so far."""
    if resource is None:
        return float("nan")
    unit = 1 if sys.platform == "darwin" else 1024
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20, 1)
