"""A federation in one process: thousands of devices, a chunk of them at a time, bit for bit what real ones would do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from tacit.errors import AbortedError, ConfigError, DivergedError
from tacit.lab.adversaries import Adversaries
from tacit.lab.engine import Engine, EngineConfig, ShardedClients, open_engine
from tacit.lab.events import Events
from tacit.lab.guarantee import (
    NoiseShares,
    NoisyRound,
    PrivacyLog,
    SimulatedBudgets,
    add_noise_shares,
    refuse_other_sums,
    root_mean_square,
)
from tacit.lab.round_answers import AnswerCollector, AskedRound, RoundAnswers
from tacit.lab.secure_rounds import DropoutPlan, PendingMessages, SecureRoundsConfig, SecureSumOutcome, SecureSums
from tacit.lab.shards import ShardRequest
from tacit.lab.traffic import Traffic, download_bytes
from tacit.methods.base import Federated, Schedule
from tacit.numerics import DIVERGENCE_LIMIT, server_threads
from tacit.privacy.disclosure import Disclosure
from tacit.privacy.dp import DifferentialPrivacy
from tacit.privacy.noise import SimulatedNoise
from tacit.privacy.update_sink import Stage
from tacit.protocols.federated import UpdatePath, server_round
from tacit.protocols.robust import assign_groups, combine_groups
from tacit.protocols.rounds import Attendance, RoundsConfig, draw_attendance, is_abandoned
from tacit.protocols.weighing import ClientWeighting, WeightLog
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Model, refuse_unknown_items
from tacit.updates import Total, Update

UNFIT = 0.2  # share of a pass's updates: some devices may be broken, but with so many learning itself is


@dataclass(frozen=True)
class SimulationOptions:
    """What a simulation does besides learning.

    `reference` writes every message out and adds them one by one, as devices and a server do; otherwise cohorts are
    added up at once. A law holds the two together, bit for bit. `events` records every message, and adversaries change
    messages, so that a simulation with either writes messages too. `weight_log` records how much each client counted,
    and why. With `secure` sums the server is shown what a secure sum shows. With `noise_shares`, and `reference`, every
    client adds its own share of noise, as devices do; otherwise the noise of a sum is drawn at once. `engine` says
    where clients learn; it changes no bit.
    """

    rounds: RoundsConfig = field(default_factory=RoundsConfig)
    secure: SecureRoundsConfig | None = None
    adversaries: Adversaries | None = None
    reference: bool = False
    events: Events | None = None
    weight_log: WeightLog | None = None
    privacy_log: PrivacyLog | None = None
    noise_shares: NoiseShares | None = None
    engine: EngineConfig = field(default_factory=EngineConfig)


def simulate(
    path: UpdatePath,
    clients: Clients,
    catalog: Catalog,
    key: Key,
    traffic: Traffic | None = None,
    options: SimulationOptions | None = None,
) -> Iterator[Model]:
    """Yield the model after each pass; its arrays change in later passes."""
    refuse_unknown_items(clients, catalog)
    options, method = options or SimulationOptions(), path.method
    refuse_unmaskable(method, options.secure)
    if path.privacy is not None:
        refuse_other_sums(options.secure)
    if options.noise_shares is not None and not options.reference:
        raise ConfigError("Shares of noise are for the reference path.", "Set reference=True.")
    schedule = method.schedule(clients)
    model = method.init(clients, catalog, key.child("init"))
    shared, private = dict(model.shared), {name: array.copy() for name, array in model.private.items()}
    traffic = Traffic.none(len(clients)) if traffic is None else traffic
    with open_engine(options.engine, ShardedClients(path, clients, key, private)) as engine:
        federation = _Federation(path, engine, key, schedule, traffic, options)
        if options.rounds.criteria is not None:
            federation.scales = ClientWeighting(options.rounds.criteria, clients, catalog, options.weight_log)
        private_part: Mapping[str, Array] = private
        try:
            for number in range(schedule.passes):
                shared = federation.run(shared, schedule.rounds_of(number))
                learnt = {} if path.privacy is not None else engine.largest()  # under a guarantee they stay unread
                _refuse_if_diverged(method, shared, learnt, number)
                private_part = engine.private()
                yield Model(shared, private_part)
        except GeneratorExit:  # the last model outlives the engine
            len(private_part)
            raise
        len(private_part)


def refuse_unmaskable(method: Federated, secure: object) -> None:
    """Refuse secure aggregation of a method whose server must read every client's own row."""
    if secure is not None and method.spec.client_tables:
        raise ConfigError(
            f"This method cannot run under secure aggregation: its server reads a row of "
            f"'{method.spec.client_tables[0]}' from every client.",
            "Remove runtime.secure, or choose another method.",
        )


