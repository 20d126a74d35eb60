"""The sealed root of a device's file: which rows there are, in which version, and how often the file was written.

Every row is sealed by itself, which shows that it was changed. It does not show that an old row was put back, or that a
row or its name was removed. The root says that. For each place it has the mark of what lies there; for each table the
number of rows, the highest row ever and the sum of all marks. A mark is a keyed hash of a row's nonce and tag, which no
two sealings share, so that a sum of marks cannot be reached with other rows. The root is sealed too and written anew in
every transaction, with a counter. An attacker who puts the whole file back to an earlier state puts the root back with
it. The number beside the file (`file_lock`) shows that, as long as it was not put back too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from tacit.errors import DeviceError
from tacit.languages.sentences import Sentence

MODULUS = 2**256  # of sums of marks
RESTORE = "Restore a backup: tacit device restore."


def damage_error(table: str, row: int | str) -> DeviceError:
    """Return the error for a row that is not what this file holds."""
    return DeviceError(
        Sentence(
            "This device's file is damaged, or somebody changed it: {table} {row} is not what was stored.",
            table=table,
            row=row,
        ),
        RESTORE,
    )


@dataclass
class TableRecord:
    """What a table holds: how many rows, the highest row ever, the sum of their marks, and the mark of the last row."""

    count: int = 0
    last: int = 0
    total: int = 0
    tip: int = 0

    def add(self, mark: int) -> None:
        """Count one more row, the next."""
        self.count, self.last, self.tip = self.count + 1, self.last + 1, mark
        self.total = (self.total + mark) % MODULUS

    def remove(self, mark: int) -> None:
        """Count one row less."""
        self.count -= 1
        self.total = (self.total - mark) % MODULUS

    def clear(self) -> None:
        """Count no rows; their numbers are not used again."""
        self.count, self.total = 0, 0

    def check(self, table: str, marks: Iterable[int]) -> None:
        """Refuse rows that are not exactly those of the table."""
        found = list(marks)
        if len(found) != self.count or sum(found) % MODULUS != self.total:
            raise damage_error(table, "as a whole")


@dataclass
class SealedRoot:
    """What every row of a file must be."""

    counter: int = 0
    facts: int = 0  # the mark of what stands in the clear
    places: dict[str, int] = field(default_factory=dict)
    tables: dict[str, TableRecord] = field(default_factory=dict)

    def table(self, name: str) -> TableRecord:
        """Return the record of a table."""
        return self.tables.setdefault(name, TableRecord())

    def pack(self) -> bytes:
        """Write it for the vault."""
        tables = {
            name: [record.count, record.last, f"{record.total:x}", f"{record.tip:x}"]
            for name, record in self.tables.items()
        }
        places = {name: f"{mark:x}" for name, mark in self.places.items()}
        return json.dumps([self.counter, f"{self.facts:x}", places, tables]).encode()

    @classmethod
    def unpack(cls, stored: bytes) -> SealedRoot:
        """Read it back."""
        counter, facts, places, tables = json.loads(stored)
        records = {
            name: TableRecord(count, last, int(total, 16), int(tip, 16))
            for name, (count, last, total, tip) in tables.items()
        }
        return cls(counter, int(facts, 16), {name: int(mark, 16) for name, mark in places.items()}, records)
