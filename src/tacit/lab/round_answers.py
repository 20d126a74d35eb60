"""What clients answer in a round: asked of the engine's shards, and added up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tacit.lab.adversaries import Adversaries
from tacit.lab.engine import Engine
from tacit.lab.events import Events
from tacit.lab.secure_rounds import PendingMessages
from tacit.lab.shards import ShardRequest
from tacit.privacy.update_sink import Stage
from tacit.protocols.federated import UpdatePath
from tacit.protocols.secure_aggregation.encoding import count_mentions
from tacit.random import Key
from tacit.types import Array
from tacit.updates import Message, Release, Total


@dataclass(frozen=True)
class AskedRound:
    """One round: its number, the shared model before it, and the stage that weighs clients in it."""

    number: int
    shared: dict[str, Array]
    weighing: Stage | None = None


@dataclass
class RoundAnswers:
    """What the clients of a round, or of a group in it, answered; nothing of it has been checked yet."""

    total: Total
    ticket: int = -1  # by which the engine knows what its clients learnt
    sent: list[tuple[Array | slice, Release]] = field(default_factory=list)
    refused: list[NDArray[np.int64]] = field(default_factory=list)  # positions
    mentions: dict[str, NDArray[np.int64]] = field(default_factory=dict)  # clients that mention each row, if asked for
    messages: PendingMessages = field(default_factory=PendingMessages)  # message by message, if asked for


@dataclass(frozen=True)
class AnswerCollector:
    """Lets clients learn where they are, and adds what the shards answer.

    With `by_message`, shards return every message, which adversaries may change and `events` records. With
    `counts_mentions`, clients that mention a row are counted, and messages are kept for a secure sum.
    """

    path: UpdatePath
    engine: Engine
    key: Key
    by_message: bool
    counts_mentions: bool
    adversaries: Adversaries | None = None
    events: Events | None = None

    def collect(self, asked: AskedRound, who: NDArray[np.int64] | None) -> RoundAnswers:
        """Return what the clients at some positions (none: all) answer."""
        request = ShardRequest(asked.number, who, self.by_message, self.counts_mentions, weighing=asked.weighing)
        ticket, shards = self.engine.ask(request, asked.shared)
        totals = [shard.total for shard in shards if shard.total is not None]
        total = Total.join(totals) if totals else Total.zero(self.path.method.shapes(asked.shared))
        answers = RoundAnswers(total, ticket)
        if self.counts_mentions:
            answers.mentions = {name: np.zeros(len(counts), np.int64) for name, counts in total.counts.items()}
        for shard in shards:
            answers.sent += shard.sent
            answers.refused += shard.refused
            _add_mentions(answers, shard.mentions)
            for positions, message in shard.messages:
                self._add_message(answers, positions, message, asked.number)
        return answers

    def _add_message(self, answers: RoundAnswers, positions: NDArray[np.int64], made: Message, number: int) -> None:
        """Add what some clients really send, adversaries' messages included."""
        message = self._tamper(made, number)
        fit = np.isin(self.engine.clients.ids[positions], message.clients)
        answers.total.add(message)
        if self.counts_mentions:
            sizes = {name: len(counts) for name, counts in answers.total.counts.items()}
            _add_mentions(answers, count_mentions(message, sizes))
            answers.messages.add(positions[fit], message)
        answers.sent.append((positions[fit], message.release))
        answers.refused.append(positions[~fit])

    def _tamper(self, message: Message, number: int) -> Message:
        """Return what is really sent, and note it in `events`."""
        if self.adversaries is not None:
            message = self.adversaries.tamper(message, self.key.child("seal", number, len(self.path.stages)))
        if self.events is not None:
            self.events.write(number, message, self.path.method.spec.item_tables)
        return message


def _add_mentions(answers: RoundAnswers, mentions: Mapping[str, NDArray[np.int64]]) -> None:
    for name, counts in mentions.items():
        answers.mentions[name] += counts
