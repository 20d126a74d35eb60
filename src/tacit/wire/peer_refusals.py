"""Why a message of a peer is refused, as codes."""

from __future__ import annotations

from enum import StrEnum

from tacit.errors import WireError


class PeerRefusal(StrEnum):
    """Why a message of a peer was refused."""

    TOO_LARGE = "too-large"
    MALFORMED = "malformed"
    OTHER_NETWORK = "other-network"
    OTHER_RECEIVER = "other-receiver"
    EXPIRED = "expired"
    REPEATED = "repeated"
    FORGED = "forged"
    UNSEALED = "cannot-be-opened"
    UNKNOWN_KIND = "unknown-kind"


_WORDING = {
    PeerRefusal.TOO_LARGE: "A message of a peer is too large.",
    PeerRefusal.MALFORMED: "This is not a message of a peer.",
    PeerRefusal.OTHER_NETWORK: "A message belongs to another network of peers.",
    PeerRefusal.OTHER_RECEIVER: "A message is for another peer.",
    PeerRefusal.EXPIRED: "A message of a peer is too old, or its sender's clock is wrong.",
    PeerRefusal.REPEATED: "A message of a peer came again, or after a later one.",
    PeerRefusal.FORGED: "The signature of a message is wrong.",
    PeerRefusal.UNSEALED: "A message is not sealed for this peer and this network.",
    PeerRefusal.UNKNOWN_KIND: "A message of a peer is of an unknown kind.",
}


class PeerMessageError(WireError):
    """A message of a peer that is refused; nothing was changed."""

    def __init__(self, why: PeerRefusal) -> None:
        super().__init__(_WORDING[why], "Nothing was changed.")
        self.why = why
