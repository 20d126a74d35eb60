"""The coordinator's side of the connection: a Flower SuperLink, reduced to what devices need.

Only Flower's Fleet API is served, over TLS, to registered keys: there is no way to submit an application or a run. One
route of our own is added, where an invitation enrols a device.
"""

from __future__ import annotations

import base64
import socket
import ssl
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flwr.supercore.object_store import NoObjectInStoreError

from tacit.errors import FieldError, WireError
from tacit.field.carriers.body_limit import BodyLimit
from tacit.field.carriers.enrolment_limits import (
    AT_ONCE,
    ENROL,
    HAND_OVER,
    WITNESS,
    EnrolmentLimit,
    is_device_key,
)
from tacit.field.carriers.flower_messages import names_in, unwrap_message, wrap_request
from tacit.field.carriers.link_state import SteadyLinkState
from tacit.field.carriers.notice_routes import NoticeRoutes
from tacit.field.carriers.version_gate import VersionGate
from tacit.field.carriers.witness_route import WitnessRoute
from tacit.field.coordinator import CoordinatorJournal
from tacit.field.coordinator.config import WitnessRules
from tacit.field.coordinator.login import LoginRules
from tacit.wire.amendments import PATH as AMENDMENTS
from tacit.wire.status import HEADER, CoordinatorStatus

POLL_SECONDS, MOST_POLL_SECONDS = 0.02, 1.0  # between polls for answers, of few devices and of very many
PAUSE_FACTOR = 5  # the pause after a poll over the duration of the poll: polling takes a sixth of a core at most
IDENTITY_BYTES = 32
KEYS = ("key", "identity", "proof")


@dataclass(frozen=True)
class _PostedMessage:
    """A message that is ready to be fetched: its name, and in which of the device's sessions it was stored."""

    name: str
    session: int


