"""Neural rivals of slist: they learn what follows what, and the study counts what they would send."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from tacit.errors import ConfigError
from tacit.studies import reproduce
from tacit.types import Clients

HAS_TORCH = importlib.util.find_spec("torch") is not None
TINY = {"data.users": 60, "data.places": 40}


@pytest.mark.skipif(HAS_TORCH, reason="torch is installed")
def test_without_torch_the_study_says_how_to_add_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"not installed.*torch==2.13.0"):
        reproduce("order-neural", "town", quick=True, settings=TINY, out=tmp_path)


@pytest.mark.skipif(not HAS_TORCH, reason="the rivals need torch, which is an extra (torch==2.13.0)")
@pytest.mark.parametrize(("kind", "negatives"), [("attention", 0), ("attention", 8), ("gru", 0)])
def test_a_net_learns_what_follows_what_and_repeats(kind, negatives: int) -> None:
    from tacit.studies.sasrec import NextItemNet, NextItemOptions

    n, n_items = 60, 12  # everybody walks around a circle
    places = np.concatenate([np.argsort((np.arange(n_items) - c) % n_items)[:8] for c in range(n)])
    order = np.argsort(np.repeat(np.arange(n), 8) * n_items + places)
    walk = Clients(
        np.arange(n),
        np.arange(n + 1) * 8,
        places[order].astype(np.int32),
        n_items,
        places=np.tile(np.arange(8), n)[order].astype(np.int32),
    )
    given = NextItemOptions(kind, factors=16, negatives=negatives, batch=10, learning_rate=0.01, dropout=0.0)
    nets = [NextItemNet(n_items, given, seed=1) for _ in range(2)]
    losses = [[net.learn(walk) for _ in range(8)] for net in nets]
    assert losses[0] == losses[1]
    best = nets[0].score(walk).argmax(axis=1)
    assert np.mean(best == (np.arange(n) + 8) % n_items) > 0.9


@pytest.mark.slow
@pytest.mark.skipif(not HAS_TORCH, reason="the rivals need torch, which is an extra (torch==2.13.0)")
def test_the_study_has_both_splits_and_bytes(tmp_path: Path) -> None:
    made = reproduce("order-neural", "town", quick=True, settings=TINY, out=tmp_path)[0]
    for found in made.found.detail.values():
        assert {"slist", "fed-slist"} < set(found)
        assert all(0 <= one["test"]["NDCG@10"] <= 1 for one in found.values())
        assert all(one["bytes"]["up"] > 0 for name, one in found.items() if name != "slist")
