"""How far sums carry: quality against bytes per user and rounds, for methods by sums and their peers.

Leave-last-out, clean negatives, unique pairs. Options and numbers of rounds are chosen on validation; fed-gmf runs as
FedNCF's paper says. Quality is measured on the test part after every round shown; bytes are those of the simulation:
rows sent with their ids, 8 bytes a number, and the tables received in every round, 4 bytes a number.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.config import Experiment, apply_overrides
from tacit.lab.experiments import TrainingJob
from tacit.lab.leak_check import check_leak
from tacit.lab.traffic import Traffic
from tacit.lab.training import PassOptions, passes
from tacit.methods.base import Federated, methods
from tacit.numerics import one_blas_thread
from tacit.random import Key
from tacit.report.canvas import keep_layout, legend_below, new_figure, plain_numbers, report_style
from tacit.report.marks import SOFT, line_styles
from tacit.studies.base import StudyResult, reproduction
from tacit.studies.fpl_choices import PAPERS_REGS
from tacit.studies.setup import StudySetup
from tacit.studies.sheets import PublishedRow, Sheet, format_cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DATASETS = ("ml-100k", "ml-1m", "lastfm-2k", "foursquare-nyc")
METRICS = ("HR@10", "NDCG@10")
PRIMARY = "NDCG@10"
LOCAL_ONLY_USERS = 25  # users who learn alone, for each federated method
MANY = (1, 2, 3, 5, 10, 20, 50, 100, 200, 400)  # rounds at which long runs are evaluated
SHARES = (0.9, 0.95, 0.99)  # of EASE's quality
SKETCHES = (16, 32, 64, 128, 256, 512)

GROUPS = {"ml-100k": 20, "ml-1m": 120, "lastfm-2k": 50, "foursquare-nyc": 50}  # |c| of the paper
FEDNCF = {"ml-100k": (0.59, 0.33), "ml-1m": (0.56, 0.31), "foursquare-nyc": (0.21, 0.14)}  # its GMF; clean data only
ONE_SEED = ("fed-gmf",)  # hundreds of rounds

Grid = Mapping[str, Sequence[Any]]
SEARCHED: dict[str, tuple[dict[str, Any], Grid, int]] = {  # method, values, passes between checkpoints
    "ease": ({}, {"reg": (50, 100, 200, 300, 500, 1000, 2000, 4000)}, 0),
    "als": ({"epochs": 15}, {"factors": (16, 64), "alpha": (2.0, 10.0), "reg": (10.0, 40.0)}, 5),
    "fed-svd": ({"epochs": 6}, {"factors": (16, 24, 32, 48, 64, 96), "item_weight": (0.0, 0.15, 0.25, 0.35, 0.5)}, 1),
    "fed-als": ({"epochs": 10}, {"factors": (16, 32), "alpha": (2.0, 5.0, 10.0), "reg": (10.0, 20.0, 40.0)}, 1),
    "fed-ease": ({"epochs": 4}, {"sketch": (128, 256), "reg": (100, 300, 500, 1000, 2000, 4000)}, 1),
    "fpl": (
        {"preset": "pFPL+", "epochs": 200, **PAPERS_REGS},
        {"factors": (20, 50), "learning_rate": (0.005, 0.05)},
        10,
    ),
}
QUICK: dict[str, dict[str, Any]] = {
    "ease": {},
    "als": {"factors": 8, "epochs": 3},
    "fed-svd": {"factors": 8, "epochs": 3},
    "fed-als": {"factors": 4, "epochs": 3},
    "fed-ease": {"sketch": 16},
    "fpl": {"preset": "pFPL+", "epochs": 5, "learning_rate": 0.05, **PAPERS_REGS},
    "fed-gmf": {"epochs": 2},
}


def recipe(source: str) -> dict[str, Any]:
    """Return data, split and evaluation: 99 candidates on MovieLens 100K, 100 elsewhere; all items of other data."""
    extra: dict[str, Any] = {"table": "tags"} if source == "lastfm-2k" else {}
    protocol = "sampled-99" if source == "ml-100k" else "sampled-100" if source in DATASETS else "full"
    return {
        "data": {"source": source, "min_per_user": 5, **extra},
        "split": {"kind": "leave-last-out"},
        "evaluation": {"protocol": protocol, "k": [10], "primary": PRIMARY},
    }


@dataclass(frozen=True)
class Point:
    """A model after some rounds: what it reached, and what one user had sent and received until then."""

    rounds: int
    up: float  # bytes
    down: float
    seconds: float
    metrics: dict[str, float]


@dataclass(frozen=True)
class SumsResult:
    """A method: one line of points per seed, and the local-only model's figures if it is federated."""

    name: str
    lines: list[list[Point]]
    settings: str
    local_only: dict[str, float] | None

    def mean(self, at: int, metric: str) -> float:
        """The mean over seeds of a metric at the point with this index."""
        return float(np.mean([line[at].metrics[metric] for line in self.lines]))

    def last(self) -> Point:
        """The last point of the first seed: bytes hardly depend on the seed."""
        return self.lines[0][-1]


