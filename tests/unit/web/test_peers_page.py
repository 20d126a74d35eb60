"""The page of a peer: join by a line, see counts, pause, leave; and what is said of what others could infer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from helpers.browser import barriers, opened
from helpers.page_visitor import Visitor
from helpers.peer_network import CHEAP, PASSPHRASE, RealNetwork
from helpers.waiting import LONG, wait_until
from tacit.field.device import Device
from tacit.field.device.device_state import DeviceStateCode, read_state
from tacit.field.device.history import HistoryEntry
from tacit.field.peer.founding import found_network, invite
from tacit.field.peer.membership import PeerMembership
from tacit.field.peer.peer_device import PeerDevice
from tacit.field.peer.peer_status import read_status
from tacit.testing import two_tastes
from tacit.types import Catalog
from tacit.web.device_view import DeviceView
from tacit.web.own import build_user_page
from tacit.web.server import serving
from tacit.wire.network import PeerNetwork

PERIOD = 0.5


@pytest.fixture
def network(tmp_path: Path) -> Iterator[RealNetwork]:
    noisy = {"alpha": 0.0, "view": 2, "send_noise": 5.0, "send_bound": 0.5, "send_periods": 10}
    made = RealNetwork(tmp_path, "pepper", noisy, two_tastes(n_clients=3))
    made.start_views()
    yield made
    made.close()


def test_counts_and_the_guarantee_are_those_of_the_status(network: RealNetwork) -> None:
    peer = network.peers[0]
    for send in peer.begin_period():
        peer.settle(send, network.peers[send.number].receive(send.content))
    status = read_status(peer.device)
    assert (status.sent, status.receivers) == (2, 2)
    assert status.epsilon is not None
    assert status.epsilon_limit is not None
    assert 0 < status.epsilon < status.epsilon_limit
    assert status.periods_to_send == 9
    with serving(build_user_page(DeviceView(peer.device))) as address:
        visitor = Visitor(address)
        page = visitor.get("/peers")
        assert page.of("known") == str(status.known)
        assert page.of("models-sent") == "2"
        assert page.of("epsilon") == f"{status.epsilon:.1f}"
        assert visitor.get("/sharing").headers["location"].endswith("/peers")
        for path in ("/", "/history", "/sent", "/mine"):
            assert visitor.get(path).status == 200
        names = [identity.id.hex()[:6] for identity in network.identities]
        assert not any(name in page.html for name in names), "counts, not names"


def test_peers_see_no_more_models_once_all_periods_are_sent(network: RealNetwork) -> None:
    peer = network.peers[0]
    counts = [len(peer.begin_period()) for _ in range(12)]
    assert counts == [2] * 10 + [0] * 2
    status = read_status(peer.device)
    assert status.epsilon == status.epsilon_limit
    assert status.periods_to_send == 0


def test_the_state_of_a_device_among_peers_is_shown(network: RealNetwork) -> None:
    device = network.peers[0].device
    assert read_state(device).code == DeviceStateCode.AMONG_PEERS
    assert read_state(device, "no router").code == DeviceStateCode.FAILED
    device.store.lock.release()
    assert read_state(device).code == DeviceStateCode.PEER_NOT_RUNNING
    device.pause()
    assert read_state(device).code == DeviceStateCode.PAUSED


def listens(address: str) -> bool:
    host, port = address.split(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    return True


@contextmanager
def running_router(path: Path, catalog: Catalog) -> Iterator[str]:
    """A founder that takes part as a router; gives its invitation."""
    from tacit.field.peer.runner import PeerRunner
    from tacit.field.peer.zenoh_carrier import ZenohCarrier

    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    terms = PeerNetwork.create("cd" * 16, "Readers", "pepper", {"batch_size": 16, "view": 2}, catalog, 3, PERIOD)
    with Device.create(path, PASSPHRASE, cost=CHEAP) as device:
        device.history.add([HistoryEntry(catalog.item_ids[item]) for item in (0, 2, 4)], catalog)
        found_network(device, terms, catalog, [address])
        peer, stop = PeerDevice(device), threading.Event()
        runner = PeerRunner(peer, lambda: ZenohCarrier(peer.seal, [address], [address]), lambda outcome: None)
        thread = threading.Thread(target=runner.run, args=(stop,))
        thread.start()
        try:
            wait_until(lambda: listens(address), LONG, "the router listens")
            yield invite(device, peer.member).line()
        finally:
            stop.set()
            thread.join(LONG)


@pytest.mark.slow
def test_a_user_joins_sees_peers_pauses_and_leaves_in_a_browser(browser: Any, tmp_path: Path) -> None:
    pytest.importorskip("zenoh")
    from tacit.field.peer.background import BackgroundPeer

    catalog = two_tastes()[1]
    with (
        running_router(tmp_path / "router.db", catalog) as line,
        Device.create(tmp_path / "new.db", PASSPHRASE, cost=CHEAP) as device,
    ):
        taking_part = BackgroundPeer(device)
        taking_part.start()
        try:
            with serving(build_user_page(DeviceView(device, peer=taking_part))) as address:
                page = opened(browser, address)
                page.click("text=My file")
                page.fill("#line", line)
                page.click("main button:has-text('Join')")
                page.wait_for_selector("text=You are a member of Readers", timeout=60_000)
                device.history.add([HistoryEntry(catalog.item_ids[item]) for item in (0, 2, 6)], catalog)
                wait_until(lambda: read_status(device).sent > 0, LONG, "a model was sent")
                page.click("nav >> text=Peers")
                assert int(page.inner_text("#known")) == 1
                assert int(page.inner_text("#models-sent").split()[0]) > 0
                assert not barriers(browser, address, ["/peers", "/mine"])
                page.click("main button:has-text('Pause sharing')")
                page.wait_for_selector("text=You are paused")
                assert device.sharing.paused
                sent = read_status(device).sent
                page.click("main button:has-text('Resume')")
                wait_until(lambda: read_status(device).sent > sent, LONG, "it goes on")
                page.click("nav >> text=For you")
                page.wait_for_selector(".picks li")
                page.click("nav >> text=Peers")
                page.click("main button:has-text('Leave')")
                page.wait_for_selector("text=You have left")
                assert PeerMembership.of(device.store) is None
                assert len(device.history) == 3
                assert not page.complaints
        finally:
            taking_part.stop()


def test_a_damaged_line_is_refused_in_words(tmp_path: Path) -> None:
    with (
        Device.create(tmp_path / "new.db", PASSPHRASE, cost=CHEAP) as device,
        serving(build_user_page(DeviceView(device))) as address,
    ):
        visitor = Visitor(address)
        body = b'--x\r\nContent-Disposition: form-data; name="line"\r\n\r\ntacitp1:abc\r\n--x--\r\n'
        visitor.ask("POST", "/mine/join", body, Content_Type="multipart/form-data; boundary=x")
        wait_until(lambda: b"waiting" not in visitor.get("/mine/joining/state").body, LONG, "joining has failed")
        assert "Joining did not work" in visitor.get("/mine/joining").text
        assert PeerMembership.of(device.store) is None
