"""Methods by sums: kernels, bounds of what a person adds, ranks that the data lacks, earlier runs to start from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.one_round import learn_once
from tacit.config import Experiment
from tacit.data import load
from tacit.data.dataset import Dataset
from tacit.errors import MethodError
from tacit.kernels.outer import client_sums, normal_rows
from tacit.lab.experiments import run
from tacit.lab.simulation import simulate
from tacit.methods import fed_ease
from tacit.methods.base import build_federated, options
from tacit.methods.fed_svd import largest_angle
from tacit.methods.parts.sums import LONG_HISTORY, OuterSum, distinct, orthonormal, plan_items
from tacit.numerics import DIVERGENCE_LIMIT
from tacit.privacy.update_sink import UpdateSink
from tacit.protocols.federated import UpdatePath
from tacit.random import Key
from tacit.serving.recommender import Recommender
from tacit.testing import make_clients
from tacit.types import Catalog, Clients, Floats, Model, Vocabulary
from tacit.updates import Message, PlannedRows, Ring, Total, UpdatePlan

KEY = Key(5)
RING = Ring()


def catalogue(n_items: int) -> Catalog:
    return Catalog(Vocabulary(np.arange(n_items)))


def made(name: str, **given: Any) -> Any:
    return build_federated(name, options(name, given))


def final(method: Any, clients: Clients, catalog: Catalog | None = None) -> Model:
    for model in simulate(UpdatePath(method, (), RING), clients, catalog or catalogue(clients.n_items), KEY):
        last = model
    return last


def drawn(people: int, items: int, seed: int = 0, most: int = 12) -> Clients:
    rng = np.random.default_rng(seed)
    return make_clients([sorted(rng.choice(items, rng.integers(1, most), replace=False)) for _ in range(people)], items)


# --- kernels beside loops --------------------------------------------------------------------------------------------


def put_both_ways(clients: Clients, put: Callable[[UpdateSink], None], width: int) -> tuple[Message, Total]:
    """Return the message and the total that a put of one row per item of each client gives."""
    plan = UpdatePlan(clients.ids, (PlannedRows("rows", clients.ptr, clients.items, True),))
    shapes = {"rows": (clients.n_items, width)}
    total = Total.zero(shapes)
    messages = []
    for into in (None, total):
        sink = UpdateSink(plan, (), RING, shapes, into)
        put(sink)
        messages.append(sink.finish()[0])
    assert messages[0] is not None
    return messages[0], total


def test_rows_of_outer_products_are_those_of_a_plain_loop() -> None:
    clients, rng = drawn(9, 14), np.random.default_rng(1)
    table, weights = rng.normal(size=(14, 3)).astype(np.float32), rng.uniform(0.2, 1, 14).astype(np.float32)
    sums = np.empty((9, 3), np.float32)
    client_sums(clients.ptr, clients.items, weights, table, sums)
    message, total = put_both_ways(clients, lambda sink: sink.put_outer(0, sums, weights, by_row=True), 3)
    rows = message.read(RING).tables["rows"].values
    expected = np.zeros((14, 3), np.int64)
    entry = 0
    for c in range(9):
        mine = clients.of(c)
        np.testing.assert_allclose(sums[c], (weights[mine, None] * table[mine]).sum(axis=0), rtol=1e-5, atol=1e-6)
        for item in mine:
            np.testing.assert_allclose(rows[entry], weights[item] * sums[c], atol=2.0**-20)
            expected[item] += np.rint(rows[entry] * RING.scale).astype(np.int64)
            entry += 1
    assert np.array_equal(total.sums["rows"], expected)
    assert np.array_equal(total.counts["rows"], np.bincount(clients.items, minlength=14))


def test_rows_of_normal_equations_are_those_of_a_plain_loop() -> None:
    clients, rng = drawn(5, 8, most=6), np.random.default_rng(2)
    people, shares = rng.normal(size=(5, 3)).astype(np.float32), rng.uniform(0.1, 1, 5).astype(np.float32)
    rows = np.empty((5, 9), np.float32)
    normal_rows(people, shares, np.array([0.5, 2.0], np.float32), RING.scale, rows)
    for p, s, row in zip(people, shares, rows, strict=True):
        np.testing.assert_allclose(row[:6], 0.5 * s * np.outer(p, p)[np.triu_indices(3)], atol=2.0**-20)
        np.testing.assert_allclose(row[6:], 2.0 * s * p, atol=2.0**-20)
    numbers = RING.encode(rows)
    message, total = put_both_ways(clients, lambda sink: sink.put_outer(0, rows), 9)
    expected = np.zeros((8, 9), np.int64)
    np.add.at(expected, clients.items, numbers[clients.rows])
    assert np.array_equal(message.tables["rows"][2], numbers[clients.rows])
    assert np.array_equal(total.sums["rows"], expected)
    assert np.array_equal(total.counts["rows"], np.bincount(clients.items, minlength=8))


# --- how much one person can add -------------------------------------------------------------------------------------


def part_of(outer: OuterSum, table: Floats, weights: Floats, one: Clients, ring: Ring = RING) -> Floats:
    plan = UpdatePlan(one.ids, (plan_items("basis", one),))
    sink = UpdateSink(plan, (), ring, {"basis": table.shape})
    outer.put(table, weights, one, plan, sink)
    message, _, is_fit = sink.finish()
    assert message is not None
    assert is_fit.all()
    return message.read(ring).tables["basis"].values


@pytest.mark.parametrize("v", [0.0, 0.25, 0.5])
@pytest.mark.parametrize("n", [1, 7, 60, 400])
def test_a_persons_part_of_an_outer_sum_is_bounded_and_the_bound_is_reached(v: float, n: int) -> None:
    """Frobenius norm <= n^(1 - 2v) 4096^(v - 1/2), plus half a step of the grid in every number."""
    outer, n_items = OuterSum(v), 500
    rng = np.random.default_rng(n)
    one = make_clients([sorted(rng.choice(n_items, n, replace=False).tolist())], n_items)
    rounding = 0.5 / float(RING.scale) * np.sqrt(n * 4)
    ones = np.ones(n_items, np.float32)
    for seed in range(5):
        table = np.linalg.qr(np.random.default_rng(seed).normal(size=(n_items, 4)))[0].astype(np.float32)
        weights = np.random.default_rng(seed).uniform(0, 1, n_items).astype(np.float32)
        assert np.linalg.norm(part_of(outer, table, weights, one)) <= outer.bound(n) * (1 + 1e-5) + rounding
    own = np.zeros((n_items, 4), np.float32)
    own[one.items, 0] = n**-0.5  # a basis that holds the client's own history is the worst case
    worst = part_of(outer, own, ones, one)
    np.testing.assert_allclose(np.linalg.norm(worst), outer.bound(n), rtol=1e-4, atol=rounding)
    np.testing.assert_allclose(np.abs(worst).max(), n ** (0.5 - 2 * v) * LONG_HISTORY ** (v - 0.5), rtol=1e-3)
    if v == 0.5:
        assert outer.bound(n) == 1.0


@pytest.mark.parametrize("alpha", [0.5, 2.0, 10.0])
def test_a_persons_vector_in_als_is_bounded_and_the_bound_is_reached(alpha: float) -> None:
    """|p|^2 <= (1 + alpha) n / (4 reg), whatever the item table is."""
    method = made("fed-als", alpha=alpha, reg=3.0, factors=4)
    n_items, n = 30, 9
    one = make_clients([list(range(n))], n_items)

    def length(items: Floats) -> float:
        shared = {"items": items}
        return float(np.linalg.norm(method.solve_users(shared, one)) ** 2)

    for seed, scale in enumerate((0.01, 0.1, 0.5, 1.0, 10.0, 100.0)):
        items = (np.random.default_rng(seed).normal(size=(n_items, 4)) * scale).astype(np.float32)
        assert length(items) <= method.bound(n) * (1 + 1e-4)
    worst = np.zeros((n_items, 4), np.float32)
    worst[:n, 0] = np.sqrt(3.0 / (n * (1 + alpha)))  # only the client's items have rows, as long as the bound allows
    np.testing.assert_allclose(length(worst), method.bound(n), rtol=1e-4)


@pytest.mark.parametrize("fraction", [12, 20, 23])
def test_the_longest_history_fits_the_ring(fraction: int) -> None:
    n, ring = int(LONG_HISTORY), Ring(fraction=fraction)
    for method in (made("fed-als", factors=2), made("fed-als", factors=2, reg=0.1, alpha=40.0)):
        longest = method.bound(n)
        scales = method.scales(ring)
        assert ring.largest / 2 < longest * scales[0] <= ring.largest
        assert ring.largest / 2 < np.sqrt(longest) * scales[1] <= ring.largest
    one = make_clients([list(range(n))], n)
    basis = np.full((n, 1), n**-0.5, np.float32)
    assert len(part_of(OuterSum(), basis, np.ones(n, np.float32), one, ring)) == n


def test_a_weighted_person_adds_at_most_a_constant_to_als() -> None:
    method = made("fed-als", alpha=2.0, reg=1.0, factors=3, user_weight=1.5)
    b = method.bound(1)
    for n in (1, 10, 100, 300):
        one = make_clients([list(range(n))], 300)
        items = np.zeros((300, 3), np.float32)
        items[:n, 0] = np.sqrt(1.0 / (n * 3))
        shared = {**method.init(one, catalogue(300), KEY).shared, "items": items}
        update, _ = learn_once(method, Model(shared, {}), one, KEY)
        s2, s1 = method.scales(RING)
        normal, gram = update.tables["normal"].values, update.tables["gram"].values
        length = np.sqrt(
            (normal[:, :6] ** 2).sum() / s2**2 + (normal[:, 6:] ** 2).sum() / s1**2 + (gram**2).sum() / s2**2
        )
        assert length <= np.sqrt(2 * b**2 + b) * 1.01


def test_a_large_catalogue_is_not_taken_for_divergence() -> None:
    """The Gramian of the items is a sum over them: it passes a bound that single vectors never reach."""
    rng = np.random.default_rng(0)
    people = make_clients([sorted(rng.choice(2000, 1000, replace=False)) for _ in range(20)], 2000)
    items = final(made("fed-als", factors=2, reg=1.0, epochs=1), people).shared["items"]
    assert np.abs(items).max() < 10
    assert np.abs(items.T @ items).max() > DIVERGENCE_LIMIT


# --- more than the data supports -------------------------------------------------------------------------------------


def test_directions_that_the_data_lacks_become_zero() -> None:
    clients = make_clients([[0, 1], [0, 1], [2, 3, 4], [2, 3, 4], [0, 1]], 8)  # rank 2; no client has 5, 6, 7
    method = made("fed-svd", factors=6, item_weight=0.0)
    model = final(method, clients)
    basis = model.shared["basis"]
    assert basis.any(axis=0).sum() == 2
    x = clients.matrix().toarray()
    np.testing.assert_allclose(method.score(model.shared, {}, clients), x, atol=1e-4)
    assert not basis[5:].any(), "an item without clients is given a direction"
    assert model.shared["angles"][-1] < 1e-3


def test_one_client_alone_finds_its_own_direction() -> None:
    clients = make_clients([[1, 4, 5]], 9)
    for name, given in (("fed-svd", {"factors": 4}), ("fed-als", {"factors": 4}), ("fed-ease", {"sketch": 4})):
        method = made(name, **given)
        scores = method.score(final(method, clients).shared, {}, clients)
        assert np.isfinite(scores).all()
        assert np.allclose(scores[0, [0, 2, 3, 6, 7, 8]], 0.0, atol=1e-6), "alone, no client knows other items"


def test_more_directions_than_items_are_refused() -> None:
    with pytest.raises(MethodError, match="12 directions among 8 items"):
        final(made("fed-svd", factors=12), drawn(5, 8, most=4))


def test_a_sketch_that_is_too_large_is_refused_before_it_is_made() -> None:
    with pytest.raises(MethodError, match=r"1,000,000 items with 128 numbers each.*"):
        made("fed-ease").init(make_clients([[0]], 1_000_000), catalogue(1_000_000), KEY)


def test_orthonormal_columns_have_one_sign_and_noise_is_dropped() -> None:
    rng = np.random.default_rng(0)
    y = rng.normal(size=(20, 3))
    y = np.column_stack([y, y[:, 0] + y[:, 1] + 1e-9 * rng.normal(size=20)])
    basis = orthonormal(y, 1e-6)
    np.testing.assert_allclose(basis.T @ basis, np.diag([1, 1, 1, 0]), atol=1e-9)
    assert (np.einsum("nk,nk->k", basis[:, :3], y[:, :3]) > 0).all()


@pytest.mark.parametrize("spread", [0, 3, 6, 9, 14])
def test_a_basis_is_that_of_reflections_whatever_the_lengths_of_columns(spread: int) -> None:
    """From some spread on, Gramians lose the short columns, and reflections take over."""
    rng = np.random.default_rng(spread)
    mixed = rng.normal(size=(300, 12)) * np.logspace(0, -spread, 12) @ rng.normal(size=(12, 12))
    basis, (expected, r) = orthonormal(mixed, 0.0), np.linalg.qr(mixed)
    np.testing.assert_allclose(basis.T @ basis, np.eye(12), atol=1e-13)
    np.testing.assert_allclose(basis, expected * np.sign(np.diag(r)), atol=1e-14 * 10**spread)


@pytest.mark.parametrize("n_rows", [3, 9])
def test_rows_of_zeros_change_no_basis(n_rows: int) -> None:
    """Fewer rows than columns span only so many directions; the other columns become zero."""
    few = np.random.default_rng(1).normal(size=(n_rows, 5))
    y = np.zeros((40, 5))
    y[np.arange(n_rows) * 4] = few
    basis, expected = orthonormal(y, 1e-9), np.linalg.qr(y)[0]
    rank = min(n_rows, 5)
    np.testing.assert_allclose(np.abs(basis[:, :rank]), np.abs(expected[:, :rank]), atol=1e-12)
    assert not basis[:, rank:].any()
    assert (np.flatnonzero(basis.any(axis=1)) == np.arange(n_rows) * 4).all()


def test_principal_angles_shrink_round_by_round() -> None:
    angles = final(made("fed-svd", factors=3, epochs=12), drawn(200, 20)).shared["angles"]
    assert len(angles) == 12
    assert angles[0] > 0.5
    assert angles[-1] < 0.2 * angles[1]
    half = np.eye(4)[:, :2]
    assert largest_angle(half, half) == 0.0
    np.testing.assert_allclose(largest_angle(half, np.eye(4)[:, 1:3]), np.pi / 2)


def test_histories_without_repeats_are_left_as_they_are() -> None:
    once = make_clients([[1, 2], [2], [2, 3]], 5)
    assert distinct(once) is once
    again = distinct(make_clients([[1, 1, 2], [2], [2, 3, 3]], 5))
    assert again.items.tolist() == [1, 2, 2, 2, 3]
    assert again.ptr.tolist() == [0, 2, 3, 5]


# --- EASE from a sketch ----------------------------------------------------------------------------------------------


def test_a_sketch_as_wide_as_the_rank_is_exact() -> None:
    rng = np.random.default_rng(3)
    half = rng.normal(size=(30, 5))
    g, s = half @ half.T, np.linalg.qr(rng.normal(size=(30, 7)))[0]
    directions, values = fed_ease.nystrom(s, g @ s, 1e-9)
    np.testing.assert_allclose(directions * values @ directions.T, g, atol=1e-6)


def test_a_sketch_of_nothing_but_noise_has_no_direction() -> None:
    s = np.linalg.qr(np.random.default_rng(3).normal(size=(30, 4)))[0]
    g = np.zeros((30, 30))
    g[0, 0] = 1.0
    directions, values = fed_ease.nystrom(s, g @ s, 10.0)
    assert directions.shape == (30, 0)
    _, diagonal = fed_ease.invert_low_rank(directions, values, np.full(30, 300.0))
    np.testing.assert_allclose(diagonal, 1 / 300)


def test_models_of_one_method_begin_with_the_sketch_of_their_key() -> None:
    method, people = made("fed-ease", sketch=4), drawn(5, 20)
    first, again, other = (method.init(people, catalogue(20), key).shared["sketch"] for key in (KEY, KEY, Key(6)))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    fresh = made("fed-ease", sketch=4).init(people, catalogue(20), KEY).shared["sketch"]
    np.testing.assert_array_equal(first, fresh)
    assert method.init(drawn(5, 30), catalogue(30), KEY).shared["sketch"].shape == (30, 4)


def test_the_inverse_is_a_diagonal_plus_a_low_rank() -> None:
    rng = np.random.default_rng(4)
    u, values, d = np.linalg.qr(rng.normal(size=(12, 4)))[0], rng.uniform(1, 9, 4), rng.uniform(1, 3, 12)
    maps, diagonal = fed_ease.invert_low_rank(u, values, d)
    inverse = np.linalg.inv(u * values @ u.T + np.diag(d))
    np.testing.assert_allclose(np.diag(1 / d) - maps @ maps.T, inverse, atol=1e-10)
    np.testing.assert_allclose(diagonal, np.diag(inverse), atol=1e-10)


# --- starting from an earlier run ------------------------------------------------------------------------------------

SMALL: dict[str, dict[str, Any]] = {
    "fed-svd": {"factors": 8},
    "fed-als": {"factors": 8, "reg": 5.0},
    "fed-ease": {"sketch": 24, "reg": 20.0},
}
TABLE = {"fed-svd": "basis", "fed-als": "items", "fed-ease": "sketch"}


def experiment(name: str, **given: Any) -> Experiment:
    return Experiment.from_options(
        {"seed": 3, "method": {"name": name, **SMALL[name], **given}, "evaluation": {"local_only_users": 0}}, "test"
    )


@pytest.fixture(scope="module")
def town() -> Dataset:
    return load("town", users=400, places=120, visits=30)


def alike(left: Recommender, right: Recommender) -> float:
    """How two models' scores go together, person by person."""
    found = (one.method.score(one.model.shared, {}, left.clients) for one in (left, right))
    return float(np.mean([np.corrcoef(a, b)[0, 1] for a, b in zip(*found, strict=True)]))


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_one_round_from_an_earlier_run_is_close_to_a_full_one(name: str, town: Dataset, tmp_path: Path) -> None:
    """A twentieth of the people is new, and of what the others did."""
    log, old = town.interactions, np.random.default_rng(1).uniform(size=len(town.interactions.users)) < 0.95
    run(experiment(name, epochs=12), data=some(town, (log.users < 380) & old), folder=tmp_path / "old")
    full = run(experiment(name, epochs=12), data=town)
    cold = run(experiment(name, epochs=1), data=town)
    warm = run(experiment(name, epochs=1, warm_start=str(tmp_path / "old")), data=town)
    near, far = (alike(full.recommender, other.recommender) for other in (warm, cold))
    assert near > 0.9 > 0.7 > far, f"{near:.2f} with, {far:.2f} without the earlier run"
    assert warm.metrics["NDCG@10"] > 0.95 * full.metrics["NDCG@10"]
    assert cold.metrics["NDCG@10"] < 0.95 * full.metrics["NDCG@10"]


