"""What holds for every registered federated method: devices and cohorts, messages and sums, what leaves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from tacit.methods.base import Federated, build, entry, methods, options
from tacit.privacy.disclosure import Disclosure, DisclosureConfig
from tacit.privacy.outbound import row_bytes
from tacit.protocols.federated import device_round, server_round
from tacit.random import Key
from tacit.runtimes import simulation
from tacit.runtimes.learning import passes
from tacit.runtimes.simulation import Traffic, simulate
from tacit.types import Array, Catalog, Clients, Model, Vocabulary
from tacit.updates import Message, Ring, Rows, Total

FEDERATED = [name for name in methods() if isinstance(build(name), Federated)]
KEY = Key(7).child("learn")
RING = Ring()
World = tuple[Clients, Catalog]


def quick(name: str, **given: Any) -> Any:
    fields = entry(name).config.model_fields
    few = {"epochs": 3, "factors": 6, "learning_rate": 0.05}
    return build(name, options(name, {k: v for k, v in few.items() if k in fields} | given))


def disclosing(world: World, **given: Any) -> Disclosure:
    config = DisclosureConfig.checked(given, "privacy")
    return Disclosure.build(config, Vocabulary(np.arange(len(world[0]))), world[1], Key(3))


def assert_same(left: Mapping[str, Array], right: Mapping[str, Array]) -> None:
    assert left.keys() == right.keys()
    for name, array in left.items():
        assert array.dtype == right[name].dtype
        assert np.array_equal(array, right[name]), f"'{name}' differs"


def assert_same_rows(left: Rows, right: Rows) -> None:
    for a, b in ((left.ptr, right.ptr), (left.ids, right.ids), (left.values, right.values)):
        assert np.array_equal(a, b)


def final(models: Iterator[Model]) -> Model:
    for model in models:
        last = model
    return last


# --- a device is a cohort of one ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FEDERATED)
def test_a_client_alone_learns_what_it_learns_in_a_cohort(name: str, tastes: World) -> None:
    clients, catalog = tastes
    method = quick(name)
    model = method.init(clients, catalog, KEY)
    together, private = method.learn(model.shared, model.private, clients, RING, KEY)
    for c in range(len(clients)):
        one = np.array([c])
        alone, own = method.learn(model.shared, model.take(one).private, clients.take(one), RING, KEY)
        expected = together.take(one)
        assert np.array_equal(alone.clients, expected.clients)
        for table in method.tables:
            assert_same_rows(alone.tables[table], expected.tables[table])
            assert np.array_equal(alone.sensitive[table], expected.sensitive[table])
        assert_same(own, {key: array[one] for key, array in private.items()})


@pytest.mark.parametrize("name", FEDERATED)
def test_a_private_part_starts_from_the_person_alone(name: str, tastes: World) -> None:
    clients, catalog = tastes
    method, some = quick(name), np.array([5, 0, 17])
    together = method.init(clients, catalog, KEY).private
    assert_same(method.init(clients.take(some), catalog, KEY).private, {k: v[some] for k, v in together.items()})


@pytest.mark.parametrize("name", FEDERATED)
def test_the_order_of_clients_does_not_matter(name: str, tastes: World) -> None:
    clients, catalog = tastes
    method, order = quick(name), np.random.default_rng(1).permutation(len(tastes[0]))
    model = method.init(clients, catalog, KEY)
    update, private = method.learn(model.shared, model.private, clients, RING, KEY)
    shuffled, moved = method.learn(model.shared, model.take(order).private, clients.take(order), RING, KEY)
    for table in method.tables:
        assert_same_rows(shuffled.tables[table], update.tables[table].take(order))
    assert_same(moved, {key: array[order] for key, array in private.items()})


@pytest.mark.parametrize("name", FEDERATED)
def test_learning_and_applying_leave_their_inputs_untouched(name: str, tastes: World) -> None:
    clients, catalog = tastes
    method = quick(name)
    model = method.init(clients, catalog, KEY)
    before = model.copy()
    for array in (*model.shared.values(), *model.private.values()):
        array.flags.writeable = False
    message, _ = device_round(method, (), RING, model.shared, model.private, clients, KEY, 0)
    server_round(method, RING, model.shared, [message])
    assert_same(model.shared, before.shared)
    assert_same(model.private, before.private)


@pytest.mark.parametrize("name", FEDERATED)
def test_updates_lie_on_the_grid_of_the_ring(name: str, tastes: World) -> None:
    clients, catalog = tastes
    method = quick(name)
    model = method.init(clients, catalog, KEY)
    for ring in (Ring(), Ring(fraction=12)):
        update, _ = method.learn(model.shared, model.private, clients, ring, KEY)
        for rows in update.tables.values():
            steps = rows.values.astype(np.float64) * float(ring.scale)
            assert np.array_equal(steps, np.rint(steps)), "sealing would round what was learnt"


# --- sums -----------------------------------------------------------------------------------------------------------


def messages_of(
    method: Any, world: World, stages: Sequence[Any] = (), ring: Ring = RING
) -> tuple[Model, list[Message]]:
    """Every person as a device of her own."""
    clients, catalog = world
    model = method.init(clients, catalog, KEY.child("init"))
    sent = []
    for c in range(len(clients)):
        one = np.array([c])
        part = model.take(one)
        sent.append(device_round(method, stages, ring, part.shared, part.private, clients.take(one), KEY, 0)[0])
    return model, sent


@pytest.mark.parametrize("name", FEDERATED)
def test_the_order_of_arrival_does_not_matter_and_devices_equal_the_simulation(name: str, tastes: World) -> None:
    method = quick(name, **({"rounds": 1} if "rounds" in entry(name).config.model_fields else {"epochs": 1}))
    stages = [disclosing(tastes, pi=0.5)]
    model, sent = messages_of(method, tastes, stages)
    forwards = server_round(method, RING, model.shared, sent)
    backwards = server_round(method, RING, model.shared, sent[::-1])
    assert_same(forwards, backwards)
    if method.schedule(tastes[0]).rounds == 1:
        simulated = final(simulate(method, stages, RING, *tastes, KEY))
        assert_same(forwards, simulated.shared)


@pytest.mark.parametrize("name", FEDERATED)
def test_sums_have_a_zero_and_may_be_grouped_at_will(name: str, tastes: World) -> None:
    method = quick(name)
    model, sent = messages_of(method, tastes)
    zero = Total.zero({table: model.shared[table].shape for table in method.tables})
    a, b, c = (zero.received(message) for message in sent[:3])
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
STAGES = [(1.0, "row"), (0.3, "row"), (0.3, "item"), (0.0, "row")]


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
@pytest.mark.parametrize(("pi", "coin"), STAGES)
@pytest.mark.parametrize(("step", "bits"), [("sequential", 64), ("batch", 64), ("sequential", 32), ("batch", 32)])
def test_adding_cohorts_at_once_equals_writing_every_message(
    configuration: str, pi: float, coin: str, step: str, bits: int, tastes: World
) -> None:
    method = quick("fpl", **({"epochs": 2} | CONFIGURATIONS[configuration]), step=step)
    stages, ring = [disclosing(tastes, pi=pi, coin=coin, never_items=(104,))], Ring(bits=bits)
    counted = [Traffic.none(len(tastes[0])) for _ in range(2)]
    at_once, plain = (
        final(simulate(method, stages, ring, *tastes, KEY, traffic, plainly=plainly))
        for traffic, plainly in zip(counted, (False, True), strict=True)
    )
    assert_same(at_once.shared, plain.shared)
    assert_same(at_once.private, plain.private)
    assert_same(vars(counted[0]), vars(counted[1]))


def test_without_any_stage_the_fast_path_is_the_plain_one_too(tastes: World) -> None:
    for given in CONFIGURATIONS.values():
        method = quick("fpl", **given)
        at_once, plain = (final(simulate(method, [], RING, *tastes, KEY, plainly=p)) for p in (False, True))
        assert_same(at_once.shared, plain.shared)
        assert_same(at_once.private, plain.private)


@pytest.mark.parametrize("name", FEDERATED)
@pytest.mark.parametrize("pi", [None, 0.4])
def test_every_method_sums_as_its_messages_do(name: str, pi: float | None, tastes: World) -> None:
    stages = [] if pi is None else [disclosing(tastes, pi=pi)]
    counted = [Traffic.none(len(tastes[0])) for _ in range(2)]
    at_once, plain = (
        final(simulate(quick(name), stages, RING, *tastes, KEY, traffic, plainly=plainly))
        for traffic, plainly in zip(counted, (False, True), strict=True)
    )
    assert_same(at_once.shared, plain.shared)
    assert_same(at_once.private, plain.private)
    assert_same(vars(counted[0]), vars(counted[1]))


@pytest.mark.parametrize("name", FEDERATED)
@pytest.mark.parametrize("plainly", [False, True])
def test_sums_do_not_depend_on_the_size_of_chunks(
    name: str, plainly: bool, tastes: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for rows in (1, 100, 2**17):
        monkeypatch.setattr(simulation, "CHUNK_ROWS", rows)
        monkeypatch.setattr(simulation, "ROWS_PER_ITEM", 0)
        traffic = Traffic.none(len(tastes[0]))
        stages = [disclosing(tastes, pi=0.5)]
        model = final(simulate(quick(name), stages, RING, *tastes, KEY, traffic, plainly=plainly))
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
    assert not np.array_equal(first.shared[quick(name).tables[0]], other.shared[quick(name).tables[0]])


# --- what leaves ------------------------------------------------------------------------------------------------------


def labelled(
    method: Any, world: World, stages: Sequence[Any], ring: Ring = RING
) -> Iterator[tuple[int, Message, Any]]:
    """Yield (person, message, update before the stages) for every device."""
    clients, catalog = world
    model = method.init(clients, catalog, KEY.child("init"))
    for c in range(len(clients)):
        one = np.array([c])
        part, own = model.take(one), clients.take(one)
        update, _ = method.learn(part.shared, part.private, own, ring, KEY.child("learn", 0))
        message, _ = device_round(method, stages, ring, part.shared, part.private, own, KEY, 0)
        yield c, message, update


@pytest.mark.parametrize("name", FEDERATED)
def test_with_pi_zero_no_positive_leaves_and_every_negative_does(name: str, tastes: World) -> None:
    method = quick(name)
    for c, message, update in labelled(method, tastes, [disclosing(tastes, pi=0.0)]):
        for table in method.tables:
            others = update.tables[table].ids[~update.sensitive[table]]
            assert np.array_equal(message.tables[table][1], others), f"person {c}"
        assert message.release.positives.sum() == 0


@pytest.mark.parametrize("name", FEDERATED)
@pytest.mark.parametrize("pi", [0.4, 1.0])
def test_negatives_always_leave_and_nothing_is_invented(name: str, pi: float, tastes: World) -> None:
    method = quick(name)
    n_held = n_positives = 0
    for _, message, update in labelled(method, tastes, [disclosing(tastes, pi=pi)]):
        for table in method.tables:
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


@pytest.mark.parametrize("name", FEDERATED)
@pytest.mark.parametrize("plainly", [False, True])
def test_what_must_never_leave_never_does(name: str, plainly: bool, tastes: World) -> None:
    """In messages, and in what the simulation counts."""
    clients, catalog = tastes
    method = quick(name)
    stages = [disclosing(tastes, pi=1.0, never_items=(104, "107"), never_categories=("fifth",))]
    secret = np.isin(np.arange(catalog.n_items), [4, 7]) | (np.arange(catalog.n_items) % 5 == 0)
    for c, message, update in labelled(method, tastes, stages):
        for table in method.tables:
            speaks_of = update.speaks_of.get(table, lambda meant, ids=update.tables[table].ids: meant[ids])
            hidden = update.sensitive[table] & speaks_of(secret)
            assert np.array_equal(message.tables[table][1], update.tables[table].ids[~hidden]), f"person {c}"
    only_secret = clients.take(np.arange(4))
    own = Clients(only_secret.ids, np.arange(5), np.array([4, 7, 0, 5], np.int32), clients.n_items)
    traffic = Traffic.none(4)
    final(simulate(method, stages, RING, own, catalog, KEY, traffic, plainly=plainly))
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
