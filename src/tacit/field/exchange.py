"""What a device does with a message, whatever brought it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from tacit.field.device import Device
from tacit.field.device.amendments import AmendmentNote
from tacit.protocols.secure_aggregation import ServerPhase
from tacit.wire.envelope import message_kind, phase_in

FetchAmendments = Callable[[bytes], bytes]
"""Returns the amendments since the terms of a digest, as one chain; nothing where there are none."""
STEP_SECONDS = 0.5  # answers that took learning leave at whole steps after they were asked for
MessageKind = Literal["model", "request", "secure-request"]


def follow_amendments(device: Device, content: bytes, fetch: FetchAmendments) -> list[AmendmentNote]:
    """Fetch and follow the amendments that a message presupposes; a message of this device's terms needs none."""
    if not device.terms.is_behind(content) or device.membership is None:
        return []
    return device.terms.amend(fetch(device.membership.federation.digest))


def seconds_to_wait(content: bytes, elapsed: float) -> float:
    """Return how long an answer waits before it leaves, so that its time does not reveal how long learning took.

    A device learns with the first message of a stage of a secure sum: how long it takes grows with the history.

    >>> seconds_to_wait(b"", 0.2)
    0.0
    """
    return -elapsed % STEP_SECONDS if phase_in(content) == ServerPhase.ADVERTS else 0.0


def respond(
    device: Device, content: bytes, send: Callable[[bytes], None], has_begun: Callable[[], bool] = lambda: True
) -> MessageKind:
    """Store a model, or answer a request through `send`, and say which kind it was. Errors go to the caller.

    The ledger says what became of an answer. Where `send` fails, it may have left, because a receiver can read it and
    then fail the transfer. It is called not sent only if `has_begun` says that nothing of it was handed over yet.
    """
    kind = message_kind(content)
    if kind == "model":
        device.receive(content)
        return "model"
    entry: int | None
    if kind == "secure-request":
        answer, entry = device.answers.step_session(content)
    else:
        entry = device.learn(content)
        answer = device.release(entry)
    try:
        send(answer)
    except Exception as error:
        if entry is not None:
            (device.answers.mark_broken_off if has_begun() else device.answers.mark_not_sent)(
                entry, type(error).__name__
            )
        raise
    if entry is not None:
        device.answers.mark_sent(entry)
    return "secure-request" if kind == "secure-request" else "request"
