"""The ledger: what left this device. An entry is on disk before anything is sent, and is never changed.

    prepared        made, and nothing of it has left
    releasing       handed to the transport: it may have left
    sent            the receiver says that it arrived
    may have left   the transfer broke off: the receiver may have all of it, whatever it says
    not sent        the transfer ended before the first byte of it was handed over, at every attempt

Marks are added to an entry, not written over it. Every entry holds the digest of the one before, and the file's root
knows the last: an entry that is taken away or put back is noticed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tacit.errors import DeviceError
from tacit.field.device.sealed_root import RESTORE
from tacit.field.device.store import Store
from tacit.languages.sentences import Sentence
from tacit.types import Catalog, Label
from tacit.updates import Message

if TYPE_CHECKING:
    from tacit.methods.base import FederatedSpec

State = Literal["prepared", "releasing", "sent", "may have left", "not sent"]
MAY_HAVE_LEFT: tuple[State, ...] = ("releasing", "sent", "may have left")
Clock = Callable[[], datetime]


def system_clock() -> datetime:
    """Return the time of the machine, UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True)
class LedgerEntry:
    """One message: when, to whom, in which round, which rows, how many bytes, masked or not."""

    number: int
    when: str  # UTC
    to: str
    round: int
    positives: list[Label]  # items, once for every row about an item of the history
    negatives: list[Label]  # items, once for every other row
    others: int  # rows that are about no item and nothing the user did: layers of a network
    bytes: int
    masked: bool
    digest: str  # SHA-256 of the message
    state: State = "prepared"
    attempts: int = 0  # how often it was handed to the transport, the same bytes each time
    why: str = ""  # it did not arrive, as far as is known
    measured: bool = False  # whether it has one yes or no: was the newest item in the recommended list?
    derived: int = 0  # rows about something the user did that name no single item: features of their items
    zeros: str = ""  # reason code: nothing of the history is in it, it added zeros to a secure sum
    whole: bool = False  # a whole model, learnt from the history: its rows are counted as derived

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return asdict(self)


@dataclass(frozen=True)
class MentionedItems:
    """The items that the rows of a message mention, as labels."""

    positives: list[Label]
    negatives: list[Label]
    others: int
    measured: bool = False
    derived: int = 0  # rows about something the user did that name no single item
    zeros: str = ""  # reason code, where a masked message holds zeros only
    whole: bool = False  # a whole model

    @classmethod
    def of(cls, message: Message, spec: FederatedSpec, catalog: Catalog, measured: bool = False) -> MentionedItems:
        """Take it from what is sent; rows of item tables are about items."""
        positives: list[Label] = []
        negatives: list[Label] = []
        others, derived = 0, 0
        for name, (_, ids, _) in message.tables.items():
            marks = message.sensitive[name]
            if name not in spec.item_tables:
                derived += int(marks.sum())
                others += len(ids) - int(marks.sum())
                continue
            for chosen, into in ((marks, positives), (~marks, negatives)):
                into.extend(catalog.item_ids[int(item)] for item in np.sort(ids[chosen]))
        return cls(positives, negatives, others, measured, derived)


@dataclass(frozen=True)
class UpcomingMessage:
    """A message that has not been made: what it would hold."""

    round: int
    to: str
    rows: MentionedItems
    bytes: int


class Ledger:
    """All releases of a device."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def write(self, when: str, to: str, number: int, rows: MentionedItems, content: bytes, masked: bool) -> int:
        """Note a message before it is sent, inside the transaction that keeps it; return the entry's number."""
        return self._store.add(
            "ledger",
            {
                "before": self._digest(),
                "when": when,
                "to": to,
                "round": number,
                "positives": rows.positives,
                "negatives": rows.negatives,
                "others": rows.others,
                "derived": rows.derived,
                "bytes": len(content),
                "masked": masked,
                "digest": hashlib.sha256(content).hexdigest(),
                "measured": rows.measured,
                **({"zeros": rows.zeros} if rows.zeros else {}),
                **({"whole": True} if rows.whole else {}),
            },
        )

    def mark(self, entry: int, state: State, when: str, why: str = "") -> None:
        """Add what became of an entry."""
        self._store.add("marks", {"entry": entry, "state": state, "when": when, "why": why})

    def list(self, since: int = 0) -> list[LedgerEntry]:
        """Return the entries after number `since`, oldest first, each with what became of it."""
        found: dict[int, LedgerEntry] = {}
        before = ""
        for number, value in self._store.rows("ledger"):
            if value["before"] != before or number != len(found) + 1:
                raise DeviceError(
                    Sentence("The ledger is damaged: entry {number} does not follow the one before it.", number=number),
                    RESTORE,
                )
            before = _digest_of(value)
            del value["before"]
            found[number] = LedgerEntry(number=number, **value)
        doubtful = set[int]()  # entries of which an earlier attempt may have left
        for _, mark in self._store.rows("marks"):
            number, state = mark["entry"], mark["state"]
            release = found[number]
            if release.state in ("releasing", "may have left") and state == "releasing":
                doubtful.add(number)
            if state == "not sent" and number in doubtful:
                state = "may have left"
            found[number] = replace(
                release,
                state="sent" if release.state == "sent" else state,
                why=mark["why"],
                attempts=release.attempts + (state == "releasing"),
            )
        return [release for number, release in found.items() if number > since]

    def _digest(self) -> str:
        last = self._store.last("ledger")
        return "" if last is None else _digest_of(last)


def _digest_of(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
