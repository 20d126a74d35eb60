"""The page's badge beside the truth: each situation is brought about, and a real browser reads what the page says."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from helpers.browser import opened
from helpers.private_session import PrivateSession, member
from helpers.private_session import founded as founded_private
from helpers.small_federation import CATALOG, CHEAP, PASSPHRASE, first_shared, founded, made, request
from helpers.waiting import wait_until
from tacit.errors import ConsentError
from tacit.field.coordinator import CoordinatorJournal
from tacit.field.device import Device
from tacit.field.device.device_state import DeviceStateCode, read_state
from tacit.field.device.history import HistoryEntry
from tacit.field.device.limits import TimeLimits
from tacit.web.device_view import DeviceView
from tacit.web.own import build_user_page
from tacit.web.server import serving
from tacit.wire.messages import write_welcome
from tacit.wire.status import CoordinatorStatus

pytest.importorskip("flwr", reason="the field needs Flower")
from tacit.cli.pages import MissingFlower
from tacit.field.carriers.participant import BackgroundParticipant, Participant
from tacit.field.carriers.superlink import SuperLink
from tacit.field.certificates import make_certificates
from tacit.field.invitations import Invitation, accept
from tacit.reasons import ReasonCode

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # Flower and its servers warn of their own doings
]
POLL = 0.05
SECONDS = 40.0


class Server:
    """A coordinator's end of the line, and devices that joined it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.journal = CoordinatorJournal.create(folder / "journal.db", founded(), CATALOG, seed=1)
        self.tls = make_certificates(folder / "tls", "127.0.0.1")
        self.link = SuperLink(self.journal, "127.0.0.1", 0, self.tls.certificate, self.tls.key)
        self.made = 0

    def invitation(self) -> Invitation:
        word = self.journal.invitations.make(int(time.time()) + 600)
        return Invitation(f"127.0.0.1:{self.link.port}", word, self.tls.roots)

    def path(self) -> Path:
        self.made += 1
        return self.folder / f"{self.made}.db"

    def joined(self) -> Device:
        device = Device.create(self.path(), PASSPHRASE, cost=CHEAP)
        accept(device, self.invitation(), accepts={ReasonCode.NO_GUARANTEE})
        device.history.add([HistoryEntry(CATALOG.item_ids[item]) for item in (1, 4, 7)], CATALOG)
        return device


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made_server = Server(tmp_path_factory.mktemp("states"))
    yield made_server
    made_server.link.close()
    made_server.journal.close()


def not_joined(server: Server) -> Device:
    return Device.create(server.path(), PASSPHRASE, cost=CHEAP)


def failed_join(server: Server) -> Device:
    device = not_joined(server)
    unanswered = Invitation("127.0.0.1:9", "a word", server.tls.roots)
    with pytest.raises(Exception, match="cannot be reached"):
        accept(device, unanswered)
    assert device.connection == {}
    return device


def with_a_file(server: Server) -> Device:
    return made(server.path())


def paused(server: Server) -> Device:
    device = server.joined()
    device.pause()
    return device


def announced(*status: Any) -> Callable[[Server], Device]:
    def situation(server: Server) -> Device:
        server.link.announce(CoordinatorStatus(*status))
        return server.joined()

    return situation


def unreachable(server: Server) -> Device:
    device = server.joined()
    device.keep_connection({**device.connection, "address": "127.0.0.1:9"})
    return device


def revoked(server: Server) -> Device:
    device = server.joined()
    server.journal.members.revoke(server.journal.members.devices()[-1].number)
    server.link.present()  # as a coordinator does before every round
    return device


def limited(server: Server) -> Device:
    device = server.joined()
    nothing = TimeLimits(rounds_per_day=0)
    device.change(lambda before: before.model_copy(update={"limits": nothing}))
    return device


def budget_spent(server: Server) -> Device:
    federation = founded_private()
    device = member(server.path(), federation, pi=0.5)
    device.receive(request(federation, 0, first_shared(federation), learn=False))
    session = PrivateSession(federation, device)
    for number in range(1, 8):
        session.ask(number, {**first_shared(federation)})
    device.change(lambda before: before.model_copy(update={"privacy": "strict"}))
    device.keep_connection(server.joined().connection)
    return device


def restored(server: Server) -> Device:
    first = server.joined()
    copy = server.path()
    first.backup(copy)
    first.close()
    return Device.restore(copy, server.path(), PASSPHRASE)


