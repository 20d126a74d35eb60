"""A federation in one process: thousands of devices, a chunk of them at a time, bit for bit what real ones would do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from tacit.errors import AbortedError, DivergedError
from tacit.methods.base import (
    Cohort,
    CountsRows,
    Distributes,
    Federated,
    RepeatsRows,
    RunsRounds,
    Schedule,
    SpeaksOfOthers,
    SumsCohorts,
)
from tacit.privacy.disclosure import Disclosure
from tacit.privacy.outbound import Stage
from tacit.privacy.secure.encoding import people_speaking
from tacit.protocols.federated import applied, device_round
from tacit.protocols.robust import combined, dealt
from tacit.protocols.rounds import Attendance, RoundsConfig, attendance, is_abandoned
from tacit.protocols.weighing import Scales, Told
from tacit.random import Key
from tacit.runtimes.events import Events
from tacit.runtimes.secure import Fates, Outcome, Said, SecureConfig, SecureSums
from tacit.types import Array, Catalog, Clients, Model
from tacit.updates import Release, Ring, Total, Update

EXPLODED = 1e3  # vectors that rank well stay far below
UNFIT = 0.2  # share of a pass's updates: some devices may be broken, but with so many learning itself is
CHUNK_ROWS = 2**18  # rows made in one chunk: what is drawn for them stays in cache
ROWS_PER_ITEM = 8  # in one chunk at least: touching the whole table once for it must be worth while
Part = tuple[Array | slice, Clients]  # where some clients stand in the cohort, and they


@dataclass
class Traffic:
    """What each client was asked for and sent, summed over rounds, by position in the cohort."""

    rounds: NDArray[np.int64]  # in which her answer counted
    positives: NDArray[np.int64]
    negatives: NDArray[np.int64]
    bytes_up: NDArray[np.int64]
    bytes_down: NDArray[np.int64]
    lost: NDArray[np.int64]  # rounds in which she was asked and her answer did not count
    refused: NDArray[np.int64]  # rounds in which what she learnt did not fit the ring
    masked: NDArray[np.int64]  # rounds in which her answer left under masks

    @classmethod
    def none(cls, n_clients: int) -> Traffic:
        """Return the traffic before the first round."""
        return cls(*(np.zeros(n_clients, np.int64) for _ in range(8)))

    def add(self, positions: Array | slice, release: Release, rounds: Array | int, down: int) -> None:
        """Count what the clients at some positions (each once) received and sent."""
        self.rounds[positions] += rounds
        self.positives[positions] += release.positives
        self.negatives[positions] += release.negatives
        self.bytes_up[positions] += release.bytes
        self.bytes_down[positions] += rounds * down


def simulate(
    method: Federated,
    stages: Sequence[Stage],
    ring: Ring,
    clients: Clients,
    catalog: Catalog,
    key: Key,
    traffic: Traffic | None = None,
    *,
    rounds: RoundsConfig | None = None,
    secure: SecureConfig | None = None,
    plainly: bool = False,
    events: Events | None = None,
    told: Told | None = None,
) -> Iterator[Model]:
    """Yield the model after each pass; its arrays go on changing.

    `plainly` writes every message out and adds them one by one, as devices and a server do; otherwise a method that
    can adds up cohorts at once. A law holds the two together, bit for bit. `events` are told of every message; they
    are written from the messages themselves, so a simulation that keeps them runs plainly. So does one in which people
    count by criteria; `told` learns who counted how much, and why. With `secure` sums the server is shown what a secure
    sum shows.
    """
    schedule = method.schedule(clients)
    model = method.init(clients, catalog, key.child("init"))
    shared, private = dict(model.shared), {name: array.copy() for name, array in model.private.items()}
    traffic = Traffic.none(len(clients)) if traffic is None else traffic
    rules = rounds or RoundsConfig()
    sums = None if secure is None else SecureSums.of(secure, ring, rules, schedule, len(clients), key)
    plainly = plainly or rules.criteria is not None
    federation = _Federation(method, stages, ring, clients, key, schedule, traffic, rules, sums, plainly, events)
    if rules.criteria is not None:
        federation.scales = Scales(rules.criteria, clients, catalog, told)
    for number in range(schedule.passes):
        shared = federation.run(shared, private, schedule.rounds_of(number))
        _refuse_if_diverged(method, shared, private, number)
        yield Model(shared, private)


@dataclass
class _Answers:
    """What the clients of a round, or of a group in it, answered; nothing of it has been believed yet."""

    total: Total
    learnt: list[tuple[Array | slice, Mapping[str, Array]]] = field(default_factory=list)
    sent: list[tuple[Array | slice, Release]] = field(default_factory=list)
    refused: list[NDArray[np.int64]] = field(default_factory=list)  # positions
    people: dict[str, NDArray[np.int64]] = field(default_factory=dict)  # who speak of each row, if asked for
    said: Said = field(default_factory=Said)  # message by message, if asked for


class _Federation:
    """The rounds of one simulation; `private` is changed in place."""

    def __init__(
        self,
        method: Federated,
        stages: Sequence[Stage],
        ring: Ring,
        clients: Clients,
        key: Key,
        schedule: Schedule,
        traffic: Traffic,
        rules: RoundsConfig,
        sums: SecureSums | None,
        plainly: bool,
        events: Events | None,
    ) -> None:
        self.method, self.stages, self.ring, self.clients, self.key = method, stages, ring, clients, key
        self.schedule, self.traffic, self.rules, self.events = schedule, traffic, rules, events
        self.sums = sums
        only = stages[0] if len(stages) == 1 else None
        self.disclosure = only if isinstance(only, Disclosure) else None
        self.is_fast = not plainly and events is None and len(stages) == (self.disclosure is not None)
        can_sum = self.is_fast and not self._needs_messages()
        self.summing = method if can_sum and isinstance(method, SumsCohorts) else None  # looked up once: slow
        self.downloads = method.downloads if isinstance(method, Distributes) else method.tables
        self.whole: list[Part] = []  # the chunks of everybody, cut once
        self.scales: Scales | None = None  # where people count by criteria
        self.leaving: Sequence[Stage] = stages  # all that updates pass in this round

    def run(self, shared: dict[str, Array], private: dict[str, Array], rounds: range) -> dict[str, Array]:
        """Run the rounds of a pass, in one go where a method can."""
        method = self.method
        alone = self.schedule.clients_per_round == 1 and self.rules.is_calm and self.sums is None
        if self.is_fast and isinstance(method, RunsRounds) and alone:
            release, times = method.run_rounds(
                shared, private, self.clients, self.ring, self.disclosure, self.key, rounds
            )
            self.traffic.add(slice(None), release, times, self._down(shared))
            return shared
        before = self.traffic.refused.sum(), self.traffic.rounds.sum()
        for number in rounds:
            shared = self.one(shared, private, number)
        refused, heard = int(self.traffic.refused.sum() - before[0]), int(self.traffic.rounds.sum() - before[1])
        if refused > UNFIT * (refused + heard):
            raise DivergedError(
                f"Learning has run away: {refused} of {refused + heard} updates in rounds {rounds.start + 1} to "
                f"{rounds.stop} do not fit the ring, which holds {self.ring.largest:g}.",
                "Lower method.learning_rate (updates are summed over clients), or use fewer bits behind the point "
                "(runtime.ring.fraction).",
            )
        return shared

    def one(self, shared: dict[str, Array], private: dict[str, Array], number: int) -> dict[str, Array]:
        """Run one round: ask, let those who answer learn, add what fits, apply the sum."""
        who: Attendance | None = None  # everybody
        if not self.rules.is_calm or self.schedule.clients_per_round < len(self.clients) or self.sums is not None:
            lots = None if self.sums is None else self.sums.lots
            drawn = None if lots is None else lots.drawn(number)
            who = attendance(self.schedule, self.rules, self.key, number, len(self.clients), drawn)
            if is_abandoned(who, self.rules):
                self._lose(who.asked, shared)
                return shared
        groups: list[NDArray[np.int64] | None] = [None if who is None else who.answered]
        if self.rules.robust is not None and who is not None:
            groups = list(dealt(who.answered, self.rules.robust, self.key.child("groups", number)))
        if self.scales is not None and who is not None:
            self.leaving = (self._weighing(self.scales, shared, private, who.answered, number), *self.stages)
        if self.sums is None or who is None:
            answers = [self._answers(shared, private, group, number) for group in groups]
        else:
            answers = self._secured(self.sums, shared, private, who, groups, number)
        if not answers:
            self._lose(np.arange(len(self.clients)) if who is None else who.asked, shared)
            return shared
        if who is not None and len(who.answered) < len(who.asked):
            self._lose(np.setdiff1d(who.asked, who.answered, assume_unique=True), shared)
        for answer in answers:
            self._keep(answer, shared, private)
        totals = [answer.total for answer in answers]
        total = totals[0] if self.rules.robust is None else combined(totals, self.rules.robust)
        return dict(applied(self.method, self.ring, shared, total))

    def _lose(self, lost: NDArray[np.int64], shared: dict[str, Array]) -> None:
        self.traffic.lost[lost] += 1
        self.traffic.bytes_down[lost] += self._down(shared)

    def _secured(
        self,
        sums: SecureSums,
        shared: dict[str, Array],
        private: dict[str, Array],
        who: Attendance,
        groups: Sequence[NDArray[np.int64] | None],
        number: int,
    ) -> list[_Answers]:
        """Return what secure sums show of each group; a group of which too few remain is not there."""
        key, found = self.key.child("fates", number), []
        for group in groups:
            answered = who.answered if group is None else group
            asked = who.asked if len(groups) == 1 else answered
            fates = Fates.drawn(sums.config, asked, answered, self.rules.dropout, key)
            answers = self._answers(shared, private, fates.summed, number)
            lost = self._answers(shared, private, fates.between, number)
            fates = fates.without(np.concatenate([*answers.refused, *lost.refused, asked[:0]]))
            try:
                if sums.config.mode == "protocol":
                    said = Said({**answers.said.places, **lost.said.places})
                    outcome = sums.protocol(said, shared, self.method.tables, fates, number)
                else:
                    counted = {name: counts + lost.people[name] for name, counts in answers.people.items()}
                    outcome = sums.exact(answers.total, counted if sums.config.two_stage else None, fates)
            except AbortedError:
                continue
            found.append(self._masked(answers, outcome))
        return found

    def _masked(self, answers: _Answers, outcome: Outcome) -> _Answers:
        """Put what a secure sum shows in the place of the plain sum, and the bytes it took in that of the rows'."""
        everybody, up = np.arange(len(self.clients)), dict(outcome.up)
        sent = []
        for positions, release in answers.sent:
            self.traffic.masked[positions] += 1
            size = np.array([up.pop(int(person), 0) for person in everybody[positions]], np.int64)
            sent.append((positions, replace(release, bytes=size)))
        for person, n_bytes in up.items():
            self.traffic.bytes_up[person] += n_bytes
        for person, n_bytes in outcome.down.items():
            self.traffic.bytes_down[person] += n_bytes
        return replace(answers, total=outcome.total, sent=sent)

    def _needs_messages(self) -> bool:
        """Whether sums of cohorts do not say enough: who speaks of which row, or all that each one sends."""
        if self.sums is None:
            return False
        config, repeats = self.sums.config, isinstance(self.method, RepeatsRows) and self.method.repeats_rows
        return config.mode == "protocol" or (config.two_stage and repeats)

    def _weighing(
        self,
        scales: Scales,
        shared: dict[str, Array],
        private: dict[str, Array],
        who: NDArray[np.int64],
        number: int,
    ) -> Stage:
        """Weigh those who answer; whoever must learn to be measured learns the same again afterwards."""

        def learnt() -> Iterator[tuple[Array, Update]]:
            for positions, clients in self._parts(shared, who):
                part = {name: array[positions] for name, array in private.items()}
                learning = self.key.child("learn", number)
                yield np.asarray(positions), self.method.learn(shared, part, clients, self.ring, learning)[0]

        weighed = scales.weigh(who, self.traffic.rounds, self.traffic.lost, learnt, number)
        self.traffic.bytes_up[who] += scales.bytes_each(self.ring)
        self.traffic.bytes_down[who] += scales.bytes_each(self.ring)
        return scales.stage(who, weighed, self.ring)

    def _answers(
        self, shared: dict[str, Array], private: dict[str, Array], who: NDArray[np.int64] | None, number: int
    ) -> _Answers:
        """Let clients learn and add them up; where somebody's numbers do not fit, message by message."""
        if self.summing is not None:
            try:
                return self._summed(self.summing, shared, private, who, number)
            except DivergedError:
                pass  # writing every message out tells whose it was
        answers = self._none(shared)
        for positions, clients in self._parts(shared, who):
            part = {name: array[positions] for name, array in private.items()}
            message, learnt = device_round(
                self.method, self.leaving, self.ring, shared, part, clients, self.key, number
            )
            if self.events is not None:
                self.events.write(number, message, self._about_items(shared))
            answers.total.add(message)
            unfit = np.isin(clients.ids, message.withheld)
            places = np.arange(len(self.clients))[positions]
            answers.learnt.append((positions, learnt))
            answers.sent.append((places[~unfit] if unfit.any() else positions, message.release))
            if self.sums is not None:
                speaking = people_speaking(message, {name: len(shared[name]) for name in self.method.tables})
                answers.people = {name: counts + speaking[name] for name, counts in answers.people.items()}
                answers.said.add(places[~unfit], message)
            answers.refused.append(places[unfit])
        return answers

    def _summed(
        self,
        method: SumsCohorts,
        shared: dict[str, Array],
        private: dict[str, Array],
        who: NDArray[np.int64] | None,
        number: int,
    ) -> _Answers:
        answers = self._none(shared)
        keys = self.key.child("learn", number), self.key.child("seal", number, 0)
        for positions, clients in self._parts(shared, who):
            part = {name: array[positions] for name, array in private.items()}
            cohort = Cohort(shared, part, clients, self.ring, self.disclosure, *keys)
            release, learnt = method.sum_cohort(cohort, answers.total)
            answers.learnt.append((positions, learnt))
            answers.sent.append((positions, release))
        answers.people = {name: counts.copy() for name, counts in answers.total.counts.items()}
        return answers

    def _none(self, shared: dict[str, Array]) -> _Answers:
        total = Total.zero({name: shared[name].shape for name in self.method.tables})
        return _Answers(total, people={name: counts.copy() for name, counts in total.counts.items()})

    def _keep(self, answers: _Answers, shared: dict[str, Array], private: dict[str, Array]) -> None:
        for positions, learnt in answers.learnt:
            for name, array in learnt.items():
                private[name][positions] = array
        for positions, release in answers.sent:
            self.traffic.add(positions, release, 1, self._down(shared))
        for positions in answers.refused:
            self.traffic.refused[positions] += 1
            self.traffic.bytes_down[positions] += self._down(shared)

    def _parts(self, shared: dict[str, Array], who: NDArray[np.int64] | None) -> Iterator[Part]:
        """Cut clients, or everybody, into chunks that are worth their while."""
        n_clients = len(self.clients)
        every = sum(len(shared[name]) for name in self.method.tables)
        unsaid = every if self.summing is None else max(1, len(self.clients.items) // n_clients)  # rows written, or not
        each = self.method.rows_per_client(shared) if isinstance(self.method, CountsRows) else unsaid
        size = max(1, max(CHUNK_ROWS, ROWS_PER_ITEM * every) // max(1, each))
        if who is not None:
            for start in range(0, len(who), size):
                part = who[start : start + size]
                yield part, self.clients.take(part)
            return
        if not self.whole:
            cuts = [slice(start, min(start + size, n_clients)) for start in range(0, n_clients, size)]
            self.whole = [(cut, self.clients.take(np.arange(cut.start, cut.stop))) for cut in cuts]
        yield from self.whole

    def _about_items(self, shared: dict[str, Array]) -> list[str]:
        others = self.method.not_items if isinstance(self.method, SpeaksOfOthers) else ()
        named = (name for name in self.method.tables if name not in others)
        return [name for name in named if len(shared[name]) == self.clients.n_items]

    def _down(self, shared: dict[str, Array]) -> int:
        return sum(shared[name].nbytes for name in self.downloads)


def _refuse_if_diverged(method: Federated, shared: dict[str, Array], private: dict[str, Array], number: int) -> None:
    learnt = (array for array in private.values() if array.dtype.kind == "f")  # indices may be large
    for array in (*(shared[name] for name in method.tables), *learnt):
        largest = float(np.abs(array).max(initial=0.0))
        if not largest < EXPLODED:
            config = getattr(method, "config", None)
            rate = getattr(config, "learning_rate", None)
            raised = [name for name in ("own_rate", "server_rate") if getattr(config, name, 1.0) > 1]
            raised += ["server_momentum"] if getattr(config, "server_momentum", 0.0) else []
            raise DivergedError(
                f"Learning diverged in pass {number + 1}: a learnt number reached {largest:.3g}.",
                f"Updates are summed over clients, so a step that suits one is too large for many: lower "
                f"method.learning_rate{'' if rate is None else f' (now {rate:g})'}"
                f"{''.join(f', method.{name}' for name in raised)} or method.clients_per_round.",
            )
