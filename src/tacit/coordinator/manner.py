"""In what manner a round is held: under masks or readable, with whom, and why.

With `secure: auto` rounds are readable as long as there are too few devices for a sum, or as a sum of them would show
too little; the first sum that is opened ends that for good. From then on nobody is asked in the clear: if too few are
rested, a round passes in which nobody is asked, because rest is counted in rounds. What no rest can mend, too few who
can be in a sum at all or only people of an earlier one, is waited for instead. Whoever wants it otherwise has to say so
in the configuration, and her devices have a word in it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tacit.coordinator.config import RoundRules
from tacit.coordinator.journal import Enrolled, Journal
from tacit.privacy.secure import Guards
from tacit.privacy.secure.two_stage import Care

WORTH = 0.5  # share of what people say that the first sum must show; below it rounds stay readable
MORE = 1.25  # so many times the devices are needed for another try
LOST_BETWEEN = 25  # one in so many may be lost between the stages
DRAWS = 256  # tries to find people who differ enough from those of earlier sums

Sums = Mapping[tuple[int, int], frozenset[int]]
Draw = Callable[[Sequence[Enrolled], int, int, int], list[Enrolled]]
"""Draws those who are asked from some devices, so many at least and at most, otherwise in every try."""


@dataclass(frozen=True)
class Manner:
    """How a round is held."""

    care: Care | None  # under masks, with this care; none: each answer is read
    asked: list[Enrolled]  # nobody: the round passes, or waits
    why: str
    worth: float = 0.0  # share of what people say that the sum must show
    waits: bool = False  # nobody can be asked, and no rest will change that: others must come


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


def needed(rules: RoundRules, settled: bool) -> int:
    """Return how many devices must be there before a round begins."""
    least = max(rules.quorum, rules.minimum)
    return max(least, fewest(rules)) if settled or isinstance(rules.secure, Care) else least


def fewest(rules: RoundRules) -> int:
    """Return how many devices a sum under masks takes by these rules."""
    return rules.secure.n_min if isinstance(rules.secure, Care) else enough(rules.guards)


def enough(guards: Guards) -> int:
    """Return how many devices are asked at least, so that a sum is left when some of them drop out."""
    return math.ceil(guards.n_min / (1 - Care().dropped))


def is_settled(rules: RoundRules, journal: Journal) -> bool:
    """Say whether this federation was summed under masks before, and is not asked in the clear any more."""
    return rules.secure == "auto" and rules.robust is None and journal.is_summed


def manner(rules: RoundRules, journal: Journal, number: int, members: Sequence[Enrolled], draw: Draw) -> Manner:
    """Decide how a round is held with those who are there."""
    everybody = len(members)

    def readable(why: str) -> Manner:
        return Manner(None, draw(members, 0, everybody, 0), why)

    if rules.secure is None:
        return readable("rounds.secure is off")
    if rules.robust is not None:
        return readable("a robust rule reads the sums of groups")
    past, guards, least = Past(journal.sums()), rules.guards, fewest(rules)
    able = [device for device in members if device.identity]
    is_auto, settled = not isinstance(rules.secure, Care), is_settled(rules, journal)
    if is_auto and not settled:
        if len(able) < least:
            return readable(f"{len(able)} devices are here, a sum under masks takes {least}")
        now, then = len(draw(able, least, len(able), 0)), math.ceil(MORE * journal.tried)
        if now < then:
            return readable(f"too few speak of the same items; tried again when {then} are asked, now {now}")
    free = [device for device in able if past.times(device.number) < guards.most_rounds]
    rested = [device for device in free if is_rested(device.number, number, past, guards)]
    cohort = different_enough(rested, least, past.sums, guards, draw) if len(rested) >= least else []
    if not cohort:
        if len(able) < least:
            why = f"{len(able)} of {everybody} devices here can be in a sum under masks, which takes {least}"
        elif len(free) < least:
            why = f"{len(free)} of {len(able)} devices here can be in another sum, the others were in as many as they "
            why += f"want (rounds.guards.most_rounds); one takes {least}"
        elif len(rested) < least:
            why = f"{len(rested)} of {len(able)} devices are rested, a sum under masks takes {least}"
        else:
            why = "any sum of those who are here would differ from an earlier one by a few people only"
        waits = len(free) < least or len(rested) == len(free)
        return readable(why) if is_auto and not settled else Manner(None, [], why, waits=waits)
    care = _care(guards, len(cohort)) if not isinstance(rules.secure, Care) else rules.secure
    why = f"{len(rested)} rested devices are here, a sum under masks takes {least}"
    return Manner(care, cohort, why, WORTH if is_auto and not settled else 0.0)


def _care(guards: Guards, n_people: int) -> Care:
    """Return the care that devices with these guards agree to."""
    spare = math.ceil(n_people / LOST_BETWEEN)
    return Care(n_min=guards.n_min, k_min=guards.k_min, corrupted=guards.corrupted, spare=spare)


def is_rested(device: int, number: int, past: Past, guards: Guards) -> bool:
    """Say whether a device has rested as long as its own guards want before a sum of this round."""
    last = past.last(device)
    return last is None or number - last > guards.cool_down


def different_enough(rested: Sequence[Enrolled], least: int, sums: Sums, guards: Guards, draw: Draw) -> list[Enrolled]:
    """Draw people whose sum can be compared with no earlier one; none if there are none."""
    for at in range(DRAWS):
        size = len(rested) if at == 0 else max(least, len(rested) - guards.differ_by(len(rested)))
        drawn = draw(rested, least, size, at)
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
