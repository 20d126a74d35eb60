"""Reasons of decided, skipped, abandoned and refused rounds: a stable code, its parameters, and their wording.

Code that decides names a reason code; only this module has sentences. A parameter declares whether it is personal, that
is, about a single user or device. `public()` drops personal parameters. No sentence uses one or names a user.
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
    BATCHES_INCOMPLETE = "batches-incomplete"
    BUDGETS_SPENT = "budgets-spent"
    PLAN_DONE = "plan-done"
    DIRECTORY_WAITS = "directory-waits"
    ROLLED_BACK = "rolled-back"
    RESTORED = "restored"
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
    NOISE_OVERFLOW = "noise-overflow"
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
    DEVICE_OTHER_COHORT = "device-other-cohort"
    WEAK_TERMS = "weak-terms"
    WEAK_NOISE = "weak-noise"
    LARGE_DELTA = "large-delta"
    BUDGET_SPENT = "budget-spent"
    PRIVACY_LEVEL = "privacy-level"
    OTHER_GUARANTEE = "other-guarantee"
    COPIED_BUDGET = "copied-budget"
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
    DIRECTORY_MISSING = "directory-missing"
    DIRECTORY_FORGED = "directory-forged"
    DIRECTORY_FORKED = "directory-forked"
    DIRECTORY_GAP = "directory-gap"
    DIRECTORY_STALE = "directory-stale"
    DIRECTORY_YOUNG = "directory-young"
    NOT_IN_DIRECTORY = "not-in-directory"
    # why a device sent nothing
    PAUSED = "paused"
    SETTINGS_CHANGED = "settings-changed"
    SETTINGS_NARROWED = "settings-narrowed"
    MASKED_ONLY = "masked-only"
    NEEDS_MASKS = "needs-masks"
    EMPTY_HISTORY = "empty-history"
    UPDATE_TOO_LARGE = "update-too-large"
    NOT_A_MEMBER = "not-a-member"
    LEFT_FEDERATION = "left-federation"
    ALREADY_A_MEMBER = "already-a-member"
    ROUND_ANSWERED = "round-answered"
    MODEL_OUTDATED = "model-outdated"
    NOT_A_REQUEST = "not-a-request"
    BROKEN_CHAIN = "broken-chain"
    UNSIGNED_AMENDMENT = "unsigned-amendment"
    UNKNOWN_VERSION = "unknown-version"
    SITS_OUT = "sits-out"
    DAILY_ROUNDS = "daily-rounds"
    DAILY_BYTES = "daily-bytes"
    OUTSIDE_HOURS = "outside-hours"
    TOO_SOON = "too-soon"
    NO_MAINS_POWER = "no-mains-power"


class Parameter(NamedTuple):
    """The meaning of a parameter, and whether it is about a single user or device."""

    meaning: str
    is_personal: bool = False


PARAMETERS: Mapping[str, Parameter] = {
    "answered": Parameter("devices that answered"),
    "asked": Parameter("devices that would be asked"),
    "batches": Parameter("batches of devices that are summed together"),
    "bits": Parameter("bits of a number in the sum"),
    "bound": Parameter("largest number of a message"),
    "capable": Parameter("devices that can take part in secure aggregation at all"),
    "cohort": Parameter("participants in the cohort"),
    "cool_down": Parameter("rounds that a device sits out between two"),
    "corrupted": Parameter("participants that may collude with the server"),
    "days": Parameter("days that the device allows since the witness's last signature"),
    "degree": Parameter("neighbours of each participant"),
    "device_k_min": Parameter("participants behind each row that the device demands"),
    "device_n_min": Parameter("participants in a sum that the device demands"),
    "cost": Parameter("share of a privacy budget that a round spends"),
    "delta": Parameter("probability with which a guarantee may not hold"),
    "differ": Parameter("participants by which two cohorts differ"),
    "dropped": Parameter("participants that may drop out"),
    "earlier": Parameter("an earlier round"),
    "eligible": Parameter("devices that are not in their cool-down"),
    "epsilon": Parameter("what all sums together may tell of a device"),
    "here": Parameter("devices that are connected"),
    "hours": Parameter("hours that an identity must be in the directory"),
    "k_min": Parameter("participants behind each row that the server offers"),
    "kind": Parameter("kind of message or number"),
    "largest": Parameter("largest number of one participant's message", is_personal=True),
    "left": Parameter("participants or neighbours that are left"),
    "level": Parameter("epsilon of the user's own level"),
    "list": Parameter("list of participants that the server sent"),
    "lost": Parameter("participants lost between the stages"),
    "n_min": Parameter("participants in a sum that the server offers"),
    "needed": Parameter("how many are needed"),
    "number": Parameter("number of an amendment"),
    "participant": Parameter("position of the participant concerned", is_personal=True),
    "phase": Parameter("phase of the secure aggregation"),
    "round": Parameter("a round"),
    "rounds": Parameter("rounds in which the device took part"),
    "seconds": Parameter("seconds of waiting"),
    "sender": Parameter("position of the message's sender", is_personal=True),
    "settled": Parameter("devices that are in the directory for long enough"),
    "share": Parameter("share of all mentions that the sum would show"),
    "spare": Parameter("participants that may be lost between the stages"),
    "spent": Parameter("share of a privacy budget that is spent"),
    "stage": Parameter("stage of the secure aggregation"),
    "table": Parameter("table of the model"),
    "text": Parameter("sentence of an earlier version", is_personal=True),
    "threshold": Parameter("neighbours that rebuild a secret together"),
    "unbatched": Parameter("devices here that were in no sum yet"),
    "version": Parameter("number of the last amendment that a device has followed"),
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
"""What a reason is about: the outcome of a round, one answer that the coordinator refused, what a device refused."""


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
_SUSPECT = "If this happens often, a device runs another version, is faulty or is an adversary."
_NOT_UNMASKED = "Nothing was unmasked, and the model is unchanged."
_LONGER = "Give devices longer (rounds.deadline), or ask more of them (rounds.over_selection)."
_MORE = "Enrol more devices, or reconnect those that are offline."
_NO_SUM = "A secure aggregation is not possible now."
_NO_PART = "The device takes no part in this sum."
_DISTRUST = "The server is faulty or dishonest. If this happens again, leave the federation: tacit device leave."
_ASK_OPERATOR = "If this happens again, ask the operator of the federation."

WORDINGS: Mapping[ReasonCode, Wording] = {
    ReasonCode.ENOUGH_DEVICES: Wording(
        (ROUND,),
        "{eligible} eligible devices are here, and secure aggregation needs {needed}.",
        "The coordinator can read only the sum.",
        _NOTHING,
    ),
    ReasonCode.SECURE_AGGREGATION_OFF: Wording(
        (ROUND,),
        "The option rounds.secure is off.",
        "The coordinator can read each answer.",
        "To hide single answers from it, set rounds.secure to auto.",
    ),
    ReasonCode.ROBUST_RULE: Wording(
        (ROUND,),
        "A robust rule is set (rounds.robust), and it needs the sums of small groups.",
        "The coordinator can read each answer.",
        "To hide single answers from it, remove rounds.robust.",
    ),
    ReasonCode.TOO_FEW_DEVICES: Wording(
        (ROUND,),
        "{capable} of {here} devices here can take part in secure aggregation, and it needs {needed}.",
        _NO_SUM,
        _MORE,
    ),
    ReasonCode.THIN_SUM_BEFORE: Wording(
        (ROUND,),
        "An earlier sum had too few rows that enough devices mention, and {asked} devices would be asked now.",
        "Secure aggregation is tried again when {needed} are asked. The coordinator can read each answer until then.",
        "Enrol more devices, or ask more of them per round (rounds.clients_per_round).",
    ),
    ReasonCode.PARTICIPATION_LIMIT: Wording(
        (ROUND,),
        "{willing} of {here} devices here may take part in another sum, and secure aggregation needs {needed}.",
        "The others took part as often as they allow (rounds.device_policy.most_rounds). " + _NO_SUM,
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
    ReasonCode.BATCHES_INCOMPLETE: Wording(
        (ROUND,),
        "No batch of devices is complete ({batches} in all), and {unbatched:device} without a batch are not the "
        "{needed} that a new one takes.",
        "Devices are summed with the same others for life, so that no two sums can be compared. " + _NO_SUM,
        "Wait for the devices that are missing, or enrol more. A guarantee (privacy) needs no batches.",
    ),
    ReasonCode.BUDGETS_SPENT: Wording(
        (ROUND,),
        "{willing} of {here} devices here have enough of their privacy budget left, and a sum needs {needed}.",
        "The others have spent theirs, and nothing gives it back. " + _NO_SUM,
        "Enrol more devices, or found a new federation.",
    ),
    ReasonCode.DIRECTORY_WAITS: Wording(
        (ROUND,),
        "{settled} of {here} devices here are in the directory for {hours:g} hours, signed by the witness, and "
        "{needed} are needed.",
        "Devices would refuse a sum with others.",
        "Wait. If the number stays as it is, see that the witness runs (tacit witness).",
    ),
    ReasonCode.PLAN_DONE: Wording(
        (ROUND,),
        "The method has made all the sums that the privacy budget pays for.",
        "No device is asked any more. The model stays, and recommendations go on.",
        _NOTHING,
    ),
    ReasonCode.ROLLED_BACK: Wording(
        (ROUND,),
        "The operator went back to the model after round {earlier}.",
        "No device was asked. Devices are told, and go on from that model.",
        _NOTHING,
    ),
    ReasonCode.RESTORED: Wording(
        (ROUND,),
        "The coordinator was restored from a copy.",
        "Numbers of rounds that devices may have answered since are left out.",
        _NOTHING,
    ),
    ReasonCode.QUORUM_MISSED: Wording(
        (ROUND,),
        "Only {here} of {needed} devices connected within {seconds:g} seconds.",
        "No round began. Finished rounds are kept.",
        "Enrol more devices, lower rounds.quorum or rounds.minimum, or start again later.",
    ),
    ReasonCode.SECURE_QUORUM_MISSED: Wording(
        (ROUND,),
        "Only {here} of the {needed} devices that secure aggregation needs connected within {seconds:g} seconds.",
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
        "There is nothing to do: the next round begins by itself.",
    ),
    ReasonCode.THIN_SUM: Wording(
        (ROUND,),
        "Rows that at least {needed} participants mention hold {share:.0%} of all mentions.",
        "The rest of the sum would be too small to learn from. It was not unmasked, and the model is unchanged.",
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
        "{left:neighbour} sent a share of a participant's secret, and at least {needed} must send one.",
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
        "A sum of so few participants hides single messages too badly. It was not begun.",
        "Ask more participants per round, or lower n_min of the secure aggregation.",
    ),
    ReasonCode.UNSAFE_THRESHOLD: Wording(
        (ROUND, DEVICE),
        "The threshold is {threshold} among {degree:neighbour}.",
        "The server could send two halves of a neighbourhood different lists, or no share could be rebuilt.",
        "Set a threshold above half of the neighbours plus those who may collude with the server.",
    ),
    ReasonCode.NO_SAFE_THRESHOLD: Wording(
        (ROUND,),
        "No threshold is safe for {cohort:participant} of whom {corrupted} may collude and {dropped} may drop out.",
        "The sum was not begun.",
        "Lower corrupted or dropped of the secure aggregation, or ask more participants.",
    ),
    ReasonCode.SUM_OVERFLOW: Wording(
        (ROUND, DEVICE),
        "The sum of '{table}' could overflow: {cohort:number} of up to {bound} may not fit into {bits} bits.",
        "The sum was not begun.",
        "Use ring.bits=64, or ask fewer participants per round.",
    ),
    ReasonCode.NOISE_OVERFLOW: Wording(
        (ROUND, DEVICE),
        "The sum of '{table}' could overflow: with noise, {cohort:number} may exceed {bound} each, and {bits} bits.",
        "The sum was not begun.",
        "Use ring.bits=64 in a new federation, or ask fewer participants per round.",
    ),
    ReasonCode.SECURE_AGGREGATION_FAILED: Wording(
        (ROUND,), "The secure aggregation failed.", _NOT_UNMASKED, "If this happens again, report it with the log."
    ),
    ReasonCode.DIVERGED: Wording(
        (ROUND,),
        "Learning diverged.",
        "The model of the round before stays in force.",
        "Found a new federation with a lower learning_rate.",
    ),
    ReasonCode.LEGACY: Wording(
        (ROUND,),
        "An earlier version ran this round, and its reason has no code.",
        "Its sentence stays in the journal and is not shown, because it may name a user.",
        _NOTHING,
        personal=("text",),
    ),
    ReasonCode.MALFORMED_MESSAGE: Wording(
        (ROUND, ANSWER, DEVICE), "A message could not be read.", "It was dropped, and nothing changed.", _SUSPECT
    ),
    ReasonCode.LATE_ANSWER: Wording(
        (ANSWER, DEVICE),
        "An answer belongs to round {earlier}, not to round {round}.",
        "It came late or twice, and it was dropped.",
        "If this happens often, give devices longer (rounds.deadline).",
    ),
    ReasonCode.REPEATED_ANSWER: Wording(
        (ANSWER,),
        "A device answered twice, or answered without being asked.",
        "Only the first answer of each device that was asked counts.",
        _SUSPECT,
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
        _SUSPECT,
    ),
    ReasonCode.NOT_IN_PHASE: Wording(
        (ANSWER,), "A message came from a participant that is not in this phase.", _DROPPED, _SUSPECT, ("sender",)
    ),
    ReasonCode.BAD_SIGNATURE: Wording(
        (ANSWER, DEVICE), "A signature does not match the identity of its sender.", _DROPPED, _SUSPECT, ("sender",)
    ),
    ReasonCode.BAD_KEY: Wording(
        (ANSWER, DEVICE), "No key can be agreed with a participant's public key.", _DROPPED, _SUSPECT, ("sender",)
    ),
    ReasonCode.BAD_TAG: Wording(
        (ANSWER, DEVICE), "A message was not made by the participant it names.", _DROPPED, _SUSPECT, ("sender",)
    ),
    ReasonCode.WRONG_RECIPIENTS: Wording(
        (ANSWER,),
        "A participant did not address exactly their neighbours in the phase '{phase}'.",
        _DROPPED,
        _SUSPECT,
        ("sender",),
    ),
    ReasonCode.BROKEN_COMMITMENT: Wording(
        (ROUND, ANSWER),
        "A participant's secret is not the one they committed to.",
        "Their mask cannot be removed. If the answer came in time, the round went on without it; otherwise it ended.",
        _SUSPECT,
        ("sender",),
    ),
    ReasonCode.UNREQUESTED_SHARE: Wording(
        (ANSWER,), "A participant sent a share that was not requested.", _DROPPED, _SUSPECT, ("sender", "participant")
    ),
    ReasonCode.BAD_SHARE: Wording(
        (ANSWER, DEVICE),
        "A share is not the one that its dealer announced.",
        "It is treated as missing.",
        _SUSPECT,
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
        "To continue, raise most_rounds of its device policy.",
    ),
    ReasonCode.DEVICE_COHORT_TOO_SIMILAR: Wording(
        (DEVICE,),
        "This cohort differs from that of round {earlier} by {differ:participant}; at least {needed} must differ.",
        "The difference of the two sums would show what these few sent. " + _NO_PART,
        "There is nothing to do: it takes part in other cohorts.",
    ),
    ReasonCode.DEVICE_OTHER_COHORT: Wording(
        (DEVICE,),
        "This cohort is not that of round {earlier}, in which this device was summed.",
        "Sums over different cohorts are equations that can be solved for one participant. " + _NO_PART,
        "There is nothing to do: it takes part when the same devices are here. If they are gone for good, leave the "
        "federation and join anew.",
    ),
    ReasonCode.WEAK_TERMS: Wording(
        (DEVICE,),
        "The server offers sums of {n_min:participant} with {k_min} behind each row; "
        "the device demands {device_n_min} and {device_k_min}.",
        _NO_PART,
        "Ask the operator of the federation, or lower the device's limits: tacit device share --least.",
    ),
    ReasonCode.WEAK_NOISE: Wording(
        (DEVICE,),
        "The server would go on with {n_min:participant}; with fewer than {needed} the noise of a sum falls short.",
        _NO_PART,
        _DISTRUST,
    ),
    ReasonCode.LARGE_DELTA: Wording(
        (DEVICE,),
        "A sum of {cohort:participant} needs a delta below one in as many, and this federation agreed on {delta:g}.",
        _NO_PART,
        "Ask the operator to ask fewer devices per round, or to found a federation with a smaller delta.",
    ),
    ReasonCode.BUDGET_SPENT: Wording(
        (DEVICE,),
        "This round would spend {cost:.3g} of your privacy budget, and {spent:.3g} of it is spent.",
        "Sharing stops here, for good in this federation. Recommendations go on.",
        _NOTHING,
    ),
    ReasonCode.PRIVACY_LEVEL: Wording(
        (DEVICE,),
        "With this round your messages could tell more than your level allows: epsilon {epsilon:.3g}, above {level:g}.",
        "Sharing stops here. Recommendations go on.",
        "To share more, choose another level: tacit device privacy open.",
    ),
    ReasonCode.OTHER_GUARANTEE: Wording(
        (DEVICE,),
        "This federation had another guarantee when this device joined it first: epsilon {epsilon:g}, delta {delta:g}.",
        "Its budget holds, whatever was promised later. " + _NO_PART,
        _DISTRUST,
    ),
    ReasonCode.COPIED_BUDGET: Wording(
        (DEVICE,),
        "This device was restored from a copy, and what was spent since the copy was made is not known.",
        "Its privacy budget counts as spent. Recommendations go on.",
        "To share again, join another federation.",
    ),
    ReasonCode.NOT_INVITED: Wording((DEVICE,), "The invited cohort does not include this device.", _NO_PART, _DISTRUST),
    ReasonCode.OUT_OF_TURN: Wording(
        (ROUND, ANSWER, DEVICE),
        "A message came that the secure aggregation does not expect now.",
        "It was dropped, and nothing changed.",
        _NOTHING,
    ),
    ReasonCode.ROUND_REPEATED: Wording(
        (DEVICE,),
        "The device has joined stage {stage} of round {round}, or a later one, before.",
        "It joins no stage twice. " + _NO_PART,
        "There is nothing to do: it takes part in later rounds.",
    ),
    ReasonCode.OTHER_FEDERATION: Wording(
        (DEVICE,),
        "The device's record of secure aggregations belongs to another federation.",
        _NO_PART,
        _ASK_OPERATOR,
    ),
    ReasonCode.OTHER_TERMS: Wording(
        (DEVICE,),
        "The secure aggregation is for another federation, round or model than the request.",
        _NO_PART,
        _DISTRUST,
    ),
    ReasonCode.UNKNOWN_TABLE: Wording(
        (DEVICE,),
        "The secure aggregation is for a table '{table}' that the model does not have in this form.",
        _NO_PART,
        _DISTRUST,
    ),
    ReasonCode.SUM_NOT_OPENED: Wording(
        (DEVICE,),
        "The secure aggregation of round {round} began before this device connected.",
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
        "A number of the update in '{table}' is larger than {bound}, the bound of the sum.",
        _NO_PART,
        "Lower learning_rate, clip updates (clip), or use ring.bits=64.",
        ("largest",),
    ),
    ReasonCode.UNCOUNTED_ROWS: Wording(
        (DEVICE,),
        "The server asks for rows that the first stage did not count.",
        _NO_PART,
        _DISTRUST,
    ),
    ReasonCode.NEW_PARTICIPANTS: Wording(
        (DEVICE,), "The second stage invites participants that were not in the first.", _NO_PART, _DISTRUST
    ),
    ReasonCode.WRONG_STAGE_CONTENT: Wording(
        (DEVICE,),
        "Stage {stage} asks for {kind} of '{table}' in the form of another stage.",
        _NO_PART,
        _DISTRUST,
    ),
    ReasonCode.INCONSISTENT_LIST: Wording(
        (DEVICE,), "The server's list '{list}' contradicts an earlier list.", _NO_PART, _DISTRUST
    ),
    ReasonCode.REPEATED_KEY: Wording(
        (ANSWER, DEVICE), "Two public keys of one round are the same.", _DROPPED, _SUSPECT, ("sender",)
    ),
    ReasonCode.LEFT_OUT: Wording(
        (DEVICE,),
        "The server's list '{list}' does not include this device.",
        "The device sent no share.",
        "There is nothing to do: it takes part in later rounds.",
    ),
    ReasonCode.BAD_CONFIRMATION: Wording(
        (ANSWER, DEVICE),
        "A participant did not confirm the list of participants that others received.",
        "The confirmation does not count. Where too few are left, devices send no share.",
        "If this happens again, a participant is dishonest, or the server sends different lists.",
        ("sender",),
    ),
    ReasonCode.TOO_FEW_CONFIRMATIONS: Wording(
        (DEVICE,),
        "{left:neighbour} confirmed the same list of participants, and at least {needed} must confirm it.",
        "The device sent no share.",
        "There is nothing to do: it takes part in later rounds.",
    ),
    ReasonCode.NO_TICKET: Wording(
        (DEVICE,), "The device's chain of tickets has none for round {round}.", _NO_PART, "Enrol it again."
    ),
    ReasonCode.MISSING_TICKETS: Wording(
        (DEVICE,), "The invitation has no tickets, so the device cannot verify the draw.", _NO_PART, _DISTRUST
    ),
    ReasonCode.BAD_TICKET: Wording(
        (DEVICE,), "A participant's ticket does not match their commitment.", _NO_PART, _DISTRUST, ("sender",)
    ),
    ReasonCode.BAD_BEACON: Wording(
        (DEVICE,), "The beacon of this round does not match its commitments.", _NO_PART, _DISTRUST
    ),
    ReasonCode.UNKNOWN_BOARD: Wording(
        (DEVICE,), "The device does not have the commitments for round {round}.", _NO_PART, _ASK_OPERATOR
    ),
    ReasonCode.NOT_ENROLLED: Wording(
        (DEVICE,),
        "The cohort includes a participant that has not enrolled or is not connected.",
        _NO_PART,
        _DISTRUST,
        ("participant",),
    ),
    ReasonCode.NOT_DRAWN: Wording(
        (DEVICE,),
        "The cohort of round {round} includes a participant that was not drawn.",
        _NO_PART,
        _DISTRUST,
        ("participant",),
    ),
    ReasonCode.DIRECTORY_MISSING: Wording(
        (DEVICE,),
        "The coordinator did not show that the participants are in the directory which the witness signs.",
        _NO_PART,
        _DISTRUST,
    ),
    ReasonCode.DIRECTORY_FORGED: Wording(
        (DEVICE,), "The directory does not have the signature of your witness.", _NO_PART, _DISTRUST
    ),
    ReasonCode.DIRECTORY_FORKED: Wording(
        (DEVICE,),
        "The directory is not a continuation of the one that was shown before.",
        "Somebody may be shown another list of participants. " + _NO_PART,
        "The coordinator was restored from an old copy, or is dishonest. Tell the witness and the other members.",
    ),
    ReasonCode.DIRECTORY_GAP: Wording(
        (DEVICE,),
        "The coordinator did not show how the directory grew since this device saw it.",
        _NO_PART,
        "There is nothing to do: it is shown in the next round. " + _ASK_OPERATOR,
    ),
    ReasonCode.DIRECTORY_STALE: Wording(
        (DEVICE,),
        "The witness has not signed the directory for {days:g} days, or this machine's clock is wrong.",
        _NO_PART,
        "Check the clock. Ask the witness whether it still runs.",
    ),
    ReasonCode.DIRECTORY_YOUNG: Wording(
        (DEVICE,),
        "A participant is in the directory for less than the {hours:g} hours that you demand.",
        _NO_PART,
        "There is nothing to do: it takes part in later rounds.",
    ),
    ReasonCode.NOT_IN_DIRECTORY: Wording(
        (DEVICE,),
        "The cohort includes a participant that is not in the directory, or was not at the time of its proof.",
        "The coordinator may have invented it. " + _NO_PART,
        _DISTRUST,
    ),
    ReasonCode.PAUSED: Wording(
        (DEVICE,), "This device is paused.", "Nothing leaves it.", "Resume it: tacit device resume."
    ),
    ReasonCode.SETTINGS_CHANGED: Wording(
        (DEVICE,),
        "Your settings changed while the message was made.",
        "The message was discarded.",
        "There is nothing to do: the next request is answered under the new settings.",
    ),
    ReasonCode.SETTINGS_NARROWED: Wording(
        (DEVICE,),
        "The message for this round may contain what your settings now forbid.",
        "It was not sent.",
        "There is nothing to do: the device takes part in later rounds.",
    ),
    ReasonCode.MASKED_ONLY: Wording(
        (DEVICE,),
        "This device takes part in masked rounds only, and the coordinator asked for a readable message.",
        "It sent nothing.",
        "To allow readable messages: tacit device share --also-readable.",
    ),
    ReasonCode.NEEDS_MASKS: Wording(
        (DEVICE,),
        "This federation promises differential privacy, and the coordinator asked for a readable message.",
        "Noise protects sums only. The device sent nothing.",
        _DISTRUST,
    ),
    ReasonCode.EMPTY_HISTORY: Wording(
        (DEVICE,), "The history is empty.", "There is nothing to learn from.", "Add to it: tacit device history."
    ),
    ReasonCode.UPDATE_TOO_LARGE: Wording(
        (DEVICE,),
        "The update has numbers that are too large for the sum.",
        "The device did not send it.",
        "The model may have diverged. " + _ASK_OPERATOR,
    ),
    ReasonCode.NOT_A_MEMBER: Wording(
        (DEVICE,),
        "This device belongs to no federation.",
        "It has no catalogue and no model.",
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
        "The sender repeated an old message, or asked twice with different models. The device did not answer.",
        "There is nothing to do: the device answers later rounds.",
    ),
    ReasonCode.MODEL_OUTDATED: Wording(
        (DEVICE,),
        "A model of round {round} arrived, and the device already has that of round {earlier}.",
        "The sender repeated an old message. Nothing was changed.",
        _NOTHING,
    ),
    ReasonCode.NOT_A_REQUEST: Wording(
        (DEVICE,), "A model arrived that needs no answer.", "The device did not answer it.", _NOTHING
    ),
    ReasonCode.BROKEN_CHAIN: Wording(
        (DEVICE,),
        "Amendment {number} of the federation does not follow from amendment {version}, which this device has.",
        "Nothing was changed.",
        _DISTRUST,
    ),
    ReasonCode.UNSIGNED_AMENDMENT: Wording(
        (DEVICE,),
        "Amendment {number} of the federation is not signed by the authority that its members agreed on.",
        "Nothing was changed.",
        _DISTRUST,
    ),
    ReasonCode.UNKNOWN_VERSION: Wording(
        (DEVICE,),
        "The coordinator sent a message of other terms, and does not know amendment {version}, which this device has.",
        "Nothing was changed, and recommendations go on. The coordinator was perhaps restored from an older copy.",
        "Ask the operator to restore the newest copy. Else leave and join again: tacit device leave.",
    ),
    ReasonCode.SITS_OUT: Wording(
        (DEVICE,),
        "This device was restored from a copy and sits out up to round {round}.",
        "What it answered after the copy was made is not in its file; so it cannot contradict that.",
        "There is nothing to do: it takes part in later rounds.",
    ),
    ReasonCode.DAILY_ROUNDS: Wording(
        (DEVICE,),
        "This device has begun {rounds:round} in 24 hours, as many as you allow.",
        "It did not take part.",
        "Allow more: tacit device limits --rounds-per-day.",
    ),
    ReasonCode.DAILY_BYTES: Wording(
        (DEVICE,),
        "With this round the device would exceed the bytes that you allow in 24 hours.",
        "It did not take part.",
        "Allow more: tacit device limits --mb-per-day.",
    ),
    ReasonCode.OUTSIDE_HOURS: Wording(
        (DEVICE,),
        "It is not one of the hours in which you allow rounds.",
        "The device did not take part.",
        "Change them: tacit device limits --hours.",
    ),
    ReasonCode.TOO_SOON: Wording(
        (DEVICE,),
        "The last round began less than the minutes ago that you want between two rounds.",
        "The device did not take part.",
        "Change them: tacit device limits --pause-minutes.",
    ),
    ReasonCode.NO_MAINS_POWER: Wording(
        (DEVICE,),
        "This machine is not on mains power, or does not tell.",
        "The device did not take part, as you set.",
        "Plug it in, or: tacit device limits --also-on-battery.",
    ),
}


@dataclass(frozen=True)
class RoundReason:
    """The reason for the outcome of a round, or of one message of it."""

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
        """Return it without personal parameters."""
        kept = {name: value for name, value in self.parameters.items() if not PARAMETERS[name].is_personal}
        return RoundReason(self.code, kept)

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON, personal parameters included; call `public()` first to drop them."""
        return {"code": str(self.code), "parameters": dict(self.parameters)}

    def to_json(self) -> str:
        """Write it for a journal."""
        return json.dumps(self.as_dict(), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> RoundReason:
        """Read what `to_json` wrote; an unknown code becomes `legacy`, with the text as its parameter.

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
    """Return the sentences of a reason: what happened, what it means, what to do. They name no user.

    >>> describe_reason(RoundReason(ReasonCode.TOO_FEW_ANSWERS, {"answered": 1, "needed": 3})).what
    '1 device answered, and at least 3 must answer (rounds.minimum).'
    """
    wording, parameters = WORDINGS[reason.code], reason.public().parameters
    return Description(
        *(_Words().format(text, **parameters) for text in (wording.what, wording.meaning, wording.remedy))
    )
