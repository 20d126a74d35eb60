"""`tacit device run`: taking part, told in a person's words."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli import app as shell
from tacit.cli.app import Json
from tacit.cli.device import device_app, open_device
from tacit.cli.field import needs_flower

if TYPE_CHECKING:
    from tacit.field.carriers.supernode import DeviceEvent
    from tacit.field.device import Device
    from tacit.field.device.ledger import LedgerEntry

ENDINGS = {
    "done": "The federation has finished its rounds, and the last model is here: tacit device recommend.",
    "paused": "You are paused: nothing leaves. To go on: tacit device resume, then tacit device run.",
    "left": "You have left the federation: nothing leaves, and there is nobody to wait for.",
    "stopped": "Stopped: nothing leaves. To go on: tacit device run.",
}


@device_app.command("run", epilog="Example: tacit device run")
def run_device(
    poll: Annotated[float, typer.Option(min=0.05, max=3600, help="Seconds between looks for messages.")] = 1.0,
    stay: Annotated[bool, typer.Option("--stay", help="Wait for more rounds when those agreed on are done.")] = False,
    as_json: Json = False,
) -> None:
    """Take part: fetch models, learn here, send what you allow. Ends with the rounds, or when you pause or leave."""
    needs_flower()
    from tacit.field.carriers.supernode import SuperNode
    from tacit.field.serve import log_to_stderr

    if shell.screen.as_json:
        log_to_stderr()
    else:  # what happens is told in sentences
        logging.getLogger("tacit").addHandler(logging.NullHandler())
    stop = threading.Event()
    with open_device() as device, _stop_on_signals(stop):
        teller, node = EventMessages(device), SuperNode(device, poll)

        def told(news: DeviceEvent) -> None:
            for sentence in teller.sentences(news):
                shell.screen.say(sentence)
            if news.what == "model" and not stay:
                stop.set()

        shell.screen.say(teller.beginning())
        ending: str = node.run(stop, told)
    if ending == "stopped" and teller.models and not stay:
        ending = "done"
    shell.screen.document({"answered": len(teller.rounds), "models": teller.models, "ended": ending})
    shell.screen.say(ENDINGS[ending])
    shell.screen.say(f"You took part in {len(teller.rounds)} rounds; what left: tacit device ledger.")


class EventMessages:
    """Turns what happens into sentences."""

    def __init__(self, device: Device) -> None:
        self._device, self._last = device, len(device.ledger.list())
        self._masked_only = device.sharing.masked_only
        self.rounds: set[int] = set()
        self.models = 0

    def beginning(self) -> str:
        """Say with whom, and how much is shared."""
        member, sharing = self._device.membership, self._device.sharing
        whose = "a federation" if member is None else member.to
        masks = ", only under masks" if sharing.masked_only else ""
        return f"Taking part in {whose}; you share with pi = {sharing.pi:g}{masks}. Ctrl-C stops it."

    def sentences(self, news: DeviceEvent) -> Iterator[str]:
        """Say what happened."""
        if news.what == "connected":
            yield "Connected; waiting to be asked."
        elif news.what == "away":
            yield f"{news.why} Next try in {_duration(news.again_in)}; recommendations work meanwhile."
        elif news.what == "model":
            self.models += 1
        elif news.what == "nothing sent":
            yield f"You were asked, and nothing was sent. {news.why} {news.hint}".rstrip()
        elif news.what == "refused":
            yield f"A message was refused, and nothing was sent. {news.why}"
        else:
            yield from self._left()

    def _left(self) -> Iterator[str]:
        """Say what left since the last time."""
        for entry in self._device.ledger.list(self._last):
            self._last = entry.number
            self.rounds.add(entry.round)
            yield _in_words(entry)
        if self._device.sharing.masked_only and not self._masked_only:
            yield "From now on nothing readable leaves this device; tacit device share --also-readable allows it again."
        self._masked_only = self._device.sharing.masked_only


def _in_words(entry: LedgerEntry) -> str:
    if entry.state != "sent":
        return f"Round {entry.round}: the line broke while {entry.bytes:,} bytes were on their way; they may have left."
    if entry.masked:
        return f"Round {entry.round}: {entry.bytes:,} bytes left under masks; only the sum of many can be read."
    things = f"{len(set(entry.positives))} of the things you did"
    rows = f"{len(entry.positives)} rows about {things} and {len(entry.negatives)} about other things"
    return f"Round {entry.round}: {rows} left, {entry.bytes:,} bytes, and the coordinator can read them."


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} seconds" if seconds < 90 else f"{seconds / 60:.0f} minutes"


@contextmanager
def _stop_on_signals(stop: threading.Event) -> Iterator[None]:
    """Let Ctrl-C and a polite request to end set `stop`, for as long as this lasts."""
    before = {name: signal.signal(name, lambda *_: stop.set()) for name in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