def proposed(server: Server) -> Device:
    """A device whose operator proposes another method: it fetched the amendment, and its user has not answered."""
    device, wanted = server.joined(), founded("fed-gmf")
    journal = CoordinatorJournal.create(server.path(), founded(), CATALOG, seed=1)  # of the same terms, for one device
    journal.replace_method(wanted.method, wanted.options, CATALOG)
    with pytest.raises(ConsentError):
        device.terms.amend(journal.amendments.since(founded().digest))
    journal.close()
    return device


def declined(server: Server) -> Device:
    device = proposed(server)
    device.terms.decline()
    return device


SITUATIONS: dict[str, tuple[Callable[[Server], Device], DeviceStateCode, str]] = {
    "none was joined": (not_joined, DeviceStateCode.NOT_JOINED, "Not connected"),
    "a join has failed": (failed_join, DeviceStateCode.NOT_JOINED, "Not connected"),
    "joined with a file": (with_a_file, DeviceStateCode.NO_SERVER, "No server"),
    "paused": (paused, DeviceStateCode.PAUSED, "Paused"),
    "nine are missing": (announced("waiting", 4, 13), DeviceStateCode.WAITING, "Waiting for others"),
    "nine new ones are missing": (
        announced("pause", 17, 13, 2400, 4, 13),
        DeviceStateCode.WAITING,
        "Waiting for others",
    ),
    "between two": (announced("pause", 13, 13, 2400), DeviceStateCode.BETWEEN, "Taking part"),
    "one is running": (announced("round", 13, 13), DeviceStateCode.EXCHANGING, "Exchanging now"),
    "enough are there": (announced("waiting", 13, 13), DeviceStateCode.TAKING_PART, "Taking part"),
    "the last is over": (announced("finished", 13, 13), DeviceStateCode.FINISHED, "Finished"),
    "no server answers": (unreachable, DeviceStateCode.UNREACHABLE, "No connection"),
    "revoked": (revoked, DeviceStateCode.REVOKED, "Removed"),
    "a limit is reached": (limited, DeviceStateCode.LIMITED, "Waiting: your limits"),
    "the budget is spent": (budget_spent, DeviceStateCode.BUDGET_SPENT, "Budget used up"),
    "another method is proposed": (proposed, DeviceStateCode.ASKS, "Needs your answer"),
    "the user said no to it": (declined, DeviceStateCode.DECLINED, "Not taking part"),
    "restored": (restored, DeviceStateCode.SITS_OUT, "Waiting: restored copy"),
}


def read_page(browser: Any, view: DeviceView, code: DeviceStateCode) -> tuple[str, str, str]:
    """The state, the badge and the sentence that a browser shows once the page says `code`, by itself."""
    with serving(build_user_page(view)) as address:
        page = opened(browser, address)
        page.wait_for_selector(f".state[data-code='{code}']", timeout=30_000)
        found = page.locator(".state").get_attribute("data-code"), page.locator("#badge").inner_text()
        sentence = page.locator("#standing").inner_text()
        assert page.complaints == []
        page.context.close()
    return *found, sentence


@pytest.mark.parametrize("name", SITUATIONS)
def test_the_badge_is_the_truth(browser: Any, server: Server, name: str) -> None:
    situation, code, badge = SITUATIONS[name]
    with ExitStack() as stack:
        device = stack.enter_context(situation(server))
        participant = BackgroundParticipant(device, POLL)
        participant.start()
        stack.callback(participant.stop)
        wait_until(lambda: read_state(device).code == code, SECONDS, f"the device says {code}")
        state, shown, sentence = read_page(browser, DeviceView(device, participant=participant), code)
        assert (state, shown) == (code, badge)
        truth = read_state(device)
        assert truth.describe() == sentence
        assert truth.has_model == (device.membership is not None and device.membership.model() is not None)
        if code == DeviceStateCode.WAITING:
            assert truth.missing == 9
            assert "9 more are needed" in sentence
        if code == DeviceStateCode.UNREACHABLE:
            assert truth.since is not None
            assert time.time() - truth.since < SECONDS
            assert "first exchange" in sentence, "no model ever came"


def test_another_program_that_takes_part_is_seen_and_one_that_cannot_is_too(browser: Any, server: Server) -> None:
    """The service runs, the page's own participant steps back; without either, the page does not claim to take part."""
    server.link.announce(CoordinatorStatus("waiting", 5, 13))
    with server.joined() as device:
        service = BackgroundParticipant(device, POLL)
        service.start()
        wait_until(lambda: read_state(device).code == DeviceStateCode.WAITING, SECONDS, "the service is connected")
        own = BackgroundParticipant(device, POLL)
        own.start()
        view = DeviceView(device, participant=own)
        assert read_page(browser, view, DeviceStateCode.WAITING)[1] == "Waiting for others"
        own.stop()
        service.stop()
        assert read_page(browser, DeviceView(device), DeviceStateCode.NOT_RUNNING)[1] == "Not running"
        lacking = DeviceView(device, participant=MissingFlower())
        assert "Flower is missing" in read_page(browser, lacking, DeviceStateCode.FAILED)[2]


