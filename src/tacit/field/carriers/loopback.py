"""A federation in one process: coordinator and devices of the field, with nothing but function calls between."""

from __future__ import annotations

from collections.abc import Generator, Mapping

from tacit.errors import TacitError
from tacit.field.device import Device
from tacit.field.exchange import respond


class Loopback:
    """A carrier that hands messages over. Devices that refuse or fail count as lost, as anywhere else."""

    def __init__(self, devices: Mapping[int, Device]) -> None:
        self.devices = dict(devices)

    def present(self) -> frozenset[int]:
        """All devices that were given."""
        return frozenset(self.devices)

    def ask(self, requests: Mapping[int, bytes], seconds: float) -> Generator[tuple[int, bytes]]:
        """Ask one after the other."""
        for number, content in requests.items():
            answers: list[bytes] = []
            try:
                respond(self.devices[number], content, answers.append)
            except TacitError:
                continue
            yield number, answers[0]

    def tell(self, messages: Mapping[int, bytes], seconds: float) -> None:
        """Hand models over."""
        for number, content in messages.items():
            respond(self.devices[number], content, lambda answer: None)