@reproduction("sums-quality", "Sums are enough", "Quality against bytes per user and rounds", DATASETS, recipe)
def quality_study(setup: StudySetup) -> StudyResult:
    """Methods by sums beside centralised ones, other federated ones and local-only models."""
    chosen = _choices(setup)
    measured = [_measure(setup, name, method) for name, method in chosen.items()]
    rows = _rows(setup, measured)
    federated = [one for one in measured if one.local_only is not None]
    angles, narrow = _angles(setup, chosen["fed-svd"]), _sketches(setup, chosen["fed-ease"])
    sheets = [
        _table(measured),
        _until(measured),
        Sheet(
            "fed-svd: largest principal angle to the round before, in radians",
            ["round", *(str(r) for r in range(1, len(angles) + 1))],
            [["angle", *map(format_cell, angles)]],
        ),
        Sheet(
            "fed-ease: width of the sketch, one seed",
            ["sketch", *METRICS, "KB per user up", "down"],
            [
                [str(m), *(format_cell(p.metrics[x]) for x in METRICS), _kb(p.up), _kb(p.down)]
                for m, p in narrow.items()
            ],
        ),
    ]
    detail = {
        "choices": chosen,
        "points": {one.name: [[asdict(point) for point in line] for line in one.lines] for one in measured},
        "angles": angles,
        "sketches": {str(m): asdict(point) for m, point in narrow.items()},
    }
    return StudyResult(rows, sheets, {"quality-bytes": _draw(federated, measured)}, _notes(setup, federated), detail)


def _choices(setup: StudySetup) -> dict[str, dict[str, Any]]:
    """Return every method with its options: searched on validation and kept, or fixed for a quick run."""
    plain: dict[str, dict[str, Any]] = {"most-popular": {"name": "most-popular"}}
    if setup.quick:
        return plain | {name: {"name": name, **given} for name, given in QUICK.items() if name in methods()}
    for name, (given, values, every) in SEARCHED.items():
        asked = {"given": given, "values": values, "every": every}

        def searched(
            name: str = name, given: dict[str, Any] = given, values: Grid = values, every: int = every
        ) -> dict[str, Any]:
            grid = {f"method.{option}": tried for option, tried in values.items()}
            runtime = {"evaluate_every": every} if every else None
            best = setup.search(name, {"name": name, **given}, grid, runtime).best
            found = {path.removeprefix("method."): value for path, value in best.settings.items()}
            return {"name": name, **given, **found, **({"epochs": best.passes} if every else {})}

        plain[name] = setup.recall(f"sums-{name}", asked, searched)
    if "fed-gmf" in methods():
        plain["fed-gmf"] = {"name": "fed-gmf", "clients_per_round": GROUPS.get(setup.name, 50)}
    return plain


def _measure(setup: StudySetup, name: str, method: Mapping[str, Any]) -> SumsResult:
    seeds = setup.seeds[:1] if name in ONE_SEED else setup.seeds
    lines = [_line(setup, name, method, seed) for seed in seeds]
    settings = " ".join(f"{key}={value}" for key, value in method.items() if key != "name")
    experiment = _experiment(setup, method, setup.seeds[0])
    local_only = None
    if isinstance(experiment.method.build(), Federated):
        setup.progress(f"{setup.name}: {name}: learning alone", 0, 0)
        leak = check_leak(experiment.method.build(), experiment, setup.parts)
        local_only = leak.local_only if leak is not None else {}
    return SumsResult(name, lines, settings, local_only)


