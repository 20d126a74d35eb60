"""One definition of each model: layout, first values, and scores that agree however they are asked for."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.errors import MethodError
from tacit.models.ncf import gmf, mlp, neumf
from tacit.random import Key

LAYERS = (48, 24, 12, 6)
SHAPES = {"gmf": gmf(12), "mlp": mlp(12, LAYERS), "neumf": neumf(12, LAYERS)}
EVERY_SHAPE = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)


def _model(shape, n_items=1100, n_participants=5):
    shared = shape.init_shared(n_items, Key(1), 0.5)
    for name in shape.shapes:
        if "bias" in name:
            shared[name] += 0.1
    return shared, shape.init_private(np.arange(n_participants), Key(1), 0.5)["users"]


def _naive(shape, shared, u, i):
    d = shape.product
    top = [*(u[:d] * i[:d])]
    if shape.layers:
        a = np.concatenate([u[d:], i[d:]]).astype(np.float64)
        for k in range(1, len(shape.layers) + 1):
            a = np.maximum(a @ shared[f"layer{k}"] + shared[f"bias{k}"], 0)
        top += [*a]
    return np.dot(top, shared["head"]) + shared["head_bias"][0]


@EVERY_SHAPE
def test_all_items_and_pairs_score_as_the_definition_says(shape):
    shared, users = _model(shape)
    scores = shape.score(shared, users)
    rng = np.random.default_rng(0)
    rows, items = rng.integers(0, len(users), 1300), rng.integers(0, 1100, 1300)  # more than one chunk of pairs
    pairs = shape.score_pairs(shared, users, rows, items)
    assert scores.dtype == pairs.dtype == np.float32
    np.testing.assert_allclose(pairs, scores[rows, items], rtol=1e-4, atol=1e-5)
    for u, i in [(0, 0), (4, 1099), (2, 511), (3, 512)]:
        assert scores[u, i] == pytest.approx(_naive(shape, shared, users[u], shared["items"][i]), abs=1e-5)


def test_sizes_are_those_of_fedncf():
    counts = {name: sum(int(np.prod(s)) for s in shape.shapes.values()) for name, shape in SHAPES.items()}
    tower = 24 * 48 + 48 * 24 + 24 * 12 + 12 * 6 + (48 + 24 + 12 + 6)
    assert counts == {"gmf": 12 + 1, "mlp": tower + 6 + 1, "neumf": tower + 6 + 12 + 1}
    assert [shape.width for shape in SHAPES.values()] == [12, 12, 24]


@EVERY_SHAPE
def test_layers_survive_the_flat_vector(shape):
    shared, _ = _model(shape)
    flat = shape.flatten(shared)
    views = shape.unflatten(flat)
    assert list(views) == [name for name in shared if name != "items"]
    for name, view in views.items():
        np.testing.assert_array_equal(view, shared[name])
        assert np.shares_memory(view, flat), "training moves the vector, and the names must follow"


@EVERY_SHAPE
def test_first_values(shape):
    shared = shape.init_shared(2000, Key(5), 0.01)
    assert shared["items"].std() == pytest.approx(0.01, rel=0.03)
    for name, dims in shape.shapes.items():
        if "bias" in name:
            assert not shared[name].any()
        else:
            limit = np.sqrt(6 / (dims[0] + (dims[1] if len(dims) == 2 else 1)))
            assert np.abs(shared[name]).max() <= limit
            assert np.abs(shared[name]).max() > 0.6 * limit


def test_no_head_is_all_positive():
    for seed in range(100):
        head = neumf(12, LAYERS).init_shared(1, Key(seed), 0.01)["head"][12:]
        assert (head < 0).sum() == 3, "such a tower would be switched off by the first steps"


def test_a_user_starts_the_same_in_any_cohort():
    shape = SHAPES["neumf"]
    together = shape.init_private(np.array([3, 8, 20]), Key(2), 0.01)["users"]
    alone = shape.init_private(np.array([8]), Key(2), 0.01)["users"]
    np.testing.assert_array_equal(together[1], alone[0])
    assert not np.array_equal(together[0], together[1])


def test_a_model_of_another_size_is_refused():
    shared, users = _model(SHAPES["mlp"])
    with pytest.raises(MethodError, match=r"'items' should have shape \(-1, 24\), seen: \(1100, 12\)"):
        SHAPES["neumf"].score(shared, users)
    with pytest.raises(MethodError, match="'layer1'"):
        mlp(12, (16, 8)).score(shared, users)
    with pytest.raises(MethodError, match="'users'"):
        SHAPES["mlp"].score(shared, users[:, :7])


def test_pairs_outside_the_model_are_refused():
    shared, users = _model(SHAPES["gmf"])
    with pytest.raises(MethodError, match="item"):
        SHAPES["gmf"].score_pairs(shared, users, np.array([0]), np.array([-1]))
    with pytest.raises(MethodError, match="person"):
        SHAPES["gmf"].score_pairs(shared, users, np.array([5]), np.array([0]))
