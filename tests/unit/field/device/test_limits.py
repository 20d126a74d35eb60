"""The limits of a device are its own: rounds and bytes a day, hours, pauses, mains power, metered networks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from helpers.hostile_sessions import EASY
from helpers.refusals import refused
from helpers.small_federation import PASSPHRASE, founded, made, request
from tacit.errors import ConfigError, ConsentError
from tacit.field.device import Device, Sharing, limits, metered
from tacit.field.device.limits import TimeLimits, is_on_mains
from tacit.field.device.metered import is_metered
from tacit.reasons import ReasonCode


class Watch:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = datetime(2026, 3, 1, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def move(self, **time: float) -> None:
        self.now += timedelta(**time)


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def device(tmp_path: Path, watch: Watch) -> Iterator[Device]:
    made(tmp_path / "device.db").close()
    with Device.open(tmp_path / "device.db", PASSPHRASE, watch) as device:
        device.share(Sharing(device_policy=EASY, masked_only=False))
        yield device


def limit(device: Device, **given: object) -> None:
    device.share(device.sharing.model_copy(update={"limits": TimeLimits.model_validate(given)}))


def answer(device: Device, number: int) -> int:
    return len(device.release(device.learn(request(founded(), number))))


def test_rounds_a_day(device: Device, watch: Watch) -> None:
    limit(device, rounds_per_day=2)
    answer(device, 0)
    watch.move(hours=1)
    answer(device, 1)
    answer(device, 1)  # the same round again is no other
    with refused(ConsentError, ReasonCode.DAILY_ROUNDS, rounds=2):
        answer(device, 1000)  # round numbers are the coordinator's
    watch.move(hours=23, seconds=1)
    answer(device, 1000)
    with refused(ConsentError, ReasonCode.DAILY_ROUNDS, rounds=2):
        answer(device, 1001)


def test_a_clock_that_is_put_back_gives_no_rounds_away(device: Device, watch: Watch) -> None:
    limit(device, rounds_per_day=1)
    answer(device, 0)
    watch.move(days=-3)
    with refused(ConsentError, ReasonCode.DAILY_ROUNDS, rounds=1):
        answer(device, 1)


def test_a_clock_that_was_a_year_ahead_uses_up_one_day_and_not_a_year(device: Device, watch: Watch) -> None:
    limit(device, rounds_per_day=1, pause_minutes=30)
    watch.move(days=366)
    answer(device, 0)
    watch.move(days=-366)
    with refused(ConsentError, ReasonCode.DAILY_ROUNDS, rounds=1):
        answer(device, 1)
    assert device.participation.find_obstacle(device.sharing) is None, "the last round may still be running"
    watch.move(hours=1)
    assert device.participation.find_obstacle(device.sharing) is not None
    watch.move(hours=23, seconds=1)
    answer(device, 1)


def test_bytes_a_day_count_what_comes_and_what_goes(device: Device, watch: Watch) -> None:
    size = len(request(founded(), 0)) + answer(device, 0)
    device.receive(request(founded(), 0, learn=False))
    limit(device, bytes_per_day=size + 2 * len(request(founded(), 0)))
    answer(device, 1)
    with refused(ConsentError, ReasonCode.DAILY_BYTES):
        answer(device, 2)
    watch.move(hours=25)
    answer(device, 3)


def test_minutes_between_rounds(device: Device, watch: Watch) -> None:
    limit(device, pause_minutes=30)
    answer(device, 0)
    watch.move(minutes=29)
    with refused(ConsentError, ReasonCode.TOO_SOON):
        answer(device, 500)
    watch.move(minutes=1)
    answer(device, 501)


@pytest.mark.parametrize(
    ("hours", "inside", "outside"), [("22-7", (22, 23, 0, 6), (7, 12, 21)), ("9-17", (9, 16), (8, 17)), ("", (3,), ())]
)
def test_hours_of_the_day(hours: str, inside: tuple[int, ...], outside: tuple[int, ...]) -> None:
    chosen = TimeLimits(hours=hours)
    at = {hour: datetime(2026, 3, 1, hour).astimezone() for hour in range(24)}
    assert all(chosen.covers(at[hour]) for hour in inside)
    assert not any(chosen.covers(at[hour]) for hour in outside)


@pytest.mark.parametrize("wrong", ["25-3", "7", "7-7", "x-y", "-1-3"])
def test_hours_that_are_none_are_refused(wrong: str) -> None:
    with pytest.raises(ConfigError, match="hours"):
        TimeLimits(hours=wrong)


def supply(folder: Path, name: str, **files: str) -> None:
    (folder / name).mkdir(parents=True)
    for file, text in files.items():
        (folder / name / file).write_text(text + "\n")


def test_mains_power_is_claimed_only_where_the_system_tells(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    laptop = tmp_path / "laptop"
    assert is_on_mains(tmp_path / "nothing") is None
    supply(laptop, "mouse", type="Battery", scope="Device", status="Discharging")
    assert is_on_mains(laptop) is None
    supply(laptop, "BAT0", type="Battery", status="Discharging")
    assert is_on_mains(laptop) is False
    supply(laptop, "AC", type="Mains", online="1")
    assert is_on_mains(laptop) is True
    limit(device, mains_only=True)
    monkeypatch.setattr(limits, "SUPPLIES", laptop)
    answer(device, 0)
    (laptop / "AC" / "online").write_text("0\n")
    with refused(ConsentError, ReasonCode.NO_MAINS_POWER):
        answer(device, 1)
    monkeypatch.setattr(limits, "SUPPLIES", tmp_path / "nothing")
    with refused(ConsentError, ReasonCode.NO_MAINS_POWER):
        answer(device, 1)


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Sets what the system's tool says of the network; nothing: there is no such tool.

    A small program on PATH stands for `busctl`: it writes and returns what `busctl` of systemd 252 was seen to, with
    NetworkManager 1.42. An answer holds a while, and is asked for anew after it is set here.
    """
    monkeypatch.setenv("PATH", str(tmp_path))

    def say(script: str) -> None:
        tool = tmp_path / "busctl"
        if script:
            tool.write_text(f"#!/bin/sh\n{script}\n")
            tool.chmod(0o755)
        else:
            tool.unlink(missing_ok=True)
        metered._ask.cache_clear()

    yield say
    metered._ask.cache_clear()


