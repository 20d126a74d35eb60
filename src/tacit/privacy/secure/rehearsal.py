"""A whole session in one process: every message really made, carried, lost and recovered. For simulations and tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tacit.errors import ForgedError, GuardError
from tacit.privacy.secure.context import Terms
from tacit.privacy.secure.device import Device
from tacit.privacy.secure.masks import Vector
from tacit.privacy.secure.server import Server, Stand


@dataclass(frozen=True)
class Rehearsed:
    """What came out of a session, by position in the list of devices."""

    total: Vector
    survivors: tuple[int, ...]  # whose vectors are in the sum, ascending
    finished: tuple[int, ...]  # who answered to the end
    sent: list[int]  # bytes, by device
    received: list[int]


def rehearse(
    terms: Terms,
    devices: Sequence[Device],
    give: Callable[[int], Vector],
    leaves: Mapping[int, Stand] | None = None,
) -> Rehearsed:
    """Run a session; `give(device)` makes her vector, `leaves` says in which phase somebody stops answering."""
    server = Server.start(terms, [device.identity.public for device in devices])
    order = [server.session.position(device.identity.public) for device in devices]
    who = {position: at for at, position in enumerate(order)}
    gone = dict(leaves or {})
    sent, received = [0] * len(devices), [0] * len(devices)
    messages = dict.fromkeys(order, server.invitation)
    for phase in (Stand.ADVERTS, Stand.SHARES, Stand.VECTORS, Stand.CONFIRMATIONS, Stand.UNMASKINGS):
        for position, message in sorted(messages.items()):
            at = who[position]
            received[at] += len(message)
            if gone.get(at, Stand.DONE) <= phase:
                continue
            try:
                answer = _answer(devices[at], phase, message, lambda at=at: give(at))  # type: ignore[misc]
                server.receive(answer)
            except (GuardError, ForgedError):  # she sits out, or is left out: as if she had dropped
                gone[at] = phase
                continue
            sent[at] += len(answer)
        finished = server.answered
        messages = server.advance()
    everybody = tuple(sorted(who[position] for position in server.survivors))
    return Rehearsed(server.total, everybody, tuple(sorted(who[p] for p in finished)), sent, received)


def _answer(device: Device, phase: Stand, message: bytes, give: Callable[[], Vector]) -> bytes:
    if phase == Stand.ADVERTS:
        return device.advertise(message)
    if phase == Stand.SHARES:
        return device.share(message)
    if phase == Stand.VECTORS:
        return device.submit(message, give())
    return device.confirm(message) if phase == Stand.CONFIRMATIONS else device.unmask(message)
