"""The phases of rounds on the operator's page, and the quality that was summed in them; only counts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from markupsafe import Markup

from tacit.field.coordinator.round_stats import ANSWERS, APPLYING, WAITING, PhaseCounts, RoundStats, SummedQuality
from tacit.web.words import format_percent

STAGES = {0: "", 1: "counting participants", 2: "adding rows"}
WORDS = {
    WAITING: ("waiting", "until enough devices are connected"),
    ANSWERS: ("answers", "devices learn, and their answers are added"),
    "adverts": ("adverts", "the model is sent; every device sends its public keys"),
    "shares": ("shares", "every device sends shares of its secrets"),
    "vectors": ("vectors", "devices learn and send masked vectors"),
    "confirmations": ("confirmations", "devices confirm the list of participants whose vectors arrived"),
    "unmaskings": ("unmaskings", "the masks are removed from the sum"),
    APPLYING: ("applying", "the sum is applied to the model"),
}
REMEDIES = {
    "adverts": "They were offline, or their policy excluded the round (cool-down, least participants). Ask more of "
    "them (rounds.over_selection) or pause longer between rounds (rounds.pause).",
    "vectors": "Learning takes longer than the deadline: raise rounds.deadline.",
}
USUAL_REMEDY = (
    "Their connections break during a round: raise rounds.deadline, or ask more devices (rounds.over_selection)."
)
CONFIDENCE = 1.96  # standard deviations: 95 %


@dataclass(frozen=True)
class PhaseSummary:
    """One phase, over one round or several: its name and its numbers."""

    phase: PhaseCounts
    rounds: int  # in which it happened
    share: float  # of the time of all phases, from 0 to 1

    @property
    def name(self) -> str:
        """The name of the phase."""
        return WORDS.get(self.phase.name, (self.phase.name, ""))[0]

    @property
    def meaning(self) -> str:
        """What happens in the phase."""
        return WORDS.get(self.phase.name, ("", ""))[1]

    @property
    def stage(self) -> str:
        """The stage of secure aggregation that the phase belongs to."""
        what = STAGES.get(self.phase.stage, "")
        return f"Stage {self.phase.stage}: {what}" if what else ""

    @property
    def seconds(self) -> float:
        """Seconds in a round, on average."""
        return self.phase.seconds / self.rounds

    @property
    def lost_share(self) -> float:
        """The share of the asked devices that did not answer in time."""
        return self.phase.lost / self.phase.asked if self.phase.asked else 0.0

    @property
    def remedy(self) -> str:
        """What to do if many devices are lost in the phase."""
        return REMEDIES.get(self.phase.name, USUAL_REMEDY)


def summarise_phases(courses: Iterable[RoundStats]) -> list[PhaseSummary]:
    """Add phases up over rounds, in the order in which they happen."""
    found: dict[tuple[int, str], list[PhaseCounts]] = {}
    for course in courses:
        for phase in course.phases:
            found.setdefault((phase.stage, phase.name), []).append(phase)
    whole = sum(phase.seconds for phases in found.values() for phase in phases) or 1.0
    order = list(WORDS)
    places = {key: (key[1] == APPLYING, key[0], order.index(key[1]) if key[1] in order else 0) for key in found}
    return [_add(found[key], whole) for key in sorted(found, key=places.__getitem__)]


def by_stage(phases: Iterable[PhaseSummary]) -> list[tuple[str, list[PhaseSummary]]]:
    """Put phases that follow each other under the name of their stage."""
    return [(stage, list(some)) for stage, some in groupby(phases, key=lambda one: one.stage)]


def _add(phases: Sequence[PhaseCounts], whole: float) -> PhaseSummary:
    names = ("asked", "answered", "refused", "called_off", "bytes_up", "bytes_down", "seconds")
    sums = {name: sum(getattr(phase, name) for phase in phases) for name in names}
    phase = PhaseCounts(phases[0].stage, phases[0].name, **sums)
    return PhaseSummary(phase, len(phases), phase.seconds / whole)


def interval(quality: SummedQuality) -> tuple[float, float]:
    """Return the 95 % confidence interval of the share of users (Wilson's interval).

    >>> [round(end, 2) for end in interval(SummedQuality(5, 20))]
    [0.11, 0.47]
    """
    n, z = quality.people, CONFIDENCE
    share = quality.hits / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)


def curve(courses: Mapping[int, RoundStats]) -> Markup:
    """Draw the quality of rounds that have one, each with its interval."""
    rated = [(number, course.quality) for number, course in sorted(courses.items()) if course.quality is not None]
    if len(rated) < 2:
        return Markup("")
    first, last = rated[0][0], rated[-1][0]
    most = max(0.1, *(interval(quality)[1] for _, quality in rated))

    def x(number: int) -> float:
        return 54 + 526 * (number - first) / max(last - first, 1)

    def y(share: float) -> float:
        return 108 - 96 * share / most

    parts = []
    for share in (0.0, most / 2, most):
        parts.append(f'<line class="gridline" x1="46" x2="590" y1="{y(share):.1f}" y2="{y(share):.1f}"/>')
        parts.append(f'<text x="40" y="{y(share) + 4:.1f}" text-anchor="end">{format_percent(share)}</text>')
    for number, quality in rated:
        low, high = interval(quality)
        at = f"{x(number):.1f}"
        parts.append(f'<line class="between" x1="{at}" x2="{at}" y1="{y(low):.1f}" y2="{y(high):.1f}"/>')
        parts.append(f'<circle class="quality" cx="{at}" cy="{y(quality.hits / quality.people):.1f}" r="6.5"/>')
    parts += [f'<text x="{x(end):.1f}" y="126" text-anchor="middle">{end}</text>' for end in (first, last)]
    return Markup("".join(parts))
