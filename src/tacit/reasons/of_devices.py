"""The wording of every code about why a device refused, or did nothing."""

from __future__ import annotations

from collections.abc import Mapping

from tacit.reasons.codes import ReasonCode
from tacit.reasons.wording import (
    ANSWER,
    ASK_OPERATOR,
    DEVICE,
    DISTRUST,
    DROPPED,
    NO_PART,
    NOTHING,
    ROUND,
    SUSPECT,
    Wording,
)

DEVICE_WORDINGS: Mapping[ReasonCode, Wording] = {
    ReasonCode.DEVICE_COOL_DOWN: Wording(
        (DEVICE,),
        "The device took part in round {earlier} and sits out {cool_down:round}; round {round} is too soon.",
        NO_PART,
        "There is nothing to do: it takes part again later.",
    ),
    ReasonCode.DEVICE_PARTICIPATION_LIMIT: Wording(
        (DEVICE,),
        "The device took part in {rounds:round} of this federation, as many as its settings allow.",
        NO_PART,
        "To continue, raise most_rounds of its device policy.",
    ),
    ReasonCode.DEVICE_COHORT_TOO_SIMILAR: Wording(
        (DEVICE,),
        "This cohort differs from that of round {earlier} by {differ:participant}; at least {needed} must differ.",
        "The difference of the two sums would show what these few sent. " + NO_PART,
        "There is nothing to do: it takes part in other cohorts.",
    ),
    ReasonCode.DEVICE_OTHER_COHORT: Wording(
        (DEVICE,),
        "This cohort is not that of round {earlier}, in which this device was summed.",
        "Sums over different cohorts are equations that can be solved for one participant. " + NO_PART,
        "There is nothing to do: it takes part when the same devices are here.",
    ),
    ReasonCode.WEAK_TERMS: Wording(
        (DEVICE,),
        "The server offers sums of {n_min:participant} with {k_min} behind each row; "
        "the device demands {device_n_min} and {device_k_min}.",
        NO_PART,
        "Ask the operator of the federation, or lower the device's limits: tacit device share --least.",
    ),
    ReasonCode.WEAK_NOISE: Wording(
        (DEVICE,),
        "The server would go on with {n_min:participant}; with fewer than {needed} the noise of a sum falls short.",
        NO_PART,
        DISTRUST,
    ),
    ReasonCode.LARGE_DELTA: Wording(
        (DEVICE,),
        "A sum of {cohort:participant} needs a delta below one in as many, and this federation agreed on {delta:g}.",
        NO_PART,
        "Ask the operator to ask fewer devices per round, or to found a federation with a smaller delta.",
    ),
    ReasonCode.BUDGET_SPENT: Wording(
        (DEVICE,),
        "This round would spend {cost:.3g} of your privacy budget, and {spent:.3g} of it is spent.",
        "Sharing stops here, for good in this federation. Recommendations go on.",
        NOTHING,
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
        "Its budget holds, whatever was promised later. " + NO_PART,
        DISTRUST,
    ),
    ReasonCode.COPIED_BUDGET: Wording(
        (DEVICE,),
        "This device was restored from a copy, and what was spent since the copy was made is not known.",
        "Its privacy budget counts as spent. Recommendations go on.",
        "To share again, join another federation.",
    ),
    ReasonCode.NOT_INVITED: Wording((DEVICE,), "The invited cohort does not include this device.", NO_PART, DISTRUST),
    ReasonCode.OUT_OF_TURN: Wording(
        (ROUND, ANSWER, DEVICE),
        "A message came that the secure aggregation does not expect now.",
        "It was dropped, and nothing changed.",
        NOTHING,
    ),
    ReasonCode.ROUND_REPEATED: Wording(
        (DEVICE,),
        "The device has joined stage {stage} of round {round}, or a later one, before.",
        "It joins no stage twice. " + NO_PART,
        "There is nothing to do: it takes part in later rounds.",
    ),
    ReasonCode.OTHER_FEDERATION: Wording(
        (DEVICE,),
        "The device's record of secure aggregations belongs to another federation.",
        NO_PART,
        ASK_OPERATOR,
    ),
    ReasonCode.OTHER_TERMS: Wording(
        (DEVICE,),
        "The secure aggregation is for another federation, round or model than the request.",
        NO_PART,
        DISTRUST,
    ),
    ReasonCode.UNKNOWN_TABLE: Wording(
        (DEVICE,),
        "The secure aggregation is for a table '{table}' that the model does not have in this form.",
        NO_PART,
        DISTRUST,
    ),
    ReasonCode.SUM_NOT_OPENED: Wording(
        (DEVICE,),
        "The secure aggregation of round {round} began before this device connected.",
        NO_PART,
        "There is nothing to do: it takes part in later rounds.",
    ),
    ReasonCode.WRONG_VECTOR_SIZE: Wording(
        (DEVICE,),
        "The update does not have the size that this secure aggregation adds.",
        NO_PART,
        ASK_OPERATOR,
    ),
    ReasonCode.VALUE_OUT_OF_RANGE: Wording(
        (DEVICE,),
        "A number of the update in '{table}' is larger than {bound}, the bound of the sum.",
        NO_PART,
        "Lower learning_rate, clip updates (clip), or use ring.bits=64.",
        ("largest",),
    ),
    ReasonCode.UNCOUNTED_ROWS: Wording(
        (DEVICE,),
        "The server asks for rows that the first stage did not count.",
        NO_PART,
        DISTRUST,
    ),
    ReasonCode.NEW_PARTICIPANTS: Wording(
        (DEVICE,), "The second stage invites participants that were not in the first.", NO_PART, DISTRUST
    ),
    ReasonCode.WRONG_STAGE_CONTENT: Wording(
        (DEVICE,),
        "Stage {stage} asks for {kind} of '{table}' in the form of another stage.",
        NO_PART,
        DISTRUST,
    ),
    ReasonCode.INCONSISTENT_LIST: Wording(
        (DEVICE,), "The server's list '{list}' contradicts an earlier list.", NO_PART, DISTRUST
    ),
    ReasonCode.REPEATED_KEY: Wording(
        (ANSWER, DEVICE), "Two public keys of one round are the same.", DROPPED, SUSPECT, ("sender",)
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
        (DEVICE,), "The device's chain of tickets has none for round {round}.", NO_PART, "Enrol it again."
    ),
    ReasonCode.MISSING_TICKETS: Wording(
        (DEVICE,), "The invitation has no tickets, so the device cannot verify the draw.", NO_PART, DISTRUST
    ),
    ReasonCode.BAD_TICKET: Wording(
        (DEVICE,), "A participant's ticket does not match their commitment.", NO_PART, DISTRUST, ("sender",)
    ),
    ReasonCode.BAD_BEACON: Wording(
        (DEVICE,), "The beacon of this round does not match its commitments.", NO_PART, DISTRUST
    ),
    ReasonCode.UNKNOWN_BOARD: Wording(
        (DEVICE,), "The device does not have the commitments for round {round}.", NO_PART, ASK_OPERATOR
    ),
    ReasonCode.NOT_ENROLLED: Wording(
        (DEVICE,),
        "The cohort includes a participant that has not enrolled or is not connected.",
        NO_PART,
        DISTRUST,
        ("participant",),
    ),
    ReasonCode.NOT_DRAWN: Wording(
        (DEVICE,),
        "The cohort of round {round} includes a participant that was not drawn.",
        NO_PART,
        DISTRUST,
        ("participant",),
    ),
    ReasonCode.DIRECTORY_MISSING: Wording(
        (DEVICE,),
        "The coordinator did not show that the participants are in the directory which the witness signs.",
        NO_PART,
        DISTRUST,
    ),
    ReasonCode.DIRECTORY_FORGED: Wording(
        (DEVICE,), "The directory does not have the signature of your witness.", NO_PART, DISTRUST
    ),
    ReasonCode.DIRECTORY_FORKED: Wording(
        (DEVICE,),
        "The directory is not a continuation of the one that was shown before.",
        "Somebody may be shown another list of participants. " + NO_PART,
        "The coordinator was restored from an old copy, or is dishonest. Tell the witness and the other members.",
    ),
    ReasonCode.DIRECTORY_GAP: Wording(
        (DEVICE,),
        "The coordinator did not show how the directory grew since this device saw it.",
        NO_PART,
        "There is nothing to do: it is shown in the next round. " + ASK_OPERATOR,
    ),
    ReasonCode.DIRECTORY_STALE: Wording(
        (DEVICE,),
        "The witness has not signed the directory for {days:g} days, or this machine's clock is wrong.",
        NO_PART,
        "Check the clock. Ask the witness whether it still runs.",
    ),
    ReasonCode.DIRECTORY_YOUNG: Wording(
        (DEVICE,),
        "A participant is in the directory for less than the {hours:g} hours that you demand.",
        NO_PART,
        "There is nothing to do: it takes part in later rounds.",
    ),
    ReasonCode.NOT_IN_DIRECTORY: Wording(
        (DEVICE,),
        "The cohort includes a participant that is not in the directory, or was not at the time of its proof.",
        "The coordinator may have invented it. " + NO_PART,
        DISTRUST,
    ),
    ReasonCode.NOTICE_FORGED: Wording(
        (DEVICE,),
        "The coordinator showed a change of a participant's key that this participant did not sign.",
        NO_PART,
        DISTRUST,
    ),
    ReasonCode.REVOKED_MEMBER: Wording(
        (DEVICE,),
        "The cohort includes a participant that the operator has revoked.",
        NO_PART,
        DISTRUST,
    ),
    ReasonCode.DEVICE_REVOKED: Wording(
        (DEVICE,),
        "The list of members says that the operator has revoked this device.",
        "It is not asked to take part any more.",
        "Ask the operator why. To join again: tacit device leave, then join with a new invitation.",
    ),
    ReasonCode.KEY_REPLACED: Wording(
        (DEVICE,),
        "The list of members has another key for this device than the one in its file.",
        NO_PART,
        "If you changed the key and this is the newest file: tacit device new-key. Otherwise restore a newer backup.",
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
        DISTRUST,
    ),
    ReasonCode.TRIAL: Wording(
        (DEVICE,),
        "This group is a trial: what you send is mixed with that of so few others that {needed} devices are enough.",
        "Usually a sum hides you among ten people or more. Nothing bounds what sums tell of you over time. Nothing was "
        "joined or sent.",
        "If you agree to that: tacit device join --trial, with the same invitation.",
    ),
    ReasonCode.NO_GUARANTEE: Wording(
        (DEVICE,),
        "This group has no guarantee: over time, sums tell some of your history, and nothing bounds how much.",
        "Nothing was joined or sent.",
        "If you agree to that: tacit device join --without-guarantee, with the same invitation.",
    ),
    ReasonCode.METHOD_REPLACED: Wording(
        (DEVICE,),
        "The federation has another method now, and you have not agreed to it.",
        "The device sent nothing. Recommendations go on from the last model that it has.",
        "See what would change, and say yes or no: tacit device change.",
    ),
    ReasonCode.EMPTY_HISTORY: Wording(
        (DEVICE,), "The history is empty.", "There is nothing to learn from.", "Add to it: tacit device history."
    ),
    ReasonCode.UPDATE_TOO_LARGE: Wording(
        (DEVICE,),
        "The update has numbers that are too large for the sum.",
        "The device did not send it.",
        "The model may have diverged. " + ASK_OPERATOR,
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
        NOTHING,
    ),
    ReasonCode.NOT_A_REQUEST: Wording(
        (DEVICE,), "A model arrived that needs no answer.", "The device did not answer it.", NOTHING
    ),
    ReasonCode.BROKEN_CHAIN: Wording(
        (DEVICE,),
        "Amendment {number} of the federation does not follow from amendment {version}, which this device has.",
        "Nothing was changed.",
        DISTRUST,
    ),
    ReasonCode.UNSIGNED_AMENDMENT: Wording(
        (DEVICE,),
        "Amendment {number} of the federation is not signed by the authority that its members agreed on.",
        "Nothing was changed.",
        DISTRUST,
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
    ReasonCode.METERED_NETWORK: Wording(
        (DEVICE,),
        "This machine's connection is metered, or the system does not tell.",
        "The device did not take part, as you set.",
        "Use another network, or: tacit device limits --also-metered.",
    ),
}
