"""What holds for every method by sums: as good as a centralised one, bit for bit the sum of its messages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tacit.lab.simulation import SimulationOptions, simulate
from tacit.lab.traffic import Traffic
from tacit.methods.base import build, options
from tacit.privacy.disclosure import Disclosure, DisclosureConfig
from tacit.protocols.federated import UpdatePath, device_round, server_round
from tacit.random import Key
from tacit.types import Catalog, Clients, Model, Vocabulary, offsets
from tacit.updates import Message, Ring, Total

KEY = Key(11).child("learn")
RING = Ring()
SMALL: dict[str, dict[str, Any]] = {
    "fed-svd": {"factors": 6, "epochs": 4},
    "fed-als": {"factors": 5, "epochs": 4, "reg": 2.0},
    "fed-ease": {"sketch": 16, "epochs": 2, "reg": 5.0},
    "fed-slist": {"factors": 8, "epochs": 2, "reg": 5.0},
}
World = tuple[Clients, Catalog]


def world(people: int = 120, items: int = 40, seed: int = 3) -> World:
    """Clients with skewed tastes; none has the last item."""
    rng = np.random.default_rng(seed)
    taste = rng.dirichlet(np.full(items - 1, 0.3), size=5)
    histories = [
        np.sort(
            rng.choice(
                items - 1, size=int(rng.integers(3, 15)), replace=False, p=0.9 * taste[p % 5] + 0.1 / (items - 1)
            )
        )
        for p in range(people)
    ]
    ptr = offsets(np.array([len(h) for h in histories]))
    places = rng.permutation(ptr[-1]).astype(np.int32)  # in any order
    clients = Clients(np.arange(people), ptr, np.concatenate(histories).astype(np.int32), items, places=places)
    vectors = rng.normal(size=(items, 4)).astype(np.float32)
    return clients, Catalog(Vocabulary(np.arange(items) + 100), vectors=vectors)


def made(name: str, **given: Any) -> Any:
    return build(name, options(name, SMALL[name] | given))


def disclosing(there: World, **given: Any) -> Disclosure:
    people = Vocabulary(np.arange(len(there[0])))
    return Disclosure.build(DisclosureConfig.from_options(given, "privacy"), people, there[1], Key(3))


def final(
    method: Any,
    there: World,
    stages: Any = (),
    ring: Ring = RING,
    *,
    traffic: Traffic | None = None,
    reference: bool = False,
) -> Model:
    for model in simulate(
        UpdatePath(method, stages, ring), *there, KEY, traffic, SimulationOptions(reference=reference)
    ):
        last = model
    return last


def sent_by(method: Any, shared: Any, clients: Clients, stages: Any = ()) -> Message:
    message = device_round(UpdatePath(method, stages, RING), Model(shared, {}), clients, KEY, 0).message
    assert message is not None
    return message


def start_of(method: Any, there: World) -> dict[str, NDArray[np.float64]]:
    shared = method.init(*there, KEY.child("init")).shared
    return {name: array.astype(np.float64) for name, array in shared.items()}


def assert_equal_models(left: Model, right: Model) -> None:
    assert left.shared.keys() == right.shared.keys()
    for name, array in left.shared.items():
        assert np.array_equal(array, right.shared[name]), f"'{name}' differs"


# --- each equals its centralised method ---------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [(0.25, 0.0), (0.0, 0.0), (0.5, 0.5)])
def test_fed_svd_is_subspace_iteration_in_one_place(weights: tuple[float, float]) -> None:
    there = world()
    method = made("fed-svd", item_weight=weights[0], user_weight=weights[1])
    x = there[0].matrix().toarray().astype(np.float64)
    x_people = x * (x.sum(axis=1) ** -weights[1])[:, None]
    q = start_of(method, there)["basis"]
    w = np.ones(x.shape[1])
    for number in range(method.config.epochs):
        g = (x_people * w).T @ (x_people * w)
        y = g @ q
        if number == 0:
            w = np.maximum(x.sum(axis=0), 1) ** -weights[0]
            y *= w[:, None]
        q = np.linalg.qr(y)[0]
    expected = ((x * w) @ q @ q.T) / w
    found = final(method, there)
    scores = method.score(found.shared, found.private, there[0])
    np.testing.assert_allclose(found.shared["weights"], w, rtol=1e-6)
    np.testing.assert_allclose(scores, expected, atol=2e-3 * np.abs(expected).max())


@pytest.mark.parametrize("v", [0.0, 1.5])
def test_fed_als_is_als_in_one_place(v: float) -> None:
    there = world()
    method = made("fed-als", user_weight=v)
    c, x = method.config, there[0].matrix().toarray().astype(np.float64)
    share = np.maximum(x.sum(axis=1), 1) ** -v

    def solved(rows: NDArray[np.float64], fixed: NDArray[np.float64], s: NDArray[np.float64]) -> NDArray[np.float64]:
        gram = (fixed * s[:, None]).T @ fixed + c.reg * np.eye(c.factors)
        systems = [gram + c.alpha * (fixed * (row * s)[:, None]).T @ fixed for row in rows]
        sides = (1 + c.alpha) * rows @ (fixed * s[:, None])
        return np.array([np.linalg.solve(a, b) for a, b in zip(systems, sides, strict=True)])

    items = start_of(method, there)["items"]
    for _ in range(c.epochs):
        people = solved(x, items, np.ones(len(items)))
        items = solved(x.T, people, share)
    found = final(method, there)
    np.testing.assert_allclose(found.shared["items"], items, atol=2e-3 * np.abs(items).max())
    assert not found.shared["items"][-1].any(), "no client has the last item"


def test_fed_als_and_als_agree_on_the_objective() -> None:
    """From the same item table, both take the same step on both sides."""
    there = world()
    ours = made("fed-als", epochs=1)
    theirs = build("als", options("als", {"factors": 5, "reg": 2.0, "epochs": 1}))
    x, start = there[0].matrix(), start_of(ours, there)["items"].astype(np.float32)
    people = theirs._solve(x, start)
    items = theirs._solve(x.tocsc(), people)
    found = final(ours, there)
    np.testing.assert_allclose(found.shared["items"], items, atol=1e-3 * np.abs(items).max())
    unknown = Clients(np.full(len(there[0]), -1), there[0].ptr, there[0].items, there[0].n_items)
    own = theirs.score({"items": found.shared["items"]}, {}, unknown)
    np.testing.assert_allclose(ours.score(found.shared, {}, unknown), own, atol=1e-5)


@pytest.mark.parametrize(("people", "exact"), [(120, True), (120, False), (25, True)])
def test_fed_ease_with_a_full_sketch_is_ease(people: int, exact: bool) -> None:
    there = world(people)
    method = made("fed-ease", sketch=10_000, epochs=1, exact_diagonal=exact)
    ease = build("ease", options("ease", {"reg": method.config.reg}))
    model = next(iter(ease.fit(*there, KEY)))
    expected = ease.score(model.shared, model.private, there[0])
    found = final(method, there)
    scores = method.score(found.shared, found.private, there[0])
    np.testing.assert_allclose(scores, expected, atol=2e-3 * np.abs(expected).max())


@pytest.mark.parametrize("given", [{}, {"decay": 8.0, "target_decay": 0.0}, {"user_weight": 0.5, "target_decay": 3.0}])
def test_fed_slist_at_full_width_is_slist(given: dict[str, float]) -> None:
    there = world()
    method = made("fed-slist", factors=10_000, epochs=1, **given)
    slist = build("slist", options("slist", {"reg": method.config.reg, **given}))
    model = next(iter(slist.fit(*there, KEY)))
    expected = slist.score(model.shared, model.private, there[0])
    found = final(method, there)
    scores = method.score(found.shared, found.private, there[0])
    np.testing.assert_allclose(scores, expected, atol=5e-4 * np.abs(expected).max())


def test_a_wider_basis_is_nearer_to_slist() -> None:
    there = world(200, 60)
    slist = build("slist", options("slist", {"reg": 5.0}))
    expected = slist.score(next(iter(slist.fit(*there, KEY))).shared, {}, there[0])

    def off(factors: int) -> float:
        method = made("fed-slist", factors=factors, epochs=3)
        return float(np.abs(method.score(final(method, there).shared, {}, there[0]) - expected).mean())

    assert off(5) > off(20) > off(45) > off(60)


def test_rows_of_fed_slist_are_bounded_however_long_a_history_is() -> None:
    """No number above 1; at user_weight 0.5 no whole message longer than sqrt 2, and rounding."""
    n, rng = 600, np.random.default_rng(1)
    client = Clients(
        np.array([0]), np.array([0, n]), np.arange(n, dtype=np.int32), n, places=rng.permutation(n).astype(np.int32)
    )
    for decays in ((3.0, 1.0), (100.0, 100.0), (0.5, 0.0)):
        for v in (0.0, 0.5):
            given = {"factors": 4, "decay": decays[0], "target_decay": decays[1], "user_weight": v}
            method = build("fed-slist", options("fed-slist", given))
            shared = dict(method.init(client, Catalog(Vocabulary(np.arange(n))), KEY).shared)
            for table in ("basis", "targets"):  # the worst case: all rows are one direction of length 1
                shared[table] = np.tile(np.eye(4, dtype=np.float32)[0], (n, 1))
            for solves in (0, 1):
                shared["solves"] = np.array([solves], np.float32)
                numbers = sent_by(method, shared, client).read(RING).tables["steps"].values
                assert 0 < np.abs(numbers).max() <= 1.0 + 1e-5
                if v == 0.5:
                    assert np.linalg.norm(numbers) <= np.sqrt(1.0 + solves) + 1e-3


def test_a_wider_sketch_is_nearer_to_ease() -> None:
    there = world(200, 60)
    ease = build("ease", options("ease", {"reg": 5.0}))
    model = next(iter(ease.fit(*there, KEY)))
    expected = ease.score(model.shared, model.private, there[0])

    def off(sketch: int, exact: bool = True) -> float:
        method = made("fed-ease", sketch=sketch, exact_diagonal=exact)
        found = final(method, there)
        return float(np.abs(method.score(found.shared, found.private, there[0]) - expected).mean())

    assert off(10) > off(30) > off(50) > off(60)
    assert off(10) < off(10, exact=False), "the counts do not mend the sketch"


# --- sums and messages ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize(
    "stage", [None, {"pi": 0.4}, {"pi": 0.4, "coin": "item"}, {"never_items": (103, 110)}, {"pi": 0.0}]
)
@pytest.mark.parametrize("ring", [Ring(), Ring(bits=32, fraction=14)])
def test_adding_cohorts_at_once_equals_writing_every_message(name: str, stage: Any, ring: Ring) -> None:
    there = world()
    stages = [] if stage is None else [disclosing(there, **stage)]
    counted = [Traffic.none(len(there[0])) for _ in range(2)]
    at_once, plain = (
        final(made(name), there, stages, ring, traffic=traffic, reference=reference)
        for traffic, reference in zip(counted, (False, True), strict=True)
    )
    assert_equal_models(at_once, plain)
    for left, right in zip(vars(counted[0]).values(), vars(counted[1]).values(), strict=True):
        assert np.array_equal(left, right)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize(
    "stage",
    [{"pi": 0.5}, {"pi": 0.5, "coin": "item"}, {"pi": 0.5, "coin": "once"}, {"never_items": (100, 101, 102, 105, 110)}],
)
def test_what_is_kept_back_has_no_part_in_what_leaves(name: str, stage: Any) -> None:
    """A message is that of a client whose history holds the disclosed items alone."""
    there, method = world(), made(name)
    clients, held = there[0], 0
    shared = method.init(*there, KEY).shared
    for c in range(20):
        one = clients.take([c])
        sent = sent_by(method, shared, one, [disclosing(there, **stage)])
        ids = sent.tables[method.spec.item_tables[0]][1]
        held += len(one.items) - len(ids)
        lesser = one.keep(np.isin(one.items, ids))
        bare = sent_by(method, shared, lesser)
        for table in method.spec.tables:
            assert np.array_equal(sent.tables[table][1], bare.tables[table][1])
            assert np.array_equal(sent.tables[table][2], bare.tables[table][2]), "a row depends on what was kept back"
    assert held > 20


@pytest.mark.parametrize("name", SMALL)
def test_a_sum_without_some_clients_is_the_sum_of_the_others(name: str) -> None:
    """Dropouts: the model is exactly that of those who answered."""
    there, method = world(), made(name)
    answered = np.arange(0, len(there[0]), 3)
    shared = method.init(*there, KEY.child("init")).shared
    for _ in method.schedule(there[0]).rounds_of(0):
        total = Total.zero(method.shapes(shared))
        for c in answered:
            total.add(sent_by(method, shared, there[0].take([c])))
        shared = server_round(UpdatePath(method, (), RING), shared, total)
    expected = final(made(name, epochs=1), (there[0].take(answered), there[1]))
    assert_equal_models(Model(shared, {}), expected)


@pytest.mark.parametrize("name", SMALL)
def test_an_empty_sum_leaves_the_model_as_it_is(name: str) -> None:
    there, method = world(), made(name)
    before = method.init(*there, KEY.child("init"))
    silent = final(method, there, [disclosing(there, pi=0.0)])
    assert_equal_models(silent, before)
    nothing = Clients(np.arange(4), np.zeros(5, np.int64), np.zeros(0, np.int32), there[0].n_items)
    empty = final(method, (nothing, there[1]))
    assert np.isfinite(method.score(empty.shared, {}, nothing)).all()
    after = final(method, there)
    assert not method.score(after.shared, {}, nothing).any(), "a client without a history gets scores"


@pytest.mark.parametrize("name", SMALL)
def test_what_a_user_did_twice_counts_once(name: str) -> None:
    there, method = world(), made(name)
    clients = there[0]
    assert clients.places is not None
    places = np.ravel([clients.places, clients.places + len(clients.places)], order="F").astype(np.int32)
    twice = Clients(clients.ids, 2 * clients.ptr, np.repeat(clients.items, 2), clients.n_items, places=places)
    for reference in (False, True):
        once, again = final(method, there), final(method, (twice, there[1]), reference=reference)
        assert_equal_models(once, again)
    assert np.array_equal(method.score(once.shared, {}, clients), method.score(once.shared, {}, twice))


@pytest.mark.parametrize("name", SMALL)
def test_numbers_that_are_none_are_refused_on_both_paths(name: str) -> None:
    there, method = world(), made(name)
    shared = dict(method.init(*there, KEY.child("init")).shared)
    table = method.spec.downloads[0]
    shared[table] = np.full_like(shared[table], np.nan)
    message = sent_by(method, shared, there[0])
    assert not len(message.clients)
    assert np.array_equal(message.withheld, there[0].ids)
    total = Total.zero(method.shapes(shared))
    given = device_round(UpdatePath(method, (), RING), Model(shared, {}), there[0], KEY, 0, total)
    assert not given.is_fit.any()
    assert not any(sums.any() for sums in total.sums.values())
    assert total.n_clients == 0


# --- people, new and old ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SMALL)
def test_a_new_user_folds_in_from_a_history_alone(name: str) -> None:
    there, method = world(), made(name)
    model = final(method, there)
    assert not model.private
    known = method.score(model.shared, {}, there[0].take([7]))
    made_up_client = replace(there[0].take([7]), ids=np.array([-1]))
    assert np.array_equal(method.score(model.shared, {}, made_up_client), known)


@pytest.mark.parametrize("name", SMALL)
def test_two_tastes_are_distinguished(name: str, tastes: World) -> None:
    clients, catalog = tastes
    method = made(name, **({"factors": 2} if name != "fed-ease" else {}))
    model = final(method, tastes)
    scores = method.score(model.shared, {}, clients)
    unseen = clients.matrix().toarray() == 0
    own = (np.arange(catalog.n_items)[None, :] % 2) == (clients.ids[:, None] % 2)
    right = np.nanmean(np.where(unseen & own, scores, np.nan), 1) > np.nanmean(
        np.where(unseen & ~own, scores, np.nan), 1
    )
    assert right.mean() > 0.95


@pytest.mark.parametrize("name", SMALL)
def test_reasons_add_up_to_the_score(name: str) -> None:
    there, method = world(), made(name)
    model = final(method, there)
    one = there[0].take([3])
    scores = method.score(model.shared, {}, one)[0]
    scores[one.items] = -np.inf
    found = method.explain(model.shared, {}, one, int(scores.argmax()))
    assert found
    assert all(reason.about in one.items and 0 < reason.weight <= 1 for reason in found)


OPTIONS = [
    (name, field)
    for name in SMALL
    for field in type(made(name).config).model_fields
    if field != "warm_start"  # has tests of its own
]


@pytest.mark.parametrize(("name", "field"), OPTIONS)
def test_every_option_has_an_effect(name: str, field: str) -> None:
    there = world()
    value = getattr(made(name).config, field)
    other: Any = (
        {}  # with the options that it has by default
        if field == "cold_items"
        else 0.5
        if value is None
        else not value
        if isinstance(value, bool)
        else value - 1
        if isinstance(value, int)
        else value / 2 or 0.5
    )
    usual, changed = made(name), made(name, **{field: other})
    before, after = (m.score(final(m, there).shared, {}, there[0]) for m in (usual, changed))
    assert not np.allclose(before, after, rtol=1e-5, atol=1e-7), f"{name}.{field} = {other!r} changes nothing"
