"""Hand-written gradients and whole training steps against a plain numpy reference in float64."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.reference_losses import finite_differences, loss_of, ncf_scores
from tacit.kernels.adam import corrections, initial_adam_state
from tacit.kernels.losses import LOSSES
from tacit.kernels.ncf import draw_samples, ncf_epoch, ncf_gradients, shuffle
from tacit.models.ncf import gmf, mlp, neumf
from tacit.random import Key
from tacit.types import offsets

SHAPES = {"gmf": gmf(5), "mlp": mlp(4, (7, 3)), "neumf": neumf(4, (8, 6, 3))}
EVERY_SHAPE = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
N_PEOPLE, N_ITEMS = 6, 9


def _start(shape, scale=0.5):
    key = Key(3)
    shared = shape.init_shared(N_ITEMS, key, scale)
    flat = shape.flatten(shared)
    flat += np.random.default_rng(0).normal(0, 0.3, flat.size).astype(np.float32)  # biases away from zero
    return shape.init_private(np.arange(N_PEOPLE), key, scale)["users"], shared["items"], flat


def _samples(n, seed=0):
    rng = np.random.default_rng(seed)
    rows, items, labels = rng.integers(0, N_PEOPLE, n), rng.integers(0, N_ITEMS, n), rng.integers(0, 2, n)
    return (rows << 32 | items << 1 | labels).astype(np.uint64)


def _unpack(samples):
    words = samples.astype(np.int64)
    return words >> 32, words >> 1 & 0x7FFFFFFF, words & 1


def _loss(shape, users, items, flat, samples, loss="bce", group=1):
    rows, columns, y = _unpack(samples)
    z = ncf_scores(shape, users[rows], items[columns], flat)
    if loss == "bce":
        return loss_of(loss, z, y)
    return np.mean([loss_of(loss, *part) for part in zip(z.reshape(-1, group), y.reshape(-1, group), strict=True)])


def _finite_differences(shape, parameters, samples, *how):
    return finite_differences(lambda: _loss(shape, *parameters, samples, *how), parameters)


def _by_hand(shape, parameters, samples, capacity, loss="bce", group=1):
    work = [np.empty(capacity * int(shape.sizes.sum()), np.float32) for _ in range(2)]
    g = [np.zeros_like(p) for p in parameters]
    work.append(np.empty(capacity, np.float32))
    ncf_gradients(samples, LOSSES[loss], group, *parameters, shape.sizes, shape.product, *work, *g)
    return g


@EVERY_SHAPE
def test_gradients_are_those_of_the_loss(shape):
    parameters, samples = _start(shape), _samples(32)
    expected = _finite_differences(shape, [p.astype(np.float64) for p in parameters], samples)
    for capacity in (32, 50):  # a batch may be shorter than the work space
        for mine, reference in zip(_by_hand(shape, parameters, samples, capacity), expected, strict=True):
            assert np.abs(reference).max() > 1e-3, "the check must see every kind of parameter"
            np.testing.assert_allclose(mine, reference, rtol=0, atol=2e-6 * max(1, np.abs(reference).max()))


@EVERY_SHAPE
@pytest.mark.parametrize("loss", ["bpr", "softmax"])
def test_losses_of_differences_compare_a_positive_with_its_own_negatives(shape, loss):
    parameters, group = _start(shape), 4
    samples = _samples(32) >> np.uint64(1) << np.uint64(1)
    samples[::group] |= np.uint64(1)
    rows = np.repeat(_unpack(samples)[0][::group], group)  # a group is one person's
    samples = samples & np.uint64(0xFFFFFFFF) | rows.astype(np.uint64) << np.uint64(32)
    expected = _finite_differences(shape, [p.astype(np.float64) for p in parameters], samples, loss, group)
    found = _by_hand(shape, parameters, samples, 40, loss, group)
    assert found[2][-1] == 0, "the last bias is in no difference"
    for mine, reference in zip(found, expected, strict=True):
        assert np.abs(reference).max() > 1e-3
        np.testing.assert_allclose(mine, reference, rtol=0, atol=2e-6 * max(1, np.abs(reference).max()))


@pytest.mark.slow
@EVERY_SHAPE
def test_training_is_adam_on_these_gradients_batch_after_batch(shape):
    samples, batch = _samples(90, seed=1), 16
    start = _start(shape)
    moving = [initial_adam_state(p.copy()) for p in start]
    active = np.zeros(N_PEOPLE, bool), np.zeros(N_ITEMS, bool)
    done = 0
    for _ in range(2):  # two epochs: moments and corrections carry over
        rate = corrections(done, 6, 1e-2)
        ncf_epoch(samples, batch, LOSSES["bce"], 1, *moving, shape.sizes, shape.product, *active, *rate)
        done += 6

    parameters = [p.astype(np.float64) for p in start]
    moments = [(np.zeros(p.shape), np.zeros(p.shape)) for p in parameters]
    for t in range(12):
        part = samples[t % 6 * batch : t % 6 * batch + batch]
        gradients = _finite_differences(shape, parameters, part)
        for k, g in enumerate(gradients):
            m, v = moments[k]
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
            moments[k] = m, v
            step = 1e-2 * (m / (1 - 0.9 ** (t + 1))) / (np.sqrt(v / (1 - 0.999 ** (t + 1))) + 1e-8)
            # Adam makes a full step of any gradient, so one that is pure rounding noise says nothing: leave those out.
            parameters[k] = parameters[k] - np.where(np.sqrt(v) < 1e-8, 0, step)
    for mine, reference, first in zip(moving, parameters, start, strict=True):
        assert np.abs(reference - first).max() > 0.02, "training moved the parameters"
        np.testing.assert_allclose(mine.w, reference, rtol=0, atol=2e-6)


def _histories(*rows):
    return offsets(np.array([len(r) for r in rows])), np.concatenate([np.array(r, np.int32) for r in rows])


def _draw(ptr, items, avoid=None, negatives=3, n_items=N_ITEMS, ids=None, word=7):
    ids = np.arange(len(ptr) - 1) if ids is None else np.asarray(ids)
    barred = (np.zeros_like(ptr), items[:0]) if avoid is None else avoid
    return draw_samples(ids, ptr, items, *barred, n_items, negatives, np.uint64(word))


def test_negatives_are_fresh_and_uniform_over_items_outside_the_history():
    ptr, items = _histories([0, 1, 5], [8])
    counts = np.zeros((2, N_ITEMS), int)
    for epoch in range(2000):
        rows, columns, y = _unpack(_draw(ptr, items, word=epoch))
        assert (rows[y == 1] == [0, 0, 0, 1]).all()
        assert (columns[y == 1] == items).all()
        np.add.at(counts, (rows[y == 0], columns[y == 0]), 1)
    assert counts[0, [0, 1, 5]].sum() == 0
    assert counts[1, 8] == 0
    for row, n, free in ((0, 18000, 6), (1, 6000, 8)):
        seen = counts[row][counts[row] > 0]
        assert len(seen) == free
        assert seen.sum() == n
        np.testing.assert_allclose(seen, n / free, atol=5 * np.sqrt(n / free), err_msg="not uniform")


def test_items_to_avoid_are_never_drawn():
    ptr, items = _histories([0, 1], [2])
    avoid = _histories([4, 5, 6, 7], [])
    rows, columns, y = _unpack(np.concatenate([_draw(ptr, items, avoid, word=e) for e in range(200)]))
    assert set(columns[(y == 0) & (rows == 0)]) == {2, 3, 8}
    assert set(columns[(y == 0) & (rows == 1)]) == {0, 1, 3, 4, 5, 6, 7, 8}


def test_an_item_to_avoid_that_is_not_in_the_catalogue_bars_no_other():
    ptr, items = _histories([0, 1], [2])
    avoid = _histories([-1, 4], [-1])
    rows, columns, y = _unpack(np.concatenate([_draw(ptr, items, avoid, word=e) for e in range(200)]))
    assert set(columns[(y == 0) & (rows == 0)]) == {2, 3, 5, 6, 7, 8}
    assert set(columns[(y == 0) & (rows == 1)]) == {0, 1, 3, 4, 5, 6, 7, 8}


def test_someone_who_did_everything_or_nearly_has_no_endless_draw():
    everything = list(range(100))
    ptr, items = _histories(everything, everything[:-1], [*everything[:97], 5, 5])
    rows, columns, y = _unpack(_draw(ptr, items, n_items=100))
    assert (y[rows == 0] == 1).all(), "no negative exists for someone who did everything"
    assert set(columns[(rows == 1) & (y == 0)]) == {99}
    assert set(columns[(rows == 2) & (y == 0)]) == {97, 98, 99}
    assert ((rows == 1) & (y == 0)).sum() == 3 * 99


def test_draws_depend_on_the_user_and_not_on_the_cohort():
    ptr, items = _histories([0, 1, 5], [8, 3], [2])
    together = _draw(ptr, items, ids=[10, 11, 12])
    alone = _draw(*_histories([8, 3]), ids=[11])
    of_user = _unpack(together)[0] == 1
    np.testing.assert_array_equal(_unpack(together)[1][of_user], _unpack(alone)[1])


def test_shuffle_keeps_the_samples_and_is_fair():
    first = np.zeros(5, int)
    for word in range(3000):
        samples = np.arange(5, dtype=np.uint64)
        shuffle(samples, np.uint64(word), 1)
        assert sorted(samples) == [0, 1, 2, 3, 4]
        first[int(samples[0])] += 1
    np.testing.assert_allclose(first, 600, atol=5 * np.sqrt(600))


def test_groups_are_shuffled_whole():
    samples = np.arange(12, dtype=np.uint64)
    shuffle(samples, np.uint64(5), 3)
    groups = samples.reshape(-1, 3)
    assert not np.array_equal(samples, np.arange(12))
    assert sorted(groups[:, 0]) == [0, 3, 6, 9]
    assert (np.diff(groups.astype(int), axis=1) == 1).all()
