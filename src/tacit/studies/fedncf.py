"""FedNCF's experiments on quality made again: rules of aggregation, models beside centralised ones, fewer users.

Leave-last-out, every held-out item against 100, users with at least five rows, D = 12, Adam 0.001, groups as in the
paper. One more row of each user is held out as validation: the pass that is reported was chosen by it. Clean
sampling is what counts; the legacy rows (negatives that are told what is held out; on Last.fm repeated pairs too, some
of which are held out and in training at once) stand beside it to be compared with what is printed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tacit.config import Experiment, apply_overrides
from tacit.data import load
from tacit.data.filters import compact
from tacit.lab.experiments import PreparedData, prepare_data
from tacit.lab.leak_check import check_leak
from tacit.random import Key
from tacit.studies import fedncf_figures as draw
from tacit.studies import fedncf_published as printed
from tacit.studies.base import StudyResult, reproduction
from tacit.studies.setup import StudySetup
from tacit.studies.sheets import PublishedRow, Sheet, format_cell
from tacit.studies.traces import METRICS, PRIMARY, Trace, trace_method

POPULAR = "most-popular"
LOCAL_ONLY_USERS = 25  # users who learn alone, for each federated method
CHECKPOINTS = 20
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


def legacy(setup: StudySetup) -> StudySetup:
    """Return the lab with the published way of sampling, and of repeating rows."""
    return setup.vary(LEGACY | (REPEATED if setup.name == "lastfm-2k" else {}))


def paper_options(setup: StudySetup, name: str, **given: Any) -> dict[str, Any]:
    """Return a method with the paper's options on this data."""
    known = PASSES.get(setup.name, PASSES["ml-100k"])
    epochs = QUICK if setup.quick else known[name]
    group = {"clients_per_round": printed.GROUPS.get(setup.name, 20)} if name.startswith("fed-") else {}
    return {"name": name, "epochs": epochs, **group, **given}


@reproduction(
    "fedncf-aggregation",
    "Rules of aggregation",
    f"{printed.PAPER}, table 5 and figure 5",
    printed.DATASETS,
    recipe,
)
def aggregation(setup: StudySetup) -> StudyResult:
    """fed-gmf under each rule: what it reaches, and how soon."""
    known = dict(zip(printed.RULES, printed.TABLE_5.get(setup.name, ()), strict=False)) if setup.is_named else {}
    clean = [
        trace_method(setup, rule, paper_options(setup, "fed-gmf", aggregation=rule), CHECKPOINTS)
        for rule in printed.RULES
    ]
    other = legacy(setup)
    leaking = [
        trace_method(other, rule, paper_options(setup, "fed-gmf", aggregation=rule), CHECKPOINTS, seeds=setup.seeds[:1])
        for rule in printed.RULES
    ]
    level = FAST * float(np.mean(clean[0].test_values("HR@10")))
    rows, lines = [], []
    for trace, leaked in zip(clean, leaking, strict=True):
        mine = PublishedRow.of(trace.label, "HR@10", trace.test_values("HR@10"), known.get(trace.label), trace.settings)
        theirs = replace(
            PublishedRow.of(trace.label, "HR@10", leaked.test_values("HR@10"), known.get(trace.label)),
            sampling="legacy",
        )
        soon = trace.passes_to("HR@10", level)
        rows += [mine, PublishedRow.of(trace.label, "NDCG@10", trace.test_values("NDCG@10")), theirs]
        rows.append(PublishedRow.of(trace.label, f"rounds to HR@10 {level:.3f}", [] if soon is None else [float(soon)]))
        cells = [mean_and_deviation(trace, metric) for metric in METRICS]
        lines.append(
            [trace.label, format_cell(mine.published), *cells, str(soon or "–"), mean_and_deviation(leaked, "HR@10")]
        )
    columns = ["rule", "HR@10 published", "ours", "NDCG@10", f"rounds to {level:.3f}", "HR@10 legacy"]
    figure = draw.curves({trace.label: trace.curve("HR@10") for trace in clean}, "HR@10")
    notes = [_passes(clean), f"Clean with {len(setup.seeds)} seeds, legacy with one."]
    detail = {"clean": {t.label: t.as_json() for t in clean}, "legacy": {t.label: t.as_json() for t in leaking}}
    return StudyResult(rows, [Sheet("fed-gmf by rule", columns, lines)], {"convergence": figure}, notes, detail)


