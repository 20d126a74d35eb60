"""What a device does with a message, whatever brought it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from tacit.field.device import Device
from tacit.wire.messages import message_kind

MessageKind = Literal["model", "request", "turn"]


def respond(device: Device, content: bytes, send: Callable[[bytes], None]) -> MessageKind:
    """Keep a model, or answer a request through `send`, and say which kind it was. Errors go to the caller.

    The ledger says what became of an answer.
    """
    kind = message_kind(content)
    if kind == "model":
        device.receive(content)
        return "model"
    entry: int | None
    if kind == "turn":
        answer, entry = device.turn(content)
    else:
        entry = device.learn(content)
        answer = device.release(entry)
    try:
        send(answer)
    except Exception as error:
        if entry is not None:
            device.mark_not_sent(entry, type(error).__name__)
        raise
    if entry is not None:
        device.mark_sent(entry)
    return "turn" if kind == "turn" else "request"
