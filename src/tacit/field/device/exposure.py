"""What a reader of all sent messages could infer about the user: the privacy meter on the device's own ledger."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tacit.field.device.device import Device
from tacit.field.device.ledger import MAY_HAVE_LEFT, LedgerEntry, UpcomingMessage
from tacit.privacy.meter import MOST, SURE, Exposure, Numbers, ObservedRows, measure_exposure, presence, prior, sign
from tacit.types import Array, Catalog, Label


@dataclass(frozen=True)
class ExposureReport:
    """What the meter says of a ledger."""

    exposure: Exposure
    guessing: Exposure  # of a reader who saw nothing and knows what is popular
    named: list[Label]  # items of the history that the reader would name
    readable: int  # messages whose rows could be read
    masked: int  # messages inside a secure sum
    is_modelled: bool = True  # whether the meter knows how to read messages of this method
    shows_order: bool = False  # whether what could be read also reveals the order of items


@dataclass(frozen=True)
class LedgerReader:
    """A reader that keeps all that left a device: what was known before the first message, and every message."""

    catalog: Catalog
    history: Array  # the true history: only to count how often the reader is right
    popularity: Array
    left: list[LedgerEntry]
    guessing: Exposure
    item_rows: str  # what rows of item tables are, by the method's declaration
    shows_order: bool  # whether they reveal the order of items

    @classmethod
    def of(cls, device: Device) -> LedgerReader:
        """Read the device's file, once for all that is asked."""
        member = device.membership
        assert member is not None, "only a member has anything to send"
        catalog, model, method = member.catalog, member.model(), member.federation.built
        known = None if model is None else method.popularity(model.shared)
        popularity = np.ones(catalog.n_items) if known is None else known
        history = device.history.clients(0, catalog).items
        left = [release for release in device.ledger.list() if release.state in MAY_HAVE_LEFT]
        guessing = measure_exposure(history, popularity, np.zeros(catalog.n_items))
        return cls(catalog, history, popularity, left, guessing, method.spec.item_rows, method.spec.shows_order)

    def measure(self, upcoming: UpcomingMessage | None = None) -> ExposureReport:
        """Measure what the messages reveal, and with `upcoming` what they would reveal after one more."""
        rows = readable_rows(self.left)
        if upcoming is not None:
            rows.append((upcoming.rows.positives, upcoming.rows.negatives))
        reading = {"pairs": evidence, "own": evidence_of_own_rows}.get(self.item_rows)
        proof = np.zeros(self.catalog.n_items) if reading is None else reading(rows, len(self.history), self.catalog)
        belief = prior(self.popularity, len(self.history)) + proof
        sure = np.flatnonzero(belief >= np.log(SURE / (1 - SURE)))
        return ExposureReport(
            measure_exposure(self.history, self.popularity, proof, self.guessing) if rows else self.guessing,
            self.guessing,
            [self.catalog.item_ids[int(item)] for item in np.intersect1d(sure, self.history)],
            len(rows),
            sum(release.masked for release in self.left),
            reading is not None or not rows,
            self.shows_order and bool(rows),
        )


RowLabels = tuple[Sequence[Label], Sequence[Label]]  # items of positive rows, items of the others


def readable_rows(releases: Iterable[LedgerEntry]) -> list[RowLabels]:
    """Return the rows of those messages whose receiver can read them."""
    return [(release.positives, release.negatives) for release in releases if not release.masked]


def evidence(rows: Sequence[RowLabels], size: int, catalog: Catalog) -> Numbers:
    """Return the evidence of presence and sign of all rows for each item, for a user with `size` items.

    The reader takes pi and the number of local steps from the messages themselves: in pair-wise learning all
    negatives leave, one for each positive that was drawn.
    """
    if not rows:
        return np.zeros(catalog.n_items)
    rose, fell = (np.zeros(catalog.n_items, np.int64) for _ in range(2))
    for positives, negatives in rows:
        rose[_places(positives, catalog)] += 1
        fell[_places(negatives, catalog)] += 1
    drawn = sum(len(negatives) for _, negatives in rows)
    kept = sum(len(positives) for positives, _ in rows)
    seen = ObservedRows(rose, fell, len(rows))
    steps = max(1, round(drawn / len(rows)))
    evidence: Numbers = presence(seen, size, min(1.0, kept / max(drawn, 1)), steps) + sign(seen)
    return evidence


def evidence_of_own_rows(rows: Sequence[RowLabels], size: int, catalog: Catalog) -> Numbers:
    """Return the evidence where a device sends rows of its user's items and of no others: all items that it names."""
    evidence: Numbers = np.zeros(catalog.n_items)
    for positives, _ in rows:
        evidence[_places(positives, catalog)] = np.log((1.0 - MOST) / MOST) * 2
    return evidence


def _places(labels: Iterable[Label], catalog: Catalog) -> Array:
    found = {catalog.item_ids.place(label) for label in labels}
    return np.array(sorted(item for item in found if item is not None), np.int64)