def _experiment(setup: StudySetup, method: Mapping[str, Any], seed: int) -> Experiment:
    given = apply_overrides(
        setup.base, {"seed": seed, "method": dict(method), "evaluation.local_only_users": LOCAL_ONLY_USERS}
    )
    return Experiment.from_options(given, "the recipe")


def _line(setup: StudySetup, name: str, method: Mapping[str, Any], seed: int) -> list[Point]:
    """Learn once, and measure on the test part during training; nothing is chosen by these figures."""
    experiment = _experiment(setup, method, seed)
    job, built, train = TrainingJob.from_split(experiment, setup.parts), experiment.method.build(), setup.parts.train
    is_federated = isinstance(built, Federated)
    traffic = Traffic.none(len(train)) if is_federated else None
    total = built.schedule(train).passes if isinstance(built, Federated) else 0
    points, spent = [], 0.0
    with one_blas_thread():
        how = PassOptions(ring=experiment.runtime.ring, traffic=traffic)
        learning = passes(built, train, setup.parts.catalog, Key(seed).child("learn"), how)
        started = time.process_time()
        for done, model in enumerate(learning, 1):
            spent += time.process_time() - started
            setup.progress(f"{setup.name}: {name}, seed {seed}", done, total)
            if done == total or (is_federated and (total <= 12 or done in MANY)):
                up, down = (float(b.mean()) for b in (traffic.bytes_up, traffic.bytes_down)) if traffic else (0.0, 0.0)
                found = job.evaluate(model, setup.parts.test, lists=False).overall
                points.append(Point(done, up, down, spent, {m: found[m] for m in METRICS}))
            started = time.process_time()
        if not is_federated:
            found = job.evaluate(model, setup.parts.test, lists=False).overall
            points.append(Point(0, 0.0, 0.0, spent, {m: found[m] for m in METRICS}))
    return points


def _rows(setup: StudySetup, measured: Sequence[SumsResult]) -> list[PublishedRow]:
    known = dict(zip(METRICS, FEDNCF.get(setup.name, ()), strict=False)) if setup.is_named else {}
    rows = []
    for one in measured:
        for metric in METRICS:
            values = [line[-1].metrics[metric] for line in one.lines]
            published = known.get(metric) if one.name == "fed-gmf" else None
            rows.append(PublishedRow.of(one.name, metric, values, published, one.settings))
        if one.local_only is not None:
            last = one.last()
            rows += [
                PublishedRow.of(f"{one.name}, alone", metric, [one.local_only[metric]])
                for metric in METRICS
                if one.local_only
            ]
            rows.append(PublishedRow.of(one.name, "KB per user up", [last.up / 1e3], None, one.settings))
            rows.append(PublishedRow.of(one.name, "KB per user down", [last.down / 1e3], None, one.settings))
            rows.append(PublishedRow.of(one.name, "rounds", [float(last.rounds)], None, one.settings))
    return rows


def _table(measured: Sequence[SumsResult]) -> Sheet:
    lines = []
    for one in measured:
        last, cells = one.last(), []
        for metric in METRICS:
            values = [line[-1].metrics[metric] for line in one.lines]
            cells.append(
                format_cell(float(np.mean(values))) + (f" ± {np.std(values, ddof=1):.4f}" if len(values) > 1 else "")
            )
        alone = one.local_only.get(PRIMARY) if one.local_only else None
        sent = [str(last.rounds), _kb(last.up), _kb(last.down)] if one.local_only is not None else ["–", "–", "–"]
        lines.append([one.name, *cells, format_cell(alone), *sent, f"{last.seconds:.2f}", one.settings])
    columns = ["method", *METRICS, f"alone {PRIMARY}", "rounds", "KB per user up", "down", "seconds", "options"]
    return Sheet("Quality, and what it costs a user", columns, lines)


