"""Adversaries for the lab: a share of clients send something else than they learnt.

    sign-flip   the opposite, `strength` times as strong
    noise       Gaussian noise of the grid's reach instead of every number
    promote     for one item, `strength` times the mean of the rows of their own items: it is to seem liked by all
    nan         NaN instead of every number (a broken device)

An adversary skips all stages: it sends any numbers that the ring can hold. What does not fit is refused like that of
any client.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from tacit.errors import ConfigError
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
    """The last stage of a simulation with adversaries; honest clients pass untouched."""

    config: AdversaryConfig
    item: int
    ring: Ring
    key: Key
    item_tables: tuple[str, ...]

    @classmethod
    def build(
        cls, config: AdversaryConfig, catalog: Catalog, ring: Ring, key: Key, item_tables: Sequence[str]
    ) -> Adversaries:
        """Find the promoted item; a method without rows about items cannot be attacked that way."""
        if config.kind == "promote" and not item_tables:
            raise ConfigError(
                "The attack 'promote' has no effect here: this method sends no rows about items.",
                "Choose another runtime.adversaries.kind: noise, sign-flip or nan.",
            )
        item = -1 if config.item is None else catalog.item_ids.index(config.item, "item")
        return cls(config, item, ring, key, tuple(item_tables))

    def among(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which clients are adversaries, [C]."""
        found: NDArray[np.bool_] = self.key.uniform(ids, 1)[:, 0] < self.config.share
        return found

    def tamper(self, message: Message, key: Key) -> Message:
        """Replace what adversaries send; updates that do not fit the ring are withheld, as for all clients."""
        update = message.read(self.ring)
        is_adversary = self.among(update.clients)
        if not is_adversary.any():
            return message
        attacked = {name: self._attack_rows(name, update, is_adversary, key.child(name)) for name in update.tables}
        fit = np.ones(len(is_adversary), np.bool_)
        tables, size = {}, np.zeros((3, len(is_adversary)), np.int64)
        for rows, marks in attacked.values():
            owner = np.repeat(np.arange(len(is_adversary)), np.diff(rows.ptr))
            fit[owner[~np.isfinite(rows.values).all(axis=1)]] = False
            for at, chosen in enumerate((marks, ~marks)):
                size[at] += np.bincount(owner[chosen], minlength=len(is_adversary))
            size[2] += np.diff(rows.ptr) * row_bytes(rows.values.shape[1], self.ring)
        for name, (rows, marks) in attacked.items():
            kept = np.repeat(fit, np.diff(rows.ptr))
            numbers = np.rint(np.where(kept[:, None], rows.values, 0.0) * self.ring.scale).astype(np.int64)[kept]
            tables[name] = offsets(np.diff(rows.ptr)[fit]), rows.ids[kept], numbers
            attacked[name] = rows, marks[kept]
        release = Release(*size[:, fit])
        marks_of = {name: marks for name, (_, marks) in attacked.items()}
        withheld = np.concatenate([message.withheld, update.clients[~fit]])
        return Message(update.clients[fit], tables, release, marks_of, withheld)

    def _attack_rows(
        self, name: str, update: Update, is_adversary: NDArray[np.bool_], key: Key
    ) -> tuple[Rows, NDArray[np.bool_]]:
        rows, marks = update.tables[name], update.sensitive[name]
        owner = np.repeat(np.arange(len(is_adversary)), np.diff(rows.ptr))
        false, values, most = is_adversary[owner], rows.values.copy(), self.ring.largest
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
        elif name in self.item_tables:
            return self._promote_rows(rows, marks, is_adversary, owner)
        return replace(rows, values=values), marks

    def _promote_rows(
        self, rows: Rows, positive: NDArray[np.bool_], is_adversary: NDArray[np.bool_], owner: NDArray[np.int64]
    ) -> tuple[Rows, NDArray[np.bool_]]:
        """Turn all rows of an adversary into one: the promoted item, with the mean change of its own items."""
        mine, width, most = positive & is_adversary[owner], rows.values.shape[1], self.ring.largest
        size = np.bincount(owner[mine], minlength=len(is_adversary))
        summed = np.zeros((len(is_adversary), width))
        np.add.at(summed, owner[mine], rows.values[mine])
        pushed = np.clip(self.config.strength * summed / np.maximum(size, 1)[:, None], -most, most)
        counts = np.where(is_adversary, 1, np.diff(rows.ptr))
        ptr, attacked = offsets(counts), is_adversary[np.repeat(np.arange(len(is_adversary)), counts)]
        ids, values, marks = (
            np.empty(len(attacked), np.int32),
            np.empty((len(attacked), width), np.float32),
            attacked.copy(),
        )
        ids[attacked], values[attacked] = self.item, pushed[is_adversary]
        honest = ~is_adversary[owner]
        ids[~attacked], values[~attacked], marks[~attacked] = rows.ids[honest], rows.values[honest], positive[honest]
        return Rows(ptr, ids, values), marks
