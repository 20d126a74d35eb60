"""The overlay of gossip: the first views, the candidates for later views, and measures of the graph of all views.

A view lists the peers a peer sends to. Views of a network are an array [peers, view] of positions, -1 where a view is
not full.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from tacit.errors import ConfigError, MethodError
from tacit.random import Key

if TYPE_CHECKING:
    from scipy import sparse

Views = NDArray[np.int64]
SPARE = 8  # draws beyond those wanted, for repeats


def first_views(n_peers: int, view: int, start: Literal["preferential", "random"], key: Key) -> Views:
    """Return the views a network starts with; a peer alone has an empty one.

    Preferential: peers arrive in random order, and each links to earlier ones in proportion to their degree; the first
    few know each other. Random: views are drawn uniformly. A start in which some peers cannot reach the others, links
    taken both ways, is refused.
    """
    if n_peers == 1:
        return np.empty((1, 0), np.int64)
    if view >= n_peers:
        raise ConfigError(
            f"A view of {view} peers is too large for a network of {n_peers} peers.",
            f"Set method.view to {n_peers - 1} or less.",
        )
    draws = key.child("start").generator()
    views = np.full((n_peers, view), -1, np.int64)
    if start == "random":
        views[:] = [_others(draws.choice(n_peers - 1, view, replace=False), n) for n in range(n_peers)]
    else:
        order, known = draws.permutation(n_peers), np.ones(n_peers)
        for place, n in enumerate(order):
            early = order[: max(place, view + 1)]
            early = early[early != n]
            views[n] = draws.choice(early, view, replace=False, p=known[early] / known[early].sum())
            known[views[n]] += 1
    parts = n_components(views)
    if parts > 1:
        raise MethodError(
            f"The overlay starts with {parts} unconnected parts (view={view}, {n_peers} peers).",
            "Raise method.view, or set runtime.network.start=preferential, which is always connected.",
        )
    return views


def _others(drawn: Views, me: int) -> Views:
    """Turn numbers below n - 1 into the ids of all other peers."""
    return drawn + (drawn >= me)


def offer_peers(
    key: Key, number: int, ids: NDArray[np.int64], alive: NDArray[np.int64], n: int
) -> list[NDArray[np.int64]]:
    """Return for each of `ids` up to `n` others of `alive` in random order: as a peer sampling service gives them.

    The candidates of a peer at its `number`-th request depend on the key, its id and the living peers only.
    """
    chance = key.child("offer", number)
    if len(alive) <= 2 * (n + SPARE):
        shuffled = alive[np.argsort(chance.bits(ids, len(alive)), axis=1, kind="stable")]
        return [row[row != me][:n] for row, me in zip(shuffled, ids, strict=True)]
    drawn = alive[((chance.bits(ids, n + SPARE) >> np.uint64(32)) * np.uint64(len(alive)) >> np.uint64(32)).astype(int)]
    return [
        np.array([i for i in dict.fromkeys(row) if i != me][:n]) for row, me in zip(drawn.tolist(), ids, strict=True)
    ]


def n_components(views: Views, alive: NDArray[np.bool_] | None = None) -> int:
    """Return in how many parts the living peers fall, links taken both ways."""
    from scipy.sparse.csgraph import connected_components

    count, label = connected_components(_links(views, alive), directed=True, connection="weak")
    return int(count) if alive is None else len(np.unique(label[alive]))


def _links(views: Views, alive: NDArray[np.bool_] | None) -> sparse.csr_matrix:
    from scipy import sparse

    owner = np.repeat(np.arange(len(views)), views.shape[1])
    to = views.ravel()
    good = to >= 0
    if alive is not None:
        good &= alive[owner] & alive[np.maximum(to, 0)]
    ones = np.ones(int(good.sum()), np.int64)
    return sparse.csr_matrix((ones, (owner[good], to[good])), shape=(len(views), len(views)))


@dataclass(frozen=True)
class Overlay:
    """The graph of all views at one time. A dead link points at a peer that is not there."""

    n_peers: int
    in_degree_mean: float
    in_degree_sd: float
    in_degree_max: int
    unreached: int  # living peers to which no peer sends
    clustering: float  # mean over peers: how many of its neighbours know each other, links taken both ways
    components: int
    dead_links: float  # share of all links of living peers


def measure_overlay(views: Views, alive: NDArray[np.bool_] | None = None) -> Overlay:
    """Measure the graph of the living peers' views."""
    alive = np.ones(len(views), np.bool_) if alive is None else alive
    links = _links(views, alive)
    degree = np.asarray(links.sum(axis=0)).ravel()[alive]
    given = int((views[alive] >= 0).sum())
    both = ((links + links.T) > 0).astype(np.float64)
    around = np.asarray(both.sum(axis=1)).ravel()
    triangles = np.asarray((both @ both).multiply(both).sum(axis=1)).ravel()
    pairs = around * (around - 1)
    local = np.divide(triangles, pairs, out=np.zeros_like(pairs), where=pairs > 0)[alive]
    return Overlay(
        int(alive.sum()),
        float(degree.mean()) if len(degree) else 0.0,
        float(degree.std()) if len(degree) else 0.0,
        int(degree.max(initial=0)),
        int((degree == 0).sum()),
        float(local.mean()) if len(local) else 0.0,
        n_components(views, alive) if alive.any() else 0,
        1.0 - links.nnz / given if given else 0.0,
    )
