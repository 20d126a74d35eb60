"""Gossip methods: rules, samplers, PRME-G, and input that cannot be gossiped about."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tacit.errors import ConfigError, MethodError
from tacit.lab import synchronous
from tacit.lab.event_driven import GossipRuntime, NetworkConfig, gossip_event_driven, simulate_gossip
from tacit.lab.training import PassOptions, passes
from tacit.methods.base import build, options
from tacit.methods.fedfast import find_clusters
from tacit.methods.parts.mixing import ModelPair, by_age, by_performance, by_samples, evenly
from tacit.methods.parts.peers import KnownPeers, personalised_peers, random_peers
from tacit.protocols.overlay import first_views, measure_overlay, n_components, offer_peers
from tacit.random import Key
from tacit.types import Catalog, Clients, Vocabulary, offsets
from tacit.updates import PeerModels

KEY = Key(5)


def town() -> tuple[Clients, Catalog]:
    """Forty people who walk between places of their own quarter."""
    rng = np.random.default_rng(2)
    items = [np.sort(rng.choice(np.arange(p % 2, 24, 2), 7, replace=False)) for p in range(40)]
    times = np.concatenate([rng.permutation(7) * 3600 * 2 for _ in range(40)])
    clients = Clients(
        np.arange(40), offsets(np.full(40, 7)), np.concatenate(items).astype(np.int32), 24, times=times.astype(np.int64)
    )
    where = np.stack([40.7 + 0.05 * (np.arange(24) % 2) + 0.001 * rng.random(24), np.full(24, -74.0)], axis=1)
    return clients, Catalog(Vocabulary(np.arange(24)), coordinates=where)


def made(name: str, **given: Any) -> Any:
    return build(name, options(name, {"epochs": 4, **given}))


def last(method: Any, world: tuple[Clients, Catalog], runtime: GossipRuntime | None = None) -> np.ndarray:
    for model in passes(method, *world, KEY, PassOptions(gossip=runtime or GossipRuntime())):
        final = model
    scores: np.ndarray = method.score(final.shared, final.private, world[0])
    return scores


# --- rules and samplers ---------------------------------------------------------------------------------------------


def test_rules_weigh_as_they_say() -> None:
    two = np.array([[3.0, 1.0], [0.0, 0.0]])
    meeting = ModelPair(two, two, np.array([[0.2, 0.6], [0.0, 0.0]]))
    assert by_samples(meeting).tolist() == [[3, 1], [0.5, 0.5]]
    assert by_age(meeting).tolist() == [[3, 1], [0.5, 0.5]]
    assert evenly(meeting).tolist() == [[0.5, 0.5], [0.5, 0.5]]
    assert by_performance(meeting).tolist() == [[0.2, 0.6], [1, 0]], "if neither earns anything, a node keeps its own"
    unknown = ModelPair(two[:1], two[:1], np.array([[-1.0, -1.0]]))
    assert by_performance(unknown).tolist() == [[0.5, 0.5]], "who cannot judge averages"


def test_the_best_peers_are_kept_and_the_others_drawn() -> None:
    known = KnownPeers(np.array([4, 9, 7]), np.array([0.1, 0.5, 0.3], np.float32), np.array([9, 1, 2, 3]))
    never, always = np.uint64(0), np.uint64(2**64 - 1)
    assert random_peers(known, 3, 0.0, never).tolist() == [9, 1, 2]
    assert personalised_peers(known, 3, 1.2, never).tolist() == [9, 1, 2]
    assert personalised_peers(known, 3, 1.2, always).tolist() == [9, 7, 1] or set(
        personalised_peers(known, 3, 1.2, always).tolist()
    ) == {9, 7, 1}
    assert len(personalised_peers(known, 3, 3.0, never)) == 3
    tied = replace(known, worths=np.full(3, 0.5, np.float32))
    chosen = {int(personalised_peers(tied, 1, 1.0, np.uint64(c * 977))[0]) for c in range(50)}
    assert chosen == {4, 7, 9}, "equally useful peers are taken at random"


# --- the overlay ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", ["preferential", "random"])
def test_first_views_are_full_distinct_and_connected(start: Any) -> None:
    views = first_views(50, 3, start, KEY)
    assert n_components(views) == 1
    for n, view in enumerate(views):
        assert len(set(view.tolist())) == 3
        assert n not in view


def test_preferential_attachment_makes_hubs() -> None:
    spread = [measure_overlay(first_views(300, 3, start, KEY)).in_degree_max for start in ("preferential", "random")]  # type: ignore[arg-type]
    assert spread[0] > 2 * spread[1]


def test_a_view_larger_than_the_network_and_a_torn_start_are_refused() -> None:
    with pytest.raises(ConfigError, match="too large for a network of 5 peers"):
        first_views(5, 5, "preferential", KEY)
    with pytest.raises(MethodError, match="unconnected parts"):
        [first_views(200, 1, "random", Key(seed)) for seed in range(20)]  # most graphs of one link each are torn
    assert first_views(1, 3, "preferential", KEY).shape == (1, 0), "a peer alone has an empty view"


def test_an_item_that_is_not_there_cannot_be_promoted() -> None:
    network = NetworkConfig(adversaries=0.2, attack="promote", promoted=24)
    with pytest.raises(ConfigError, match="there are 24 items"):
        simulate_gossip(made("pepper"), *town(), KEY, GossipRuntime(network))


def test_offers_depend_on_the_asking_peer_alone() -> None:
    for alive in (np.arange(6), np.arange(0, 300, 2)):
        together = offer_peers(KEY, 3, np.arange(10), alive, 4)
        assert np.array_equal(offer_peers(KEY, 3, np.array([7]), alive, 4)[0], together[7])
        for me, offer in enumerate(together):
            assert me not in offer
            assert len(set(offer.tolist())) == len(offer) == 4
            assert set(offer.tolist()) <= set(alive.tolist())


def test_the_overlay_by_hand() -> None:
    views = np.array([[1, 2], [2, -1], [0, 3], [0, -1]])
    whole = measure_overlay(views)
    assert (whole.n_peers, whole.in_degree_max, whole.unreached, whole.components, whole.dead_links) == (
        4,
        2,
        0,
        1,
        0.0,
    )
    assert whole.clustering == pytest.approx((2 / 3 + 1 + 2 / 3 + 1) / 4)
    without = measure_overlay(views, np.array([True, True, True, False]))
    assert without.dead_links == pytest.approx(1 / 5)
    assert without.n_peers == 3


# --- PRME-G ---------------------------------------------------------------------------------------------------------

EVERY = ("pepper", "dec-fedavg", "model-age", "dec-reptile", "fedavg", "fedfast", "reptile")
PRME = {"model": "prme-g", "learning_rate": 0.05}


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_every_peer_learns_where_people_go(name: str) -> None:
    world = town()
    found = last(made(name, **PRME, epochs=30), world)
    assert np.isfinite(found).all()
    own = np.arange(24)[None, :] % 2 == np.arange(40)[:, None] % 2
    unseen = world[0].matrix().toarray() == 0
    right = np.nanmean(np.where(unseen & own, found, np.nan), 1) > np.nanmean(np.where(unseen & ~own, found, np.nan), 1)
    assert right.mean() > 0.85


@pytest.mark.parametrize("field", ["preference", "reg", "lapse", "negatives", "starts", "user_vector"])
def test_options_of_prme_have_an_effect(field: str) -> None:
    other = {"preference": 0.7, "reg": 0.0, "lapse": 1.0, "negatives": 2, "starts": "own", "user_vector": "sent"}
    before, after = last(made("pepper", **PRME), town()), last(made("pepper", **PRME, **{field: other[field]}), town())
    assert not np.array_equal(before, after)
    assert not np.array_equal(before, last(made("pepper", learning_rate=0.05), town()))


def test_events_are_rounds_for_prme_too() -> None:
    method = made("pepper", **PRME, learns="receipt")
    calm = NetworkConfig()
    stepped = list(synchronous.gossip_synchronously(method, *town(), KEY))[-1]
    timed = list(gossip_event_driven(method, *town(), KEY, calm))[-1]
    for name, array in stepped.private.items():
        assert np.array_equal(array, timed.private[name]), name


def test_prme_refuses_data_without_places_or_order() -> None:
    clients, catalog = town()
    with pytest.raises(MethodError, match="coordinates of items"):
        last(made("pepper", **PRME), (clients, replace(catalog, coordinates=None)))
    with pytest.raises(MethodError, match="times of visits"):
        last(made("fedavg", **PRME), (replace(clients, times=None), catalog))
    with pytest.raises(ConfigError, match="no effect with model=gmf"):
        made("pepper", lapse=3.0)
    with pytest.raises(ConfigError, match="no effect with model=prme-g"):
        made("pepper", model="prme-g", batch_size=3)
    with pytest.raises(ConfigError, match="moments=kept has no effect"):
        made("pepper", model="prme-g", moments="kept")


# --- input that is out of the way ------------------------------------------------------------------------------------


def test_people_with_fewer_than_three_interactions_average() -> None:
    counts = np.array([1, 2, 0, 6, 6, 7])
    items = np.concatenate([np.arange(c) for c in counts]).astype(np.int32)
    clients = Clients(np.arange(6), offsets(counts), items, 12)
    method = made("pepper", view=2)
    model = method.init(clients, Catalog(Vocabulary(np.arange(12))), KEY)
    own = method.own(model.shared, model.private, clients)
    assert np.diff(own.weigh[0]).tolist() == [0, 0, 0, 1, 1, 1]
    assert np.isfinite(last(method, (clients, Catalog(Vocabulary(np.arange(12)))))).all()


def test_a_network_that_does_not_fit_is_refused_with_the_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synchronous, "free_memory", lambda: 50_000.0)
    with pytest.raises(MethodError, match=r"40 peers with 24 items each need 0.0 GB"):
        last(made("pepper"), town())
    assert made("pepper").memory(1083, 38333) == 2 * 1083 * 38333 * 8 * 4
    assert made("pepper", moments="kept").memory(10, 10) == 4 * 10 * 10 * 8 * 4


def test_where_no_peer_is_alive_the_run_still_ends() -> None:
    silent = NetworkConfig(leaving=0.95, away=1000.0)
    found = last(made("pepper", epochs=6), town(), GossipRuntime(silent))
    assert np.isfinite(found).all()


def test_stages_and_networks_that_would_do_nothing_are_refused() -> None:
    from tacit.lab.training import RuntimeConfig, learn

    clients, catalog = town()
    busy = RuntimeConfig(network=NetworkConfig(loss=0.1))
    with pytest.raises(ConfigError, match=r"runtime.network has no effect"):
        learn(build("most-popular"), clients, catalog, KEY, busy)
    assert learn(made("pepper"), clients, catalog, KEY, busy).overlay[-1]["round"] == 4


# --- adversaries
# ----------------------------------------------------------------------------------------------------------


def test_what_is_usual_does_not_shrink_by_clipping() -> None:
    method = made("dec-fedavg", clip=1.0)
    models = {"items": np.zeros((1, 1, 1), np.float32), "distances": np.full((1, 16), np.nan), "met": np.zeros(1, int)}
    peer_models = [
        PeerModels(np.array([1]), {"items": np.full((1, 1, 1), far, np.float32)}, np.ones(1, int), np.ones(1, int))
        for far in (1.0, 3.0)
    ]
    one, even = np.zeros(1, int), np.full((1, 2), 0.5)
    for _ in range(40):
        near, distant = (method._clip_distant(one, one, models, peer_model, even)[0, 1] for peer_model in peer_models)
    assert near == 0.5
    assert distant == pytest.approx(0.5 * 2 / 3), "half of all lie farther than usual: they are pulled in, not shut out"


@pytest.mark.parametrize("lie", ["noise", "flip", "promote"])
def test_attacks_spread_and_clipping_limits_them(lie: str) -> None:
    world = town()
    network = NetworkConfig(adversaries=0.25, attack=lie, promoted=5)  # type: ignore[arg-type]
    honest, lied, held = (
        last(made("dec-fedavg", epochs=12, clip=clip), world, GossipRuntime(net))
        for net, clip in ((NetworkConfig(), 0.0), (network, 0.0), (network, 0.5))
    )
    assert not np.array_equal(honest, lied)
    assert not np.array_equal(lied, held)


def test_clusters_of_people_are_found() -> None:
    rng = np.random.default_rng(1)
    people = np.concatenate([rng.normal(c, 0.05, (20, 4)) for c in (-1, 0, 1)]).astype(np.float32)
    found = find_clusters(people, 3)
    assert [len(set(found[a : a + 20].tolist())) for a in (0, 20, 40)] == [1, 1, 1]
    assert len(set(found.tolist())) == 3
