"""A device's side of the connection: it stays connected to its coordinator and polls for messages.

It implements Flower's Fleet API itself. Flower's own SuperNode would run whatever application a server sends; this one
never asks for one. A server that cannot be reached is tried again, ever more slowly; recommendations work meanwhile.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import httpx
from cryptography.hazmat.primitives import serialization
from flwr.proto.fleet_pb2 import ActivateNodeRequest, DeactivateNodeRequest, PullMessagesRequest
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.node_pb2 import Node

from tacit.errors import ConsentError, DeviceError, FieldError, TacitError
from tacit.field.carriers.bounded_client import BoundedFleetClient
from tacit.field.carriers.signing import SignedRequests, seconds_ahead
from tacit.field.device.device_file import NEXT_IDENTITY, NEXT_KEY, DeviceFile
from tacit.field.directory_notices import fetch_notices, is_noted_revoked
from tacit.languages.sentences import Sentence
from tacit.reasons import ReasonCode
from tacit.wire.status import CoordinatorStatus
from tacit.wire.versions import refuse_other_versions

log = logging.getLogger("tacit.field.device")
BEAT = 10.0  # seconds between heartbeats, unless a device polls more rarely
LONGEST_BEAT = 600.0  # a SuperLink takes three times as much at most
LONGEST_BACKOFF = 300.0
NOTE_SECONDS = 5.0  # between two notes of what the coordinator says
UNWILLING = (ReasonCode.MASKED_ONLY, ReasonCode.NEEDS_MASKS)  # what a round asks and the user does not allow
NOTICE_SECONDS = 21_600.0  # between two checks of the notices of the directory
CHECK_SECONDS = 1.0  # seconds between checks of the settings while the coordinator is unreachable


@dataclass(frozen=True)
class DeviceEvent:
    """An event that a user may want to know of while their device takes part."""

    what: Literal[
        "connected",
        "status",
        "model",
        "request",
        "secure-request",
        "nothing sent",
        "refused",
        "away",
        "resting",
        "amended",
    ]
    why: str = ""
    hint: str = ""
    again_in: float = 0.0  # seconds until the next try, where no server answers
    is_revoked: bool = False  # the server answers, and does not know this device


EventListener = Callable[[DeviceEvent], None]
Ending = Literal["stopped", "paused", "left"]


class LostSessionError(FieldError):
    """The exchange with the server ended before a message was answered; in a new session it is asked for again."""


class LostLockError(DeviceError):
    """Another program took part meanwhile."""


def _ignore(news: DeviceEvent) -> None:
    """Say nothing."""


class FleetNode(ABC):
    """Takes part for one device until it is stopped, paused or has left; subclasses answer the messages."""

    def __init__(self, device: DeviceFile, poll: float = 1.0) -> None:
        self.device, self.poll = device, poll
        self._beats = min(LONGEST_BEAT, max(BEAT, poll))
        self._load_connection()
        self._listen: EventListener = _ignore
        self.problem = ""  # what is wrong now, in words
        self._noted_at = self._notices_at = 0.0  # when something was noted last, and when to check notices next
        self._last_news: tuple[str, int] | None = None  # what the coordinator said when it was last news

    def _load_connection(self) -> None:
        """Load the address and the key that the device has now."""
        connection = self.device.connection
        if not connection:
            raise FieldError(
                "This device has no coordinator.", "Join a federation with an invitation: tacit device join."
            )
        self._address, self._loaded_key = connection["address"], connection["key"]
        self._key: Any = serialization.load_pem_private_key(connection["key"].encode(), None)
        self._roots = connection["roots"].encode() or None
        self._signing = SignedRequests(self._key)

    @property
    def status(self) -> CoordinatorStatus | None:
        """The last status of the coordinator; none before it was reached."""
        return self._signing.status

    def run(self, stop: threading.Event, listen: EventListener = _ignore) -> Ending:
        """Take part until `stop` is set or the user pauses or leaves; wait for a server that is unreachable."""
        backoff, participation = self.poll, self.device.participation
        participation.take_lock()
        while self._continues(stop):
            obstacle = self._find_obstacle()
            if obstacle is not None:
                listen(DeviceEvent("resting", obstacle.message, obstacle.hint))
                while self._continues(stop) and self._find_obstacle() is not None:
                    stop.wait(CHECK_SECONDS)
                continue
            try:
                if not self.problem:
                    participation.note_link("connecting")
                self.session(stop, listen)
            except FieldError as raised:
                error = self._explain(raised)
                backoff = self.poll if not self.problem else min(LONGEST_BACKOFF, 2 * backoff)
                self.problem, again_in = error.message, backoff * random.uniform(0.8, 1.2)
                is_revoked = isinstance(error, UnknownDeviceError)
                participation.note_link("revoked" if is_revoked else "unreachable", error.message)
                log.warning("no connection", extra={"fields": {"why": error.message, "again_in": round(again_in, 1)}})
                listen(DeviceEvent("away", error.message, again_in=again_in, is_revoked=is_revoked))
                until = time.monotonic() + again_in
                while self._continues(stop) and time.monotonic() < until:
                    stop.wait(min(CHECK_SECONDS, max(0.0, until - time.monotonic())))
        if self.device.connection.get("key") != self._loaded_key:
            return "left"
        return "paused" if self.device.sharing.paused else "stopped"

    def _explain(self, error: FieldError) -> FieldError:
        """Return why the coordinator does not know this device, as the list of members has it."""
        if not isinstance(error, UnknownDeviceError):
            return error
        try:
            self._check_notices(at_once=True)
        except UnknownDeviceError as noted:
            return noted
        except TacitError as refused:
            log.warning("notices were refused", extra={"fields": refused.public()})
        return error

    def _check_notices(self, at_once: bool = False) -> None:
        """Check now and then whether this device was revoked: a revoked device gets no messages that say so."""
        now = time.monotonic()
        if not at_once and now < self._notices_at:
            return
        self._notices_at = now + NOTICE_SECONDS
        shown = fetch_notices(self._address, self._roots, self.device.federation_id)
        if is_noted_revoked(self.device, shown):
            raise UnknownDeviceError.because(ReasonCode.DEVICE_REVOKED)

    def _continues(self, stop: threading.Event) -> bool:
        if stop.is_set() or self.device.sharing.paused:
            return False
        return self.device.connection.get("key") == self._loaded_key  # not that of a federation joined since

    def _find_obstacle(self) -> ConsentError | None:
        return self.device.participation.find_obstacle(self.device.sharing)

    def session(self, stop: threading.Event, listen: EventListener = _ignore) -> None:
        """Take part as long as the connection holds; its end is a FieldError."""
        if NEXT_IDENTITY in self.device.connection and NEXT_KEY not in self.device.connection:
            self._finish_change()  # others may know the new key already
        with self._connect() as client:
            node = self._activate(client)
            over = threading.Event()
            beating = threading.Thread(target=self._send_heartbeats, args=(client, node, over), daemon=True)
            beating.start()
            listen(DeviceEvent("connected"))
            try:
                self._serve(client, node, stop, listen)
            finally:
                over.set()
                beating.join()
                self._deactivate(client, node)

    @contextmanager
    def _connect(self) -> Iterator[Any]:
        """Connect inside the block; whatever ends the connection is a FieldError."""
        try:
            with BoundedFleetClient.from_server_address(
                self._address, False, self._roots, interceptors=[self._signing]
            ) as client:
                yield client
        except (httpx.HTTPError, RuntimeError, ValueError) as error:
            refuse_other_versions(self._address, self._signing.versions)
            raised = _connection_error(self._address, error)
            if isinstance(raised, UnknownDeviceError) and NEXT_KEY in self.device.connection:
                self._finish_change()  # its answer was lost: the coordinator may know the new key already
                raised = FieldError(
                    Sentence("{address} knows this device by its new key now.", address=self._address),
                    "It connects again.",
                )
            raise raised from None

    def _finish_change(self) -> None:
        """Ask for a change of key that was begun once more; its signature takes the whole device."""
        from tacit.field.device import Device
        from tacit.field.key_rotation import finish_change

        with Device(self.device.store.open_again()) as device:
            finish_change(device)
        self._load_connection()

    def _activate(self, client: Any) -> Any:
        """Begin a session of this device; after a crash the server may believe that the last one still runs."""
        from flwr.supercore.primitives.asymmetric import public_key_to_bytes

        hello = ActivateNodeRequest(
            public_key=public_key_to_bytes(self._key.public_key()), heartbeat_interval=3 * self._beats
        )
        connection = self.device.connection
        try:
            node = client.ActivateNode(hello).node_id
        except httpx.HTTPStatusError:
            if "node" not in connection:
                raise
            client.DeactivateNode(DeactivateNodeRequest(node_id=int(connection["node"])))
            node = client.ActivateNode(hello).node_id
        if connection.get("node") != str(node):
            self.device.keep_connection({**connection, "node": str(node)})
        self.problem = ""
        return Node(node_id=node)

    def _serve(self, client: Any, node: Any, stop: threading.Event, listen: EventListener) -> None:
        self._listen = listen
        while self._continues(stop) and self._find_obstacle() is None:
            found = self._poll(client, node)
            if found is None:
                return
            if not found.messages_list:
                stop.wait(self.poll)
                continue
            try:
                self._handle(client, node, found, stop)
            except (LostSessionError, LostLockError):
                raise
            except ConsentError as error:
                log.info("nothing was sent", extra={"fields": error.public()})
                if error.reason is not None and error.reason.code in UNWILLING:
                    self.device.participation.note_link("refusing", error.message)
                listen(DeviceEvent("nothing sent", error.message, error.hint))
            except TacitError as error:
                log.warning("a message was refused", extra={"fields": error.public()})
                listen(DeviceEvent("refused", error.message, error.hint))
                stop.wait(self.poll)  # a coordinator that repeats it is not asked again and again

    def _follow_notices(self) -> None:
        """Check the notices; the listener gets what is wrong with them, and the next sum is checked against them."""
        try:
            self._check_notices()
        except UnknownDeviceError:
            raise
        except TacitError as error:
            log.warning("notices were refused", extra={"fields": error.public()})
            self._listen(DeviceEvent("refused", error.message, error.hint))

    def _poll(self, client: Any, node: Any) -> Any:
        """Poll for messages, and pass on a new status of the coordinator; none: there is nothing more to do here."""
        self._follow_notices()
        found = client.PullMessages(PullMessagesRequest(node=node))
        refuse_other_versions(self._address, self._signing.versions)
        status = self.status
        self._note_status(status)
        if status is not None and (status.phase, status.missing) != self._last_news:
            self._last_news = status.phase, status.missing
            if status.phase == "pause" or (status.phase == "waiting" and status.missing):
                self._listen(DeviceEvent("status", status.describe()))
        return found

    @abstractmethod
    def _handle(self, client: Any, node: Any, found: Any, stop: threading.Event) -> None:
        """Answer what was found, and notify the listener."""

    def _note_status(self, status: CoordinatorStatus | None) -> None:
        """Note the coordinator's status, not more often than a reader needs it."""
        known, now = self.device.participation.link, time.monotonic()
        if known is not None and known.kind == "refusing":
            return  # until it is answered
        is_same = known is not None and known.kind == "connected" and _is_alike(known.status, status)
        if not is_same and (known is None or known.kind != "connected" or now - self._noted_at >= NOTE_SECONDS):
            self._noted_at = now
            self.device.participation.note_link("connected", status=status)

    def _send_heartbeats(self, client: Any, node: Any, over: threading.Event) -> None:
        """Send heartbeats while the device learns; a server that is gone is noticed elsewhere."""
        while not over.wait(self._beats):
            try:
                client.SendNodeHeartbeat(SendNodeHeartbeatRequest(node=node, heartbeat_interval=3 * self._beats))
            except (httpx.HTTPError, RuntimeError):
                continue

    def _deactivate(self, client: Any, node: Any) -> None:
        try:
            client.DeactivateNode(DeactivateNodeRequest(node_id=node.node_id))
        except (httpx.HTTPError, RuntimeError):
            return  # it will notice


