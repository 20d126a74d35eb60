"""A device's end of the line: a Flower SuperNode that runs this installed program and nothing else.

It speaks Flower's Fleet API itself. Flower's own SuperNode would run whatever application a server sends; this one
never asks for one. A server that cannot be reached is tried again, ever more slowly; recommendations go on meanwhile.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import httpx
from cryptography.hazmat.primitives import serialization
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.fleet_pb2 import ActivateNodeRequest, DeactivateNodeRequest, PullMessagesRequest, PushMessagesRequest
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, PullObjectRequest, PushObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from tacit.errors import ConsentError, FieldError, TacitError
from tacit.field.carriers.parcels import names_in, open_parcel, wrap_reply
from tacit.field.device import Device
from tacit.field.exchange import MessageKind, respond

log = logging.getLogger("tacit.field.device")
BEAT = 10.0  # seconds between signs of life, unless a device looks for messages more rarely
LONGEST_BEAT = 600.0  # a SuperLink takes three times as much at most
LONGEST_BACKOFF = 300.0
LOOK = 1.0  # seconds between checks of the settings while the coordinator is unreachable


@dataclass(frozen=True)
class DeviceEvent:
    """An event that a user may want to know of while their device takes part."""

    what: Literal["connected", "model", "request", "turn", "nothing sent", "refused", "away"]
    why: str = ""
    hint: str = ""
    again_in: float = 0.0  # seconds until the next try, where nobody is there


EventListener = Callable[[DeviceEvent], None]
Ending = Literal["stopped", "paused", "left"]


def _ignore(news: DeviceEvent) -> None:
    """Say nothing."""


class SuperNode:
    """Takes part for one device until it is stopped, paused or has left."""

    def __init__(self, device: Device, poll: float = 1.0) -> None:
        self.device, self.poll = device, poll
        self._beats = min(LONGEST_BEAT, max(BEAT, poll))
        line = device.connection
        if not line:
            raise FieldError(
                "This device has no coordinator.", "Join a federation with an invitation: tacit device join."
            )
        self._address = line["address"]
        key = serialization.load_pem_private_key(line["key"].encode(), None)
        self._roots = line["roots"].encode() or None
        self._keys: Any = (key, key.public_key())
        self.problem = ""  # what is wrong now, in words

    def run(self, stop: threading.Event, told: EventListener = _ignore) -> Ending:
        """Take part until `stop` is set or the user pauses or leaves; wait for a server that is unreachable."""
        backoff = self.poll
        while self._goes_on(stop):
            try:
                self.session(stop, told)
            except FieldError as error:
                backoff = self.poll if not self.problem else min(LONGEST_BACKOFF, 2 * backoff)
                self.problem, again_in = error.message, backoff * random.uniform(0.8, 1.2)
                log.warning("no connection", extra={"fields": {"why": error.message, "again_in": round(again_in, 1)}})
                told(DeviceEvent("away", error.message, again_in=again_in))
                until = time.monotonic() + again_in
                while self._goes_on(stop) and time.monotonic() < until:
                    stop.wait(min(LOOK, max(0.0, until - time.monotonic())))
        if not self.device.connection:
            return "left"
        return "paused" if self.device.sharing.paused else "stopped"

    def _goes_on(self, stop: threading.Event) -> bool:
        return not stop.is_set() and bool(self.device.connection) and not self.device.sharing.paused

    def session(self, stop: threading.Event, told: EventListener = _ignore) -> None:
        """Take part as long as the connection holds; its end is a FieldError."""
        try:
            with FleetHttpClient.from_server_address(
                self._address,
                False,
                self._roots,
                interceptors=[
                    RuntimeVersionHttpInterceptor(component_name="SuperNode"),
                    NodeAuthHttpInterceptor(*self._keys),
                ],
            ) as client:
                node = self._activated(client)
                over = threading.Event()
                beating = threading.Thread(target=self._beat, args=(client, node, over), daemon=True)
                beating.start()
                told(DeviceEvent("connected"))
                try:
                    self._serve(client, node, stop, told)
                finally:
                    over.set()
                    beating.join()
                    self._farewell(client, node)
        except (httpx.HTTPError, RuntimeError, ValueError) as error:
            raise FieldError(_in_words(self._address, error), "It will be tried again.") from None

    def _activated(self, client: Any) -> Any:
        """Say that this device is there; after a crash the server may believe that it still is."""
        from flwr.supercore.primitives.asymmetric import public_key_to_bytes

        hello = ActivateNodeRequest(public_key=public_key_to_bytes(self._keys[1]), heartbeat_interval=3 * self._beats)
        line = self.device.connection
        try:
            node = client.ActivateNode(hello).node_id
        except httpx.HTTPStatusError:
            if "node" not in line:
                raise
            client.DeactivateNode(DeactivateNodeRequest(node_id=int(line["node"])))
            node = client.ActivateNode(hello).node_id
        if line.get("node") != str(node):
            self.device.keep_connection({**line, "node": str(node)})
        self.problem = ""
        return Node(node_id=node)

    def _serve(self, client: Any, node: Any, stop: threading.Event, told: EventListener) -> None:
        while self._goes_on(stop):
            found = client.PullMessages(PullMessagesRequest(node=node))
            if not found.messages_list:
                stop.wait(self.poll)
                continue
            message, tree = message_from_proto(found.messages_list[0]), found.message_object_trees[0]
            try:
                told(DeviceEvent(self._answer(client, node, message, tree)))
            except ConsentError as error:
                log.info("nothing was sent", extra={"fields": error.public()})
                told(DeviceEvent("nothing sent", error.message, error.hint))
            except TacitError as error:
                log.warning("a message was refused", extra={"fields": error.public()})
                told(DeviceEvent("refused", error.message, error.hint))

    def _beat(self, client: Any, node: Any, over: threading.Event) -> None:
        """Give signs of life while the device learns; that nobody listens is noticed elsewhere."""
        while not over.wait(self._beats):
            try:
                client.SendNodeHeartbeat(SendNodeHeartbeatRequest(node=node, heartbeat_interval=3 * self._beats))
            except (httpx.HTTPError, RuntimeError):
                continue

    def _answer(self, client: Any, node: Any, message: Any, tree: Any) -> MessageKind:
        run, root = message.metadata.run_id, message.metadata.message_id
        contents = {
            name: client.PullObject(PullObjectRequest(node=node, run_id=run, object_id=name)).object_content
            for name in names_in(tree)
        }
        client.ConfirmMessageReceived(ConfirmMessageReceivedRequest(node=node, run_id=run, message_object_id=root))

        def send(answer: bytes) -> None:
            parcel = wrap_reply(answer, message)
            pushed = client.PushMessages(
                PushMessagesRequest(
                    node=node,
                    messages_list=[message_to_proto(parcel.head)],
                    message_object_trees=[parcel.tree],
                    clientapp_runtime_list=[0.0],
                )
            )
            if parcel.id not in pushed.objects_to_push:
                raise FieldError("The round was over before the answer came.", "")
            for name in pushed.objects_to_push:
                stored = client.PushObject(
                    PushObjectRequest(
                        node=node,
                        run_id=run,
                        object_id=name,
                        object_content=parcel.objects[name],
                        session_id=pushed.session_id,
                    )
                )
                if not stored.stored:
                    raise FieldError("The coordinator accepted only a part of the answer.", "")

        return self._respond(open_parcel(root, contents), send)

    def _respond(self, content: bytes, send: Callable[[bytes], None]) -> MessageKind:
        return respond(self.device, content, send)

    def _farewell(self, client: Any, node: Any) -> None:
        try:
            client.DeactivateNode(DeactivateNodeRequest(node_id=node.node_id))
        except (httpx.HTTPError, RuntimeError):
            return  # it will notice


def _in_words(address: str, error: Exception) -> str:
    """Say why a connection failed."""
    said = str(error)
    if "CERTIFICATE_VERIFY_FAILED" in said:
        why = "has expired" if "expired" in said else "is not the one of the invitation, or names another host"
        return f"The certificate of {address} {why}."
    if isinstance(error, httpx.HTTPStatusError):
        skew = _skew(error.response)
        if error.response.status_code == 401 and abs(skew) > 5:
            return f"{address} refuses: this machine's clock is {abs(skew):.0f} s {'ahead' if skew > 0 else 'behind'}."
        if error.response.status_code in (401, 403, 404, 409, 412):
            return f"{address} does not know this device: it was revoked, or never enrolled."
        return f"{address} refuses (HTTP {error.response.status_code})."
    return f"{address} cannot be reached ({type(error).__name__})."


def _skew(response: Any) -> float:
    """Return by how many seconds this machine's clock is ahead of the server's."""
    from email.utils import parsedate_to_datetime

    try:
        return time.time() - parsedate_to_datetime(response.headers["date"]).timestamp()
    except (KeyError, ValueError, TypeError):
        return 0.0
