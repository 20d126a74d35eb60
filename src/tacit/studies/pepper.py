"""PEPPER's tables 2 to 8 and figures 4 to 9 (Belal et al., 2022).

85 % of each user's rows to learn from, at random; each held-out one ranked against 100 unseen ones. Gossip methods run
under the same options. Rows called "same data" let the rivals spare what PEPPER spares for weighing; otherwise they
learn from it too, as they may. Quality is measured on the test part during training; nothing is chosen by these
figures.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tacit.config import Experiment, apply_overrides
from tacit.data.filters import compact
from tacit.data.load import load
from tacit.lab.event_driven import GossipRuntime, NetworkConfig
from tacit.lab.experiments import TrainingJob, run
from tacit.lab.training import PassOptions, passes, passes_of
from tacit.numerics import one_blas_thread
from tacit.random import Key
from tacit.report.canvas import new_figure, report_style
from tacit.report.folder import Run
from tacit.report.labels import name_ends
from tacit.report.marks import line_styles
from tacit.studies.adversaries import item_exposure
from tacit.studies.base import StudyResult, reproduction
from tacit.studies.pepper_published import ALPHA, METHODS, ROUNDS, VIEW, published_value
from tacit.studies.setup import StudySetup
from tacit.studies.sheets import PublishedRow, Sheet, format_cell, side_by_side, value_of
from tacit.types import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER = "Belal et al. (2022)"
DATASETS = ("ml-100k", "foursquare-nyc", "gowalla-1k")
CUTS = (20, 10, 5)
GOSSIP = ("pepper", "dec-fedavg", "model-age", "dec-reptile")
SPARED = 0.1765  # what PEPPER keeps for weighing: 15 of 85 %
LENGTH = 500  # rounds of every gossip method: the paper's slowest needs 490 to converge (figure 9b)
SETTING_ROUNDS = 300  # where settings are compared: PEPPER's peers converge after 283 (table 8)
EVALUATE_EVERY = 10  # rounds between two checkpoints
NEAR = 0.99  # of the best, to count as converged
VISITED = {"min_per_item": 10, "min_per_user": 10, "duplicates": "latest-after"}  # visits are counted, then pairs kept
VISITS = {"data.duplicates": "keep", "split.together": True}  # for sequences: all visits, the same places held out
POPULAR = "most-popular"
PERCENTILES = (1, 5, 10, 25, 50, 75, 90)


def recipe(source: str) -> dict[str, Any]:
    """Return data, split and evaluation; PEPPER's own files come with their split."""
    own = source == "pepper-splits"
    return {
        "data": {"source": source, **(VISITED if source in ("foursquare-nyc", "gowalla-1k") else {})},
        "split": {"kind": "given"} if own else {"kind": "random", "test": 0.15},
        "evaluation": {"protocol": "sampled-100", "k": sorted(CUTS), "primary": "HR@20"},
    }


def method_options(setup: StudySetup, name: str, **more: Any) -> dict[str, Any]:
    """Return a method as it is run here; a quick one makes a few rounds."""
    length = {"epochs": 3} if setup.quick else {"epochs": LENGTH} if name in GOSSIP else {}
    return {"name": name, **length, **more}


