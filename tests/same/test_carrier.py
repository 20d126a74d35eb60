"""What the carrier promises: a device that comes back is asked again, nothing is left behind, nothing odd ends it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from helpers.town_federation import assert_same, simulated
from helpers.waiting import LONG, wait_for_thread, wait_until
from tacit.errors import WireError

pytest.importorskip("flwr", reason="the field needs Flower")
from flwr.proto.fleet_pb2 import PullMessagesResponse
from flwr.proto.message_pb2 import Message as MessageProto

from helpers.flower_federation import Field
from tacit.field.carriers import superlink
from tacit.field.carriers.body_limit import PARTS_BYTES
from tacit.field.carriers.fleet_node import DeviceEvent
from tacit.field.carriers.flower_messages import wrap_reply
from tacit.field.carriers.supernode import SuperNode, _first_message
from tacit.field.exchange import MessageKind

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # Flower and its servers warn of their own doings
]


@pytest.fixture
def field(tmp_path: Path) -> Iterator[Field]:
    made = Field(tmp_path, "fpl", people=3)
    yield made
    made.close()


class Fragile(SuperNode):
    """Dies once while it answers, after the coordinator knows that it has the message; then it is back."""

    deaths = 1
    said: list[bytes]

    def _answer(self, client: object, node: object, message: object, tree: object) -> MessageKind:
        self.deaths -= 1
        if self.deaths == 0:
            return super()._answer(Dying(client), node, message, tree)
        return super()._answer(client, node, message, tree)


class Dying:
    """A connection that ends when the answer is pushed."""

    def __init__(self, client: object) -> None:
        self._client = client

    def __getattr__(self, name: str) -> object:
        if name == "PushMessages":
            raise RuntimeError("the connection is gone")
        return getattr(self._client, name)


def test_a_device_that_dies_over_its_answer_is_asked_again_and_gives_the_same(field: Field) -> None:
    stop, people = threading.Event(), field.people()
    nodes = [Fragile(people[0], poll=0.05), *(SuperNode(people[person], poll=0.05) for person in (1, 2))]
    threads = [threading.Thread(target=node.run, args=(stop,), daemon=True) for node in nodes]
    for thread in threads:
        thread.start()
    coordinator = field.run(2, quorum=3, minimum=3)
    stop.set()
    for thread in threads:
        wait_for_thread(thread)
    assert [(happened.answered, happened.lost) for happened in field.journal.rounds.records()] == [(3, 0)] * 2
    assert max(happened.seconds for happened in field.journal.rounds.records()) < LONG, (
        "no round waited for its deadline"
    )
    assert [entry.round for entry in people[0].ledger.list()] == [0, 1], "one message a round"
    assert_same(simulated(field.federation, field.clients, field.catalog, 2), coordinator.shared, people)
    for device in people.values():
        device.close()


def test_rounds_leave_nothing_in_the_carrier(field: Field) -> None:
    stop, people = threading.Event(), field.people()
    threads = [
        threading.Thread(target=SuperNode(device, poll=0.05).run, args=(stop,), daemon=True)
        for device in people.values()
    ]
    for thread in threads:
        thread.start()
    field.run(3, quorum=3)
    state = field.link._state
    wait_until(lambda: not state.object_store.store, LONG, "the last objects are gone")
    assert (state.num_message_ins(), state.num_message_res()) == (0, 0)
    assert not state._object_push_sessions
    stop.set()
    for thread in threads:
        wait_for_thread(thread)
    for device in people.values():
        device.close()


@pytest.mark.parametrize(("answer", "yielded"), [(b"answer", b"answer"), (bytes(PARTS_BYTES + 200), b"")])
def test_a_new_session_takes_no_answer_back(
    field: Field, monkeypatch: pytest.MonkeyPatch, answer: bytes, yielded: bytes
) -> None:
    """A member that sends too much, and connects again before the coordinator looks, has lied all the same."""
    for device in field.people().values():
        device.close()
    field.link.present()
    state, node, run = field.link._state, field.link._nodes[1], field.link._run
    assert state.activate_node(node, 60.0)

    def send(_seconds: float) -> None:
        for message in state.get_message_ins(node, None):
            reply, session = wrap_reply(answer, message), state.start_session(run)
            for name in state.store_message_and_object_tree(reply.head, reply.tree, session)[1]:
                state.store_object(run, session, name, reply.objects[name])
            assert state.activate_node(node, 60.0)

    monkeypatch.setattr(superlink, "time", SimpleNamespace(monotonic=time.monotonic, sleep=send))
    assert list(field.link.ask({1: b"model"}, 5.0, 200)) == [(1, yielded)]


def test_a_message_without_its_tree_or_without_sense_is_refused() -> None:
    for found in (
        PullMessagesResponse(messages_list=[MessageProto()]),
        PullMessagesResponse(),
    ):
        with pytest.raises(WireError, match="cannot be read"):
            _first_message(found)


def test_a_device_goes_on_after_a_message_without_its_tree(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    stop, told, people = threading.Event(), list[DeviceEvent](), field.people()

    class Client:
        """A coordinator that leaves out the tree of one message."""

        left = 2

        def PullMessages(self, request: object) -> PullMessagesResponse:
            self.left -= 1
            if not self.left:
                stop.set()
            return PullMessagesResponse(messages_list=[MessageProto()])

    SuperNode(people[0], poll=0.01)._serve(Client(), None, stop, told.append)
    assert [news.what for news in told] == ["refused", "refused"]
    for device in people.values():
        device.close()
