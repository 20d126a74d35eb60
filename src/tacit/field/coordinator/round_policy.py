"""The round policy: whether a round is masked or readable, which devices are asked, and why.

Rounds are masked. If too few devices are eligible, the round is skipped, because a cool-down is counted in rounds. What
no cool-down can change, too few devices that can take part at all or only cohorts like an earlier one, is waited for.
Only if the configuration allows readable rounds are devices asked in the clear: always with `secure: none`, and with
`secure: auto` until there are enough devices for a sum. The first secure sum that is begun ends that for good, whatever
becomes of it. Devices refuse readable rounds unless their users allowed them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from tacit.field.coordinator.batches import BatchPlan, BatchSupply, choose_batch, without_batch
from tacit.field.coordinator.config import RoundRules
from tacit.field.coordinator.journal import CoordinatorJournal
from tacit.field.coordinator.members import EnrolledDevice
from tacit.field.coordinator.round_log import ROLLED_BACK, RoundRecord
from tacit.protocols.secure_aggregation import DevicePolicy
from tacit.protocols.secure_aggregation.two_stage import SecureAggregationConfig
from tacit.reasons import ReasonCode, RoundReason

LOSSES = frozenset(
    {
        ReasonCode.COORDINATOR_INTERRUPTED,
        ReasonCode.TOO_MANY_DROPOUTS,
        ReasonCode.TOO_FEW_NEIGHBOURS,
        ReasonCode.TOO_FEW_SHARES,
        ReasonCode.LOST_BETWEEN_STAGES,
        ReasonCode.SECURE_AGGREGATION_FAILED,
    }
)
MOST_REPEATS = 5  # failures in a row after which a secure sum is given up and the pause is kept
UNAWARE = 0.15  # share of a batch that may be lost after its vectors: if more could, more would have to stay with it
LOST_BETWEEN = 25  # one in so many may be lost between the stages
TOLERANCE = 1e-9  # of a budget: shares are floating-point numbers
DRAWS = 256  # tries to find users who differ enough from those of earlier sums

Sums = Mapping[tuple[int, int], frozenset[int]]
Draw = Callable[[Sequence[EnrolledDevice], int, int, int], list[EnrolledDevice]]
"""Draws those who are asked from some devices, so many at least and at most, otherwise in every try."""


@dataclass(frozen=True)
class RoundPolicy:
    """How one round is decided."""

    secure_config: SecureAggregationConfig | None  # under masks, with this care; none: each answer is read
    asked: list[EnrolledDevice]  # none: the round is skipped, or waits
    reason: RoundReason
    waits: bool = False  # no device can be asked, and no cool-down will change that: others must come
    batch: BatchPlan | None = None  # devices that are summed with no others, all of them or none


class Past:
    """Earlier sums, and when and how often each device was in one, gone through once."""

    def __init__(self, sums: Sums) -> None:
        self.sums = sums
        self._last: dict[int, int] = {}
        rounds: dict[int, set[int]] = {}
        for (number, stage), devices in sums.items():
            for device in devices:
                self._last[device] = max(number, self._last.get(device, number))
            if stage:
                rounds.setdefault(number, set()).update(devices)
        self._times = Counter(device for devices in rounds.values() for device in devices)

    def last(self, device: int) -> int | None:
        """Return the last round in which a device was asked for a sum, none if it never was."""
        return self._last.get(device)

    def times(self, device: int) -> int:
        """Return in the sums of how many rounds a device was."""
        return self._times[device]


def count_needed(rules: RoundRules, settled: bool, journal: CoordinatorJournal | None = None) -> int:
    """Return how many devices must be there before a round begins; the smallest batch is enough, if there is one."""
    least = max(rules.quorum, rules.minimum)
    if not settled and not isinstance(rules.secure, SecureAggregationConfig):
        return least
    if journal is None:
        return max(least, fewest(rules))
    a_sum, a_batch = fewest(rules, journal), journal.batches.smallest
    return max(least, min(a_sum, a_batch) if a_batch and policy_in_force(rules, journal).most_cohorts else a_sum)


def count_new(rules: RoundRules, journal: CoordinatorJournal, here: Collection[int] | None = None) -> tuple[int, int]:
    """Return how many devices are in no batch, and how many a new one takes; (0, 0) while there is no batch.

    With `here`, only connected devices count.
    """
    enrolled, most = journal.members.devices(), policy_in_force(rules, journal).most_cohorts
    if most is None or rules.secure is None or not any(device.batch for device in enrolled):
        return 0, 0
    found = [device.number for device in without_batch(enrolled, most) if not device.revoked]
    return sum(here is None or number in here for number in found), fewest(rules, journal)


def fewest(rules: RoundRules, journal: CoordinatorJournal | None = None) -> int:
    """Return how many devices a sum under masks takes by these rules.

    Some are asked to spare. A device with a strike is not asked, and what can be spared is smaller by one: otherwise
    one dishonest device could keep a small federation from ever having enough.
    """
    if isinstance(rules.secure, SecureAggregationConfig):
        return rules.secure.n_min
    n_struck = 0 if journal is None else len(journal.strikes.by_device())
    return max(rules.device_policy.n_min, enough(rules.device_policy) - n_struck)


def enough(device_policy: DevicePolicy) -> int:
    """Return how many devices are asked at least, so that a sum is left when some of them drop out."""
    return math.ceil(device_policy.n_min / (1 - SecureAggregationConfig().dropped))


def is_lost(happened: RoundRecord) -> bool:
    """Say whether a secure sum ended because a participant was lost, and can be tried again without harm."""
    return bool(happened.masked) and happened.reason is not None and happened.reason.code in LOSSES


def count_used(rounds: Sequence[RoundRecord]) -> int:
    """Return how many rounds count against those agreed: secure sums that a loss ended are repeated.

    So are those for which users had not agreed to another method yet, after the pause. So that a run ends, one in so
    many failures in a row counts.
    """
    used = failures = 0
    for happened in rounds:
        failures = failures + 1 if is_lost(happened) or _waits_for_users(happened) else 0
        used += failures % MOST_REPEATS == 0 and not _is_bookkeeping(happened)
    return used


def _is_bookkeeping(happened: RoundRecord) -> bool:
    """Say whether a record is no round: a roll-back, or numbers left out after a restore."""
    restored = happened.reason is not None and happened.reason.code == ReasonCode.RESTORED
    return restored or happened.state == ROLLED_BACK


def _waits_for_users(happened: RoundRecord) -> bool:
    """Say whether a secure sum ended because users had not agreed to another method yet."""
    is_it = happened.reason is not None and happened.reason.code == ReasonCode.METHOD_NOT_AGREED
    return bool(happened.masked) and is_it


def is_repeated(rounds: Sequence[RoundRecord]) -> bool:
    """Say whether the next round repeats a secure sum that failed, and follows without a pause."""
    failures = 0
    for happened in reversed(rounds):
        if not is_lost(happened):
            break
        failures += 1
    return failures % MOST_REPEATS != 0


def is_settled(rules: RoundRules, journal: CoordinatorJournal) -> bool:
    """Say whether devices of this federation are asked under masks only, from now on."""
    if rules.secure != "auto" or rules.robust is not None:
        return False
    return not rules.readable or journal.federation.privacy is not None or journal.sums.has_begun


def decide_round(
    rules: RoundRules,
    journal: CoordinatorJournal,
    number: int,
    members: Sequence[EnrolledDevice],
    draw: Draw,
    share: float = 0.0,
) -> RoundPolicy:
    """Decide how a round is run with the devices that are there; it spends a `share` of their privacy budgets."""
    n_members = len(members)

    def readable(reason: RoundReason) -> RoundPolicy:
        return RoundPolicy(None, draw(members, 0, n_members, 0), reason)

    if rules.secure is None:
        return readable(RoundReason(ReasonCode.SECURE_AGGREGATION_OFF))
    if rules.robust is not None:
        return readable(RoundReason(ReasonCode.ROBUST_RULE))
    past, device_policy, least = (
        Past(journal.sums.participants()),
        policy_in_force(rules, journal),
        fewest(rules, journal),
    )
    privacy = journal.federation.guarantee
    able = [device for device in members if device.identity]
    may_be_readable = rules.secure == "auto" and not is_settled(rules, journal)
    willing = [device for device in able if device.summed + past.times(device.number) < device_policy.most_rounds]
    if privacy is not None:
        spent = journal.sums.spent_shares()
        willing = [device for device in willing if spent.get(device.number, 0.0) + share <= 1 + TOLERANCE]
    willing = without_suspects(willing, journal, least)
    eligible = [device for device in willing if is_eligible(device.number, number, past, device_policy)]
    waits = len(willing) < least or len(eligible) == len(willing)
    obstacle = None
    if device_policy.most_cohorts is not None:
        supply = BatchSupply.of(journal.members.devices(), willing, eligible, least, device_policy.most_cohorts)
        found = _decide_batch(rules, supply, least, past, draw)
        if found is not None:
            return found
        cohort = []
        if supply.known and not supply.can_cool_down:
            counts = {"batches": len(supply.known), "unbatched": len(supply.unbatched), "needed": least}
            obstacle, waits = RoundReason(ReasonCode.BATCHES_INCOMPLETE, counts), True
        elif supply.known:
            waits = False
    else:
        cohort = different_enough(eligible, least, past.sums, device_policy, draw) if len(eligible) >= least else []
    if not cohort:
        counted = len(able), len(willing), len(eligible)
        reason = obstacle or _obstacle(n_members, *counted, least, device_policy.cool_down)
        if privacy is not None and reason.code == ReasonCode.PARTICIPATION_LIMIT:
            reason = RoundReason(ReasonCode.BUDGETS_SPENT, dict(reason.parameters))
        if may_be_readable:
            return readable(reason)
        return RoundPolicy(None, [], reason, waits=waits)
    secure_config = _config_of(rules, device_policy, len(cohort))
    if privacy is not None:  # with fewer the noise of the sum would fall short, and devices would not unmask it
        most = max(secure_config.n_min, privacy.n_needed(len(cohort)))
        secure_config = secure_config.model_copy(update={"n_min": most, "two_stage": False})
    reason = RoundReason(ReasonCode.ENOUGH_DEVICES, {"eligible": len(eligible), "needed": least})
    return RoundPolicy(secure_config, cohort, reason)


def policy_in_force(rules: RoundRules, journal: CoordinatorJournal) -> DevicePolicy:
    """Return the policy that devices are taken to have in this federation."""
    return journal.federation.policy(rules.device_policy)


def without_suspects(devices: list[EnrolledDevice], journal: CoordinatorJournal, least: int) -> list[EnrolledDevice]:
    """Return devices without those that have a strike: these are asked among themselves only, if they are enough.

    A device of a batch is asked with it until it is revoked: without it the batch is not summed.
    """
    struck = {strikes.device for strikes in journal.strikes.by_device()}
    suspects = [device for device in devices if device.number in struck and not device.batch]
    others = [device for device in devices if device not in suspects]
    return others if len(others) >= len(suspects) or len(suspects) < least else suspects


def _decide_batch(rules: RoundRules, supply: BatchSupply, least: int, past: Past, draw: Draw) -> RoundPolicy | None:
    """Decide a round of devices that are summed in batches; none if no batch can be asked."""
    size = max(rules.clients_per_round, least) if rules.clients_per_round else rules.batch
    chosen = choose_batch(supply, least, size, past.last, lambda devices, most: draw(devices, least, most, 0))
    if chosen is None:
        return None
    cohort, plan = chosen
    config = _config_of(rules, rules.device_policy, len(cohort)).model_copy(update={"spare": 0, "unaware": UNAWARE})
    reason = RoundReason(ReasonCode.ENOUGH_DEVICES, {"eligible": len(cohort), "needed": least})
    return RoundPolicy(config, cohort, reason, batch=plan)


def _config_of(rules: RoundRules, device_policy: DevicePolicy, n_participants: int) -> SecureAggregationConfig:
    """Return the secure aggregation of a round: the operator's, or the one that devices accept."""
    if isinstance(rules.secure, SecureAggregationConfig):
        return rules.secure
    return _derive_config(device_policy, n_participants)


