"""A carrier in one process that changes what devices are shown, and notes why they refuse."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping

from helpers.loopback_federation import Field
from tacit.errors import TacitError
from tacit.field.carriers.loopback import Loopback
from tacit.protocols.secure_aggregation import SecureDevice, ServerPhase
from tacit.reasons import ReasonCode
from tacit.wire.messages import SecureRequest, read_secure_request, write_secure_reply, write_secure_request


class Interceptor(Loopback):
    """Changes what devices are shown, notes why they refuse, and plays devices that do not exist."""

    def __init__(
        self, field: Field, change: Callable[[int, SecureRequest], SecureRequest] = lambda number, asked: asked
    ) -> None:
        super().__init__(field.devices)
        self.field, self.change, self.refusals = field, change, dict[int, ReasonCode | None]()
        self.invented: dict[int, SecureDevice] = {}

    def present(self) -> frozenset[int]:
        return super().present() | self.invented.keys()

    def tell(self, messages: Mapping[int, bytes], seconds: float) -> None:
        super().tell({number: messages[number] for number in messages.keys() & self.devices.keys()}, seconds)

    def ask(self, requests: Mapping[int, bytes], seconds: float, most_bytes: int) -> Generator[tuple[int, bytes]]:
        for number, content in requests.items():
            asked = read_secure_request(self.field.federation, content)
            if number in self.invented:
                if asked.phase == ServerPhase.ADVERTS:
                    advert = self.invented[number].advertise(asked.content)
                    yield number, write_secure_reply(self.field.federation, asked.round, advert)
                continue
            changed = write_secure_request(self.field.federation, self.change(number, asked))
            try:
                answer, _ = self.devices[number].answers.step_session(changed)
            except TacitError as error:
                self.refusals[number] = error.code
                continue
            yield number, answer
