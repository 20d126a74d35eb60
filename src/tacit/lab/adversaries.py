"""Devices that lie, for the lab: a share of people send something else than they learnt.

    sign-flip   the opposite, `strength` times as strong
    noise       Gaussian noise of the grid's reach instead of every number
    promote     for one item, `strength` times what the rows of their own items say: it is to look liked by all
    nan         numbers that are none (a broken device)

A adversary follows no stage that comes before: it sends what it likes, within what the ring can hold. What does not fit
is refused like anybody's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from tacit.privacy.update_sink import row_bytes
from tacit.random import Key
from tacit.types import Catalog, Config, offsets
from tacit.updates import Message, Release, Ring, Rows, Update


class AdversaryConfig(Config):
    """Which clients are adversaries, and their attack."""

    kind: Literal["sign-flip", "noise", "promote", "nan"] = Field(
        description="attack: what adversaries send instead of their update"
    )
    share: float = Field(
        0.05, ge=0, le=1, description="share of clients that are adversaries, the same ones in every round"
    )
    strength: float = Field(
        5.0, gt=0, description="factor by which their rows are multiplied; noise: its standard deviation"
    )
    item: str | int | None = Field(None, description="promote: the item to promote")

    @model_validator(mode="after")
    def _item_belongs_to_promote(self) -> AdversaryConfig:
        if (self.kind == "promote") != (self.item is not None):
            raise ValueError("'item' names what is promoted: give it with kind=promote, and only there")
        return self


@dataclass(frozen=True)
class Adversaries:
    """The last stage of a simulation with adversaries; honest people pass untouched."""

    config: AdversaryConfig
    item: int
    ring: Ring
    key: Key

    @classmethod
    def build(cls, config: AdversaryConfig, catalog: Catalog, ring: Ring, key: Key) -> Adversaries:
        """Find the promoted item."""
        item = -1 if config.item is None else catalog.item_ids.index(config.item, "item")
        return cls(config, item, ring, key)

    def among(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which clients are adversaries, [C]."""
        found: NDArray[np.bool_] = self.key.uniform(ids, 1)[:, 0] < self.config.share
        return found

    def tamper(self, message: Message, key: Key) -> Message:
        """Replace what adversaries send; updates that do not fit the ring are withheld, as for all clients."""
        update = message.read(self.ring)
        lies = self.among(update.clients)
        if not lies.any():
            return message
        told = {name: self._attack_rows(name, update, lies, key.child(name)) for name in update.tables}
        fit = np.ones(len(lies), np.bool_)
        tables, size = {}, np.zeros((3, len(lies)), np.int64)
        for rows, marks in told.values():
            owner = np.repeat(np.arange(len(lies)), np.diff(rows.ptr))
            fit[owner[~np.isfinite(rows.values).all(axis=1)]] = False
            for at, chosen in enumerate((marks, ~marks)):
                size[at] += np.bincount(owner[chosen], minlength=len(lies))
            size[2] += np.diff(rows.ptr) * row_bytes(rows.values.shape[1], self.ring)
        for name, (rows, marks) in told.items():
            kept = np.repeat(fit, np.diff(rows.ptr))
            numbers = np.rint(np.where(kept[:, None], rows.values, 0.0) * self.ring.scale).astype(np.int64)[kept]
            tables[name] = offsets(np.diff(rows.ptr)[fit]), rows.ids[kept], numbers
            told[name] = rows, marks[kept]
        release = Release(*size[:, fit])
        marks_of = {name: marks for name, (_, marks) in told.items()}
        withheld = np.concatenate([message.withheld, update.clients[~fit]])
        return Message(update.clients[fit], tables, release, marks_of, withheld)

    def _attack_rows(
        self, name: str, update: Update, lies: NDArray[np.bool_], key: Key
    ) -> tuple[Rows, NDArray[np.bool_]]:
        rows, marks = update.tables[name], update.sensitive[name]
        owner = np.repeat(np.arange(len(lies)), np.diff(rows.ptr))
        false, values, most = lies[owner], rows.values.copy(), self.ring.largest
        if self.config.kind == "nan":
            values[false] = np.nan
        elif self.config.kind == "sign-flip":
            values[false] = np.clip(-self.config.strength * values[false], -most, most)
        elif self.config.kind == "noise":
            place = (
                np.arange(len(owner)) - rows.ptr[owner]
            )  # a draw depends on the client and the position in its message
            drawn = key.normal((update.clients[owner] << 20 | place)[false], values.shape[1], self.config.strength)
            values[false] = np.clip(drawn, -most, most)
        elif marks.any():  # a table of items: layers have no rows about items
            return self._promote_rows(rows, marks, lies, owner)
        return replace(rows, values=values), marks

    def _promote_rows(
        self, rows: Rows, positive: NDArray[np.bool_], lies: NDArray[np.bool_], owner: NDArray[np.int64]
    ) -> tuple[Rows, NDArray[np.bool_]]:
        """Turn all rows of an adversary into one: the promoted item, with the mean change of its own items."""
        mine, width, most = positive & lies[owner], rows.values.shape[1], self.ring.largest
        size = np.bincount(owner[mine], minlength=len(lies))
        said = np.zeros((len(lies), width))
        np.add.at(said, owner[mine], rows.values[mine])
        pushed = np.clip(self.config.strength * said / np.maximum(size, 1)[:, None], -most, most)
        counts = np.where(lies, 1, np.diff(rows.ptr))
        ptr, told = offsets(counts), lies[np.repeat(np.arange(len(lies)), counts)]
        ids, values, marks = np.empty(len(told), np.int32), np.empty((len(told), width), np.float32), told.copy()
        ids[told], values[told] = self.item, pushed[lies]
        honest = ~lies[owner]
        ids[~told], values[~told], marks[~told] = rows.ids[honest], rows.values[honest], positive[honest]
        return Rows(ptr, ids, values), marks