@dataclass(frozen=True)
class GossipResult:
    """One run: rounds, metrics, HR@20 per user and processor seconds by checkpoint; an item's exposure at the end."""

    rounds: list[int] = field(default_factory=list)
    metrics: list[dict[str, float]] = field(default_factory=list)
    people: list[NDArray[np.float64]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    exposure: list[float] = field(default_factory=list)

    @property
    def last(self) -> dict[str, float]:
        """The figures of the last checkpoint."""
        return self.metrics[-1]

    def converged(self) -> float:
        """Return the first round from which the mean HR@20 is near its best."""
        values = np.array([one["HR@20"] for one in self.metrics])
        return float(self.rounds[int(np.argmax(values >= NEAR * values.max()))])


def run_with_checkpoints(
    setup: StudySetup,
    label: str,
    method: Mapping[str, Any],
    seed: int,
    network: NetworkConfig | None = None,
    item: int | None = None,
) -> GossipResult:
    """Learn once, and measure on the test part during training; at the end, count the users who would see an item."""
    settings = {"seed": seed, "method": dict(method), "evaluation.local_only_users": 0}
    experiment = Experiment.from_options(apply_overrides(setup.base, settings), "the recipe")
    job, built, parts = TrainingJob.from_split(experiment, setup.parts), experiment.method.build(), setup.parts
    seen, spent, total = GossipResult(), 0.0, passes_of(built, parts.train)
    with one_blas_thread():
        runtime = GossipRuntime(network or NetworkConfig(), experiment.runtime.threads)
        started = time.process_time()
        for done, model in enumerate(
            passes(built, parts.train, parts.catalog, Key(seed).child("learn"), PassOptions(gossip=runtime)), 1
        ):
            spent += time.process_time() - started
            setup.progress(f"{setup.name}: {label}, seed {seed}", done, total)
            if done % EVALUATE_EVERY == 0 or done == total:
                found = job.evaluate(model, parts.test, lists=False)
                seen.rounds.append(done)
                seen.metrics.append(found.overall)
                seen.people.append(np.asarray(found.values["HR@20"]))
                seen.seconds.append(spent)
                if item is not None and done == total:
                    seen.exposure.append(item_exposure(job.make_recommender(model), item))
            started = time.process_time()
    return seen


@reproduction("pepper-quality", "PEPPER beside its rivals", f"{PAPER}, tables 2 to 7", DATASETS, recipe)
def quality_study(setup: StudySetup) -> StudyResult:
    """Every method with GMF, and with PRME-G where places and times are known."""
    rows: list[PublishedRow] = []
    metrics = [f"{name}@{k}" for k in CUTS for name in ("HR", "NDCG")]
    plans = [(name, method_options(setup, name)) for name in METHODS] + [(POPULAR, {"name": POPULAR})]
    plans += [(f"{name}, same data", method_options(setup, name, weighting=SPARED)) for name in GOSSIP[1:]]
    made = {}
    for label, method in plans:
        made[label] = runs = setup.runs(label, method, local_only_users=25 if label == "pepper" else 0)
        for metric in metrics:
            values = [one.metrics[metric] for one in runs]
            rows.append(PublishedRow.of(label, metric, values, published_value(setup.name, label, metric)))
    sheets = [side_by_side("GMF", rows)]
    notes = [
        f"pepper beside {name}: {compare_standing(made['pepper'], made[name])}" for name in made if name != "pepper"
    ]
    if setup.parts.catalog.coordinates is not None and setup.parts.train.times is not None:
        visits = setup.vary(VISITS)
        places = [row for name in (*METHODS, POPULAR) for row in _prme(visits, name)]
        sheets.append(side_by_side("PRME-G", places))
        rows += places
        notes.append(
            "PRME-G learns from all visits to places that are not held out, and ranks from where each user was last "
            "among them; F1@20 counts held-out places that stand among the first 20 of 101. The paper does not say how "
            "its lists were made."
        )
    return StudyResult(rows, sheets, notes=notes)


def _prme(setup: StudySetup, name: str) -> list[PublishedRow]:
    method = {"name": name} if name == POPULAR else method_options(setup, name, model="prme-g", learning_rate=0.05)
    label = f"{name}, visits" if name == POPULAR else f"{name} (PRME-G)"
    runs = setup.runs(label, method)
    log, train = load(Experiment.from_options(setup.base, "the recipe").data).interactions, setup.parts.train
    held = _places(log.users, log.items, len(train)) - _places(train.rows, train.items, len(train))
    held = held[held > 0]
    scores = []
    for one in runs:
        hits = np.minimum(one.users["HR@20"].to_numpy() * held, 20)
        scores.append(float(np.mean(2 * hits / (20 + held))))
    found = [PublishedRow.of(label, "F1@20", scores, published_value(setup.name, name, "F1@20"))]
    return found + [
        PublishedRow.of(label, metric, [one.metrics[metric] for one in runs]) for metric in ("HR@20", "NDCG@20")
    ]


def _places(people: Array, items: Array, n: int) -> NDArray[np.int64]:
    """Return how many different items each user had."""
    return np.bincount(np.unique(np.stack([people, items], axis=1), axis=0)[:, 0], minlength=n)


def compare_standing(mine: Sequence[Run], other: Sequence[Run], metric: str = "HR@20") -> str:
    """Say how a method stands to another, users paired: ahead or behind if the interval and all seeds agree.

    The interval is that of the mean over users (95 %), each one's difference averaged over seeds.
    """
    if len(mine) != len(other) or not mine:
        return "not compared: a run ran away"
    ours, theirs = ([one.users[metric].to_numpy() for one in runs] for runs in (mine, other))
    gaps = 100 * (np.stack(ours) - np.stack(theirs))
    each, seeds = gaps.mean(axis=0), gaps.mean(axis=1)
    half = 1.96 * each.std(ddof=1) / np.sqrt(len(each))
    low, high = min(each.mean() - half, *seeds), max(each.mean() + half, *seeds)
    verdict = "ahead" if low > 0 else "behind" if high < 0 else "not distinguishable"
    texts = ", ".join(f"{gap:+.1f}" for gap in seeds)
    return f"{verdict}: {each.mean():+.1f} ± {half:.1f} points of {metric} (seeds: {texts})"


SETTINGS: dict[str, dict[str, Any]] = {  # one thing of the paper's at a time, then all
    "ours": {},
    "user vector sent": {"user_vector": "sent"},
    "learning at every receipt": {"learns": "receipt"},
    "peers renewed every 10 rounds": {"renew_every": 10},
    "own first models": {"starts": "own"},
    "all of the paper's": {
        "user_vector": "sent", "learns": "receipt", "renew_every": 10, "moments": "kept", "starts": "own"
    },
}  # fmt: skip


@reproduction("pepper-order", "What decides the order", f"{PAPER}, table 2: settings", DATASETS[:1], recipe)
def order_study(setup: StudySetup) -> StudyResult:
    """PEPPER and decentralised FedAvg on the same data under the same settings, ours and the paper's."""
    rows, lines = [], []
    for label, options in SETTINGS.items():
        made = {}
        for name in ("pepper", "dec-fedavg"):
            method = method_options(setup, name, weighting=SPARED, **options)
            if not setup.quick:
                method["epochs"] = SETTING_ROUNDS
            made[name] = runs = setup.runs(f"{name}, {label}", method)
            rows += [
                PublishedRow.of(f"{name}, {label}", m, [one.metrics[m] for one in runs]) for m in ("HR@20", "NDCG@20")
            ]
        texts = [compare_standing(made["pepper"], made["dec-fedavg"], metric) for metric in ("HR@20", "NDCG@20")]
        lines.append([label, *(format_cell(value_of(rows, f"{name}, {label}", "HR@20")) for name in made), *texts])
    columns = ["settings", "pepper", "dec-fedavg", "PEPPER by HR@20", "PEPPER by NDCG@20"]
    table = Sheet(f"HR@20 after {SETTING_ROUNDS} rounds", columns, lines)
    return StudyResult(rows, [table, side_by_side("All figures", rows)])


@reproduction("pepper-tails", "Whom the models serve", f"{PAPER}, figures 4 to 6", DATASETS[:2], recipe, seeds=1)
def tails_study(setup: StudySetup) -> StudyResult:
    """How HR@20 is spread over users."""
    seen = {name: run_with_checkpoints(setup, name, method_options(setup, name), setup.seeds[0]) for name in METHODS}
    rows = [
        PublishedRow.of(name, f"HR@20, percentile {p}", [float(np.percentile(one.people[-1], p))])
        for name, one in seen.items()
        for p in PERCENTILES
    ]
    lines = [
        [name, *(format_cell(float(np.percentile(s.people[-1], p))) for p in PERCENTILES)] for name, s in seen.items()
    ]
    table = Sheet("HR@20 by percentile of users", ["method", *(str(p) for p in PERCENTILES)], lines)
    curves = {name: (np.sort(s.people[-1]), np.linspace(0, 1, len(s.people[-1]))) for name, s in seen.items()}
    return StudyResult(rows, [table], {"tails": draw_lines(curves, "HR@20", "share of users at most there")})


@reproduction("pepper-sparsity", "Dense and sparse users", f"{PAPER}, figure 7", ("ml-100k",), recipe, seeds=1)
def sparsity_study(setup: StudySetup) -> StudyResult:
    """PEPPER and FedAvg on the most active users, on all, and on the least active."""
    data = load(Experiment.from_options(setup.base, "the recipe").data)
    sizes = np.bincount(data.interactions.users, minlength=len(data.interactions.user_ids))
    rank = np.argsort(np.argsort(-sizes, kind="stable"))
    n = len(sizes)
    groups = {"dense": rank < round(0.614 * n), "all": rank < n, "sparse": rank >= n - round(0.213 * n)}
    rows = []
    for group, people in groups.items():
        part = compact(data, np.flatnonzero(people[data.interactions.users]), data.steps)
        for name in ("pepper", "fedavg"):
            settings = {
                "seed": setup.seeds[0],
                "method": method_options(setup, name),
                "evaluation.local_only_users": 0,
            }
            experiment = Experiment.from_options(apply_overrides(setup.base, settings), "the recipe")
            found = run(experiment, part, progress=setup.progress)
            rows.append(
                PublishedRow.of(f"{name}, {group} ({int(people.sum())} users)", "HR@20", [found.metrics["HR@20"]])
            )
    note = "The paper clusters users by k-means; here the same numbers of users are taken by how much they did."
    return StudyResult(rows, [side_by_side("HR@20", rows)], notes=[note])


@reproduction("pepper-alpha", "How many of the best peers", f"{PAPER}, figure 8", ("ml-100k",), recipe, seeds=1)
def alpha_study(setup: StudySetup) -> StudyResult:
    """HR@20 over the share of random peers."""
    rows = []
    for share in (0.0, 1.0) if setup.quick else (0.0, 0.2, 0.4, 0.6, 0.8, 1.0):
        method = method_options(setup, "pepper", alpha=share, alpha_means="random")
        values = [run_with_checkpoints(setup, f"alpha {share:g}", method, seed).last["HR@20"] for seed in setup.seeds]
        printed = ALPHA.get(share) if setup.name == "ml-100k" else None
        rows.append(PublishedRow.of(f"{share:.0%} random peers", "HR@20", values, printed / 100 if printed else None))
    return StudyResult(rows, [side_by_side("HR@20", rows)])


@reproduction("pepper-view", "More peers", f"{PAPER}, table 8", ("ml-100k",), recipe, seeds=1)
def view_study(setup: StudySetup) -> StudyResult:
    """Quality, rounds and seconds with three and six peers."""
    rows = []
    for size in (3, 6):
        seen = [
            run_with_checkpoints(setup, f"view {size}", method_options(setup, "pepper", view=size), seed)
            for seed in setup.seeds
        ]
        hr, rounds = VIEW[size] if setup.name == "ml-100k" else (None, None)
        label = f"view of {size}"
        rows.append(PublishedRow.of(label, "HR@20", [s.last["HR@20"] for s in seen], None if hr is None else hr / 100))
        rows.append(PublishedRow.of(label, "rounds", [s.converged() for s in seen], rounds))
        rows.append(PublishedRow.of(label, "processor seconds of all peers", [s.seconds[-1] for s in seen]))
    return StudyResult(rows, [side_by_side("PEPPER", rows)], notes=[_CONVERGED])


_CONVERGED = (
    f"Rounds: the first checkpoint (every {EVALUATE_EVERY} rounds) from which the mean HR@20 is within 1 % of the best."
)


@reproduction("pepper-overhead", "What gossip costs", f"{PAPER}, figure 9", ("ml-100k",), recipe, seeds=1)
def overhead_study(setup: StudySetup) -> StudyResult:
    """Computing time per peer and round, and rounds until quality is near its best."""
    rows = []
    curves = {}
    for name in GOSSIP:
        seen = run_with_checkpoints(setup, name, method_options(setup, name), setup.seeds[0])
        each = 1000 * seen.seconds[-1] / seen.rounds[-1] / len(setup.parts.train)
        printed = ROUNDS.get(name) if setup.name == "ml-100k" else None
        rows += [
            PublishedRow.of(name, "rounds", [seen.converged()], printed),
            PublishedRow.of(name, "processor ms per node and round", [each]),
        ]
        curves[name] = (np.array(seen.rounds, float), np.array([m["HR@20"] for m in seen.metrics]))
    figures = {"convergence": draw_lines(curves, "rounds", "HR@20")}
    return StudyResult(rows, [side_by_side("Overhead", rows)], figures, [_CONVERGED])


def draw_lines(lines: Mapping[str, tuple[NDArray[np.float64], NDArray[np.float64]]], x: str, y: str) -> Figure:
    """Draw one line per method, named at its end."""
    with report_style():
        figure, (axes,) = new_figure(3.4)
        style = line_styles(list(lines))
        for name, (xs, ys) in lines.items():
            axes.plot(xs, ys, color=style[name].colour, linestyle=style[name].dash, linewidth=1.5)
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        ends = [(float(xs[-1]), float(ys[-1])) for xs, ys in lines.values()]
        name_ends(figure, axes, ends, [(name, style[name].colour) for name in lines])
    return figure
