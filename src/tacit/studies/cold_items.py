"""Cold items, which are in no history: which share of them people find, by public vectors, beside two rivals.

A tenth of all items has no training row; which ones differs by seed. Of what users did with them, Recall@20 is measured
among all unseen items, and among cold items alone. Options of every row, rivals included, are chosen on validation
parts, whose cold items are others: for the first measure by Recall@20 of all held-out rows, since a list of nothing but
new items would find most of them; for the second by the measure itself. Means over the validation parts of the first
seeds choose: how many rows a tenth of the items has differs by a third between seeds, and with it how high cold items
should rank. More seeds than those are for the test parts alone. All rows have the same public vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.config import Experiment, apply_overrides
from tacit.data import Split
from tacit.evaluation import EvaluationOptions, evaluate, evaluate_cold_items
from tacit.evaluation.ranking import Scorer
from tacit.lab.experiments import TrainingJob, prepare_data, run
from tacit.methods.parts.features import FeatureKind, features_of
from tacit.random import Key
from tacit.studies.base import StudyResult, reproduction
from tacit.studies.ifedrec import IFedRec, IFedRecOptions
from tacit.studies.setup import StudySetup
from tacit.studies.sheets import PublishedRow, Sheet

DATASETS = ("ml-1m", "facebook-books", "lastfm-2k")
CHOSEN_BY = {"among all": "Recall@20", "among cold": "ColdAloneRecall@20"}  # measure -> validation metric
MEASURES = {"among all": "ColdRecall@20", "among cold": "ColdAloneRecall@20"}  # measure -> what is reported
LOCAL_ONLY_USERS = 12
ROUNDS, QUICK_ROUNDS = 200, 10  # of the rival that learns in rounds, at most
EVERY, PATIENCE = 20, 3  # its rounds between two checks on validation; checks without a gain that end its training
CHOOSING = 3  # seeds whose validation parts choose options
MAPS: dict[str, Sequence[Any]] = {"features": (0, 512), "weight": (0.0, 0.5), "boost": (1.0, 2.0, 4.0, 8.0)}
Values = dict[str, Sequence[Any]]
OURS: dict[str, tuple[dict[str, Any], Values, Values]] = {  # given, tried of the method, tried of its map
    "fed-svd": ({"name": "fed-svd", "epochs": 4, "factors": 96}, {}, {"content": (0, 1.0), "shrinkage": (0.5, 2, 8)}),
    "fed-als": ({"name": "fed-als", "epochs": 6, "factors": 32}, {}, {}),
    "fed-ease": ({"name": "fed-ease"}, {"reg": (100.0, 1000.0)}, {}),
}
POPULARITY: dict[str, Sequence[Any]] = {"shares": (True, False), "popular": (True, False)}
RIVAL: dict[str, Sequence[Any]] = {"lr_eta": (5.0, 20.0, 80.0)}
NAMES = ("popularity by category", "content profile", "IFedRec's recipe")  # rivals
Found = dict[str, float]
Trial = tuple[dict[str, Any], Found]  # options, and means over the validation parts


def recipe(source: str) -> dict[str, Any]:
    """Return data, split and evaluation. Vectors are made of categories, titles and graph."""
    least: dict[str, Any] = {"min_per_item": 3, "table": "listens"} if source == "lastfm-2k" else {}
    graph = {} if source == "town" else {"graph": True}
    return {
        "data": {"source": source, "min_per_user": 5, "vectors": True, "vectors_width": 256, **graph, **least},
        "split": {"kind": "random", "test": 0.2, "cold_items": 0.1},
        "evaluation": {"protocol": "full", "k": [20], "primary": "NDCG@20", "users": 2000},
    }


@dataclass(frozen=True)
class ColdRow:
    """A method: what was chosen for each measure, and what the test part gave, one value per seed."""

    name: str
    chosen: Mapping[str, Mapping[str, Any]]  # measure -> options
    values: Mapping[str, Sequence[float]]  # measure -> by seed
    overall: Sequence[float]  # Recall@20 of all held-out rows, with the options chosen among all
    is_clean: bool | None = None  # the leak verdict


@reproduction(
    "cold-items",
    "Cold items: in no history",
    "Recall@20 of items without a training row, by public vectors",
    DATASETS,
    recipe,
)
def cold_items_study(setup: StudySetup) -> StudyResult:
    """Methods by sums with the map from public vectors, beside popularity by category, content and IFedRec."""
    splits = [_Cut(setup, seed) for seed in setup.seeds]
    names = ("fed-svd",) if setup.quick else tuple(OURS)
    tried = {name: values[:1] for name, values in RIVAL.items()} if setup.quick else RIVAL
    rounds = QUICK_ROUNDS if setup.quick else ROUNDS
    rows = [
        _recall(setup, "popularity", POPULARITY, lambda: _rival(splits, NAMES[0], POPULARITY, _popularity)),
        _recall(setup, "content", {}, lambda: _rival(splits, NAMES[1], {}, _content)),
        *(_recall(setup, name, [OURS[name], MAPS], partial(_ours, splits, name, setup.quick)) for name in names),
        _recall(setup, "ifedrec", [tried, rounds], lambda: _rival(splits, NAMES[2], tried, _ifedrec(rounds))),
    ]
    notes = [f"'{row.name}': the leak check failed." for row in rows if row.is_clean is False]
    notes += [f"'{row.name}', {measure}: {_describe(row.chosen[measure])}." for row in rows for measure in MEASURES]
    published = [
        PublishedRow.of(row.name, f"{MEASURES[measure]}", row.values[measure], None, _describe(row.chosen[measure]))
        for row in rows
        for measure in MEASURES
    ]
    return StudyResult(published, [_sheet(rows), _differences(rows)], {}, notes, {"rows": [vars(row) for row in rows]})


def _recall(setup: StudySetup, name: str, tried: Any, make: Callable[[], ColdRow]) -> ColdRow:
    """Return a row; a study that was stopped goes on where it was."""
    asked = {"tried": tried, "seeds": [*setup.seeds], "quick": setup.quick}
    return ColdRow(**setup.recall(f"cold-items-{name}", asked, lambda: asdict(make())))


class _Cut:
    """The data of one seed: a split for runs, and one with a validation part."""

    def __init__(self, setup: StudySetup, seed: int) -> None:
        self.setup, self.seed = setup, seed
        self.base = apply_overrides(setup.base, {"seed": seed, "evaluation.local_only_users": 0})
        self._parts: dict[bool, Any] = {}

    def experiment(self, method: Mapping[str, Any], validates: bool) -> Experiment:
        changes = {"method": dict(method), "split.validation": 0.2 if validates else False}
        return Experiment.from_options(apply_overrides(self.base, changes), "the recipe")

    def prepared(self, validates: bool) -> Any:
        if self.seed == self.setup.base["seed"]:
            return self.setup.practice if validates else self.setup.prepared
        if validates not in self._parts:
            experiment = self.experiment({"name": "random"}, validates)
            self._parts[validates] = prepare_data(experiment, progress=self.setup.progress)
        return self._parts[validates]

    def measure(self, score: Scorer, validates: bool) -> Found:
        """Measure a rival on the cold items of one part."""
        parts: Split = self.prepared(validates).parts
        part = "validation" if validates else "test"
        heldout = parts.validation if validates else parts.test
        assert heldout is not None
        config = self.experiment({"name": "random"}, validates).evaluation
        key = Key(self.seed).child("candidates")
        how = EvaluationOptions(lists=False)
        whole = evaluate(score, heldout, parts.catalog, config, key, how).overall
        return whole | evaluate_cold_items(score, heldout, parts.catalog, parts.cold[part], config, key, how)


def _ours(cuts: Sequence[_Cut], name: str, quick: bool) -> ColdRow:
    """Choose options of the method and of its map on the validation parts; run them on every test part."""
    given, values, more = OURS[name]
    setup, trials, choosing = cuts[0].setup, list[Trial](), cuts[:CHOOSING]
    rest = {option: tried for option, tried in (MAPS | more).items() if option != "boost"}
    boosts = [one["boost"] for one in _grid({"boost": MAPS["boost"]}, quick)]
    for chosen, options in product(_grid(values, quick), _grid(rest, quick)):
        method = {**given, **chosen, "cold_items": options}
        setup.progress(f"{setup.name}: choosing {name}", len(trials), 0)
        trials += _recall_trials(choosing, name, [method, boosts], partial(_try_boosts, choosing, method, boosts))
    picked = _best(trials)
    found: dict[str, list[float]] = {measure: [] for measure in MEASURES}
    overall, clean = [], None
    for cut in cuts:
        for measure, metric in MEASURES.items():
            checks = LOCAL_ONLY_USERS if cut is cuts[0] and measure == "among all" else 0
            experiment = cut.experiment(picked[measure], False)
            how = experiment.evaluation.model_copy(update={"local_only_users": checks})
            made = run(experiment.model_copy(update={"evaluation": how}), prepared=cut.prepared(False))
            found[measure].append(made.metrics[metric])
            if measure == "among all":
                overall.append(made.metrics["Recall@20"])
            if checks:
                clean = (made.result.get("leak") or {}).get("ok")
    return ColdRow(f"{name}, cold_items", picked, found, overall, clean)


def _try_boosts(cuts: Sequence[_Cut], method: Mapping[str, Any], boosts: Sequence[float]) -> list[Trial]:
    """Learn once for each seed: the boost changes no number of the model."""
    tried = [{**method, "cold_items": {**method["cold_items"], "boost": boost}} for boost in boosts]
    found: list[list[Found]] = [[] for _ in tried]
    for cut in cuts:
        parts = cut.prepared(True).parts
        jobs = [TrainingJob.from_split(cut.experiment(one, True), parts) for one in tried]
        model = jobs[0].learn().model
        for job, reached in zip(jobs, found, strict=True):
            reached.append(job.evaluate(model, parts.validation, lists=False).overall)
    return [(one, _mean(reached)) for one, reached in zip(tried, found, strict=True)]


Rival = Callable[[_Cut, bool, Mapping[str, Any]], Iterator[tuple[dict[str, Any], Scorer]]]


def _rival(cuts: Sequence[_Cut], name: str, values: Mapping[str, Sequence[Any]], make: Rival) -> ColdRow:
    """Choose options of a rival in the same way; `make` yields scorers, and what each needs to be made again."""
    trials, choosing = list[Trial](), cuts[:CHOOSING]
    for chosen in _grid(values, False):
        trials += _recall_trials(choosing, name, [chosen, ROUNDS], partial(_try_rival, choosing, name, chosen, make))
    picked = _best(trials)
    found: dict[str, list[float]] = {measure: [] for measure in MEASURES}
    overall: list[float] = []
    for cut in cuts:
        for chosen in _grid(values, False):
            asked = {measure for measure, options in picked.items() if chosen.items() <= options.items()}
            learnt = make(cut, False, chosen)
            while asked:
                options, score = next(learnt)
                ready = {measure for measure in asked if picked[measure] == options}
                reached = cut.measure(score, False) if ready else {}
                for measure in ready:
                    found[measure].append(reached[MEASURES[measure]])
                overall += [reached["Recall@20"]] if "among all" in ready else []
                asked -= ready
    return ColdRow(name, picked, found, overall)


def _try_rival(cuts: Sequence[_Cut], name: str, chosen: Mapping[str, Any], make: Rival) -> list[Trial]:
    """Return what one choice of options reaches, check by check where it learns; all seeds go side by side."""
    setup, checks = cuts[0].setup, list[Trial]()
    for made in zip(*(make(cut, True, chosen) for cut in cuts), strict=True):
        setup.progress(f"{setup.name}: choosing {name}", len(checks), 0)
        reached = [cut.measure(score, True) for cut, (_, score) in zip(cuts, made, strict=True)]
        checks.append((made[0][0], _mean(reached)))
        if _is_past_best([one for _, one in checks]):
            break
    return checks


def _recall_trials(cuts: Sequence[_Cut], name: str, asked: Any, make: Callable[[], list[Trial]]) -> list[Trial]:
    """Return trials, those of a study that was stopped as they were."""
    setup = cuts[0].setup
    question = {"tried": asked, "seeds": [cut.seed for cut in cuts], "quick": setup.quick}
    file = "cold-items-trials-" + "".join(sign if sign.isalnum() else "-" for sign in name)
    return [(one, found) for one, found in setup.recall(file, question, lambda: {"trials": make()})["trials"]]


def _mean(found: Sequence[Found]) -> Found:
    return {metric: float(np.mean([one[metric] for one in found])) for metric in CHOSEN_BY.values()}


def _is_past_best(checks: Sequence[Found]) -> bool:
    """Say whether every measure was best so many checks ago that the training ends."""
    best = [int(np.argmax([one[metric] for one in checks])) for metric in CHOSEN_BY.values()]
    return len(checks) - 1 - max(best) >= PATIENCE


def _best(trials: Sequence[Trial]) -> dict[str, dict[str, Any]]:
    """Return the options that each measure chooses."""
    reached = {measure: [one[metric] for _, one in trials] for measure, metric in CHOSEN_BY.items()}
    return {measure: trials[int(np.argmax(values))][0] for measure, values in reached.items()}


def _popularity(cut: _Cut, validates: bool, options: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], Scorer]]:
    """How much of a user's history has the categories of an item, and how popular the items of these are on average."""
    parts: Split = cut.prepared(validates).parts
    kind: FeatureKind = "graph" if parts.catalog.categories is None else "categories"
    known = features_of(parts.catalog, kind, "popularity by category").matrix()
    histories = parts.train.matrix()
    counts = np.asarray(histories.sum(axis=0)).ravel()
    carriers = np.maximum(np.asarray(known[counts > 0].sum(axis=0)).ravel(), 1)
    popular = np.asarray(known.T @ counts).ravel() / carriers
    sizes = np.maximum(np.asarray(known.sum(axis=1)), 1)
    shares = known.multiply(1.0 / sizes).tocsr() if options["shares"] else known
    weighted = shares.multiply(popular[None, :]).tocsr() if options["popular"] else shares
    yield dict(options), lambda rows: np.asarray((histories[rows] @ known @ weighted.T).todense(), np.float32)


