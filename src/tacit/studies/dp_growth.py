"""How many people a guarantee needs: the loss against the same method without noise, as the number of people grows.

Two views. *Copies*: every client of a dataset c times over. The price of privacy alone, on real data: it says nothing
of what more people would teach. Up to `REPEATED` clients they are really repeated. Beyond, the sum of c copies is c
times the sum, so the noise is divided by c and the clients stay: the same ratio, the same delta of c times as many
people. Where both are possible, both are measured. *Town*: data really generated for so many people, learnt anew. There
exact sums keep directions that a little noise would hide, and are often worse than noisy ones: the reference is the
better one of exact sums and sums with a thousandth of the noise (`QUIET`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.config import Experiment, apply_overrides
from tacit.lab.experiments import TrainingJob
from tacit.lab.guarantee import build_privacy
from tacit.lab.simulation import simulate
from tacit.methods.base import build_federated
from tacit.numerics import one_blas_thread
from tacit.privacy.dp import DPConfig
from tacit.protocols.federated import UpdatePath
from tacit.random import Key
from tacit.report.canvas import keep_layout, legend_below, new_figure, percent_axis, plain_numbers, report_style
from tacit.report.marks import SOFT, line_styles
from tacit.studies import sums
from tacit.studies.base import StudyResult, reproduction
from tacit.studies.dp_quality import EASE, evaluate_once
from tacit.studies.setup import StudySetup
from tacit.studies.sheets import PublishedRow, Sheet, format_cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DATASETS = ("ml-100k", "ml-1m", "town")
EPSILONS = (1.0, 4.0)
PRIMARY = "NDCG@10"
LOSS = 0.02  # that a guarantee may cost
COPIES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
REPEATED = 8_000  # clients that are really repeated
PEOPLE = (10_000, 30_000, 100_000, 300_000, 1_000_000)
REPEATED_TOWNS = 50_000  # people up to whom a town is learnt with every seed
QUIET = 1_000  # by which noise is divided, so that it costs nothing
TOWN = {"places": 2000, "visits": 27}


@dataclass(frozen=True)
class GrowthPoint:
    """So many people at one epsilon."""

    people: int
    epsilon: float
    value: float  # with the guarantee
    reference: float  # the same method without noise, or with hardly any
    how: str  # repeated, scaled or generated
    ease: float  # ease on the same people, for scale

    @property
    def loss(self) -> float:
        """What the guarantee costs, as a share."""
        return 1.0 - self.value / self.reference


def recipe(source: str) -> dict[str, Any]:
    """Return data, split and evaluation: those of `sums-quality`; of a town 100 candidates, too."""
    if source != "town":
        return sums.recipe(source)
    return {
        "data": {"source": "town", "users": PEOPLE[0], "min_per_user": 2, **TOWN},
        "split": {"kind": "leave-last-out"},
        "evaluation": {"protocol": "sampled-100", "k": [10], "primary": PRIMARY},
    }


@reproduction(
    "dp-growth", "How many people a guarantee needs", "Loss at epsilon 1 and 4 by people", DATASETS, recipe, 2
)
def growth_study(setup: StudySetup) -> StudyResult:
    """dp-svd with a guarantee against dp-svd without noise: copies of real clients, or generated towns."""
    points = _towns(setup) if setup.name == "town" else _copies(setup)
    needed = {epsilon: find_people(points, epsilon) for epsilon in EPSILONS}
    rows = [
        PublishedRow.of("dp-svd", f"people for a loss of 2 % at epsilon {epsilon:g}", [] if n is None else [n])
        for epsilon, n in needed.items()
    ]
    detail = {"points": [{**vars(point), "loss": point.loss} for point in points], "needed": needed}
    notes = [
        "Loss: against dp-svd without noise on the same people. Delta is one tenth of 1 / people.",
        "'scaled': the noise is divided by the number of copies in place of repeating clients.",
    ]
    return StudyResult(rows, [_sheet(setup, points, needed)], {"people-loss": draw_growth(points)}, notes, detail)


def _copies(setup: StudySetup) -> list[GrowthPoint]:
    reference = float(np.mean([_value(setup, None, seed, 1, False) for seed in setup.seeds]))
    ease = _ease(setup)
    n_clients, points = len(setup.parts.train), []
    for epsilon in EPSILONS:
        for copies in COPIES[:: 4 if setup.quick else 1]:
            ways = [False] if copies > 1 else []
            ways += [True] if n_clients * copies <= REPEATED else []
            for is_repeated in ways:
                setup.progress(f"{setup.name}: epsilon {epsilon:g}, {copies} copies", 0, 0)
                values = [_value(setup, epsilon, seed, copies, is_repeated) for seed in setup.seeds]
                how = "repeated" if is_repeated else "scaled"
                points.append(GrowthPoint(n_clients * copies, epsilon, float(np.mean(values)), reference, how, ease))
            if points[-1].loss < LOSS / 2:
                break
    return points


def _towns(setup: StudySetup) -> list[GrowthPoint]:
    points = []
    for people in PEOPLE[: 1 if setup.quick else None]:
        town = setup if setup.quick else setup.vary({"data.users": people})
        seeds = setup.seeds if people <= REPEATED_TOWNS else setup.seeds[:1]
        setup.progress(f"town: {people:,} people", 0, 0)
        reference = max(
            float(np.mean([_value(town, None, seed, 1, True) for seed in seeds])),
            float(np.mean([_value(town, EPSILONS[0], seed, QUIET, False) for seed in seeds])),
        )
        ease = _ease(town)
        for epsilon in EPSILONS:
            value = float(np.mean([_value(town, epsilon, seed, 1, True) for seed in seeds]))
            points.append(GrowthPoint(len(town.parts.train), epsilon, value, reference, "generated", ease))
    return points


def _ease(setup: StudySetup) -> float:
    method = {"name": "ease", "reg": EASE.get(setup.name, len(setup.parts.train) / 100)}
    return evaluate_once(setup, method, setup.seeds[0])[PRIMARY]


def _value(setup: StudySetup, epsilon: float | None, seed: int, copies: int, is_repeated: bool) -> float:
    """Learn from so many copies of the clients, and measure on the test part of the clients themselves."""
    given = apply_overrides(setup.base, {"seed": seed, "method": {"name": "dp-svd"}})
    experiment = Experiment.from_options(given, "the recipe")
    job, key = TrainingJob.from_split(experiment, setup.parts), Key(seed).child("learn")
    method, runtime = build_federated("dp-svd", experiment.method.options), experiment.runtime
    clients = job.train.take(np.tile(np.arange(len(job.train)), copies)) if is_repeated and copies > 1 else job.train
    clients = replace(clients, ids=np.arange(len(clients)))
    stages = []
    if epsilon is not None:
        config = DPConfig(epsilon=epsilon, delta=0.1 / (len(job.train) * copies))
        stage = build_privacy(config, method, clients, job.catalog, key, runtime.ring, runtime.rounds)
        stages = [stage if is_repeated else replace(stage, mu=stage.mu * copies)]
    with one_blas_thread():  # no ledger: what scaled noise would cost these clients is not what is asked
        for passed in simulate(UpdatePath(method, stages, runtime.ring), clients, job.catalog, key):
            model = passed
    return float(job.evaluate(model, setup.parts.test, lists=False).overall[PRIMARY])


def find_people(points: Sequence[GrowthPoint], epsilon: float) -> float | None:
    """Return the number of people at which the loss falls to 2 %, between points on a log scale; none: none was enough.

    >>> points = [GrowthPoint(n, 1.0, 1 - loss, 1.0, "scaled", 1.0) for n, loss in ((100, 0.04), (10_000, 0.0))]
    >>> round(find_people(points, 1.0))
    1000
    """
    found = sorted({p.people: p for p in points if p.epsilon == epsilon}.values(), key=lambda p: p.people)
    for before, after in zip([None, *found[:-1]], found, strict=True):
        if after.loss <= LOSS:
            if before is None or before.loss <= LOSS:
                return float(after.people)
            part = (before.loss - LOSS) / (before.loss - after.loss)
            return float(before.people * (after.people / before.people) ** part)
    return None


def _sheet(setup: StudySetup, points: Sequence[GrowthPoint], needed: Mapping[float, float | None]) -> Sheet:
    lines = [
        [
            f"{p.people:,}",
            f"{p.epsilon:g}",
            p.how,
            format_cell(p.value),
            format_cell(p.reference),
            f"{-p.loss:+.1%}",
            f"{p.value / p.ease - 1:+.1%}",
        ]
        for p in points
    ]
    answers = ", ".join(f"ε {e:g}: {'not reached' if n is None else f'{n:,.0f}'}" for e, n in needed.items())
    columns = ["people", "ε", "how", PRIMARY, "without noise", "difference", "to ease"]
    return Sheet(f"{setup.name}: people for a loss of at most 2 %: {answers}", columns, lines)


def draw_growth(points: Sequence[GrowthPoint]) -> Figure:
    """Draw the loss over the number of people, a line for each epsilon."""
    with report_style():
        figure, (axes,) = new_figure(3.6)
        labels = {epsilon: f"epsilon {epsilon:g}" for epsilon in EPSILONS}
        styles = line_styles(list(labels.values()))
        for epsilon, label in labels.items():
            line = sorted({p.people: p for p in points if p.epsilon == epsilon}.values(), key=lambda p: p.people)
            axes.plot([p.people for p in line], [p.loss for p in line], label=label, **styles[label].line)
        axes.axhline(LOSS, color=SOFT, linewidth=1, linestyle=(0, (2, 2)))
        axes.annotate("2 %", (0.01, LOSS), (0, 2), ("axes fraction", "data"), "offset points", color=SOFT, fontsize=8)
        axes.set_xscale("log")
        plain_numbers(axes.xaxis)
        percent_axis(axes.yaxis)
        axes.set_xlabel("people (log scale)")
        axes.set_ylabel(f"loss of {PRIMARY}")
        legend_below(figure)
        keep_layout(figure)
        return figure
