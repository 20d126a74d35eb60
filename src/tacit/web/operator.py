"""The operator's page: rounds as they happen, as counts. It has nothing about a single user or device.

What the page knows is `FederationStatus`, and that has no place for a device. It is read from the coordinator's
journal, which holds nothing of what a single device sent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tacit.field.coordinator import CoordinatorJournal, RoundRules
from tacit.field.coordinator.journal import ModelVersion
from tacit.field.coordinator.round_log import RoundRecord
from tacit.field.coordinator.round_policy import count_needed, count_new, fewest, is_settled
from tacit.field.coordinator.round_stats import RoundStats, SummedQuality
from tacit.field.coordinator.spending import LACK_OF_NOISE, NoisySum, find_epsilon
from tacit.field.coordinator.strikes import Strikes
from tacit.field.device.quality import SHOWN
from tacit.field.operator_sentences import describe_trial, describe_unagreed
from tacit.protocols.secure_aggregation.two_stage import SecureAggregationConfig
from tacit.reasons import Description, ReasonCode, RoundReason, describe_reason
from tacit.web import phases
from tacit.web.device_view import RowsPage
from tacit.web.frame import application, page_response
from tacit.web.server import Page
from tacit.web.words import format_percent
from tacit.wire.federation import Federation

PAGE, DRAWN = 20, 60  # rounds in the table, rounds in the figure
MANY_LOST, MANY_REFUSED = 0.3, 0.05  # shares of those asked in the last rounds
MANY_SKIPPED = 0.5  # share of the last rounds
LATELY = 10  # rounds
NOBODYS = SummedQuality(0, 0)


@dataclass(frozen=True)
class Alert:
    """A problem that needs the operator's attention, and what to do."""

    what: str
    todo: str