class _Federation:
    """The rounds of one simulation; an engine holds the clients and their private part."""

    def __init__(
        self,
        path: UpdatePath,
        engine: Engine,
        key: Key,
        schedule: Schedule,
        traffic: Traffic,
        options: SimulationOptions,
    ) -> None:
        self.path, self.engine, self.key, self.schedule = path, engine, key, schedule
        self.clients = clients = engine.clients
        self.traffic, self.options, self.rules = traffic, options, options.rounds
        self.method, self.ring = path.method, path.ring
        secure = options.secure
        self.sums = (
            None if secure is None else SecureSums.of(secure, self.ring, self.rules, schedule, len(clients), key)
        )
        self.collector = AnswerCollector(
            path,
            engine,
            key,
            _needs_messages(path.method, options),
            secure is not None,
            options.adversaries,
            options.events,
        )
        self.scales: ClientWeighting | None = None  # where clients count by criteria
        self.budgets = SimulatedBudgets(len(clients))

    def run(self, shared: dict[str, Array], rounds: range) -> dict[str, Array]:
        """Run the rounds of a pass, in one go where a method can."""
        is_plain = self.rules.is_failure_free and not self.collector.by_message
        if is_plain and self.schedule.clients_per_round in (1, len(self.clients)):
            done = self._run_in_kernel(shared, rounds)
            if done is not None:
                return done
        before = self.traffic.refused.sum(), self.traffic.rounds.sum()
        for number in rounds:
            shared = self.one(shared, number)
        refused, added = int(self.traffic.refused.sum() - before[0]), int(self.traffic.rounds.sum() - before[1])
        if self.path.privacy is None and refused > UNFIT * (refused + added):
            raise DivergedError(
                f"Learning diverged: {refused} of {refused + added} updates in rounds {rounds.start + 1} to "
                f"{rounds.stop} do not fit the ring, whose largest value is {self.ring.largest:g}.",
                "Lower method.learning_rate (updates are summed over clients), or use fewer bits behind the point "
                "(runtime.ring.fraction).",
            )
        return shared

    def _run_in_kernel(self, shared: dict[str, Array], rounds: range) -> dict[str, Array] | None:
        """Run rounds of one client each, or of all, by the method's own kernel, if it has one that knows the stages."""
        private = self.engine.here()
        stages = self.path.stages
        disclosure = stages[0] if stages and isinstance(stages[0], Disclosure) else None
        if private is None or self.sums is not None or len(stages) > (disclosure is not None):
            return None
        if disclosure is not None and disclosure.fixed is not None:
            return None  # its kernel draws anew in every round
        try:
            model = Model(shared, private)
            found = self.method.run_rounds(model, self.clients, self.ring, disclosure, self.key, rounds)
        except DivergedError:
            return None  # nothing was moved; one by one, the rounds show whose numbers do not fit
        if found is None:
            return None
        release, times = found
        self.traffic.add(slice(None), release, times, download_bytes(self.method, shared))
        return shared

    def one(self, shared: dict[str, Array], number: int) -> dict[str, Array]:
        """Run one round: ask, let those who answer learn, add what fits, apply the sum."""
        share = self.path.budget_share(shared)
        if self.path.privacy is not None and not share:
            return shared  # there is nothing more to learn for this budget
        who: Attendance | None = None  # all clients
        if (
            not self.rules.is_failure_free
            or self.schedule.clients_per_round < len(self.clients)
            or self.sums is not None
        ):
            lottery = None if self.sums is None else self.sums.lottery
            drawn = None if lottery is None else lottery.draw_participants(number)
            who = draw_attendance(self.schedule, self.rules, self.key, number, len(self.clients), drawn)
            if is_abandoned(who, self.rules) or self._lacks_noise(who):
                self._lose(who.asked, shared)
                return shared
        if self.path.privacy is not None:
            self.budgets.debit(None if who is None else who.answered, share)
        weighing = None
        if self.scales is not None and who is not None:
            weighing = self._weighing(self.scales, shared, who.answered, number)
        round_ = AskedRound(number, shared, weighing)
        if who is None:
            answers = [self.collector.collect(round_, None)]
        elif self.sums is None:
            answers = [self.collector.collect(round_, cohort.answered) for cohort in self._cohorts(who, number)]
        else:
            answers = self._sum_securely(self.sums, round_, self._cohorts(who, number))
        self.engine.settle([answer.ticket for answer in answers])
        if not answers:
            self._lose(np.arange(len(self.clients)) if who is None else who.asked, shared)
            return shared
        if who is not None and len(who.answered) < len(who.asked):
            self._lose(np.setdiff1d(who.asked, who.answered, assume_unique=True), shared)
        for answer in answers:
            self._note(answer, shared)
        totals = [answer.total for answer in answers]
        total = totals[0]
        if self.rules.robust is not None:
            total = combine_groups(totals, self.rules.robust)
        else:
            for other in totals[1:]:
                total.add_total(other)
        path = self.path
        n_asked = None
        if path.privacy is not None:
            n_asked = len(self.clients) if who is None else len(who.asked)
            total = self._add_noise(path.privacy, total, share, number, who)
        with server_threads(self.engine.n_cores):
            return dict(server_round(path, shared, total, n_asked))

    def _cohorts(self, who: Attendance, number: int) -> list[Attendance]:
        """Cut a round into cohorts that have a sum each: groups of a robust rule, or clients of a coordinator."""
        if self.rules.robust is not None:
            groups = assign_groups(who.answered, self.rules.robust, self.key.child("groups", number))
            return [Attendance(who.asked if len(groups) == 1 else group, group) for group in groups]
        if self.sums is None:
            return [who]
        asked = self.sums.config.assign(who.asked, len(self.clients))
        return [Attendance(some, np.intersect1d(some, who.answered, assume_unique=True)) for some in asked]

    def _lacks_noise(self, who: Attendance) -> bool:
        """Whether so many clients dropped out that the noise of the others would fall short."""
        privacy = self.path.privacy
        return privacy is not None and len(who.answered) < privacy.n_needed(len(who.asked))

    def _add_noise(
        self, privacy: DifferentialPrivacy, total: Total, share: float, number: int, who: Attendance | None
    ) -> Total:
        """Add the noise that devices, or the server, would add, and note what the sum reveals of each client.

        Clients whose numbers do not fit add zeros: how many there are depends on what they did.
        """
        n_all = len(self.clients)
        n_asked, n_summed = (n_all, n_all) if who is None else (len(who.asked), len(who.answered))
        total = replace(total, n_clients=n_summed)
        if self.options.privacy_log is not None:
            log = NoisyRound(
                number,
                privacy.event(share, f"round {number + 1}", n_asked, total.shapes),
                share,
                n_asked,
                n_summed,
                None if who is None else who.answered,
                float(np.sqrt(privacy.variance(share, n_asked, n_summed))),
                root_mean_square(total, self.ring),
            )
            self.options.privacy_log.rounds.append(log)
        if self.options.noise_shares is not None:
            answered = np.arange(len(self.clients)) if who is None else who.answered
            sources = [self.options.noise_shares(number, int(self.clients.ids[client])) for client in answered]
            return add_noise_shares(total, privacy, share, n_asked, sources)
        return privacy.add_noise(total, share, n_asked, SimulatedNoise(self.key.child("noise", number)))

    def _lose(self, lost: NDArray[np.int64], shared: dict[str, Array]) -> None:
        self.traffic.lost[lost] += 1
        self.traffic.bytes_down[lost] += download_bytes(self.method, shared)

    def _sum_securely(self, sums: SecureSums, here: AskedRound, cohorts: Sequence[Attendance]) -> list[RoundAnswers]:
        """Return what secure sums show of each cohort; one of which too few remain is not there."""
        key, found, given_up = self.key.child("fates", here.number), [], []
        for cohort in cohorts:
            asked = cohort.asked
            dropouts = DropoutPlan.draw(sums.config, asked, cohort.answered, self.rules.dropout, key)
            answers = self.collector.collect(here, dropouts.summed)
            lost = self.collector.collect(here, dropouts.between)
            if self.path.privacy is None:  # with a guarantee, who has nothing that fits adds zeros, and is there
                dropouts = dropouts.without(np.concatenate([*answers.refused, *lost.refused, asked[:0]]))
            try:
                if sums.config.mode == "protocol":
                    pending = PendingMessages({**answers.messages.by_client, **lost.messages.by_client})
                    shapes = self.method.shapes(here.shared)
                    outcome = sums.protocol(pending, here.shared, shapes, dropouts, here.number)
                else:
                    counted = {name: counts + lost.mentions[name] for name, counts in answers.mentions.items()}
                    outcome = sums.exact(answers.total, counted if sums.config.two_stage else None, dropouts)
            except AbortedError:
                given_up.append(cohort.answered)
                continue
            found.append(self._replace_by_masked(answers, outcome))
        for answered in given_up if found else ():  # without any sum, the whole round is lost
            self._lose(answered, here.shared)
        return found

    def _replace_by_masked(self, answers: RoundAnswers, outcome: SecureSumOutcome) -> RoundAnswers:
        """Put what a secure sum shows in the place of the plain sum, and the bytes it took in that of the rows'."""
        all_clients, up = np.arange(len(self.clients)), dict(outcome.up)
        sent = []
        for positions, release in answers.sent:
            self.traffic.masked[positions] += 1
            size = np.array([up.pop(int(client), 0) for client in all_clients[positions]], np.int64)
            sent.append((positions, replace(release, bytes=size)))
        for client, n_bytes in up.items():
            self.traffic.bytes_up[client] += n_bytes
        for client, n_bytes in outcome.down.items():
            self.traffic.bytes_down[client] += n_bytes
        return replace(answers, total=outcome.total, sent=sent)

    def _weighing(
        self, scales: ClientWeighting, shared: dict[str, Array], who: NDArray[np.int64], number: int
    ) -> Stage:
        """Weigh those who answer; a client that must learn to be measured learns the same again afterwards."""

        def learnt() -> Iterator[tuple[Array, Update]]:
            _, answers = self.engine.ask(ShardRequest(number, who, by_message=True, is_bare=True), shared)
            self.engine.settle([])
            for positions, message in (part for answer in answers for part in answer.messages):
                fit = np.isin(self.clients.ids[positions], message.clients)
                yield positions[fit], message.read(self.ring)

        weighed = scales.weigh(who, self.traffic.rounds, self.traffic.lost, learnt, number)
        self.traffic.bytes_up[who] += scales.bytes_each(self.ring)
        self.traffic.bytes_down[who] += scales.bytes_each(self.ring)
        return scales.stage(who, weighed)

    def _note(self, answers: RoundAnswers, shared: dict[str, Array]) -> None:
        for positions, release in answers.sent:
            self.traffic.add(positions, release, 1, download_bytes(self.method, shared))
        for positions in answers.refused:
            self.traffic.refused[positions] += 1
            self.traffic.bytes_down[positions] += download_bytes(self.method, shared)


