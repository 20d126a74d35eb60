"""A round in the clear: the coordinator reads the answer of each device, checks it, and sums those that came first."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing

import numpy as np

from tacit.errors import WireError
from tacit.field.coordinator.carrier import Carrier
from tacit.field.coordinator.config import RoundRules
from tacit.field.coordinator.round_outcome import RoundOutcome, note_strike
from tacit.field.coordinator.round_stats import ANSWERS, PhaseCounts
from tacit.protocols.robust import assign_groups
from tacit.random import Key
from tacit.reasons import ReasonCode, RoundReason
from tacit.updates import Message, Total
from tacit.wire.federation import Federation
from tacit.wire.messages import read_update, refuse_longer

log = logging.getLogger("tacit.field.coordinator")


class ReadableRound:
    """One round whose answers the coordinator can read."""

    def __init__(
        self,
        federation: Federation,
        shapes: Mapping[str, tuple[int, ...]],
        rules: RoundRules,
        carrier: Carrier,
        key: Key,
        clock: Callable[[], float],
        most_bytes: int,
    ) -> None:
        """`shapes` are those of the tables that are learnt; `key` draws the groups of a robust rule.

        No honest answer has more than `most_bytes`.
        """
        self._federation, self._shapes, self._rules = federation, shapes, rules
        self._carrier, self._key, self._clock, self._most_bytes = carrier, key, clock, most_bytes

    def run(self, number: int, requests: Mapping[int, bytes], n_members: int) -> RoundOutcome:
        """Ask in the clear; the first answers count. They are summed, in groups if a robust rule says so."""
        wanted = min(self._rules.clients_per_round or n_members, n_members)
        outcome, answers = (
            RoundOutcome(bytes_down=sum(len(content) for content in requests.values())),
            dict[int, Message](),
        )
        started = self._clock()
        with closing(self._carrier.ask(requests, self._rules.deadline, self._most_bytes)) as arriving:
            for device, content in arriving:
                outcome.bytes_up += len(content)
                outcome.joined.add(device)
                if device not in requests or device in answers:
                    outcome.refused += 1
                    again = RoundReason(ReasonCode.REPEATED_ANSWER)
                    log.warning(
                        "answer refused", extra={"fields": {"round": number, "reason": again.public().as_dict()}}
                    )
                    continue
                try:
                    refuse_longer(content, self._most_bytes)
                    answers[device] = read_update(self._federation, number, content, self._shapes, device - 1)
                except WireError as error:
                    outcome.refused += 1
                    note_strike(outcome, device, error)
                    log.warning("answer refused", extra={"fields": {"round": number, **error.public()}})
                if len(answers) == wanted:
                    outcome.called_off = max(0, len(requests) - len(answers) - outcome.refused)
                    break
        outcome.counted, outcome.answers = sorted(answers), answers
        counts = len(requests), len(answers), outcome.refused, outcome.called_off, outcome.bytes_up, outcome.bytes_down
        outcome.phases = [PhaseCounts(0, ANSWERS, *counts, self._clock() - started)]
        robust, order = self._rules.robust, np.array(outcome.counted, np.int64)
        groups = (
            [order]
            if robust is None or not answers
            else assign_groups(order, robust, self._key.child("groups", number))
        )
        for group in groups:
            outcome.totals.append(sum_messages((answers[int(device)] for device in group), self._shapes))
        return outcome


def sum_messages(messages: Iterable[Message], shapes: Mapping[str, tuple[int, ...]]) -> Total:
    """Return the sum of some messages."""
    total = Total.zero(shapes)
    for message in messages:
        total.add(message)
    return total


def find_reach(message: Message, shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Return the largest number that a message adds to a model."""
    sums = sum_messages([message], shapes).sums
    return max((int(np.abs(numbers).max(initial=0)) for numbers in sums.values()), default=0)
