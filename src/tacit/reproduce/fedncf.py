"""FedNCF's experiments on quality made again: rules of aggregation, models beside centralised ones, fewer people.

Leave-last-out, every held-out item against 100, people with at least five rows, D = 12, Adam 0.001, groups as in the
paper. One more row of each person is held out as validation: the pass that is reported was chosen by it. Clean
sampling is what counts; the legacy rows (negatives that are told what is held out; on Last.fm repeated pairs too, some
of which are held out and in training at once) stand beside it to be compared with what is printed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tacit.config import Experiment, overridden
from tacit.data import load
from tacit.data.filters import compact
from tacit.experiments import Bench, check_leak, prepare
from tacit.random import Key
from tacit.reproduce import fedncf_figures as draw
from tacit.reproduce import fedncf_published as printed
from tacit.reproduce.base import Found, reproduction
from tacit.reproduce.lab import Lab
from tacit.reproduce.sheets import Row, Sheet, number
from tacit.reproduce.traces import METRICS, PRIMARY, Trace, traced

POPULAR = "most-popular"
TWINS = 25  # people who learn alone, for each federated method
LOOKS = 20
FAST = 0.95  # of what the first rule reaches: how soon a rule is there
PASSES: dict[str, dict[str, int]] = {  # at most; validation says how many of them
    "ml-100k": {"fed-gmf": 400, "fed-mlp": 80, "fed-neumf": 120, "gmf": 40, "mlp": 30, "neumf": 20},
    "ml-1m": {"fed-gmf": 400, "fed-mlp": 40, "fed-neumf": 60, "gmf": 30, "mlp": 20, "neumf": 15},
    "lastfm-2k": {"fed-gmf": 200, "fed-mlp": 60, "fed-neumf": 80, "gmf": 40, "mlp": 30, "neumf": 20},
    "foursquare-nyc": {"fed-gmf": 200, "fed-mlp": 60, "fed-neumf": 80, "gmf": 40, "mlp": 30, "neumf": 20},
}
QUICK = 2
LEGACY: dict[str, Any] = {"split.negatives": "legacy"}
REPEATED: dict[str, Any] = {"data.duplicates": "keep", "evaluation.repeats": "rank"}


def recipe(source: str) -> dict[str, Any]:
    """Return data, split and evaluation of the paper, without its leaks."""
    extra: dict[str, Any] = {"table": "tags"} if source == "lastfm-2k" else {}
    return {
        "data": {"source": source, "min_per_user": 5, **extra},
        "split": {"kind": "leave-last-out"},
        "evaluation": {"protocol": "sampled-100", "k": [10], "primary": PRIMARY},
    }


def legacy(lab: Lab) -> Lab:
    """Return the lab with the published way of sampling, and of repeating rows."""
    return lab.varied(LEGACY | (REPEATED if lab.name == "lastfm-2k" else {}))


def options(lab: Lab, name: str, **given: Any) -> dict[str, Any]:
    """Return a method with the paper's options on this data."""
    known = PASSES.get(lab.name, PASSES["ml-100k"])
    epochs = QUICK if lab.quick else known[name]
    group = {"clients_per_round": printed.GROUPS.get(lab.name, 20)} if name.startswith("fed-") else {}
    return {"name": name, "epochs": epochs, **group, **given}


@reproduction(
    "fedncf-aggregation",
    "Rules of aggregation",
    f"{printed.PAPER}, table 5 and figure 5",
    printed.DATASETS,
    recipe,
)
def aggregation(lab: Lab) -> Found:
    """fed-gmf under each rule: what it reaches, and how soon."""
    known = dict(zip(printed.RULES, printed.TABLE_5.get(lab.name, ()), strict=False)) if lab.is_named else {}
    clean = [traced(lab, rule, options(lab, "fed-gmf", aggregation=rule), LOOKS) for rule in printed.RULES]
    other = legacy(lab)
    leaking = [
        traced(other, rule, options(lab, "fed-gmf", aggregation=rule), LOOKS, seeds=lab.seeds[:1])
        for rule in printed.RULES
    ]
    level = FAST * float(np.mean(clean[0].reached("HR@10")))
    rows, lines = [], []
    for trace, leaked in zip(clean, leaking, strict=True):
        mine = Row.of(trace.label, "HR@10", trace.reached("HR@10"), known.get(trace.label), trace.settings)
        theirs = replace(
            Row.of(trace.label, "HR@10", leaked.reached("HR@10"), known.get(trace.label)), sampling="legacy"
        )
        soon = trace.passes_to("HR@10", level)
        rows += [mine, Row.of(trace.label, "NDCG@10", trace.reached("NDCG@10")), theirs]
        rows.append(Row.of(trace.label, f"rounds to HR@10 {level:.3f}", [] if soon is None else [float(soon)]))
        cells = [spread(trace, metric) for metric in METRICS]
        lines.append([trace.label, number(mine.published), *cells, str(soon or "–"), spread(leaked, "HR@10")])
    columns = ["rule", "HR@10 published", "ours", "NDCG@10", f"rounds to {level:.3f}", "HR@10 legacy"]
    figure = draw.curves({trace.label: trace.curve("HR@10") for trace in clean}, "HR@10")
    notes = [_passes(clean), f"Clean with {len(lab.seeds)} seeds, legacy with one."]
    detail = {"clean": {t.label: t.as_json() for t in clean}, "legacy": {t.label: t.as_json() for t in leaking}}
    return Found(rows, [Sheet("fed-gmf by rule", columns, lines)], {"convergence": figure}, notes, detail)


