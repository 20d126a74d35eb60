"""What brings messages to devices and their answers back; the coordinator does not depend on how."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Protocol

from tacit.wire.status import CoordinatorStatus


class Carrier(Protocol):
    """What brings messages to devices and their answers back."""

    def present(self) -> frozenset[int]:
        """Return the numbers of the devices that can be asked now."""
        ...

    def ask(self, requests: Mapping[int, bytes], seconds: float, most_bytes: int) -> Generator[tuple[int, bytes]]:
        """Yield (device, answer) as answers come, until all have or time is up; closing it calls the others off.

        No honest answer is longer than `most_bytes`: a carrier that need not read more of it yields no bytes instead.
        """
        ...

    def tell(self, messages: Mapping[int, bytes], seconds: float) -> None:
        """Send what needs no answer; return when all have it or time is up."""
        ...

    def offer(self, messages: Mapping[int, bytes]) -> None:
        """Store messages for devices to fetch when they poll, and do not wait; later ones replace them."""
        ...

    def announce(self, status: CoordinatorStatus) -> None:
        """Set the status that every polling device gets."""
        ...
