"""`town`: the built-in generated dataset, so that everything runs with no download.

Users live somewhere and have tastes; places have a category, a neighbourhood, a price and fame. A user picks a cell
(category, neighbourhood, price) by taste, nearness and purse, then a place in it by fame, and often returns to places
they know. So popularity is skewed, similar users do similar things, and no user is fully predictable. Every draw is
keyed by the user or the place, and users are made in chunks, so memory is bounded by the log itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tacit.data.dataset import Dataset, KnowledgeGraph, describe_items
from tacit.data.draws import ragged_uniform
from tacit.data.town_names import CATEGORIES, DISTRICTS, KIND_OF, OWNERS, PRICES
from tacit.random import Key
from tacit.types import Interactions, Vocabulary, offsets

START = 1_704_067_200  # 1 January 2024, UTC: the town's year begins
YEAR = 366 * 86_400
_CENTRE = (43.30, 5.37)  # latitude, longitude of the Old Town
_KM = (1 / 111.2, 1 / 80.9)  # degrees per kilometre there
_CIRCLES = 10  # groups of users with similar tastes
_RETURN = 0.2  # chance that a visit goes back to a place the user knows
_CHUNK = 8192
_TASTE, _OWN_TASTE, _REACH, _PURSE, _FAME = 1.15, 0.5, 0.65, 0.7, 0.65
_OPENING_HOUR = (7, 6, 18, 17, 14, 19, 10, 17, 19, 21, 10, 8, 11, 9, 9, 12, 7, 7)  # typical hour of each category


@dataclass(frozen=True)
class Places:
    """The places of the town, ordered by cell so that a cell is a range of them."""

    cell: NDArray[np.int64]  # [P] (category * n_districts + district) * n_prices + price
    owner: NDArray[np.int64]  # [P]
    fame: NDArray[np.float64]  # [P]
    coordinates: NDArray[np.float64]  # [P, 2]
    titles: list[str]

    @property
    def category(self) -> NDArray[np.int64]:
        """Index into CATEGORIES, [P]."""
        return self.cell // (len(DISTRICTS) * len(PRICES))

    @property
    def district(self) -> NDArray[np.int64]:
        """Index into DISTRICTS, [P]."""
        return self.cell // len(PRICES) % len(DISTRICTS)

    @property
    def price(self) -> NDArray[np.int64]:
        """Index into PRICES, [P]."""
        return self.cell % len(PRICES)


def town(n_users: int = 1000, places: int = 800, visits: int = 60, seed: int = 0, graph: bool = False) -> Dataset:
    """Generate the town: `visits` is the mean number of visits of a user within the year."""
    key = Key(seed, ("town",))
    known = _places(places, key.child("places"))
    order = np.argsort(
        key.child("ids").bits(np.arange(places), 1)[:, 0], kind="stable"
    )  # ids reveal nothing about a place
    item_of = np.empty(places, np.int32)
    item_of[order] = np.arange(places, dtype=np.int32)
    chunks = [
        _visits(np.arange(start, min(start + _CHUNK, n_users)), known, visits, key.child("people"))
        for start in range(0, n_users, _CHUNK)
    ]
    users = np.concatenate([chunk[0] for chunk in chunks])
    at = np.concatenate([chunk[1] for chunk in chunks])
    values = np.concatenate([chunk[2] for chunk in chunks])
    times = np.concatenate([chunk[3] for chunk in chunks])
    del chunks
    item_ids = Vocabulary(np.arange(1, places + 1, dtype=np.int64))
    log = Interactions(
        users, item_of[at], values, times, Vocabulary(np.arange(1, n_users + 1, dtype=np.int64)), item_ids
    )
    items = pl.DataFrame(
        {
            "item": item_of + 1,
            "title": known.titles,
            "category": [CATEGORIES[c] for c in known.category.tolist()],
            "lat": known.coordinates[:, 0],
            "lon": known.coordinates[:, 1],
        }
    )
    catalog = describe_items(item_ids, items, _graph(known, items) if graph else None)
    columns = {"user": "person", "item": "place", "rating": "rating", "timestamp": "time of the visit"}
    return Dataset("town", log, catalog, columns=columns, origin=f"generated (seed {seed})")


def _places(n: int, key: Key) -> Places:
    lanes = np.arange(n, dtype=np.int64)
    u = key.child("kind").uniform(lanes, 5)
    centres = np.array([(x, y) for _, x, y in DISTRICTS.values()])
    crowd = np.exp(-0.35 * np.hypot(centres[:, 0], centres[:, 1]))  # the centre has more of everything
    district = np.searchsorted(np.cumsum(crowd / crowd.sum())[:-1], u[:, 0], side="right")
    category = (u[:, 1] * len(CATEGORIES)).astype(np.int64)
    price = np.searchsorted([0.4, 0.8], u[:, 2], side="right")
    cell = (category * len(DISTRICTS) + district) * len(PRICES) + price
    order = np.argsort(cell, kind="stable")
    cell, district = cell[order], district[order]
    owner = (u[order, 3] ** 1.6 * len(OWNERS)).astype(np.int64)  # some families own much of the town
    rank = np.empty(n)
    rank[np.argsort(u[:, 4], kind="stable")] = np.arange(1, n + 1)
    fame = rank[order] ** -_FAME  # Zipf
    km = centres[district] + key.child("where").normal(lanes, 2, 0.35)[order]
    coordinates = np.stack([_CENTRE[0] + km[:, 1] * _KM[0], _CENTRE[1] + km[:, 0] * _KM[1]], axis=1).round(6)
    return Places(cell, owner, fame, coordinates, _titles(cell, owner))


def _titles(cell: NDArray[np.int64], owner: NDArray[np.int64]) -> list[str]:
    """Name each place after its category, owner and neighbourhood; namesakes are numbered."""
    districts = list(DISTRICTS)
    seen: dict[str, int] = {}
    titles = []
    for place, family in zip((cell // len(PRICES)).tolist(), owner.tolist(), strict=True):
        name, area = f"{CATEGORIES[place // len(districts)]} {OWNERS[family]}", districts[place % len(districts)]
        number = seen[f"{name}, {area}"] = seen.get(f"{name}, {area}", 0) + 1
        titles.append(f"{name}, {area}" if number == 1 else f"{name} {number}, {area}")
    return titles


def _visits(
    who: NDArray[np.int64], places: Places, mean: int, key: Key
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32], NDArray[np.int64]]:
    """Return users, places, ratings and times of the visits of some users, in order of time within a user."""
    liking, reach, purse = _tastes(who, key)
    n_cells = len(CATEGORIES) * len(DISTRICTS) * len(PRICES)
    fame_of_cell = np.bincount(places.cell, weights=places.fame, minlength=n_cells)
    # [users, categories, districts, prices]: how much of the user's time goes to each cell
    wish = np.exp(liking)[:, :, None, None] * np.exp(reach)[:, None, :, None] * np.exp(purse)[:, None, None, :]
    wish = wish.reshape(len(who), n_cells)
    wish *= fame_of_cell
    np.cumsum(wish, axis=1, out=wish)

    spread = key.child("activity").normal(who, 1, 0.5)[:, 0].astype(np.float64)
    counts = np.clip(np.round(mean * np.exp(spread - 0.125)), max(2, mean // 6), 8 * mean).astype(np.int64)
    rows = np.repeat(np.arange(len(who)), counts)
    cell = _draw_column(wish, rows, ragged_uniform(key.child("cell"), who, counts))
    at = _place_in(cell, places, ragged_uniform(key.child("place"), who, counts))
    at = _with_returns(at, counts, who, key)

    times = _times(at, rows, counts, who, places, key)
    order = np.lexsort((times, rows))
    fit = liking[rows, places.category[at]] + purse[rows, places.price[at]]
    noise = ragged_uniform(key.child("mood"), who, counts) + ragged_uniform(key.child("luck"), who, counts) - 1.0
    values = np.clip(np.round(3.1 + 0.5 * fit + 2.0 * noise), 1, 5).astype(np.float32)
    return who[rows].astype(np.int32), at[order].astype(np.int32), values[order], times[order]


def _tastes(who: NDArray[np.int64], key: Key) -> tuple[NDArray[np.float32], NDArray[np.float64], NDArray[np.float32]]:
    """Return each user's liking of categories, ease of reaching neighbourhoods and purse, as log weights."""
    u = key.child("home").uniform(who, 2)
    circle = (u[:, 0] * _CIRCLES).astype(np.int64)
    shared = key.child("circles").normal(np.arange(_CIRCLES), len(CATEGORIES), _TASTE)
    liking = shared[circle] + key.child("taste").normal(who, len(CATEGORIES), _OWN_TASTE)
    home = (u[:, 1] * len(DISTRICTS)).astype(np.int64)
    km = np.array([(x, y) for _, x, y in DISTRICTS.values()])
    distance = np.hypot(*(km[:, None] - km[None, :]).transpose(2, 0, 1))
    legs = np.exp(key.child("legs").normal(who, 1, 0.4))  # some users go further than others
    purse = key.child("purse").normal(who, 1, _PURSE) * np.array([-1, 0, 1], np.float32)
    return liking, -_REACH * distance[home] * legs, purse