@pytest.mark.skipif(sys.platform == "win32", reason="the program is a script of a shell")
def test_a_connection_is_metered_only_where_the_system_tells(
    device: Device, network: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = " ".join(metered.COMMAND[1:])
    for script, told in {
        "echo u 1": True,
        "echo u 2": False,
        "echo u 3": True,
        "echo u 4": False,
        "echo u 0": None,
        "echo u 7": None,
        "echo": None,
        "echo u 2; exit 1": None,
        "": None,
        f'[ "$*" = "{arguments}" ] && echo u 4': False,
    }.items():
        network(script)
        assert is_metered() is told, script
    limit(device, unmetered_only=True)
    answer(device, 0)
    for refusing in ("echo u 1", "echo u 0", ""):
        network(refusing)
        with refused(ConsentError, ReasonCode.METERED_NETWORK):
            answer(device, 1)
    network("echo u 2")
    answer(device, 1)
    monkeypatch.setattr(metered, "COMMAND", ("sleep", "60"))
    monkeypatch.setattr(metered, "ASK_SECONDS", 0.05)
    monkeypatch.setenv("PATH", "/bin:/usr/bin")
    metered._ask.cache_clear()
    assert is_metered() is None, "a tool that hangs tells nothing"


def test_a_device_waits_when_it_may_begin_no_round_but_not_in_the_middle_of_one(device: Device, watch: Watch) -> None:
    limit(device, rounds_per_day=1)
    obstacle = device.participation.find_obstacle
    assert obstacle(device.sharing) is None
    answer(device, 0)
    assert obstacle(device.sharing) is None  # the next message of the round may come
    watch.move(minutes=5)
    why = obstacle(device.sharing)
    assert why is not None
    assert why.code == ReasonCode.DAILY_ROUNDS
    watch.move(days=1)
    assert obstacle(device.sharing) is None
