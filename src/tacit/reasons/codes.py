"""The codes of reasons, and what their parameters mean."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple


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
    METHOD_NOT_AGREED = "method-not-agreed"
    THIN_SUM = "thin-sum"
    EMPTY_SUM = "empty-sum"
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
    NOTICE_FORGED = "notice-forged"
    REVOKED_MEMBER = "revoked-member"
    DEVICE_REVOKED = "device-revoked"
    KEY_REPLACED = "key-replaced"
    # why a device sent nothing
    PAUSED = "paused"
    SETTINGS_CHANGED = "settings-changed"
    SETTINGS_NARROWED = "settings-narrowed"
    MASKED_ONLY = "masked-only"
    NEEDS_MASKS = "needs-masks"
    TRIAL = "trial"
    NO_GUARANTEE = "no-guarantee"
    METHOD_REPLACED = "method-replaced"
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
    METERED_NETWORK = "metered-network"


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
    "waiting": Parameter("devices that were asked and have sent nothing since the method was replaced"),
    "willing": Parameter("devices that have not reached their limit of rounds"),
}
