"""What a device draws and learns in a round, against a plain reference in float64 that takes the same draws."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from helpers.reference_losses import finite_differences, loss_of, ncf_scores
from tacit.kernels.fedncf import Learning, learn_products
from tacit.kernels.fedtower import learn_towers
from tacit.kernels.llvm.lazy_adam import adam_schedule
from tacit.kernels.llvm.rowvec import rows_of
from tacit.kernels.local_samples import draw_local_rounds
from tacit.kernels.losses import LOSSES
from tacit.kernels.move_sink import MOST_STEPS, row_sink, total_sink
from tacit.models.ncf import gmf, mlp, neumf
from tacit.random import Key
from tacit.types import offsets

SHAPES = {"gmf": gmf(4), "mlp": mlp(4, (5, 4)), "neumf": neumf(4, (5, 3))}
EVERY_SHAPE = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
N_ITEMS, EPOCHS, BATCH, RATE, OWN_RATE = 11, 2, 7, 0.02, 1.5
SCALE = np.float32(2**20)


def _histories(*rows):
    return offsets(np.array([len(r) for r in rows])), np.concatenate([np.array(r, np.int32) for r in rows])


def _draw(*rows, avoid=None, ids=None, n_items=N_ITEMS, negatives=3, epochs=EPOCHS, word=7):
    ptr, items = _histories(*rows)
    barred = (np.zeros_like(ptr), items[:0]) if avoid is None else _histories(*avoid)
    ids = np.arange(len(rows)) if ids is None else np.asarray(ids)
    return draw_local_rounds(ids, ptr, items, *barred, n_items, negatives, epochs, np.uint64(word))


def _samples_of(draws, client):
    """Return (items, labels) of a client, [epochs, n] each, with slots turned back into items."""
    starts, samples, row_ptr, rows, slots, _ = draws
    own = slice(row_ptr[client], row_ptr[client + 1])
    item_of = np.empty(own.stop - own.start, int)
    item_of[slots[own]] = rows[own]
    words = samples[starts[client] : starts[client + 1]].astype(int).reshape(EPOCHS, -1)
    return item_of[words >> 1], words & 1


def test_every_local_epoch_has_all_positives_and_fresh_negatives():
    history = [1, 4, 9]
    items, labels = _samples_of(_draw(history, [2]), 0)
    for epoch in range(EPOCHS):
        assert sorted(items[epoch][labels[epoch] == 1]) == history
        assert (labels[epoch] == 0).sum() == 3 * len(history)
        assert not set(items[epoch][labels[epoch] == 0]) & set(history)
    assert not np.array_equal(items[0], items[1])


def test_negatives_are_uniform_over_items_outside_the_history():
    counts = np.zeros(N_ITEMS, int)
    for word in range(1500):
        items, labels = _samples_of(_draw([0, 5], word=word), 0)
        np.add.at(counts, items[labels == 0], 1)
    expected = 1500 * EPOCHS * 6 / (N_ITEMS - 2)
    assert counts[[0, 5]].sum() == 0
    np.testing.assert_allclose(np.delete(counts, [0, 5]), expected, atol=5 * np.sqrt(expected))


def test_positives_stand_anywhere_in_the_order():
    first = [_samples_of(_draw([3, 8], negatives=1, word=w), 0)[1][0, 0] for w in range(400)]
    assert 0.4 < np.mean(first) < 0.6


def test_rows_are_what_was_touched_in_ascending_order_and_marked_by_the_history():
    for n_items in (N_ITEMS, 5000):  # most of the catalogue, and little of it
        draws = _draw([1, 4, 9], [2, 3], n_items=n_items)
        for client, history in enumerate(([1, 4, 9], [2, 3])):
            own = slice(draws[2][client], draws[2][client + 1])
            items, _ = _samples_of(draws, client)
            assert np.array_equal(draws[3][own], np.unique(items))
            assert np.array_equal(draws[5][own], np.isin(draws[3][own], history))


def test_slots_follow_the_order_of_first_use():
    starts, samples, *_ = _draw([1, 4, 9])
    used = samples[starts[0] : starts[1]] >> 1
    seen = used[np.sort(np.unique(used, return_index=True)[1])]
    assert np.array_equal(seen, np.arange(len(seen)))


def test_what_is_to_be_avoided_is_never_drawn_and_unknown_items_do_no_harm():
    for word in range(50):
        items, labels = _samples_of(_draw([0, 1], avoid=[[4, 5, 6, -1]], word=word), 0)
        assert set(items[labels == 0]) <= {2, 3, 7, 8, 9, 10}


def test_few_free_items_are_found_and_none_leaves_the_positives_alone():
    most = np.arange(199)
    items, labels = _samples_of(_draw(most, n_items=200, negatives=2), 0)
    assert set(items[labels == 0]) == {199}
    items, labels = _samples_of(_draw(np.arange(N_ITEMS)), 0)
    assert labels.all()
    assert items.shape == (EPOCHS, N_ITEMS)


def test_draws_depend_on_the_person_alone():
    together = _draw([1, 4], [2, 3, 5], ids=[10, 4])
    alone = _draw([2, 3, 5], ids=[4])
    own = slice(together[2][1], together[2][2])
    assert np.array_equal(together[3][own], alone[3])
    assert np.array_equal(together[4][own], alone[4])
    assert np.array_equal(together[1][together[0][1] :], alone[1])


# --- learning -------------------------------------------------------------------------------------------------------


def _start(shape):
    key, rng = Key(3), np.random.default_rng(0)
    shared = shape.init_shared(N_ITEMS, key, 0.5)
    flat = shape.flatten(shared)
    flat += rng.normal(0, 0.3, flat.size).astype(np.float32)
    return shared["items"], flat, shape.init_private(np.arange(2), key, 0.5)["users"]


def _loss(shape, u, items, flat, columns, labels, loss):
    return loss_of(loss, ncf_scores(shape, np.repeat(u, len(columns), 0), items[columns], flat), labels)


def _learn_in_float64(shape, items, flat, user, draws, client, loss, batch=BATCH):
    """Dense Adam over the whole table, gradients by finite differences of the loss."""
    parameters = [p.astype(np.float64) for p in (user[None, :], items, flat)]
    moments = [(np.zeros(p.shape), np.zeros(p.shape)) for p in parameters]
    t = 0
    columns, labels = _samples_of(draws, client)
    for epoch in range(EPOCHS):
        for start in range(0, columns.shape[1], batch):
            which, y = columns[epoch, start : start + batch], labels[epoch, start : start + batch]
            t += 1
            gradients = finite_differences(partial(_loss, shape, *parameters, which, y, loss), parameters)
            for k, g in enumerate(gradients):
                m, v = moments[k]
                m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
                moments[k] = m, v
                step = RATE * (OWN_RATE if k == 0 else 1) * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
                parameters[k] -= np.where(np.sqrt(v) < 1e-8, 0, step)  # less is rounding noise of the differences
    return parameters


def _learnt(shape, items, flat, people, draws, weights, *how):
    n_clients = len(people)
    out = row_sink(len(draws[3]), n_clients, shape.width, shape.n_layers)
    moved = people.copy()
    _run(shape, items, flat, moved, draws, weights, out, *how)
    return out, moved


def _run(shape, items, flat, people, draws, weights, out, loss="bce", batch=BATCH):
    how = Learning(EPOCHS, batch, LOSSES[loss], np.float32(OWN_RATE))
    start, pace = (draws, how, rows_of(items), flat, people), adam_schedule(40, RATE)
    if shape.layers:
        learn_towers(*start, shape.sizes, shape.product, pace, weights, SCALE, out)
    else:
        learn_products(*start, pace, weights, SCALE, out)


@pytest.mark.parametrize(
    ("shape", "loss"),
    [*((shape, "bce") for shape in SHAPES.values()), (SHAPES["gmf"], "bpr"), (SHAPES["gmf"], "softmax")],
    ids=[*SHAPES, "gmf-bpr", "gmf-softmax"],
)
def test_a_round_is_dense_adam_on_the_gradients_of_the_loss(shape, loss):
    items, flat, people = _start(shape)
    draws = _draw([1, 4, 9], [2, 3, 5, 7])
    out, moved = _learnt(shape, items, flat, people, draws, np.ones((2, 2), np.float32), loss)
    for client in range(2):
        user, table, layers = _learn_in_float64(shape, items, flat, people[client], draws, client, loss)
        own = slice(draws[2][client], draws[2][client + 1])
        touched = np.isin(np.arange(N_ITEMS), draws[3][own])
        assert (table[~touched] == items[~touched]).all(), "the reference moved a row that is not in the sub-table"
        assert np.abs(table - items).max() > 0.05
        np.testing.assert_allclose(moved[client], user[0], rtol=0, atol=1e-5)
        np.testing.assert_allclose(out.rows[own], (table - items)[touched], rtol=0, atol=1e-5)
        np.testing.assert_allclose(out.layers[client, :-1], layers - flat, rtol=0, atol=1e-5)
        assert out.layers[client, -1] == 1


@pytest.mark.parametrize("shape", [SHAPES["mlp"], SHAPES["neumf"]], ids=["mlp", "neumf"])
@pytest.mark.parametrize("loss", ["bpr", "softmax"])
def test_losses_of_differences_in_a_tower(shape, loss):
    """The same, one batch an epoch. Some layers have no gradient, and Adam makes steps of what rounding leaves there;
    with more batches those would come back in all others."""
    items, flat, people = _start(shape)
    draws = _draw([1, 4, 9], [2, 3, 5, 7])
    out, moved = _learnt(shape, items, flat, people, draws, np.ones((2, 2), np.float32), loss, 64)
    for client in range(2):
        user, table, layers = _learn_in_float64(shape, items, flat, people[client], draws, client, loss, 64)
        own = slice(draws[2][client], draws[2][client + 1])
        touched = np.isin(np.arange(N_ITEMS), draws[3][own])
        np.testing.assert_allclose(moved[client], user[0], rtol=0, atol=1e-5)
        np.testing.assert_allclose(out.rows[own], (table - items)[touched], rtol=0, atol=1e-5)
        has_gradient = layers != flat
        assert has_gradient.mean() > 0.4
        np.testing.assert_allclose(
            out.layers[client, :-1][has_gradient], (layers - flat)[has_gradient], rtol=0, atol=1e-5
        )
        assert out.layers[client, -2] == 0, "the last bias is in no difference"


@EVERY_SHAPE
def test_weights_multiply_what_leaves_and_nothing_else(shape):
    items, flat, people = _start(shape)
    draws = _draw([1, 4, 9], [2, 3, 5, 7])
    plain, moved = _learnt(shape, items, flat, people, draws, np.ones((2, 2), np.float32))
    weighed, same = _learnt(shape, items, flat, people, draws, np.array([[0.5, 2], [4, 0.25]], np.float32))
    assert np.array_equal(moved, same)
    owner = np.repeat([0, 1], np.diff(draws[2]))
    np.testing.assert_allclose(weighed.rows, plain.rows * np.array([0.5, 2])[owner, None], rtol=0, atol=2e-6)
    np.testing.assert_allclose(weighed.layers, plain.layers * np.array([[4], [0.25]]), rtol=0, atol=3e-6)


@EVERY_SHAPE
def test_sums_are_those_of_the_rows(shape):
    items, flat, people = _start(shape)
    draws, weights = _draw([1, 4, 9], [2, 3, 5, 7]), np.ones((2, 2), np.float32)
    rows, _ = _learnt(shape, items, flat, people, draws, weights)
    kept = (np.arange(len(draws[3])) % 3 > 0).astype(np.uint8)
    sums = [np.zeros(s, np.int64) for s in ((N_ITEMS, shape.width), (1, shape.n_layers + 1))]
    counts = [np.zeros(n, np.int64) for n in (N_ITEMS, 1)]
    out = total_sink(kept, (sums[0], counts[0]), (sums[1], counts[1]))
    _run(shape, items, flat, people.copy(), draws, weights, out)
    expected, leaves = np.zeros_like(sums[0]), kept.astype(bool)
    np.add.at(expected, draws[3][leaves], np.rint(rows.rows[leaves] * SCALE).astype(np.int64))
    assert np.array_equal(sums[0], expected)
    assert np.array_equal(counts[0], np.bincount(draws[3][leaves], minlength=N_ITEMS))
    assert np.array_equal(sums[1][0], np.rint(rows.layers * SCALE).astype(np.int64).sum(axis=0))
    assert counts[1][0] == 2
    assert out.largest[0] == MOST_STEPS


@EVERY_SHAPE
def test_a_move_that_does_not_fit_is_reported_and_so_is_nan(shape):
    items, flat, people = _start(shape)
    draws, weights = _draw([1, 4, 9], [2, 3, 5, 7]), np.full((2, 2), 1e4, np.float32)
    out, _ = _learnt(shape, items, flat, people, draws, weights)
    assert out.largest[0] > MOST_STEPS
    flat[-1] = np.nan
    out, _ = _learnt(shape, items, flat, people, draws, np.ones((2, 2), np.float32))
    assert np.isnan(out.largest[0])
