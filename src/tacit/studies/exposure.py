"""What sharing less costs and what it hides: quality against exposure over pi, a study of our own.

FPL (pFPL+) runs with each pi and keeps every release; the privacy meter then reads what a sample of users have sent,
as a server without secure sum could. The curve in its result.json is what a user's own page shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.config import Experiment, apply_overrides
from tacit.lab.experiments import run
from tacit.random import Key
from tacit.report.canvas import keep_layout, new_figure, percent_axis, report_style
from tacit.report.exposure import PEOPLE, measure_exposures
from tacit.report.labels import name_ends
from tacit.report.marks import SOFT, line_styles
from tacit.studies.base import StudyResult, reproduction
from tacit.studies.fpl_choices import PAPERS_REGS
from tacit.studies.setup import StudySetup
from tacit.studies.sheets import PublishedRow, Sheet, format_cell, value_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PIS = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
AFTER = (1, 10, 50)  # rounds
PRIMARY = "NDCG@10"
METHOD = {"name": "fpl", "preset": "pFPL+", "epochs": 50, **PAPERS_REGS}
RATES = (0.001, 0.002, 0.005, 0.01, 0.02)  # one is chosen on the validation part with everything shared


def recipe(source: str) -> dict[str, Any]:
    """Return data, split and evaluation: the last fifth of each user's time is held out."""
    data = {"source": source, "min_per_user": 10}
    return {
        "data": data,
        "split": {"kind": "temporal", "test": 0.2},
        "evaluation": {"k": [10], "primary": PRIMARY},
    }


@reproduction("fpl-exposure", "Quality against exposure", "A study of our own", ("ml-100k",), recipe, seeds=1)
def exposure_study(setup: StudySetup) -> StudyResult:
    """Run FPL with each pi, and read what left as a server would."""
    rows: list[PublishedRow] = []
    popular = setup.runs("most-popular", {"name": "most-popular"}, seeds=1)[0]
    rows.append(PublishedRow.of("most-popular", PRIMARY, [popular.result["metrics"][PRIMARY]]))
    method = _choose(setup)
    pis = PIS[::3] if setup.quick else PIS
    afters = AFTER[:2] if setup.quick else AFTER
    for pi in pis:
        found = [_one(setup, method, pi, seed, afters) for seed in setup.seeds]
        rows += [PublishedRow.of(f"pi={pi:g}", metric, [one[metric] for one in found]) for metric in found[0]]
    columns = [PRIMARY, *(f"{what} after {after}" for what in ("leak", "named") for after in afters)]
    lines = [[f"{pi:g}", *(format_cell(value_of(rows, f"pi={pi:g}", column)) for column in columns)] for pi in pis]
    best = value_of(rows, f"pi={pis[-1]:g}", PRIMARY)
    curve = [
        {
            "pi": pi,
            "quality": value_of(rows, f"pi={pi:g}", PRIMARY) / best,
            "leak": {str(after): value_of(rows, f"pi={pi:g}", f"leak after {after}") for after in afters},
            "named": {str(after): value_of(rows, f"pi={pi:g}", f"named after {after}") for after in afters},
        }
        for pi in pis
    ]
    level = value_of(rows, "most-popular", PRIMARY) / best
    notes = [
        f"leak: 0 is no better than guessing popular items, 1 the whole history; mean over {PEOPLE} users.",
        "named: share of a user's items that the reader would name with nine tenths' certainty.",
        "Rows in clear; inside a secure sum none of this can be read.",
        *(["Quick: few passes. These numbers say nothing about the method."] if setup.quick else []),
    ]
    sheets = [Sheet("Quality and exposure over pi", ["pi", *columns], lines)]
    detail = {"curve": curve, "popular": level, "method": method, "data": setup.name}
    return StudyResult(rows, sheets, {"exposure": _draw(curve, afters, level)}, notes, detail)


def _choose(setup: StudySetup) -> dict[str, Any]:
    if setup.quick:
        return {**METHOD, "learning_rate": 0.02, "epochs": max(AFTER[:2])}

    def searched() -> dict[str, Any]:
        best = setup.search("the learning rate", METHOD, {"method.learning_rate": RATES}).best
        return {**METHOD, "learning_rate": best.settings["method.learning_rate"]}

    return setup.recall("fpl-exposure", {"method": METHOD, "rates": RATES}, searched)


def _one(setup: StudySetup, method: Mapping[str, Any], pi: float, seed: int, afters: Sequence[int]) -> dict[str, float]:
    method = {**method, "pi": pi}
    settings = {"seed": seed, "method": method, "runtime.ledger": "events", "evaluation.local_only_users": 0}
    experiment = Experiment.from_options(apply_overrides(setup.base, settings), "the study")
    found = run(experiment, progress=setup.progress, prepared=setup.prepared)
    result = {PRIMARY: float(found.result["metrics"][PRIMARY])}
    for after in afters:
        people = measure_exposures(found, setup.parts.train, pi, after, Key(setup.seeds[0]))
        result[f"leak after {after}"] = float(np.mean([one.leak_index for one in people]))
        result[f"named after {after}"] = float(np.mean([one.named / one.items for one in people]))
    return result


def _draw(curve: Sequence[Mapping[str, Any]], afters: Sequence[int], level: float) -> Figure:
    """Draw quality and the share of items named, over pi."""
    with report_style():
        figure, (axes,) = new_figure(3.4)
        lines = {"quality": [point["quality"] for point in curve]}
        for after in afters:
            times = f"named, {after} round{'s' if after > 1 else ''}"
            lines[times] = [point["named"][str(after)] for point in curve]
        marks, pis = line_styles(list(lines)), [point["pi"] for point in curve]
        for name, ys in lines.items():
            axes.plot(pis, ys, **marks[name].line)
        axes.axhline(level, color=SOFT, linewidth=1, linestyle=(0, (2, 2)))
        at = (0.99, level), (0, -10), ("axes fraction", "data"), "offset points"
        axes.annotate("quality of most-popular", *at, ha="right", color=SOFT, fontsize=8)
        axes.set_ylim(0, 1.1)
        percent_axis(axes.yaxis)
        axes.set_xlabel("pi: share of positives that leave the device")
        axes.set_ylabel("share of the quality at pi = 1; share of items")
        ends = [(pis[-1], ys[-1]) for ys in lines.values()]
        name_ends(figure, axes, ends, [(name, marks[name].colour) for name in lines])
        keep_layout(figure)
        return figure
