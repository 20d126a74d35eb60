"""The bytes of a session, counted from its terms: what each participant sends and receives in each phase.

Sizes are those of the messages themselves, encoded without content. In a whole graph they are exact, whoever drops out.
In a sparse one, the neighbours that are still there are taken to be the same share of all participants for everyone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tacit.protocols.secure_aggregation.context import HASH_BYTES, Session, Terms
from tacit.protocols.secure_aggregation.draw import DrawProof
from tacit.protocols.secure_aggregation.identity import KEY_BYTES, SIGNATURE_BYTES, TAG_BYTES
from tacit.protocols.secure_aggregation.masks import bytes_of
from tacit.protocols.secure_aggregation.messages import (
    COMPLAINTS,
    SEALED_BYTES,
    Advert,
    Codes,
    MaskedVector,
    Roster,
    SealedShares,
    SecretShare,
    SessionInvitation,
    ShareInbox,
    Shares,
    Survivors,
    Unmasking,
)
from tacit.protocols.secure_aggregation.server import ServerPhase
from tacit.protocols.secure_aggregation.shamir import SHARE_BYTES

_CONTEXT, _TAG = bytes(HASH_BYTES), bytes(TAG_BYTES)
_ADVERT = Advert(0, bytes(KEY_BYTES), bytes(KEY_BYTES), bytes(HASH_BYTES), bytes(SIGNATURE_BYTES))
_BOX, _CODE, _PIECE = (
    SealedShares(0, _TAG, _TAG, bytes(SEALED_BYTES)),
    (0, _TAG),
    SecretShare(0, True, bytes(SHARE_BYTES)),
)


@dataclass(frozen=True)
class SessionBytes:
    """Bytes of one participant in each phase: `down` opens the phase, `up` answers it."""

    down: Mapping[ServerPhase, int]
    up: Mapping[ServerPhase, int]

    def of(self, leaves: ServerPhase = ServerPhase.DONE) -> tuple[int, int]:
        """Return the bytes up and down of a participant that stops answering in a phase."""
        sent = sum(size for phase, size in self.up.items() if phase < leaves)
        return sent, sum(size for phase, size in self.down.items() if phase <= leaves)


def count_session_bytes(
    terms: Terms, n_participants: int, leaves: Mapping[int, ServerPhase], is_drawn: bool
) -> SessionBytes:
    """Count the messages of a session whose participants, by position, stop answering in these phases."""
    n, last = n_participants, list(leaves.values())
    there = {phase: n - sum(left <= phase for left in last) for phase in ServerPhase}

    def near(phase: ServerPhase) -> int:
        """Return how many neighbours of a participant answered in a phase."""
        return round(terms.degree * (there[phase] - 1) / max(1, n - 1))

    proof = DrawProof(bytes(HASH_BYTES), (bytes(HASH_BYTES),) * n) if is_drawn else None
    invitation = SessionInvitation(Session(terms, (bytes(KEY_BYTES),) * n), proof)
    advertised, shared = near(ServerPhase.ADVERTS), near(ServerPhase.SHARES)
    down = {
        ServerPhase.ADVERTS: invitation.encode(),
        ServerPhase.SHARES: Roster(frozenset(), (_ADVERT,) * advertised).encode(_CONTEXT, n),
        ServerPhase.VECTORS: ShareInbox(frozenset(), (_BOX,) * shared).encode(_CONTEXT, n),
        ServerPhase.CONFIRMATIONS: Survivors(frozenset()).encode(_CONTEXT, n),
        ServerPhase.UNMASKINGS: Codes((_CODE,) * near(ServerPhase.CONFIRMATIONS)).encode(_CONTEXT),
    }
    up = _count_answers(terms, advertised, shared, near(ServerPhase.VECTORS), 0)
    return SessionBytes({p: len(m) for p, m in down.items()}, up)


def most_answer_bytes(terms: Terms) -> dict[ServerPhase, int]:
    """Return how many bytes a participant's answer has at most in each phase, whoever drops out or is complained of."""
    return _count_answers(terms, *(terms.degree,) * 4)


def _count_answers(terms: Terms, advertised: int, shared: int, summed: int, wrong: int) -> dict[ServerPhase, int]:
    """Return the bytes of answers by how many neighbours are there in each phase, and how many of them were wrong."""
    complaints = ((0, next(iter(COMPLAINTS))),) * wrong
    written = {
        ServerPhase.ADVERTS: _ADVERT.encode(_CONTEXT),
        ServerPhase.SHARES: Shares(0, (_BOX,) * advertised).encode(_CONTEXT) + _TAG,
        ServerPhase.VECTORS: MaskedVector(0, b"").encode(_CONTEXT) + _TAG,
        ServerPhase.CONFIRMATIONS: Codes((_CODE,) * summed).encode(_CONTEXT, 0) + _TAG,
        ServerPhase.UNMASKINGS: Unmasking(0, bytes(KEY_BYTES), (_PIECE,) * shared, complaints).encode(_CONTEXT) + _TAG,
    }
    found = {phase: len(message) for phase, message in written.items()}
    found[ServerPhase.VECTORS] += bytes_of(terms.layout.sizes)
    return found
