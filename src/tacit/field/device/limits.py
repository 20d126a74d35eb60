"""A user's limits in time: rounds and bytes a day, hours, minutes between rounds, mains power, unmetered networks.

Round numbers are the coordinator's, the clock is the device's own. A round that has begun is finished, because a device
that falls out costs the others the sum; whatever is counted, is counted when it happens.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from tacit.errors import ConsentError
from tacit.field.device.metered import is_metered
from tacit.reasons import ReasonCode
from tacit.types import Config

DAY = 24 * 3600
NO_ROUND = -1  # a model that came without a request
FINISHING = 120  # seconds after a message during which the device stays for the next one of the same round
SUPPLIES = Path("/sys/class/power_supply")  # where Linux lists mains and batteries
_HOURS = re.compile(r"(\d{1,2})-(\d{1,2})")


class TimeLimits(Config):
    """When this device takes part at all. Nothing is limited by default."""

    rounds_per_day: int | None = Field(None, ge=0, description="most rounds in 24 hours")
    bytes_per_day: int | None = Field(None, ge=0, description="most bytes in 24 hours, received and sent")
    hours: str = Field("", description="hours of the day, local time, like 22-7; empty: all")
    pause_minutes: int = Field(0, ge=0, description="least minutes between the beginnings of two rounds")
    mains_only: bool = Field(False, description="only while the machine is on mains power")
    unmetered_only: bool = Field(False, description="only while the machine's connection is not metered")

    @field_validator("hours")
    @classmethod
    def _readable(cls, text: str) -> str:
        found = _HOURS.fullmatch(text)
        if text and (found is None or not all(int(hour) <= 24 for hour in found.groups()) or found[1] == found[2]):
            raise ValueError("hours are two different numbers from 0 to 24, like 22-7")
        return text

    def covers(self, now: datetime) -> bool:
        """Say whether an hour, local time, is one of these."""
        if not self.hours:
            return True
        begin, end = (int(hour) % 24 for hour in self.hours.split("-"))
        hour = now.astimezone().hour
        return begin <= hour < end if begin < end else hour >= begin or hour < end


@dataclass(frozen=True)
class RoundUse:
    """What a round took: when its first and last message came, and all its bytes."""

    task: str
    round: int
    begun: float  # unix seconds
    last: float
    bytes: int


def read_uses(stored: Any) -> list[RoundUse]:
    """Read the uses that a device keeps."""
    return [RoundUse(**use) for use in stored or ()]


def forget_future(uses: Sequence[RoundUse], now: float) -> list[RoundUse]:
    """Return uses as they are by a clock that was put back: what it has not reached yet happened now, at the latest.

    A clock that was a year ahead for an hour must not use up the days of a year; one that is put back frees no rounds.
    """
    return [replace(use, begun=min(use.begun, now), last=min(use.last, now)) for use in uses]


def add_use(uses: Sequence[RoundUse], task: str, number: int, now: float, n_bytes: int) -> list[dict[str, Any]]:
    """Return the uses of the last day with one more message, to be kept."""
    recent = [use for use in uses if now - use.last < DAY]
    same = next((use for use in recent if (use.task, use.round) == (task, number)), None)
    if same is None:
        recent.append(RoundUse(task, number, now, now, n_bytes))
    else:
        recent[recent.index(same)] = replace(same, last=now, bytes=same.bytes + n_bytes)
    return [asdict(use) for use in recent]


def refuse_beyond(
    limits: TimeLimits, uses: Sequence[RoundUse], task: str, number: int | None, now: datetime, n_bytes: int = 0
) -> None:
    """Refuse to begin a round that the limits forbid; `number` none: any round."""
    if not limits.covers(now):
        raise ConsentError.because(ReasonCode.OUTSIDE_HOURS)
    if limits.mains_only and is_on_mains() is not True:
        raise ConsentError.because(ReasonCode.NO_MAINS_POWER)
    if limits.unmetered_only and is_metered() is not False:
        raise ConsentError.because(ReasonCode.METERED_NETWORK)
    seconds = now.timestamp()
    recent = [use for use in uses if seconds - use.begun < DAY]
    others = [use for use in recent if (use.task, use.round) != (task, number) and use.round != NO_ROUND]
    if limits.rounds_per_day is not None and len(others) >= limits.rounds_per_day:
        raise ConsentError.because(ReasonCode.DAILY_ROUNDS, rounds=len(others))
    if limits.bytes_per_day is not None and sum(use.bytes for use in recent) + n_bytes > limits.bytes_per_day:
        raise ConsentError.because(ReasonCode.DAILY_BYTES)
    wait = limits.pause_minutes * 60
    if wait and any(seconds - use.begun < wait for use in others):
        raise ConsentError.because(ReasonCode.TOO_SOON)


def is_on_mains(supplies: Path | None = None) -> bool | None:
    """Say whether this machine runs on mains power; none where the system does not say."""
    online, batteries = list[bool](), list[bool]()
    for supply in sorted((supplies or SUPPLIES).glob("*")):
        kind = _word(supply / "type")
        if kind in ("Mains", "USB", "Wireless") and _word(supply / "online"):
            online.append(_word(supply / "online") != "0")
        elif kind == "Battery" and _word(supply / "scope") != "Device":  # not that of a mouse
            batteries.append(_word(supply / "status") == "Discharging")
    if online:
        return any(online)
    return not any(batteries) if batteries else None


def _word(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
