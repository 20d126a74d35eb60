"""Disclosure: users decide how much of what they did may be seen in their updates.

Rows about something a user did (positives) leave with probability pi; all other rows always leave. Rows about items of
the history that the user excludes, by item or category, never leave. This is control, not a guarantee: a reader can
still guess, and no epsilon is printed for it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from tacit.errors import ConfigError, MethodError, nearest
from tacit.kernels.coins import toss
from tacit.privacy.update_sink import Stage
from tacit.random import Key
from tacit.types import Catalog, Config, Vocabulary
from tacit.updates import PlannedRows, UpdatePlan

Coin = Literal["row", "item", "once"]
_NUMBER = r"(\d+\.?\d*|\.\d+)"
_SPREAD = re.compile(rf"\s*(uniform|beta)\(\s*{_NUMBER}\s*,\s*{_NUMBER}\s*\)\s*")


class DisclosureConfig(Config):
    """How much of what clients did may leave."""

    name: Literal["disclose"] = "disclose"
    pi: float | str = Field(
        1.0,
        description="probability that a positive row leaves: a number; 'uniform(a,b)' or 'beta(a,b)' drawn once per "
        "client; or a file with columns user and pi",
    )
    coin: Coin = Field("row", description="one coin per row; one per item and round; or once per item, for all rounds")
    never_items: tuple[str | int, ...] = Field((), description="items whose positive rows never leave")
    never_categories: tuple[str, ...] = Field((), description="categories whose positive rows never leave")

    @field_validator("pi")
    @classmethod
    def _a_probability(cls, pi: float | str) -> float | str:
        if isinstance(pi, float) and not 0 <= pi <= 1:
            raise ValueError("pi is a probability, from 0 to 1")
        return pi


@dataclass(frozen=True)
class Disclosure(Stage):
    """The stage: coins keyed by (round, client, row), or (client, item) where they are tossed once."""

    pi: NDArray[np.float64]  # by client id
    is_secret: NDArray[np.bool_]  # by item
    per_item: bool
    fixed: Key | None = None  # of coins that are tossed once: an item that is kept back is so in every round

    def narrow(self, plan: UpdatePlan, key: Key) -> UpdatePlan:
        """Remove the rows that must not leave."""
        parts, key = [], key if self.fixed is None else self.fixed
        for number, part in enumerate(plan.parts):
            # one coin per item is the same in all parts; coins per row have a stream for each part, the first its own
            has_stream = number > 0 and not self.per_item
            parts.append(self._narrow_part(plan, part, key.child(number) if has_stream else key))
        return replace(plan, parts=tuple(parts))

    def kept_back(self, client_id: int, items: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which items of a client no message of any round may be about."""
        is_secret: NDArray[np.bool_] = self.is_secret[items]
        if self.fixed is None:
            return is_secret
        kept, n = np.empty(len(items), np.uint8), len(items)
        who, ptr = np.array([client_id]), np.array([0, n])
        toss(self.fixed.word, who, ptr, items, np.ones(n, bool), self.pi[who], is_secret, True, kept)
        return np.asarray(kept == 0)

    def _narrow_part(self, plan: UpdatePlan, part: PlannedRows, key: Key) -> PlannedRows:
        is_open = bool((self.pi[plan.clients] >= 1).all()) and not self.is_secret.any()
        if part.sensitive is False or not part.n_rows or is_open:
            return part
        if part.ids is None:
            raise MethodError(
                f"The method sends every row of '{part.table}', so it cannot mark some of them as sensitive."
            )
        secret = self.is_secret[part.ids] if part.mentions is None else part.mentions(self.is_secret)
        kept = np.empty(part.n_rows, np.uint8)
        pi = self.pi[plan.clients]
        toss(key.word, plan.clients, part.ptr, part.ids, part.marks(), pi, secret, self.per_item, kept)
        return replace(part, kept=kept if part.kept is None else kept & part.kept)

    @classmethod
    def build(cls, config: DisclosureConfig, user_ids: Vocabulary, catalog: Catalog, key: Key) -> Disclosure:
        """Set every client's pi and the items that are never sent; every name must exist.

        Coins that are tossed once come from `key`: another key later tosses them anew.
        """
        secret = np.zeros(catalog.n_items, bool)
        for label in config.never_items:
            secret[catalog.item_ids.index(label, "item for never_items")] = True
        secret |= _in_categories(config.never_categories, catalog)
        fixed = key.child("coins") if config.coin == "once" else None
        return cls(_pi_of(config.pi, user_ids, key), secret, config.coin != "row", fixed)


