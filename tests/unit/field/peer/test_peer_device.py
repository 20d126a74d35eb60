"""A peer on its own: what it refuses, what the ledger says, what the user forbids, and kill -9 at every statement."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from helpers.killed_processes import dying_at, was_killed
from helpers.peer_network import PASSPHRASE, SECRET, RealNetwork
from tacit.errors import ConsentError, DeviceError
from tacit.field.device import Device, Sharing
from tacit.field.peer.carrier import InProcessCarrier, InProcessSwitch
from tacit.field.peer.membership import PeerMembership, leave_network
from tacit.field.peer.peer_device import PeerDevice
from tacit.field.peer.peer_status import read_status
from tacit.field.peer.runner import PeerRunner
from tacit.testing import two_tastes
from tacit.wire.peer_messages import MODEL, PULL, PUSH, PeerSeal, write_model
from tacit.wire.peer_records import _statement

GIVEN = {"batch_size": 16, "view": 2}


@pytest.fixture
def real(tmp_path: Path) -> Iterator[RealNetwork]:
    network = RealNetwork(tmp_path, "pepper", GIVEN, two_tastes(n_clients=4))
    network.start_views()
    yield network
    network.close()


def test_a_message_is_read_once_and_in_order(real: RealNetwork) -> None:
    sender, first = real.peers[0], real.peers[0].begin_period()[0]
    receiver = real.peers[first.number]
    later = next(send for send in sender.begin_period() + sender.begin_period() if send.number == first.number)
    assert receiver.receive(later.content)
    before = {name: array.copy() for name, array in receiver.file.state.models.items()}
    for content in (later.content, first.content):  # again, and after a later one
        assert receiver.receive(content) == b""
    real.reopen(first.number)
    for content in (later.content, first.content):  # also after a restart
        assert real.peers[first.number].receive(content) == b""
    after = real.peers[first.number].file.state.models
    assert all(np.array_equal(array, after[name]) for name, array in before.items())


def test_one_vote_per_sender_and_period(real: RealNetwork) -> None:
    receiver, ages = None, []
    for _ in range(3):
        send = real.peers[0].begin_period()[0]
        receiver = real.peers[1]
        record = real.identities[1].record(real.network.digest, int(real.clock().timestamp()))
        sequence = send.sequence + 1
        content = write_model(real.network.built.peer_models(
            real.peers[0].file.state.models, np.array([0]), real.peers[0].file.state.own
        ).take(np.array([0])))  # fmt: skip
        own = real.identities[0].record(real.network.digest, int(real.clock().timestamp())).packed
        real.peers[0].file.sequence = sequence
        reply = receiver.receive(
            real.peers[0].seal.seal(record, sequence, real.clock().timestamp(), MODEL, own, *content)
        )
        assert reply != b""
        ages.append(receiver.file.state.refused)
    assert ages == [0, 1, 2]


def test_the_ledger_has_a_message_before_it_leaves_and_what_became_of_it(real: RealNetwork) -> None:
    peer = real.peers[0]
    sends = peer.begin_period()
    assert len(sends) == 2
    entries = peer.device.ledger.list()
    assert [entry.state for entry in entries] == ["releasing"] * 2
    assert [entry.bytes for entry in entries] == [len(send.content) for send in sends]
    assert entries[0].derived == real.catalog.n_items
    assert entries[0].whole
    assert peer.settle(sends[0], real.peers[sends[0].number].receive(sends[0].content))
    assert not peer.settle(sends[1], None)
    assert [entry.state for entry in peer.device.ledger.list()] == ["sent", "may have left"]


def test_what_was_on_its_way_at_a_crash_is_not_sent_again(real: RealNetwork) -> None:
    sends = real.peers[0].begin_period()
    real.reopen(0)
    again = real.peers[0].begin_period()
    assert min(send.sequence for send in again) > max(send.sequence for send in sends)
    states = [entry.state for entry in real.peers[0].device.ledger.list()]
    assert states == ["may have left"] * 2 + ["releasing"] * 2


def test_nothing_leaves_or_enters_while_paused(real: RealNetwork) -> None:
    send = real.peers[0].begin_period()[0]
    receiver = real.peers[send.number]
    receiver.device.pause()
    assert receiver.receive(send.content) == b""
    with pytest.raises(ConsentError):
        receiver.begin_period()
    with pytest.raises(ConsentError):
        receiver.exchange_records()
    assert not receiver.device.ledger.list()
    receiver.device.resume()
    assert receiver.receive(send.content) != b""


def test_a_pause_after_a_model_was_made_keeps_it_here(real: RealNetwork) -> None:
    peer, left = real.peers[0], list[bytes]()

    class Watched(InProcessCarrier):
        def send(self, to: bytes, content: bytes, is_reply: Callable[[bytes], bool]) -> bytes | None:
            left.append(content)
            peer.device.pause()
            return super().send(to, content, is_reply)

    runner = PeerRunner(peer, lambda: Watched(InProcessSwitch()), lambda outcome: None, 0.01)
    with ThreadPoolExecutor(1) as pool:
        runner._open()
        assert runner._deliver(peer.begin_period(), pool) == 0
        runner._disconnect()
    assert len(left) == 1
    assert [entry.state for entry in peer.device.ledger.list()] == ["may have left", "not sent"]


def test_a_record_that_nothing_can_be_sealed_for_is_refused(real: RealNetwork) -> None:
    peer, identity, now = real.peers[0], real.identities[1], int(real.clock().timestamp())
    good = identity.record(real.network.digest, now)
    bare = replace(good, sealing=bytes(32))
    signed = replace(bare, signature=identity.signing.sign(_statement(real.network.digest, bare)))
    assert good.is_valid(real.network.digest, now)
    assert not signed.is_valid(real.network.digest, now)
    seal = PeerSeal(identity, real.network.digest, SECRET)
    mine = peer.identity.record(real.network.digest, now)
    assert peer.receive(seal.seal(mine, now * 1000, now, PUSH, signed.packed)) == b""
    assert peer.receive(seal.seal(mine, now * 1000 + 1, now, PUSH, good.packed)) != b""


def test_a_model_that_was_learnt_from_what_is_now_forbidden_begins_anew(real: RealNetwork) -> None:
    peer = real.peers[0]
    first = {name: array.copy() for name, array in peer.file.state.models.items()}
    peer.end_period()
    item = int(real.clients.of(0)[0])
    assert item in peer.file.learnt
    peer.device.share(Sharing(never_items=(real.catalog.item_ids[item],)))
    sent = peer.begin_period()
    assert sent
    assert np.array_equal(peer.file.state.models["items"], first["items"])
    peer.end_period()
    assert item not in peer.file.learnt
    assert not np.array_equal(peer.file.state.models["items"], first["items"])


def test_a_clock_that_is_hours_off_is_noticed_by_its_owner(real: RealNetwork) -> None:
    send = real.peers[0].begin_period()[0]
    real.clock.now += timedelta(hours=5)
    reply = real.peers[send.number].receive(send.content)
    ack = real.peers[0].seal.read_ack(reply, send.content)
    assert ack is not None
    assert not ack.is_read
    real.clock.now -= timedelta(hours=5)
    assert not real.peers[0].settle(send, reply)
    assert real.peers[0].file.clock[-1] == pytest.approx(5 * 3600, abs=2)


def test_two_programs_do_not_take_part_with_one_file(real: RealNetwork) -> None:
    with Device.open(real.path(0), PASSPHRASE, real.clock) as again, pytest.raises(DeviceError):
        PeerDevice(again, real.clock)


def test_one_membership_at_a_time_and_none_after_leaving(real: RealNetwork) -> None:
    peer = real.peers[0]
    with pytest.raises(ConsentError):
        PeerMembership.enter(peer.device, peer.member.content, bytes(32), ())
    leave_network(peer.device.store)
    assert PeerMembership.of(peer.device.store) is None
    with pytest.raises(ConsentError):
        peer.begin_period()
    assert len(peer.device.history)


def test_records_spread_by_pushes_and_pulls(real: RealNetwork) -> None:
    peer = real.peers[0]
    peer.file.sampler.view = [1]
    peer.file.sampler.slots = [-1] * len(peer.file.sampler.slots)
    peer.file.records = {1: peer.file.records[1]}
    for send in peer.exchange_records():
        assert send.number == 1
        assert peer.settle(send, real.peers[1].receive(send.content))
        if send.kind == PULL:
            assert set(peer.file.records) == {1, 2, 3}
    assert real.peers[1].file.sampler.pushes == [0]
    peer.end_period()
    assert set(peer.file.sampler.view) == {1, 2, 3}


def test_a_peer_that_does_not_answer_leaves_the_view_and_the_slots(real: RealNetwork) -> None:
    peer = real.peers[0]
    send = peer.begin_period()[0]
    gone = send.number
    assert gone in peer.file.sampler.slots
    peer.settle(send, None)
    assert gone in peer.file.sampler.slots
    peer.settle(send, None)
    assert gone not in peer.file.state.view
    assert gone not in peer.file.sampler.slots
    assert gone not in peer.file.sampler.view


def live_a_period(real: RealNetwork, present: list[int], reached: bool = True) -> None:
    """Let some peers do what a runner does in a period; those who are not present do not answer."""
    for at in present:
        peer = real.peers[at]
        for sends in (peer.exchange_records, peer.begin_period):
            for send in sends():
                is_there = reached and send.number in present
                peer.settle(send, real.peers[send.number].receive(send.content) if is_there else None)
        peer.end_period()


@pytest.mark.parametrize("lonely", [0, 3], ids=["at once", "after three periods without a network"])
def test_who_was_away_for_a_month_meets_the_others_again(real: RealNetwork, lonely: int) -> None:
    everyone, others = [0, 1, 2, 3], [1, 2, 3]
    live_a_period(real, everyone)
    for _ in range(5):
        real.clock.now += timedelta(days=6)
        live_a_period(real, others)
    now = real.clock().timestamp()
    back = real.peers[0].file
    assert all(record.expires < now for record in back.records.values())
    for _ in range(lonely):
        live_a_period(real, [0], reached=False)
    read = back.received
    for _ in range(3):
        live_a_period(real, everyone)
        real.clock.now += timedelta(minutes=1)
    assert back.received > read
    assert {number for number, record in back.records.items() if record.expires > now} == {1, 2, 3}
    assert all(0 in real.peers[at].file.records for at in others)


def test_a_full_disk_changes_nothing_and_is_reported(real: RealNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    send = real.peers[0].begin_period()[0]
    receiver = real.peers[send.number]
    before = receiver.file.state.models["items"].copy()

    def fail(store: object) -> None:
        raise DeviceError("the disk is full", "")

    with monkeypatch.context() as patch:
        patch.setattr(receiver.file, "write", fail)
        assert receiver.receive(send.content) == b""
    assert receiver.trouble
    assert np.array_equal(receiver.file.state.models["items"], before)
    assert receiver.receive(send.content) != b""  # nothing of it was kept: it may come again


def test_a_disk_that_is_full_while_a_model_arrives_keeps_the_file_as_it_was(real: RealNetwork) -> None:
    send = real.peers[0].begin_period()[0]
    receiver = real.peers[send.number]
    connection = receiver.device.store.connection
    connection.execute("VACUUM")  # no free page is left in the file
    pages, before = connection.execute("PRAGMA page_count").fetchone()[0], receiver.file.state.models["items"].copy()
    connection.execute(f"PRAGMA max_page_count = {pages}")
    assert receiver.receive(send.content) == b""  # the file cannot grow
    assert receiver.trouble
    assert np.array_equal(receiver.file.state.models["items"], before)
    connection.execute(f"PRAGMA max_page_count = {10 * pages}")
    assert receiver.receive(send.content) != b""
    assert receiver.file.received == 1


def test_a_router_that_drops_delays_and_duplicates_changes_no_rule(real: RealNetwork) -> None:
    """Every message once, in order, or not at all; what came back too late is noted as perhaps arrived."""
    late: list[bytes] = []
    merged = dict.fromkeys(real.peers, 0)
    for period in range(6):
        for at, peer in real.peers.items():
            for place, send in enumerate(peer.begin_period()):
                receiver, fate = real.peers[send.number], (period + at + place) % 4
                if fate == 0:  # dropped
                    assert not peer.settle(send, None)
                elif fate == 1:  # delayed beyond the next one
                    late.append(send.content)
                    assert not peer.settle(send, None)
                else:
                    reply = receiver.receive(send.content)
                    merged[send.number] += bool(reply)
                    if fate == 2:  # duplicated
                        assert receiver.receive(send.content) == b""
                    peer.settle(send, reply or None)
            peer.end_period()
    for content in late:
        for at, peer in real.peers.items():
            merged[at] += bool(peer.receive(content))
    assert {at: peer.file.received for at, peer in real.peers.items()} == merged
    assert sum(merged.values())
    assert {entry.state for entry in real.peers[0].device.ledger.list()} == {"sent", "may have left"}


@pytest.mark.slow
def test_kill_at_any_statement_of_settling_and_asking_sends_nothing_twice(real: RealNetwork) -> None:
    sends = real.peers[0].begin_period()
    replies = [real.peers[send.number].receive(send.content) for send in sends]
    real.peers[0].device.close()
    untouched, deadly, states = real.path(0).read_bytes(), 0, set()
    while True:
        deadly += 2

        def work(deadly: int = deadly) -> None:
            peer = real.open(0)
            peer.device.store.connection.set_trace_callback(dying_at(deadly))
            peer.settle_all(list(zip(sends, replies, strict=True)))
            peer.exchange_records()
            peer.goodbye()

        killed = was_killed(work)
        peer = real.open(0)
        states.add(tuple(entry.state for entry in peer.device.ledger.list()))
        again = peer.exchange_records()
        assert min(send.sequence for send in again) > max(send.sequence for send in sends)
        peer.device.close()
        real.path(0).write_bytes(untouched)
        if not killed:
            break
    real.open(0)
    assert states == {("releasing",) * 2, ("sent",) * 2}  # both are settled, or none


@pytest.mark.slow
def test_kill_at_any_statement_loses_nothing_and_merges_nothing_twice(real: RealNetwork) -> None:
    send = real.peers[0].begin_period()[0]
    at, deadly, outcomes = send.number, 0, []
    real.peers[at].device.close()
    untouched = real.path(at).read_bytes()
    while True:
        deadly += 3

        def work(deadly: int = deadly) -> None:
            peer = real.open(at)
            peer.device.store.connection.set_trace_callback(dying_at(deadly))
            peer.receive(send.content)
            peer.begin_period()
            peer.end_period()

        killed = was_killed(work)
        peer = real.open(at)
        has_read = real.identities[0].id.hex() in peer.file.marks
        outcomes.append((has_read, len(peer.device.ledger.list())))
        assert (peer.receive(send.content) == b"") == has_read
        assert peer.file.received == 1
        peer.device.close()
        real.path(at).write_bytes(untouched)
        if not killed:
            break
    real.open(at)
    assert {has_read for has_read, _ in outcomes} == {True, False}
    assert {n for _, n in outcomes} == {0, 2}  # all entries of a period, or none


@pytest.mark.parametrize("way", ["leave", "copy"])
def test_neither_leaving_nor_a_copy_sends_in_more_periods_than_a_guarantee_allows(way: str, tmp_path: Path) -> None:
    noisy = {"alpha": 0.0, "send_noise": 5.0, "send_bound": 0.5, "send_periods": 2}
    real = RealNetwork(tmp_path, "pepper", {**GIVEN, **noisy}, two_tastes(n_clients=4))
    real.start_views()
    peer = real.peers[0]
    store, member = peer.device.store, peer.member
    assert peer.begin_period()
    spent = read_status(peer.device).epsilon
    assert spent
    if way == "leave":
        leave_network(store)
        known = list(peer.file.records.values())
        PeerMembership.enter(peer.device, member.content, SECRET, (), known, peer.identity)
        device = peer.device
    else:
        peer.device.backup(tmp_path / "copy")
        device = Device.restore(tmp_path / "copy", tmp_path / "restored.db", PASSPHRASE)
    again = PeerDevice(device, real.clock, real.numbers.__getitem__, real._offer_of(0))
    left = {"leave": [True, False], "copy": [False, False]}[way]
    assert [bool(again.begin_period()) for _ in left] == left
    status = read_status(device)
    assert (status.epsilon, status.periods_to_send) == (status.epsilon_limit, 0)
    device.close()
    real.close()
