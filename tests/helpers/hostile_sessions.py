"""One device among invented participants, whose coordinator may send any model and any terms."""

from __future__ import annotations

from collections.abc import Sequence

from tacit.errors import TacitError
from tacit.field.device import Device
from tacit.protocols.secure_aggregation.context import Terms
from tacit.protocols.secure_aggregation.device import SecureDevice
from tacit.protocols.secure_aggregation.device_policy import DevicePolicy
from tacit.protocols.secure_aggregation.identity import Identity
from tacit.protocols.secure_aggregation.local_session import _answer
from tacit.protocols.secure_aggregation.masks import Vector
from tacit.protocols.secure_aggregation.server import SecureServer, ServerPhase
from tacit.wire.federation import Federation
from tacit.wire.messages import SecureRequest, read_secure_reply, write_secure_request

N_PEOPLE = 3
EASY = DevicePolicy(n_min=2, k_min=1, d_min=0, cool_down=0, corrupted=0.0, most_cohorts=None)
PHASES = tuple(ServerPhase)[:5]
Step = tuple[int, str, int | str]  # stage, phase, and the size of the answer or the code of the refusal


class HostileCoordinator:
    """Holds sessions with one device; the coordinator invented all others of the cohort."""

    def __init__(self, federation: Federation, device: Device) -> None:
        self.federation, self.device = federation, device
        self.peers = [SecureDevice(Identity.fresh(), EASY) for _ in range(N_PEOPLE - 1)]
        self.steps: list[Step] = []
        self.turns: list[bytes] = []  # the device's last session, as it was asked
        self.answers: list[bytes] = []
        self.servers: list[SecureServer] = []

    def hold(self, number: int, opening: bytes, stages: Sequence[Terms], until: ServerPhase = PHASES[-1]) -> list[Step]:
        """Ask for the sums of one round, stage after stage; return what could be seen from outside."""
        self.steps = []
        for terms in stages:
            self._stage(number, opening if terms is stages[0] else b"", terms, until)
        return self.steps

    def before_turn(self, phase: ServerPhase) -> None:
        """Do something to the device before it is asked."""

    def _stage(self, number: int, opening: bytes, terms: Terms, until: ServerPhase) -> None:
        server = SecureServer.start(terms, [self.device.identity, *(peer.identity.public for peer in self.peers)])
        self.servers.append(server)
        here = server.session.position(self.device.identity)
        others = {server.session.position(peer.identity.public): peer for peer in self.peers}
        messages = dict.fromkeys(range(N_PEOPLE), server.invitation)
        self.turns, self.answers = [], []
        for phase in PHASES:
            if phase > until:
                return
            for position, peer in others.items():
                server.receive(_answer(peer, phase, messages[position], lambda: Vector(terms.layout.sizes)))
            request = SecureRequest(number, phase, messages[here], opening if phase == ServerPhase.ADVERTS else b"")
            turn = write_secure_request(self.federation, request)
            self.before_turn(phase)
            try:
                answer, _ = self.device.answers.step_session(turn)
            except TacitError as error:
                self.steps.append((terms.stage, phase.name, str(error.code)))
                return
            self.turns.append(turn)
            self.answers.append(answer)
            self.steps.append((terms.stage, phase.name, len(answer)))
            server.receive(read_secure_reply(self.federation, number, answer))
            messages = server.advance()
