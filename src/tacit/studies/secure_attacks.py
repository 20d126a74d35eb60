"""What a server reads out of secure sums, with and without device policies and the two stages: a study of our own.

*Differencing* (FedNCF, section 3.5.2): the server asks the same group again and again, with one user and without, and
compares how many users touched each item. A device policy refuses sums that differ by too few. The server is then left
with the groups of a fair draw, with the user in some and not in others. Two stages show the same counts as one, so they
change nothing here. *Linking*: rows of a sum that one user alone touched are that user's; they all point where the
user's vector points. Two stages show no such row. *Solving*: cohorts are known and contributions repeat, so that all
sums together are linear equations in users (`solved_sums.py`). By default some devices stay with each cohort, so that
nothing can be solved for few of them. *One sum* names items of its members by itself (`sum_sizes.py`).

Groups, samples and rows are those of the real methods on real histories. Leave-last-out, clean negatives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.errors import DevicePolicyError
from tacit.field.coordinator import RoundRules
from tacit.field.device.settings import USUAL_PI
from tacit.lab.simulation import simulate
from tacit.methods.base import build_federated, options
from tacit.numerics import one_blas_thread
from tacit.privacy.meter import auc, prior
from tacit.protocols.federated import UpdatePath, device_round
from tacit.protocols.secure_aggregation.context import Session
from tacit.protocols.secure_aggregation.device_policy import DevicePolicy, ParticipationHistory, check_participants
from tacit.protocols.secure_aggregation.two_stage import RoundContext, SecureAggregationConfig
from tacit.random import Key
from tacit.studies.base import StudyResult, reproduction
from tacit.studies.fpl_choices import PAPERS_REGS
from tacit.studies.setup import StudySetup
from tacit.studies.sheets import PublishedRow, Sheet, format_cell
from tacit.studies.solved_sums import (
    SumSchedule,
    combination_cohorts,
    count_opened,
    draw_part,
    mentions_of_sums,
    scheduled_cohorts,
    solve_sums,
)
from tacit.studies.sum_attacks import LinkingResult, attack_by_linking, difference_sums
from tacit.studies.sum_sizes import DRAWS, exposure_by_size, exposure_sheet, own_items
from tacit.types import Clients, Model
from tacit.updates import Ring

GROUPS = {"ml-100k": 20, "foursquare-nyc": 50}  # |c| of FedNCF
ROUNDS = (1, 10, 50)
TARGETS = 40
ALIKE = (0.999, 0.99, 0.95)
K_MIN = 3
N_SOLVED = 78
SOLVED_ROUNDS = (100, 600)
LEAVING = 0.0005  # share of devices that leave for good in a round: a quarter of them in 600
ANY = DevicePolicy(most_cohorts=None)
SCHEDULES = {  # policy of the devices, devices in a sum, share that leaves in a round
    "any cohorts": (ANY, 13, 0.0),
    "one cohort for life": (DevicePolicy(most_cohorts=1), 13, 0.0),
    "batches by default": (DevicePolicy(), RoundRules().batch, 0.0),
    "batches by default, devices leave": (DevicePolicy(), RoundRules().batch, LEAVING),
}
METHODS: dict[str, dict[str, Any]] = {
    "fed-gmf": {"epochs": 5},
    "fed-neumf": {"epochs": 5},
    "fed-svd": {"factors": 16, "epochs": 2},
    "fpl": {"preset": "pFPL+", "epochs": 20, "factors": 16, "learning_rate": 0.05, **PAPERS_REGS},
}


def recipe(source: str) -> dict[str, Any]:
    """Return data and split."""
    return {"data": {"source": source, "min_per_user": 5}, "split": {"kind": "leave-last-out"}}


@reproduction(
    "secure-attacks", "What sums still tell", "FedNCF, section 3.5.2, and ours", tuple(GROUPS), recipe, seeds=1
)
def attack_study(setup: StudySetup) -> StudyResult:
    """Difference sums, link rows, and solve all sums for single users."""
    solved = _solving(setup)
    sized = exposure_by_size(setup.parts.train, Key(setup.seeds[0]).child("sizes"), 1 if setup.quick else DRAWS)
    rows = [*_differencing(setup), *_linking(setup), *solved, *sized]
    names = list(dict.fromkeys(row.method for row in rows if row.metric.startswith("AUC after")))
    at = {(row.method, row.metric): row.ours for row in rows}
    differences = [f"{what} after {times}" for times in ROUNDS for what in ("AUC", "P@|K|")]
    first = Sheet(
        "Differencing: can the server tell a user's items from others?",
        ["the server", *differences],
        [[name, *(format_cell(at.get((name, metric))) for metric in differences)] for name in names],
    )
    columns = ("rows touched", "rows standing alone", "items exposed", "agreement", "sign tells")
    others = list(dict.fromkeys(row.method for row in rows if row.metric == columns[0]))
    second = Sheet(
        "Linking: one round, rows that one user alone touched",
        ["sum", *columns],
        [[name, *(format_cell(at.get((name, metric))) for metric in columns)] for name in others],
    )
    measures = ("sums each", "AUC", "P@|K|")
    solvers = list(dict.fromkeys(row.method for row in solved))
    third = Sheet(
        "Solving: least squares over every sum that was opened",
        ["schedule", *measures],
        [[name, *(format_cell(at.get((name, metric))) for metric in measures)] for name in solvers],
    )
    notes = [
        f"Solving: {N_SOLVED} users, rounds of the coordinator's own schedule, 95 % of devices connected; "
        f"where devices leave, {LEAVING:.2%} of them in a round. Part: {USUAL_PI:.0%} of a history, drawn once, as by "
        "default. Combination: four cohorts of the coordinator's choice, as many as devices open, about each user in "
        "turn.",
        f"Groups of {_group(setup)}. AUC and P@|K| are means over {TARGETS} users; P@|K|: share of the user's items "
        "among the |K| most probable ones, |K| being how many the user has.",
        "One sum: what it names of each member; what the sum of the others, and what is popular among all other users, "
        f"name instead; and what taking part adds to the better of these. Means over all users, {DRAWS} ways to part "
        "them; errors are of the paired difference.",
        "Agreement: adjusted Rand index of the groups found with the users, the best of three thresholds. Items "
        "exposed: share of users' own items whose rows only they touch.",
    ]
    return StudyResult(rows, [first, second, third, exposure_sheet(sized)], notes=notes)


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
        own = np.unique(people.of(target))
        is_own = np.zeros(people.n_items, bool)
        is_own[own] = True
        guessed.append(_score(prior(popularity, len(own)), is_own))
        for name, same in attacks.items():
            sums = _sums(people, target, group, max(ROUNDS), same, Key(setup.seeds[0]).child("attack", target))
            for times in ROUNDS:
                evidence = difference_sums(sums[0][:times], sums[1][:times])
                found.setdefault((name, times), []).append(_score(evidence, is_own))
        refused += _refusals(len(people), target, group, setup.seeds[0])
    rows = [_row("guesses the popular items", metric, at, guessed) for metric in ROUNDS for at in (0, 1)]
    rows += [_row(name, times, at, values) for (name, times), values in found.items() for at in (0, 1)]
    share = refused / (len(targets) * 2 * max(ROUNDS) - len(targets))
    rows.append(PublishedRow.of("same group, guarded", "share of later sums refused", [share]))
    return rows


def _row(name: str, times: int, at: int, values: Sequence[tuple[float, float]]) -> PublishedRow:
    mean = float(np.mean([value[at] for value in values]))
    return PublishedRow.of(name, f"{('AUC', 'P@|K|')[at]} after {times}", [mean])


def _score(evidence: NDArray[np.float64], is_own: NDArray[np.bool_]) -> tuple[float, float]:
    order = np.argsort(-evidence, kind="stable")
    return auc(evidence, is_own), float(is_own[order[: int(is_own.sum())]].mean())


def _sums(
    people: Clients, target: int, group: int, times: int, same: bool, key: Key
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return how many users touched each item [times, n_items], in rounds with the target and in rounds without."""
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


