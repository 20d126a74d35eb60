"""A federation in one process: thousands of devices, a chunk of them at a time, bit for bit what real ones would do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from tacit.errors import AbortedError, ConfigError, DivergedError
from tacit.lab.adversaries import Adversaries
from tacit.lab.events import Events
from tacit.lab.secure_rounds import DropoutPlan, PendingMessages, SecureRoundsConfig, SecureSumOutcome, SecureSums
from tacit.methods.base import Federated, Schedule
from tacit.numerics import DIVERGENCE_LIMIT
from tacit.privacy.disclosure import Disclosure
from tacit.privacy.update_sink import Stage
from tacit.protocols.federated import UpdatePath, device_round, server_round
from tacit.protocols.robust import assign_groups, combine_groups
from tacit.protocols.rounds import Attendance, RoundsConfig, draw_attendance, is_abandoned
from tacit.protocols.secure_aggregation.encoding import people_per_row
from tacit.protocols.weighing import ClientWeighting, WeightLog
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Model
from tacit.updates import Message, Release, Total, Update

UNFIT = 0.2  # share of a pass's updates: some devices may be broken, but with so many learning itself is
CHUNK_ROWS = 2**18  # rows made in one chunk: what is drawn for them stays in cache
ROWS_PER_ITEM = 8  # in one chunk at least: touching the whole table once for it must be worth while
Part = tuple[Array | slice, Clients]  # where some clients stand in the cohort, and they


@dataclass
class Traffic:
    """What each client was asked for and sent, summed over rounds, by position in the cohort."""

    rounds: NDArray[np.int64]  # in which the client's answer counted
    positives: NDArray[np.int64]
    negatives: NDArray[np.int64]
    bytes_up: NDArray[np.int64]
    bytes_down: NDArray[np.int64]
    lost: NDArray[np.int64]  # rounds in which the client was asked and its answer did not count
    refused: NDArray[np.int64]  # rounds in which the client's update did not fit the ring
    masked: NDArray[np.int64]  # rounds in which the client's answer was masked

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


@dataclass(frozen=True)
class SimulationOptions:
    """What a simulation does besides learning.

    `reference` writes every message out and adds them one by one, as devices and a server do; otherwise cohorts are
    added up at once. A law holds the two together, bit for bit. `events` are told of every message, and adversaries
    change them, so that a simulation with either writes messages too. `told` learns which client counted how much, and
    why. With `secure` sums the server is shown what a secure sum shows.
    """

    rounds: RoundsConfig = field(default_factory=RoundsConfig)
    secure: SecureRoundsConfig | None = None
    adversaries: Adversaries | None = None
    reference: bool = False
    events: Events | None = None
    weight_log: WeightLog | None = None


def simulate(
    path: UpdatePath,
    clients: Clients,
    catalog: Catalog,
    key: Key,
    traffic: Traffic | None = None,
    options: SimulationOptions | None = None,
) -> Iterator[Model]:
    """Yield the model after each pass; its arrays go on changing."""
    options, method = options or SimulationOptions(), path.method
    refuse_unmaskable(method, options.secure)
    schedule = method.schedule(clients)
    model = method.init(clients, catalog, key.child("init"))
    shared, private = dict(model.shared), {name: array.copy() for name, array in model.private.items()}
    traffic = Traffic.none(len(clients)) if traffic is None else traffic
    federation = _Federation(path, clients, key, schedule, traffic, options)
    if options.rounds.criteria is not None:
        federation.scales = ClientWeighting(options.rounds.criteria, clients, catalog, options.weight_log)
    for number in range(schedule.passes):
        shared = federation.run(shared, private, schedule.rounds_of(number))
        _refuse_if_diverged(method, shared, private, number)
        yield Model(shared, private)


def refuse_unmaskable(method: Federated, secure: object) -> None:
    """Refuse secure aggregation of a method whose server must read every client's own row."""
    if secure is not None and method.spec.client_tables:
        raise ConfigError(
            f"This method cannot run under secure aggregation: its server reads a row of "
            f"'{method.spec.client_tables[0]}' from every client.",
            "Remove runtime.secure, or choose another method.",
        )


