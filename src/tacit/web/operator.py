"""The operator's page: rounds as they happen, in counts. Nothing about a single person can be reached from it.

What the page knows is `Standing`, and that has no place for a device. It is read from the coordinator's journal, which
holds nothing of what a single device sent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tacit.coordinator import Journal, RoundRules
from tacit.coordinator.journal import Round
from tacit.runtimes.federation import Federation
from tacit.web.frame import application, shown
from tacit.web.person import Leaf
from tacit.web.server import Page

PAGE, DRAWN = 50, 60  # rounds in the table, rounds in the figure
MANY_LOST, MANY_REFUSED = 0.3, 0.05  # shares of those asked in the last rounds
LATELY = 10  # rounds


@dataclass(frozen=True)
class Alert:
    """Something that an operator should look at, and what to do."""

    what: str
    todo: str


@dataclass(frozen=True)
class Standing:
    """How a federation stands: counts and terms."""

    federation: Federation
    items: int
    rules: RoundRules
    rounds: Sequence[Round]
    enrolled: int
    revoked: int
    present: int

    @classmethod
    def of(cls, journal: Journal, rules: RoundRules, present: int) -> Standing:
        """Read it from a journal; devices are counted and forgotten."""
        revoked = [device.revoked for device in journal.devices()]
        enrolled = len(revoked) - sum(revoked)
        rounds = journal.rounds()
        return cls(journal.federation, journal.catalog.n_items, rules, rounds, enrolled, sum(revoked), present)

    @property
    def state(self) -> str:
        """A word that changes when anything here does."""
        seen = repr((self.rounds[-1:], len(self.rounds), self.enrolled, self.revoked, self.present))
        return hashlib.sha256(seen.encode()).hexdigest()[:16]

    @property
    def model(self) -> int | None:
        """The round whose model is in force."""
        return next((happened.number for happened in reversed(self.rounds) if happened.state == "finished"), None)

    def alerts(self) -> list[Alert]:
        """Return what needs attention."""
        found, last = [], self.rounds[-LATELY:]
        needed = max(self.rules.quorum, self.rules.minimum)
        if self.present < needed:
            waiting = f"{self.present} of {needed} devices are here; the next round waits for more."
            found.append(Alert(waiting, "Enrol more (tacit enroll), or lower rounds.quorum."))
        asked = sum(happened.asked for happened in last) or 1
        lost, refused = (sum(getattr(happened, name) for happened in last) / asked for name in ("lost", "refused"))
        if lost > MANY_LOST:
            told = f"{lost:.0%} of the devices asked in the last {len(last)} rounds did not answer."
            found.append(Alert(told, "Give them longer (rounds.deadline) or ask more of them (rounds.over_selection)."))
        if refused > MANY_REFUSED:
            told = f"{refused:.0%} of the answers in the last {len(last)} rounds were refused as malformed or double."
            found.append(Alert(told, "Devices of another version, or somebody who lies: see the log for reasons."))
        if last and last[-1].state == "abandoned":
            told = f"Round {last[-1].number} was abandoned: fewer than {self.rules.minimum} answers."
            found.append(Alert(told, "Nothing was lost. If it goes on, lower rounds.minimum or wait for more devices."))
        if self.rules.minimum < 2 and self.rules.secure is None:
            told = "A round may be the sum of a single device's answer, which is no sum at all."
            found.append(Alert(told, "Raise rounds.minimum."))
        return found

    def terms(self) -> list[tuple[str, str]]:
        """Return the settings in force that privacy depends on, in words."""
        clip = self.federation.clip
        return [
            ("method", self.federation.method),
            ("catalogue", f"{self.items:,} items"),
            ("what a person shares", "her own decision, on her device; not known here"),
            ("length of what leaves", "not bounded" if clip is None else "bounded on the device (clip)"),
            ("answers", _answers(self.rules)),
            ("robust rule", "none" if self.rules.robust is None else self.rules.robust.rule),
            ("answers wanted", "of all who are there" if not self.rules.clients_per_round else
             f"{self.rules.clients_per_round:,} per round"),
            ("fewest answers", f"{self.rules.minimum:,}"),
        ]  # fmt: skip


def _answers(rules: RoundRules) -> str:
    if rules.secure is None:
        return "read one by one, added, and forgotten when the round is over"
    least = f"at least {rules.secure.n_min} people"
    if rules.secure.two_stage:
        least += f", at least {rules.secure.k_min} behind each row"
    return f"under masks: only their sum can be read ({least})"


def bars(rounds: Sequence[Round]) -> Markup:
    """Draw the last rounds: answered, refused and lost on top of each other."""
    last = rounds[-DRAWN:]
    most = max((happened.asked for happened in last), default=1) or 1
    width, parts = 600 / max(len(last), 12), []
    for place, happened in enumerate(last):
        bottom = 120.0
        for kind in ("answered", "refused", "lost"):
            height = 112 * getattr(happened, kind) / most
            bottom -= height
            x, across = width * place + 1, max(width - 2, 1)
            parts.append(
                f'<rect class="{kind}" x="{x:.1f}" y="{bottom:.1f}" width="{across:.1f}" height="{height:.1f}"/>'
            )
    return Markup("".join(parts))


def operator_page(path: Path, rules: RoundRules, present: Callable[[], int]) -> Page:
    """Return the page of a coordinator, from its journal and the number of devices that are there."""
    journal = Journal.open(path)

    def standing() -> Standing:
        return Standing.of(journal, rules, present())

    async def view(request: Request) -> Response:
        now = standing()
        leaf = Leaf.of(now.rounds[::-1], request.query_params.get("page", "1"), PAGE)
        told: dict[str, Any] = {"now": now, "leaf": leaf, "bars": bars(now.rounds), "sums": _sums(now.rounds)}
        return shown("operator.html", title=now.federation.name, **told)

    async def state(request: Request) -> Response:
        return JSONResponse({"state": standing().state})

    return Page(application([Route("/", view), Route("/state", state)]), {})


def _sums(rounds: Sequence[Round]) -> dict[str, float]:
    names = ("asked", "answered", "refused", "lost", "bytes_up", "bytes_down", "seconds")
    return {name: sum(getattr(happened, name) for happened in rounds) for name in names}
