"""Peer sampling: uniform slots however often ids are repeated, floods, dead peers, and a simulated eclipse (G13)."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tacit.field.peer.peer_file import make_sampler
from tacit.protocols.overlay import n_components
from tacit.protocols.peer_sampling import MOST_NAMED, NO_PEER, PeerSampler


def fresh(seed: int, me: int = -5) -> PeerSampler:
    return PeerSampler(me, random.Random(seed).randbytes(32))


def test_repeats_do_not_win_slots() -> None:
    wins: Counter[int] = Counter()
    for seed in range(60):
        sampler = fresh(seed)
        for _ in range(50):
            sampler.note_pull([1])
        sampler.note_pull(range(10))
        wins.update(sampler.slots)
    assert sum(wins.values()) == 60 * 24
    assert all(100 <= wins[peer] <= 190 for peer in range(10))  # 144 expected, standard deviation 11


def test_a_flood_of_pushes_does_not_enter() -> None:
    sampler, draws = fresh(1), random.Random(1)
    sampler.introduce([1, 2, 3])
    for peer in range(100, 200):
        sampler.note_push(peer)
    sampler.end_period(draws)
    assert set(sampler.view) == {1, 2, 3}
    assert not any(peer >= 100 for peer in sampler.slots)
    for _ in range(100):
        sampler.note_push(4)  # one sender counts once, however often it pushes
    sampler.end_period(draws)
    assert set(sampler.view) == {1, 2, 3, 4}


def test_a_dead_peer_leaves_until_it_pushes_again() -> None:
    sampler, draws = fresh(2), random.Random(2)
    sampler.introduce([1, 2])
    sampler.drop(1)
    sampler.note_pull([1, 2])
    sampler.end_period(draws)
    assert sampler.view == [2]
    assert set(sampler.slots) <= {2, NO_PEER}
    sampler.note_push(1)
    sampler.end_period(draws)
    assert set(sampler.view) == {1, 2}


def test_who_lost_all_others_tries_them_again() -> None:
    sampler, draws = fresh(5), random.Random(5)
    sampler.introduce([1, 2, 3])
    for peer in (1, 2, 3):
        sampler.drop(peer)
    assert not sampler.offer(3, draws)
    assert set(sampler.targets(draws)[0]) == {1, 2, 3}
    sampler.note_answer(2)
    assert sampler.offer(3, draws) == [2]
    assert 2 in sampler.targets(draws)[1]


def test_a_restart_keeps_view_and_slots() -> None:
    sampler = fresh(3)
    sampler.introduce(range(30))
    again = PeerSampler(sampler.me, sampler.secret, view=sampler.view, slots=sampler.slots)
    assert (again.view, again.slots) == (sampler.view, sampler.slots)


@pytest.mark.parametrize("seed", range(8))
def test_one_honest_introduction_among_four_is_enough(seed: int) -> None:
    """Three of four first peers are adversaries that name a hundred of theirs; the honest one is new itself."""
    draws = random.Random(seed)
    bad, honest, good = range(1000, 1100), range(100, 140), 99
    sampler = PeerSampler(0, draws.randbytes(32))
    sampler.introduce([1000, 1001, 1002, good])
    for period in range(20):
        for other in sampler.targets(draws)[1]:
            known = honest if period and other < 1000 else [] if other < 1000 else bad
            sampler.note_pull(draws.sample(known, min(MOST_NAMED, len(known))))
        sampler.end_period(draws)
    assert any(peer < 1000 for peer in sampler.winners())
    again = make_sampler(0, sampler.as_json())
    assert again.introduced == sampler.introduced == [1000, 1001, 1002, good]


def simulate(n: int, share: float, periods: int, flood: int, seed: int = 1) -> tuple[dict[int, PeerSampler], set[int]]:
    """Let honest peers sample while adversaries push to everyone and name only themselves when they are asked."""
    draws = random.Random(seed)
    bad = set(draws.sample(range(n), int(n * share)))
    named = sorted(bad)
    peers = {at: PeerSampler(at, draws.randbytes(32)) for at in range(n) if at not in bad}
    for peer in peers.values():
        peer.introduce(draws.sample(range(n), 4))
    for _ in range(periods):
        for at, peer in peers.items():
            pushes, pulls = peer.targets(draws)
            for other in pushes:
                if other not in bad:
                    peers[other].note_push(at)
            for other in pulls:
                lie = draws.sample(named, min(MOST_NAMED, len(named)))
                peer.note_pull(lie if other in bad else peers[other].offer(MOST_NAMED, draws))
            for adversary in draws.sample(named, min(flood, len(named))):
                peer.note_push(adversary)
        for peer in peers.values():
            peer.end_period(draws)
    return peers, bad


def check_eclipse(n: int, periods: int, flood: int) -> None:
    """The peers that a view is chosen from hold at most twice the adversaries' share; honest peers stay connected."""
    import numpy as np

    peers, bad = simulate(n, 0.1, periods, flood)
    draws = random.Random(2)
    offered = [other for peer in peers.values() for other in peer.offer(5, draws)]
    assert sum(other in bad for other in offered) / len(offered) <= 0.2
    assert all(any(other not in bad for other in peer.winners()) for peer in peers.values()), "some are captured"
    views = np.full((n, 24), -1)
    for at, peer in peers.items():
        honest = [other for other in peer.winners() if other not in bad]
        views[at, : len(honest)] = honest
    alive = np.array([at in peers for at in range(n)])
    assert n_components(views, alive) == 1


@pytest.mark.slow
@pytest.mark.parametrize("flood", [0, 5, 40])
def test_an_eclipse_fails(flood: int) -> None:
    check_eclipse(200, 12, flood)


@pytest.mark.fuzz
@pytest.mark.parametrize("flood", [0, 5, 14, 100])
def test_an_eclipse_of_a_thousand_peers_fails(flood: int) -> None:
    check_eclipse(1000, 20, flood)


@pytest.mark.slow
def test_most_ids_die_at_once_and_the_rest_stays_connected() -> None:
    import numpy as np

    peers, _ = simulate(200, 0.0, 8, 0)
    draws = random.Random(4)
    dead = set(draws.sample(sorted(peers), 60))
    living = {at: peer for at, peer in peers.items() if at not in dead}
    for _ in range(3):  # periods after which few dead ids are left
        for peer in living.values():
            pushes, pulls = peer.targets(draws)
            for other in dict.fromkeys([*pushes, *pulls, *peer.offer(3, draws)]):
                if other in dead:
                    peer.drop(other)
                elif other in pulls:
                    peer.note_pull(living[other].offer(MOST_NAMED, draws))
        for peer in living.values():
            peer.end_period(draws)
    offered = [other for peer in living.values() for other in peer.offer(3, draws)]
    assert sum(other in dead for other in offered) / len(offered) < 0.15
    views = np.full((200, 24), -1)
    for at, peer in living.items():
        winners = peer.winners()
        views[at, : len(winners)] = winners
    assert n_components(views, np.array([at in living for at in range(200)])) == 1
