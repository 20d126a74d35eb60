"""What a device checks in the server's messages: that the lists agree, are signed, and break none of its limits.

Every check is made before anything changes: a message that is refused leaves the device as it was.
"""

from __future__ import annotations

from collections.abc import Mapping

from tacit.errors import DevicePolicyError, ForgedError, OutOfTurnError
from tacit.protocols.secure_aggregation import device_policy as rules
from tacit.protocols.secure_aggregation.device_policy import DevicePolicy, ParticipationHistory
from tacit.protocols.secure_aggregation.device_session import DeviceSession
from tacit.protocols.secure_aggregation.identity import verify
from tacit.protocols.secure_aggregation.messages import Advert, Codes, Roster, ShareInbox, Survivors
from tacit.protocols.secure_aggregation.pairing import code_between, survivors_hash
from tacit.reasons import ReasonCode


def check_context(context: bytes, state: DeviceSession) -> None:
    """Refuse a message of another session."""
    if context != state.context:
        raise OutOfTurnError.because(ReasonCode.OTHER_SESSION)


def read_roster(state: DeviceSession, data: bytes, changed_keys: Mapping[bytes, bytes]) -> dict[int, Advert]:
    """Return the keys of those neighbours who are there, each signed by its owner."""
    session = state.session
    context, roster = Roster.decode(data, session.n_participants)
    check_context(context, state)
    near = session.graph.neighbours(state.position)
    _check_present(state, roster.present, "roster", "adverts")
    if {advert.sender for advert in roster.adverts} != near & roster.present:
        raise ForgedError.because(ReasonCode.INCONSISTENT_LIST, list="roster")
    _check_near(state, len(roster.adverts), "adverts")
    keys = [key for advert in roster.adverts for key in (advert.mask_key, advert.seal_key)]
    if len({*keys, state.mask_pair.public, state.seal_pair.public}) != len(keys) + 2:
        raise ForgedError.because(ReasonCode.REPEATED_KEY)
    for advert in roster.adverts:
        name = session.cohort[advert.sender]
        key = changed_keys.get(name, name)
        verify(key, advert.signed_part(context), advert.signature, advert.sender)
    return {advert.sender: advert for advert in roster.adverts}


def open_inbox(
    state: DeviceSession, data: bytes
) -> tuple[frozenset[int], dict[int, tuple[bytes, bytes]], dict[int, ReasonCode]]:
    """Return the neighbours to mask with, the shares that they gave this device, and whose shares are wrong."""
    session = state.session
    context, inbox = ShareInbox.decode(data, session.n_participants)
    check_context(context, state)
    sharing = inbox.sharing & state.adverts.keys()
    _check_present(state, inbox.sharing, "inbox", "shares")
    _check_near(state, len(sharing), "shares")
    if {entry.participant for entry in inbox.entries} != sharing:
        raise ForgedError.because(ReasonCode.INCONSISTENT_LIST, list="inbox")
    kept, complaints = {}, {}
    for entry in inbox.entries:
        opened = state.open_box(entry)
        if opened is None:  # we cannot help to rebuild its secrets; the round may continue
            complaints[entry.participant] = ReasonCode.BAD_SHARE
        else:
            kept[entry.participant] = opened
    return frozenset(sharing), kept, complaints


def read_survivors(
    state: DeviceSession, data: bytes, device_policy: DevicePolicy, history: ParticipationHistory
) -> frozenset[int]:
    """Return who is in the sum, if the limits of this device allow a sum of them."""
    session = state.session
    context, message = Survivors.decode(data, session.n_participants)
    check_context(context, state)
    participants, near = message.participants, message.participants & state.sharing
    if state.position not in participants:
        raise DevicePolicyError.because(ReasonCode.LEFT_OUT, list="survivors")
    if not participants & session.graph.neighbours(state.position) <= state.sharing:
        raise ForgedError.because(ReasonCode.INCONSISTENT_LIST, list="survivors")
    _check_present(state, participants, "survivors", "vectors")
    _check_near(state, len(near), "vectors")
    rules.check_participants(device_policy, history, session, participants)
    rules.check_loss(device_policy, history, session, participants)
    return participants


def check_codes(state: DeviceSession, data: bytes) -> dict[int, ReasonCode]:
    """Refuse to unmask unless enough neighbours saw the same survivors; return whose codes are wrong.

    A wrong code does not count, and ends nothing: otherwise one participant could stop every sum.
    """
    context, codes = Codes.decode(data)
    check_context(context, state)
    listed, wrong = survivors_hash(context, state.survivors, state.session.n_participants), dict[int, ReasonCode]()
    for participant, code in codes.entries:
        if participant not in state.survivors & state.sharing:  # only the server can have put it there
            raise ForgedError.because(ReasonCode.BAD_CONFIRMATION, sender=participant)
        if code != code_between(state.pair_keys[participant].codes, participant, state.position, listed):
            wrong[participant] = ReasonCode.BAD_CONFIRMATION
    n_good, needed = len(codes.entries) - len(wrong), state.session.terms.threshold
    if n_good < needed:
        raise DevicePolicyError.because(ReasonCode.TOO_FEW_CONFIRMATIONS, left=n_good, needed=needed)
    return wrong


def _check_present(state: DeviceSession, participants: frozenset[int], named: str, phase: str) -> None:
    """Refuse a list of participants without this device, or of too few."""
    needed = state.session.terms.n_min
    if state.position not in participants:
        raise DevicePolicyError.because(ReasonCode.LEFT_OUT, list=named)
    if len(participants) < needed:
        raise DevicePolicyError.because(
            ReasonCode.TOO_MANY_DROPOUTS, left=len(participants), needed=needed, phase=phase
        )


def _check_near(state: DeviceSession, n_near: int, phase: str) -> None:
    """Refuse to continue with fewer neighbours than rebuild a secret together."""
    needed = state.session.terms.threshold
    if n_near < needed:
        raise DevicePolicyError.because(ReasonCode.TOO_FEW_NEIGHBOURS, left=n_near, needed=needed, phase=phase)
