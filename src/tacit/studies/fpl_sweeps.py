"""FPL's figures made again: what pi does to accuracy, coverage, communication and popularity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.evaluation.communication import cost_per_epoch
from tacit.lab.simulation import simulate
from tacit.methods.choice import MethodChoice
from tacit.privacy.disclosure import Disclosure, DisclosureConfig
from tacit.privacy.update_sink import Stage
from tacit.protocols.federated import UpdatePath
from tacit.random import Key
from tacit.report.folder import Run
from tacit.studies import fpl_figures as draw
from tacit.studies import fpl_published as printed
from tacit.studies.base import StudyResult, reproduction
from tacit.studies.fpl import DATASETS, PAPER, POPULAR, published_rows, recipe
from tacit.studies.fpl_choices import CONFIGURATIONS, Choice, Choices, choices
from tacit.studies.setup import StudySetup
from tacit.studies.sheets import PublishedRow, Sheet, over_pi, value_of
from tacit.updates import Ring, UpdatePlan

SweepRuns = dict[str, dict[float, list[Run]]]  # configuration -> pi -> one run per seed
COVERAGE = ("ItemCoverage@10", "Precision@10")
ACCURACY = ("F1@10", "Precision@10", "Recall@10")
UPDATED = ("sFPL+", "pFPL+")
RECOMMENDED = ("sFPL", "sFPL+")
TALLIED_PASSES = 3
FOREMOST_UPDATED, FOREMOST_RECOMMENDED = 1000, 250


@reproduction("fpl-pi", "FPL when less is disclosed", f"{PAPER}, fig. 2; thesis, fig. 4.2", DATASETS, recipe, seeds=1)
def disclosure_study(setup: StudySetup) -> StudyResult:
    """F1 of the four configurations over pi."""
    chosen = choices(setup)
    swept = _sweep(setup, chosen, CONFIGURATIONS)
    popular = setup.runs(POPULAR, {"name": POPULAR}, seeds=1)[0].metrics
    rows = [
        *_rows(swept, chosen, ACCURACY),
        *(PublishedRow.of(POPULAR, metric, [popular[metric]]) for metric in ACCURACY),
    ]
    lines = _averages(swept, "F1@10")
    best = [f"{name} {max(by_pi, key=lambda pi: by_pi[pi]):g}" for name, by_pi in lines.items()]
    known = published_rows(setup, printed.BEST_PI)
    says = f" Published: {', '.join(f'{name} {pi:g}' for name, pi in known.items())}." if known else ""
    figure = draw.draw_over_pi({name: list(by_pi.items()) for name, by_pi in lines.items()}, "F1@10", popular["F1@10"])
    reference = {"most-popular": dict.fromkeys(next(iter(lines.values())), popular["F1@10"])}
    sheet = over_pi("F1 at 10 over pi", lines | reference)
    notes = [*_notes(chosen), f"Best pi on the test part: {', '.join(best)}.{says}"]
    return StudyResult(rows, [sheet], {"pi": figure}, notes, chosen.detail())


@reproduction("fpl-coverage", "Coverage and precision", f"{PAPER}, fig. 3; thesis, fig. 4.3", DATASETS, recipe, seeds=1)
def coverage_study(setup: StudySetup) -> StudyResult:
    """Item coverage against precision, along growing pi."""
    chosen = choices(setup)
    swept = _sweep(setup, chosen, CONFIGURATIONS)
    across, up = (_averages(swept, metric) for metric in COVERAGE)
    points = {name: [(across[name][pi], up[name][pi]) for pi in across[name] if pi > 0] for name in swept}
    figure = draw.draw_against(points, "ItemCoverage@10", "Precision@10")
    sheets = [over_pi(f"{metric} over pi", lines) for metric, lines in zip(COVERAGE, (across, up), strict=True)]
    notes = [*_notes(chosen), "The figure leaves out pi = 0, as the papers do; its white points are pi = 1."]
    return StudyResult(_rows(swept, chosen, COVERAGE), sheets, {"coverage": figure}, notes, chosen.detail())


@reproduction(
    "fpl-communication", "Communication and precision", f"{PAPER}, table 4, fig. 4", DATASETS, recipe, seeds=1
)
def communication_study(setup: StudySetup) -> StudyResult:
    """Total communication cost against precision: what was sent, counted, beside the papers' formula."""
    chosen = choices(setup)
    swept = _sweep(setup, chosen, CONFIGURATIONS)
    table = printed.TABLE_4 if setup.is_named and setup.name == "foursquare-brazil" else {}
    rows, counted, off = [], {}, 0.0
    for name, by_pi in swept.items():
        counted[name] = {pi: float(np.mean([run.result["tcc"] for run in runs])) for pi, runs in by_pi.items()}
        for pi, runs in by_pi.items():
            known = table[name][round(10 * pi) - 1] if name in table and pi > 0 else (None, None)
            label, note = f"{name} pi={pi:g}", chosen.fpl[name].describe(pi)
            values = [run.metrics["Precision@10"] for run in runs]
            rows.append(
                PublishedRow.of(label, "TCC [1e12 vectors]", [run.result["tcc"] / 1e12 for run in runs], known[0], note)
            )
            rows.append(PublishedRow.of(label, "Precision@10", values, known[1], note))
            off = max(off, abs(counted[name][pi] / _formula(setup, chosen.fpl[name], pi) - 1))
    precision = _averages(swept, "Precision@10")
    best = {name: max(by_pi, key=lambda pi: by_pi[pi]) for name, by_pi in precision.items()}
    points = {name: (counted[name][pi] / 1e6, precision[name][pi]) for name, pi in best.items()}
    millions = {name: {pi: value / 1e6 for pi, value in by_pi.items()} for name, by_pi in counted.items()}
    sheets = [over_pi("TCC over pi, in millions of vectors", millions), over_pi("Precision at 10 over pi", precision)]
    notes = [
        *_notes(chosen),
        f"TCC is counted from the ledgers; the papers' formula CCE x passes differs from it by {off:.2%} at most.",
        "The figure shows each configuration at the pi that is best on the test part, as the papers do.",
    ]
    return StudyResult(rows, sheets, {"cost": draw.draw_cost(points)}, notes, chosen.detail())


