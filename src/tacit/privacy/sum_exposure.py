"""What a sum still reveals about one participant, by the number of participants: measured figures, for users.

From `tacit reproduce secure-attacks` on ML-100K: the share of a user's items among the |K| that an attacker holds to be
most probable, |K| being how many the user has. A participant is part of its own sum, so that a sum without noise always
names more than an attacker who has nothing of that user. What taking part reveals is the difference. It shrinks with
the number of participants. Figures are of histories that are sent whole; sums reveal less of histories that are sent in
part.
"""

from __future__ import annotations

from dataclasses import dataclass

WITHOUT = 0.326  # named by what is popular among all other users: more than the sum of the other participants names
NAMED = {  # by participants
    7: 0.433,
    10: 0.403,
    13: 0.389,
    20: 0.369,
    26: 0.358,
    40: 0.348,
    50: 0.345,
    100: 0.337,
    200: 0.330,
}


@dataclass(frozen=True)
class SumExposure:
    """How much of a history a sum names, and how much could be named had the user not taken part."""

    participants: int  # of the smallest sum
    named: float
    without: float = WITHOUT

    @property
    def of_taking_part(self) -> float:
        """What the user's own contribution adds."""
        return self.named - self.without

    @classmethod
    def of(cls, participants: int) -> SumExposure:
        """Return what was measured for so many participants, or the next smaller number; fewer may show everything."""
        measured = [size for size in NAMED if size <= participants]
        return cls(participants, NAMED[max(measured)] if measured else 1.0)
