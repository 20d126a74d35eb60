"""What a device does now: one code, read from its file and from whether a program takes part with it.

The page, `tacit device status` and the background service all show this state and no other, so that what a user reads
is what is the case.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from tacit.field.device.device import Device
from tacit.field.device.link_record import LinkRecord
from tacit.field.device.proposals import was_declined
from tacit.languages import format_moment, translate
from tacit.languages.sentences import localise
from tacit.plain_text import strip_controls
from tacit.wire.network import read_network
from tacit.wire.status import CoordinatorStatus, describe_duration

SPENT = 0.995  # share of a privacy budget from which on no exchange fits into it


class DeviceStateCode(StrEnum):
    """Stable names of what a device does."""

    NOT_JOINED = "not-joined"
    NO_SERVER = "no-server"
    PAUSED = "paused"
    NOT_RUNNING = "not-running"
    FAILED = "failed"
    CONNECTING = "connecting"
    UNREACHABLE = "unreachable"
    REVOKED = "revoked"
    LIMITED = "limited"
    BUDGET_SPENT = "budget-spent"
    SITS_OUT = "sits-out"
    UNWILLING = "unwilling"
    ASKS = "asks"
    DECLINED = "declined"
    WAITING = "waiting-for-others"
    BETWEEN = "between-exchanges"
    EXCHANGING = "exchanging"
    TAKING_PART = "taking-part"
    FINISHED = "finished"
    PART_DONE = "part-done"
    AMONG_PEERS = "among-peers"
    PEER_NOT_RUNNING = "peer-not-running"


GOOD = {
    *(DeviceStateCode.BETWEEN, DeviceStateCode.EXCHANGING, DeviceStateCode.TAKING_PART),
    *(DeviceStateCode.AMONG_PEERS,),
}
CALM = {
    *(DeviceStateCode.NOT_JOINED, DeviceStateCode.NO_SERVER, DeviceStateCode.CONNECTING, DeviceStateCode.WAITING),
    *(DeviceStateCode.FINISHED, DeviceStateCode.PART_DONE),
}
BADGES = {
    DeviceStateCode.NOT_JOINED: "Not connected",
    DeviceStateCode.NO_SERVER: "No server",
    DeviceStateCode.PAUSED: "Paused",
    DeviceStateCode.NOT_RUNNING: "Not running",
    DeviceStateCode.FAILED: "Stopped",
    DeviceStateCode.CONNECTING: "Connecting",
    DeviceStateCode.UNREACHABLE: "No connection",
    DeviceStateCode.REVOKED: "Removed",
    DeviceStateCode.LIMITED: "Waiting: your limits",
    DeviceStateCode.BUDGET_SPENT: "Budget used up",
    DeviceStateCode.SITS_OUT: "Waiting: restored copy",
    DeviceStateCode.UNWILLING: "Not sending",
    DeviceStateCode.ASKS: "Needs your answer",
    DeviceStateCode.DECLINED: "Not taking part",
    DeviceStateCode.WAITING: "Waiting for others",
    DeviceStateCode.BETWEEN: "Taking part",
    DeviceStateCode.EXCHANGING: "Exchanging now",
    DeviceStateCode.TAKING_PART: "Taking part",
    DeviceStateCode.FINISHED: "Finished",
    DeviceStateCode.PART_DONE: "Your part is done",
    DeviceStateCode.AMONG_PEERS: "Taking part",
    DeviceStateCode.PEER_NOT_RUNNING: "Not running",
}


@dataclass(frozen=True)
class DeviceState:
    """What a device does now, and the facts that go with it."""

    code: DeviceStateCode
    to: str = ""  # the server, in words
    since: float | None = None  # unix seconds: of a connection that is lost
    last_exchange: float | None = None  # unix seconds
    status: CoordinatorStatus | None = None  # what the server said last, while it is reached
    why: str = ""
    has_model: bool = False
    is_new: bool = False  # it was in no sum yet, and waits until enough devices are that
    suggests_alone: bool = False  # it has no model, and enough of its own to suggest something

    @property
    def badge(self) -> str:
        """The state in one or two words."""
        return translate(BADGES[self.code])

    @property
    def tone(self) -> str:
        """Whether all is well: good, nothing in particular (empty), or warn."""
        return "good" if self.code in GOOD else "" if self.code in CALM else "warn"

    @property
    def missing(self) -> int:
        """How many devices more must connect before the next exchange."""
        if self.status is None:
            return 0
        return self.status.new_missing if self.is_new else self.status.missing

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        found = {"state": str(self.code), "badge": self.badge, "sentence": self.describe()}
        times = {"since": self.since, "last_exchange": self.last_exchange, "missing": self.missing}
        return found | times | {"has_model": self.has_model, "why": localise(self.why)}

    def describe(self) -> str:
        """Return the state in sentences: what is the case, and what it means."""
        return " ".join(part for part in (translate(self._sentence, **self._facts()), self._about_model()) if part)

    @property
    def _sentence(self) -> str:
        return _NEW if self.is_new else _SENTENCES[self.code]

    def _facts(self) -> dict[str, str]:
        status = self.status or CoordinatorStatus("waiting")
        last = (
            "" if self.last_exchange is None else " " + translate("Last exchange: {ago}.", ago=ago(self.last_exchange))
        )
        return {
            "to": self.to or translate("the server"),
            "since": "" if self.since is None else format_moment(datetime.fromtimestamp(self.since)),
            "last": last,
            "why": localise(self.why),
            "here": str(status.new_here if self.is_new else status.here),
            "needed": str(status.new_needed if self.is_new else status.needed),
            "missing": translate("1 more is") if self.missing == 1 else translate("{n} more are", n=self.missing),
            "seconds": describe_duration(status.seconds),
        }

    def _about_model(self) -> str:
        if self.code in (DeviceStateCode.NOT_JOINED, *GOOD):
            return ""
        if self.has_model:
            return ""
        if self.suggests_alone:
            return translate(
                "Until the first exchange, suggestions follow your own history and what the catalogue says."
            )
        return translate("There are no suggestions before the first exchange.")


_NEW = "Connected. {here} of {needed} new devices are there; {missing} needed before you take part.{last}"
_SENTENCES = {
    DeviceStateCode.NOT_JOINED: "You have not joined a group. Nothing is sent.",
    DeviceStateCode.NO_SERVER: "You joined with a file that names no server, so this device exchanges nothing.",
    DeviceStateCode.PAUSED: "You paused: nothing is sent until you resume.{last}",
    DeviceStateCode.NOT_RUNNING: (
        "No program takes part for you now, so nothing is sent.{last} Open your page (tacit device --page), or start "
        "tacit device run."
    ),
    DeviceStateCode.FAILED: "Taking part stopped because of an error: {why} Nothing is sent. It is tried again.",
    DeviceStateCode.CONNECTING: "Connecting to {to}.",
    DeviceStateCode.UNREACHABLE: (
        "No connection since {since}. {why} It is tried again by itself; nothing is sent meanwhile.{last}"
    ),
    DeviceStateCode.REVOKED: (
        "{to} does not accept this device: its operator removed it, or never knew it. Nothing is sent. To go on, "
        "leave, ask for a new invitation and join again.{last}"
    ),
    DeviceStateCode.LIMITED: "Not taking part for now, because of a limit that you set. {why} It goes on by itself.",
    DeviceStateCode.BUDGET_SPENT: (
        "Your privacy budget for this group is used up: nothing more is sent. Suggestions go on.{last}"
    ),
    DeviceStateCode.SITS_OUT: (
        "This device was restored from a copy. It stays silent for the first exchanges, so that it cannot contradict "
        "what it sent before."
    ),
    DeviceStateCode.UNWILLING: (
        "{to} asks for messages that it could read on their own, and you send only what is mixed with others. So "
        "nothing is sent.{last}"
    ),
    DeviceStateCode.ASKS: (
        "{to} wants to learn from you in another way. Nothing is sent until you say yes; your suggestions "
        "stay as they are.{last}"
    ),
    DeviceStateCode.DECLINED: (
        "{to} learns in another way now, and you said no. Nothing is sent; your suggestions stay as they are. You can "
        "still say yes.{last}"
    ),
    DeviceStateCode.WAITING: (
        "Connected. {here} of {needed} devices are there; {missing} needed before anything is exchanged.{last}"
    ),
    DeviceStateCode.BETWEEN: "Connected. The next exchange is in about {seconds}.{last}",
    DeviceStateCode.EXCHANGING: "Connected, and an exchange is running.{last}",
    DeviceStateCode.TAKING_PART: "Connected.{last}",
    DeviceStateCode.FINISHED: "This group has finished: there are no more exchanges.{last}",
    DeviceStateCode.PART_DONE: (
        "Connected. Your part is done: someone whose messages were mixed with yours has left, and nothing more of "
        "yours is needed or sent. You go on getting suggestions and new models.{last}"
    ),
    DeviceStateCode.AMONG_PEERS: "A program takes part in {to} for you: models go from peer to peer, without a server.",
    DeviceStateCode.PEER_NOT_RUNNING: (
        "No program takes part for you now, so nothing is sent. Open your page (tacit device --page), or start tacit "
        "peer run."
    ),
}


_FOLLOWS = (DeviceStateCode.BETWEEN, DeviceStateCode.EXCHANGING, DeviceStateCode.TAKING_PART)


def read_state(device: Device, failure: str = "") -> DeviceState:
    """Return what a device does now; `failure`: why the program that should take part does not."""
    member, participation = device.membership, device.participation
    if member is None and (content := device.store.get("network")) is not None:
        return _read_peer_state(device, read_network(content)[0].title, failure)
    if member is None:
        return DeviceState(DeviceStateCode.NOT_JOINED)
    link = participation.link
    code, why = _decide(device, link, failure)
    is_new = code in _FOLLOWS and link is not None and _waits_as_new(device, link.status)
    if is_new:
        code = DeviceStateCode.WAITING
    return DeviceState(
        code,
        strip_controls(member.address or member.federation.title),
        None if link is None or code not in (DeviceStateCode.UNREACHABLE, DeviceStateCode.REVOKED) else link.since,
        participation.last_exchange,
        link.status if link is not None and link.kind == "connected" else None,
        why,
        member.model() is not None,
        is_new,
        device.suggests_alone,
    )


def _read_peer_state(device: Device, title: str, failure: str) -> DeviceState:
    """Return what a member of a network of peers does now."""
    code, why = DeviceStateCode.AMONG_PEERS, ""
    if device.sharing.paused:
        code = DeviceStateCode.PAUSED
    elif failure:
        code, why = DeviceStateCode.FAILED, failure
    elif not device.participation.is_running:
        code = DeviceStateCode.PEER_NOT_RUNNING
    return DeviceState(code, title, why=why, has_model=device.store.get("peer_models") is not None)


def _decide(device: Device, link: LinkRecord | None, failure: str) -> tuple[DeviceStateCode, str]:
    sharing, participation = device.sharing, device.participation
    if sharing.paused:
        return DeviceStateCode.PAUSED, ""
    if not device.connection:
        return DeviceStateCode.NO_SERVER, ""
    declined = was_declined(device.store)
    if declined is not None:
        return DeviceStateCode.DECLINED if declined else DeviceStateCode.ASKS, ""
    if not participation.is_running:
        return (DeviceStateCode.FAILED, failure) if failure else (DeviceStateCode.NOT_RUNNING, "")
    if link is not None and link.kind == "revoked":
        return DeviceStateCode.REVOKED, link.why
    if _is_budget_spent(device):
        return DeviceStateCode.BUDGET_SPENT, ""
    obstacle = participation.find_obstacle(sharing)
    if obstacle is not None:
        return DeviceStateCode.LIMITED, obstacle.message
    if link is None or link.kind == "connecting":
        return DeviceStateCode.CONNECTING, ""
    if link.kind == "unreachable":
        return DeviceStateCode.UNREACHABLE, link.why
    if link.kind == "failed":
        return DeviceStateCode.FAILED, link.why
    if participation.sits_out_until is not None:
        return DeviceStateCode.SITS_OUT, ""
    if link.kind == "refusing" and sharing.masked_only:
        return DeviceStateCode.UNWILLING, link.why
    code = _say_status(link.status)
    if code != DeviceStateCode.FINISHED and device.has_ended:
        return DeviceStateCode.PART_DONE, ""
    return code, ""


def _say_status(status: CoordinatorStatus | None) -> DeviceStateCode:
    if status is None:
        return DeviceStateCode.TAKING_PART
    if status.phase == "waiting":
        return DeviceStateCode.WAITING if status.missing else DeviceStateCode.TAKING_PART
    codes = {
        "pause": DeviceStateCode.BETWEEN,
        "round": DeviceStateCode.EXCHANGING,
        "finished": DeviceStateCode.FINISHED,
    }
    return codes[status.phase]


def _waits_as_new(device: Device, status: CoordinatorStatus | None) -> bool:
    """Say whether a device that was in no sum yet waits for others like it, while those of a batch take part."""
    return status is not None and not status.missing and bool(status.new_missing) and device.sum_exposure is None


def _is_budget_spent(device: Device) -> bool:
    budget = None if device.membership is None else device.budgets.of(device.membership.federation)
    return budget is not None and budget.used(device.sharing.most_epsilon) > SPENT


def ago(moment: float, now: float | None = None) -> str:
    """Return how long ago a moment was.

    >>> ago(1000.0, 1010.0), ago(1000.0, 1600.0), ago(0.0, 172_800.0)
    ('a moment ago', '10 minutes ago', '2 days ago')
    """
    seconds = (time.time() if now is None else now) - moment
    if not math.isfinite(seconds) or seconds < 60:
        return translate("a moment ago")
    return translate("{duration} ago", duration=describe_duration(seconds))