def _refusals(n_participants: int, target: int, group: int, seed: int) -> int:
    """Return how many of the attack's sums a guarded device refuses after the first."""
    identities = [index.to_bytes(32, "big") for index in range(n_participants)]
    generator = np.random.default_rng([seed, target])
    around = generator.choice(np.setdiff1d(np.arange(n_participants), [target]), group - 1, replace=False).tolist()
    device_policy, history, refused = DevicePolicy(), ParticipationHistory(), 0
    for at in range(2 * max(ROUNDS)):
        cohort = [*around, target] if at % 2 == 0 else around
        terms = RoundContext("attack", at, bytes(32), bytes(32)).counting(
            {"items": (1, 1)}, len(cohort), SecureAggregationConfig()
        )
        session = Session.of(terms, [identities[person] for person in cohort])
        try:
            check_participants(device_policy, history, session, range(len(cohort)))
        except DevicePolicyError:
            refused += 1
        else:
            history = history.with_sum(session, range(len(cohort)))
    return refused


# --- solving --------------------------------------------------------------------------------------------------------


def _solving(setup: StudySetup) -> list[PublishedRow]:
    """Solve all sums of a schedule for single users, with batches and with any cohorts."""
    key = Key(setup.seeds[0]).child("solve")
    cohort = setup.parts.train
    chosen = np.sort(key.child("people").generator().choice(len(cohort), min(N_SOLVED, len(cohort)), replace=False))
    people = cohort.take(chosen)
    n_people, is_own = len(people), own_items(people)
    popular = np.tile(is_own.sum(axis=0).astype(np.float64), (n_people, 1))
    rows = _solved_rows("guesses the popular items", 0, popular, is_own)
    part = draw_part(people, USUAL_PI, key.child("part"))
    kinds = {"own items": (people, False), "part of them": (part, False), "samples of fed-gmf": (people, True)}
    for name, (policy, size, leaving) in SCHEDULES.items():
        for rounds in SOLVED_ROUNDS[:1] if setup.quick else SOLVED_ROUNDS:
            schedule = SumSchedule(rounds, size, leaving)
            cohorts = scheduled_cohorts(n_people, policy, schedule, key.child("schedule", rounds))
            each = sum(len(cohort) for cohort in cohorts) / n_people
            for kind, (sending, samples) in kinds.items():
                counts = mentions_of_sums(sending, cohorts, samples, key.child("counts", rounds))
                solved = solve_sums(n_people, cohorts, counts)
                rows += _solved_rows(f"{name}, {kind}, {rounds} rounds", each, solved, is_own)
        rows += _combination(name, policy, people, is_own)
    return rows


