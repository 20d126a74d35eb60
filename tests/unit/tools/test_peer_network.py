"""Peers as processes, killed and started again: the verdict of `tools/peer_network.py` on a small network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("zenoh")
import peer_network
from tacit.testing import two_tastes


@pytest.mark.fuzz
def test_a_small_network_withstands_churn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TACIT_DATA", raising=False)
    monkeypatch.setattr(peer_network, "AWAY", 1.0)
    monkeypatch.setattr(peer_network, "KILLED", 2.0)  # so that some are killed in a few seconds
    found = peer_network.measure_churn(tmp_path, 5, 0.1, 1.5)
    assert found["killed and started again"] > 0
    assert found["passed"], found


def test_the_hit_rate_is_that_of_random_scores_and_of_perfect_ones() -> None:
    clients = two_tastes(4, 200)[0]
    held = [np.setdiff1d(np.arange(at % 2, 200, 2), clients.of(at)) for at in range(4)]
    scores = np.zeros((4, 200))
    assert peer_network.hit_rate(scores, clients, held).mean() == pytest.approx(0.0, abs=1e-6)  # the middle of 100
    for at, items in enumerate(held):
        scores[at, items] = 1.0
    assert peer_network.hit_rate(scores, clients, held).mean() == pytest.approx(1.0)


def test_parts_and_dead_ids_are_counted() -> None:
    views = {0: [1, 4], 1: [0], 2: [3], 3: [2]}  # the fourth is dead
    assert peer_network.count_parts(views, 5) == 2

    class Network:
        up = dict.fromkeys(range(4))

    assert peer_network.share_dead(Network(), views) == pytest.approx(1 / 5)  # type: ignore[arg-type]