def _pi_of(pi: float | str, user_ids: Vocabulary, key: Key) -> NDArray[np.float64]:
    if not isinstance(pi, str):
        return np.full(len(user_ids), float(pi))
    spread = _SPREAD.fullmatch(pi)
    if spread is None:
        return _pi_from(Path(pi), user_ids)
    kind, a, b = spread[1], float(spread[2]), float(spread[3])
    drawn = key.child("pi").uniform(np.arange(len(user_ids)), 1)[:, 0]
    if kind == "beta":
        if a <= 0 or b <= 0:
            raise ConfigError(f"pi: both numbers of {pi} must be above 0.")
        from scipy import special  # here: a device needs neither it nor polars, which take 50 MB

        shaped: NDArray[np.float64] = special.betaincinv(a, b, drawn)
        return shaped
    if not 0 <= a <= b <= 1:
        raise ConfigError(f"pi: {pi} must lie between 0 and 1, the smaller number first.")
    return a + (b - a) * drawn


def _pi_from(path: Path, user_ids: Vocabulary) -> NDArray[np.float64]:
    if not path.is_file():
        hint = "Give a number, 'uniform(0.1,0.9)', 'beta(2,5)' or the path of a file with columns user and pi."
        raise ConfigError(f"pi: there is no file '{path}'.", hint)
    import polars as pl

    try:
        frame = pl.read_csv(path, separator="\t" if path.suffix == ".tsv" else ",", infer_schema=False)
        frame = frame.select("user", pl.col("pi").cast(pl.Float64))
    except (pl.exceptions.PolarsError, UnicodeDecodeError) as error:
        text = str(error).strip().splitlines()[0]
        raise ConfigError(f"pi: '{path}' is not a table with columns user and pi: {text}.") from None
    twice = frame["user"].filter(frame["user"].is_duplicated())
    if len(twice):
        raise ConfigError(f"pi: '{path}' names '{twice[0]}' more than once.", "Give each user one value.")
    place = {str(label): position for position, label in enumerate(user_ids.labels.tolist())}
    result = np.full(len(user_ids), np.nan)
    for user, pi in frame.iter_rows():
        if user in place and pi is not None:  # clients whom filters left out may stand in the file
            result[place[user]] = pi
    missing = np.flatnonzero(np.isnan(result))
    if len(missing):
        who = user_ids[int(missing[0])]
        raise ConfigError(
            f"pi: '{path}' has no value for {len(missing)} users, such as '{who}'.", "Give each user a value."
        )
    if result.min() < 0 or result.max() > 1:
        bad = int(np.flatnonzero((result < 0) | (result > 1))[0])
        raise ConfigError(f"pi: '{path}' gives '{user_ids[bad]}' {result[bad]:g}, which is not between 0 and 1.")
    return result


def _in_categories(names: Sequence[str], catalog: Catalog) -> NDArray[np.bool_]:
    secret = np.zeros(catalog.n_items, bool)
    if not names:
        return secret
    if catalog.categories is None:
        raise ConfigError("never_categories is set, but this catalogue has no categories.", "Use never_items.")
    known = {name: i for i, name in enumerate(catalog.categories.names)}
    for name in names:
        if name not in known:
            raise ConfigError(f"never_categories: there is no category '{name}'.", nearest(name, known))
    wanted = np.isin(catalog.categories.ids, [known[name] for name in names])
    secret[np.repeat(np.arange(catalog.n_items), np.diff(catalog.categories.ptr))[wanted]] = True
    return secret
