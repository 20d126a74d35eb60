"""A round under masks: the coordinator carries the turns of a secure sum, and learns nothing but the sum."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from tacit.errors import AbortedError, SecureSumError, TacitError, WireError
from tacit.field.coordinator.carrier import Carrier
from tacit.field.coordinator.journal import EnrolledDevice
from tacit.field.coordinator.round_stats import PhaseCounts, SummedQuality
from tacit.protocols.secure_aggregation import SecureServer, ServerPhase, Terms, decode_sum, people_of
from tacit.protocols.secure_aggregation.two_stage import (
    QUALITY,
    QUALITY_SHAPE,
    People,
    RoundContext,
    SecureAggregationConfig,
    list_rows,
    read_second_stage,
)
from tacit.reasons import ReasonCode, RoundReason
from tacit.updates import Message, Total
from tacit.wire.federation import Federation
from tacit.wire.messages import SecureRequest, model_in, read_secure_reply, write_secure_request

log = logging.getLogger("tacit.field.coordinator")
PHASES = (
    ServerPhase.ADVERTS,
    ServerPhase.SHARES,
    ServerPhase.VECTORS,
    ServerPhase.CONFIRMATIONS,
    ServerPhase.UNMASKINGS,
)


@dataclass
class RoundOutcome:
    """What came of a round: sums, and whose answers are in them."""

    totals: list[Total] = field(default_factory=list)  # none: the round is abandoned
    counted: list[int] = field(default_factory=list)
    reason: RoundReason | None = None  # why nothing came of it
    is_thin: bool = False  # a sum would have shown too little of what people say
    refused: int = 0
    called_off: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    phases: list[PhaseCounts] = field(default_factory=list)
    quality: SummedQuality | None = None
    answers: dict[int, Message] = field(default_factory=dict)  # by device; none under masks
    strikes: dict[int, ReasonCode] = field(default_factory=dict)  # devices that sent what no honest device sends


STRIKES = frozenset(
    {
        ReasonCode.MALFORMED_MESSAGE,
        ReasonCode.BAD_SIGNATURE,
        ReasonCode.BAD_KEY,
        ReasonCode.BAD_TAG,
        ReasonCode.REPEATED_KEY,
        ReasonCode.WRONG_RECIPIENTS,
        ReasonCode.BROKEN_COMMITMENT,
        ReasonCode.UNREQUESTED_SHARE,
        ReasonCode.BAD_SHARE,
        ReasonCode.BAD_CONFIRMATION,
    }
)
"""Refusals that no late, lost or repeated message of an honest device causes."""


@dataclass(frozen=True)
class MaskedRoundOptions:
    """What decides how a secure sum is run: among whom, how carefully, over what, and how long it may take."""

    federation: Federation
    shapes: Mapping[str, tuple[int, ...]]
    secure_config: SecureAggregationConfig
    carrier: Carrier
    deadline: float
    worth: float = 0.0  # a sum that shows a smaller share of what people say is not made
    clock: Callable[[], float] = time.monotonic
    on_vectors: Callable[[], None] = lambda: None  # told before the vectors of rows are asked for


class MaskedRound:
    """One secure sum, in one stage or two."""

    def __init__(
        self, options: MaskedRoundOptions, number: int, on_summed: Callable[[int, int, Iterable[int]], None]
    ) -> None:
        """`on_summed` is told round, stage and people before they unmask."""
        self._federation, self._shapes, self._care = options.federation, options.shapes, options.secure_config
        self._carrier, self._deadline, self._worth = options.carrier, options.deadline, options.worth
        self._on_vectors = options.on_vectors
        self._on_summed, self._number, self._heard, self._clock = on_summed, number, RoundOutcome(), options.clock

    def run(self, devices: Sequence[EnrolledDevice], requests: Mapping[int, bytes]) -> RoundOutcome:
        """Run it with some devices; too few of them left means that nothing was unmasked."""
        heard, secure_config, shapes, ring = self._heard, self._care, self._shapes, self._federation.ring
        here = RoundContext(
            self._federation.digest.hex(),
            self._number,
            model_in(next(iter(requests.values()))),
            secrets.token_bytes(32),
        )
        try:
            if not secure_config.two_stage:
                terms = here.adding_all(shapes, ring, len(devices), secure_config)
                server, _ = self._stage(terms, devices, requests)
                total = decode_sum(server.total, terms.layout, shapes, len(server.survivors))
            else:
                both = {**shapes, QUALITY: QUALITY_SHAPE}
                counting = here.counting(both, len(devices), secure_config)
                first, devices = self._stage(counting, devices, requests)
                people = people_of(first.total, counting.layout)
                spare = secure_config.spare_for(len(requests), secure_config.dropped)
                rows = list_rows(people, secure_config.k_min + spare)
                if not self._is_worth(people, rows, secure_config.k_min + spare):
                    return heard
                terms = here.adding(both, ring, len(devices), secure_config, rows, spare)
                server, _ = self._stage(terms, devices, {})
                total = read_second_stage(server.total, terms.layout, both, people, len(server.survivors))
                total, heard.quality = _take_out_quality(total, len(first.survivors))
        except SecureSumError as error:
            heard.reason = error.reason
            return heard
        by_identity = {device.identity: device.number for device in devices}
        heard.counted = sorted(by_identity[server.session.cohort[position]] for position in server.survivors)
        heard.totals = [total]
        return heard

    def _is_worth(self, people: People, rows: People, least: int) -> bool:
        """Say whether the second stage would show enough, and if not, why."""
        said = sum(int(people[name].sum()) for name in self._shapes)
        shown = sum(int(people[name][rows[name]].sum()) for name in self._shapes)
        if shown and shown >= self._worth * said:
            return True
        share = shown / max(1, said)
        self._heard.is_thin = self._worth > 0
        self._heard.reason = RoundReason(ReasonCode.THIN_SUM, {"needed": least, "share": round(share, 4)})
        return False

    def _stage(
        self, terms: Terms, devices: Sequence[EnrolledDevice], requests: Mapping[int, bytes]
    ) -> tuple[SecureServer, list[EnrolledDevice]]:
        """Run all phases; return the server with its sum, and the devices that answered to the end."""
        server = SecureServer.start(terms, [device.identity for device in devices])
        at = {device.number: server.session.position(device.identity) for device in devices}
        by_place = {position: number for number, position in at.items()}
        messages = dict.fromkeys(at.values(), server.invitation)
        finished: frozenset[int] = frozenset()
        for phase in PHASES:
            opening = requests if phase == PHASES[0] else {}
            turns = {
                number: SecureRequest(self._number, phase, messages[position], opening.get(number, b""))
                for number, position in at.items()
                if position in messages
            }
            written = {number: write_secure_request(self._federation, turn) for number, turn in turns.items()}
            if phase == ServerPhase.VECTORS and terms.stage == 2:
                self._on_vectors()
            self._carry(server, terms.stage, written)
            finished = server.answered
            try:
                messages = server.advance()
            finally:
                self._heard.strikes |= {by_place[person]: code for person, code in server.accused().items()}
            if phase == ServerPhase.CONFIRMATIONS:
                self._on_summed(self._number, terms.stage, [by_place[person] for person in server.survivors])
        return server, [device for device in devices if at[device.number] in finished]

    def _carry(self, server: SecureServer, stage: int, turns: Mapping[int, bytes]) -> None:
        """Send every device its message, and return the answers."""
        name, started, bytes_up, refused = server.stand.name.lower(), self._clock(), 0, 0
        bytes_down = sum(len(content) for content in turns.values())
        try:
            with closing(self._carrier.ask(turns, self._deadline)) as arriving:
                for number, content in arriving:
                    bytes_up += len(content)
                    try:
                        server.receive(read_secure_reply(self._federation, self._number, content))
                    except (WireError, SecureSumError) as error:
                        if isinstance(error, AbortedError):
                            raise
                        refused += 1
                        note_strike(self._heard, number, error)
                        log.warning("answer refused", extra={"fields": {"round": self._number, **error.public()}})
                    if len(server.answered) == len(turns):
                        break
        finally:
            heard, seconds = self._heard, self._clock() - started
            heard.refused, heard.bytes_up = heard.refused + refused, heard.bytes_up + bytes_up
            heard.bytes_down += bytes_down
            counts = len(turns), len(server.answered), refused, 0
            heard.phases.append(PhaseCounts(stage, name, *counts, bytes_up, bytes_down, seconds))


def note_strike(heard: RoundOutcome, device: int, error: TacitError) -> None:
    """Note a refusal as a strike against the device, if an honest one cannot have caused it."""
    if error.code in STRIKES:
        heard.strikes[device] = error.code


def _take_out_quality(total: Total, n_counted: int) -> tuple[Total, SummedQuality | None]:
    """Take the quality out of a sum: none where too few people spoke of it to be listed.

    People were counted in the first stage. What the few who were lost since would have said is not known, and is not
    asked: among those who are left, as large a share is taken to have spoken.
    """
    sums, counts = dict(total.sums), dict(total.counts)
    hits, spoke = int(sums.pop(QUALITY)[0, 0]), int(counts.pop(QUALITY)[0])
    people = round(spoke * total.n_clients / max(1, n_counted))
    quality = SummedQuality(min(max(hits, 0), people), people) if people else None
    return Total(sums, counts, total.n_clients), quality