def _obstacle(here: int, able: int, willing: int, eligible: int, least: int, cool_down: int) -> RoundReason:
    """Say, from counts of devices, what stands in the way of a sum that takes `least` of them."""
    if able < least:
        return _too_few(able, here, least)
    if willing < least:
        return RoundReason(ReasonCode.PARTICIPATION_LIMIT, {"willing": willing, "here": able, "needed": least})
    if eligible < least:
        counts = {"eligible": eligible, "here": able, "needed": least, "cool_down": cool_down}
        return RoundReason(ReasonCode.COOL_DOWN, counts)
    return RoundReason(ReasonCode.COHORT_TOO_SIMILAR)


def _too_few(able: int, here: int, least: int) -> RoundReason:
    return RoundReason(ReasonCode.TOO_FEW_DEVICES, {"capable": able, "here": here, "needed": least})


def _derive_config(device_policy: DevicePolicy, n_participants: int) -> SecureAggregationConfig:
    """Return the secure aggregation that devices with this policy accept."""
    spare = math.ceil(n_participants / LOST_BETWEEN)
    return SecureAggregationConfig(
        n_min=device_policy.n_min, k_min=device_policy.k_min, corrupted=device_policy.corrupted, spare=spare
    )


def is_eligible(device: int, number: int, past: Past, device_policy: DevicePolicy) -> bool:
    """Say whether the cool-down of a device's policy is over before a sum of this round."""
    last = past.last(device)
    return last is None or number - last > device_policy.cool_down


def different_enough(
    eligible: Sequence[EnrolledDevice], least: int, sums: Sums, device_policy: DevicePolicy, draw: Draw
) -> list[EnrolledDevice]:
    """Draw devices whose sum can be compared with no earlier one; none if there are none."""
    for at in range(DRAWS):
        size = len(eligible) if at == 0 else max(least, len(eligible) - device_policy.differ_by(len(eligible)))
        drawn = draw(eligible, least, size, at)
        if len(drawn) >= least and not is_like(frozenset(one.number for one in drawn), sums, device_policy):
            return drawn
    here = {device.number: device for device in eligible}
    for which in sorted(sums, reverse=True):  # the very same users again: equal sums have no difference
        devices = sums[which]
        if which[1] and len(devices) >= least and devices <= here.keys() and not is_like(devices, sums, device_policy):
            return [here[number] for number in sorted(devices)]
    return []


def is_like(devices: frozenset[int], sums: Sums, device_policy: DevicePolicy) -> bool:
    """Say whether some users are nearly those of an earlier sum, but not quite."""
    least = device_policy.differ_by(len(devices))
    summed = [past for (_, stage), past in sums.items() if stage]
    return any(devices & past and 0 < len(devices ^ past) < least for past in summed)