def _needs_messages(method: Federated, options: SimulationOptions) -> bool:
    """Whether sums of cohorts do not suffice: events, adversaries, or counts of clients per row are needed."""
    if options.reference or options.events is not None or options.adversaries is not None:
        return True
    secure = options.secure
    return secure is not None and (secure.mode == "protocol" or (secure.two_stage and method.spec.rows_repeat))


def _refuse_if_diverged(method: Federated, shared: dict[str, Array], learnt: Mapping[str, float], number: int) -> None:
    """Refuse a model with a number that is too large; `learnt` are the largest ones of private arrays."""
    config = getattr(method, "config", None)
    rate = getattr(config, "learning_rate", None)
    limit = np.inf if rate is None else DIVERGENCE_LIMIT  # without steps, sums over many clients are large and right
    sums = (float(np.abs(shared[name]).max(initial=0.0)) for name in method.spec.downloads)
    for largest in (*sums, *learnt.values()):
        if not largest < limit:
            raised = [name for name in ("own_rate", "server_rate") if getattr(config, name, 1.0) > 1]
            raised += ["server_momentum"] if getattr(config, "server_momentum", 0.0) else []
            raise DivergedError(
                f"Learning diverged in pass {number + 1}: a learnt number reached {largest:.3g}.",
                f"Updates are summed over clients, so a step that suits one is too large for many: lower "
                f"method.learning_rate{'' if rate is None else f' (now {rate:g})'}"
                f"{''.join(f', method.{name}' for name in raised)} or method.clients_per_round.",
            )
