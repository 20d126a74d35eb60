"""Founding a network, inviting to it, joining it. There is no server: terms and catalogue come from any member."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tacit.errors import FieldError, WireError
from tacit.field.device import Device
from tacit.field.peer.carrier import PeerCarrier
from tacit.field.peer.membership import PeerMembership, draw_secret, refuse_if_member
from tacit.field.peer.peer_file import unpack_records
from tacit.languages.sentences import Sentence
from tacit.types import Catalog
from tacit.wire.lines import decode_text, encode_text, read_line, write_line
from tacit.wire.network import SEED_BITS, PeerNetwork, read_network, write_network
from tacit.wire.peer_messages import JOIN, WELCOME, PeerSeal
from tacit.wire.peer_records import PeerIdentity, PeerRecord

PREFIX = "tacitp1:"
NAMED = 4  # peers that an invitation names
_AGAIN = "Ask for another invitation, and copy the whole line, from 'tacitp1:' on."


@dataclass(frozen=True)
class PeerInvitation:
    """What a device needs to join: the digest and the secret of the network, its routers, and some members."""

    network: bytes
    secret: bytes
    routers: tuple[str, ...]
    members: tuple[PeerRecord, ...]

    def line(self) -> str:
        """Write it as one line. Whoever has the line can join."""
        about = {
            "n": encode_text(self.network),
            "s": encode_text(self.secret),
            "r": list(self.routers),
            "m": encode_text(b"".join(record.packed for record in self.members)),
        }
        return write_line(PREFIX, about)

    @classmethod
    def parse(cls, line: str) -> PeerInvitation:
        """Read it from one line."""
        text = "".join(line.split())
        if text.startswith("tacit") and ":" in text and not text.startswith(PREFIX):
            raise FieldError(
                Sentence(
                    "This is an invitation of another kind or version ('{kind}').", kind=text[: text.index(":") + 1]
                ),
                "To join a federation: tacit device join. Otherwise upgrade Tacit.",
            )
        try:
            about = read_line(PREFIX, text)
            network, secret, members = (decode_text(about[name]) for name in ("n", "s", "m"))
            routers = tuple(about["r"])
            if len(network) != 32 or len(secret) != 32 or not all(isinstance(address, str) for address in routers):
                raise ValueError
            return cls(network, secret, routers, tuple(unpack_records(members)))
        except (ValueError, KeyError, TypeError, WireError):
            raise FieldError("This is not an invitation to peers, or a part of it is missing.", _AGAIN) from None


def found_network(device: Device, network: PeerNetwork, catalog: Catalog, routers: Sequence[str]) -> PeerMembership:
    """Make a device the first member of a network."""
    return PeerMembership.enter(device, write_network(network, catalog), draw_secret(), routers)


def draw_network_id() -> tuple[str, int]:
    """Return a new id and a new seed."""
    return secrets.token_hex(16), secrets.randbits(SEED_BITS)


def invite(device: Device, member: PeerMembership) -> PeerInvitation:
    """Return an invitation in the name of this member; it is good for as long as its record is, seven days."""
    now = int(time.time())
    stored = unpack_records(device.store.get("peer_records") or b"")
    others = [record for record in stored if record.is_valid(member.network.digest, now)]
    chosen = secrets.SystemRandom().sample(others, min(NAMED - 1, len(others)))
    mine = member.seal.identity.record(member.network.digest, now)
    return PeerInvitation(member.network.digest, member.seal.secret, member.routers, (mine, *chosen))


def join_network(
    device: Device, invitation: PeerInvitation, connect: Callable[[PeerSeal], PeerCarrier]
) -> PeerMembership:
    """Ask a member for terms and catalogue, check them by their digests, and become a member."""
    refuse_if_member(device)
    identity = PeerIdentity.fresh()
    seal = PeerSeal(identity, invitation.network, invitation.secret)
    members = [record for record in invitation.members if record.is_valid(invitation.network, time.time())]
    if not members:
        raise FieldError("The invitation has expired, or this machine's clock is wrong.", "Ask for another one.")
    carrier = connect(seal)
    carrier.open(identity.id, lambda content: b"")
    try:
        for member in members:
            content = _ask_terms(carrier, seal, member)
            if content is not None:
                read_network(content, invitation.network)
                return PeerMembership.enter(device, content, invitation.secret, invitation.routers, members, identity)
    finally:
        carrier.close()
    raise FieldError(
        "None of the members in the invitation answers.", "Try again while one of them runs (tacit peer run)."
    )


def _ask_terms(carrier: PeerCarrier, seal: PeerSeal, member: PeerRecord) -> bytes | None:
    """Return the terms and the catalogue as a member sends them; none if it does not answer."""
    now = time.time()
    own = seal.identity.record(seal.network, int(now)).packed
    message = seal.seal(member, int(now * 1000), now, JOIN, own)
    reply = carrier.send(member.id, message, lambda found: seal.read_ack(found, message) is not None)
    ack = None if reply is None else seal.read_ack(reply, message)
    if ack is None:
        return None
    if not ack.is_read:
        hours = (ack.time - now) / 3600
        raise FieldError(
            Sentence("The clock of this machine and that of a member differ by {hours:.1f} hours.", hours=abs(hours)),
            "Set the clock.",
        )
    try:
        envelope, content = seal.open_reply(ack.rest, message, time.time(), WELCOME)
    except WireError:
        return None
    return content if envelope.sender == member.id else None