def _content(cut: _Cut, validates: bool, options: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], Scorer]]:
    """How near an item's public vector is to those of the history; no other history is used."""
    parts: Split = cut.prepared(validates).parts
    vectors, histories = parts.catalog.vectors, parts.train.matrix()
    assert vectors is not None
    yield {}, lambda rows: np.asarray((histories[rows] @ vectors) @ vectors.T, np.float32)


def _ifedrec(rounds: int) -> Rival:
    """The rival learns in rounds: every few of them is a choice of its own."""

    def make(cut: _Cut, validates: bool, options: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], Scorer]]:
        parts: Split = cut.prepared(validates).parts
        assert parts.catalog.vectors is not None
        given = IFedRecOptions(**{"rounds": rounds, **options})
        learner = IFedRec(parts.train, parts.catalog.vectors, given, cut.seed)
        for number in learner.rounds():
            if (number + 1) % EVERY == 0 or number + 1 == given.rounds:
                yield {**options, "rounds": number + 1}, learner.score

    return make


def _grid(values: Mapping[str, Sequence[Any]], quick: bool) -> list[dict[str, Any]]:
    tried = [list(each)[:1] if quick else list(each) for each in values.values()]
    return [dict(zip(values, chosen, strict=True)) for chosen in product(*tried)]


