"""The round policy: whether a round is masked or readable, which devices are asked, and why.

With `secure: auto` rounds are readable as long as there are too few devices for a sum, or as a sum of them would show
too little; the first sum that is opened ends that for good. From then on no device is asked in the clear. If too few
devices are eligible, the round is skipped, because a cool-down is counted in rounds. What no cool-down can change, too
few devices that can take part at all or only cohorts like an earlier one, is waited for instead. The configuration can
say otherwise, and devices can refuse it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tacit.field.coordinator.config import RoundRules
from tacit.field.coordinator.journal import CoordinatorJournal, EnrolledDevice
from tacit.protocols.secure_aggregation import DevicePolicy
from tacit.protocols.secure_aggregation.two_stage import SecureAggregationConfig
from tacit.reasons import ReasonCode, RoundReason

WORTH = 0.5  # share of what people say that the first sum must show; below it rounds stay readable
MORE = 1.25  # so many times the devices are needed for another try
LOST_BETWEEN = 25  # one in so many may be lost between the stages
DRAWS = 256  # tries to find people who differ enough from those of earlier sums

Sums = Mapping[tuple[int, int], frozenset[int]]
Draw = Callable[[Sequence[EnrolledDevice], int, int, int], list[EnrolledDevice]]
"""Draws those who are asked from some devices, so many at least and at most, otherwise in every try."""


@dataclass(frozen=True)
class RoundPolicy:
    """How one round is decided."""

    secure_config: SecureAggregationConfig | None  # under masks, with this care; none: each answer is read
    asked: list[EnrolledDevice]  # nobody: the round is skipped, or waits
    reason: RoundReason
    worth: float = 0.0  # share of what people say that the sum must show
    waits: bool = False  # nobody can be asked, and no cool-down will change that: others must come


class Past:
    """Earlier sums, and when and how often each device was in one, gone through once."""

    def __init__(self, sums: Sums) -> None:
        self.sums = sums
        self._last: dict[int, int] = {}
        rounds: dict[int, set[int]] = {}
        for (number, stage), people in sums.items():
            for device in people:
                self._last[device] = max(number, self._last.get(device, number))
            if stage:
                rounds.setdefault(number, set()).update(people)
        self._times = Counter(device for people in rounds.values() for device in people)

    def last(self, device: int) -> int | None:
        """Return the last round in which a device was asked for a sum, none if it never was."""
        return self._last.get(device)

    def times(self, device: int) -> int:
        """Return in the sums of how many rounds a device was."""
        return self._times[device]


def count_needed(rules: RoundRules, settled: bool) -> int:
    """Return how many devices must be there before a round begins."""
    least = max(rules.quorum, rules.minimum)
    return max(least, fewest(rules)) if settled or isinstance(rules.secure, SecureAggregationConfig) else least


def fewest(rules: RoundRules) -> int:
    """Return how many devices a sum under masks takes by these rules."""
    return rules.secure.n_min if isinstance(rules.secure, SecureAggregationConfig) else enough(rules.guards)


def enough(guards: DevicePolicy) -> int:
    """Return how many devices are asked at least, so that a sum is left when some of them drop out."""
    return math.ceil(guards.n_min / (1 - SecureAggregationConfig().dropped))


def is_settled(rules: RoundRules, journal: CoordinatorJournal) -> bool:
    """Say whether this federation was summed under masks before, and is not asked in the clear any more."""
    return rules.secure == "auto" and rules.robust is None and journal.is_summed


def decide_round(
    rules: RoundRules, journal: CoordinatorJournal, number: int, members: Sequence[EnrolledDevice], draw: Draw
) -> RoundPolicy:
    """Decide how a round is run with the devices that are there."""
    everybody = len(members)

    def readable(reason: RoundReason) -> RoundPolicy:
        return RoundPolicy(None, draw(members, 0, everybody, 0), reason)

    if rules.secure is None:
        return readable(RoundReason(ReasonCode.SECURE_AGGREGATION_OFF))
    if rules.robust is not None:
        return readable(RoundReason(ReasonCode.ROBUST_RULE))
    past, guards, least = Past(journal.sums()), rules.guards, fewest(rules)
    able = [device for device in members if device.identity]
    is_auto, settled = not isinstance(rules.secure, SecureAggregationConfig), is_settled(rules, journal)
    if is_auto and not settled:
        if len(able) < least:
            return readable(_too_few(len(able), everybody, least))
        now, then = len(draw(able, least, len(able), 0)), math.ceil(MORE * journal.tried)
        if now < then:
            return readable(RoundReason(ReasonCode.THIN_SUM_BEFORE, {"asked": now, "needed": then}))
    willing = [device for device in able if past.times(device.number) < guards.most_rounds]
    eligible = [device for device in willing if is_eligible(device.number, number, past, guards)]
    cohort = different_enough(eligible, least, past.sums, guards, draw) if len(eligible) >= least else []
    if not cohort:
        reason = _obstacle(everybody, len(able), len(willing), len(eligible), least, guards.cool_down)
        if is_auto and not settled:
            return readable(reason)
        waits = len(willing) < least or len(eligible) == len(willing)
        return RoundPolicy(None, [], reason, waits=waits)
    secure_config = (
        _care(guards, len(cohort)) if not isinstance(rules.secure, SecureAggregationConfig) else rules.secure
    )
    reason = RoundReason(ReasonCode.ENOUGH_DEVICES, {"eligible": len(eligible), "needed": least})
    return RoundPolicy(secure_config, cohort, reason, WORTH if is_auto and not settled else 0.0)


def _obstacle(here: int, able: int, willing: int, eligible: int, least: int, cool_down: int) -> RoundReason:
    """Say, from counts of devices, what stands in the way of a sum that takes `least` of them."""
    if able < least:
        return _too_few(able, here, least)
    if willing < least:
        return RoundReason(ReasonCode.PARTICIPATION_LIMIT, {"willing": willing, "here": able, "needed": least})
    if eligible < least:
        counts = {"eligible": eligible, "here": able, "needed": least, "cool_down": cool_down}
        return RoundReason(ReasonCode.COOL_DOWN, counts)
    return RoundReason(ReasonCode.COHORT_TOO_SIMILAR)


def _too_few(able: int, here: int, least: int) -> RoundReason:
    return RoundReason(ReasonCode.TOO_FEW_DEVICES, {"capable": able, "here": here, "needed": least})


def _care(guards: DevicePolicy, n_people: int) -> SecureAggregationConfig:
    """Return the care that devices with these guards agree to."""
    spare = math.ceil(n_people / LOST_BETWEEN)
    return SecureAggregationConfig(n_min=guards.n_min, k_min=guards.k_min, corrupted=guards.corrupted, spare=spare)


def is_eligible(device: int, number: int, past: Past, guards: DevicePolicy) -> bool:
    """Say whether the cool-down that a device's own guards want is over before a sum of this round."""
    last = past.last(device)
    return last is None or number - last > guards.cool_down


def different_enough(
    eligible: Sequence[EnrolledDevice], least: int, sums: Sums, guards: DevicePolicy, draw: Draw
) -> list[EnrolledDevice]:
    """Draw devices whose sum can be compared with no earlier one; none if there are none."""
    for at in range(DRAWS):
        size = len(eligible) if at == 0 else max(least, len(eligible) - guards.differ_by(len(eligible)))
        drawn = draw(eligible, least, size, at)
        if len(drawn) >= least and not is_like(frozenset(one.number for one in drawn), sums, guards):
            return drawn
    here = {device.number: device for device in eligible}
    for which in sorted(sums, reverse=True):  # the very same people again: equal sums have no difference
        people = sums[which]
        if which[1] and len(people) >= least and people <= here.keys() and not is_like(people, sums, guards):
            return [here[number] for number in sorted(people)]
    return []


def is_like(people: frozenset[int], sums: Sums, guards: DevicePolicy) -> bool:
    """Say whether some people are nearly those of an earlier sum, but not quite."""
    least = guards.differ_by(len(people))
    summed = [past for (_, stage), past in sums.items() if stage]
    return any(people & past and 0 < len(people ^ past) < least for past in summed)
