"""Rules that bear with adversaries, beside plain definitions of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.protocols.robust import RobustConfig, assign_groups, combine_groups, krum, median, trimmed_mean
from tacit.random import Key
from tacit.updates import Total


def totals_of(n_groups: int, seed: int, n_rows: int = 7, width: int = 3, each: int = 4) -> list[Total]:
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(n_groups):
        counts = rng.integers(0, each, n_rows)
        sums = rng.normal(0, 1000, (n_rows, width)).astype(np.int64) * (counts[:, None] > 0)
        found.append(Total({"items": sums}, {"items": counts}, each))
    return found


def naive(totals: list[Total], rule: str, adversaries: float) -> np.ndarray:
    n_rows, width = totals[0].sums["items"].shape
    result = np.zeros((n_rows, width), np.int64)
    for row in range(n_rows):
        mentioning = [t for t in totals if t.counts["items"][row] > 0]
        everyone = sum(int(t.counts["items"][row]) for t in totals)
        for column in range(width):
            means = sorted(t.sums["items"][row, column] / t.counts["items"][row] for t in mentioning)
            if not means:
                continue
            if rule == "median":
                chosen = float(np.median(means))
            else:
                cut = int(np.floor(len(means) * adversaries))
                chosen = float(np.mean(means[cut : len(means) - cut]))
            result[row, column] = round(chosen * everyone)
    return result


@pytest.mark.parametrize("rule", ["median", "trimmed-mean"])
@given(n_groups=st.integers(1, 9), seed=st.integers(0, 10**6), adversaries=st.sampled_from([0.0, 0.1, 0.25, 0.49]))
@settings(max_examples=60)
def test_rules_are_what_they_say(rule: str, n_groups: int, seed: int, adversaries: float) -> None:
    totals = totals_of(n_groups, seed)
    found = combine_groups(totals, RobustConfig(rule=rule, adversaries=adversaries))  # type: ignore[arg-type]
    assert np.abs(found.sums["items"] - naive(totals, rule, adversaries)).max() <= 1  # a half may round either way
    assert np.array_equal(found.counts["items"], sum(t.counts["items"] for t in totals))
    assert found.n_clients == sum(t.n_clients for t in totals)


def test_nothing_cut_is_the_plain_mean_of_means() -> None:
    totals = totals_of(5, 1)
    for total in totals:
        total.counts["items"][:] = 2
    found = combine_groups(totals, RobustConfig(rule="trimmed-mean", adversaries=0.0))
    assert np.abs(found.sums["items"] - sum(t.sums["items"] for t in totals)).max() <= 1


def test_a_minority_of_adversaries_moves_nothing_far() -> None:
    honest = totals_of(8, 3)
    for total in honest:
        total.counts["items"][:] = 3
        total.sums["items"][:] = 300 + np.arange(7)[:, None]
    lie = Total({"items": np.full((7, 3), 10**9)}, {"items": np.full(7, 3)}, 4)
    for rule in ("median", "trimmed-mean", "krum"):
        found = combine_groups([*honest, lie, lie], RobustConfig(rule=rule, adversaries=0.2))  # type: ignore[arg-type]
        assert found.sums["items"].max() <= 10 * 306 + 10, f"{rule} believed the adversaries"


def test_krum_takes_a_whole_group_near_the_others_and_scales_it_to_all_clients() -> None:
    totals = totals_of(6, 4)
    for total in totals:
        total.counts["items"][:] = 2
        total.sums["items"][:] = 100
    totals[4].sums["items"][:] = -(10**6)
    chosen = krum(totals, 0.2)
    assert chosen != 4
    found = combine_groups(totals, RobustConfig(rule="krum", adversaries=0.2))
    assert (found.sums["items"] == 600).all()
    assert (found.counts["items"] == 12).all()
    assert krum(totals[:1], 0.2) == 0


def test_rows_that_no_client_mentions_stay() -> None:
    means = np.full((4, 2, 3), np.nan)
    means[:, 1] = 5.0
    for rule in (median, trimmed_mean):
        found = rule(means, 0.1)
        assert (found[0] == 0).all()
        assert (found[1] == 5.0).all()


def test_every_client_is_assigned_to_one_group_anew_each_round() -> None:
    people = np.array([3, 4, 8, 11, 20, 21, 22])
    groups = assign_groups(people, RobustConfig(groups=3), Key(1))
    assert sorted(np.concatenate(groups).tolist()) == people.tolist()
    assert [len(g) for g in groups] == [3, 2, 2]
    other = assign_groups(people, RobustConfig(groups=3), Key(2))
    assert any(not np.array_equal(a, b) for a, b in zip(groups, other, strict=True))
    assert len(assign_groups(people, RobustConfig(), Key(1))) == 7
