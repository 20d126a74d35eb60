"""What holds for every registered federated method: devices and cohorts, messages and sums, what leaves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tacit.lab import shards
from tacit.lab.simulation import SimulationOptions, simulate
from tacit.lab.traffic import Traffic
from tacit.lab.training import passes
from tacit.methods.base import Federated, build_federated, entry, names, options
from tacit.privacy.clipping import Clipping
from tacit.privacy.disclosure import Disclosure, DisclosureConfig
from tacit.privacy.update_sink import Stage, row_bytes
from tacit.protocols.federated import UpdatePath, device_round, server_round
from tacit.protocols.weighing import Weighing
from tacit.random import Key
from tacit.testing import check_federated, make_clients
from tacit.types import Array, Catalog, Clients, Model, Vocabulary
from tacit.updates import Message, Ring, Total, Update, UpdatePlan

FEDERATED = names("federated")
KEY = Key(7).child("learn")
RING = Ring()
World = tuple[Clients, Catalog]


def quick(name: str, **given: Any) -> Any:
    fields = entry(name).config.model_fields
    few = {"epochs": 3, "factors": 6, "learning_rate": 0.05}
    return build_federated(name, options(name, {k: v for k, v in few.items() if k in fields} | given))


def disclosing(world: World, **given: Any) -> Disclosure:
    config = DisclosureConfig.from_options(given, "privacy")
    return Disclosure.build(config, Vocabulary(np.arange(len(world[0]))), world[1], Key(3))


def assert_same(left: Mapping[str, Array], right: Mapping[str, Array]) -> None:
    assert left.keys() == right.keys()
    for name, array in left.items():
        assert array.dtype == right[name].dtype
        assert np.array_equal(array, right[name]), f"'{name}' differs"


def final(models: Iterator[Model]) -> Model:
    for model in models:
        last = model
    return last


# --- a device is a cohort of one ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", FEDERATED)
def test_every_method_keeps_the_contract(name: str, tastes: World) -> None:
    """A client alone, in a cohort and in any order; messages and sums; declarations; with and without stages."""
    check_federated(quick(name), *tastes)


@pytest.mark.parametrize("name", FEDERATED)
def test_a_server_leaves_its_inputs_untouched(name: str, tastes: World) -> None:
    clients, catalog = tastes
    method = quick(name)
    model = method.init(clients, catalog, KEY)
    before = model.copy()
    path, total = UpdatePath(method, (), RING), Total.zero(method.shapes(model.shared))
    device_round(path, model, clients, KEY, 0, total)
    server_round(path, model.shared, total)
    assert_same(model.shared, before.shared)
    assert_same(model.private, before.private)


# --- sums -----------------------------------------------------------------------------------------------------------


def narrowed(method: Federated, model: Model, client: Clients, position: int) -> Model:
    """What one client of a cohort learns from."""
    one = np.array([position])
    return Model(method.spec.received(model.shared, client.ids), model.take(one).private)


def added(method: Federated, shared: Mapping[str, Array], messages: Sequence[Message]) -> Total:
    total = Total.zero(method.shapes(shared))
    for message in messages:
        total.add(message)
    return total


def messages_of(
    method: Any, world: World, stages: Sequence[Stage] = (), ring: Ring = RING
) -> tuple[Model, list[Message]]:
    """Every client as a device of its own."""
    clients, catalog = world
    model = method.init(clients, catalog, KEY.child("init"))
    path, sent = UpdatePath(method, stages, ring), []
    for c in range(len(clients)):
        client = clients.take(np.array([c]))
        message = device_round(path, narrowed(method, model, client, c), client, KEY, 0).message
        assert message is not None
        sent.append(message)
    return model, sent


@pytest.mark.parametrize("name", FEDERATED)
def test_messages_reveal_order_only_where_the_method_declares_it(name: str, tastes: World) -> None:
    clients, catalog = tastes
    method = quick(name)
    model = method.init(clients, catalog, KEY.child("init"))
    one = clients.take(np.array([3]))
    assert one.places is not None
    turned = replace(one, places=one.places.max() - one.places, times=one.times)
    path, own = UpdatePath(method, (), RING), narrowed(method, model, one, 3)
    first, second = (device_round(path, own, client, KEY, 0).message for client in (one, turned))
    assert first is not None
    assert second is not None
    same = all(np.array_equal(first.tables[table][2], second.tables[table][2]) for table in first.tables)
    assert same != method.spec.shows_order


@pytest.mark.parametrize("name", FEDERATED)
def test_the_order_of_arrival_does_not_matter_and_devices_equal_the_simulation(name: str, tastes: World) -> None:
    fields = entry(name).config.model_fields
    method = quick(name, **({"rounds": 1} if "rounds" in fields else {"epochs": 1} if "epochs" in fields else {}))
    path = UpdatePath(method, [disclosing(tastes, pi=0.5)], RING)
    model, sent = messages_of(method, tastes, path.stages)
    forwards, backwards = (
        server_round(path, model.shared, added(method, model.shared, inbox)) for inbox in (sent, sent[::-1])
    )
    assert_same(forwards, backwards)
    if method.schedule(tastes[0]).rounds == 1:
        assert_same(forwards, final(simulate(path, *tastes, KEY)).shared)


@pytest.mark.parametrize("name", FEDERATED)
def test_sums_have_a_zero_and_may_be_grouped_at_will(name: str, tastes: World) -> None:
    method = quick(name)
    model, sent = messages_of(method, tastes)
    zero = added(method, model.shared, [])
    a, b, c = (added(method, model.shared, [message]) for message in sent[:3])
    for left, right in (((a + b) + c, a + (b + c)), (a + b, b + a), (zero + a, a)):
        assert_same(left.sums, right.sums)
        assert_same(left.counts, right.counts)
        assert left.n_clients == right.n_clients


CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "sFPL": {"preset": "sFPL"},
    "sFPL+": {"preset": "sFPL+"},
    "pFPL": {"preset": "pFPL", "epochs": 1},
    "pFPL+": {"preset": "pFPL+"},
    "between": {"clients_per_round": 7, "local_steps": 3, "rounds": 12},
    "a few alone": {"clients_per_round": 1, "local_steps": 4, "rounds": 60},
}
STAGES = [(1.0, "row"), (0.3, "row"), (0.3, "item"), (0.3, "once"), (0.0, "row")]


def assert_reference_equals(path: UpdatePath, world: World) -> None:
    """Message by message and cohorts at once: the same models, and the same traffic."""
    counted = [Traffic.none(len(world[0])) for _ in range(2)]
    at_once, reference = (
        final(simulate(path, *world, KEY, traffic, SimulationOptions(reference=is_reference)))
        for traffic, is_reference in zip(counted, (False, True), strict=True)
    )
    assert_same(at_once.shared, reference.shared)
    assert_same(at_once.private, reference.private)
    assert_same(vars(counted[0]), vars(counted[1]))


@pytest.mark.slow
@pytest.mark.parametrize("configuration", CONFIGURATIONS)
@pytest.mark.parametrize(("pi", "coin"), STAGES)
@pytest.mark.parametrize(("step", "bits"), [("sequential", 64), ("batch", 64), ("sequential", 32), ("batch", 32)])
def test_configurations_of_fpl_equal_their_messages(
    configuration: str, pi: float, coin: str, step: str, bits: int, tastes: World
) -> None:
    method = quick("fpl", **({"epochs": 2} | CONFIGURATIONS[configuration]), step=step)
    stage = disclosing(tastes, pi=pi, coin=coin, never_items=(104,))
    assert_reference_equals(UpdatePath(method, [stage], Ring(bits=bits)), tastes)


@pytest.mark.parametrize("configuration", ["pFPL", "pFPL+", "between"])
@pytest.mark.parametrize("limits", [(0.05, np.inf), (np.inf, 0.1), (0.05, 0.1), (4.0, 15.0), (100.0, 50.0)])
@pytest.mark.parametrize(("step", "pi"), [("sequential", 1.0), ("sequential", 0.3), ("batch", 0.3)])
def test_configurations_of_fpl_equal_their_messages_when_clipped(
    configuration: str, limits: tuple[float, float], step: str, pi: float, tastes: World
) -> None:
    """Limits that shorten everything, some and nothing, and some that the ring cannot hold."""
    method = quick("fpl", **({"epochs": 2} | CONFIGURATIONS[configuration]), step=step)
    stages = [disclosing(tastes, pi=pi, never_items=(104,)), Clipping(*limits)]
    assert_reference_equals(UpdatePath(method, stages, RING), tastes)


def test_clipped_sums_of_fpl_may_be_larger_than_32_bits(tastes: World) -> None:
    clients, catalog = tastes
    method = quick("fpl", clients_per_round=0, local_steps=1000, step="batch")
    drawn = method.init(clients, catalog, KEY)
    users = np.full_like(drawn.private["p"], 3.0)
    users[1::2] *= -1  # the other taste: what one likes and the other does not is pulled the same way
    users[:, -1] = 1.0
    model, path = Model(drawn.shared, {"p": users}), UpdatePath(method, [Clipping(row=15.0)], RING)
    total = Total.zero(method.shapes(model.shared))
    at_once = device_round(path, model, clients, KEY, 0, total)
    alone = device_round(path, model, clients, KEY, 0)
    assert alone.message is not None
    expected = added(method, model.shared, [alone.message])
    assert np.abs(expected.sums["items"]).max() >= 2**31
    assert_same(total.sums, expected.sums)
    assert_same(total.counts, expected.counts)
    assert_same(at_once.private, alone.private)


def test_without_any_stage_the_kernel_of_single_clients_equals_messages_too(tastes: World) -> None:
    for given in CONFIGURATIONS.values():
        assert_reference_equals(UpdatePath(quick("fpl", **given), [], RING), tastes)


@pytest.mark.parametrize(
    "given",
    [
        {"clients_per_round": 1, "local_steps": 5000, "rounds": 2},
        {"clients_per_round": 0, "local_steps": 1, "epochs": 1},
    ],
)
def test_rounds_of_fpl_in_a_kernel_may_have_sums_above_32_bits(given: dict[str, Any]) -> None:
    clients = make_clients([[0, 1] if c % 8 else [0, 2] for c in range(600)], 4)
    catalog = Catalog(Vocabulary(np.arange(4)))
    method = build_federated("fpl", options("fpl", {"factors": 4, "learning_rate": 1e-4, "init_scale": 3.0, **given}))
    model = method.init(clients, catalog, KEY)
    assert method.run_rounds(model, clients, RING, None, KEY, range(2)) is None, "32 bits might not hold the sums"
    assert_reference_equals(UpdatePath(method, [], RING), (clients, catalog))


class Noting(Stage):
    """Notes which items each client sends about."""

    def __init__(self) -> None:
        self.sent: dict[int, set[int]] = {}

    def narrow(self, plan: UpdatePlan, key: Key) -> UpdatePlan:
        for part in plan.parts:
            marks = np.flatnonzero(part.marks() & (np.ones(part.n_rows, bool) if part.kept is None else part.kept > 0))
            for client, row in zip(np.searchsorted(part.ptr, marks, "right") - 1, marks, strict=True):
                assert part.ids is not None
                self.sent.setdefault(int(plan.clients[client]), set()).add(int(part.ids[row]))
        return plan


@pytest.mark.parametrize("name", ["fpl", "fed-svd", "fed-als", "fed-gmf"])
def test_an_item_that_was_kept_back_once_is_kept_back_in_every_round(name: str, tastes: World) -> None:
    clients, _ = tastes
    shares = {}
    for coin in ("item", "once"):
        noting = Noting()
        path = UpdatePath(quick(name, epochs=6), [disclosing(tastes, pi=0.5, coin=coin), noting], RING)
        final(simulate(path, *tastes, KEY, Traffic.none(len(clients)), SimulationOptions()))
        own = [len({*noting.sent.get(c, ())} & {*clients.of(c).tolist()}) / len(clients.of(c)) for c in range(40)]
        shares[coin] = float(np.mean(own))
    assert shares["item"] > 0.7, "over the rounds nearly all have left"
    assert abs(shares["once"] - 0.5) < 0.12


class Doubling(Stage):
    """A stage of another package: it knows nothing of any method."""

    shapes_values = True

    def shape(self, draft: Any, key: Key) -> None:
        draft.multiply(1.0 + key.uniform(draft.clients, 1)[:, 0].astype(np.float32))


def every_stage(world: World) -> dict[str, list[Stage]]:
    half = disclosing(world, pi=0.5)
    weights = Weighing(np.linspace(0.2, 1.8, len(world[0]), dtype=np.float32))
    return {
        "none": [],
        "disclose": [half],
        "disclose by item": [disclosing(world, pi=0.4, coin="item", never_items=(104,))],
        "clip rows": [Clipping(row=0.02)],
        "clip clients": [Clipping(person=0.1)],
        "clip both": [Clipping(row=0.05, person=0.1)],
        "clip sums": [half, Clipping(row=0.05, person=0.1, in_sum=True)],
        "clip nothing": [Clipping(row=1e6)],
        "weigh": [weights],
        "all": [weights, half, Clipping(row=0.05, person=0.1)],
        "foreign": [Doubling(), half],
    }


@pytest.mark.slow
@pytest.mark.parametrize("ring", [Ring(), Ring(bits=32, fraction=14)], ids=["64 bits", "32 bits"])
@pytest.mark.parametrize(
    "stages",
    [
        "none",
        "disclose",
        "disclose by item",
        "clip rows",
        "clip clients",
        "clip both",
        "clip sums",
        "clip nothing",
        "weigh",
        "all",
        "foreign",
    ],
)
@pytest.mark.parametrize("name", FEDERATED)
def test_every_method_under_every_stage_sums_as_its_messages_do(
    name: str, stages: str, ring: Ring, tastes: World
) -> None:
    few = {"epochs": 2} if "epochs" in entry(name).config.model_fields else {}
    assert_reference_equals(UpdatePath(quick(name, **few), every_stage(tastes)[stages], ring), tastes)


def lengths_of(message: Message) -> tuple[float, float, int]:
    """The longest row of a client, all its rows together, and how many numbers that are."""
    rows = [table.values.astype(np.float64) for table in message.read(RING).tables.values()]
    squares = np.concatenate([(values**2).sum(axis=1) for values in rows])
    return float(np.sqrt(squares.max(initial=0))), float(np.sqrt(squares.sum())), sum(v.size for v in rows)


@pytest.mark.parametrize("name", FEDERATED)
def test_no_client_is_longer_than_its_clip(name: str, tastes: World) -> None:
    """Up to the rounding to the ring's grid: half a step in every number."""
    method = quick(name)
    free = np.array([lengths_of(message) for message in messages_of(method, tastes)[1]])
    row, person = 0.5 * free[:, 0].max(), 0.5 * free[:, 1].max()
    for clip in (Clipping(row=row), Clipping(person=person), Clipping(row=row, person=person)):
        bound = np.array([lengths_of(message) for message in messages_of(method, tastes, [clip])[1]])
        slack = 0.5 * np.sqrt(bound[:, 2]) / float(RING.scale) + 1e-6 * person
        assert (bound[:, 0] <= clip.row + slack).all()
        assert (bound[:, 1] <= clip.person + slack).all()
        assert (bound[:, 1] < free[:, 1]).any(), "nothing was shortened"


