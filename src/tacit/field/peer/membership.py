"""Membership of a network of peers, in the device's file: terms, catalogue, keys of this network, routers."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from tacit.errors import ConsentError, DeviceError, WireError
from tacit.field.device import Device
from tacit.field.device.sent_periods import keep_sent_periods
from tacit.field.device.store import Store
from tacit.languages.sentences import Sentence
from tacit.types import Catalog
from tacit.wire.network import PeerNetwork, network_digest, read_network
from tacit.wire.peer_messages import PeerSeal
from tacit.wire.peer_records import PeerIdentity, PeerRecord

PLACES = ("network", "peer_keys", "peer_models", "peer_state", "peer_records", "peer_introductions")
SECRET_BYTES = 32


@dataclass(frozen=True)
class PeerMembership:
    """What a device knows of its network; its keys are for this network only."""

    network: PeerNetwork
    catalog: Catalog
    seal: PeerSeal
    routers: tuple[str, ...]
    content: bytes  # terms and catalogue as they are sent to whoever joins

    @classmethod
    def of(cls, store: Store) -> PeerMembership | None:
        """Return the membership that a file holds, if it holds one."""
        content, keys = store.get("network"), store.get_json("peer_keys")
        if content is None or keys is None:
            return None
        try:
            network, catalog = read_network(content)
        except WireError as error:
            raise DeviceError(
                Sentence("This device joined its network with another version of Tacit: {why}", why=error.message),
                "Leave it and join again with a new invitation: tacit peer leave.",
            ) from None
        identity = PeerIdentity.load(bytes.fromhex(keys["identity"]))
        seal = PeerSeal(identity, network.digest, bytes.fromhex(keys["secret"]))
        return cls(network, catalog, seal, tuple(keys["routers"]), content)

    @classmethod
    def enter(
        cls,
        device: Device,
        content: bytes,
        secret: bytes,
        routers: Sequence[str],
        introductions: Sequence[PeerRecord] = (),
        identity: PeerIdentity | None = None,
    ) -> PeerMembership:
        """Make a device a member; nothing is sent by that. A device is in one federation or network at a time.

        `introductions` are the peers that it knows first; `identity` are the keys under which it asked for the terms.
        """
        read_network(content)
        store, mine = device.store, identity or PeerIdentity.fresh()
        with store.transaction():
            refuse_if_member(device)
            store.put("network", content)
            keys = {"identity": mine.secret.hex(), "secret": secret.hex(), "routers": list(routers)}
            store.put_json("peer_keys", keys)
            store.put("peer_introductions", b"".join(record.packed for record in introductions))
        found = cls.of(store)
        assert found is not None
        return found


def refuse_if_member(device: Device) -> None:
    """Refuse a device that is a member of a federation or of a network."""
    if device.membership is not None or device.store.get("network") is not None:
        raise ConsentError(
            "This device is already a member of a federation or of a network of peers.",
            "Leave it first: tacit device leave, or tacit peer leave. Or use another file: --file OTHER.",
        )


def require_membership(store: Store) -> PeerMembership:
    """Return the membership; a device without one is refused."""
    found = PeerMembership.of(store)
    if found is None:
        raise ConsentError(
            "This device is not a member of a network of peers.", "Found one or join one: tacit peer found, join."
        )
    return found


def leave_network(store: Store) -> None:
    """Delete terms, keys, model and what is known of others. History, settings and ledger stay."""
    with store.transaction():
        content, about = store.get("network"), store.get_json("peer_state")
        if content is not None and about is not None:
            keep_sent_periods(store, network_digest(content), about["ticks"])
        for place in PLACES:
            store.drop(place)


def draw_secret() -> bytes:
    """Return a new secret of a network, which its members share."""
    return secrets.token_bytes(SECRET_BYTES)