def some(dataset: Dataset, kept: Any) -> Dataset:
    log = dataset.interactions
    times = None if log.times is None else log.times[kept]
    values = None if log.values is None else log.values[kept]
    rest = replace(log, users=log.users[kept], items=log.items[kept], values=values, times=times)
    return replace(dataset, interactions=rest)


@pytest.mark.parametrize("name", SMALL)
def test_items_of_an_earlier_run_are_found_by_label(name: str, town: Dataset, tmp_path: Path) -> None:
    old = run(experiment(name), data=town, folder=tmp_path / "old").recommender
    labels = old.catalog.item_ids.labels
    order = np.random.default_rng(0).permutation(len(labels))
    fresh = np.array([f"new {i}" for i in range(3)], dtype=object)
    shuffled = Catalog(Vocabulary(np.concatenate([labels[order].astype(object), fresh])))
    one = make_clients([[0, 1]], shuffled.n_items)
    warm, cold = (
        made(name, **SMALL[name], warm_start=start).init(one, shuffled, KEY).shared[TABLE[name]]
        for start in (str(tmp_path / "old"), None)
    )
    assert np.abs(warm[-3:]).max() > 0, "new items start from nothing"
    before = old.model.shared[TABLE[name]][order]
    if name == "fed-als":
        assert np.array_equal(warm[:-3], before)
        assert np.array_equal(warm[-3:], cold[-3:])
    else:  # orthonormalised again: the same directions
        across = np.linalg.svd(np.linalg.qr(before)[0].T @ np.linalg.qr(warm[:-3])[0], compute_uv=False)
        assert across.min() > 0.9


def test_an_earlier_run_that_does_not_fit_is_refused(town: Dataset, tmp_path: Path) -> None:
    run(experiment("fed-svd"), data=town, folder=tmp_path / "svd")
    here, catalog = (
        make_clients([[0, 1]], 5),
        Catalog(Vocabulary(np.array([f"else {i}" for i in range(5)], dtype=object))),
    )
    (tmp_path / "cut" / "model").mkdir(parents=True)
    whole = (tmp_path / "svd" / "model" / "model.npz").read_bytes()
    (tmp_path / "cut" / "model" / "model.npz").write_bytes(whole[:200])
    cases = [
        ("fed-svd", tmp_path / "nowhere", "holds no readable run"),
        ("fed-svd", tmp_path / "cut", "holds no readable run"),
        ("fed-als", tmp_path / "svd", "has no 'items'"),
        ("fed-svd", tmp_path / "svd", "no item of this catalogue"),
    ]
    for name, folder, said in cases:
        with pytest.raises(MethodError, match=said):
            made(name, factors=2, warm_start=str(folder)).init(here, catalog, KEY)
