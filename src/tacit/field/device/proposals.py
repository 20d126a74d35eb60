"""Another method that the operator of a federation proposes: what would change, and what the user said to it.

A method decides what leaves a device. So an amendment that replaces it is kept as a proposal, and the device keeps to
the terms that its user agreed to. It recommends from the last model, and answers nothing, until the user says yes.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass

from tacit.field.device.store import Store
from tacit.random import Key
from tacit.types import Catalog
from tacit.wire.amendments import read_amendment, read_chain, write_chain
from tacit.wire.federation import Federation
from tacit.wire.messages import open_welcome

PLACE = "proposal"


@dataclass(frozen=True)
class MethodProposal:
    """The terms in force on this device, and those that the operator proposes."""

    before: Federation
    after: Federation
    numbers: tuple[int, int]  # that a masked message holds, before and after
    is_declined: bool

    def list_options(self) -> list[tuple[str, str, str]]:
        """Return the options of the method that differ, as (name, before, after); all of another method's."""
        mine, theirs = (federation.config.model_dump(mode="json") for federation in (self.before, self.after))
        if self.before.method != self.after.method:
            mine = {}
        skipped = self.after.built.spec.schedule_options
        names = [name for name in theirs if name not in skipped and mine.get(name) != theirs[name]]
        return [(name, str(mine[name]) if name in mine else "", str(theirs[name])) for name in names]

    @property
    def guarantee(self) -> str:
        """What is promised after the change, in words; the terms of a guarantee cannot be replaced."""
        agreed = self.after.privacy
        if agreed is None:
            return "There is no guarantee of differential privacy, before and after."
        return (
            f"The guarantee stays: epsilon {agreed.epsilon:g}, delta {agreed.delta:g}. What was spent of it counts on."
        )

    def describe(self) -> list[str]:
        """Return what would change, in sentences."""
        before, after = self.numbers
        options = [f"{name} {old} -> {new}" if old else f"{name} {new}" for name, old, new in self.list_options()]
        is_other = self.before.method != self.after.method
        method = f"{self.before.method} -> {self.after.method}" if is_other else f"{self.after.method}, other options"
        return [
            f"Method: {method}.",
            f"Options: {', '.join(options) or 'as before'}.",
            f"What leaves, if every row is sent: {after:,} numbers instead of {before:,}. Your settings hold.",
            self.guarantee,
            "If you agree, the last model is dropped, and the new one comes with the next exchange.",
        ]


def keep_proposal(store: Store, amendments: Sequence[bytes], digest: bytes) -> None:
    """Store a chain that begins with another method, inside a transaction; a new one has not been declined yet."""
    known = store.get_json(PLACE) or {}
    declined = known.get("declined", False) and known.get("digest") == digest.hex()
    chain = b64encode(write_chain(amendments)).decode()
    store.put_json(PLACE, {"chain": chain, "digest": digest.hex(), "declined": declined})


def read_proposed_terms(store: Store) -> bytes | None:
    """Return the digest of the terms after a proposal; none without one."""
    found = store.get_json(PLACE)
    return None if found is None else bytes.fromhex(found["digest"])


def read_proposed_chain(store: Store) -> bytes | None:
    """Return the amendments of a proposal; none without one."""
    found = store.get_json(PLACE)
    return None if found is None else b64decode(found["chain"])


def decline_proposal(store: Store) -> None:
    """Note that the user said no, inside a transaction; they may say yes later."""
    found = store.get_json(PLACE)
    if found is not None:
        store.put_json(PLACE, {**found, "declined": True})


def was_declined(store: Store) -> bool | None:
    """Say whether the user said no to a proposal; none without one."""
    found = store.get_json(PLACE)
    return None if found is None else bool(found["declined"])


def read_proposal(store: Store) -> MethodProposal | None:
    """Return what is proposed now; none without a proposal."""
    found, welcome = store.get_json(PLACE), store.get("welcome")
    if found is None or welcome is None:
        return None
    federation, catalog = open_welcome(welcome)
    after, later = federation, catalog
    for content in read_chain(b64decode(found["chain"])):
        amended = read_amendment(content, after, later)
        after, later = amended.federation, amended.catalog
    numbers = _count_numbers(federation, catalog), _count_numbers(after, later)
    return MethodProposal(federation, after, numbers, found["declined"])


def _count_numbers(federation: Federation, catalog: Catalog) -> int:
    first = federation.first_model(catalog, Key(0))
    total = 0
    for shape in federation.built.shapes(first).values():
        n_cells = 1
        for length in shape:
            n_cells *= length
        total += n_cells
    return total
