"""The ledger calls a message "not sent" only where nothing of it was handed over, and the meter counts all others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from helpers.small_federation import founded, made, request
from tacit.field.device import Device, Sharing
from tacit.field.device.exposure import LedgerReader
from tacit.field.exchange import respond


class Transport:
    """Hands a message over, or breaks before or after that."""

    def __init__(self, breaks: str) -> None:
        self.breaks, self.read = breaks, list[bytes]()
        self.has_begun = False

    def send(self, content: bytes) -> None:
        if self.breaks == "before":
            raise ConnectionError
        self.has_begun = True
        self.read.append(content)  # the receiver has it
        if self.breaks == "after":
            raise ConnectionError


def attempt(device: Device, breaks: str, number: int = 0) -> Transport:
    transport = Transport(breaks)
    try:
        respond(device, request(founded(), number), transport.send, lambda: transport.has_begun)
    except ConnectionError:
        assert breaks
    return transport


@pytest.fixture
def device(tmp_path: Path) -> Device:
    device = made(tmp_path / "device.db")
    device.share(Sharing(pi=1.0, masked_only=False))
    return device


def test_a_receiver_that_reads_and_then_fails_is_counted(device: Device) -> None:
    guessing = LedgerReader.of(device).measure()
    assert attempt(device, "after").read
    (entry,) = device.ledger.list()
    assert (entry.state, entry.why) == ("may have left", "ConnectionError")
    told = LedgerReader.of(device).measure()
    assert (guessing.readable, told.readable) == (0, 1)
    assert told.exposure != guessing.exposure


def test_what_was_never_handed_over_was_not_sent(device: Device) -> None:
    assert not attempt(device, "before").read
    assert device.ledger.list()[0].state == "not sent"
    assert LedgerReader.of(device).measure().readable == 0


@pytest.mark.parametrize(
    ("attempts", "state"),
    [
        (("after", "before"), "may have left"),
        (("before", "before"), "not sent"),
        (("before", "after"), "may have left"),
        (("after", ""), "sent"),
        (("", "before"), "sent"),
    ],
)
def test_what_one_attempt_may_have_sent_stays_so(device: Device, attempts: Sequence[str], state: str) -> None:
    for breaks in attempts:
        attempt(device, breaks)
    (entry,) = device.ledger.list()
    assert (entry.state, entry.attempts) == (state, len(attempts))


def test_an_attempt_that_a_crash_ended_may_have_left(device: Device) -> None:
    device.release(device.learn(request(founded(), 0)))  # and then the program was killed
    attempt(device, "before")
    assert device.ledger.list()[0].state == "may have left"
