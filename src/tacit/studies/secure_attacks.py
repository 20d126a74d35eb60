"""What a server reads out of secure sums, with and without the guards and the two stages: a study of our own.

*Differencing* (FedNCF, section 3.5.2): the server asks the same group again and again, with one person and without her,
and compares how many people touched each item. Guarded devices refuse sums that differ by too few; what is left to the
server then are the groups that a fair draw gives, with her in some and not in others. Two stages show the same counts
as one, so they change nothing here. *Linking*: rows of a sum that one
person alone touched are hers; they all point where her vector points. Two stages show no such row.

Groups, samples and rows are those of the real methods on real histories. Leave-last-out, clean negatives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.errors import GuardError
from tacit.lab.simulation import simulate
from tacit.methods.base import build_federated, options
from tacit.numerics import one_blas_thread
from tacit.privacy.meter import auc, prior
from tacit.protocols.federated import UpdatePath, device_round
from tacit.protocols.secure_aggregation.context import Session
from tacit.protocols.secure_aggregation.device_policy import DevicePolicy, ParticipationHistory, check_people
from tacit.protocols.secure_aggregation.two_stage import RoundContext, SecureAggregationConfig
from tacit.random import Key
from tacit.studies.base import StudyResult, reproduction
from tacit.studies.setup import StudySetup
from tacit.studies.sheets import PublishedRow, Sheet, format_cell
from tacit.studies.sum_attacks import LinkingResult, attack_by_linking, difference_sums
from tacit.types import Clients, Model
from tacit.updates import Ring

GROUPS = {"ml-100k": 20, "foursquare-nyc": 50}  # |c| of FedNCF
ROUNDS = (1, 10, 50)
TARGETS = 40
ALIKE = (0.999, 0.99, 0.95)
K_MIN = 3
METHODS: dict[str, dict[str, Any]] = {
    "fed-gmf": {"epochs": 5},
    "fed-neumf": {"epochs": 5},
    "fed-svd": {"factors": 16, "epochs": 2},
    "fpl": {"preset": "pFPL+", "epochs": 20, "factors": 16, "learning_rate": 0.05},
}


def recipe(source: str) -> dict[str, Any]:
    """Return data and split."""
    return {"data": {"source": source, "min_per_user": 5}, "split": {"kind": "leave-last-out"}}


@reproduction(
    "secure-attacks", "What sums still tell", "FedNCF, section 3.5.2, and ours", tuple(GROUPS), recipe, seeds=1
)
def attack_study(setup: StudySetup) -> StudyResult:
    """Difference sums and link rows."""
    rows = [*_differencing(setup), *_linking(setup)]
    names = list(dict.fromkeys(row.method for row in rows if row.metric.startswith("AUC")))
    at = {(row.method, row.metric): row.ours for row in rows}
    differences = [f"{what} after {times}" for times in ROUNDS for what in ("AUC", "P@|K|")]
    first = Sheet(
        "Differencing: can the server tell her items from others?",
        ["the server", *differences],
        [[name, *(format_cell(at.get((name, metric))) for metric in differences)] for name in names],
    )
    told = ("rows touched", "rows standing alone", "items exposed", "agreement", "sign tells")
    others = list(dict.fromkeys(row.method for row in rows if row.metric == told[0]))
    second = Sheet(
        "Linking: one round, rows that one person alone touched",
        ["sum", *told],
        [[name, *(format_cell(at.get((name, metric))) for metric in told)] for name in others],
    )
    notes = [
        f"Groups of {_group(setup)}. AUC and P@|K| are means over {TARGETS} people; P@|K|: share of hers among the |K| "
        "items most believed, |K| being how many she has.",
        "Agreement: adjusted Rand index of the groups found with the people, the best of three thresholds. Items "
        "exposed: share of people's own items whose rows stand alone.",
    ]
    return StudyResult(rows, [first, second], notes=notes)


def _group(setup: StudySetup) -> int:
    return min(GROUPS.get(setup.name, 20), len(setup.parts.train) // 3)


# --- differencing ---------------------------------------------------------------------------------------------------


def _differencing(setup: StudySetup) -> list[PublishedRow]:
    people, group = setup.parts.train, _group(setup)
    targets = np.random.default_rng(setup.seeds[0]).choice(len(people), 8 if setup.quick else TARGETS, replace=False)
    popularity = np.bincount(people.items, minlength=people.n_items)
    attacks = {"same group, no guard": True, "drawn groups (guarded)": False}
    found: dict[tuple[str, int], list[tuple[float, float]]] = {}
    guessed = []
    refused = 0
    for target in targets.tolist():
        her = np.unique(people.of(target))
        hers = np.zeros(people.n_items, bool)
        hers[her] = True
        guessed.append(_score(prior(popularity, len(her)), hers))
        for name, same in attacks.items():
            sums = _sums(people, target, group, max(ROUNDS), same, Key(setup.seeds[0]).child("attack", target))
            for times in ROUNDS:
                evidence = difference_sums(sums[0][:times], sums[1][:times])
                found.setdefault((name, times), []).append(_score(evidence, hers))
        refused += _refusals(len(people), target, group, setup.seeds[0])
    rows = [_row("guesses the popular items", metric, at, guessed) for metric in ROUNDS for at in (0, 1)]
    rows += [_row(name, times, at, values) for (name, times), values in found.items() for at in (0, 1)]
    share = refused / (len(targets) * 2 * max(ROUNDS) - len(targets))
    rows.append(PublishedRow.of("same group, guarded", "share of later sums refused", [share]))
    return rows


def _row(name: str, times: int, at: int, values: Sequence[tuple[float, float]]) -> PublishedRow:
    mean = float(np.mean([value[at] for value in values]))
    return PublishedRow.of(name, f"{('AUC', 'P@|K|')[at]} after {times}", [mean])


def _score(evidence: NDArray[np.float64], hers: NDArray[np.bool_]) -> tuple[float, float]:
    order = np.argsort(-evidence, kind="stable")
    return auc(evidence, hers), float(hers[order[: int(hers.sum())]].mean())


def _sums(
    people: Clients, target: int, group: int, times: int, same: bool, key: Key
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return how many people touched each item [times, n_items], in rounds with the target and in rounds without."""
    method = build_federated("fed-gmf")
    generator = key.generator()
    others = np.setdiff1d(np.arange(len(people)), [target])
    fixed = generator.choice(others, group - 1, replace=False)
    sums = np.zeros((2, times, people.n_items), np.int64)
    for side in (0, 1):
        for at in range(times):
            around = fixed if same else generator.choice(others, group - 1 + side, replace=False)
            cohort = np.sort(around if side else np.append(around, target))
            clients, chance = people.take(cohort), key.child("learn", 2 * at + side)
            touched = method.plan(Model({}, {}), clients, chance).parts[0].ids
            assert touched is not None
            sums[side, at] = np.bincount(touched, minlength=people.n_items)
    return sums[0], sums[1]


