"""Every route of a coordinator under bent requests, of a member and of others: it runs on, and stores nothing."""

from __future__ import annotations

import asyncio
import base64
import json
import resource
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import httpx
import numpy as np
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from helpers.mutations import bend
from helpers.town_federation import founded, journal_of, town
from tacit.field.carriers.enrolment_limits import ENROL, HAND_OVER, NEW_IDENTITY_KEY, WITNESS
from tacit.field.certificates import make_certificates
from tacit.field.coordinator.config import WitnessRules
from tacit.field.directory_notices import NOTICES
from tacit.protocols.directory import DirectoryCheckpoint
from tacit.protocols.notices import key_change
from tacit.protocols.secure_aggregation import Identity

pytest.importorskip("flwr", reason="the field needs Flower")
from flwr.proto.fab_pb2 import GetFabRequest
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
    RegisterNodeFleetRequest,
    UnregisterNodeFleetRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, PullObjectRequest, PushObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.proto.run_pb2 import GetRunRequest

from tacit.field.carriers.signing import SignedRequests
from tacit.field.carriers.superlink import SuperLink
from tacit.wire.amendments import PATH as AMENDMENTS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # Flower and its servers warn of their own doings
]
FLEET, PROTOBUF = "/v1/fleet/", "application/protobuf"


class Line:
    """A coordinator's routes, called in this process, and one member."""

    def __init__(self, folder: Path) -> None:
        self.witness = Identity.fresh()
        catalog = town()[1]
        self.journal = journal_of(folder, founded("fpl", catalog), catalog)
        self.key = ec.generate_private_key(ec.SECP384R1())
        form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        self.public = self.key.public_key().public_bytes(*form)
        self.member = Identity.fresh()
        self.journal.members.add(self.public, self.member.public)
        tls = make_certificates(folder / "tls", "127.0.0.1")
        rules = WitnessRules(key=self.witness.public.hex(), settled_hours=0)
        self.link = SuperLink(self.journal, "127.0.0.1", 0, tls.certificate, tls.key, rules)
        self.app = self.link._app()
        self.node = Node(node_id=self.link._nodes[1])

    def bodies(self) -> dict[str, bytes]:
        """A right body for every route."""
        node, digest = self.node, "ab" * 32
        word = {"word": "x" * 20, "key": "", "identity": base64.b64encode(bytes(32)).decode(), "proof": ""}
        fleet = {
            "register-node": RegisterNodeFleetRequest(public_key=self.public),
            "activate-node": ActivateNodeRequest(public_key=self.public, heartbeat_interval=30),
            "deactivate-node": DeactivateNodeRequest(node_id=node.node_id),
            "unregister-node": UnregisterNodeFleetRequest(node_id=node.node_id + 1),
            "send-node-heartbeat": SendNodeHeartbeatRequest(node=node, heartbeat_interval=30),
            "pull-messages": PullMessagesRequest(node=node),
            "push-messages": PushMessagesRequest(node=node),
            "get-run": GetRunRequest(node=node, run_id=1),
            "get-fab": GetFabRequest(node=node, hash_str=digest, run_id=1),
            "push-object": PushObjectRequest(node=node, run_id=1, object_id=digest, object_content=b"x" * 60),
            "pull-object": PullObjectRequest(node=node, run_id=1, object_id=digest),
            "confirm-message-received": ConfirmMessageReceivedRequest(node=node, run_id=1, message_object_id=digest),
        }
        checkpoint = DirectoryCheckpoint.sign(Identity.fresh(), bytes(16), 1, bytes(32), 1_700_000_000)
        return {FLEET + name: message.SerializeToString() for name, message in fleet.items()} | {
            ENROL: json.dumps(word | {"key": base64.b64encode(self.public).decode()}).encode(),
            HAND_OVER: json.dumps(
                dict.fromkeys(("old", "new", "proof"), base64.b64encode(self.public).decode())
            ).encode(),
            NEW_IDENTITY_KEY: json.dumps(
                {"notice": base64.b64encode(key_change(self.member, self.member.renew(), bytes(16)).encode()).decode()}
            ).encode(),
            WITNESS: checkpoint.encode(),
            AMENDMENTS: digest.encode(),
            NOTICES: digest.encode(),
        }

    def signed(self) -> dict[str, str]:
        """The headers of the member."""
        given = SimpleNamespace(request=SimpleNamespace(headers={}))
        found: dict[str, str] = SignedRequests(self.key)._signed(given).request.headers
        return found

    async def send(self, route: str, body: bytes, headers: dict[str, str], address: str = "10.0.0.1") -> int:
        """Send one request; return its status."""
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False, client=(address, 1))
        async with httpx.AsyncClient(transport=transport, base_url="https://here") as client:
            if route in (AMENDMENTS, NOTICES):
                path = "".join(chr(byte) for byte in body if 33 <= byte < 127 and chr(byte) not in "?#%\\")
                return (await client.get(f"{route}/{path.replace('/', '') or 'x'}")).status_code
            return (await client.post(route, content=body, headers=headers)).status_code


