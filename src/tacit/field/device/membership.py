"""Membership of a federation: its terms and catalogue, the last model received, and the private part."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.errors import ConsentError, DeviceError, WireError
from tacit.field.device.store import Store
from tacit.languages.sentences import Sentence
from tacit.random import Key
from tacit.reasons import ReasonCode
from tacit.types import Array, Catalog
from tacit.wire.federation import Federation
from tacit.wire.messages import Request, pack, read_request, read_welcome, unpack

PLACES = (
    *("welcome", "address", "enrolment", "line", "link", "model", "private", "learnt", "outbox"),
    *("opening", "prepared", "turn", "turned", "masked"),  # of secure sums
    *("known", "measured", "amendments", "proposal"),
    *("witness", "directory", "notices"),
)


@dataclass(frozen=True)
class Answer:
    """The message of the last round that was answered: to which request, and under which entry of the ledger."""

    entry: int
    round: int
    request: str  # SHA-256 of the request
    content: bytes  # nothing, if it left under masks
    under: str = ""  # the settings when it was made, as JSON

    def pack(self) -> bytes:
        """Write it for the store."""
        head = {"entry": self.entry, "round": self.round, "request": self.request, "under": self.under}
        return json.dumps(head).encode() + b"\n" + self.content

    @classmethod
    def unpack(cls, stored: bytes) -> Answer:
        """Read it from the store."""
        head, _, content = stored.partition(b"\n")
        return cls(**json.loads(head), content=content)


class Membership:
    """The federation that a device belongs to."""

    def __init__(self, store: Store, federation: Federation, catalog: Catalog, address: str) -> None:
        self._store, self.federation, self.catalog, self.address = store, federation, catalog, address
        self._received: tuple[tuple[int, int], Request | None] | None = None

    @classmethod
    def join(cls, store: Store, welcome: bytes, address: str, witness: str = "") -> Membership:
        """Become a member; one who already is must leave first. The witness is kept in the same transaction."""
        federation, catalog = read_welcome(welcome)
        with store.transaction():
            if store.get("welcome") is not None:
                raise ConsentError.because(ReasonCode.ALREADY_A_MEMBER)
            store.put("welcome", welcome)
            store.put_json("address", address)
            store.put_json("witness", witness)
            enrolment = store.get_json("enrolment") or {}
            if address and enrolment.get("address") == address:
                store.put_json("line", enrolment)
            store.drop("enrolment")
            store.drop("link")
        return cls(store, federation, catalog, address)

    @classmethod
    def of(cls, store: Store) -> Membership | None:
        """Return the membership that a file holds, if it holds one."""
        welcome = store.get("welcome")
        if welcome is None:
            return None
        try:
            return cls(store, *read_welcome(welcome), store.get_json("address"))
        except WireError as error:
            raise DeviceError(
                Sentence("This device joined its federation with another version of Tacit: {why}", why=error.message),
                "Leave it and join again with a new invitation: tacit device leave.",
            ) from None

    @staticmethod
    def leave(store: Store) -> None:
        """Delete the federation, its model and the private part, inside a transaction; the rest stays."""
        for place in PLACES:
            store.drop(place)

    @property
    def task(self) -> str:
        """The digest of the founding terms, by which what is remembered of the federation is found."""
        return self.federation.lineage.hex()

    @property
    def to(self) -> str:
        """Whom messages are for, in words."""
        return f"{self.federation.title} ({self.address})" if self.address else self.federation.title

    @cached_property
    def first(self) -> dict[str, Array]:
        """A model of the right form, and the constants; what is learnt in it means nothing."""
        return self.federation.built.spec.received(self.federation.first_model(self.catalog, Key(0)))

    def read(self, content: bytes) -> Request:
        """Read a model that was sent here; one of another federation, catalogue or version is refused."""
        request = read_request(self.federation, content)
        self.federation.check_model(request.shared, self.first)
        return self._with_constants(request)

    def _with_constants(self, request: Request) -> Request:
        constants = {name: self.first[name] for name in self.federation.built.spec.constants}
        return replace(request, shared={**request.shared, **constants})

    def model(self) -> Request | None:
        """Return the last model that was received, opened once as long as the file does not change."""
        moment = self._store.moment()
        if self._received is not None and self._received[0] == moment:
            return self._received[1]
        content = self._store.get("model")
        request = None if content is None else self._with_constants(read_request(self.federation, content))
        if not self._store.in_transaction:  # which may yet take it back
            self._received = (moment, request)
        return request

    def keep_model(self, content: bytes) -> None:
        """Store a model as it was received, inside a transaction."""
        self._store.put("model", content)

    def private(self) -> dict[str, Array] | None:
        """Return the private part after the answers that counted."""
        return self._arrays("private")

    def last_private(self) -> dict[str, Array] | None:
        """Return the private part after the last answer, whether it counts or not."""
        return self._arrays("learnt")

    def settle(self, counted: int) -> None:
        """Store what the last answer made, if it was counted, inside a transaction."""
        answer, learnt = self.answer(), self._store.get("learnt")
        if answer is not None and learnt is not None and answer.round == counted:
            self._store.put("private", learnt)

    def keep_learnt(self, learnt: Mapping[str, Array], items: Array) -> None:
        """Store what an answer made until it is known whether it counts, and from which items, inside a transaction."""
        self._store.put("learnt", pack(learnt))
        known = self.read_learnt_items()
        known = np.zeros(self.catalog.n_items, bool) if known is None else known
        known[items] = True
        self._store.put("known", np.packbits(known).tobytes())

    def keep_unlearnt(self) -> None:
        """Note that the last answer changed nothing of the private part, inside a transaction, after `settle`."""
        before = self._store.get("private")
        if before is None:
            self._store.drop("learnt")
        else:
            self._store.put("learnt", before)

    def read_learnt_items(self) -> NDArray[np.bool_] | None:
        """Return which items [n_items] something was ever learnt from here; none before the first answer."""
        stored = self._store.get("known")
        if stored is None:
            return None
        return np.unpackbits(np.frombuffer(stored, np.uint8), count=self.catalog.n_items).astype(bool)

    def last_measurement(self) -> dict[str, Any] | None:
        """Return what was measured last: in which round, on which item, and whether it was in the list."""
        found: dict[str, Any] | None = self._store.get_json("measured")
        return found

    def keep_measured(self, found: dict[str, Any]) -> None:
        """Store what was measured, inside a transaction."""
        self._store.put_json("measured", found)

    def _arrays(self, place: str) -> dict[str, Array] | None:
        content = self._store.get(place)
        return None if content is None else unpack(content)

    def answer(self) -> Answer | None:
        """Return the message of the last round that was answered."""
        stored = self._store.get("outbox")
        return None if stored is None else Answer.unpack(stored)

    def refuse_if_answered(self, number: int, opening: str = "") -> None:
        """Refuse a round that was answered; `opening`: unless under masks, to the request that has this SHA-256."""
        last = self.answer()
        if last is None or last.round < number:
            return
        if not opening or last.content or (last.round, last.request) != (number, opening):
            raise late_round_error(number, last.round)

    def keep_answer(self, answer: Answer) -> None:
        """Store a message until the next one, inside a transaction."""
        self._store.put("outbox", answer.pack())


def late_round_error(number: int, last: int) -> WireError:
    """Return the error for a round that was answered already, or is over."""
    return WireError.because(ReasonCode.ROUND_ANSWERED, round=number, earlier=last)