def _combination(name: str, policy: DevicePolicy, people: Clients, is_own: NDArray[np.bool_]) -> list[PublishedRow]:
    """Return what a coordinator that chooses four cohorts itself learns of the user that they are about, each in turn.

    All users send all items of their own.
    """
    cohorts, n_people = combination_cohorts(len(people)), len(people)
    opened = cohorts[: count_opened(cohorts, policy)]
    evidence = np.zeros(is_own.shape)
    for target in range(n_people):
        about = [tuple((one + target) % n_people for one in cohort) for cohort in opened]
        evidence[target] = solve_sums(n_people, about, mentions_of_sums(people, about, False, Key(0)))[target]
    return _solved_rows(f"{name}, combination of four", len(opened), evidence, is_own)


def _solved_rows(
    name: str, each: float, evidence: NDArray[np.float64], is_own: NDArray[np.bool_]
) -> list[PublishedRow]:
    scores = [_score(one, own) for one, own in zip(evidence, is_own, strict=True) if own.any()]
    means = [float(np.mean([score[at] for score in scores])) for at in (0, 1)]
    numbers = {"sums each": each, "AUC": means[0], "P@|K|": means[1]}
    return [PublishedRow.of(name, metric, [value]) for metric, value in numbers.items()]


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
    """Return owner, item, numbers and sign of what a group sends in a round, one row per user and item."""
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
