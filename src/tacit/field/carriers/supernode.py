"""A Flower SuperNode that answers in its own process, and runs this installed program and nothing else."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, PullObjectRequest, PushObjectRequest

from tacit.errors import FieldError, WireError
from tacit.field.carriers.fleet_node import DeviceEvent, FleetNode
from tacit.field.carriers.flower_messages import names_in, unwrap_message, wrap_reply
from tacit.field.device import Device
from tacit.field.exchange import MessageKind, follow_amendments, respond, seconds_to_wait
from tacit.field.invitations import fetch_amendments

log = logging.getLogger("tacit.field.device")


class _BrokenTransferError(RuntimeError):
    """An answer got stuck on its way; in a new session it is asked for again."""


class SuperNode(FleetNode):
    """Takes part with a device of this process."""

    device: Device

    def __init__(self, device: Device, poll: float = 1.0) -> None:
        super().__init__(device, poll)

    def _handle(self, client: Any, node: Any, found: Any, stop: threading.Event) -> None:
        message, tree = _first_message(found)
        contents = _fetch_parts(client, node, message.metadata.run_id, names_in(tree))
        if contents is None:
            log.info("a message was withdrawn before it was fetched")  # its phase was over, or its round abandoned
        else:
            self._listen(DeviceEvent(self._answer(client, node, message, contents)))

    def _answer(self, client: Any, node: Any, message: Any, contents: dict[str, bytes]) -> MessageKind:
        """Let the device respond to a message, and hand its answer over."""
        run, root = message.metadata.run_id, message.metadata.message_id
        client.ConfirmMessageReceived(ConfirmMessageReceivedRequest(node=node, run_id=run, message_object_id=root))

        has_begun, came = threading.Event(), time.monotonic()

        def send(answer: bytes) -> None:
            time.sleep(seconds_to_wait(content, time.monotonic() - came))
            wrapped = wrap_reply(answer, message)  # its head and the hashes of its parts go first, without the answer
            pushed = client.PushMessages(
                PushMessagesRequest(
                    node=node,
                    messages_list=[message_to_proto(wrapped.head)],
                    message_object_trees=[wrapped.tree],
                    clientapp_runtime_list=[0.0],
                )
            )
            if wrapped.id not in pushed.objects_to_push:
                raise FieldError("The round was over before the answer came.", "")
            for name in pushed.objects_to_push:
                has_begun.set()
                stored = client.PushObject(
                    PushObjectRequest(
                        node=node,
                        run_id=run,
                        object_id=name,
                        object_content=wrapped.objects[name],
                        session_id=pushed.session_id,
                    )
                )
                if not stored.stored:
                    raise _BrokenTransferError("the coordinator accepted only a part of the answer")

        content = unwrap_message(root, contents)
        for note in follow_amendments(self.device, content, self._fetch):
            self._listen(DeviceEvent("amended", note.describe()))
        return self._respond(content, send, has_begun.is_set)

    def _fetch(self, digest: bytes) -> bytes:
        return fetch_amendments(self._address, self._roots, digest)

    def _respond(self, content: bytes, send: Callable[[bytes], None], has_begun: Callable[[], bool]) -> MessageKind:
        kind = respond(self.device, content, send, has_begun)
        if kind != "model":
            self.device.participation.note_link("connected", status=self.status)
        return kind


def _fetch_parts(client: Any, node: Any, run: int, names: list[str]) -> dict[str, bytes] | None:
    """Return the parts of a message; none where the coordinator has withdrawn it since the device found it."""
    contents: dict[str, bytes] = {}
    for name in names:
        part = client.PullObject(PullObjectRequest(node=node, run_id=run, object_id=name))
        if not part.object_found:
            return None
        contents[name] = part.object_content
    return contents


def _first_message(found: Any) -> tuple[Any, Any]:
    """Return a message and its tree of objects; what cannot be one is refused."""
    try:
        return message_from_proto(found.messages_list[0]), found.message_object_trees[0]
    except Exception as error:  # whatever Flower finds wrong with unknown bytes
        raise WireError(
            f"A message cannot be read ({type(error).__name__}).", "It was dropped, and nothing was changed."
        ) from None