def _draw_column(cumulated: NDArray[np.float64], rows: NDArray[np.int64], u: NDArray[np.float64]) -> NDArray[np.int64]:
    """Draw a column for each entry of `rows`, with the weights of that row: all rows laid end to end are one scale."""
    totals = cumulated[:, -1]
    scale = (cumulated / totals[:, None] + np.arange(len(totals))[:, None]).ravel()
    n = cumulated.shape[1]
    found = np.searchsorted(scale, rows + np.minimum(u, 1 - 1e-9), side="right")
    return np.asarray(np.clip(found - rows * n, 0, n - 1))


def _place_in(cell: NDArray[np.int64], places: Places, u: NDArray[np.float64]) -> NDArray[np.int64]:
    """Draw a place of each cell, by fame."""
    fame = np.concatenate([[0.0], np.cumsum(places.fame)])
    first = np.searchsorted(places.cell, cell, side="left")
    after = np.searchsorted(places.cell, cell, side="right")
    target = fame[first] + u * (fame[after] - fame[first])
    return np.asarray(np.clip(np.searchsorted(fame, target, side="right") - 1, first, after - 1))


def _with_returns(
    at: NDArray[np.int64], counts: NDArray[np.int64], who: NDArray[np.int64], key: Key
) -> NDArray[np.int64]:
    """Let some visits repeat an earlier one of the same user."""
    start = np.repeat(offsets(counts)[:-1], counts)
    position = np.arange(len(at)) - start
    earlier = start + (ragged_uniform(key.child("which"), who, counts) * position).astype(np.int64)
    returns = (ragged_uniform(key.child("return"), who, counts) < _RETURN) & (position > 0)
    source = np.where(returns, earlier, np.arange(len(at)))
    while not np.array_equal(source, further := source[source]):  # a return may point at a return
        source = further
    return at[source]


