"""Who is asked."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.methods.base import Schedule
from tacit.protocols.selection import select_clients
from tacit.random import Key


@pytest.mark.parametrize(("people", "each"), [(10, 3), (12, 4), (5, 1), (7, 7)])
def test_a_pass_asks_every_client_once_in_random_groups(people: int, each: int) -> None:
    schedule = Schedule(2, -(-people // each), each, partition=True)
    passes = [[select_clients(schedule, Key(1), n, people) for n in schedule.rounds_of(p)] for p in range(2)]
    for groups in passes:
        assert sorted(np.concatenate(groups)) == list(range(people))
        assert [len(g) for g in groups[:-1]] == [each] * (len(groups) - 1)
        assert all((np.diff(g) > 0).all() for g in groups)
    if each < people:
        assert any(not np.array_equal(a, b) for a, b in zip(*passes, strict=True)), "passes are dealt anew"


def test_without_partition_rounds_draw_independently() -> None:
    schedule = Schedule(1, 50, 4)
    times = np.bincount(np.concatenate([select_clients(schedule, Key(1), n, 10) for n in range(50)]), minlength=10)
    assert times.sum() == 200
    assert len(set(times)) > 1
