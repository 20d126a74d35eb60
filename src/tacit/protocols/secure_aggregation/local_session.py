"""A whole session in one process: every message really made, carried, lost and recovered. For simulations and tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tacit.errors import DevicePolicyError, ForgedError
from tacit.protocols.secure_aggregation.context import Terms
from tacit.protocols.secure_aggregation.device import SecureDevice
from tacit.protocols.secure_aggregation.draw import DrawProof
from tacit.protocols.secure_aggregation.graph import NeighbourGraph
from tacit.protocols.secure_aggregation.masks import Vector
from tacit.protocols.secure_aggregation.server import SecureServer, ServerPhase


@dataclass(frozen=True)
class SessionOutcome:
    """What came out of a session, by position in the list of devices."""

    total: Vector
    survivors: tuple[int, ...]  # whose vectors are in the sum, ascending
    finished: tuple[int, ...]  # who answered to the end
    sent: list[int]  # bytes, by device
    received: list[int]


def run_session(
    terms: Terms,
    devices: Sequence[SecureDevice],
    give: Callable[[int], Vector],
    leaves: Mapping[int, ServerPhase] | None = None,
    drawn: DrawProof | None = None,
) -> SessionOutcome:
    """Run a session; `give(device)` makes its vector, `leaves` says in which phase a device drops out."""
    server = SecureServer.start(terms, [device.identity.public for device in devices], drawn=drawn)
    order = [server.session.position(device.identity.public) for device in devices]
    who = {position: at for at, position in enumerate(order)}
    gone = dict(leaves or {})
    sent, received = [0] * len(devices), [0] * len(devices)
    messages = dict.fromkeys(order, server.invitation)
    for phase in (
        ServerPhase.ADVERTS,
        ServerPhase.SHARES,
        ServerPhase.VECTORS,
        ServerPhase.CONFIRMATIONS,
        ServerPhase.UNMASKINGS,
    ):
        for position, message in sorted(messages.items()):
            at = who[position]
            received[at] += len(message)
            if gone.get(at, ServerPhase.DONE) <= phase:
                continue
            try:
                answer = _answer(devices[at], phase, message, lambda at=at: give(at))  # type: ignore[misc]
                server.receive(answer)
            except (DevicePolicyError, ForgedError):  # the device refuses or is excluded: as if it had dropped out
                gone[at] = phase
                continue
            sent[at] += len(answer)
        finished = server.answered
        messages = server.advance()
    summed_devices = tuple(sorted(who[position] for position in server.survivors))
    return SessionOutcome(server.total, summed_devices, tuple(sorted(who[p] for p in finished)), sent, received)


def _answer(device: SecureDevice, phase: ServerPhase, message: bytes, give: Callable[[], Vector]) -> bytes:
    if phase == ServerPhase.ADVERTS:
        return device.advertise(message)
    if phase == ServerPhase.SHARES:
        return device.share(message)
    if phase == ServerPhase.VECTORS:
        return device.submit(message, give())
    return device.confirm(message) if phase == ServerPhase.CONFIRMATIONS else device.unmask(message)


def can_finish(graph: NeighbourGraph, n_min: int, threshold: int, leaves: Mapping[int, ServerPhase]) -> bool:
    """Say whether a session would finish if these participants (by position) stopped answering in these phases."""

    def there(phase: ServerPhase) -> frozenset[int]:
        return summed_devices - {participant for participant, last in leaves.items() if last <= phase}

    summed_devices = frozenset(range(graph.n_participants))
    shared, summed = there(ServerPhase.SHARES), there(ServerPhase.VECTORS)
    asking = {
        ServerPhase.ADVERTS: there(ServerPhase.ADVERTS),
        ServerPhase.SHARES: shared,
        ServerPhase.VECTORS: shared,
        ServerPhase.CONFIRMATIONS: there(ServerPhase.CONFIRMATIONS),
        ServerPhase.UNMASKINGS: shared - (summed & there(ServerPhase.UNMASKINGS)),  # whose secrets must be rebuilt
    }
    for phase, participants in asking.items():
        here = there(phase)
        least = n_min if phase < ServerPhase.UNMASKINGS else 0
        if len(here) < least or any(
            len(graph.neighbours(participant) & here) < threshold for participant in participants
        ):
            return False
    return True
