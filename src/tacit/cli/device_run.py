"""`tacit device run`: takes part in rounds and prints what happens."""

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
    "done": "The federation has finished its rounds, and this device has the last model. Next: tacit device recommend.",
    "paused": "You are paused: nothing is sent. To continue: tacit device resume, then tacit device run.",
    "left": "You have left the federation: nothing is sent.",
    "stopped": "Stopped: nothing is sent. To continue: tacit device run.",
}


@device_app.command("run", epilog="Example: tacit device run")
def run_device(
    poll: Annotated[float, typer.Option(min=0.05, max=3600, help="Seconds between two checks for messages.")] = 1.0,
    stay: Annotated[bool, typer.Option("--stay", help="Wait for more rounds after the agreed ones are done.")] = False,
    as_json: Json = False,
) -> None:
    """Take part in rounds: fetch models, learn here, send what you allow. Ends after the last round, pause or leave."""
    needs_flower()
    from tacit.field.carriers.supernode import SuperNode
    from tacit.field.serve import log_to_stderr

    if shell.screen.as_json:
        log_to_stderr()
    else:  # sentences say what happens, in place of the log
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
    shell.screen.say(f"You took part in {len(teller.rounds)} rounds. What was sent: tacit device ledger.")


class EventMessages:
    """Turns events of the device into sentences."""

    def __init__(self, device: Device) -> None:
        self._device, self._last = device, len(device.ledger.list())
        self._masked_only = device.sharing.masked_only
        self.rounds: set[int] = set()
        self.models = 0

    def beginning(self) -> str:
        """Return the first sentence: the federation, and what is shared."""
        member, sharing = self._device.membership, self._device.sharing
        whose = "a federation" if member is None else member.to
        masks = ", in masked rounds only" if sharing.masked_only else ""
        return f"Taking part in {whose}; you share with pi = {sharing.pi:g}{masks}. Ctrl-C stops it."

    def sentences(self, news: DeviceEvent) -> Iterator[str]:
        """Yield the sentences about an event."""
        if news.what == "connected":
            yield "Connected; waiting for a round."
        elif news.what == "away":
            yield f"{news.why} Next try in {_duration(news.again_in)}; recommendations still work."
        elif news.what == "model":
            self.models += 1
        elif news.what == "nothing sent":
            yield f"The coordinator asked, and this device sent nothing. {news.why} {news.hint}".rstrip()
        elif news.what == "refused":
            yield f"This device refused a message and sent nothing. {news.why}"
        else:
            yield from self._left()

    def _left(self) -> Iterator[str]:
        """Yield a sentence for each message since the last call."""
        for entry in self._device.ledger.list(self._last):
            self._last = entry.number
            self.rounds.add(entry.round)
            yield _in_words(entry)
        if self._device.sharing.masked_only and not self._masked_only:
            yield "From now on this device joins masked rounds only. To undo: tacit device share --also-readable."
        self._masked_only = self._device.sharing.masked_only


def _in_words(entry: LedgerEntry) -> str:
    if entry.state != "sent":
        return f"Round {entry.round}: the connection broke. {entry.bytes:,} bytes may have been sent."
    if entry.masked:
        return f"Round {entry.round}: sent {entry.bytes:,} masked bytes; the coordinator can read only the sum of many."
    items = f"{len(set(entry.positives))} items of your history"
    rows = f"{len(entry.positives)} rows about {items} and {len(entry.negatives)} about other items"
    return f"Round {entry.round}: sent {rows}, {entry.bytes:,} bytes. The coordinator can read them."


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} seconds" if seconds < 90 else f"{seconds / 60:.0f} minutes"


@contextmanager
def _stop_on_signals(stop: threading.Event) -> Iterator[None]:
    """Let SIGINT (Ctrl-C) and SIGTERM set `stop` inside the block."""
    before = {name: signal.signal(name, lambda *_: stop.set()) for name in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
