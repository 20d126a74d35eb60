"""Sums over rounds as linear equations in users: what a coordinator can solve from all that it has ever seen.

Who is asked is decided by the coordinator's own functions, round by round, with devices that are not always there or
leave for good, and policies that refuse. Counts are of halves, where batches are counted so. *Least squares* takes
every sum of counts that was opened. *Combination* is a coordinator that chooses cohorts itself: four of them, any two
of which differ enough, add up to twice what one user sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tacit.errors import DevicePolicyError
from tacit.field.coordinator.batches import BatchPlan, BatchSupply, choose_batch
from tacit.field.coordinator.members import EnrolledDevice
from tacit.field.coordinator.round_policy import UNAWARE, Past, different_enough, enough, is_eligible
from tacit.methods.base import build_federated
from tacit.protocols.secure_aggregation.context import Session
from tacit.protocols.secure_aggregation.device_policy import (
    DevicePolicy,
    ParticipationHistory,
    check_participants,
    staying,
)
from tacit.protocols.secure_aggregation.two_stage import RoundContext, SecureAggregationConfig
from tacit.random import Key
from tacit.types import Clients, Model, offsets

HERE = 0.95  # share of devices that are connected in a round
Cohort = tuple[int, ...]


@dataclass(frozen=True)
class SumSchedule:
    """How rounds are held: how many, about how many devices at a time, and which share leaves for good in each."""

    rounds: int
    size: int
    leaving: float = 0.0


def scheduled_cohorts(n_people: int, policy: DevicePolicy, schedule: SumSchedule, key: Key) -> list[Cohort]:
    """Return the cohorts that the coordinator would sum, each as often as it does."""
    generator, least, size = key.generator(), enough(policy), schedule.size
    devices = [EnrolledDevice(number, b"", -1, False, number.to_bytes(32, "big")) for number in range(n_people)]
    sums: dict[tuple[int, int], frozenset[int]] = {}
    cohorts: list[Cohort] = []

    def draw(some: Sequence[EnrolledDevice], least: int, most: int, at: int = 0) -> list[EnrolledDevice]:
        wanted = most if policy.most_cohorts is not None else min(max(size, least), most)
        places = generator.choice(len(some), min(wanted, len(some)), replace=False)
        return [some[place] for place in sorted(places.tolist())]

    for number in range(schedule.rounds):
        past, here = Past(sums), generator.random(n_people) < HERE
        gone = generator.random(n_people) < schedule.leaving
        devices = [replace(one, revoked=True) if gone[one.number] else one for one in devices]
        willing = [device for device in devices if here[device.number] and not device.revoked]
        eligible = [device for device in willing if is_eligible(device.number, number, past, policy)]
        if policy.most_cohorts is not None:
            supply = BatchSupply.of(devices, willing, eligible, least, policy.most_cohorts)
            chosen = choose_batch(supply, least, size, past.last, lambda some, most: draw(some, least, most))
            if chosen is None:
                continue
            asked, plan = chosen
            cohorts += plan.halves
            if not plan.is_formed:
                devices = _with_batch(devices, plan, policy, number)
        else:
            asked = different_enough(eligible, least, sums, policy, draw) if len(eligible) >= least else []
            cohorts += [tuple(sorted(device.number for device in asked))] if asked else []
        sums[number, 2] = frozenset(device.number for device in asked)
    return cohorts


def _with_batch(
    devices: Sequence[EnrolledDevice], plan: BatchPlan, policy: DevicePolicy, number: int
) -> list[EnrolledDevice]:
    """Return the devices with a new batch: who stays with it follows from each half, and from the whole."""
    config, stay = SecureAggregationConfig(corrupted=policy.corrupted, unaware=UNAWARE), set[int]()
    members = sorted(one for half in plan.halves for one in half)
    for summed in (*map(sorted, plan.halves), members):
        terms = RoundContext("attack", number, bytes(32), bytes(32)).counting({"items": (1, 1)}, len(summed), config)
        session = Session.of(terms, [devices[one].identity for one in summed])
        stay |= {summed[position] for position in staying(policy, session, range(len(summed)))}
    return [
        replace(one, batch=number + 1, stays=one.number in stay, cohorts=one.cohorts + 1)
        if one.number in members
        else one
        for one in devices
    ]


def draw_part(people: Clients, share: float, key: Key) -> Clients:
    """Return users with a share of their items, drawn once."""
    kept = key.generator().random(len(people.items)) < share
    numbers = np.repeat(np.arange(len(people)), np.diff(people.ptr))[kept]
    ptr = offsets(np.bincount(numbers, minlength=len(people)))
    return Clients(people.ids, ptr, people.items[kept], people.n_items)


def mentions_of_sums(people: Clients, cohorts: Sequence[Cohort], samples: bool, key: Key) -> NDArray[np.float64]:
    """Return the counts of each sum [sums, items]: of users' own items, or of what fed-gmf samples in every round."""
    method = build_federated("fed-gmf")
    counts = np.zeros((len(cohorts), people.n_items))
    for at, cohort in enumerate(cohorts):
        clients = people.take(np.array(cohort))
        ids = method.plan(Model({}, {}), clients, key.child("learn", at)).parts[0].ids if samples else clients.items
        assert ids is not None
        counts[at] = np.bincount(ids, minlength=people.n_items)
    return counts


def solve_sums(n_people: int, cohorts: Sequence[Cohort], counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return what least squares takes each user to have sent [people, items]."""
    matrix = np.zeros((len(cohorts), n_people))
    for at, cohort in enumerate(cohorts):
        matrix[at, list(cohort)] = 1
    return np.asarray(np.linalg.lstsq(matrix, counts, rcond=None)[0], np.float64)


def combination_cohorts(n_people: int) -> list[Cohort]:
    """Return four cohorts whose first + second - third - fourth sum is twice what user 0 sent."""
    rest = tuple(range(7, min(n_people, 17)))
    return [(*rest, 0, 1, 2, 3), (*rest, 0, 4, 5, 6), (*rest, 1, 2, 3, 4, 5, 6), rest]


def count_opened(cohorts: Sequence[Cohort], policy: DevicePolicy) -> int:
    """Return how many of some cohorts are opened in a row by devices with this policy."""
    identities = {person: person.to_bytes(32, "big") for cohort in cohorts for person in cohort}
    histories = dict.fromkeys(identities, ParticipationHistory())
    opened = 0
    for at, cohort in enumerate(cohorts):
        context = RoundContext("attack", 10 * at, bytes(32), bytes(32))
        terms = context.counting({"items": (1, 1)}, len(cohort), SecureAggregationConfig())
        session = Session.of(terms, [identities[person] for person in cohort])
        try:
            for person in cohort:
                check_participants(policy, histories[person], session, range(len(cohort)))
        except DevicePolicyError:
            continue
        opened += 1
        stay = staying(policy, session, range(len(cohort)))
        for person in cohort:
            stays = session.position(identities[person]) in stay
            histories[person] = histories[person].with_sum(session, range(len(cohort)), stays)
    return opened
