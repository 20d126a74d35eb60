"""Messages over Eclipse Zenoh. Peers that can be reached are routers, all others connect to routers from inside.

The inbox of a peer is a queryable; a message is a query with a payload, and its reply is the acknowledgement.
Connections are TLS in both directions with certificates of the network. Multicast, gossip discovery and shared memory
are off: a peer connects to the routers that it was given, and to nothing else.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from tacit.errors import ConfigError, FieldError
from tacit.field.peer.carrier import SECONDS, IsReply, Receive
from tacit.field.peer.network_certificates import NetworkCertificates
from tacit.languages.sentences import Sentence
from tacit.wire.peer_messages import MOST_BYTES, PeerSeal

MOST_SESSIONS = 10_000  # connections that a router takes; the default is 1,000
_ADDRESS = re.compile(r"(\[[0-9a-fA-F:]+\]|[A-Za-z0-9.-]+):[0-9]{1,5}")


def need_zenoh() -> None:
    """Refuse if Zenoh is not installed."""
    if find_spec("zenoh") is None:
        raise FieldError(
            "A network of peers needs Eclipse Zenoh, which is not installed.",
            "Run: make peer, in the folder of Tacit's source.",
        )


def check_address(address: str) -> str:
    """Return an address HOST:PORT; anything else is refused."""
    if not _ADDRESS.fullmatch(address) or int(address.rpartition(":")[2]) > 65535:
        raise ConfigError(
            Sentence("'{address}' is not the address of a router.", address=address),
            "Write HOST:PORT, e.g. 192.0.2.7:7447.",
        )
    return address


class ZenohCarrier:
    """A connection through routers; with `listen`, this peer is a router itself."""

    def __init__(self, seal: PeerSeal, routers: Sequence[str], listen: Sequence[str] = ()) -> None:
        need_zenoh()
        self._seal, self._network = seal, seal.network.hex()[:32]
        own = {check_address(address) for address in listen}
        self._listen = [f"tls/{address}" for address in listen]
        self._routers = [f"tls/{check_address(address)}" for address in routers if address not in own]
        self._session: Any = None

    def open(self, me: bytes, receive: Receive) -> None:
        """Connect, and begin to receive."""
        import zenoh

        if not self._listen and not self._routers:
            raise FieldError("No router of the network is known.", "Name one: tacit peer run --router HOST:PORT.")
        try:
            self._session = zenoh.open(self._config(zenoh.Config()))
        except zenoh.ZError as error:
            where = ", ".join(address.removeprefix("tls/") for address in self._listen or self._routers)
            if self._listen:
                why = _first_line(error)
                raise FieldError(
                    Sentence("This peer cannot listen at {where}: {why}.", where=where, why=why), "Is the port taken?"
                ) from None
            raise FieldError(
                Sentence("No router of the network can be reached ({where}).", where=where),
                "It is tried again; check the network.",
            ) from None
        self._inbox = self._session.declare_queryable(self._key(me), lambda query: _answer(query, receive))

    def _config(self, config: Any) -> Any:
        """Return the settings of a session."""
        made = NetworkCertificates.make(self._seal.secret, self._seal.network)
        settings: dict[str, Any] = {
            "mode": "router" if self._listen else "client",
            "listen/endpoints": self._listen,
            "connect/endpoints": self._routers,
            "scouting/multicast/enabled": False,
            "scouting/gossip/enabled": False,
            "transport/shared_memory/enabled": False,
            "transport/unicast/max_sessions": MOST_SESSIONS,
            "transport/link/tls/enable_mtls": True,
            "transport/link/tls/verify_name_on_connect": False,  # the authority signs for this network only
            "transport/link/tls/root_ca_certificate_base64": _base64(made.roots),
        }
        for side in ("listen", "connect"):
            settings[f"transport/link/tls/{side}_private_key_base64"] = _base64(made.key)
            settings[f"transport/link/tls/{side}_certificate_base64"] = _base64(made.certificate)
        if self._listen:  # other routers may come later
            settings |= {"connect/exit_on_failure": False, "connect/timeout_ms": 0}
        for name, value in settings.items():
            config.insert_json5(name, json.dumps(value))
        return config

    def _key(self, id: bytes) -> str:
        return f"tacit/{self._network}/p/{id.hex()}"

    def send(self, to: bytes, content: bytes, is_reply: IsReply) -> bytes | None:
        """Send a message and wait for a true reply."""
        import zenoh

        session = self._session
        if session is None:
            return None
        try:
            replies = session.get(
                self._key(to),
                payload=content,
                timeout=SECONDS,
                target=zenoh.QueryTarget.ALL,  # who else has declared this inbox cannot reply in its owner's name
                consolidation=zenoh.ConsolidationMode.NONE,
            )
            for reply in replies:
                found = b"" if reply.ok is None else bytes(reply.ok.payload)
                if found and is_reply(found):
                    return found
        except zenoh.ZError:
            return None
        return None

    def reaches(self, id: bytes) -> bool:
        """Say whether the inbox of a peer can be reached now, as far as the routers know."""
        if self._session is None:
            return False
        querier = self._session.declare_querier(self._key(id), target=_zenoh().QueryTarget.ALL)
        try:
            return bool(querier.matching_status.matching)
        finally:
            querier.undeclare()

    @property
    def n_routers(self) -> int:
        """How many routers this peer is connected to now."""
        return 0 if self._session is None else len(list(self._session.info.routers_zid()))

    def close(self) -> None:
        """Disconnect."""
        if self._session is not None:
            session, self._session = self._session, None
            session.close()


def _zenoh() -> Any:
    import zenoh

    return zenoh


def _answer(query: Any, receive: Receive) -> None:
    payload = query.payload
    if payload is not None and len(payload) <= MOST_BYTES:
        reply = receive(bytes(payload))
        if reply:
            query.reply(query.key_expr, reply)
    query.drop()


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:200]
