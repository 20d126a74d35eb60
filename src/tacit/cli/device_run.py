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
from tacit.cli.device import device_app, open_device, open_waiting
from tacit.cli.field import needs_flower

if TYPE_CHECKING:
    from tacit.field.carriers.fleet_node import DeviceEvent
    from tacit.field.device.device_file import DeviceFile
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
    stay: Annotated[
        bool, typer.Option("--stay", help="Go on after the last round, through pauses, leaving and joining.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Take part: fetch models, learn here, send what you allow. Ends with the last round, `pause` or `leave`."""
    needs_flower()
    from tacit.field.carriers.participant import Participant
    from tacit.field.carriers.round_process import WaitingNode
    from tacit.field.json_log import log_to_stderr

    if shell.screen.as_json:
        log_to_stderr()
    else:  # sentences say what happens, in place of the log
        logging.getLogger("tacit").addHandler(logging.NullHandler())
    stop, ending = threading.Event(), "stopped"
    with open_waiting() as device, stop_on_signals(stop):
        teller = EventMessages(device)
        node = None if stay else WaitingNode(device, poll)
        has_ended = False

        def report(news: DeviceEvent) -> None:
            nonlocal has_ended
            for sentence in teller.sentences(news):
                shell.screen.say(sentence)
            known = None if node is None else node.status
            if news.what == "model" and known is not None and known.phase == "finished":
                has_ended = True
                stop.set()

        device.participation.take_lock()
        shell.screen.say(f"{teller.beginning()}\n{device.directory.describe_trust(device.sharing)}")
        if node is None:
            Participant(device, poll, report).run(stop)
        else:
            ending = node.run(stop, report)
    if ending == "stopped" and has_ended:
        ending = "done"
    shell.screen.document({"answered": len(teller.rounds), "models": teller.models, "ended": ending})
    shell.screen.say(ENDINGS[ending])
    shell.screen.say(f"You took part in {len(teller.rounds)} rounds. What was sent: tacit device ledger.")


@device_app.command(epilog="Example: tacit device status")
def status(as_json: Json = False) -> None:
    """Show what this device does now: waiting for others, taking part, paused, without a connection, and why."""
    from tacit.field.device.device_state import read_state

    with open_device() as device:
        state = read_state(device)
    shell.screen.document(state.as_json())
    shell.screen.say(f"{state.badge}. {state.describe()}")


class EventMessages:
    """Turns events of the device into sentences."""

    def __init__(self, device: DeviceFile) -> None:
        self._device, self._last = device, len(device.ledger.list())
        self._masked_only = device.sharing.masked_only
        self.rounds: set[int] = set()
        self.models = 0

    def beginning(self) -> str:
        """Return the first sentence: the federation, and what is shared."""
        group, sharing = self._device.group, self._device.sharing
        if not group:
            return "You have not joined a federation yet: nothing is sent. It begins when you do. Ctrl-C stops it."
        masks = ", in masked rounds only" if sharing.masked_only else ""
        return f"Taking part in {group}; you share with pi = {sharing.pi:g}{masks}. Ctrl-C stops it."

    def sentences(self, news: DeviceEvent) -> Iterator[str]:
        """Yield the sentences about an event."""
        if news.what == "connected":
            yield "Connected; waiting for a round."
        elif news.what == "away":
            works = "; recommendations still work" if self._device.has_model else ""
            what = " Ask for a new invitation: tacit device leave, then join." if news.is_revoked else ""
            yield f"{news.why}{what} Next try in {_duration(news.again_in)}{works}."
        elif news.what == "resting":
            yield f"Not taking part for now, as you set. {news.why} It goes on by itself."
        elif news.what == "model":
            self.models += 1
        elif news.what in ("status", "amended"):
            yield news.why
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
    if entry.state == "not sent":
        return f"Round {entry.round}: the connection broke before anything was sent."
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
def stop_on_signals(stop: threading.Event) -> Iterator[None]:
    """Let SIGINT (Ctrl-C) and SIGTERM set `stop` inside the block."""
    before = {name: signal.signal(name, lambda *_: stop.set()) for name in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
