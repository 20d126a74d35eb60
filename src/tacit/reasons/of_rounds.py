"""The wording of every code about what a round came to, and why an answer was refused."""

from __future__ import annotations

from collections.abc import Mapping

from tacit.reasons.codes import ReasonCode
from tacit.reasons.wording import (
    ANSWER,
    DEVICE,
    DROPPED,
    LONGER,
    MORE,
    NO_SUM,
    NOT_UNMASKED,
    NOTHING,
    ROUND,
    SUSPECT,
    Wording,
)

ROUND_WORDINGS: Mapping[ReasonCode, Wording] = {
    ReasonCode.ENOUGH_DEVICES: Wording(
        (ROUND,),
        "{eligible} eligible devices are here, and secure aggregation needs {needed}.",
        "The coordinator can read only the sum.",
        NOTHING,
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
        NO_SUM,
        MORE,
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
        "The others took part as often as they allow (rounds.device_policy.most_rounds). " + NO_SUM,
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
        "The difference of two such sums would show what these few sent. " + NO_SUM,
        MORE,
    ),
    ReasonCode.BATCHES_INCOMPLETE: Wording(
        (ROUND,),
        "No batch of devices is complete ({batches} in all), and {unbatched:device} without a batch are not the "
        "{needed} that a new one takes.",
        "Devices are summed with the same others, so that sums cannot be compared. " + NO_SUM,
        "Wait for the devices that are missing, or enrol more. Revoke a device that does not come back: that ends its "
        "batch, and about half of the others may go on in a new one. A guarantee (privacy) needs no batches.",
    ),
    ReasonCode.BUDGETS_SPENT: Wording(
        (ROUND,),
        "{willing} of {here} devices here have enough of their privacy budget left, and a sum needs {needed}.",
        "The others have spent theirs, and nothing gives it back. " + NO_SUM,
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
        NOTHING,
    ),
    ReasonCode.ROLLED_BACK: Wording(
        (ROUND,),
        "The operator went back to the model after round {earlier}.",
        "No device was asked. Devices are told, and go on from that model.",
        NOTHING,
    ),
    ReasonCode.RESTORED: Wording(
        (ROUND,),
        "The coordinator was restored from a copy.",
        "Numbers of rounds that devices may have answered since are left out.",
        NOTHING,
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
        LONGER,
    ),
    ReasonCode.COORDINATOR_INTERRUPTED: Wording(
        (ROUND,),
        "The coordinator stopped in the middle of this secure aggregation.",
        "No device joins one twice, so the round ended without a sum.",
        "There is nothing to do: the next round begins by itself.",
    ),
    ReasonCode.METHOD_NOT_AGREED: Wording(
        (ROUND,),
        "The method was replaced, and {waiting:device} of those asked sent nothing since: their users have not agreed "
        "yet, or said no.",
        "Without them too few took part. Nothing was added, and the model is unchanged.",
        "Ask your users to answer, on their page or with tacit device change. Rounds go on by themselves.",
    ),
    ReasonCode.EMPTY_SUM: Wording(
        (ROUND,),
        "No participant mentions any row.",
        "The histories are empty, or users share nothing of them. Nothing was unmasked, and the model is unchanged.",
        "Ask users to add to their histories: tacit device history import.",
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
        NOT_UNMASKED,
        LONGER,
    ),
    ReasonCode.TOO_FEW_NEIGHBOURS: Wording(
        (ROUND, DEVICE),
        "A participant had {left:neighbour} left in the phase '{phase}', and at least {needed} must be left.",
        NOT_UNMASKED,
        LONGER,
        personal=("participant",),
    ),
    ReasonCode.TOO_FEW_SHARES: Wording(
        (ROUND,),
        "{left:neighbour} sent a share of a participant's secret, and at least {needed} must send one.",
        NOT_UNMASKED,
        LONGER,
        personal=("participant",),
    ),
    ReasonCode.LOST_BETWEEN_STAGES: Wording(
        (ROUND, DEVICE),
        "The cohort lost {lost:participant} between the two stages, and it may lose {spare}.",
        "A row could have too few participants behind it. " + NOT_UNMASKED,
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
        (ROUND,), "The secure aggregation failed.", NOT_UNMASKED, "If this happens again, report it with the log."
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
        NOTHING,
        personal=("text",),
    ),
    ReasonCode.MALFORMED_MESSAGE: Wording(
        (ROUND, ANSWER, DEVICE), "A message could not be read.", "It was dropped, and nothing changed.", SUSPECT
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
        SUSPECT,
        ("sender",),
    ),
    ReasonCode.UNEXPECTED_MESSAGE: Wording(
        (ANSWER,),
        "A message of the kind '{kind}' came in the phase '{phase}'.",
        DROPPED,
        "If this happens often, give devices longer (rounds.deadline).",
    ),
    ReasonCode.OTHER_SESSION: Wording(
        (ANSWER, DEVICE),
        "A message belongs to another round, federation or set of terms.",
        "It was dropped, and nothing changed.",
        SUSPECT,
    ),
    ReasonCode.NOT_IN_PHASE: Wording(
        (ANSWER,), "A message came from a participant that is not in this phase.", DROPPED, SUSPECT, ("sender",)
    ),
    ReasonCode.BAD_SIGNATURE: Wording(
        (ANSWER, DEVICE), "A signature does not match the identity of its sender.", DROPPED, SUSPECT, ("sender",)
    ),
    ReasonCode.BAD_KEY: Wording(
        (ANSWER, DEVICE), "No key can be agreed with a participant's public key.", DROPPED, SUSPECT, ("sender",)
    ),
    ReasonCode.BAD_TAG: Wording(
        (ANSWER, DEVICE), "A message was not made by the participant it names.", DROPPED, SUSPECT, ("sender",)
    ),
    ReasonCode.WRONG_RECIPIENTS: Wording(
        (ANSWER,),
        "A participant did not address exactly their neighbours in the phase '{phase}'.",
        DROPPED,
        SUSPECT,
        ("sender",),
    ),
    ReasonCode.BROKEN_COMMITMENT: Wording(
        (ROUND, ANSWER),
        "A participant's secret is not the one they committed to.",
        "Their mask cannot be removed. If the answer came in time, the round went on without it; otherwise it ended.",
        SUSPECT,
        ("sender",),
    ),
    ReasonCode.UNREQUESTED_SHARE: Wording(
        (ANSWER,), "A participant sent a share that was not requested.", DROPPED, SUSPECT, ("sender", "participant")
    ),
    ReasonCode.BAD_SHARE: Wording(
        (ANSWER, DEVICE),
        "A share is not the one that its dealer announced.",
        "It is treated as missing.",
        SUSPECT,
        ("sender", "participant"),
    ),
}
