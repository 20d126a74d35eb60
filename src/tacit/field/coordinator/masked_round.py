"""A round under masks: the coordinator carries the messages of a secure sum, and learns nothing but the sum."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tacit.errors import AbortedError, SecureSumError, WireError
from tacit.field.coordinator.batches import BatchPlan
from tacit.field.coordinator.carrier import Carrier
from tacit.field.coordinator.directory import CoordinatorDirectory
from tacit.field.coordinator.members import EnrolledDevice
from tacit.field.coordinator.round_outcome import RoundOutcome, note_strike
from tacit.field.coordinator.round_stats import PhaseCounts, SummedQuality
from tacit.protocols.notices import NoticeList
from tacit.protocols.secure_aggregation import DevicePolicy, SecureServer, ServerPhase, Terms, decode_counts, decode_sum
from tacit.protocols.secure_aggregation.device_policy import staying
from tacit.protocols.secure_aggregation.message_sizes import most_answer_bytes
from tacit.protocols.secure_aggregation.noise_shares import check_noise_room
from tacit.protocols.secure_aggregation.two_stage import (
    QUALITY,
    QUALITY_SHAPE,
    RoundContext,
    RowCounts,
    SecureAggregationConfig,
    list_rows,
    read_second_stage,
)
from tacit.reasons import ReasonCode, RoundReason
from tacit.updates import Total
from tacit.wire.envelope import HEAD_BYTES
from tacit.wire.federation import Federation
from tacit.wire.messages import SecureRequest, model_in, read_secure_reply, refuse_longer, write_secure_request

log = logging.getLogger("tacit.field.coordinator")
PHASES = (
    ServerPhase.ADVERTS,
    ServerPhase.SHARES,
    ServerPhase.VECTORS,
    ServerPhase.CONFIRMATIONS,
    ServerPhase.UNMASKINGS,
)


OnBatch = Callable[[int, Iterable[int], Iterable[int]], None]
"""Called with a half, the devices that are counted in it, and which of them stay with their batch."""


@dataclass(frozen=True)
class MaskedRoundOptions:
    """What decides how a secure sum is run: among whom, how carefully, over what, and how long it may take."""

    federation: Federation
    shapes: Mapping[str, tuple[int, ...]]
    secure_config: SecureAggregationConfig
    carrier: Carrier
    deadline: float
    share: float = 0.0  # of the privacy budgets, that the sum spends
    clock: Callable[[], float] = time.monotonic
    on_vectors: Callable[[int, Iterable[int]], None] = lambda number, devices: None  # called with the asked
    batch: BatchPlan | None = None  # devices that are summed with no others; none: any cohort
    on_batch: OnBatch = lambda half, devices, staying: None  # called with a new batch before its devices know it
    device_policy: DevicePolicy = field(default_factory=DevicePolicy)  # by which it follows who stays with a batch
    directory: CoordinatorDirectory | None = None  # shown to devices with the first message of a stage
    notices: NoticeList = field(default_factory=NoticeList)  # shown with it, where they matter


class MaskedRound:
    """One secure sum, in one stage or two."""

    def __init__(
        self, options: MaskedRoundOptions, number: int, on_summed: Callable[[int, int, Iterable[int]], None]
    ) -> None:
        """`on_summed` is called with round, stage and users before they unmask."""
        self._federation, self._shapes, self._secure_config = options.federation, options.shapes, options.secure_config
        self._carrier, self._deadline = options.carrier, options.deadline
        self._on_vectors, self._share, self._directory = options.on_vectors, options.share, options.directory
        self._batch, self._on_batch, self._device_policy = options.batch, options.on_batch, options.device_policy
        self._on_summed, self._number, self._outcome, self._clock = on_summed, number, RoundOutcome(), options.clock
        self._notices, self._keys = (
            options.notices,
            options.notices.member_keys(bytes.fromhex(self._federation.id)),
        )
        self._n_counted = 0  # participants of the first stage

    def run(self, devices: Sequence[EnrolledDevice], requests: Mapping[int, bytes]) -> RoundOutcome:
        """Run it with some devices; too few of them left means that nothing was unmasked."""
        outcome, secure_config, shapes, ring = self._outcome, self._secure_config, self._shapes, self._federation.ring
        here = RoundContext(
            self._federation.lineage.hex(),
            self._number,
            model_in(next(iter(requests.values()))),
            secrets.token_bytes(32),
        )
        try:
            if not secure_config.two_stage:
                privacy = self._federation.guarantee
                counted = None if privacy is None else privacy.count_units
                terms = here.adding_all(shapes, ring, len(devices), secure_config, counted)
                if privacy is not None:
                    check_noise_room(terms.layout, privacy, self._share, len(devices))
                server, _ = self._stage(terms, devices, requests, self._batch is not None and self._batch.is_formed)
                total = decode_sum(server.total, terms.layout, shapes, len(server.survivors))
            else:
                both = {**shapes, QUALITY: QUALITY_SHAPE}
                spare = secure_config.spare_for(len(requests), secure_config.dropped)
                mentions, rows, devices = self._count(here, both, devices, requests, secure_config.k_min + spare)
                if not self._is_worth(mentions, rows, secure_config.k_min + spare):
                    return outcome
                terms = here.adding(both, ring, len(devices), secure_config, rows, spare)
                server, _ = self._stage(terms, devices, {}, self._batch is not None)
                total = read_second_stage(server.total, terms.layout, both, mentions, len(server.survivors))
                total, outcome.quality = _take_out_quality(total, self._n_counted)
        except SecureSumError as error:
            outcome.reason = error.reason
            return outcome
        by_identity = {device.identity: device.number for device in devices}
        outcome.counted = sorted(by_identity[server.session.cohort[position]] for position in server.survivors)
        outcome.totals = [total]
        return outcome

    def _count(
        self,
        here: RoundContext,
        shapes: Mapping[str, tuple[int, ...]],
        devices: Sequence[EnrolledDevice],
        requests: Mapping[int, bytes],
        least: int,
    ) -> tuple[RowCounts, RowCounts, list[EnrolledDevice]]:
        """Count the participants that mention each row; return counts, the rows to list, and the devices that continue.

        Where the cohort is counted in halves, a row is listed only if each half has enough: a participant can add what
        it likes to one of them, and to no other.
        """
        halves = [devices] if self._batch is None else self._halves(devices)
        counted, going_on, listed = list[RowCounts](), list[EnrolledDevice](), dict[str, NDArray[np.int64]]()
        for half in halves:
            terms = here.counting(shapes, len(half), self._secure_config)
            must_all = self._batch is not None and self._batch.is_formed
            server, answered = self._stage(terms, half, requests, must_all)
            self._n_counted += len(server.survivors)
            counted.append(drop_impossible(decode_counts(server.total, terms.layout), len(server.survivors)))
            going_on += answered if self._batch is None else _survivors(server, half)
        for rows in (list_rows(counts, least) for counts in counted):
            listed = {name: rows[name] if not listed else np.intersect1d(listed[name], rows[name]) for name in rows}
        mentions = {name: np.sum([counts[name] for counts in counted], axis=0) for name in shapes}
        return mentions, listed, going_on

    def _halves(self, devices: Sequence[EnrolledDevice]) -> list[list[EnrolledDevice]]:
        assert self._batch is not None
        return [[one for one in devices if one.number in half] for half in self._batch.halves]

    def _is_worth(self, mentions: RowCounts, rows: RowCounts, least: int) -> bool:
        """Say whether the second stage would show enough, and if not, why."""
        mentioned = sum(int(mentions[name].sum()) for name in self._shapes)
        shown = sum(int(mentions[name][rows[name]].sum()) for name in self._shapes)
        if shown:
            return True
        if not mentioned:
            self._outcome.reason = RoundReason(ReasonCode.EMPTY_SUM)
            return False
        share = shown / mentioned
        self._outcome.reason = RoundReason(ReasonCode.THIN_SUM, {"needed": least, "share": round(share, 4)})
        return False

    def _stage(
        self, terms: Terms, devices: Sequence[EnrolledDevice], requests: Mapping[int, bytes], must_all: bool = False
    ) -> tuple[SecureServer, list[EnrolledDevice]]:
        """Run all phases; return the server with its sum, and the devices that answered to the end.

        Where `must_all` have their vectors in the sum, it is given up as soon as one is lost: no device would open it.
        """
        identities, changed = [device.identity for device in devices], self._keys.changed
        server = SecureServer.start(terms, identities, changed_keys=changed)
        at = {device.number: server.session.position(device.identity) for device in devices}
        by_place = {position: number for number, position in at.items()}
        messages = dict.fromkeys(at.values(), server.invitation)
        # without a witness, revocations are the coordinator's word, and older devices need not read them
        is_shown = self._directory is not None or bool(changed)
        finished: frozenset[int] = frozenset()
        for phase in PHASES:
            notices = self._notices.encode() if phase == PHASES[0] and is_shown else b""
            opening = requests if phase == PHASES[0] else {}
            proofs = {} if phase != PHASES[0] or self._directory is None else self._directory.prove(devices)
            asked = {
                number: SecureRequest(
                    self._number, phase, messages[position], opening.get(number, b""), proofs.get(number, b""), notices
                )
                for number, position in at.items()
                if position in messages
            }
            written = {number: write_secure_request(self._federation, request) for number, request in asked.items()}
            if phase == ServerPhase.VECTORS:
                self._on_vectors(self._number, written)
            self._carry(server, terms.stage, written)
            finished = server.answered
            missing = {number for number in written if at[number] not in finished}
            self._outcome.joined |= written.keys() - missing
            if len(missing) < len(written) / 2:  # where most do not answer, they refuse because others were lost
                self._outcome.absent |= missing
            if phase == ServerPhase.ADVERTS and self._directory is not None:
                self._directory.note_joined(at, at.keys() - missing)
            if must_all and missing and phase <= ServerPhase.VECTORS:
                raise AbortedError.because(
                    ReasonCode.TOO_MANY_DROPOUTS,
                    left=len(written) - len(missing),
                    needed=len(devices),
                    phase=phase.name.lower(),
                )
            if phase == ServerPhase.ADVERTS:
                self._outcome.unjoined = [number for number, place in at.items() if place not in finished]
            try:
                messages = server.advance()
            finally:
                self._outcome.strikes |= {by_place[participant]: code for participant, code in server.accused().items()}
            summed = [by_place[participant] for participant in server.survivors]
            if phase == ServerPhase.VECTORS and self._batch is not None:
                stay = staying(self._device_policy, server.session, server.survivors)
                new = [] if self._batch.is_formed else summed  # of a formed one this stage may be the first
                self._on_batch(self._batch.half_of(summed[0]), new, [by_place[participant] for participant in stay])
            if phase == ServerPhase.CONFIRMATIONS:
                self._on_summed(self._number, terms.stage, summed)
        return server, [device for device in devices if at[device.number] in finished]

    def _carry(self, server: SecureServer, stage: int, requests: Mapping[int, bytes]) -> None:
        """Send every device its message, and return the answers."""
        name, started, bytes_up, refused = server.phase.name.lower(), self._clock(), 0, 0
        bytes_down = sum(len(content) for content in requests.values())
        most_bytes = HEAD_BYTES + most_answer_bytes(server.session.terms)[server.phase]
        try:
            with closing(self._carrier.ask(requests, self._deadline, most_bytes)) as arriving:
                for number, content in arriving:
                    bytes_up += len(content)
                    try:
                        refuse_longer(content, most_bytes)
                        server.receive(read_secure_reply(self._federation, self._number, content))
                    except (WireError, SecureSumError) as error:
                        if isinstance(error, AbortedError):
                            raise
                        refused += 1
                        note_strike(self._outcome, number, error)
                        log.warning("answer refused", extra={"fields": {"round": self._number, **error.public()}})
                    if len(server.answered) == len(requests):
                        break
        finally:
            outcome, seconds = self._outcome, self._clock() - started
            outcome.refused, outcome.bytes_up = outcome.refused + refused, outcome.bytes_up + bytes_up
            outcome.bytes_down += bytes_down
            counts = len(requests), len(server.answered), refused, 0
            outcome.phases.append(PhaseCounts(stage, name, *counts, bytes_up, bytes_down, seconds))


def _survivors(server: SecureServer, devices: Sequence[EnrolledDevice]) -> list[EnrolledDevice]:
    """Return the devices whose vectors are in a sum."""
    there = {server.session.cohort[participant] for participant in server.survivors}
    return [device for device in devices if device.identity in there]


def drop_impossible(mentions: RowCounts, n_participants: int) -> dict[str, NDArray[np.int64]]:
    """Return counts of mentions without those that so many honest participants cannot make: such rows are not listed.

    A participant can add what it likes to a masked sum. What it moved out of the range is known to be wrong.
    """
    return {name: np.where(counts <= n_participants, counts, 0) for name, counts in mentions.items()}


def _take_out_quality(total: Total, n_counted: int) -> tuple[Total, SummedQuality | None]:
    """Take the quality out of a sum; none if too few participants sent it.

    The first stage counted the participants that measured. Of those lost since, it is not known who had measured: the
    share among those who are left is taken to be the same.
    """
    sums, counts = dict(total.sums), dict(total.counts)
    hits, measured = int(sums.pop(QUALITY)[0, 0]), int(counts.pop(QUALITY)[0])
    n_users = round(measured * total.n_clients / max(1, n_counted))
    quality = SummedQuality(min(max(hits, 0), n_users), n_users) if n_users else None
    return Total(sums, counts, total.n_clients), quality
