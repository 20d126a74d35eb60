"""A federation in one process: coordinator and devices of the field, with nothing but function calls between."""

from __future__ import annotations

from collections.abc import Generator, Mapping

from tacit.errors import ConsentError, TacitError
from tacit.field.device import Device
from tacit.field.exchange import FetchAmendments, follow_amendments, respond
from tacit.wire.status import CoordinatorStatus


class Loopback:
    """A carrier that hands messages over. Devices that refuse or fail count as lost, as anywhere else."""

    def __init__(self, devices: Mapping[int, Device], fetch: FetchAmendments = lambda digest: b"") -> None:
        self.devices, self._fetch = dict(devices), fetch

    def present(self) -> frozenset[int]:
        """All devices that were given."""
        return frozenset(self.devices)

    def ask(self, requests: Mapping[int, bytes], seconds: float, most_bytes: int) -> Generator[tuple[int, bytes]]:
        """Ask one after the other."""
        for number, content in requests.items():
            answers: list[bytes] = []
            try:
                follow_amendments(self.devices[number], content, self._fetch)
                respond(self.devices[number], content, answers.append)
            except TacitError:
                continue
            yield number, answers[0]

    def tell(self, messages: Mapping[int, bytes], seconds: float) -> None:
        """Hand models over."""
        for number, content in messages.items():
            try:
                follow_amendments(self.devices[number], content, self._fetch)
            except ConsentError:  # another method, which the user has not agreed to
                continue
            respond(self.devices[number], content, lambda answer: None)

    def offer(self, messages: Mapping[int, bytes]) -> None:
        """Hand models over."""
        self.tell(messages, 0)

    def announce(self, status: CoordinatorStatus) -> None:
        """Do nothing: devices here are given messages, and do not poll."""
