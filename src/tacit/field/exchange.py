"""What a device does with a message, whatever brought it."""

from __future__ import annotations

from collections.abc import Callable

from tacit.device import Device
from tacit.runtimes.wire import kind_of


def respond(device: Device, content: bytes, send: Callable[[bytes], None]) -> None:
    """Keep a model, or answer a request through `send`; the ledger says what became of it. Errors go to the caller."""
    if kind_of(content) == "model":
        device.receive(content)
        return
    entry = device.learn(content)
    answer = device.release(entry)
    try:
        send(answer)
    except Exception as error:
        device.not_sent(entry, type(error).__name__)
        raise
    device.sent(entry)