def _sheet(rows: Sequence[ColdRow]) -> Sheet:
    lines = [
        [
            row.name,
            *(_spread(row.values[measure]) for measure in MEASURES),
            _spread(row.overall),
        ]
        for row in rows
    ]
    columns = ["method", "cold items among all", "cold items among themselves", "all held-out rows"]
    return Sheet("Recall@20 of items without a training row, options from validation", columns, lines)


def _differences(rows: Sequence[ColdRow]) -> Sheet:
    """How far each row is above the last one, seed by seed: which items are cold is the same for both."""
    rival, found = rows[-1], list[list[str]]()
    for row in rows[:-1]:
        apart = {measure: np.subtract(row.values[measure], rival.values[measure]) for measure in MEASURES}
        found.append([row.name, *(_spread(each, len(each)) for each in apart.values())])
    columns = ["method", "cold items among all", "cold items among themselves"]
    return Sheet(f"Above {rival.name}, mean and standard error of the differences by seed", columns, found)


def _spread(values: Sequence[float] | NDArray[np.float64], of: int = 1) -> str:
    """Return the mean, and how values spread about it, or how their mean does, `of` so many."""
    spread = f" ± {np.std(values, ddof=1) / np.sqrt(of):.3f}" if len(values) > 1 else ""
    return f"{np.mean(values):.3f}{spread}"


def _describe(method: Mapping[str, Any]) -> str:
    flat = {**method, **(method.get("cold_items") or {})}
    return ", ".join(f"{key} {value}" for key, value in flat.items() if key not in ("name", "cold_items")) or "nothing"