@dataclass
class _Answers:
    """What the clients of a round, or of a group in it, answered; nothing of it has been believed yet."""

    total: Total
    learnt: list[tuple[Array | slice, Mapping[str, Array]]] = field(default_factory=list)
    sent: list[tuple[Array | slice, Release]] = field(default_factory=list)
    refused: list[NDArray[np.int64]] = field(default_factory=list)  # positions
    people: dict[str, NDArray[np.int64]] = field(default_factory=dict)  # clients that mention each row, if asked for
    messages: PendingMessages = field(default_factory=PendingMessages)  # message by message, if asked for


@dataclass(frozen=True)
class _Round:
    """One round: its number, what updates pass in it, and the model before it."""

    number: int
    path: UpdatePath
    shared: dict[str, Array]
    private: dict[str, Array]


class _Federation:
    """The rounds of one simulation; `private` is changed in place."""

    def __init__(
        self,
        path: UpdatePath,
        clients: Clients,
        key: Key,
        schedule: Schedule,
        traffic: Traffic,
        options: SimulationOptions,
    ) -> None:
        self.path, self.clients, self.key, self.schedule = path, clients, key, schedule
        self.traffic, self.options, self.rules = traffic, options, options.rounds
        self.method, self.ring = path.method, path.ring
        secure = options.secure
        self.sums = (
            None if secure is None else SecureSums.of(secure, self.ring, self.rules, schedule, len(clients), key)
        )
        self.needs_messages = self._needs_messages()
        self.whole: list[Part] = []  # the chunks of all clients, cut once
        self.scales: ClientWeighting | None = None  # where clients count by criteria

    def run(self, shared: dict[str, Array], private: dict[str, Array], rounds: range) -> dict[str, Array]:
        """Run the rounds of a pass, in one go where a method can."""
        if self.schedule.clients_per_round == 1 and self.rules.is_calm and not self.needs_messages:
            done = self._run_single_clients(shared, private, rounds)
            if done is not None:
                return done
        before = self.traffic.refused.sum(), self.traffic.rounds.sum()
        for number in rounds:
            shared = self.one(shared, private, number)
        refused, heard = int(self.traffic.refused.sum() - before[0]), int(self.traffic.rounds.sum() - before[1])
        if refused > UNFIT * (refused + heard):
            raise DivergedError(
                f"Learning diverged: {refused} of {refused + heard} updates in rounds {rounds.start + 1} to "
                f"{rounds.stop} do not fit the ring, whose largest value is {self.ring.largest:g}.",
                "Lower method.learning_rate (updates are summed over clients), or use fewer bits behind the point "
                "(runtime.ring.fraction).",
            )
        return shared

    def _run_single_clients(
        self, shared: dict[str, Array], private: dict[str, Array], rounds: range
    ) -> dict[str, Array] | None:
        """Run rounds of one client each by the method's own kernel, if it has one that knows the stages."""
        stages = self.path.stages
        disclosure = stages[0] if stages and isinstance(stages[0], Disclosure) else None
        if self.sums is not None or len(stages) > (disclosure is not None):
            return None
        try:
            model = Model(shared, private)
            found = self.method.run_rounds(model, self.clients, self.ring, disclosure, self.key, rounds)
        except DivergedError:
            return None  # nothing was moved; one by one, the rounds tell whose numbers do not fit
        if found is None:
            return None
        release, times = found
        self.traffic.add(slice(None), release, times, self._down(shared))
        return shared

    def one(self, shared: dict[str, Array], private: dict[str, Array], number: int) -> dict[str, Array]:
        """Run one round: ask, let those who answer learn, add what fits, apply the sum."""
        who: Attendance | None = None  # everybody
        if not self.rules.is_calm or self.schedule.clients_per_round < len(self.clients) or self.sums is not None:
            lots = None if self.sums is None else self.sums.lots
            drawn = None if lots is None else lots.draw_participants(number)
            who = draw_attendance(self.schedule, self.rules, self.key, number, len(self.clients), drawn)
            if is_abandoned(who, self.rules):
                self._lose(who.asked, shared)
                return shared
        groups: list[NDArray[np.int64] | None] = [None if who is None else who.answered]
        if self.rules.robust is not None and who is not None:
            groups = list(assign_groups(who.answered, self.rules.robust, self.key.child("groups", number)))
        path = self.path
        if self.scales is not None and who is not None:
            weighing = self._weighing(self.scales, Model(shared, private), who.answered, number)
            path = replace(path, stages=(weighing, *path.stages))
        round_ = _Round(number, path, shared, private)
        if self.sums is None or who is None:
            answers = [self._answers(round_, group) for group in groups]
        else:
            answers = self._secured(self.sums, round_, who, groups)
        if not answers:
            self._lose(np.arange(len(self.clients)) if who is None else who.asked, shared)
            return shared
        if who is not None and len(who.answered) < len(who.asked):
            self._lose(np.setdiff1d(who.asked, who.answered, assume_unique=True), shared)
        for answer in answers:
            self._keep(answer, shared, private)
        totals = [answer.total for answer in answers]
        total = totals[0] if self.rules.robust is None else combine_groups(totals, self.rules.robust)
        return dict(server_round(path, shared, total))

    def _lose(self, lost: NDArray[np.int64], shared: dict[str, Array]) -> None:
        self.traffic.lost[lost] += 1
        self.traffic.bytes_down[lost] += self._down(shared)

    def _secured(
        self, sums: SecureSums, here: _Round, who: Attendance, groups: Sequence[NDArray[np.int64] | None]
    ) -> list[_Answers]:
        """Return what secure sums show of each group; a group of which too few remain is not there."""
        key, found = self.key.child("fates", here.number), []
        for group in groups:
            answered = who.answered if group is None else group
            asked = who.asked if len(groups) == 1 else answered
            fates = DropoutPlan.draw(sums.config, asked, answered, self.rules.dropout, key)
            answers = self._answers(here, fates.summed)
            lost = self._answers(here, fates.between)
            fates = fates.without(np.concatenate([*answers.refused, *lost.refused, asked[:0]]))
            try:
                if sums.config.mode == "protocol":
                    said = PendingMessages({**answers.messages.by_client, **lost.messages.by_client})
                    shapes = self.method.shapes(here.shared)
                    outcome = sums.protocol(said, here.shared, shapes, fates, here.number)
                else:
                    counted = {name: counts + lost.people[name] for name, counts in answers.people.items()}
                    outcome = sums.exact(answers.total, counted if sums.config.two_stage else None, fates)
            except AbortedError:
                continue
            found.append(self._masked(answers, outcome))
        return found

    def _masked(self, answers: _Answers, outcome: SecureSumOutcome) -> _Answers:
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
        """Whether sums of cohorts do not suffice: events, adversaries, or counts of clients per row are needed."""
        options = self.options
        if options.reference or options.events is not None or options.adversaries is not None:
            return True
        if self.sums is None:
            return False
        config = self.sums.config
        return config.mode == "protocol" or (config.two_stage and self.method.spec.rows_repeat)

    def _weighing(self, scales: ClientWeighting, model: Model, who: NDArray[np.int64], number: int) -> Stage:
        """Weigh those who answer; whoever must learn to be measured learns the same again afterwards."""
        bare = replace(self.path, stages=())

        def learnt() -> Iterator[tuple[Array, Update]]:
            for positions, clients in self._parts(model.shared, who):
                part = self._model_of(model, positions, clients)
                message = device_round(bare, part, clients, self.key, number).message
                assert message is not None
                fit = np.isin(clients.ids, message.clients)
                yield np.arange(len(self.clients))[positions][fit], message.read(self.ring)

        weighed = scales.weigh(who, self.traffic.rounds, self.traffic.lost, learnt, number)
        self.traffic.bytes_up[who] += scales.bytes_each(self.ring)
        self.traffic.bytes_down[who] += scales.bytes_each(self.ring)
        return scales.stage(who, weighed)

    def _answers(self, here: _Round, who: NDArray[np.int64] | None) -> _Answers:
        """Let clients learn and add their updates at once; message by message if a client's numbers do not fit."""
        if not self.needs_messages:
            try:
                return self._learn(here, who, by_message=False)
            except DivergedError:
                pass  # messages tell whose numbers they were
        return self._learn(here, who, by_message=True)

    def _learn(self, here: _Round, who: NDArray[np.int64] | None, *, by_message: bool) -> _Answers:
        total = Total.zero(self.method.shapes(here.shared))
        answers = _Answers(total, people={name: counts.copy() for name, counts in total.counts.items()})
        for positions, clients in self._parts(here.shared, who):
            part = self._model_of(Model(here.shared, here.private), positions, clients)
            given = device_round(here.path, part, clients, self.key, here.number, None if by_message else total)
            fit = given.is_fit
            places = np.arange(len(self.clients))[positions] if by_message or not fit.all() else None
            release = given.release
            if given.message is not None and places is not None:
                message, fit = self._sent(given.message, clients, here.number)
                release = message.release
                total.add(message)
                if self.sums is not None:
                    speaking = people_per_row(message, {name: len(counts) for name, counts in total.counts.items()})
                    answers.people = {name: counts + speaking[name] for name, counts in answers.people.items()}
                    answers.messages.add(places[fit], message)
            answers.learnt.append((positions, given.private))
            answers.sent.append((positions if places is None or fit.all() else places[fit], release))
            if places is not None:
                answers.refused.append(places[~fit])
        if not by_message:
            answers.people = {name: counts.copy() for name, counts in total.counts.items()}
        return answers

    def _sent(self, message: Message, clients: Clients, number: int) -> tuple[Message, NDArray[np.bool_]]:
        """Return what is really sent, adversaries' messages included, and whose numbers fit."""
        adversaries, events = self.options.adversaries, self.options.events
        if adversaries is not None:
            message = adversaries.tamper(message, self.key.child("seal", number, len(self.path.stages)))
        if events is not None:
            events.write(number, message, self.method.spec.item_tables)
        return message, np.isin(clients.ids, message.clients)

    def _model_of(self, model: Model, positions: Array | slice, clients: Clients) -> Model:
        """Return what some clients learn from: what they receive, and their private part."""
        part = {name: array[positions] for name, array in model.private.items()}
        return Model(self.method.spec.received(model.shared, clients.ids), part)

    def _keep(self, answers: _Answers, shared: dict[str, Array], private: dict[str, Array]) -> None:
        for positions, learnt in answers.learnt:
            for name, array in learnt.items():
                private[name][positions] = array
        for positions, release in answers.sent:
            self.traffic.add(positions, release, 1, self._down(shared))
        for positions in answers.refused:
            self.traffic.refused[positions] += 1
            self.traffic.bytes_down[positions] += self._down(shared)

    def _parts(self, shared: Mapping[str, Array], who: NDArray[np.int64] | None) -> Iterator[Part]:
        """Cut a cohort, or all clients, into chunks of a useful size."""
        n_clients, method = len(self.clients), self.method
        every = sum(shape[0] for name, shape in method.shapes(shared).items() if name not in method.spec.client_tables)
        size = max(1, max(CHUNK_ROWS, ROWS_PER_ITEM * every) // max(1, method.rows_per_client(shared)))
        if who is not None:
            for start in range(0, len(who), size):
                part = who[start : start + size]
                yield part, self.clients.take(part)
            return
        if not self.whole:
            cuts = [slice(start, min(start + size, n_clients)) for start in range(0, n_clients, size)]
            self.whole = [(cut, self.clients.take(np.arange(cut.start, cut.stop))) for cut in cuts]
        yield from self.whole

    def _down(self, shared: dict[str, Array]) -> int:
        return download_bytes(self.method, shared)


def download_bytes(method: Federated, shared: Mapping[str, Array]) -> int:
    """Return how many bytes of the model a device receives in a round: of client tables one row."""
    rows = dict.fromkeys(method.spec.client_tables, 1)
    return sum(shared[name][: rows.get(name)].nbytes for name in method.spec.downloads)


def _refuse_if_diverged(method: Federated, shared: dict[str, Array], private: dict[str, Array], number: int) -> None:
    learnt = (array for array in private.values() if array.dtype.kind == "f")  # indices may be large
    for array in (*(shared[name] for name in method.spec.downloads), *learnt):
        largest = float(np.abs(array).max(initial=0.0))
        if not largest < DIVERGENCE_LIMIT:
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