def _times(
    at: NDArray[np.int64],
    rows: NDArray[np.int64],
    counts: NDArray[np.int64],
    who: NDArray[np.int64],
    places: Places,
    key: Key,
) -> NDArray[np.int64]:
    """Spread a user's visits over the year in their order, each at an hour that suits the place."""
    u = ragged_uniform(key.child("day"), who, counts)
    day = (np.sort(rows + u) - rows) * (YEAR / 86_400)
    hour = np.array(_OPENING_HOUR)[places.category[at]] + 3.0 * ragged_uniform(key.child("hour"), who, counts)
    return START + np.clip(day.astype(np.int64), 0, 365) * 86_400 + (hour * 3600).astype(np.int64)


def _graph(places: Places, items: pl.DataFrame) -> KnowledgeGraph:
    """What one could know about the places: one hop from each place, and one more from what it reaches."""
    districts = list(DISTRICTS)
    title = pl.Series(places.titles)
    facts = {
        "category": [CATEGORIES[c] for c in places.category.tolist()],
        "neighbourhood": [districts[d] for d in places.district.tolist()],
        "price": [f"{PRICES[p]} prices" for p in places.price.tolist()],
        "owner": [f"{OWNERS[o]} family" for o in places.owner.tolist()],
    }
    parts = [pl.DataFrame({"head": title, "relation": relation, "tail": tails}) for relation, tails in facts.items()]
    sides = [side for side, _, _ in DISTRICTS.values()]
    homes = [districts[(7 * i) % len(districts)] for i in range(len(OWNERS))]
    parts += [
        pl.DataFrame({"head": list(CATEGORIES), "relation": "kind", "tail": list(KIND_OF)}),
        pl.DataFrame({"head": districts, "relation": "side of town", "tail": sides}),
        pl.DataFrame({"head": [f"{o} family" for o in OWNERS], "relation": "home", "tail": homes}),
    ]
    return KnowledgeGraph(pl.concat(parts), pl.DataFrame({"item": items["item"], "entity": title}))