def _is_alike(before: CoordinatorStatus | None, now: CoordinatorStatus | None) -> bool:
    """Say whether two statuses mean the same to a user; the seconds left of a pause do not count."""
    if before is None or now is None or before.phase != now.phase:
        return before is now
    if before.new_missing != now.new_missing:
        return False
    return before.phase in ("round", "finished") or (before.here, before.needed) == (now.here, now.needed)


class UnknownDeviceError(FieldError):
    """The server answers, and does not know this device."""


def _connection_error(address: str, error: Exception) -> FieldError:
    """Say why a connection failed."""
    text, again = str(error), "It will be tried again."
    if "CERTIFICATE_VERIFY_FAILED" in text:
        if "expired" in text:
            return FieldError(Sentence("The certificate of {address} has expired.", address=address), again)
        if "not yet valid" in text:
            early = "The certificate of {address} is not valid yet, or this machine's clock is behind."
            return FieldError(Sentence(early, address=address), again)
        other = "The certificate of {address} is not the one of the invitation, or names another host."
        return FieldError(Sentence(other, address=address), again)
    if isinstance(error, httpx.HTTPStatusError):
        skew = seconds_ahead(error.response) or 0.0
        if error.response.status_code == 401 and abs(skew) > 5:
            ahead = "{address} refuses: this machine's clock is {seconds:.0f} s ahead."
            behind = "{address} refuses: this machine's clock is {seconds:.0f} s behind."
            return FieldError(Sentence(ahead if skew > 0 else behind, address=address, seconds=abs(skew)), again)
        if error.response.status_code in (401, 403, 404, 409, 412):
            return UnknownDeviceError(
                Sentence("{address} does not know this device: it was revoked, or never enrolled.", address=address),
                "Ask for a new invitation.",
            )
        return FieldError(
            Sentence("{address} refuses (HTTP {status}).", address=address, status=error.response.status_code), again
        )
    return FieldError(
        Sentence("{address} cannot be reached ({error}).", address=address, error=type(error).__name__), again
    )
