"""The coordinator's end of the line: a Flower SuperLink, reduced to what devices need.

Only Flower's Fleet API is served, over TLS, to registered keys: there is no door through which anybody could submit an
application or a run. Beside it stands one route of ours, where an invitation enrols a device.
"""

from __future__ import annotations

import base64
import socket
import ssl
import threading
import time
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

from tacit.errors import FieldError, WireError
from tacit.field.carriers.parcels import SERVER, names_in, open_parcel, wrap_request
from tacit.field.coordinator import CoordinatorJournal
from tacit.wire.messages import MOST_BYTES

LOOK = 0.02  # seconds between looks at what has arrived
SPARE = 3600.0  # seconds that Flower keeps a message beyond the deadline, which is ours
ENROL = "/v1/tacit/enrol"
IDENTITY_BYTES = 32
KEYS = ("key", "identity", "proof")


class SuperLink:
    """A carrier over real sockets."""

    def __init__(self, journal: CoordinatorJournal, host: str, port: int, certificate: Path, key: Path) -> None:
        from flwr.common.constant import NOOP_ACCOUNT_NAME, NOOP_FLWR_AID
        from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME, NOOP_FEDERATION_ID, TaskType
        from flwr.superlink.config_loader import get_federation_manager, get_objectstore_linkstate_factories

        self._journal, self._owner = journal, (NOOP_FLWR_AID, NOOP_ACCOUNT_NAME)
        _, self._factory = get_objectstore_linkstate_factories(FLWR_IN_MEMORY_DB_NAME, get_federation_manager())
        self._state: Any = self._factory.state()
        self._run = self._state.create_run(
            "", "", "", {}, NOOP_FEDERATION_ID, None, NOOP_FLWR_AID, str(TaskType.SERVER_APP)
        )
        self._task = self._state.get_run_info(run_ids=[self._run])[0].primary_task_id
        self._state.claim_task(self._task)
        self._state.activate_task(self._task)
        self._nodes: dict[int, int] = {}  # device -> node
        self._lock = threading.Lock()
        self._sync()
        self._listen(host, port, certificate, key)

    # --- the socket ---------------------------------------------------------------------------------------------------

    def _listen(self, host: str, port: int, certificate: Path, key: Path) -> None:
        import uvicorn

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
            time.sleep(LOOK)

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
                Middleware(_BodyLimit),
                Middleware(BaseHTTPMiddleware, dispatch=http_error_translator),
                Middleware(ProtobufTranslationMiddleware),
                Middleware(NodeAuthMiddleware),
            ],
        )
        app.state.linkstate_factory = self._factory
        app.state.enable_supernode_auth = True
        app.include_router(router)
        app.add_route(ENROL, self._enrol, methods=["POST"])
        return app

    async def _enrol(self, request: Any) -> Any:
        """Enrol a device by an invitation's word; the answer is what it needs to join."""
        from starlette.concurrency import run_in_threadpool
        from starlette.responses import Response

        try:
            given = await request.json()
            word = str(given["word"])
            key, identity, proof = (base64.b64decode(given[name], validate=True) for name in KEYS)
            if len(key) > 1000 or len(identity) != IDENTITY_BYTES:
                raise ValueError("these are not keys")
        except (ValueError, KeyError, TypeError):
            return Response(status_code=400)
        welcome = await run_in_threadpool(self._enrolled, word, key, identity, proof)
        return Response(welcome or b"", 200 if welcome else 403, media_type="application/octet-stream")

    def _enrolled(self, word: str, key: bytes, identity: bytes, proof: bytes) -> bytes | None:
        journal = CoordinatorJournal.open(self._journal.path)  # a connection of this thread's own
        try:
            number = journal.enrol(word, key, int(time.time()), identity, proof)
            welcome = journal.welcome
        finally:
            journal.close()
        if number is None:
            return None
        self._sync()
        return welcome

    def close(self) -> None:
        """Stop listening."""
        self._server.should_exit = True
        self._thread.join(10)

    # --- who is there -------------------------------------------------------------------------------------------------

    def _sync(self) -> None:
        """Let the SuperLink know the devices that the journal knows, and no others."""
        journal = CoordinatorJournal.open(self._journal.path)
        try:
            devices = journal.devices()
        finally:
            journal.close()
        with self._lock:
            for device in devices:
                if device.revoked and device.number in self._nodes:
                    self._state.delete_node(self._owner[0], self._nodes.pop(device.number))
                elif not device.revoked and device.number not in self._nodes:
                    self._nodes[device.number] = self._state.create_node(*self._owner, device.key, 0)

    def present(self) -> frozenset[int]:
        """Return the devices that are connected now."""
        self._sync()
        return self._online()

    def _online(self) -> frozenset[int]:
        self._state.acknowledge_task_heartbeat(self._task)
        online = self._state.get_nodes(self._run)
        return frozenset(device for device, node in self._nodes.items() if node in online)

    # --- messages -----------------------------------------------------------------------------------------------------

    def ask(self, requests: Mapping[int, bytes], seconds: float) -> Generator[tuple[int, bytes]]:
        """Put requests where devices fetch them, and yield answers as they arrive."""
        until = time.monotonic() + seconds
        waiting = {self._post(content, device, seconds + SPARE): device for device, content in requests.items()}
        everything, arriving = set(waiting), dict[str, int]()
        waiting.pop("", None)
        gone = set(requests) - set(waiting.values())  # they may come back in time
        try:
            while (waiting or arriving or gone) and time.monotonic() < until:
                for device in gone & self._online():
                    name = self._post(requests[device], device, seconds + SPARE)
                    if name:
                        waiting[name] = device
                        everything.add(name)
                        gone.discard(device)
                for message in self._state.get_message_res(set(waiting), self._run) if waiting else ():
                    device = waiting.pop(message.metadata.reply_to_message_id)
                    if message.has_error():
                        gone.add(device)
                    else:
                        arriving[message.metadata.message_id] = device
                for name, device in list(arriving.items()):
                    content = self._whole(name)
                    if content is not None:
                        del arriving[name]
                        yield device, content
                time.sleep(LOOK)
        finally:
            self._state.delete_messages(everything - {""})

    def tell(self, messages: Mapping[int, bytes], seconds: float) -> None:
        """Put messages where devices fetch them, and wait until they have."""
        until = time.monotonic() + seconds
        waiting = {self._post(content, device, seconds + SPARE) for device, content in messages.items()} - {""}
        while waiting and time.monotonic() < until:
            self._state.acknowledge_task_heartbeat(self._task)
            waiting = {name for name in waiting if self._state.object_store.get(name) is not None}
            time.sleep(LOOK)

    def _post(self, content: bytes, device: int, seconds: float) -> str:
        """Store one message for a device; return its id, or nothing if the device is gone."""
        parcel = wrap_request(content, self._nodes.get(device, SERVER), self._run, seconds)
        session = self._state.start_session(self._run)
        stored, missing = self._state.store_message_and_object_tree(parcel.head, parcel.tree, session)
        if not stored:
            return ""
        for name in missing:
            self._state.store_object(self._run, session, name, parcel.objects[name])
        return parcel.id

    def _whole(self, root: str) -> bytes | None:
        """Return an answer when all of it is here; what cannot be one is returned as no message at all."""
        store = self._state.object_store
        try:
            contents = {name: store.get(name) for name in names_in(store.get_object_tree(root))}
            if not all(contents.values()):
                return None
            return open_parcel(root, contents)
        except WireError:
            return b""


class _BodyLimit:
    """Refuses bodies that are larger than any message can be, before they are read."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        size = next((value for name, value in scope.get("headers", ()) if name == b"content-length"), b"0")
        if scope["type"] == "http" and (not size.isdigit() or int(size) > MOST_BYTES + 2**16):
            await send({"type": "http.response.start", "status": 413, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        await self._app(scope, receive, send)