def _until(measured: Sequence[SumsResult]) -> Sheet:
    """KB per user, both ways, until a share of EASE's quality is reached."""
    ease = next(one.mean(-1, PRIMARY) for one in measured if one.name == "ease")
    lines = []
    for one in measured:
        if one.local_only is None:
            continue
        cells = []
        for share in SHARES:
            reached = [p for i, p in enumerate(one.lines[0]) if one.mean(i, PRIMARY) >= share * ease]
            cells.append(f"{_kb(reached[0].up + reached[0].down)} ({reached[0].rounds})" if reached else "–")
        lines.append([one.name, *cells])
    columns = ["method", *(f"{share:.0%} of EASE" for share in SHARES)]
    return Sheet(f"KB per user, both ways, until {PRIMARY} is reached (after so many rounds)", columns, lines)


def _angles(setup: StudySetup, method: Mapping[str, Any]) -> list[float]:
    experiment = _experiment(setup, method, setup.seeds[0])
    with one_blas_thread():
        for model in passes(experiment.method.build(), setup.parts.train, setup.parts.catalog, Key(setup.seeds[0])):
            last = model
    return [float(angle) for angle in last.shared["angles"]]


def _sketches(setup: StudySetup, method: Mapping[str, Any]) -> dict[int, Point]:
    widths = [m for m in SKETCHES[: 2 if setup.quick else None] if m <= setup.parts.catalog.n_items]
    return {m: _line(setup, f"fed-ease, sketch {m}", {**method, "sketch": m}, setup.seeds[0])[-1] for m in widths}


def _notes(setup: StudySetup, federated: Sequence[SumsResult]) -> list[str]:
    quick = ["Quick: fixed options and few passes. These numbers say nothing about the methods."] if setup.quick else []
    gmf = (
        ["fed-gmf runs with one seed and the options of its paper, whose figures stand beside."]
        if any(one.name == "fed-gmf" for one in federated)
        else ["fed-gmf is not among the methods of this version."]
    )
    return [
        *quick,
        "Options and rounds were chosen on the validation part; the test part was looked at along the way to draw the "
        "lines, and nothing was chosen by it.",
        f"'alone': the same method learnt by {LOCAL_ONLY_USERS} users each from their own history only.",
        *gmf,
    ]


def _draw(federated: Sequence[SumsResult], measured: Sequence[SumsResult]) -> Figure:
    """Draw quality against bytes per user from Most Popular on; every mark is a round that was evaluated."""
    with report_style():
        figure, (axes,) = new_figure(4.2)
        marks = line_styles([one.name for one in federated])
        for one in federated:
            xs = [(point.up + point.down) / 1e6 for point in one.lines[0]]
            rounds = one.last().rounds
            label = f"{one.name}, {rounds} round{'s' if rounds > 1 else ''}"
            axes.plot(xs, [one.mean(i, PRIMARY) for i in range(len(xs))], label=label, **marks[one.name].line)
        levels = {one.name: one.mean(-1, PRIMARY) for one in measured if one.local_only is None}
        high = max(axes.get_ylim()[1], max(levels.values()) * 1.02)
        low = min(levels.values()) - 0.05 * (high - min(levels.values()))  # early rounds of some are below: clipped
        axes.set_ylim(low, high)
        above = np.inf
        for name, level in sorted(levels.items(), key=lambda pair: -pair[1]):
            axes.axhline(level, color=SOFT, linewidth=1, linestyle=(0, (2, 2)))
            lift = -9 if above - level < 0.06 * (high - low) else 2  # two lines close together: names on either side
            at, place = (0.01, level), ("axes fraction", "data")
            axes.annotate(name, at, (0, lift), place, "offset points", color=SOFT, fontsize=8)
            above = level
        axes.set_xscale("log")
        plain_numbers(axes.xaxis)
        axes.set_xlabel("MB per user, sent and received (log scale)")
        axes.set_ylabel(PRIMARY)
        legend_below(figure)
        keep_layout(figure)
        return figure


def _kb(size: float) -> str:
    return f"{size / 1e3:,.0f}"
