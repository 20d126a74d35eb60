"""The versions of messages that a program knows, as ranges; they show which of two programs is too old for the other.

Every request of a device and every answer of a coordinator names the sender's ranges in a header. A program that names
none is of the time before there were ranges: it knows the first version of each.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from tacit.errors import FieldError
from tacit.languages.sentences import Sentence
from tacit.protocols.secure_aggregation.context import OLDEST as OLDEST_SUM
from tacit.protocols.secure_aggregation.context import VERSION as NEWEST_SUM
from tacit.wire.envelope import OLDEST, VERSION

HEADER = "x-tacit-versions"
_FORM = re.compile(r"wire=(\d{1,3})-(\d{1,3}),sum=(\d{1,3})-(\d{1,3})", re.ASCII)
Range = tuple[int, int]


@dataclass(frozen=True)
class VersionRanges:
    """Oldest and newest version of the messages between device and coordinator, and of the secure sum within them."""

    wire: Range
    sum: Range

    def write(self) -> str:
        """Write it as one line."""
        return f"wire={self.wire[0]}-{self.wire[1]},sum={self.sum[0]}-{self.sum[1]}"

    @classmethod
    def read(cls, line: str) -> VersionRanges:
        """Read it from one line; what cannot be read is taken for a program that names none."""
        found = _FORM.fullmatch(line)
        if found is None:
            return FIRST
        wire, of_sum = (int(found[1]), int(found[2])), (int(found[3]), int(found[4]))
        return cls(wire, of_sum) if wire[0] <= wire[1] and of_sum[0] <= of_sum[1] else FIRST


FIRST = VersionRanges((1, 1), (1, 1))
OWN = VersionRanges((OLDEST, VERSION), (OLDEST_SUM, NEWEST_SUM))


def find_older(ours: VersionRanges, theirs: VersionRanges) -> Literal["ours", "theirs"] | None:
    """Say which of two programs is too old for the other; none if they have a version of everything in common."""
    for mine, other in ((ours.wire, theirs.wire), (ours.sum, theirs.sum)):
        if mine[1] < other[0]:
            return "ours"
        if other[1] < mine[0]:
            return "theirs"
    return None


def refuse_other_versions(address: str, theirs: VersionRanges, ours: VersionRanges = OWN) -> None:
    """Refuse a coordinator that has no version in common with this device, and say which of the two to upgrade."""
    older = find_older(ours, theirs)
    if older is None:
        return
    both = f"it knows {theirs.write()}, and this device {ours.write()}"
    if older == "ours":
        raise FieldError(
            Sentence(
                "{address} has a newer version of Tacit than this device can speak with: {both}.",
                address=address,
                both=both,
            ),
            "Upgrade Tacit on this machine. History, settings and recommendations stay as they are.",
        )
    raise FieldError(
        Sentence(
            "{address} has an older version of Tacit than this device can speak with: {both}.",
            address=address,
            both=both,
        ),
        "Ask the operator to upgrade the coordinator; until then recommendations go on here.",
    )