@reproduction(
    "fedncf-quality", "On devices and in one place", f"{printed.PAPER}, table 6 and figure 6", printed.DATASETS, recipe
)
def quality(setup: StudySetup) -> StudyResult:
    """The three models on devices beside their centralised and local-only models and Most Popular."""
    known = printed.TABLE_6.get(setup.name, {}) if setup.is_named else {}
    names = (*printed.MODELS, *(name.removeprefix("fed-") for name in printed.MODELS))
    other = legacy(setup)
    clean = [trace_method(setup, name, paper_options(setup, name), CHECKPOINTS) for name in names]
    leaking = [
        trace_method(other, name, paper_options(setup, name), CHECKPOINTS, seeds=setup.seeds[:1]) for name in names
    ]
    local_only_users = {
        name: alone(setup, trace, paper_options(setup, name))
        for name, trace in zip(printed.MODELS, clean, strict=False)
    }
    rows, lines = [], []
    for one, sampling in ((setup, "clean"), (other, "legacy")):
        popular = trace_method(one, POPULAR, {"name": POPULAR}, 1, seeds=setup.seeds[:1])
        for trace in (popular, *(clean if one is setup else leaking)):
            published = dict(zip(METRICS, known.get(trace.label, ()), strict=False))
            made = [
                PublishedRow.of(trace.label, m, trace.test_values(m), published.get(m), trace.settings) for m in METRICS
            ]
            rows += [replace(row, sampling=sampling) for row in made]  # type: ignore[arg-type]
            local_only = local_only_users.get(trace.label) if one is setup else None
            passes = (
                ", ".join(str(checkpoint.passes) for checkpoint in trace.best_checkpoints())
                if trace is not popular
                else "–"
            )
            cells = [text for m in METRICS for text in (format_cell(published.get(m)), mean_and_deviation(trace, m))]
            lines.append(
                [trace.label, sampling, *cells, format_cell(local_only["HR@10"] if local_only else None), passes]
            )
    for name, local_only in local_only_users.items():
        rows += [PublishedRow.of(f"{name}, alone", metric, [local_only[metric]]) for metric in METRICS if local_only]
    columns = ["method", "sampling", "HR@10 published", "ours", "NDCG@10 published", "ours", "alone HR@10", "passes"]
    figures = {
        "convergence-devices": draw.curves({t.label: t.curve("HR@10") for t in clean[:3]}, "HR@10"),
        "convergence-centralised": draw.curves({t.label: t.curve("HR@10") for t in clean[3:]}, "HR@10"),
    }
    notes = [
        _passes(clean),
        f"'alone': the same model learnt by {LOCAL_ONLY_USERS} users each from their own history only, clean.",
        f"Clean with {len(setup.seeds)} seeds, legacy with one.",
    ]
    detail = {"clean": {t.label: t.as_json() for t in clean}, "legacy": {t.label: t.as_json() for t in leaking}}
    return StudyResult(rows, [Sheet("On devices and in one place", columns, lines)], figures, notes, detail)


@reproduction("fedncf-participants", "Fewer users", f"{printed.PAPER}, figure 8", printed.DATASETS, recipe)
def participants(setup: StudySetup) -> StudyResult:
    """fed-gmf and gmf learnt by, and measured on, a share of the users."""
    rows, lines, drawn = [], [], {"fed-gmf": [], "gmf": []}  # type: ignore[var-annotated]
    detail: dict[str, Any] = {}
    for share in printed.SHARES:
        cells = []
        for name in drawn:
            one_by_one = [
                trace_method(
                    setup,
                    f"{name}, {share:.0%}",
                    paper_options(setup, name),
                    CHECKPOINTS,
                    seeds=[seed],
                    prepared=sample_users_of(setup, share, seed),
                )
                for seed in setup.seeds
            ]
            trace = Trace(name, [one.lines[0] for one in one_by_one])
            detail[f"{name} {share:g}"] = trace.as_json()
            rows += [PublishedRow.of(f"{name}, {share:.0%}", metric, trace.test_values(metric)) for metric in METRICS]
            drawn[name].append((share, float(np.mean(trace.test_values("HR@10")))))
            cells += [mean_and_deviation(trace, metric) for metric in METRICS]
        lines.append([f"{share:.0%}", *cells])
    sheet = Sheet("By share of users", ["people", *(f"{name} {m}" for name in drawn for m in METRICS)], lines)
    figure = draw.over_shares(drawn)
    notes = ["Users are drawn anew for each seed; items that none of them has leave the catalogue, as in the paper."]
    return StudyResult(rows, [sheet], {"participants": figure}, notes, detail)


def sample_users_of(setup: StudySetup, share: float, seed: int) -> PreparedData:
    """Return the prepared data of a random share of the users, with the items that they have."""
    experiment = Experiment.from_options(apply_overrides(setup.validation_split(), {"seed": seed}), "the recipe")
    dataset = load(experiment.data)
    people = np.arange(dataset.n_users)
    order = np.argsort(Key(seed).child("participants").uniform(people, 1)[:, 0])
    kept = np.zeros(dataset.n_users, bool)
    kept[order[: round(share * dataset.n_users)]] = True
    rows = np.flatnonzero(kept[dataset.interactions.users])
    return prepare_data(experiment, compact(dataset, rows, dataset.steps))


def mean_and_deviation(trace: Trace, metric: str) -> str:
    """Return the mean over seeds of what was reached, with its deviation."""
    values = trace.test_values(metric)
    return format_cell(float(np.mean(values))) + (f" ± {np.std(values, ddof=1):.4f}" if len(values) > 1 else "")


def alone(setup: StudySetup, trace: Trace, method: Mapping[str, Any]) -> Mapping[str, float]:
    """Return what users reach who learn alone, for as many passes as were chosen for all."""
    method = {**method, "epochs": trace.best_checkpoints()[0].passes}
    given = apply_overrides(
        setup.validation_split(),
        {"method": method, "evaluation.local_only_users": 2 if setup.quick else LOCAL_ONLY_USERS},
    )
    experiment = Experiment.from_options(given, "the recipe")
    leak = check_leak(experiment.method.build(), experiment, setup.practice.parts)
    return leak.local_only if leak is not None else {}


def _passes(traces: Sequence[Trace]) -> str:
    text = "; ".join(
        f"{t.label} {', '.join(str(checkpoint.passes) for checkpoint in t.best_checkpoints())}" for t in traces
    )
    return f"Passes, chosen on validation for each seed: {text}."
