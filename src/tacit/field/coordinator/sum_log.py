"""The secure sums in a coordinator's journal: who was asked for one, who was in it, and what it cost their budgets.

It holds who was in a sum, by number, because nearly the same users must not be summed again. So it also shows who was
lost between the two stages of one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from tacit.field.coordinator.journal_file import JournalFile
from tacit.field.coordinator.spending import NoisySum
from tacit.privacy.accounting import PrivacyEvent

BEGUN, BEGUN_WITH = "begun", "begun with"  # names of facts: the round of the last sum, and how many were asked


class SumLog:
    """The secure sums in an open journal."""

    def __init__(self, file: JournalFile) -> None:
        self._file = file

    def begin(self, number: int, n_asked: int, cool_down: int, kept: int) -> None:
        """Note that a secure sum has begun with so many: its round cannot be asked for again, also after a crash.

        Who was asked for an earlier one is forgotten as soon as their cool-down of so many rounds is over. Who was in
        one is forgotten after `kept` rounds, but for how often each device was.
        """
        with self._file.transaction():
            self._file.keep_fact(BEGUN, number)
            self._file.keep_fact(BEGUN_WITH, n_asked)
            self._file.connection.execute("DELETE FROM sums WHERE stage = 0 AND round < ?", (number - cool_down,))
            old = "FROM sums WHERE stage > 0 AND round < ?"
            times = f"SELECT count(DISTINCT round) {old} AND device = devices.number"
            shares = (
                "SELECT coalesce(sum(share), 0) FROM sums JOIN spendings USING (round) WHERE stage = 2 AND round < ?"
            )
            spent = f"spent + ({shares} AND device = devices.number)"
            change = f"UPDATE devices SET summed = summed + ({times}), spent = {spent}"
            self._file.connection.execute(change, (number - kept, number - kept))
            self._file.connection.execute(f"DELETE {old}", (number - kept,))

    @property
    def last_begun_round(self) -> int:
        """The last round whose secure sum was begun, -1 before the first."""
        return self._file.number(BEGUN, -1)

    @property
    def n_begun_with(self) -> int:
        """How many devices the last secure sum was begun with."""
        return self._file.number(BEGUN_WITH, 0)

    @property
    def has_begun(self) -> bool:
        """Whether a secure sum was ever begun: from then on devices are not asked in the clear."""
        if self.last_begun_round >= 0:
            return True
        return bool(self._file.read_number("SELECT EXISTS(SELECT 1 FROM sums WHERE stage = 2)"))

    def note_asked(self, number: int, devices: Iterable[int]) -> None:
        """Note who is asked for a vector of a secure sum: their cool-down begins, whatever becomes of it."""
        with self._file.transaction():
            rows = [(number, one) for one in devices]
            self._file.connection.executemany("INSERT OR IGNORE INTO sums VALUES (?, 0, ?)", rows)

    def note_participants(self, number: int, stage: int, devices: Iterable[int]) -> None:
        """Note who is in a sum, before any device is asked to unmask it."""
        with self._file.transaction():
            rows = [(number, stage, one) for one in devices]
            self._file.connection.executemany("INSERT INTO sums VALUES (?, ?, ?)", rows)

    def participants(self) -> dict[tuple[int, int], frozenset[int]]:
        """Return who was lately asked for a secure sum (stage 0), and who was in one, by round and stage."""
        found: dict[tuple[int, int], set[int]] = {}
        for number, stage, device in self._file.read("SELECT round, stage, device FROM sums"):
            found.setdefault((number, stage), set()).add(device)
        return {which: frozenset(devices) for which, devices in found.items()}

    def note_spending(self, spending: NoisySum) -> None:
        """Note what a sum costs its devices, before their vectors are asked for."""
        with self._file.transaction():
            self._file.insert("spendings", (spending.round, spending.share, json.dumps(spending.event.to_dict())))

    def spendings(self) -> list[NoisySum]:
        """Return all sums whose vectors were asked for, whatever became of them."""
        found = self._file.read("SELECT round, share, event FROM spendings ORDER BY round")
        return [NoisySum(number, share, PrivacyEvent.from_dict(json.loads(event))) for number, share, event in found]

    def spent_shares(self) -> dict[int, float]:
        """Return how much of its budget each device has spent in sums, as far as is known here."""
        kept = "SELECT coalesce(sum(share), 0) FROM sums JOIN spendings USING (round) WHERE stage = 2"
        found = self._file.read(f"SELECT number, spent + ({kept} AND device = devices.number) FROM devices")
        return {device: spent for device, spent in found if spent}
