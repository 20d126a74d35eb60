"""Why a round was decided, skipped, abandoned or refused as it was: a stable code, its parameters, and their wording.

Code that decides names a code; only this module has sentences. A parameter says by its declaration whether it tells of
a single person or device. `public()` drops those that do. No sentence uses one, so that no wording can name anybody.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from string import Formatter
from typing import Any, NamedTuple

Value = int | float | str


class ReasonCode(StrEnum):
    """Stable names of reasons. A name is never reused with another meaning; journals and dashboards hold them."""

    # how a round was decided
    ENOUGH_DEVICES = "enough-devices"
    SECURE_AGGREGATION_OFF = "secure-aggregation-off"
    ROBUST_RULE = "robust-rule"
    TOO_FEW_DEVICES = "too-few-devices"
    THIN_SUM_BEFORE = "thin-sum-before"
    PARTICIPATION_LIMIT = "participation-limit"
    COOL_DOWN = "cool-down"
    COHORT_TOO_SIMILAR = "cohort-too-similar"
    # why no round began
    QUORUM_MISSED = "quorum-missed"
    SECURE_QUORUM_MISSED = "secure-quorum-missed"
    # why nothing was added
    TOO_FEW_ANSWERS = "too-few-answers"
    COORDINATOR_INTERRUPTED = "coordinator-interrupted"
    THIN_SUM = "thin-sum"
    TOO_MANY_DROPOUTS = "too-many-dropouts"
    TOO_FEW_NEIGHBOURS = "too-few-neighbours"
    TOO_FEW_SHARES = "too-few-shares"
    LOST_BETWEEN_STAGES = "lost-between-stages"
    COHORT_TOO_SMALL = "cohort-too-small"
    UNSAFE_THRESHOLD = "unsafe-threshold"
    NO_SAFE_THRESHOLD = "no-safe-threshold"
    SUM_OVERFLOW = "sum-overflow"
    SECURE_AGGREGATION_FAILED = "secure-aggregation-failed"
    DIVERGED = "diverged"
    LEGACY = "legacy"
    # why one message was refused
    MALFORMED_MESSAGE = "malformed-message"
    LATE_ANSWER = "late-answer"
    REPEATED_ANSWER = "repeated-answer"
    UNEXPECTED_MESSAGE = "unexpected-message"
    OTHER_SESSION = "other-session"
    NOT_IN_PHASE = "not-in-phase"
    BAD_SIGNATURE = "bad-signature"
    BAD_KEY = "bad-key"
    BAD_TAG = "bad-tag"
    WRONG_RECIPIENTS = "wrong-recipients"
    BROKEN_COMMITMENT = "broken-commitment"
    UNREQUESTED_SHARE = "unrequested-share"
    BAD_SHARE = "bad-share"
    # why a device refused a secure aggregation
    DEVICE_COOL_DOWN = "device-cool-down"
    DEVICE_PARTICIPATION_LIMIT = "device-participation-limit"
    DEVICE_COHORT_TOO_SIMILAR = "device-cohort-too-similar"
    WEAK_TERMS = "weak-terms"
    NOT_INVITED = "not-invited"
    OUT_OF_TURN = "out-of-turn"
    ROUND_REPEATED = "round-repeated"
    OTHER_FEDERATION = "other-federation"
    OTHER_TERMS = "other-terms"
    UNKNOWN_TABLE = "unknown-table"
    SUM_NOT_OPENED = "sum-not-opened"
    WRONG_VECTOR_SIZE = "wrong-vector-size"
    VALUE_OUT_OF_RANGE = "value-out-of-range"
    UNCOUNTED_ROWS = "uncounted-rows"
    NEW_PARTICIPANTS = "new-participants"
    WRONG_STAGE_CONTENT = "wrong-stage-content"
    INCONSISTENT_LIST = "inconsistent-list"
    REPEATED_KEY = "repeated-key"
    LEFT_OUT = "left-out"
    BAD_CONFIRMATION = "bad-confirmation"
    TOO_FEW_CONFIRMATIONS = "too-few-confirmations"
    NO_TICKET = "no-ticket"
    MISSING_TICKETS = "missing-tickets"
    BAD_TICKET = "bad-ticket"
    BAD_BEACON = "bad-beacon"
    UNKNOWN_BOARD = "unknown-board"
    NOT_ENROLLED = "not-enrolled"
    NOT_DRAWN = "not-drawn"
    # why a device sent nothing
    PAUSED = "paused"
    SETTINGS_CHANGED = "settings-changed"
    SETTINGS_NARROWED = "settings-narrowed"
    MASKED_ONLY = "masked-only"
    EMPTY_HISTORY = "empty-history"
    UPDATE_TOO_LARGE = "update-too-large"
    NOT_A_MEMBER = "not-a-member"
    LEFT_FEDERATION = "left-federation"
    ALREADY_A_MEMBER = "already-a-member"
    ROUND_ANSWERED = "round-answered"
    MODEL_OUTDATED = "model-outdated"
    NOT_A_REQUEST = "not-a-request"


class Parameter(NamedTuple):
    """What a parameter means, and whether it tells of a single person or device."""

    meaning: str
    is_personal: bool = False


PARAMETERS: Mapping[str, Parameter] = {
    "answered": Parameter("devices that answered"),
    "asked": Parameter("devices that would be asked"),
    "bits": Parameter("bits of a number in the sum"),
    "bound": Parameter("largest number that a participant may send"),
    "capable": Parameter("devices that can take part in secure aggregation at all"),
    "cohort": Parameter("participants in the cohort"),
    "cool_down": Parameter("rounds that a device sits out between two"),
    "corrupted": Parameter("participants that may work with the server"),
    "degree": Parameter("neighbours of each participant"),
    "device_k_min": Parameter("participants behind each row that the device wants"),
    "device_n_min": Parameter("participants in a sum that the device wants"),
    "differ": Parameter("participants by which two cohorts differ"),
    "dropped": Parameter("participants that may drop out"),
    "earlier": Parameter("an earlier round"),
    "eligible": Parameter("devices that are not in their cool-down"),
    "here": Parameter("devices that are connected"),
    "k_min": Parameter("participants behind each row that the server offers"),
    "kind": Parameter("kind of message or number"),
    "largest": Parameter("largest number of one participant", is_personal=True),
    "left": Parameter("participants or neighbours that are left"),
    "list": Parameter("list of participants that the server sent"),
    "lost": Parameter("participants lost between the stages"),
    "n_min": Parameter("participants in a sum that the server offers"),
    "needed": Parameter("how many are needed"),
    "participant": Parameter("position of whom it is about", is_personal=True),
    "phase": Parameter("phase of the secure aggregation"),
    "round": Parameter("a round"),
    "rounds": Parameter("rounds in which the device took part"),
    "seconds": Parameter("seconds of waiting"),
    "sender": Parameter("position of the message's sender", is_personal=True),
    "share": Parameter("share of all mentions that the sum would show"),
    "spare": Parameter("participants that may be lost between the stages"),
    "stage": Parameter("stage of the secure aggregation"),
    "table": Parameter("table of the model"),
    "text": Parameter("sentence of an earlier version", is_personal=True),
    "threshold": Parameter("neighbours that rebuild a secret together"),
    "willing": Parameter("devices that have not reached their limit of rounds"),
}


class _Words(Formatter):
    """Formats templates in which `{left:device}` is '1 device' or '1,200 devices'."""

    def format_field(self, value: Any, format_spec: str) -> Any:
        if format_spec.isalpha() and len(format_spec) > 1:
            return f"{value:,} {format_spec}" + ("" if value == 1 else "s")
        return super().format_field(value, format_spec)


class Description(NamedTuple):
    """A reason in words: what happened, what it means, what to do."""

    what: str
    meaning: str
    remedy: str

    def __str__(self) -> str:
        return " ".join(self)


ROUND, ANSWER, DEVICE = "a round", "one answer", "a device"
"""What a reason is about: the fate of a round, one answer that the coordinator refused, what a device refused."""


@dataclass(frozen=True)
class Wording:
    """The templates of one code, what it is about, and which personal parameters it may carry beside theirs."""

    about: tuple[str, ...]
    what: str
    meaning: str
    remedy: str
    personal: tuple[str, ...] = ()

    @cached_property
    def public(self) -> frozenset[str]:
        """The parameters that the templates use."""
        parts = (part for template in (self.what, self.meaning, self.remedy) for part in Formatter().parse(template))
        return frozenset(name for _, name, _, _ in parts if name)


_NOTHING = "There is nothing to do."
_DROPPED = "The answer was dropped, and the round went on without it."
_LIES = "If this goes on, a device runs another version or lies."
_NOT_UNMASKED = "Nothing was unmasked, and the model is unchanged."
_LONGER = "Give devices longer (rounds.deadline), or ask more of them (rounds.over_selection)."
_MORE = "Enrol more devices, or bring back those that are away."
_NO_SUM = "A secure aggregation is not possible now."
_NO_PART = "The device takes no part in this sum."
_DISTRUST = "The server is faulty or lies. If this goes on, leave the federation: tacit device leave."
_ASK_OPERATOR = "If this goes on, ask who runs the federation."

WORDINGS: Mapping[ReasonCode, Wording] = {
    ReasonCode.ENOUGH_DEVICES: Wording(
        (ROUND,),
        "{eligible} eligible devices are here, and secure aggregation needs {needed}.",
        "The coordinator can read the sum only.",
        _NOTHING,
    ),
    ReasonCode.SECURE_AGGREGATION_OFF: Wording(
        (ROUND,),
        "The option rounds.secure is off.",
        "The coordinator can read each answer.",
        "Set rounds.secure to auto to let it read sums only.",
    ),
    ReasonCode.ROBUST_RULE: Wording(
        (ROUND,),
        "A robust rule is set (rounds.robust), and it needs the sums of small groups.",
        "The coordinator can read each answer.",
        "Remove rounds.robust to let it read sums only.",
    ),
    ReasonCode.TOO_FEW_DEVICES: Wording(
        (ROUND,),
        "{capable} of {here} devices here can take part in secure aggregation, and it needs {needed}.",
        _NO_SUM,
        _MORE,
    ),
    ReasonCode.THIN_SUM_BEFORE: Wording(
        (ROUND,),
        "An earlier sum would have shown too little, and {asked} devices would be asked now.",
        "Secure aggregation is tried again when {needed} are asked. The coordinator can read each answer until then.",
        "Enrol more devices, or ask more of them per round (rounds.clients_per_round).",
    ),
    ReasonCode.PARTICIPATION_LIMIT: Wording(
        (ROUND,),
        "{willing} of {here} devices here may take part in another sum, and secure aggregation needs {needed}.",
        "The others took part as often as they allow (rounds.guards.most_rounds). " + _NO_SUM,
        "Enrol more devices.",
    ),
    ReasonCode.COOL_DOWN: Wording(
        (ROUND,),
        "{eligible} of {here} devices here are eligible, and secure aggregation needs {needed}.",
        "The others took part in one of the last {cool_down} rounds and are in their cool-down.",
        "Ask fewer devices per round (rounds.clients_per_round), so that others are eligible in the next.",
    ),
    ReasonCode.COHORT_TOO_SIMILAR: Wording(
        (ROUND,),
        "Every cohort of the devices here differs from an earlier one by a few devices only.",
        "The difference of two such sums would show what these few sent. " + _NO_SUM,
        _MORE,
    ),
    ReasonCode.QUORUM_MISSED: Wording(
        (ROUND,),
        "Only {here} of {needed} devices came within {seconds:g} seconds.",
        "No round began. Finished rounds are kept.",
        "Enrol more devices, lower rounds.quorum or rounds.minimum, or start again later.",
    ),
    ReasonCode.SECURE_QUORUM_MISSED: Wording(
        (ROUND,),
        "Only {here} of the {needed} devices that secure aggregation needs came within {seconds:g} seconds.",
        "No round began. Finished rounds are kept.",
        "Enrol more devices, or start again later.",
    ),
    ReasonCode.TOO_FEW_ANSWERS: Wording(
        (ROUND,),
        "{answered:device} answered, and at least {needed} must answer (rounds.minimum).",
        "Nothing was added, and the model is unchanged.",
        _LONGER,
    ),
    ReasonCode.COORDINATOR_INTERRUPTED: Wording(
        (ROUND,),
        "The coordinator stopped in the middle of this secure aggregation.",
        "No device joins one twice, so the round ended without a sum.",
        "There is nothing to do: the next round follows.",
    ),
    ReasonCode.THIN_SUM: Wording(
        (ROUND,),
        "Rows that at least {needed} participants mention hold {share:.0%} of all mentions.",
        "The sum would show too little. It was not unmasked, and the model is unchanged.",
        "Enrol more devices.",
    ),
    ReasonCode.TOO_MANY_DROPOUTS: Wording(
        (ROUND, DEVICE),
        "{left:participant} remained in the phase '{phase}', and at least {needed} must remain.",
        _NOT_UNMASKED,
        _LONGER,
    ),
    ReasonCode.TOO_FEW_NEIGHBOURS: Wording(
        (ROUND, DEVICE),
        "A participant had {left:neighbour} left in the phase '{phase}', and at least {needed} must be left.",
        _NOT_UNMASKED,
        _LONGER,
        personal=("participant",),
    ),
    ReasonCode.TOO_FEW_SHARES: Wording(
        (ROUND,),
        "{left:neighbour} gave a share of a participant's secret, and at least {needed} must give one.",
        _NOT_UNMASKED,
        _LONGER,
        personal=("participant",),
    ),
    ReasonCode.LOST_BETWEEN_STAGES: Wording(
        (ROUND, DEVICE),
        "The cohort lost {lost:participant} between the two stages, and it may lose {spare}.",
        "A row could have too few participants behind it. " + _NOT_UNMASKED,
        "Give devices longer (rounds.deadline), or allow for more losses (rounds.secure.spare).",
    ),
    ReasonCode.COHORT_TOO_SMALL: Wording(
        (ROUND, DEVICE),
        "The cohort has {cohort:participant}, and it must have at least {needed}.",
        "A sum of so few hides nobody well enough, and it was not begun.",
        "Ask more participants per round, or lower n_min of the secure aggregation.",
    ),
    ReasonCode.UNSAFE_THRESHOLD: Wording(
        (ROUND, DEVICE),
        "The threshold is {threshold} among {degree:neighbour}.",
        "The server could tell two halves of a neighbourhood different things, or nobody could meet the threshold.",
        "Set a threshold above half of the neighbours, with room for those who may work with the server.",
    ),
    ReasonCode.NO_SAFE_THRESHOLD: Wording(
        (ROUND,),
        "No threshold serves {cohort:participant} of whom {corrupted} may cheat and {dropped} may drop out.",
        "The sum was not begun.",
        "Lower corrupted or dropped of the secure aggregation, or ask more participants.",
    ),
    ReasonCode.SUM_OVERFLOW: Wording(
        (ROUND, DEVICE),
        "The sum of '{table}' could overflow: {cohort:number} of up to {bound} may not fit into {bits} bits.",
        "The sum was not begun.",
        "Use ring.bits=64, or ask fewer participants per round.",
    ),
    ReasonCode.SECURE_AGGREGATION_FAILED: Wording(
        (ROUND,), "The secure aggregation failed.", _NOT_UNMASKED, "If this goes on, report it with the log."
    ),
    ReasonCode.DIVERGED: Wording(
        (ROUND,),
        "Learning left the finite numbers.",
        "The model of the round before is kept.",
        "Found a new federation with a lower learning_rate.",
    ),
    ReasonCode.LEGACY: Wording(
        (ROUND,),
        "An earlier version ran this round, and its reason has no code.",
        "Its sentence stays in the journal and is not shown, because it may name somebody.",
        _NOTHING,
        personal=("text",),
    ),
    ReasonCode.MALFORMED_MESSAGE: Wording(
        (ROUND, ANSWER, DEVICE), "A message could not be read.", "It was dropped, and nothing changed.", _LIES
    ),
    ReasonCode.LATE_ANSWER: Wording(
        (ANSWER, DEVICE),
        "An answer belongs to round {earlier}, not to round {round}.",
        "It came late or twice, and it was dropped.",
        "If this happens often, give devices longer (rounds.deadline).",
    ),
    ReasonCode.REPEATED_ANSWER: Wording(
        (ANSWER,),
        "A device answered twice, or was not asked.",
        "The first answer of each device that was asked counts.",
        _LIES,
        ("sender",),
    ),
    ReasonCode.UNEXPECTED_MESSAGE: Wording(
        (ANSWER,),
        "A message of the kind '{kind}' came in the phase '{phase}'.",
        _DROPPED,
        "If this happens often, give devices longer (rounds.deadline).",
    ),
    ReasonCode.OTHER_SESSION: Wording(
        (ANSWER, DEVICE),
        "A message belongs to another round, federation or set of terms.",
        "It was dropped, and nothing changed.",
        _LIES,
    ),
    ReasonCode.NOT_IN_PHASE: Wording(
        (ANSWER,), "A message came from a participant who is not in this phase.", _DROPPED, _LIES, ("sender",)
    ),
    ReasonCode.BAD_SIGNATURE: Wording(
        (ANSWER, DEVICE), "A signature does not fit the identity of its sender.", _DROPPED, _LIES, ("sender",)
    ),
    ReasonCode.BAD_KEY: Wording(
        (ANSWER, DEVICE), "No key can be agreed with a participant's public key.", _DROPPED, _LIES, ("sender",)
    ),
    ReasonCode.BAD_TAG: Wording(
        (ANSWER, DEVICE), "A message was not made by the participant it names.", _DROPPED, _LIES, ("sender",)
    ),
    ReasonCode.WRONG_RECIPIENTS: Wording(
        (ANSWER,),
        "A participant did not address exactly their neighbours in the phase '{phase}'.",
        _DROPPED,
        _LIES,
        ("sender",),
    ),
    ReasonCode.BROKEN_COMMITMENT: Wording(
        (ROUND, ANSWER),
        "A participant's secret is not the one they committed to.",
        "Their mask cannot be removed. If the answer came in time, the round went on without it; otherwise it ended.",
        _LIES,
        ("sender",),
    ),
    ReasonCode.UNREQUESTED_SHARE: Wording(
        (ANSWER,), "A participant gave a share that was not asked for.", _DROPPED, _LIES, ("sender", "participant")
    ),
    ReasonCode.BAD_SHARE: Wording(
        (ANSWER, DEVICE),
        "A share is not the one that its dealer announced.",
        "It is treated as missing.",
        _LIES,
        ("sender", "participant"),
    ),
    ReasonCode.DEVICE_COOL_DOWN: Wording(
        (DEVICE,),
        "The device took part in round {earlier} and sits out {cool_down:round}; round {round} is too soon.",
        _NO_PART,
        "There is nothing to do: it takes part again later.",
    ),
    ReasonCode.DEVICE_PARTICIPATION_LIMIT: Wording(
        (DEVICE,),
        "The device took part in {rounds:round} of this federation, as many as its settings allow.",
        _NO_PART,
        "Raise most_rounds of its guards to go on.",
    ),
    ReasonCode.DEVICE_COHORT_TOO_SIMILAR: Wording(
        (DEVICE,),
        "This cohort differs from that of round {earlier} by {differ:participant}; at least {needed} must differ.",
        "The difference of the two sums would show what these few sent. " + _NO_PART,
        "There is nothing to do: it takes part in other cohorts.",
    ),
    ReasonCode.WEAK_TERMS: Wording(
        (DEVICE,),
        "The server offers sums of {n_min:participant} with {k_min} behind each row; "
        "the device wants {device_n_min} and {device_k_min}.",
        _NO_PART,
        "Ask who runs the federation, or lower the device's limits: tacit device share --least.",
    ),
    ReasonCode.NOT_INVITED: Wording((DEVICE,), "The invited cohort does not hold this device.", _NO_PART, _DISTRUST),
    ReasonCode.OUT_OF_TURN: Wording(
        (ROUND, ANSWER, DEVICE),
        "A message came that the secure aggregation does not expect now.",
        "It was dropped, and nothing changed.",
        _NOTHING,
    ),
    ReasonCode.ROUND_REPEATED: Wording(
        (DEVICE,),
        "The device has joined stage {stage} of round {round}, or a later one, before.",
        "It joins none twice. " + _NO_PART,
        "There is nothing to do: it takes part in later rounds.",
    ),
    ReasonCode.OTHER_FEDERATION: Wording(
        (DEVICE,),
        "The device's memory of secure aggregations is of another federation.",
        _NO_PART,
        _ASK_OPERATOR,
    ),
    ReasonCode.OTHER_TERMS: Wording(
        (DEVICE,),
        "A secure aggregation is offered for another federation, round or model than the request.",
        _NO_PART,
        _DISTRUST,
    ),
    ReasonCode.UNKNOWN_TABLE: Wording(
        (DEVICE,),
        "A secure aggregation is offered of a table '{table}' that the model does not have in this form.",
        _NO_PART,
        _DISTRUST,
    ),
    ReasonCode.SUM_NOT_OPENED: Wording(
        (DEVICE,),
        "The secure aggregation of round {round} began before this device came.",
        _NO_PART,
        "There is nothing to do: it takes part in later rounds.",
    ),
    ReasonCode.WRONG_VECTOR_SIZE: Wording(
        (DEVICE,),
        "The update does not have the size that this secure aggregation adds.",
        _NO_PART,
        _ASK_OPERATOR,
    ),
    ReasonCode.VALUE_OUT_OF_RANGE: Wording(
        (DEVICE,),
        "A number of the update in '{table}' is larger than {bound}, which the sum can bear.",
        _NO_PART,
        "Lower learning_rate, clip updates (clip), or use ring.bits=64.",
        ("largest",),
    ),
    ReasonCode.UNCOUNTED_ROWS: Wording(
        (DEVICE,),
        "Rows are asked for whose participants this device has not helped to count.",
        _NO_PART,
        _DISTRUST,
    ),
    ReasonCode.NEW_PARTICIPANTS: Wording(
        (DEVICE,), "The second stage invites participants who were not in the first.", _NO_PART, _DISTRUST
    ),
    ReasonCode.WRONG_STAGE_CONTENT: Wording(
        (DEVICE,),
        "Stage {stage} is to add {kind} of '{table}' in a way that belongs to another stage.",
        _NO_PART,
        _DISTRUST,
    ),
    ReasonCode.INCONSISTENT_LIST: Wording(
        (DEVICE,), "The server's list '{list}' contradicts what it said before.", _NO_PART, _DISTRUST
    ),
    ReasonCode.REPEATED_KEY: Wording(
        (ANSWER, DEVICE), "Two public keys of one round are the same.", _DROPPED, _LIES, ("sender",)
    ),
    ReasonCode.LEFT_OUT: Wording(
        (DEVICE,),
        "The server's list '{list}' leaves this device out.",
        "The device has nothing to unmask, and it gave no share.",
        "There is nothing to do: it takes part in later rounds.",
    ),
    ReasonCode.BAD_CONFIRMATION: Wording(
        (ANSWER, DEVICE),
        "A participant did not confirm the list of participants that others were told.",
        "The confirmation does not count. Where too few are left, devices give no share.",
        "If this goes on, a participant lies, or the server tells different lists.",
        ("sender",),
    ),
    ReasonCode.TOO_FEW_CONFIRMATIONS: Wording(
        (DEVICE,),
        "{left:neighbour} confirmed the same list of participants, and at least {needed} must confirm it.",
        "The device gave no share.",
        "There is nothing to do: it takes part in later rounds.",
    ),
    ReasonCode.NO_TICKET: Wording(
        (DEVICE,), "The device's chain of tickets has none for round {round}.", _NO_PART, "Enrol it anew."
    ),
    ReasonCode.MISSING_TICKETS: Wording(
        (DEVICE,), "The invitation shows no tickets, so that the draw cannot be checked.", _NO_PART, _DISTRUST
    ),
    ReasonCode.BAD_TICKET: Wording(
        (DEVICE,), "A participant's ticket is not the one they promised.", _NO_PART, _DISTRUST, ("sender",)
    ),
    ReasonCode.BAD_BEACON: Wording(
        (DEVICE,), "The beacon of this round is not made of what was promised for it.", _NO_PART, _DISTRUST
    ),
    ReasonCode.UNKNOWN_BOARD: Wording(
        (DEVICE,), "The device does not know what was promised for round {round}.", _NO_PART, _ASK_OPERATOR
    ),
    ReasonCode.NOT_ENROLLED: Wording(
        (DEVICE,),
        "The cohort holds somebody who has not enrolled or is not there.",
        _NO_PART,
        _DISTRUST,
        ("participant",),
    ),
    ReasonCode.NOT_DRAWN: Wording(
        (DEVICE,),
        "The cohort of round {round} holds somebody who was not drawn.",
        _NO_PART,
        _DISTRUST,
        ("participant",),
    ),
    ReasonCode.PAUSED: Wording(
        (DEVICE,), "This device is paused.", "Nothing leaves it.", "Resume it: tacit device resume."
    ),
    ReasonCode.SETTINGS_CHANGED: Wording(
        (DEVICE,),
        "The settings changed while the message was made.",
        "The message was not kept.",
        "There is nothing to do: the next request is answered under the new settings.",
    ),
    ReasonCode.SETTINGS_NARROWED: Wording(
        (DEVICE,),
        "What was made for this round may hold what the settings forbid by now.",
        "It does not leave.",
        "There is nothing to do: the device takes part again in a later round.",
    ),
    ReasonCode.MASKED_ONLY: Wording(
        (DEVICE,),
        "This device sends nothing but under masks, and the coordinator asks for something it can read.",
        "Nothing readable leaves it.",
        "If they may read you: tacit device share --also-readable.",
    ),
    ReasonCode.EMPTY_HISTORY: Wording(
        (DEVICE,), "The history is empty.", "There is nothing to learn from.", "Add to it: tacit device history."
    ),
    ReasonCode.UPDATE_TOO_LARGE: Wording(
        (DEVICE,),
        "What was learnt does not fit into the numbers of the sum.",
        "The device does not send it.",
        "The model may have diverged. " + _ASK_OPERATOR,
    ),
    ReasonCode.NOT_A_MEMBER: Wording(
        (DEVICE,),
        "This device belongs to no federation.",
        "There is nobody to answer.",
        "Join one: tacit device join INVITATION.",
    ),
    ReasonCode.LEFT_FEDERATION: Wording(
        (DEVICE,),
        "This device has left its federation.",
        "Nothing leaves it.",
        "To take part again, join with a new invitation: tacit device join.",
    ),
    ReasonCode.ALREADY_A_MEMBER: Wording(
        (DEVICE,),
        "This device is already a member of a federation.",
        "It did not join another.",
        "Leave it first: tacit device leave.",
    ),
    ReasonCode.ROUND_ANSWERED: Wording(
        (DEVICE,),
        "Round {round} was answered already or is over; the last one was {earlier}.",
        "Its sender repeats an old message, or asks twice with different models. The device does not answer it.",
        "There is nothing to do: the device answers later rounds.",
    ),
    ReasonCode.MODEL_OUTDATED: Wording(
        (DEVICE,),
        "A model of round {round} arrived, and that of round {earlier} is here already.",
        "Its sender repeats an old message. Nothing was changed.",
        _NOTHING,
    ),
    ReasonCode.NOT_A_REQUEST: Wording(
        (DEVICE,), "A model arrived that is to be kept, not to be answered.", "The device did not answer it.", _NOTHING
    ),
}


@dataclass(frozen=True)
class RoundReason:
    """Why a round, or one message of it, ended as it did."""

    code: ReasonCode
    parameters: Mapping[str, Value] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        wording, given = WORDINGS[self.code], self.parameters.keys()
        if not wording.public <= given <= wording.public.union(wording.personal):
            raise ValueError(
                f"'{self.code}' takes {sorted(wording.public)} and perhaps {sorted(wording.personal)}, "
                f"not {sorted(given)}"
            )

    def public(self) -> RoundReason:
        """Return it without the parameters that tell of a single person or device."""
        kept = {name: value for name, value in self.parameters.items() if not PARAMETERS[name].is_personal}
        return RoundReason(self.code, kept)

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON, with everything it holds; take `public()` first for whoever may not know it."""
        return {"code": str(self.code), "parameters": dict(self.parameters)}

    def to_json(self) -> str:
        """Write it for a journal."""
        return json.dumps(self.as_dict(), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> RoundReason:
        """Read what `to_json` wrote; a code that this version does not know is `legacy`, and nothing is lost.

        >>> RoundReason.from_json('{"code": "thin-sum", "parameters": {"needed": 4, "share": 0.25}}').code
        <ReasonCode.THIN_SUM: 'thin-sum'>
        >>> RoundReason.from_json('{"code": "of tomorrow", "parameters": {}}').code
        <ReasonCode.LEGACY: 'legacy'>
        """
        try:
            stored = json.loads(text)
            return cls(ReasonCode(stored["code"]), dict(stored["parameters"]))
        except (ValueError, KeyError, TypeError):
            return cls(ReasonCode.LEGACY, {"text": text})


def describe_reason(reason: RoundReason) -> Description:
    """Word a reason: what happened, what it means, what to do. It names nobody.

    >>> describe_reason(RoundReason(ReasonCode.TOO_FEW_ANSWERS, {"answered": 1, "needed": 3})).what
    '1 device answered, and at least 3 must answer (rounds.minimum).'
    """
    wording, told = WORDINGS[reason.code], reason.public().parameters
    return Description(*(_Words().format(text, **told) for text in (wording.what, wording.meaning, wording.remedy)))