def _refusals(n_people: int, target: int, group: int, seed: int) -> int:
    """Return how many of the attack's sums a guarded device refuses after the first."""
    identities = [index.to_bytes(32, "big") for index in range(n_people)]
    generator = np.random.default_rng([seed, target])
    around = generator.choice(np.setdiff1d(np.arange(n_people), [target]), group - 1, replace=False).tolist()
    guards, history, refused = DevicePolicy(), ParticipationHistory(), 0
    for at in range(2 * max(ROUNDS)):
        cohort = [*around, target] if at % 2 == 0 else around
        terms = RoundContext("attack", at, bytes(32), bytes(32)).counting(
            {"items": (1, 1)}, len(cohort), SecureAggregationConfig()
        )
        session = Session.of(terms, [identities[person] for person in cohort])
        try:
            check_people(guards, history, session, range(len(cohort)))
        except GuardError:
            refused += 1
        else:
            history = history.with_sum(session, range(len(cohort)))
    return refused


# --- linking --------------------------------------------------------------------------------------------------------


def _linking(setup: StudySetup) -> list[PublishedRow]:
    rows = []
    for name, given in METHODS.items():
        quick = {"epochs": 2} if setup.quick and name != "fpl" else {}
        owner, ids, values, positive = _one_round(setup, name, {**given, **quick})
        for label, least in (("one stage", 1), (f"two stages, k_min {K_MIN}", K_MIN)):
            found = max(
                (attack_by_linking(owner, ids, values, positive, least, alike) for alike in ALIKE),
                key=lambda one: one.agreement,
            )
            rows += _describe(f"{name}, {label}", found)
    return rows


def _describe(name: str, found: LinkingResult) -> list[PublishedRow]:
    numbers = {
        "rows touched": float(found.touched),
        "rows standing alone": float(found.alone),
        "items exposed": found.exposed,
        "agreement": found.agreement,
        "sign tells": found.by_sign,
    }
    return [PublishedRow.of(name, metric, [value]) for metric, value in numbers.items()]


def _one_round(
    setup: StudySetup, name: str, given: dict[str, Any]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32], NDArray[np.bool_]]:
    """Return owner, item, numbers and sign of what a group sends in a round, one row per person and item."""
    people, catalog, key, ring = setup.parts.train, setup.parts.catalog, Key(setup.seeds[0]), Ring()
    path = UpdatePath(build_federated(name, options(name, given)), (), ring)
    with one_blas_thread():
        for step in simulate(path, people, catalog, key.child("learn")):
            model = step
        cohort = np.sort(key.child("group").generator().choice(len(people), _group(setup), replace=False))
        message = device_round(path, model.take(cohort), people.take(cohort), key, "attack").message
    assert message is not None
    update, table = message.read(ring), path.method.spec.tables[0]
    rows, positive = update.tables[table], update.sensitive[table]
    owner = np.repeat(np.arange(len(cohort)), np.diff(rows.ptr))
    places, where = np.unique(owner * people.n_items + rows.ids, return_inverse=True)
    values = np.zeros((len(places), rows.values.shape[1]), np.float32)
    np.add.at(values, where, rows.values)
    signs = np.zeros(len(places), bool)
    signs[where] = positive
    return places // people.n_items, places % people.n_items, values, signs