@pytest.fixture
def line(tmp_path: Path) -> Iterator[Line]:
    made = Line(tmp_path)
    yield made
    made.link.close()


def check_routes(line: Line, times: int, seed: int) -> dict[str, Counter[tuple[str, int]]]:
    """Send bent requests to every route, as an unknown sender and as the member; return what was answered."""
    before, found = line.journal.members.devices(), dict[str, Counter[tuple[str, int]]]()
    generator = np.random.default_rng(seed)

    async def send_all() -> None:
        for route, body in line.bodies().items():
            seen = found.setdefault(route, Counter())
            for at in range(times):
                line.link._limit._left.clear()  # the limits have tests of their own
                who = "member" if at % 2 and route.startswith(FLEET) else "unknown"
                headers = {"content-type": PROTOBUF, **(line.signed() if who == "member" else {})}
                seen[who, await line.send(route, bend(body, generator), headers)] += 1

    asyncio.run(send_all())
    assert line.journal.members.devices() == before
    assert not line.journal.rounds.records()
    assert not line.journal.directory.checkpoints()
    assert not line.journal.notices.list().notices
    return found


def check_answers(found: dict[str, Counter[tuple[str, int]]]) -> None:
    for route, seen in found.items():
        refused = {401, 404} if route.startswith(FLEET) else {400, 403, 404, 413}
        unknown = {status for who, status in seen if who == "unknown"}
        assert unknown <= refused | {400, 422}, f"{route} answers an unknown sender with {unknown}"
        members = {status for who, status in seen if who == "member"}
        assert members <= {200, *range(400, 501)}, f"{route}: {seen}"  # 500: Flower, of objects that do not exist


def test_bent_requests_to_every_route_are_refused(line: Line) -> None:
    check_answers(check_routes(line, 10, 0))


@pytest.mark.fuzz
def test_ten_thousand_bent_requests_to_every_route(line: Line) -> None:
    found = check_routes(line, 10_000, 1)
    print({route: dict(seen) for route, seen in found.items()})
    check_answers(found)


def flood(line: Line, times: int) -> int:
    """Let unknown senders of many addresses try to enrol; return the bytes that memory grew by."""
    body = line.bodies()[ENROL]

    async def send_all() -> None:
        for at in range(times):
            status = await line.send(ENROL, body, {}, f"10.{at // 65536}.{at // 256 % 256}.{at % 256}")
            assert status == 403

    if times <= 50:
        asyncio.run(send_all())  # the first ones also load what is needed
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    asyncio.run(send_all())
    return 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - size)


def test_bogus_enrolments_leave_memory_as_it_is(line: Line) -> None:
    """The client is in this process too: the coordinator's own part is smaller."""
    assert flood(line, 50) < 2**25


@pytest.mark.fuzz
def test_ten_thousand_bogus_enrolments_leave_memory_as_it_is(line: Line) -> None:
    assert flood(line, 10_000) < 2**25
