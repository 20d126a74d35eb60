"""A study of our own, after chapter 5 of the thesis: criteria and their orders for recommenders.

As the thesis measures it: in each round a tenth of the users is asked, and what counts is after how many rounds a
share of all users, from 10 to 90 %, is served at a target quality. There it was accuracy on each device's pictures;
here it is how often a held-out item of the user ranks above an unseen one (AUC).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.config import Experiment, apply_overrides
from tacit.evaluation import EvaluationOptions, evaluate, sample_users, select_heldout
from tacit.lab.experiments import TrainingJob
from tacit.lab.simulation import SimulationOptions
from tacit.lab.training import PassOptions, passes
from tacit.methods.base import Federated
from tacit.numerics import one_blas_thread
from tacit.protocols.criteria import CriteriaConfig
from tacit.protocols.rounds import RoundsConfig
from tacit.protocols.weighing import WeightLog
from tacit.random import Key
from tacit.report.canvas import new_figure, percent_axis, report_style
from tacit.report.labels import name_ends
from tacit.report.marks import line_styles
from tacit.report.weights import draw_weights, explain_weights
from tacit.studies.base import StudyResult, reproduction
from tacit.studies.fpl_choices import PAPERS_REGS
from tacit.studies.setup import StudySetup
from tacit.studies.sheets import PublishedRow, Sheet
from tacit.types import Array, Floats

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DATASETS = ("ml-100k", "lastfm-2k")
SINGLE = ("size", "diversity", "divergence", "freshness")
PERMUTED = ("size", "diversity", "divergence")
LAST = "freshness"
UNWEIGHTED = "unweighted"
TARGET = 0.85  # AUC that a user should be served with
SHARES = tuple(range(10, 100, 10))
USERS = 300  # users that are evaluated after every pass
PASSES, QUICK_PASSES = 20, 2


def recipe(source: str) -> dict[str, Any]:
    """Return data, split and evaluation: the newest 20 % of each user are held out."""
    data: dict[str, Any] = {"source": source}
    if source == "lastfm-2k":
        data |= {"table": "tags", "graph": True, "min_per_user": 5}
    return {"data": data, "split": {"kind": "temporal", "test": 0.2}, "evaluation": {"primary": "NDCG@10"}}


def orders() -> list[tuple[tuple[str, ...], str]]:
    """Return orders with their scale: no criterion, each criterion alone, and orders of all four.

    Two of these by shares, as the thesis has them; all orders of three with the fourth behind relative to the mean.
    """
    every = [(*order, LAST) for order in permutations(PERMUTED)]
    return [
        ((), "share"),
        *(((name,), "share") for name in SINGLE),
        *((order, "share") for order in (every[0], every[-1])),
        *((order, "relative") for order in every),
    ]


@dataclass(frozen=True)
class ServedCurve:
    """What share of users was served at the target after so many rounds."""

    label: str
    rounds: list[int]
    share: list[float]
    mean: list[float]  # AUC
    weight_log: WeightLog

    def until(self, share: float) -> int | None:
        """Return the rounds until a share of users is served at the target, None if never."""
        return next((r for r, s in zip(self.rounds, self.share, strict=True) if s >= share), None)


@reproduction("criteria-recommenders", "Who should count: criteria and orders", "our own study", DATASETS, recipe, 1)
def criteria_study(setup: StudySetup) -> StudyResult:
    """Rounds until a share of the users is served well, by criteria and their order."""
    tried = orders()[: 3 if setup.quick else None]
    every = [[_line(setup, order, scale, seed) for seed in setup.seeds] for order, scale in tried]
    lines = [seeds[0] for seeds in every]
    rows, cells = [], []
    for seeds in every:
        label, ends = seeds[0].label, [line.mean[-1] for line in seeds]
        found = {share: [line.until(share / 100) for line in seeds] for share in SHARES}
        for share, reached in found.items():
            rows.append(PublishedRow.of(label, f"rounds until {share} %", [float(r) for r in reached if r is not None]))
        rows.append(PublishedRow.of(label, "AUC", ends))
        rounds = [", ".join("–" if r is None else str(r) for r in reached) for reached in found.values()]
        spread = f" ± {np.std(ends, ddof=1):.4f}" if len(ends) > 1 else ""
        cells.append([label, *rounds, f"{np.mean(ends):.4f}{spread}"])
    title = f"Rounds until so many users have an AUC of {TARGET:g}"
    table = Sheet(title, ["order", *(f"{share} %" for share in SHARES), "mean AUC at the end"], cells)
    last = lines[-1].weight_log.frame()
    who = Sheet(f"The heaviest and the lightest of the last round, by {lines[-1].label}", *explain_weights(last))
    figures = {"shares": _draw(lines), "weights": draw_weights(last)}
    asked = "Each round asks a tenth of the users; fpl, learning rate 0.05, twice as many triples as a user has rows."
    notes = [
        asked,
        f"{USERS} users are evaluated, on held-out items; {len(setup.seeds)} seed(s); "
        f"'–': not within {lines[0].rounds[-1]} rounds. Figures are those of the first seed.",
    ]
    return StudyResult(rows, [table, who], figures, notes, {"orders": [line.label for line in lines]})


def _line(setup: StudySetup, order: tuple[str, ...], scale: str, seed: int) -> ServedCurve:
    parts, label = setup.parts, (" > ".join(order) or UNWEIGHTED) + (" (relative)" if scale == "relative" else "")
    mean = len(parts.train.items) / len(parts.train)
    n_passes = QUICK_PASSES if setup.quick else PASSES
    method = {
        "name": "fpl",
        "learning_rate": 0.05,
        **PAPERS_REGS,
        "clients_per_round": max(1, len(parts.train) // 10),
        "local_steps": max(1, int(2 * mean)),
        "epochs": n_passes,
    }
    experiment = Experiment.from_options(apply_overrides(setup.base, {"seed": seed, "method": method}), "the recipe")
    built, job = experiment.method.build(), TrainingJob.from_split(experiment, parts)
    users = sample_users(parts.test, USERS, Key(seed).child("looked at"))
    sample, weight_log = select_heldout(parts.test, users), WeightLog(parts.user_ids)
    criteria = CriteriaConfig.from_options({"order": order, "scale": scale}, "the study") if order else None
    line = ServedCurve(label, [], [], [], weight_log)
    assert isinstance(built, Federated)
    per_pass = built.schedule(parts.train).rounds_per_pass
    simulation = SimulationOptions(RoundsConfig(criteria=criteria), weight_log=weight_log)
    how = PassOptions(simulation=simulation)
    learning = passes(built, parts.train, parts.catalog, Key(seed).child("learn"), how)
    with one_blas_thread():
        for done, model in enumerate(learning, 1):
            setup.progress(f"{setup.name}: {label}", done, n_passes)
            served = job.make_recommender(model)

            def score(positions: Array, served: Any = served) -> Floats:
                scores: Floats = served.score(users[positions])
                return scores

            asked = EvaluationOptions(lists=False, auc=True)
            candidates = Key(seed).child("candidates")
            found = evaluate(score, sample, parts.catalog, experiment.evaluation, candidates, asked).of("AUC")
            line.rounds.append(done * per_pass)
            line.share.append(float((found >= TARGET).mean()))
            line.mean.append(float(found.mean()))
    return line


def _draw(lines: list[ServedCurve]) -> Figure:
    with report_style():
        figure, (axes,) = new_figure(3.8)
        shown = [line for line in lines if ">" not in line.label]
        shown += sorted((line for line in lines if ">" in line.label), key=lambda line: -line.share[-1])[:1]
        marks = line_styles([line.label for line in shown])
        for line in shown:
            axes.plot(line.rounds, line.share, **{**marks[line.label].line, "markersize": 0})
        percent_axis(axes.yaxis)
        axes.set_xlabel("rounds")
        axes.set_ylabel(f"users with an AUC of {TARGET:g}")
        ends = [(float(line.rounds[-1]), line.share[-1]) for line in shown]
        name_ends(figure, axes, ends, [(line.label, marks[line.label].colour) for line in shown])
        return figure