@reproduction(
    "fedncf-quality", "On devices and in one place", f"{printed.PAPER}, table 6 and figure 6", printed.DATASETS, recipe
)
def quality(lab: Lab) -> Found:
    """The three models on devices beside their centralised and local-only twins and Most Popular."""
    known = printed.TABLE_6.get(lab.name, {}) if lab.is_named else {}
    names = (*printed.MODELS, *(name.removeprefix("fed-") for name in printed.MODELS))
    other = legacy(lab)
    clean = [traced(lab, name, options(lab, name), LOOKS) for name in names]
    leaking = [traced(other, name, options(lab, name), LOOKS, seeds=lab.seeds[:1]) for name in names]
    twins = {name: alone(lab, trace, options(lab, name)) for name, trace in zip(printed.MODELS, clean, strict=False)}
    rows, lines = [], []
    for one, sampling in ((lab, "clean"), (other, "legacy")):
        popular = traced(one, POPULAR, {"name": POPULAR}, 1, seeds=lab.seeds[:1])
        for trace in (popular, *(clean if one is lab else leaking)):
            published = dict(zip(METRICS, known.get(trace.label, ()), strict=False))
            made = [Row.of(trace.label, m, trace.reached(m), published.get(m), trace.settings) for m in METRICS]
            rows += [replace(row, sampling=sampling) for row in made]  # type: ignore[arg-type]
            twin = twins.get(trace.label) if one is lab else None
            passes = ", ".join(str(look.passes) for look in trace.chosen()) if trace is not popular else "–"
            cells = [text for m in METRICS for text in (number(published.get(m)), spread(trace, m))]
            lines.append([trace.label, sampling, *cells, number(twin["HR@10"] if twin else None), passes])
    for name, twin in twins.items():
        rows += [Row.of(f"{name}, alone", metric, [twin[metric]]) for metric in METRICS if twin]
    columns = ["method", "sampling", "HR@10 published", "ours", "NDCG@10 published", "ours", "alone HR@10", "passes"]
    figures = {
        "convergence-devices": draw.curves({t.label: t.curve("HR@10") for t in clean[:3]}, "HR@10"),
        "convergence-centralised": draw.curves({t.label: t.curve("HR@10") for t in clean[3:]}, "HR@10"),
    }
    notes = [
        _passes(clean),
        f"'alone': the same model learnt by {TWINS} people each from her own history only, clean.",
        f"Clean with {len(lab.seeds)} seeds, legacy with one.",
    ]
    detail = {"clean": {t.label: t.as_json() for t in clean}, "legacy": {t.label: t.as_json() for t in leaking}}
    return Found(rows, [Sheet("On devices and in one place", columns, lines)], figures, notes, detail)


@reproduction("fedncf-participants", "Fewer people", f"{printed.PAPER}, figure 8", printed.DATASETS, recipe)
def participants(lab: Lab) -> Found:
    """fed-gmf and gmf learnt by, and measured on, a share of the people."""
    rows, lines, drawn = [], [], {"fed-gmf": [], "gmf": []}  # type: ignore[var-annotated]
    detail: dict[str, Any] = {}
    for share in printed.SHARES:
        cells = []
        for name in drawn:
            one_by_one = [
                traced(
                    lab, f"{name}, {share:.0%}", options(lab, name), LOOKS, seeds=[seed], bench=some(lab, share, seed)
                )
                for seed in lab.seeds
            ]
            trace = Trace(name, [one.lines[0] for one in one_by_one])
            detail[f"{name} {share:g}"] = trace.as_json()
            rows += [Row.of(f"{name}, {share:.0%}", metric, trace.reached(metric)) for metric in METRICS]
            drawn[name].append((share, float(np.mean(trace.reached("HR@10")))))
            cells += [spread(trace, metric) for metric in METRICS]
        lines.append([f"{share:.0%}", *cells])
    sheet = Sheet("By share of people", ["people", *(f"{name} {m}" for name in drawn for m in METRICS)], lines)
    figure = draw.over_shares(drawn)
    notes = ["People are drawn anew for each seed; items that nobody of them has leave the catalogue, as in the paper."]
    return Found(rows, [sheet], {"participants": figure}, notes, detail)


def some(lab: Lab, share: float, seed: int) -> Bench:
    """Return the bench of a random share of the people, with the items that they have."""
    experiment = Experiment.checked(overridden(lab.cut(), {"seed": seed}), "the recipe")
    dataset = load(experiment.data)
    people = np.arange(dataset.n_users)
    order = np.argsort(Key(seed).child("participants").uniform(people, 1)[:, 0])
    kept = np.zeros(dataset.n_users, bool)
    kept[order[: round(share * dataset.n_users)]] = True
    rows = np.flatnonzero(kept[dataset.interactions.users])
    return prepare(experiment, compact(dataset, rows, dataset.steps))


def spread(trace: Trace, metric: str) -> str:
    """Return the mean over seeds of what was reached, with its deviation."""
    values = trace.reached(metric)
    return number(float(np.mean(values))) + (f" ± {np.std(values, ddof=1):.4f}" if len(values) > 1 else "")


def alone(lab: Lab, trace: Trace, method: Mapping[str, Any]) -> Mapping[str, float]:
    """Return what people reach who learn alone, for as many passes as were chosen for all."""
    method = {**method, "epochs": trace.chosen()[0].passes}
    given = overridden(lab.cut(), {"method": method, "evaluation.twin_people": 2 if lab.quick else TWINS})
    experiment = Experiment.checked(given, "the recipe")
    leak = check_leak(experiment.method.build(), experiment, lab.practice.parts)
    return leak.twin if leak is not None else {}


def _passes(traces: Sequence[Trace]) -> str:
    said = "; ".join(f"{t.label} {', '.join(str(look.passes) for look in t.chosen())}" for t in traces)
    return f"Passes, chosen on validation for each seed: {said}."
