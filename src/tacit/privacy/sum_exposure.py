"""What a sum still tells of one of its participants, by how many there are: measured figures, for users to read.

From `tacit reproduce secure-attacks` on ML-100K: the share of a user's items among the |K| that counts of a sum make
most probable, |K| being how many the user has. A participant is part of its own sum, so that no sum tells as little as
what is popular among all users; the rest shrinks with the number of participants.
"""

from __future__ import annotations

from dataclasses import dataclass

POPULAR = 0.327  # named by what is popular among all users, without any sum
NAMED = {7: 0.433, 10: 0.406, 13: 0.388, 20: 0.367, 40: 0.348, 50: 0.345, 100: 0.336, 200: 0.331}  # by participants


@dataclass(frozen=True)
class SumExposure:
    """How much of a history a sum names, beside what is popular."""

    participants: int  # of the smallest sum
    named: float
    popular: float = POPULAR

    @classmethod
    def of(cls, participants: int) -> SumExposure:
        """Return what was measured for so many participants, or the next smaller number; fewer may show everything."""
        measured = [size for size in NAMED if size <= participants]
        return cls(participants, NAMED[max(measured)] if measured else 1.0)
