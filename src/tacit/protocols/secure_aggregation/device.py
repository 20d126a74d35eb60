"""The device's side of a secure sum: bytes in, bytes out, one method per phase.

    advertise(invitation)      keys of this round, signed          phase 0
    share(roster)              secrets in pieces, for neighbours   phase 1
    submit(inbox, vector)      the vector under its masks          phase 2
    confirm(survivors)         "I saw these survivors"             phase 2b
    unmask(confirmed)          of each neighbour one share         phase 3

Every answer is in the journal before it is returned. After a restart the same journal gives the same device. It may
repeat its last answer (`last_answer`) or continue, and can neither reveal a second share nor mask a second vector. An
error changes nothing. There is no clock in here: the carrier of the messages decides when to `leave`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from enum import IntEnum

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tacit.errors import DevicePolicyError, OutOfTurnError
from tacit.protocols.secure_aggregation import device_policy as rules
from tacit.protocols.secure_aggregation import shamir
from tacit.protocols.secure_aggregation.bytes import ByteReader, ByteWriter
from tacit.protocols.secure_aggregation.context import Session
from tacit.protocols.secure_aggregation.device_checks import check_codes, open_inbox, read_roster, read_survivors
from tacit.protocols.secure_aggregation.device_policy import DevicePolicy, ParticipationHistory, PastSum
from tacit.protocols.secure_aggregation.device_session import NONCE, DeviceSession
from tacit.protocols.secure_aggregation.draw import Directory, check_draw
from tacit.protocols.secure_aggregation.identity import KEY_BYTES, Identity, KeyPair
from tacit.protocols.secure_aggregation.journal import Journal, MemoryJournal
from tacit.protocols.secure_aggregation.masks import Vector, mask
from tacit.protocols.secure_aggregation.messages import (
    COMPLAINTS,
    Advert,
    Codes,
    MaskedVector,
    SealedShares,
    SecretShare,
    SessionInvitation,
    Shares,
    Survivors,
    Unmasking,
)
from tacit.protocols.secure_aggregation.pairing import (
    code_between,
    commitment_to,
    own_mask,
    pair_mask,
    share_hash,
    survivors_hash,
)
from tacit.reasons import ReasonCode


class DevicePhase(IntEnum):
    """What a device has answered last."""

    IDLE = 0
    ADVERTISED = 1
    SHARED = 2
    MASKED = 3
    CONFIRMED = 4
    UNMASKED = 5


MOST_STAGE = 255  # after every stage of a round
_HISTORY = 100  # kinds of records: this one, or a phase


class SecureDevice:
    """One device: an identity, its limits, its memory, and at most one session at a time."""

    def __init__(
        self,
        identity: Identity,
        device_policy: DevicePolicy | None = None,
        journal: Journal | None = None,
        directory: Directory | None = None,
        changed_keys: Mapping[bytes, bytes] | None = None,
    ) -> None:
        """Continue from what the journal holds; without a journal, remember as long as the process lives.

        `changed_keys` are those of participants who do not sign with their first key any more, by name.
        """
        self.identity, self.device_policy = identity, device_policy or DevicePolicy()
        self.changed_keys: Mapping[bytes, bytes] = changed_keys or {}
        self.directory = directory
        self.journal: Journal = MemoryJournal() if journal is None else journal
        self.history, self.phase = ParticipationHistory(), DevicePhase.IDLE
        self.last_answer = b""
        self.complaints: dict[
            int, ReasonCode
        ] = {}  # what was wrong with neighbours' shares; they are treated as missing
        self._state: DeviceSession | None = None
        self._restore()

    # --- the five answers ---------------------------------------------------------------------------------------

    def advertise(self, invitation: bytes) -> bytes:
        """Join a round: check its terms and cohort against this device's limits, make keys, sign them."""
        session = self._read_invitation(invitation, self.history)
        state = DeviceSession(
            session,
            session.position(self.identity.public),
            KeyPair.fresh(),
            KeyPair.fresh(),
            secrets.token_bytes(KEY_BYTES),
        )
        commitment = commitment_to(session.context, state.position, state.seed)
        advert = Advert(state.position, state.mask_pair.public, state.seal_pair.public, commitment)
        signature = self.identity.sign(advert.signed_part(session.context))
        answer = advert.signed_part(session.context) + signature
        own = ByteWriter().raw(state.mask_pair.secret).raw(state.seal_pair.secret).raw(state.seed).done()
        if self.phase != DevicePhase.IDLE:
            self.leave()
        self._keep(DevicePhase.ADVERTISED, invitation, own + answer)
        self.history = self.history.with_session(session)
        self._state, self.complaints = state, {}
        return self._answer_in(DevicePhase.ADVERTISED, answer)

    def share(self, roster: bytes) -> bytes:
        """Check the neighbours' keys; send each of them shares of both secrets of this round."""
        state = self._in(DevicePhase.ADVERTISED)
        adverts = read_roster(state, roster, self.changed_keys)
        keys = state.agree_keys(adverts)
        participants, threshold = sorted(adverts), state.session.terms.threshold
        places = [participant + 1 for participant in participants]
        of_self, of_key = (
            shamir.split_secret(int.from_bytes(secret, "little"), places, threshold, state.sharing_key(of_self_mask))
            for secret, of_self_mask in ((state.seed, True), (state.mask_pair.secret, False))
        )
        entries = []
        for participant, *both in zip(participants, of_self, of_key, strict=True):
            own, other = (share.to_bytes(shamir.SHARE_BYTES, "little") for share in both)
            box = AESGCM(keys[participant].mine).encrypt(NONCE, own + other, state.context)
            own_hash = share_hash(state.context, state.position, participant, True, own)
            key_hash = share_hash(state.context, state.position, participant, False, other)
            entries.append(SealedShares(participant, own_hash, key_hash, box))
        answer = state.append_code(Shares(state.position, tuple(entries)).encode(state.context))
        self._keep(DevicePhase.SHARED, roster, answer)
        state.adverts, state.pair_keys = adverts, keys
        return self._answer_in(DevicePhase.SHARED, answer)

    def submit(self, inbox: bytes, vector: Vector) -> bytes:
        """Mask a vector with one stream per neighbour and one of this device's own; `vector` itself is overwritten."""
        state = self._in(DevicePhase.SHARED)
        if vector.sizes != state.session.terms.layout.sizes:
            raise DevicePolicyError.because(ReasonCode.WRONG_VECTOR_SIZE)
        sharing, kept, complaints = open_inbox(state, inbox)
        at, context = state.position, state.context
        plus, minus = [own_mask(context, at, state.seed)], list[bytes]()
        for participant in sharing:
            key = pair_mask(state.mask_pair, at, state.adverts[participant].mask_key, participant, context)
            (plus if participant > at else minus).append(key)
        mask(vector, plus, minus)
        answer = state.append_code(MaskedVector(state.position, vector.tobytes()).encode(state.context))
        self._keep(DevicePhase.MASKED, inbox, answer)
        state.sharing, state.kept, self.complaints = sharing, kept, complaints
        self.history = self.history.with_vector(state.session)
        return self._answer_in(DevicePhase.MASKED, answer)

    def confirm(self, survivors: bytes) -> bytes:
        """Check who is in the sum, and confirm the list to each neighbour, so that all must have the same list."""
        state = self._in(DevicePhase.MASKED)
        participants = read_survivors(state, survivors, self.device_policy, self.history)
        listed, at, keys = (
            survivors_hash(state.context, participants, state.session.n_participants),
            state.position,
            state.pair_keys,
        )
        near = sorted(participants & state.sharing)
        codes = tuple(
            (participant, code_between(keys[participant].codes, at, participant, listed)) for participant in near
        )
        answer = state.append_code(Codes(codes).encode(state.context, state.position))
        self._keep(DevicePhase.CONFIRMED, survivors, answer)
        state.survivors = participants
        self.history = self._with_sum(state)
        return self._answer_in(DevicePhase.CONFIRMED, answer)

    def unmask(self, confirmed: bytes) -> bytes:
        """Reveal one share of each neighbour: of its self mask if it is in the sum, else of its mask key."""
        state = self._in(DevicePhase.CONFIRMED)
        complaints = self.complaints | check_codes(state, confirmed)
        pieces = tuple(
            SecretShare(
                participant,
                participant in state.survivors,
                state.kept[participant][0 if participant in state.survivors else 1],
            )
            for participant in sorted(state.kept)
        )
        kinds = {code: kind for kind, code in COMPLAINTS.items()}
        reported = tuple((participant, kinds[code]) for participant, code in sorted(complaints.items()))
        answer = state.append_code(Unmasking(state.position, state.seed, pieces, reported).encode(state.context))
        self._keep(DevicePhase.UNMASKED, confirmed, answer)
        self.complaints = complaints
        return self._answer_in(DevicePhase.UNMASKED, answer)

    def leave(self) -> None:
        """Forget the session and its keys; the memory of who was in which sum, and of what was joined, stays."""
        self.journal.rewrite([(_HISTORY, self.history.encode())])
        self._state, self.phase, self.last_answer = None, DevicePhase.IDLE, b""

    def suppose_sums(self, task: str, rounds: Iterable[int]) -> None:
        """Count sums that this device may have been in, though its journal was put back and does not know of them."""
        self.switch_to(task)
        supposed = [PastSum(number, 0, frozenset()) for number in rounds]
        latest = max([self.history.latest, *((past.round, MOST_STAGE) for past in supposed)])
        self.history = replace(self.history, task=task, latest=latest, sums=(*self.history.sums, *supposed))
        self.leave()

    def check(self, invitation: bytes, task: str) -> Session:
        """Refuse an invitation that `advertise` would refuse after `turn_to`; nothing changes."""
        return self._read_invitation(invitation, self.history.of(task))

    def switch_to(self, task: str) -> None:
        """Go by the memory of one task from now on; a session of another is left, the memory of it stays."""
        if self.history.task not in ("", task):
            self.history = self.history.of(task)
            self.leave()

    @property
    def session(self) -> Session | None:
        """The session that this device is in."""
        return None if self._state is None else self._state.session

    # --- checks: all of them before anything changes ------------------------------------------------------------------

    def _read_invitation(self, data: bytes, history: ParticipationHistory) -> Session:
        invitation = SessionInvitation.decode(data)
        session = invitation.session
        session.check()
        session.position(self.identity.public)
        rules.check_invitation(self.device_policy, history, session)
        if self.directory is not None:
            terms = session.terms
            check_draw(self.directory, terms.task, terms.round, terms.beacon, session.cohort, invitation.drawn)
        return session

    def _in(self, phase: DevicePhase) -> DeviceSession:
        if self._state is None or self.phase != phase:
            raise OutOfTurnError.because(ReasonCode.OUT_OF_TURN)
        return self._state

    # --- the journal ------------------------------------------------------------------------------------------------

    def _with_sum(self, state: DeviceSession) -> ParticipationHistory:
        """Return the memory with who is in the sum, and whether this device stays with them."""
        stays = state.position in rules.staying(self.device_policy, state.session, state.survivors)
        return self.history.with_sum(state.session, state.survivors, stays)

    def _keep(self, phase: DevicePhase, request: bytes, answer: bytes) -> None:
        self.journal.append(phase, ByteWriter().block(request).block(answer).done())

    def _answer_in(self, phase: DevicePhase, answer: bytes) -> bytes:
        self.phase, self.last_answer = phase, answer
        return answer

    def _restore(self) -> None:
        steps: dict[int, Callable[[bytes, bytes], None]] = {
            DevicePhase.ADVERTISED: self._restore_advert,
            DevicePhase.SHARED: self._restore_shares,
            DevicePhase.MASKED: self._restore_vector,
            DevicePhase.CONFIRMED: self._restore_confirmation,
            DevicePhase.UNMASKED: self._restore_unmasking,
        }
        for kind, content in self.journal.records():
            if kind == _HISTORY:
                self.history = ParticipationHistory.decode(content)
                continue
            reader = ByteReader(content, "A record of the journal")
            request, answer = reader.block(), reader.block()
            steps[kind](request, answer)
            self._answer_in(DevicePhase(kind), answer[3 * KEY_BYTES :] if kind == DevicePhase.ADVERTISED else answer)

    def _restore_advert(self, request: bytes, answer: bytes) -> None:
        session = SessionInvitation.decode(request).session
        own = [answer[start : start + KEY_BYTES] for start in range(0, 3 * KEY_BYTES, KEY_BYTES)]
        self._state = DeviceSession(
            session, session.position(self.identity.public), KeyPair(own[0]), KeyPair(own[1]), own[2]
        )
        self.history = self.history.with_session(session)

    def _restore_shares(self, request: bytes, answer: bytes) -> None:
        state = self._in(DevicePhase.ADVERTISED)
        state.adverts = read_roster(state, request, self.changed_keys)
        state.pair_keys = state.agree_keys(state.adverts)

    def _restore_vector(self, request: bytes, answer: bytes) -> None:
        state = self._in(DevicePhase.SHARED)
        state.sharing, state.kept, self.complaints = open_inbox(state, request)
        self.history = self.history.with_vector(state.session)

    def _restore_confirmation(self, request: bytes, answer: bytes) -> None:
        state = self._in(DevicePhase.MASKED)
        state.survivors = Survivors.decode(request, state.session.n_participants)[1].participants
        self.history = self._with_sum(state)

    def _restore_unmasking(self, request: bytes, answer: bytes) -> None:
        self._in(DevicePhase.CONFIRMED)