@pytest.mark.parametrize("name", FEDERATED)
def test_no_client_moves_the_sum_by_more_than_its_clip_in_sums(name: str, tastes: World) -> None:
    method, person = quick(name), 0.05
    model, sent = messages_of(method, tastes, [Clipping(person=person, in_sum=True)])
    for message in sent:
        sums = added(method, model.shared, [message]).sums.values()
        n_numbers = sum(numbers.size for _, _, numbers in message.tables.values())
        moved = float(np.sqrt(sum((RING.decode(numbers).astype(np.float64) ** 2).sum() for numbers in sums)))
        assert moved <= person * (1 + 1e-6) + 0.5 * n_numbers / float(RING.scale)


@pytest.mark.parametrize("name", FEDERATED)
@pytest.mark.parametrize("reference", [False, True])
def test_sums_do_not_depend_on_the_size_of_chunks(
    name: str, reference: bool, tastes: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for rows in (1, 100, 2**17):
        monkeypatch.setattr(shards, "CHUNK_ROWS", rows)
        monkeypatch.setattr(shards, "ROWS_PER_ITEM", 0)
        traffic = Traffic.none(len(tastes[0]))
        path = UpdatePath(quick(name), [disclosing(tastes, pi=0.5), Clipping(person=0.5)], RING)
        model = final(simulate(path, *tastes, KEY, traffic, SimulationOptions(reference=reference)))
        found.append((model.copy(), traffic))
    for model, traffic in found[1:]:
        assert_same(model.shared, found[0][0].shared)
        assert_same(model.private, found[0][0].private)
        assert_same(vars(traffic), vars(found[0][1]))


@pytest.mark.parametrize("name", FEDERATED)
def test_the_same_key_gives_the_same_bits_and_another_seed_does_not(name: str, tastes: World) -> None:
    first, again, other = (final(passes(quick(name), *tastes, key)).copy() for key in (KEY, KEY, Key(8).child("learn")))
    assert_same(first.shared, again.shared)
    assert_same(first.private, again.private)
    table = quick(name).spec.downloads[0]
    if name != "dp-popular":  # it draws nothing
        assert not np.array_equal(first.shared[table], other.shared[table])


# --- what leaves ------------------------------------------------------------------------------------------------------


def labelled(
    method: Any, world: World, stages: Sequence[Stage], ring: Ring = RING
) -> Iterator[tuple[int, Message, Update]]:
    """Yield (client, message, the same without any stage) for every device."""
    _, sent = messages_of(method, world, stages, ring)
    _, whole = messages_of(method, world, (), ring)
    for c, (message, update) in enumerate(zip(sent, whole, strict=True)):
        yield c, message, update.read(ring)


@pytest.mark.parametrize("name", FEDERATED)
def test_with_pi_zero_no_positive_leaves_and_every_negative_does(name: str, tastes: World) -> None:
    method = quick(name)
    for c, message, update in labelled(method, tastes, [disclosing(tastes, pi=0.0)]):
        for table in method.spec.tables:
            others = update.tables[table].ids[~update.sensitive[table]]
            assert np.array_equal(message.tables[table][1], others), f"person {c}"
        assert message.release.positives.sum() == 0


@pytest.mark.parametrize("name", FEDERATED)
@pytest.mark.parametrize("pi", [0.4, 1.0])
def test_negatives_always_leave_and_nothing_is_invented(name: str, pi: float, tastes: World) -> None:
    method = quick(name)
    n_held = n_positives = 0
    for _, message, update in labelled(method, tastes, [disclosing(tastes, pi=pi)]):
        for table in method.spec.tables:
            sent = np.bincount(message.tables[table][1], minlength=tastes[1].n_items)
            marked = update.sensitive[table]
            learnt, negatives = (
                np.bincount(update.tables[table].ids[m], minlength=tastes[1].n_items) for m in (marked | True, ~marked)
            )
            assert (sent >= negatives).all()
            assert (sent <= learnt).all()
            n_held += int((learnt - sent).sum())
            n_positives += int(marked.sum())
    assert n_held == 0 if pi == 1.0 else 0.4 < n_held / n_positives < 0.8


def mentioning(method: Federated, world: World, c: int, table: str, items: Array) -> Array:
    """Which rows of a client's update are about one of its items in a set, where rows are not items."""
    clients, catalog = world
    model = method.init(clients, catalog, KEY.child("init"))
    client = clients.take(np.array([c]))
    plan = method.plan(narrowed(method, model, client, c), client, KEY.child("learn", 0))
    part = next(part for part in plan.parts if part.table == table)
    assert part.mentions is not None
    return part.mentions(items)


@pytest.mark.parametrize("name", FEDERATED)
@pytest.mark.parametrize("reference", [False, True])
def test_what_must_never_leave_never_does(name: str, reference: bool, tastes: World) -> None:
    """In messages, and in what the simulation counts."""
    clients, catalog = tastes
    method = quick(name)
    stages = [disclosing(tastes, pi=1.0, never_items=(104, "107"), never_categories=("fifth",))]
    secret = np.isin(np.arange(catalog.n_items), [4, 7]) | (np.arange(catalog.n_items) % 5 == 0)
    for c, message, update in labelled(method, tastes, stages):
        for table in method.spec.tables:
            if table not in method.spec.item_tables and update.sensitive[table].any():
                hidden = mentioning(method, tastes, c, table, secret)
            else:
                hidden = update.sensitive[table] & secret[np.minimum(update.tables[table].ids, len(secret) - 1)]
            assert np.array_equal(message.tables[table][1], update.tables[table].ids[~hidden]), f"person {c}"
    only_secret = clients.take(np.arange(4))
    own = Clients(only_secret.ids, np.arange(5), np.array([4, 7, 0, 5], np.int32), clients.n_items)
    traffic = Traffic.none(4)
    final(
        simulate(UpdatePath(method, stages, RING), own, catalog, KEY, traffic, SimulationOptions(reference=reference))
    )
    assert traffic.positives.sum() == 0
    assert traffic.rounds.sum() > 0


@pytest.mark.parametrize("name", FEDERATED)
@pytest.mark.parametrize("bits", [32, 64])
def test_release_and_bytes_are_what_the_message_holds(name: str, bits: int, tastes: World) -> None:
    method, ring = quick(name), Ring(bits=bits)
    for _, message, update in labelled(method, tastes, [disclosing(tastes, pi=0.5)], ring):
        n_rows = sum(len(ids) for _, ids, _ in message.tables.values())
        size = sum(len(ids) * row_bytes(numbers.shape[1], ring) for _, ids, numbers in message.tables.values())
        assert int((message.release.positives + message.release.negatives)[0]) == n_rows
        assert int(message.release.bytes[0]) == size
        assert int(message.release.negatives[0]) == sum(int((~mask).sum()) for mask in update.sensitive.values())
