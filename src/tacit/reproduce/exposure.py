"""What sharing less costs and what it hides: quality against exposure over pi, a study of our own.

FPL (pFPL+) runs with each pi and keeps every release; the privacy meter then reads what a sample of people have sent,
as a server without secure sum could. The curve in its result.json is what a person's own page shows her.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tacit.config import Experiment, overridden
from tacit.experiments import run
from tacit.privacy.meter import Exposure, Seen, measured, presence, sign
from tacit.random import Key
from tacit.report.canvas import percent, sheet, styled
from tacit.report.folder import Run
from tacit.report.labels import name_ends
from tacit.report.marks import SOFT, looks
from tacit.reproduce.base import Found, reproduction
from tacit.reproduce.lab import Lab
from tacit.reproduce.sheets import Row, Sheet, number, value_of
from tacit.types import Clients

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PIS = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
AFTER = (1, 10, 50)  # rounds
PEOPLE = 100
PRIMARY = "NDCG@10"
METHOD = {"name": "fpl", "preset": "pFPL+", "epochs": 50}
RATES = (0.001, 0.002, 0.005, 0.01, 0.02)  # one is chosen on the validation part with everything shared


def recipe(source: str) -> dict[str, Any]:
    """Return data, split and evaluation: the last fifth of each person's time is held out."""
    data = {"source": source, "min_per_user": 10}
    return {
        "data": data,
        "split": {"kind": "temporal", "test": 0.2},
        "evaluation": {"k": [10], "primary": PRIMARY},
    }


@reproduction("fpl-exposure", "Quality against exposure", "A study of our own", ("ml-100k",), recipe, seeds=1)
def exposure(lab: Lab) -> Found:
    """Run FPL with each pi, and read what left as a server would."""
    rows: list[Row] = []
    popular = lab.runs("most-popular", {"name": "most-popular"}, seeds=1)[0]
    rows.append(Row.of("most-popular", PRIMARY, [popular.result["metrics"][PRIMARY]]))
    method = _chosen(lab)
    pis = PIS[::3] if lab.quick else PIS
    afters = AFTER[:2] if lab.quick else AFTER
    for pi in pis:
        found = [_one(lab, method, pi, seed, afters) for seed in lab.seeds]
        rows += [Row.of(f"pi={pi:g}", metric, [one[metric] for one in found]) for metric in found[0]]
    columns = [PRIMARY, *(f"{what} after {after}" for what in ("leak", "named") for after in afters)]
    lines = [[f"{pi:g}", *(number(value_of(rows, f"pi={pi:g}", column)) for column in columns)] for pi in pis]
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
        f"leak: 0 is no better than guessing popular items, 1 the whole history; mean over {PEOPLE} people.",
        "named: share of a person's items that the reader would name with nine tenths' certainty.",
        "Rows in clear; inside a secure sum none of this can be read.",
        *(["Quick: few passes. These numbers say nothing about the method."] if lab.quick else []),
    ]
    sheets = [Sheet("Quality and exposure over pi", ["pi", *columns], lines)]
    detail = {"curve": curve, "popular": level, "method": method, "data": lab.name}
    return Found(rows, sheets, {"exposure": _drawn(curve, afters, level)}, notes, detail)


def _chosen(lab: Lab) -> dict[str, Any]:
    if lab.quick:
        return {**METHOD, "learning_rate": 0.02, "epochs": max(AFTER[:2])}

    def searched() -> dict[str, Any]:
        best = lab.search("the learning rate", METHOD, {"method.learning_rate": RATES}).best
        return {**METHOD, "learning_rate": best.settings["method.learning_rate"]}

    return lab.remembered("fpl-exposure", {"method": METHOD, "rates": RATES}, searched)


def _one(lab: Lab, method: Mapping[str, Any], pi: float, seed: int, afters: Sequence[int]) -> dict[str, float]:
    method = {**method, "pi": pi}
    settings = {"seed": seed, "method": method, "runtime.ledger": "events", "evaluation.twin_people": 0}
    experiment = Experiment.checked(overridden(lab.base, settings), "the study")
    found = run(experiment, progress=lab.progress, bench=lab.bench)
    result = {PRIMARY: float(found.result["metrics"][PRIMARY])}
    for after in afters:
        people = exposures(found, lab.parts.train, pi, after, Key(lab.seeds[0]))
        result[f"leak after {after}"] = float(np.mean([one.leak_index for one in people]))
        result[f"named after {after}"] = float(np.mean([one.named / one.items for one in people]))
    return result


def exposures(found: Run, clients: Clients, pi: float, after: int, key: Key) -> list[Exposure]:
    """Measure a sample of the people of a run that kept its releases, after so many rounds."""
    served = found.recommender
    catalog, steps = served.catalog, int(served.model.shared["local_steps"])
    sample = np.argsort(key.child("sample").uniform(clients.ids, 1)[:, 0], kind="stable")[:PEOPLE]
    popularity = np.bincount(clients.items, minlength=catalog.n_items)
    assert found.events is not None  # it was asked for
    labels = [served.user_ids[int(clients.ids[position])] for position in sample]
    sent = found.events.filter((pl.col("round") < after) & pl.col("user").is_in(labels)).collect()
    seen = _seen(sent, labels, {label: i for i, label in enumerate(catalog.item_ids.labels.tolist())})
    people = []
    for position, label in zip(sample, labels, strict=True):
        history = clients.of(int(position))
        evidence = presence(seen[label], len(history), pi, steps) + sign(seen[label])
        people.append(measured(history, popularity, evidence))
    return people


def _seen(sent: pl.DataFrame, labels: Sequence[Any], place: Mapping[Any, int]) -> dict[Any, Seen]:
    """Count, for each person, the rounds in which each item rose or fell."""
    found = {}
    by_user = dict(sent.partition_by("user", as_dict=True).items())
    for label in labels:
        mine = by_user.get((label,), sent.clear())
        counts = []
        for column in ("positives", "negatives"):
            times = np.zeros(len(place), np.int64)
            for items in mine[column].to_list():
                times[[place[item] for item in set(items)]] += 1
            counts.append(times)
        found[label] = Seen(counts[0], counts[1], len(mine))
    return found


def _drawn(curve: Sequence[Mapping[str, Any]], afters: Sequence[int], level: float) -> Figure:
    """Draw quality and the share of items named, over pi."""
    with styled():
        figure, (axes,) = sheet(3.4)
        lines = {"quality": [point["quality"] for point in curve]}
        for after in afters:
            times = f"named, {after} round{'s' if after > 1 else ''}"
            lines[times] = [point["named"][str(after)] for point in curve]
        marks, pis = looks(list(lines)), [point["pi"] for point in curve]
        for name, ys in lines.items():
            axes.plot(pis, ys, **marks[name].line)
        axes.axhline(level, color=SOFT, linewidth=1, linestyle=(0, (2, 2)))
        at = (0.99, level), (0, -10), ("axes fraction", "data"), "offset points"
        axes.annotate("quality of most-popular", *at, ha="right", color=SOFT, fontsize=8)
        axes.set_ylim(0, 1.1)
        percent(axes.yaxis)
        axes.set_xlabel("pi: share of her positives that a person lets go")
        axes.set_ylabel("of the quality at pi = 1; of her items")
        ends = [(pis[-1], ys[-1]) for ys in lines.values()]
        name_ends(figure, axes, ends, [(name, marks[name].colour) for name in lines])
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # the layout is found once and kept for every format
        return figure
