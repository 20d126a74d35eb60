"""In what manner a round is held: under masks or readable, with whom, and why.

With `secure: auto` rounds are readable as long as there are too few devices for a sum, or as a sum of them would show
too little; the first sum that is opened ends that for good. From then on nobody is asked in the clear: if too few are
rested, a round passes in which nobody is asked. Whoever wants it otherwise has to say so in the configuration, and her
devices have a word in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tacit.coordinator.config import RoundRules
from tacit.coordinator.journal import Enrolled, Journal
from tacit.privacy.secure import Guards
from tacit.privacy.secure.two_stage import Care

WORTH = 0.5  # share of what people say that the first sum must show; below it rounds stay readable
MORE = 1.25  # so many times the devices are needed for another try
LOST_BETWEEN = 25  # one in so many may be lost between the stages
DRAWS = 16  # tries to find people who differ enough from those of earlier sums

Sums = Mapping[tuple[int, int], frozenset[int]]
Draw = Callable[[Sequence[Enrolled], int, int], list[Enrolled]]
"""Draws those who are asked from some devices, so many at most, otherwise in every try."""


@dataclass(frozen=True)
class Manner:
    """How a round is held."""

    care: Care | None  # under masks, with this care; none: each answer is read
    asked: list[Enrolled]  # nobody: the round passes
    why: str
    worth: float = 0.0  # share of what people say that the sum must show


def needed(rules: RoundRules, journal: Journal) -> int:
    """Return how many devices must be there before a round begins."""
    least = max(rules.quorum, rules.minimum)
    if isinstance(rules.secure, Care):
        return max(least, rules.secure.n_min)
    return max(least, enough(rules.guards)) if is_settled(rules, journal.sums()) else least


def enough(guards: Guards) -> int:
    """Return how many devices are asked at least, so that a sum is left when some of them drop out."""
    return math.ceil(guards.n_min / (1 - Care().dropped))


def is_settled(rules: RoundRules, sums: Sums) -> bool:
    """Say whether this federation was summed under masks before, and is not asked in the clear any more."""
    return rules.secure == "auto" and rules.robust is None and any(stage == 2 for _, stage in sums)


def manner(rules: RoundRules, journal: Journal, number: int, members: Sequence[Enrolled], draw: Draw) -> Manner:
    """Decide how a round is held with those who are there."""
    everybody = len(members)

    def readable(why: str) -> Manner:
        return Manner(None, draw(members, everybody, 0), why)

    if rules.secure is None:
        return readable("rounds.secure is off")
    if rules.robust is not None:
        return readable("a robust rule reads the sums of groups")
    sums, guards = journal.sums(), rules.guards
    able = [device for device in members if device.identity]
    is_auto, settled = not isinstance(rules.secure, Care), is_settled(rules, sums)
    least = rules.secure.n_min if isinstance(rules.secure, Care) else enough(guards)
    if is_auto and not settled:
        if len(able) < least:
            return readable(f"{len(able)} devices are here, a sum under masks takes {least}")
        now, then = len(draw(able, len(able), 0)), math.ceil(MORE * journal.tried)
        if now < then:
            return readable(f"too few speak of the same items; tried again when {then} are asked, now {now}")
    rested = [device for device in able if is_rested(device.number, number, sums, guards)]
    cohort = different_enough(rested, least, sums, guards, draw) if len(rested) >= least else []
    if not cohort:
        why = (
            f"{len(rested)} of {len(able)} devices are rested, a sum under masks takes {least}"
            if len(rested) < least
            else "any sum of those who are here would differ from an earlier one by a few people only"
        )
        return readable(why) if is_auto and not settled else Manner(None, [], why)
    care = _care(guards, len(cohort)) if not isinstance(rules.secure, Care) else rules.secure
    why = f"{len(rested)} rested devices are here, a sum under masks takes {least}"
    return Manner(care, cohort, why, WORTH if is_auto and not settled else 0.0)


def _care(guards: Guards, n_people: int) -> Care:
    """Return the care that devices with these guards agree to."""
    spare = math.ceil(n_people / LOST_BETWEEN)
    return Care(n_min=guards.n_min, k_min=guards.k_min, corrupted=guards.corrupted, spare=spare)


def is_rested(device: int, number: int, sums: Sums, guards: Guards) -> bool:
    """Say whether a device's own guards would let it take part in a sum of this round."""
    rounds = {past for (past, _), people in sums.items() if device in people}
    return len(rounds) < guards.most_rounds and (not rounds or number - max(rounds) > guards.cool_down)


def different_enough(rested: Sequence[Enrolled], least: int, sums: Sums, guards: Guards, draw: Draw) -> list[Enrolled]:
    """Draw people whose sum can be compared with no earlier one; none if there are none."""
    for at in range(DRAWS):
        size = len(rested) if at == 0 else max(least, len(rested) - guards.differ_by(len(rested)))
        drawn = draw(rested, size, at)
        if len(drawn) >= least and not is_like(frozenset(one.number for one in drawn), sums, guards):
            return drawn
    here = {device.number: device for device in rested}
    for which in sorted(sums, reverse=True):  # the very same people again: equal sums have no difference
        people = sums[which]
        if which[1] and len(people) >= least and people <= here.keys() and not is_like(people, sums, guards):
            return [here[number] for number in sorted(people)]
    return []


def is_like(people: frozenset[int], sums: Sums, guards: Guards) -> bool:
    """Say whether some people are nearly those of an earlier sum, but not quite."""
    least = guards.differ_by(len(people))
    summed = [past for (_, stage), past in sums.items() if stage]
    return any(people & past and 0 < len(people ^ past) < least for past in summed)