class SuperLink:
    """A carrier over real sockets."""

    def __init__(
        self,
        journal: CoordinatorJournal,
        host: str,
        port: int,
        certificate: Path,
        key: Path,
        witness: WitnessRules | None = None,
        login: LoginRules | None = None,
    ) -> None:
        self._journal, self._state, self._login = journal, SteadyLinkState(), login
        self._witness = WitnessRoute(journal, witness)
        self._run = self._state.start_run()
        self._nodes: dict[int, int] = {}  # device -> node
        self._keys: dict[int, bytes] = {}  # device -> the key of its node
        self._node_of: dict[bytes, int] = {}  # key -> node: every request asks
        self._welcome = journal.welcome  # it is large, and the same for all devices
        self._limit, self._enrolling = EnrolmentLimit(), 0
        self._offers: dict[int, _PostedMessage] = {}
        self._status = b""
        self._written: tuple[int, int] | None = None  # as the journal's file was when devices were last read
        self._lock = threading.Lock()
        self._sync()
        self._listen(host, port, certificate, key)

    # --- the socket ---------------------------------------------------------------------------------------------------

    def _listen(self, host: str, port: int, certificate: Path, key: Path) -> None:
        import uvicorn

        from tacit.field.carriers.slow_connections import PunctualProtocol, allow_many_connections

        allow_many_connections()
        try:
            listener = socket.create_server((host, port))
        except OSError as error:
            raise FieldError(
                f"Cannot listen on {host}:{port}: {error.strerror}.",
                "Another program uses it, or you may not. Choose another port.",
            ) from None
        self.port = int(listener.getsockname()[1])
        try:
            config = uvicorn.Config(
                self._app(),
                log_config=None,
                access_log=False,
                ssl_certfile=certificate,
                ssl_keyfile=key,
                http=PunctualProtocol,
                timeout_keep_alive=30,
                server_header=False,
            )
            config.load()
        except (OSError, ssl.SSLError) as error:
            listener.close()
            raise FieldError(
                f"The certificate '{certificate}' cannot be used: {error}.",
                "Give another certificate, or delete it to let the coordinator make one.",
            ) from None
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [listener]}, daemon=True)
        self._thread.start()
        until = time.monotonic() + 30
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > until:
                raise FieldError("The SuperLink did not start.", "See the log above.")
            time.sleep(POLL_SECONDS)

    def _app(self) -> Any:
        from fastapi import FastAPI
        from flwr.supercore.error import http_error_translator
        from flwr.supercore.protobuf.translation import ProtobufTranslationMiddleware
        from flwr.superlink.routers.fleet.node_auth import NodeAuthMiddleware
        from flwr.superlink.routers.fleet.router import router
        from starlette.middleware import Middleware
        from starlette.middleware.base import BaseHTTPMiddleware

        app = FastAPI(
            docs_url=None,
            redoc_url=None,
            openapi_url=None,
            middleware=[
                Middleware(VersionGate),
                Middleware(BodyLimit, members=self),
                Middleware(_StatusHeader, status=lambda: self._status),
                Middleware(BaseHTTPMiddleware, dispatch=http_error_translator),
                Middleware(ProtobufTranslationMiddleware),
                Middleware(NodeAuthMiddleware),
            ],
        )
        app.state.linkstate_factory = self._state
        app.state.enable_supernode_auth = True
        app.include_router(router)
        app.add_route(ENROL, self._enrol, methods=["POST"])
        app.add_route(HAND_OVER, self._hand_over, methods=["POST"])
        app.add_route(WITNESS, self._visit, methods=["POST"])
        NoticeRoutes(self._journal, self._limit).add_to(app)
        app.add_route(f"{AMENDMENTS}/{{digest}}", self._amendments, methods=["GET"])
        return app

    async def _enrol(self, request: Any) -> Any:
        """Enrol a device by an invitation's word; the answer is what it needs to join."""
        from starlette.concurrency import run_in_threadpool
        from starlette.responses import Response

        if not self._limit.allows("" if request.client is None else request.client.host):
            return Response(status_code=429)
        if self._enrolling >= AT_ONCE:
            return Response(status_code=503)
        try:
            given = await request.json()
            word = str(given["word"])
            key, identity, proof = (base64.b64decode(given[name], validate=True) for name in KEYS)
            if len(identity) != IDENTITY_BYTES or not is_device_key(key):
                raise ValueError("these are not keys")
        except (ValueError, KeyError, TypeError, RecursionError):
            return Response(status_code=400)
        self._enrolling += 1
        try:
            welcome = await run_in_threadpool(self._add_device, word, key, identity, proof)
        finally:
            self._enrolling -= 1
        return Response(welcome or b"", 200 if welcome else 403, media_type="application/octet-stream")

    async def _hand_over(self, request: Any) -> Any:
        """Let a device have a new key, by the signature of its identity."""
        from starlette.concurrency import run_in_threadpool
        from starlette.responses import Response

        if not self._limit.allows("" if request.client is None else request.client.host):
            return Response(status_code=429)
        try:
            given = await request.json()
            old, new, proof = (base64.b64decode(given[name], validate=True) for name in ("old", "new", "proof"))
            if not is_device_key(new):
                raise ValueError("this is no key")
        except (ValueError, KeyError, TypeError, RecursionError):
            return Response(status_code=400)
        return Response(status_code=200 if await run_in_threadpool(self._change_key, old, new, proof) else 403)

    def _change_key(self, old: bytes, new: bytes, proof: bytes) -> bool:
        journal = self._journal.again()  # a connection of this thread's own
        try:
            is_right = journal.members.hand_over(old, new, proof)
        finally:
            journal.close()
        self._sync()
        return is_right

    async def _visit(self, request: Any) -> Any:
        """Answer the witness of the directory."""
        from starlette.concurrency import run_in_threadpool
        from starlette.responses import Response

        status, body = await run_in_threadpool(self._witness.answer, await request.body())
        return Response(body, status, media_type="application/octet-stream")

    async def _amendments(self, request: Any) -> Any:
        """Give out what has changed since the terms of a digest, which members know and others cannot guess."""
        from starlette.concurrency import run_in_threadpool
        from starlette.responses import Response

        chain = await run_in_threadpool(self._chain_since, request.path_params["digest"])
        return Response(chain, 200 if chain else 404, media_type="application/octet-stream")

    def _chain_since(self, digest: str) -> bytes:
        journal = self._journal.again()  # a connection of this thread's own
        try:
            return journal.amendments.since(_digest_in(digest))
        finally:
            journal.close()

    def _add_device(self, word: str, key: bytes, identity: bytes, proof: bytes) -> bytes | None:
        journal = self._journal.again()  # a connection of this thread's own
        try:
            number = journal.members.enrol(word, key, int(time.time()), identity, proof, self._login)
        finally:
            journal.close()
        if number is None:
            return None
        self._sync()
        return self._welcome

    def close(self) -> None:
        """Stop listening."""
        self._server.should_exit = True
        self._thread.join(10)

    # --- who is there -------------------------------------------------------------------------------------------------

    def _sync(self) -> None:
        """Let the SuperLink know the devices that the journal knows, and no others; a journal as it was is not read."""
        written = self._journal.change_mark()
        if written == self._written and written is not None:
            return
        journal = self._journal.again()
        try:
            devices = journal.members.devices()
        finally:
            journal.close()
        with self._lock:
            for device in devices:
                has_changed = device.revoked or self._keys.get(device.number) != device.key
                if has_changed and device.number in self._nodes:
                    self._state.remove_node(self._nodes.pop(device.number))
                if not device.revoked and device.number not in self._nodes:
                    self._nodes[device.number] = self._state.add_node(device.key)
                    self._keys[device.number] = device.key
            self._node_of = {self._keys[number]: node for number, node in self._nodes.items()}
            self._written = written

    def most_body(self, key: bytes) -> int:
        """Return how many bytes a request with this key may have now; 0 if no device that may connect has it."""
        node = self._node_of.get(key)
        return 0 if node is None else self._state.most_from(node)

    def refuse_answer(self, key: bytes) -> None:
        """Give up the answer that a device is sending: more of it came than an honest one can have."""
        node = self._node_of.get(key)
        if node is not None:
            self._state.refuse_answers(node)

    def present(self) -> frozenset[int]:
        """Return the devices that are connected now."""
        self._sync()
        return self._online()

    def _online(self) -> frozenset[int]:
        online = self._state.online()
        return frozenset(device for device, node in self._nodes.items() if node in online)

    # --- messages -----------------------------------------------------------------------------------------------------

    def ask(self, requests: Mapping[int, bytes], seconds: float, most_bytes: int) -> Generator[tuple[int, bytes]]:
        """Store requests for devices to fetch, and yield answers as they arrive.

        A device that was away, or has come back in between, finds its request again: it may have crashed with the
        first. Of an answer with more than `most_bytes` no more is read, and it is yielded as no message at all.
        """
        until, posted, answered = time.monotonic() + seconds, dict[int, _PostedMessage](), set[int]()
        self._withdraw(requests)
        try:
            while len(answered) < len(requests) and time.monotonic() < until:
                began, online = time.monotonic(), self._online()
                for device in requests.keys() - answered:
                    content = self._answer_of(posted.get(device))  # first: a new session takes no answer back
                    if content is None:
                        self._keep_posted(posted, device, requests[device], device in online, most_bytes)
                        continue
                    answered.add(device)
                    self._take_back(posted, device)
                    yield device, content
                time.sleep(pause_after(time.monotonic() - began))
        finally:
            for device in list(posted):
                self._take_back(posted, device)

    def tell(self, messages: Mapping[int, bytes], seconds: float) -> None:
        """Store messages for devices to fetch, and wait until they have."""
        until, posted = time.monotonic() + seconds, dict[int, _PostedMessage]()
        self._withdraw(messages)
        for device, content in messages.items():
            self._keep_posted(posted, device, content, is_online=True)
        try:
            began = time.monotonic()
            while began < until and any(self._state.is_unread(one.name) for one in posted.values()):
                time.sleep(pause_after(time.monotonic() - began))
                began = time.monotonic()
        finally:
            for device in list(posted):
                self._take_back(posted, device)

    def offer(self, messages: Mapping[int, bytes]) -> None:
        """Store messages for devices to fetch when they poll."""
        self._withdraw(messages)
        for device, content in messages.items():
            self._keep_posted(self._offers, device, content, is_online=True)

    def _withdraw(self, devices: Iterable[int]) -> None:
        """Take back what was offered to devices that are about to get something else."""
        for device in devices:
            self._take_back(self._offers, device)

    @property
    def status(self) -> CoordinatorStatus | None:
        """What the coordinator does now; none before it has begun."""
        return CoordinatorStatus.read(self._status.decode("ascii"))

    def announce(self, status: CoordinatorStatus) -> None:
        """Set the status that every polling device gets."""
        self._status = status.write().encode("ascii")

    def _keep_posted(
        self, posted: dict[int, _PostedMessage], device: int, content: bytes, is_online: bool, most_bytes: int = 0
    ) -> None:
        """Make sure that a message is stored for a device that is connected, in its present session.

        Its answer has `most_bytes` at most; it wants none if that is 0.
        """
        node = self._nodes.get(device)
        if node is None or not is_online:
            return
        last, session = posted.get(device), self._state.activations[node]
        if last is not None and last.session == session and self._state.is_waiting(last.name):
            return
        self._take_back(posted, device)
        wrapped = wrap_request(content, node, self._run)
        if self._state.post(wrapped, self._run, most_bytes):
            posted[device] = _PostedMessage(wrapped.id, session)

    def _take_back(self, posted: dict[int, _PostedMessage], device: int) -> None:
        if device in posted:
            self._state.take_back(posted.pop(device).name)

    def _answer_of(self, posted: _PostedMessage | None) -> bytes | None:
        if posted is not None and self._state.is_overlong(posted.name):
            return b""
        answer = None if posted is None else self._state.answer_to(posted.name)
        return None if answer is None else self._whole(answer)

    def _whole(self, root: str) -> bytes | None:
        """Return an answer when all of it is here; what cannot be one is returned as no message at all."""
        store = self._state.object_store
        try:
            contents = {name: store.get(name) for name in names_in(store.get_object_tree(root))}
            if not all(contents.values()):
                return None
            return unwrap_message(root, contents)
        except (WireError, NoObjectInStoreError):
            return b""


def pause_after(seconds: float) -> float:
    """Return how long to pause after a poll for answers that took so many seconds.

    >>> [round(pause_after(seconds), 3) for seconds in (0.001, 0.05, 3.0)]
    [0.02, 0.25, 1.0]
    """
    return min(MOST_POLL_SECONDS, max(POLL_SECONDS, PAUSE_FACTOR * seconds))


def _digest_in(text: str) -> bytes:
    """Return the digest that a path names; nothing where it names none."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""


class _StatusHeader:
    """Adds the coordinator's status to what devices with a registered key are answered."""

    def __init__(self, app: Any, status: Callable[[], bytes]) -> None:
        self._app, self._status = app, status

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def add_status(message: Any) -> None:
            status = self._status()
            if status and message["type"] == "http.response.start" and message["status"] == 200:
                message["headers"] = [*message["headers"], (HEADER.encode("ascii"), status)]
            await send(message)

        is_fleet = scope["type"] == "http" and scope["path"].startswith("/v1/fleet/")
        await self._app(scope, receive, add_status if is_fleet else send)