@reproduction(
    "fpl-popularity",
    "Popularity in updates and in lists",
    "Ferrara's thesis, figs. 4.4 and 4.5",
    ("ml-1m", "foursquare-italy"),
    recipe,
    seeds=1,
)
def popularity_study(setup: StudySetup) -> StudyResult:
    """How often each item's row is updated in training, and how often it is recommended, for every pi."""
    chosen = choices(setup)
    train, n_items = setup.parts.train, setup.parts.catalog.n_items
    history = np.bincount(train.items, minlength=n_items) / len(train.items)
    swept = _sweep(setup, chosen, RECOMMENDED)
    updated = {
        name: {pi: _update_shares(setup, chosen.fpl[name], pi) for pi in sorted(chosen.fpl[name].passes)}
        for name in UPDATED
    }
    shown = {name: {pi: _recommended_shares(runs) for pi, runs in by_pi.items()} for name, by_pi in swept.items()}
    rows: list[PublishedRow] = []
    sheets: list[Sheet] = []
    for what, found in (("updates", updated), ("recommendations", shown)):
        head, like = f"share of {what} on the foremost 1 % of the items", f"correlation of {what} with popularity"
        for name, by_pi in found.items():
            for pi, shares in by_pi.items():
                foremost = float(np.sort(shares)[::-1][: max(1, n_items // 100)].sum())
                rows.append(PublishedRow.of(f"{name} pi={pi:g}", head, [foremost]))
                rows.append(PublishedRow.of(f"{name} pi={pi:g}", like, [float(np.corrcoef(shares, history)[0, 1])]))
        for metric in (head, like):
            lines = {n: {pi: value_of(rows, f"{n} pi={pi:g}", metric) for pi in by_pi} for n, by_pi in found.items()}
            sheets.append(over_pi(metric, lines))
    figures = {
        "updates": draw.draw_by_rank(updated, min(FOREMOST_UPDATED, n_items), "share of all updates", None),
        "recommendations": draw.draw_by_rank(shown, min(FOREMOST_RECOMMENDED, n_items), "share of all places", history),
    }
    notes = [
        *_notes(chosen),
        f"Updates are counted in {TALLIED_PASSES} passes, message by message. What is drawn does not depend on what was"
        " learnt, and sFPL draws as sFPL+ does, so sFPL+ and pFPL+ stand for all.",
        "Dashed: the training data.",
    ]
    return StudyResult(rows, sheets, figures, notes, chosen.detail())


class Tally(Stage):
    """A stage that lets everything pass and counts the rows of each item."""

    def __init__(self, n_items: int) -> None:
        self.counts = np.zeros(n_items, np.int64)

    def narrow(self, plan: UpdatePlan, key: Key) -> UpdatePlan:
        """Count, and hand on."""
        for part in plan.parts:
            assert part.ids is not None
            kept = part.ids if part.kept is None else part.ids[part.kept.astype(bool)]
            self.counts += np.bincount(kept, minlength=len(self.counts))
        return plan


def _sweep(setup: StudySetup, chosen: Choices, names: Sequence[str]) -> SweepRuns:
    """Run configurations at every pi; what diverged is left out."""
    found: SweepRuns = {}
    for name in names:
        choice = chosen.fpl[name]
        made = {pi: setup.runs(f"{name} pi={pi:g}", choice.method(pi)) for pi in sorted(choice.passes)}
        found[name] = {pi: runs for pi, runs in made.items() if runs}
    return found


def _averages(swept: SweepRuns, metric: str) -> dict[str, dict[float, float]]:
    return {
        name: {pi: float(np.mean([run.metrics[metric] for run in runs])) for pi, runs in by_pi.items()}
        for name, by_pi in swept.items()
    }


def _rows(swept: SweepRuns, chosen: Choices, metrics: Sequence[str]) -> list[PublishedRow]:
    return [
        PublishedRow.of(
            f"{name} pi={pi:g}", metric, [run.metrics[metric] for run in runs], settings=chosen.fpl[name].describe(pi)
        )
        for name, by_pi in swept.items()
        for pi, runs in by_pi.items()
        for metric in metrics
    ]


def _notes(chosen: Choices) -> list[str]:
    return chosen.notes() if chosen.quick else [*chosen.notes(), "Passes were chosen on validation for every pi."]


def _formula(setup: StudySetup, choice: Choice, pi: float) -> float:
    train, method = setup.parts.train, _build(choice.method(pi))
    schedule = method.schedule(train)
    local_steps = method.config.local_steps or max(1, len(train.items) // len(train))
    rounds, clients = schedule.rounds_per_pass, schedule.clients_per_round
    return float(schedule.passes * cost_per_epoch(rounds, clients, setup.parts.catalog.n_items, local_steps, pi))


def _build(method: Mapping[str, Any]) -> Any:
    return MethodChoice.model_validate(dict(method)).build()


def _recommended_shares(runs: Sequence[Run]) -> NDArray[np.float64]:
    counts = np.sum([run.items["recommended"].to_numpy() for run in runs], axis=0)
    shares: NDArray[np.float64] = counts / max(counts.sum(), 1)
    return shares


def _update_shares(setup: StudySetup, choice: Choice, pi: float) -> NDArray[np.float64]:
    parts, key = setup.parts, Key(setup.seeds[0])
    tally = Tally(parts.catalog.n_items)
    config = DisclosureConfig.from_options({"pi": pi}, "the recipe")
    stages: list[Stage] = [Disclosure.build(config, parts.user_ids, parts.catalog, key.child("people")), tally]
    method = _build({**choice.method(pi), "epochs": TALLIED_PASSES, "pi": None})
    path = UpdatePath(method, stages, Ring())
    for done, _ in enumerate(simulate(path, parts.train, parts.catalog, key.child("learn")), 1):
        setup.progress(f"{setup.name}: updates of {choice.name} pi={pi:g}", done, TALLIED_PASSES)
    shares: NDArray[np.float64] = tally.counts / max(int(tally.counts.sum()), 1)
    return shares
