"""A whole session in one process: every message really made, carried, lost and recovered. For simulations and tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tacit.errors import ForgedError, GuardError
from tacit.privacy.secure.context import Terms
from tacit.privacy.secure.device import Device
from tacit.privacy.secure.draw import Drawn
from tacit.privacy.secure.graph import Graph
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
    drawn: Drawn | None = None,
) -> Rehearsed:
    """Run a session; `give(device)` makes her vector, `leaves` says in which phase somebody stops answering."""
    server = Server.start(terms, [device.identity.public for device in devices], drawn=drawn)
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


def can_finish(graph: Graph, n_min: int, threshold: int, leaves: Mapping[int, Stand]) -> bool:
    """Say whether a session would come to its end if these people (by position) stopped answering in these phases."""

    def there(phase: Stand) -> frozenset[int]:
        return everybody - {person for person, last in leaves.items() if last <= phase}

    everybody = frozenset(range(graph.n_people))
    shared, summed = there(Stand.SHARES), there(Stand.VECTORS)
    asking = {
        Stand.ADVERTS: there(Stand.ADVERTS),
        Stand.SHARES: shared,
        Stand.VECTORS: shared,
        Stand.CONFIRMATIONS: there(Stand.CONFIRMATIONS),
        Stand.UNMASKINGS: shared - (summed & there(Stand.UNMASKINGS)),  # whose secrets must be rebuilt
    }
    for phase, people in asking.items():
        here = there(phase)
        least = n_min if phase < Stand.UNMASKINGS else 0
        if len(here) < least or any(len(graph.neighbours(person) & here) < threshold for person in people):
            return False
    return True
