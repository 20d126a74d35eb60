"""What holds for every registered gossip method: nodes alone and together, rounds and events, what a node can reach."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import pytest

from tacit.lab import synchronous
from tacit.lab.event_driven import GossipRuntime, NetworkConfig, _Network, gossip_event_driven, simulate_gossip
from tacit.lab.synchronous import gossip_synchronously
from tacit.lab.traffic import Traffic
from tacit.methods.base import Gossip, build, entry, methods, options
from tacit.protocols.gossip import Peer, end_period, note_acknowledgement, receive_model, renew_view, send_model
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Model

pytestmark = pytest.mark.slow

GOSSIP = [name for name in methods() if isinstance(build(name), Gossip)]
KEY = Key(7).child("learn")
CALM = NetworkConfig()
World = tuple[Clients, Catalog]


def quick(name: str, **given: Any) -> Any:
    return build(name, options(name, {"epochs": 5, "renew_every": 2, "batch_size": 16, **given}))


def assert_same(left: Mapping[str, Array], right: Mapping[str, Array]) -> None:
    assert left.keys() == right.keys()
    for name, array in left.items():
        assert array.dtype == right[name].dtype
        assert np.array_equal(array, right[name], equal_nan=True), f"'{name}' differs"


def final(models: Any) -> Model:
    for model in models:
        last = model
    return last


VARIANTS: list[dict[str, Any]] = [
    {},
    {"learns": "receipt"},
    {"learns": "receipt", "moments": "kept", "starts": "own"},
    {"user_vector": "sent", "clip": 1.0},
]


@pytest.mark.parametrize("name", GOSSIP)
@pytest.mark.parametrize("given", VARIANTS, ids=str)
def test_rounds_are_the_special_case_of_events_bit_for_bit(name: str, given: dict[str, Any], tastes: World) -> None:
    method = quick(name, **given)
    counted = [Traffic.none(len(tastes[0])) for _ in range(2)]
    synchronous = final(gossip_synchronously(method, *tastes, KEY, counted[0]))
    event_driven = final(gossip_event_driven(method, *tastes, KEY, CALM, counted[1]))
    assert_same(synchronous.private, event_driven.private)
    assert_same(vars(counted[0]), vars(counted[1]))


@pytest.mark.parametrize("lie", ["noise", "flip", "promote"])
def test_adversaries_in_rounds_send_what_they_send_in_events_bit_for_bit(lie: Literal["noise"], tastes: World) -> None:
    method, network = quick("pepper", clip=1.0), NetworkConfig(adversaries=0.3, attack=lie, promoted=3)
    synchronous = final(simulate_gossip(method, *tastes, KEY, GossipRuntime(network)))
    assert_same(synchronous.private, final(gossip_event_driven(method, *tastes, KEY, network)).private)
    assert not np.array_equal(
        synchronous.private["items"], final(gossip_synchronously(method, *tastes, KEY)).private["items"]
    )


@pytest.mark.parametrize("name", GOSSIP)
def test_threads_and_blocks_do_not_matter(name: str, tastes: World, monkeypatch: pytest.MonkeyPatch) -> None:
    method = quick(name, learns="receipt")
    alone = final(gossip_synchronously(method, *tastes, KEY)).private
    monkeypatch.setattr("tacit.methods.parts.gossip.BLOCK", 7)
    for threads in (1, 2):
        assert_same(alone, final(gossip_synchronously(method, *tastes, KEY, threads=threads)).private)


def public(method: Any, world: World) -> Mapping[str, Array]:
    shared: Mapping[str, Array] = method.init(*world, KEY).shared
    return shared


def nodes_of(method: Any, world: World) -> tuple[dict[str, Array], Any, Any]:
    clients, catalog = world
    models = dict(method.init(clients, catalog, KEY).private)
    own = method.own(public(method, world), models, clients)
    return models, own, method.peer_models(models, clients.ids, own)


@pytest.mark.parametrize("name", GOSSIP)
def test_a_peer_alone_does_what_it_does_in_a_cohort(name: str, tastes: World) -> None:
    clients, method = tastes[0], quick(name)
    models, own, peer_models = nodes_of(method, tastes)
    shifted = peer_models.take(np.roll(np.arange(len(clients)), 1))
    learnt = method.learn(models, own)
    mixed, worths = method.mix(learnt, shifted, own)
    for n in (0, 13, 39):
        one = np.array([n])
        alone = {key: array[one] for key, array in models.items()}
        mine = method.own(public(method, tastes), alone, clients.take(one))
        alone = method.learn(alone, mine)
        alone, worth = method.mix(alone, shifted.take(one), mine)
        assert_same(alone, {key: array[one] for key, array in mixed.items()})
        assert np.array_equal(worth, worths[one])


@pytest.mark.parametrize("name", GOSSIP)
def test_learning_and_mixing_leave_their_inputs_untouched(name: str, tastes: World) -> None:
    method = quick(name, clip=1.0)
    models, own, peer_models = nodes_of(method, tastes)
    before = [{name: array.copy() for name, array in part.items()} for part in (models, peer_models.tables)]
    method.mix(method.learn(models, own), peer_models, own)
    assert_same(models, before[0])
    assert_same(peer_models.tables, before[1])


@pytest.mark.parametrize("name", GOSSIP)
def test_nothing_that_a_peer_holds_leads_to_another_peer(name: str, tastes: World) -> None:
    method = quick(name)
    network = _Network(method, *tastes, KEY, CALM, Traffic.none(len(tastes[0])))
    network.run_until_checkpoint()
    others = {id(node) for node in network.peers}
    theirs = {id(array) for node in network.peers for array in node.models.values()}
    for node in network.peers[:3]:
        reached = reachable(node)
        assert not reached & (others - {id(node)})
        assert not reached & (theirs - {id(array) for array in node.models.values()})
        assert id(network) not in reached
        assert not any(
            np.shares_memory(mine, array)
            for other in network.peers if other is not node
            for mine in node.models.values() for array in other.models.values()
        )  # fmt: skip


def reachable(start: Any) -> set[int]:
    """Identities of all objects that can be reached from one, code left out."""
    seen: set[int] = set()
    waiting = [start]
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen or isinstance(thing, type) or callable(thing):
            continue
        seen.add(id(thing))
        waiting += gc.get_referents(thing)
        if isinstance(thing, np.ndarray) and thing.base is not None:
            waiting.append(thing.base)
    return seen


@pytest.mark.parametrize("name", GOSSIP)
def test_a_peer_model_has_no_user_vector_unless_it_is_asked_for(name: str, tastes: World) -> None:
    private, sent = quick(name), quick(name, user_vector="sent")
    assert "users" not in nodes_of(private, tastes)[2].tables
    assert "users" in nodes_of(sent, tastes)[2].tables


@pytest.mark.parametrize("name", GOSSIP)
def test_what_is_spared_for_weighing_is_not_learnt_from(name: str, tastes: World) -> None:
    method = quick(name, weighting=0.3)
    _, own, _ = nodes_of(method, tastes)
    clients = tastes[0]
    for c in range(len(clients)):
        learnt = own.learn[1][own.learn[0][c] : own.learn[0][c + 1]]
        spared = own.weigh[1][own.weigh[0][c] : own.weigh[0][c + 1]]
        assert len(spared) == 2  # of six
        assert not set(learnt) & set(spared)
        assert sorted([*learnt, *spared]) == clients.of(c).tolist()


CHURN = NetworkConfig(
    uneven=0.3, staggered=True, delay=0.2, bandwidth=(5.0, 50.0), effort=(0.01, 0.2), loss=0.1, leaving=0.1, late=0.2
)


@pytest.mark.parametrize("name", GOSSIP)
def test_a_churned_network_ends_and_is_the_same_each_time(name: str, tastes: World) -> None:
    method = quick(name, epochs=12)
    runs = []
    for _ in range(2):
        overlay: synchronous.Overlays = []
        traffic = Traffic.none(len(tastes[0]))
        runs.append(final(gossip_event_driven(method, *tastes, KEY, CHURN, traffic, overlay)))
        assert overlay[-1]["round"] == 12
        assert traffic.bytes_down.sum() < traffic.bytes_up.sum()
    assert_same(runs[0].private, runs[1].private)
    assert all(np.isfinite(array).all() for array in runs[0].private.values() if array.dtype.kind == "f")


def test_every_option_of_the_network_has_an_effect(tastes: World) -> None:
    method = quick("pepper", epochs=6)
    other = {
        "start": "random", "uneven": 0.5, "staggered": False, "delay": 0.1, "bandwidth": (1.0,), "effort": (0.5,),
        "loss": 0.4, "leaving": 0.3, "crashing": 1.0, "away": 1.0, "late": 0.5, "adversaries": 0.3, "attack": "flip",
        "promoted": 3, "one_vote": True,
    }  # fmt: skip
    assert other.keys() == NetworkConfig.model_fields.keys()
    usual = NetworkConfig(staggered=True, leaving=0.1, adversaries=0.2, attack="promote", loss=0.1, crashing=0.0)
    before = final(gossip_event_driven(method, *tastes, KEY, usual)).private["items"]
    for field, value in other.items():
        changed = usual.model_copy(update={field: value})
        after = final(gossip_event_driven(method, *tastes, KEY, changed)).private["items"]
        assert not np.array_equal(before, after), f"network.{field} = {value!r} changes nothing"


@pytest.mark.parametrize("name", GOSSIP)
def test_a_message_that_is_no_model_changes_nothing(name: str, tastes: World) -> None:
    method, clients = quick(name), tastes[0]
    models, _, peer_models = nodes_of(method, tastes)
    mine = {key: array[:1] for key, array in models.items()}
    node = Peer(0, mine, method.own(public(method, tastes), mine, clients.take([0])), [1])
    good = peer_models.take(np.array([1]))
    items = good.tables["items"]
    bad = [items * np.nan, items * np.inf, items + 1e6, items[:, :, 1:], items.astype(np.float64)]
    for table in bad:
        peer_model = type(good)(good.senders, {**good.tables, "items": table}, good.samples, good.ages)
        assert not receive_model(method, node, peer_model)
    nameless = type(good)(good.senders, {"items": items}, good.samples, good.ages)
    assert receive_model(method, node, nameless) == (set(good.tables) == {"items"})
    assert node.refused >= len(bad)
    assert receive_model(method, node, good)


def test_peers_forget_who_does_not_answer(tastes: World) -> None:
    method, clients = quick("pepper"), tastes[0]
    models, _, peer_models = nodes_of(method, tastes)
    mine = {key: array[:1] for key, array in models.items()}
    node = Peer(0, mine, method.own(public(method, tastes), mine, clients.take([0])), [1, 2])
    assert len(send_model(method, node)) == 1
    receive_model(method, node, peer_models.take(np.array([1])))
    note_acknowledgement(node, 1, False)
    note_acknowledgement(node, 1, True)
    note_acknowledgement(node, 1, False)
    assert node.view == [1, 2]
    note_acknowledgement(node, 1, False)
    assert node.view == [2]
    assert 1 not in node.judged
    end_period(method, node)
    renew_view(method, node, np.array([5, 6, 7, 8]), np.uint64(1))
    assert node.view == [5, 6, 7]


def test_every_gossip_method_is_here() -> None:
    assert {"pepper", "dec-fedavg", "model-age", "dec-reptile"} <= set(GOSSIP)
    assert all(entry(name).config.model_fields["view"].default == 3 for name in GOSSIP)
