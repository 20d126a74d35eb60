"""The server's side of a secure sum: it carries keys and shares it cannot use, adds masked vectors, unmasks the sum.

    Server.start(terms, identities)   -> invitation: the same bytes for all
    receive(message)                  one message of one device; an error changes nothing; its reason holds the sender
    advance()                         closes the phase: what each device is sent next
    total                             the sum, once the last phase is closed

A phase is closed when all have answered or the carrier has waited long enough: there is no clock in here. Vectors
are added as they arrive; one that arrives later is refused unread. A server is held in memory only: one that was killed
has lost its session, and nothing of it can be unmasked any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import IntEnum

from tacit.errors import AbortedError, ForgedError, OutOfTurnError
from tacit.protocols.secure_aggregation import shamir
from tacit.protocols.secure_aggregation.context import Session, Terms
from tacit.protocols.secure_aggregation.draw import DrawProof
from tacit.protocols.secure_aggregation.identity import KEY_BYTES, KeyPair, check_tag, point_of, verify
from tacit.protocols.secure_aggregation.masks import Vector, bytes_of, mask
from tacit.protocols.secure_aggregation.messages import (
    COMPLAINTS,
    Advert,
    Codes,
    MaskedVector,
    MessageType,
    Roster,
    SealedShares,
    SecretShare,
    SessionInvitation,
    ShareInbox,
    Shares,
    Survivors,
    Unmasking,
    end_of_round,
    message_type,
)
from tacit.protocols.secure_aggregation.pairing import commitment_to, link, own_mask, pair_mask, share_hash
from tacit.reasons import ReasonCode


class ServerPhase(IntEnum):
    """What the server is waiting for."""

    ADVERTS = 0
    SHARES = 1
    VECTORS = 2
    CONFIRMATIONS = 3
    UNMASKINGS = 4
    DONE = 5
    ABORTED = 6


_EXPECTED = {
    ServerPhase.ADVERTS: MessageType.ADVERT,
    ServerPhase.SHARES: MessageType.SHARES,
    ServerPhase.VECTORS: MessageType.MASKED,
    ServerPhase.CONFIRMATIONS: MessageType.CONFIRMATION,
    ServerPhase.UNMASKINGS: MessageType.UNMASKING,
}


class SecureServer:
    """One session."""

    def __init__(self, invitation: SessionInvitation, pair: KeyPair, changed_keys: Mapping[bytes, bytes]) -> None:
        """Use `start`."""
        self.session, self._invitation, self._pair = invitation.session, invitation, pair
        self._changed_keys = changed_keys
        self.context = self.session.context
        self.phase = ServerPhase.ADVERTS
        self.adverts: dict[int, Advert] = {}
        self._keys: set[bytes] = set()  # of all adverts
        self._links: dict[int, bytes] = {}
        self._shares: dict[int, dict[int, SealedShares]] = {}  # dealer -> holder -> box
        self.survivors: frozenset[int] = frozenset()
        self._arrived: set[int] = set()
        self._codes: dict[int, dict[int, bytes]] = {}  # sender -> receiver -> code
        self._unmaskings: dict[int, Unmasking] = {}
        self.blamed: set[int] = set()  # who gave wrong shares of participants that were lost in the last phase
        self._false_dealers: set[int] = set()  # whose shares fit their hashes, and give another secret than announced
        self.total = Vector(self.session.terms.layout.sizes)

    @classmethod
    def start(
        cls,
        terms: Terms,
        identities: Sequence[bytes],
        drawn: DrawProof | None = None,
        changed_keys: Mapping[bytes, bytes] | None = None,
    ) -> SecureServer:
        """Open a session under some terms, whose server key is made here; unsafe terms are refused first.

        `changed_keys` are those of participants who do not sign with their first key any more, by name.
        """
        Session.of(terms, identities).check()
        pair = KeyPair.fresh()
        session = Session.of(replace(terms, server_key=pair.public), identities)
        if drawn is not None:  # tickets are given in the order of the identities
            tickets = dict(zip(identities, drawn.tickets, strict=True))
            drawn = replace(drawn, tickets=tuple(tickets[identity] for identity in session.cohort))
        return cls(SessionInvitation(session, drawn), pair, changed_keys or {})

    @property
    def invitation(self) -> bytes:
        """The first message to all participants."""
        return self._invitation.encode()

    @property
    def answered(self) -> frozenset[int]:
        """Who has answered in this phase."""
        here: Mapping[ServerPhase, Iterable[int]] = {
            ServerPhase.ADVERTS: self.adverts,
            ServerPhase.SHARES: self._shares,
            ServerPhase.VECTORS: self._arrived,
            ServerPhase.CONFIRMATIONS: self._codes,
            ServerPhase.UNMASKINGS: self._unmaskings,
        }
        return frozenset(here.get(self.phase, ()))

    def receive(self, message: bytes) -> int:
        """Take one message of one device; return its position in the cohort."""
        kind = message_type(message)
        if self.phase not in _EXPECTED or kind != _EXPECTED[self.phase]:
            raise OutOfTurnError.because(
                ReasonCode.UNEXPECTED_MESSAGE, kind=kind.name.lower(), phase=self.phase.name.lower()
            )
        take = {
            MessageType.ADVERT: self._take_advert,
            MessageType.SHARES: self._take_shares,
            MessageType.MASKED: self._take_vector,
            MessageType.CONFIRMATION: self._take_codes,
            MessageType.UNMASKING: self._take_unmasking,
        }
        return take[kind](message)

    def advance(self) -> dict[int, bytes]:
        """Close the phase and return what each device that is still there is sent; abort if too few are left."""
        step = {
            ServerPhase.ADVERTS: self._close_adverts,
            ServerPhase.SHARES: self._close_shares,
            ServerPhase.VECTORS: self._close_vectors,
            ServerPhase.CONFIRMATIONS: self._close_confirmations,
            ServerPhase.UNMASKINGS: self._close_unmaskings,
        }.get(self.phase)
        if step is None:
            raise OutOfTurnError.because(ReasonCode.OUT_OF_TURN)
        try:
            sent = step()
        except AbortedError:
            self.abort()
            raise
        self.phase = ServerPhase(self.phase + 1)
        return sent

    def accused(self) -> dict[int, ReasonCode]:
        """Return who sent something wrong that only the last phase shows, and what, by position.

        A wrong share is proved, and so are shares that give another secret than their dealer announced. A complaint is
        one participant's word against another's: it counts where more than half of a participant's neighbours that
        answered to the end make it.
        """
        found = dict.fromkeys(sorted(self.blamed), ReasonCode.BAD_SHARE)
        found |= dict.fromkeys(sorted(self._false_dealers), ReasonCode.BROKEN_COMMITMENT)
        complaints: dict[int, list[ReasonCode]] = {}
        for sender, unmasking in sorted(self._unmaskings.items()):
            for participant, kind in unmasking.complaints:
                if participant in self._near(sender):
                    complaints.setdefault(participant, []).append(COMPLAINTS[kind])
        for participant, codes in sorted(complaints.items()):
            if len(codes) > len(self._near(participant) & self._unmaskings.keys()) / 2:
                found.setdefault(participant, codes[0])
        return found

    def abort(self) -> bytes:
        """Cancel the round; return the message for all. Nothing of it will be unmasked."""
        self.phase = ServerPhase.ABORTED
        return end_of_round(self.context)

    # --- one message ------------------------------------------------------------------------------------------------

    def _check_sender(self, context: bytes, sender: int, among: Iterable[int]) -> None:
        if context != self.context:
            raise OutOfTurnError.because(ReasonCode.OTHER_SESSION)
        if sender not in among:
            raise OutOfTurnError.because(ReasonCode.NOT_IN_PHASE, sender=sender)
        if sender in self.answered:
            raise OutOfTurnError.because(ReasonCode.REPEATED_ANSWER, sender=sender)

    def _check_code(self, message: bytes, code: bytes, sender: int) -> None:
        check_tag(self._links[sender], message[: -len(code)], code, sender)

    def _misaddressed_error(self, sender: int) -> ForgedError:
        return ForgedError.because(ReasonCode.WRONG_RECIPIENTS, phase=self.phase.name.lower(), sender=sender)

    def _take_advert(self, message: bytes) -> int:
        context, advert = Advert.decode(message)
        self._check_sender(context, advert.sender, range(self.session.n_participants))
        name = self.session.cohort[advert.sender]
        verify(self._changed_keys.get(name, name), advert.signed_part(context), advert.signature, advert.sender)
        keys = {advert.mask_key, advert.seal_key}
        if len(keys) < 2 or keys & self._keys:
            raise ForgedError.because(ReasonCode.REPEATED_KEY, sender=advert.sender)  # devices would refuse the roster
        key = link(self._pair, advert.seal_key, advert.sender, context)
        self._pair.agree(advert.mask_key, context, b"", KEY_BYTES, advert.sender)  # refuses points of low order
        self.adverts[advert.sender], self._links[advert.sender] = advert, key
        self._keys |= keys
        return advert.sender

    def _take_shares(self, message: bytes) -> int:
        context, shares, code = Shares.decode(message)
        self._check_sender(context, shares.sender, self.adverts)
        self._check_code(message, code, shares.sender)
        expected = self.session.graph.neighbours(shares.sender) & self.adverts.keys()
        if {entry.participant for entry in shares.entries} != expected:
            raise self._misaddressed_error(shares.sender)
        self._shares[shares.sender] = {entry.participant: entry for entry in shares.entries}
        return shares.sender

    def _take_vector(self, message: bytes) -> int:
        context, masked, code = MaskedVector.decode(message, bytes_of(self.total.sizes))
        self._check_sender(context, masked.sender, self._shares)
        self._check_code(message, code, masked.sender)
        self.total.add(masked.vector)
        self._arrived.add(masked.sender)
        return masked.sender

    def _take_codes(self, message: bytes) -> int:
        context, sender, codes, code = Codes.decode_sent(message)
        self._check_sender(context, sender, self.survivors)
        self._check_code(message, code, sender)
        if {participant for participant, _ in codes.entries} != self._near(sender) & self.survivors:
            raise self._misaddressed_error(sender)
        self._codes[sender] = dict(codes.entries)
        return sender

    def _take_unmasking(self, message: bytes) -> int:
        context, unmasking, code = Unmasking.decode(message)
        sender = unmasking.sender
        self._check_sender(context, sender, self._codes)
        self._check_code(message, code, sender)
        if commitment_to(context, sender, unmasking.seed) != self.adverts[sender].commitment:
            raise ForgedError.because(ReasonCode.BROKEN_COMMITMENT, sender=sender)
        near = self._near(sender)
        for piece in unmasking.pieces:
            if piece.participant not in near or piece.of_self_mask != (piece.participant in self.survivors):
                raise ForgedError.because(ReasonCode.UNREQUESTED_SHARE, sender=sender, participant=piece.participant)
            if piece.participant not in self._codes and not self._fits(sender, piece):
                raise ForgedError.because(ReasonCode.BAD_SHARE, sender=sender, participant=piece.participant)
        self._unmaskings[sender] = unmasking
        return sender

    # --- the end of a phase -----------------------------------------------------------------------------------------

    def _near(self, participant: int) -> frozenset[int]:
        """The neighbours of a participant that have sent it shares."""
        return self.session.graph.neighbours(participant) & self._shares.keys()

    def _require_enough(self, there: Iterable[int], whose: Iterable[int]) -> None:
        """Abort if too few are there, or too few neighbours of a participant that needs them."""
        participants, terms, phase = frozenset(there), self.session.terms, self.phase.name.lower()
        if len(participants) < terms.n_min:
            raise AbortedError.because(
                ReasonCode.TOO_MANY_DROPOUTS, left=len(participants), needed=terms.n_min, phase=phase
            )
        for participant in whose:
            n_near = len(self.session.graph.neighbours(participant) & participants)
            if n_near < terms.threshold:
                raise AbortedError.because(
                    ReasonCode.TOO_FEW_NEIGHBOURS,
                    left=n_near,
                    needed=terms.threshold,
                    phase=phase,
                    participant=participant,
                )

    def _close_adverts(self) -> dict[int, bytes]:
        self._require_enough(self.adverts, self.adverts)
        present, near = frozenset(self.adverts), self.session.graph.neighbours
        return {
            participant: Roster(
                present, tuple(self.adverts[other] for other in sorted(near(participant) & present))
            ).encode(self.context, self.session.n_participants)
            for participant in self.adverts
        }

    def _close_shares(self) -> dict[int, bytes]:
        self._require_enough(self._shares, self._shares)
        sharing = frozenset(self._shares)
        sent = {}
        for participant in self._shares:
            boxes = tuple(
                SealedShares(other, *self._shares[other][participant][1:]) for other in sorted(self._near(participant))
            )
            sent[participant] = ShareInbox(sharing, boxes).encode(self.context, self.session.n_participants)
        return sent

    def _close_vectors(self) -> dict[int, bytes]:
        self._require_enough(self._arrived, self._shares)
        self.survivors = frozenset(self._arrived)
        message = Survivors(self.survivors).encode(self.context, self.session.n_participants)
        return dict.fromkeys(self.survivors, message)

    def _close_confirmations(self) -> dict[int, bytes]:
        self._require_enough(self._codes, self._codes)
        sent = {}
        for participant in self._codes:
            near = sorted(other for other in self._near(participant) if other in self._codes)
            sent[participant] = Codes(tuple((other, self._codes[other][participant]) for other in near)).encode(
                self.context
            )
        return sent

    def _close_unmaskings(self) -> dict[int, bytes]:
        lost = self._shares.keys() - self.survivors
        held = self._gather_pieces((self.survivors - self._unmaskings.keys()) | lost)
        points = {
            participant: point_of(self.adverts[participant].mask_key, participant) for participant in self.survivors
        }
        plus: list[bytes] = []
        minus = []
        for participant in sorted(self.survivors):
            given = self._unmaskings.get(participant)
            seed = given.seed if given is not None else self._rebuild_secret(held, participant)
            if commitment_to(self.context, participant, seed) != self.adverts[participant].commitment:
                raise self._blame_dealer(participant)
            minus.append(own_mask(self.context, participant, seed))
        for participant in sorted(lost):
            pair = KeyPair(self._rebuild_secret(held, participant))
            if pair.public != self.adverts[participant].mask_key:
                raise self._blame_dealer(participant)
            for other in self._near(participant) & self.survivors:
                key = pair_mask(pair, participant, points[other], other, self.context)
                (minus if participant > other else plus).append(key)
        mask(self.total, plus, minus)
        return {}

    def _blame_dealer(self, participant: int) -> AbortedError:
        """Note a participant whose secret cannot be rebuilt from its own shares: the sum is lost by its fault."""
        self._false_dealers.add(participant)
        return AbortedError.because(ReasonCode.BROKEN_COMMITMENT, sender=participant)

    def _gather_pieces(self, wanted: Iterable[int]) -> dict[int, dict[int, int]]:
        """Gather the shares given of some participants, by place; whoever gave a wrong one is noted in `blamed`."""
        held: dict[int, dict[int, int]] = {participant: {} for participant in wanted}
        for sender, unmasking in sorted(self._unmaskings.items()):
            for piece in unmasking.pieces:
                if piece.participant not in held:
                    continue
                if piece.participant in self._codes and not self._fits(sender, piece):
                    self.blamed.add(sender)  # it was expected to answer itself, so the share is checked only now
                else:
                    held[piece.participant][sender + 1] = int.from_bytes(piece.share, "little")
        return held

    def _fits(self, sender: int, piece: SecretShare) -> bool:
        """Return whether a share matches the hash that its dealer announced."""
        box = self._shares[piece.participant][sender]
        known = box.self_hash if piece.of_self_mask else box.key_hash
        return share_hash(self.context, piece.participant, sender, piece.of_self_mask, piece.share) == known

    def _rebuild_secret(self, held: Mapping[int, Mapping[int, int]], participant: int) -> bytes:
        shares, threshold = held[participant], self.session.terms.threshold
        if len(shares) < threshold:
            raise AbortedError.because(
                ReasonCode.TOO_FEW_SHARES, left=len(shares), needed=threshold, participant=participant
            )
        found = shamir.join_shares({place: shares[place] for place in list(shares)[:threshold]})
        return (found % 2**256).to_bytes(KEY_BYTES, "little")
