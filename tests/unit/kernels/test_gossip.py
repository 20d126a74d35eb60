"""What nodes compute, beside naive loops over the same draws."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from tacit.kernels.adam import BETA1, BETA2
from tacit.kernels.gossip import distances_at, draw_weighting_set, mix_at
from tacit.kernels.gossip_gmf import CUT, judge_gmf, learn_gmf
from tacit.kernels.gossip_prme import EARTH, distance, judge_prme, learn_prme, score_prme
from tacit.kernels.llvm.lazy_adam import adam_schedule
from tacit.kernels.llvm.rowvec import rows_of
from tacit.kernels.local_samples import draw_local_rounds
from tacit.random import Key, _lane
from tacit.types import offsets

K, N_ITEMS, NODES = 8, 30, 4
RNG = np.random.default_rng(0)
HISTORIES = [np.sort(RNG.choice(N_ITEMS, size, replace=False)).astype(np.int32) for size in (6, 1, 12, 8)]
PTR, ITEMS = offsets(np.array([len(h) for h in HISTORIES])), np.concatenate(HISTORIES)
NONE = np.zeros(NODES + 1, np.int64), np.zeros(0, np.int32)
CHANCE = Key(3).bits(np.arange(NODES), 1)[:, 0]
ROWS = np.arange(NODES)


def nodes(seed: int, width: int = K) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = ((NODES, width, N_ITEMS), (NODES, K + 1), (NODES, K))
    return tuple(rng.normal(0, 0.3, shape).astype(np.float32) for shape in shapes)  # type: ignore[return-value]


def fresh() -> tuple[np.ndarray, ...]:
    none = np.empty((0, 2, 0), np.float32)
    return np.empty((0, 2, 0, 0), np.float32), none, none, np.empty(0, np.int64)


def naive_gmf(
    n: int, epochs: int, batch: int, rate: float, done: int, start: tuple[np.ndarray, ...]
) -> list[np.ndarray]:
    """Dense Adam on the mean binary cross-entropy of each batch, in float64."""
    table, head, user = (array[n].astype(np.float64) for array in start)
    word = np.uint64(_lane(int(CHANCE[n]), done))
    mine = HISTORIES[n]
    one = np.array([0, len(mine)]), mine, np.zeros(2, np.int64), mine[:0]
    _, samples, _, rows, slots, _ = draw_local_rounds(np.zeros(1, np.int64), *one, N_ITEMS, 4, epochs, word)
    item_of = np.empty(len(rows), int)
    item_of[slots] = rows
    items, labels = item_of[samples >> 1], (samples & 1).astype(float)
    params = [table, head, user]
    m, v = [np.zeros_like(p) for p in params], [np.zeros_like(p) for p in params]
    size, step = len(samples) // epochs, 0
    for first in range(0, len(samples), size):
        for k in range(first, first + size, batch):
            at = slice(k, min(k + batch, first + size))
            i, y = items[at], labels[at]
            x = table[:, i]  # [K, B]
            z = (head[:K] * user) @ x + head[K]
            r = (1 / (1 + np.exp(-z)) - y) / len(y)
            g_table = np.zeros_like(table)
            np.add.at(g_table.T, i, r[:, None] * (head[:K] * user))
            grads = [g_table, np.append((x * user[:, None]) @ r, r.sum()), (x * head[:K, None]) @ r]
            step += 1
            for p, g, a, b in zip(params, grads, m, v, strict=True):
                a[:] = BETA1 * a + (1 - BETA1) * g
                b[:] = BETA2 * b + (1 - BETA2) * g * g
                p -= rate / (1 - BETA1**step) * a / (np.sqrt(b) / np.sqrt(1 - BETA2**step) + 1e-8)
    return params


@pytest.mark.parametrize(("epochs", "batch"), [(1, 8), (2, 64)])
def test_a_peer_learns_by_adam_on_its_own_samples(epochs: int, batch: int) -> None:
    items, layers, users = nodes(1)
    start = tuple(array.copy() for array in (items, layers, users))
    done = np.array([0, 3, 0, 7])
    asked = CHANCE, done, PTR, ITEMS, *NONE, (4, epochs, batch), adam_schedule(100, 0.02)
    learn_gmf(ROWS[[0, 2, 3]], *asked, items, layers, users, fresh(), rows_of(users))
    assert done.tolist() == [1, 3, 1, 8]
    for n, before in ((0, 0), (2, 0), (3, 7)):
        expected = naive_gmf(n, epochs, batch, 0.02, before, start)
        for found, right in zip((items[n], layers[n], users[n]), expected, strict=True):
            np.testing.assert_allclose(found, right, atol=3e-4)
    assert np.array_equal(items[1], start[0][1]), "a node that was not asked has moved"


def test_kept_moments_are_those_of_one_long_run() -> None:
    """Two calls that keep their moments move further than two that begin anew, and the first call is the same."""
    kept = [np.zeros((NODES, 2, K, N_ITEMS), np.float32), np.zeros((NODES, 2, K + 1), np.float32),
            np.zeros((NODES, 2, K), np.float32), np.zeros(NODES, np.int64)]  # fmt: skip
    one, other, pace = nodes(1), nodes(1), adam_schedule(100, 0.02)
    for arrays, moments in ((one, fresh()), (other, tuple(kept))):
        done = np.zeros(NODES, np.int64)
        learn_gmf(ROWS, CHANCE, done, PTR, ITEMS, *NONE, (4, 1, 64), pace, *arrays, moments, rows_of(arrays[2]))
        if arrays is other:
            np.testing.assert_allclose(one[0], other[0], atol=1e-6)
            assert (kept[3] > 0).all()
            before = other[0].copy()
            learn_gmf(ROWS, CHANCE, done, PTR, ITEMS, *NONE, (4, 1, 64), pace, *arrays, moments, rows_of(arrays[2]))
            assert not np.array_equal(before, other[0])


def credit(better: float) -> np.ndarray:
    place = 1.0 + better
    hit = min(max(CUT + 1 - place, 0.0), 1.0)
    return np.array([hit, hit / np.log2(place + 1)])


def test_a_model_is_worth_where_it_puts_what_was_spared() -> None:
    own, peer_models = nodes(1), nodes(2)
    spared = [h[:2] for h in HISTORIES]
    weigh = offsets(np.array([len(s) for s in spared])), np.concatenate(spared)
    worths = np.empty((2, 2, 2))
    rows, at = np.array([2, 0]), np.array([1, 3])
    judge_gmf(rows, at, CHANCE, np.zeros(NODES, np.int64), *weigh, PTR, ITEMS, own, peer_models, False, False, worths)
    for r, (n, p) in enumerate(zip(rows, at, strict=True)):
        unseen = np.setdiff1d(np.arange(N_ITEMS), HISTORIES[n])
        for model, (table, head) in enumerate(((own[0][n], own[1][n]), (peer_models[0][p], peer_models[1][p]))):
            scores = (head[:K] * own[2][n]) @ table + head[K]
            places = [100 * (scores[unseen] > scores[i]).sum() / len(unseen) for i in spared[n]]
            np.testing.assert_allclose(worths[r, model], np.mean([credit(b) for b in places], axis=0), rtol=1e-6)


def test_drawn_candidates_agree_with_all_of_them_on_average() -> None:
    own, peer_models = nodes(1), nodes(2)
    weigh = PTR, ITEMS
    exact, drawn, mean = np.empty((1, 2, 2)), np.empty((1, 2, 2)), np.zeros((2, 2))
    rows, at, done = np.array([2]), np.array([1]), np.zeros(NODES, np.int64)
    judge_gmf(rows, at, CHANCE, done, *weigh, PTR, ITEMS, own, peer_models, False, False, exact)
    for _ in range(200):
        judge_gmf(rows, at, CHANCE, done, *weigh, PTR, ITEMS, own, peer_models, False, True, drawn)
        mean += drawn[0] / 200
    np.testing.assert_allclose(mean, exact[0], atol=0.06)


def test_who_cannot_judge_says_so_and_what_is_no_number_earns_nothing() -> None:
    own, peer_models = nodes(1), nodes(2)
    peer_models[0][3] = np.nan
    nothing = np.zeros(NODES + 1, np.int64), ITEMS[:0]
    worths = np.empty((1, 2, 2))
    done = np.zeros(NODES, np.int64)
    judge_gmf(ROWS[:1], ROWS[3:], CHANCE, done, *nothing, PTR, ITEMS, own, peer_models, False, False, worths)
    assert (worths == -1).all()
    for samples in (False, True):
        judge_gmf(ROWS[:1], ROWS[3:], CHANCE, done, PTR, ITEMS, PTR, ITEMS, own, peer_models, False, samples, worths)
        assert (worths[0, 1] == 0).all()


def test_carving_takes_the_asked_number_and_depends_on_the_peer_alone() -> None:
    sizes = np.array([2, 0, 5, 8])
    kept = draw_weighting_set(CHANCE, PTR, sizes)
    assert [int(kept[a:b].sum()) for a, b in pairwise(PTR)] == sizes.tolist()
    alone = draw_weighting_set(CHANCE[2:3], PTR[2:4] - PTR[2], sizes[2:3])
    assert np.array_equal(alone, kept[PTR[2] : PTR[3]])


def test_mixing_is_a_weighted_mean_and_a_refused_peer_model_changes_nothing() -> None:
    own, peer_models = nodes(1)[0], nodes(2)[0]
    peer_models[0] = np.nan
    weights = np.array([[0.25, 0.75], [1.0, 0.0]], np.float32)
    out = np.zeros_like(own)
    mix_at(np.array([1, 2]), np.array([3, 0]), own, peer_models, weights, out)
    np.testing.assert_allclose(out[1], 0.25 * own[1] + 0.75 * peer_models[3], atol=1e-6)
    assert np.array_equal(out[2], own[2])
    assert not out[[0, 3]].any()
    far = distances_at(np.array([1, 2]), np.array([3, 0]), own, peer_models)
    assert far[0] == pytest.approx(np.linalg.norm(own[1] - peer_models[3]), rel=1e-5)
    assert np.isnan(far[1])


# --- PRME-G ---------------------------------------------------------------------------------------------------------

ANGLES = np.radians(np.stack([40.7 + 0.2 * RNG.random(N_ITEMS), -74 + 0.2 * RNG.random(N_ITEMS)]))
PLACES = np.stack([np.cos(ANGLES[0]) * np.cos(ANGLES[1]), np.cos(ANGLES[0]) * np.sin(ANGLES[1]), np.sin(ANGLES[0])], 1)
PLACES = PLACES.astype(np.float32)
SHARE = np.float32(0.2)


def naive_distance(table: np.ndarray, user: np.ndarray, c: int, i: int) -> float:
    near = float(((user - table[:K, i]) ** 2).sum())
    if c < 0:
        return near
    km = float(EARTH) * float(np.linalg.norm(PLACES[c].astype(float) - PLACES[i].astype(float)))
    return (1 + km) ** 0.25 * (0.2 * near + 0.8 * float(((table[K:, c] - table[K:, i]) ** 2).sum()))


def test_distances_of_places() -> None:
    items, _, users = nodes(5, 2 * K)
    scores = np.empty((NODES, N_ITEMS), np.float32)
    here = np.array([3, -1, 0, 29], np.int32)
    score_prme(items, users, here, PLACES, SHARE, scores)
    for n in range(NODES):
        right = [-naive_distance(items[n], users[n], here[n], i) for i in range(N_ITEMS)]
        np.testing.assert_allclose(scores[n], right, rtol=2e-3, atol=1e-5)


def test_a_step_climbs_the_gradient_and_shrinks() -> None:
    """One step, one negative: the move is the numeric gradient of log sigma(z), less what shrinking takes."""
    rate, reg, n = 1e-3, 0.03, 0
    seen = np.arange(N_ITEMS - 1, dtype=np.int32)  # so the negative can only be the last place
    for c in (4, -1):
        items, _, users = nodes(6, 2 * K)
        table, user = items[n].copy(), users[n].copy()
        ptr, steps = np.array([0, 1, 1, 1, 1]), np.array([[c, 7]], np.int32)
        seen_ptr = np.array([0, N_ITEMS - 1, N_ITEMS - 1, N_ITEMS - 1, N_ITEMS - 1])
        rates = np.float32(rate), np.float32(reg), SHARE
        known = ptr, steps, seen_ptr, seen, *NONE, PLACES
        learn_prme(ROWS[:1], CHANCE, np.zeros(NODES, np.int64), *known, (1, 1), rates, items, users)

        def objective(table: np.ndarray, user: np.ndarray, c: int = c) -> float:
            z = naive_distance(table, user, c, N_ITEMS - 1) - naive_distance(table, user, c, 7)
            return -np.log1p(np.exp(-z))

        double = table.astype(float), user.astype(float)
        for f, i in [(0, 7), (1, N_ITEMS - 1), (K, 7), (K + 1, N_ITEMS - 1), (K + 2, max(c, 0))]:
            up, down = (double[0].copy() for _ in range(2))
            up[f, i] += 1e-5
            down[f, i] -= 1e-5
            slope = (objective(up, double[1]) - objective(down, double[1])) / 2e-5
            moved = (float(items[n][f, i]) - float(table[f, i])) / rate
            touched = slope != 0
            assert moved == pytest.approx(slope - 2 * reg * table[f, i] * touched, abs=2e-3)
        up, down = (double[1].copy() for _ in range(2))
        up[0] += 1e-5
        down[0] -= 1e-5
        slope = (objective(double[0], up) - objective(double[0], down)) / 2e-5
        assert (float(users[n][0]) - float(user[0])) / rate == pytest.approx(slope - 2 * reg * user[0], abs=2e-3)


def test_judging_steps() -> None:
    own, peer_models = nodes(1, 2 * K), nodes(2, 2 * K)
    steps = np.array([[3, HISTORIES[0][1]], [-1, HISTORIES[0][2]]], np.int32)
    weigh = np.array([0, 2, 2, 2, 2]), steps
    worths = np.empty((1, 2, 2))
    mine, theirs = (own[0], own[2]), (peer_models[0], peer_models[2])
    args = PLACES, SHARE, mine, theirs, (False, False), worths
    judge_prme(ROWS[:1], ROWS[2:3], CHANCE, np.zeros(NODES, np.int64), *weigh, PTR, ITEMS, *args)
    unseen = np.setdiff1d(np.arange(N_ITEMS), HISTORIES[0])
    for model, table in enumerate((own[0][0], peer_models[0][2])):
        earned = []
        for c, i in steps:
            far = [distance(table, own[2][0], PLACES, SHARE, c, j) for j in unseen]
            better = sum(d < distance(table, own[2][0], PLACES, SHARE, c, i) for d in far)
            earned.append(credit(100 * better / len(unseen)))
        np.testing.assert_allclose(worths[0, model], np.mean(earned, axis=0), rtol=1e-6)