def test_a_message_that_could_be_read_is_not_sent_and_the_page_says_so(browser: Any, server: Server) -> None:
    server.link.announce(CoordinatorStatus("round", 3, 3))
    with server.joined() as device:
        number = server.journal.members.devices()[-1].number
        participant = BackgroundParticipant(device, POLL)
        participant.start()
        try:
            wait_until(lambda: number in server.link.present(), SECONDS, "the device is connected")
            server.link.offer({number: request(founded(), 0)})
            wait_until(lambda: read_state(device).code == DeviceStateCode.UNWILLING, SECONDS, "it refuses")
            shown = read_page(browser, DeviceView(device, participant=participant), DeviceStateCode.UNWILLING)
            assert shown[1] == "Not sending"
            assert device.ledger.list() == []
        finally:
            participant.stop()


def test_the_badge_follows_what_happens_without_a_reload(browser: Any, server: Server) -> None:
    server.link.announce(CoordinatorStatus("waiting", 4, 13))
    with server.joined() as device:
        participant = BackgroundParticipant(device, POLL)
        participant.start()
        with serving(build_user_page(DeviceView(device, participant=participant))) as address:
            page = opened(browser, address)
            page.wait_for_selector(".state[data-code='waiting-for-others']", timeout=30_000)
            device.pause()
            page.wait_for_selector(".state[data-code='paused']", timeout=30_000)
            device.resume()
            page.wait_for_selector(".state[data-code='waiting-for-others']", timeout=30_000)
            device.leave()
            page.wait_for_selector(".state[data-code='not-joined']", timeout=30_000)
            accept(device, server.invitation(), accepts={ReasonCode.NO_GUARANTEE})
            page.wait_for_selector(".state[data-code='waiting-for-others']", timeout=30_000)
            assert page.complaints == []
            page.context.close()
        participant.stop()


def test_a_failed_join_leaves_nothing_and_the_invitation_still_works(server: Server, tmp_path: Path) -> None:
    invitation = server.invitation()
    with Device.create(tmp_path / "device.db", PASSPHRASE, cost=CHEAP) as device:
        away = Invitation("127.0.0.1:9", invitation.word, invitation.roots)
        with pytest.raises(Exception, match="cannot be reached"):
            accept(device, away)
        assert (device.connection, device.membership) == ({}, None)
        assert read_state(device).code == DeviceStateCode.NOT_JOINED
        used = Invitation(invitation.address, "never given", invitation.roots)
        with pytest.raises(Exception, match="used already"):
            accept(device, used)
        assert device.terms.enrolment == {}, "what can never work is forgotten"
        before = accept(device, invitation, accepts={ReasonCode.NO_GUARANTEE})
        assert before.federation.digest == founded().digest
        assert device.connection["address"] == invitation.address


def test_a_file_of_an_earlier_version_with_half_a_join_does_not_claim_to_take_part(tmp_path: Path) -> None:
    with Device.create(tmp_path / "device.db", PASSPHRASE, cost=CHEAP) as device:
        line = {"address": "127.0.0.1:9", "roots": "", "key": "none"}
        with device._store.transaction():
            device._store.put_json("line", line)
    with Device.open(tmp_path / "device.db", PASSPHRASE) as device:
        assert (device.connection, device.terms.enrolment) == ({}, line)
        device.join(write_welcome(founded(), CATALOG), "127.0.0.1:9", accepts={ReasonCode.NO_GUARANTEE})
        assert device.connection == line


def test_staying_goes_on_through_pause_leaving_and_joining(server: Server) -> None:
    import threading

    server.link.announce(CoordinatorStatus("waiting", 4, 13))
    stop = threading.Event()
    with server.joined() as device, device.open_again() as settings:
        settings.pause()
        thread = threading.Thread(target=Participant(device, POLL).run, args=(stop,), daemon=True)
        thread.start()
        settings.resume()
        wait_until(lambda: read_state(settings).code == DeviceStateCode.WAITING, SECONDS, "it takes part again")
        settings.pause()
        wait_until(lambda: not settings.participation.is_running, SECONDS, "another program may take part meanwhile")
        stop.set()
        thread.join(SECONDS)
        assert not thread.is_alive()