@dataclass(frozen=True)
class FederationStatus:
    """The state of a federation: counts and terms."""

    federation: Federation
    items: int
    rules: RoundRules
    rounds: Sequence[RoundRecord]
    enrolled: int
    revoked: int
    present: int
    courses: Mapping[int, RoundStats] = field(default_factory=dict)  # of the last rounds
    versions: Sequence[ModelVersion] = ()
    quality: SummedQuality = NOBODYS  # over the last rounds that have one
    settled: bool = False  # from now on under masks only
    strikes: Sequence[Strikes] = ()  # of devices that sent what no honest device sends
    sums: Sequence[NoisySum] = ()  # with noise, whose vectors were asked for
    unagreed: int = 0  # devices that have sent nothing since the method was replaced
    new: tuple[int, int] = (0, 0)  # devices that are in no batch, and how many a new one takes
    is_done: bool = False  # the method has made all sums that privacy budgets pay for

    @classmethod
    def of(cls, journal: CoordinatorJournal, rules: RoundRules, present: int) -> FederationStatus:
        """Read it from a journal; of devices only counts are stored, but for those with strikes."""
        revoked = [device.revoked for device in journal.members.devices()]
        enrolled = len(revoked) - sum(revoked)
        rounds, items = [_public(happened) for happened in journal.rounds.records()], journal.catalog.n_items
        courses = journal.rounds.stats(rounds[-DRAWN:][0].number if rounds else 0)
        counts = enrolled, sum(revoked), present
        quality, settled = journal.rounds.quality(LATELY), is_settled(rules, journal)
        status = cls(journal.federation, items, rules, rounds, *counts, courses, quality=quality, settled=settled)
        new = count_new(rules, journal)
        strikes, sums, unagreed = journal.strikes.by_device(), journal.sums.spendings(), len(journal.members.unagreed)
        return replace(status, strikes=strikes, sums=sums, new=new, unagreed=unagreed)

    @property
    def state(self) -> str:
        """A string that changes when any field changes."""
        counts = self.enrolled, self.revoked, self.present, self.unagreed
        seen = repr((self.rounds[-1:], len(self.rounds), *counts, self.strikes))
        return hashlib.sha256(seen.encode()).hexdigest()[:16]

    @property
    def model(self) -> int | None:
        """The round whose model is in force."""
        return next((happened.number for happened in reversed(self.rounds) if happened.state == "finished"), None)

    @property
    def spent(self) -> float:
        """The share of its privacy budget that a device has spent that was in every sum."""
        return sum(one.share for one in self.sums)

    @property
    def without_noise(self) -> int:
        """The number of rounds that were abandoned because their noise would have fallen short."""
        if self.federation.privacy is None:
            return 0
        return sum(one.reason is not None and one.reason.code == LACK_OF_NOISE for one in self.rounds)

    def epsilon(self, until: int | None = None) -> float | None:
        """Return what all sums, or those until a round, reveal about a device; none without a guarantee."""
        agreed = self.federation.privacy
        return None if agreed is None else find_epsilon(self.sums, agreed.delta, until)

    @property
    def lately(self) -> list[RoundStats]:
        """The last rounds."""
        return [self.courses[happened.number] for happened in self.rounds[-LATELY:] if happened.number in self.courses]

    @property
    def chance(self) -> float:
        """The expected quality of random lists."""
        return min(1.0, SHOWN / max(1, self.items))

    def alerts(self) -> list[Alert]:
        """Return what needs attention."""
        found, last = [], self.rounds[-LATELY:]
        least = count_needed(self.rules, self.settled)
        if self.present < least and not self.is_done:
            waiting = f"{self.present} of {least} devices are here; the next round waits for more."
            by_rules = least == max(self.rules.quorum, self.rules.minimum)
            todo = ", or lower rounds.quorum." if by_rules else ": secure aggregation needs this many."
            found.append(Alert(waiting, "Enrol more (tacit enroll)" + todo))
        if 0 < self.new[0] < self.new[1]:
            wait = "device is in no batch and waits" if self.new[0] == 1 else "devices are in no batch and wait"
            waiting = f"{self.new[0]} enrolled {wait}: a new batch takes {self.new[1]}."
            todo = f"Enrol {self.new[1] - self.new[0]} more (tacit enroll). Those who wait have the model meanwhile."
            found.append(Alert(waiting, todo))
        if self.unagreed:
            todo = "Ask them to answer: on their page, or with tacit device change. A batch waits for all its devices."
            found.append(Alert(describe_unagreed(self.unagreed), todo))
        asked = sum(happened.asked for happened in last) or 1
        lost, refused = (sum(getattr(happened, name) for happened in last) / asked for name in ("lost", "refused"))
        if lost > MANY_LOST and not self.unagreed:
            text = f"{format_percent(lost)} of the devices asked in the last {len(last)} rounds did not answer."
            worst = max(phases.summarise_phases(self.lately), key=lambda text: text.phase.lost, default=None)
            where = (
                "" if worst is None or not worst.stage else f" Most were lost in {worst.stage.lower()}, {worst.name}."
            )
            usual = "Give them longer (rounds.deadline) or ask more of them (rounds.over_selection)."
            found.append(Alert(text + where, worst.remedy if worst is not None and where else usual))
        if refused > MANY_REFUSED:
            text = (
                f"{format_percent(refused)} of the answers in the last {len(last)} rounds "
                "were refused as malformed or repeated."
            )
            found.append(
                Alert(text, "Some devices run another version, are faulty or are adversaries. The log has the reasons.")
            )
        skipped = [happened for happened in last if happened.state == "skipped"]
        if len(skipped) > len(last) * MANY_SKIPPED:
            why = describe_round(skipped[-1])
            text = f"{len(skipped)} of the last {len(last)} rounds were skipped: no device was asked."
            found.append(Alert(text if why is None else f"{text} {why.what}", self._shifts()))
        if last and last[-1].state == "abandoned":
            fewer = {"answered": last[-1].answered, "needed": self.rules.minimum}
            why = describe_round(last[-1]) or describe_reason(RoundReason(ReasonCode.TOO_FEW_ANSWERS, fewer))
            text = f"Round {last[-1].number} was abandoned. {why.what} {why.meaning}"
            found.append(Alert(text, why.remedy))
        readable = [happened for happened in last if happened.asked and not happened.masked]
        if readable:
            text = f"In {len(readable)} of the last {len(last)} rounds you could read each answer."
            found.append(Alert(text, "Remove rounds.readable, and no round is readable again."))
        elif self.rules.readable and not self.settled:
            found.append(Alert("Rounds may be readable: you could then read each answer.", "Remove rounds.readable."))
        if self.federation.trial is not None:
            text = describe_trial(self.federation.trial)
            found.append(Alert(text, "For more than tests, found a federation without trial in another folder."))
        is_masked = isinstance(self.rules.secure, SecureAggregationConfig) or self.federation.privacy is not None
        if self.rules.minimum < 2 and not is_masked:
            text = "A round may have a single answer, which the coordinator can then read in the sum."
            found.append(Alert(text, "Raise rounds.minimum."))
        if self.quality.people and phases.interval(self.quality)[1] < self.chance:
            text = f"Only {self.quality.hits} of {self.quality.people} users had their newest item in their list."
            found.append(Alert(text, "That is worse than random lists: check the method's options."))
        return found

    def _shifts(self) -> str:
        """Return advice on how many devices to ask in a round, so that others are eligible in the next."""
        least, shifts = fewest(self.rules), self.rules.device_policy.cool_down + 1
        size = max(least, self.enrolled // shifts)
        todo = f"Ask {size} of your devices per round (rounds.clients_per_round={size})"
        if size * shifts <= self.enrolled:
            return f"{todo}, and every round has enough eligible devices."
        enough = f"from {least * shifts} devices on every round has enough eligible ones"
        return f"{todo}; {enough}, with fewer some rounds are skipped."

    def terms(self) -> list[tuple[str, str]]:
        """Return the settings in force that matter for privacy, in words."""
        return [
            ("method", self.federation.method),
            ("catalogue", f"{self.items:,} items"),
            ("what a user shares", "set by each user on their device; not known here"),
            ("norm of messages", _bounds(self.federation)),
            ("differential privacy", _guarantee(self.federation)),
            ("answers", _answers(self.rules, self.federation)),
            ("sums", f"whole numbers of {self.federation.ring.bits} bits; independent of the order of arrival"),
            ("quality", _describe_quality(self.rules, self.federation)),
            ("robust rule", "none" if self.rules.robust is None else self.rules.robust.rule),
            ("answers wanted", "from all connected devices" if not self.rules.clients_per_round else
             f"{self.rules.clients_per_round:,} per round"),
            ("fewest answers", f"{self.rules.minimum:,}"),
            ("deadline for answers",  f"{self.rules.deadline:g} s in every phase"),
        ]  # fmt: skip


def describe_round(happened: RoundRecord) -> Description | None:
    """Return the reason of a round in words; none if an old journal does not have it."""
    return None if happened.reason is None else describe_reason(happened.reason)


def _public(happened: RoundRecord) -> RoundRecord:
    return happened if happened.reason is None else replace(happened, reason=happened.reason.public())


def _is_done(journal: CoordinatorJournal) -> bool:
    """Whether the model in force says that no sum is left."""
    model = None if journal.federation.privacy is None else journal.model()
    return model is not None and not journal.federation.path().budget_share(model)


def _bounds(federation: Federation) -> str:
    clip = "" if federation.clip is None else f"bounded on the device ({_options(federation.clip)})"
    if federation.guarantee is None:
        return clip or "not bounded"
    return f"{clip or 'bounded on the device'}; {federation.guarantee.bound:g} for all of it together"


def _guarantee(federation: Federation) -> str:
    agreed = federation.privacy
    if agreed is None:
        return "none: sums are exact"
    dropped, corrupted = format_percent(agreed.dropped), format_percent(agreed.corrupted)
    return (
        f"epsilon {agreed.epsilon:g}, delta {agreed.delta:g}; every device adds noise, enough if {dropped} drop out "
        f"and {corrupted} collude with the server"
    )


def _answers(rules: RoundRules, federation: Federation) -> str:
    if federation.privacy is not None and rules.secure == "auto":
        return "masked: only their noisy sum can be read"
    if rules.secure is None:
        return "readable one by one; added, and deleted after the round"
    if rules.secure == "auto":
        return "masked when enough devices are connected; until then readable one by one, added, and deleted"
    least = f"at least {rules.secure.n_min} participants"
    if rules.secure.two_stage:
        least += f", at least {rules.secure.k_min} behind each row"
    corrupted, dropped = format_percent(rules.secure.corrupted), format_percent(rules.secure.dropped)
    shares = f"{corrupted} may collude with the server, {dropped} may drop out"
    return f"masked: only their sum can be read ({least}; {shares})"


def _describe_quality(rules: RoundRules, federation: Federation) -> str:
    if federation.privacy is not None:
        return "not measured: it would spend privacy budgets"
    if rules.secure == "auto" and rules.robust is None:
        return f"summed in masked rounds, if at least {rules.device_policy.k_min} users have a new item"
    if not isinstance(rules.secure, SecureAggregationConfig) or not rules.secure.two_stage:
        return "not measured: a single answer would be readable (rounds.secure with two_stage sums it)"
    return f"summed in masked rounds, if at least {rules.secure.k_min} users have a new item"


def _options(config: Any) -> str:
    text = config.model_dump(mode="json", exclude={"name"}, exclude_none=True)
    return ", ".join(f"{name} {value}" for name, value in text.items())


def bars(rounds: Sequence[RoundRecord]) -> Markup:
    """Draw the last rounds: answered, refused and lost on top of each other."""
    last = rounds[-DRAWN:]
    most = max((happened.asked for happened in last), default=1) or 1
    width, parts = 600 / max(len(last), 12), []
    for place, happened in enumerate(last):
        bottom = 120.0
        for kind in ("answered", "refused", "called_off", "lost"):
            height = 112 * getattr(happened, kind) / most
            if not height:
                continue
            bottom -= height
            x, across = width * place + 1, max(width - 2, 1)
            place_and_size = f'x="{x:.1f}" y="{bottom:.1f}" width="{across:.1f}" height="{height:.1f}"'
            parts.append(f'<rect class="{kind.replace("_", "-")}" {place_and_size}/>')
    return Markup("".join(parts))


def operator_page(path: Path, rules: RoundRules, present: Callable[[], int]) -> Page:
    """Return the page of a coordinator, from its journal and the number of connected devices."""
    journal = CoordinatorJournal.open(path)
    read: dict[int | None, tuple[list[ModelVersion], bool]] = {}  # of the model in force: models are large

    def standing() -> FederationStatus:
        now = FederationStatus.of(journal, rules, present())
        if now.model not in read:
            read.clear()
            read[now.model] = journal.versions(), _is_done(journal)
        versions, is_done = read[now.model]
        return replace(now, versions=versions, is_done=is_done)

    async def view(request: Request) -> Response:
        now = standing()
        leaf = RowsPage.of(now.rounds[::-1], request.query_params.get("page", "1"), PAGE)
        one = request.query_params.get("round", "")
        asked = int(one) if one.isdecimal() and len(one) < 9 else None
        course = None if asked is None else journal.rounds.stats(asked, asked).get(asked)
        values: dict[str, Any] = {"now": now, "leaf": leaf, "bars": bars(now.rounds), "sums": _sums(now.rounds)}
        values |= {"one": None if course is None else asked, "shown": SHOWN, "curve": phases.curve(now.courses)}
        values["phases"] = phases.by_stage(phases.summarise_phases(now.lately if course is None else [course]))
        happened = next((one for one in now.rounds if one.number == asked), None) if course is not None else None
        values |= {"describe_round": describe_round, "why": None if happened is None else describe_round(happened)}
        values["asking"] = [one for one in now.rounds if one.asked]
        values["ends"] = phases.interval(now.quality) if now.quality.people else (0.0, 0.0)
        return page_response("operator.html", title=now.federation.title, **values)

    async def state(request: Request) -> Response:
        return JSONResponse({"state": standing().state})

    return Page(application([Route("/", view), Route("/state", state)]), {})


def _sums(rounds: Sequence[RoundRecord]) -> dict[str, float]:
    names = ("asked", "answered", "refused", "lost", "called_off", "bytes_up", "bytes_down", "seconds")
    return {name: sum(getattr(happened, name) for happened in rounds) for name in names}
