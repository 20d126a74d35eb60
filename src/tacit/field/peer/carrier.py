"""What brings messages from peer to peer: three functions. The in-process carrier is the one of tests.

A carrier knows ids and bytes. It may lose, delay, repeat or change what it carries: peers check everything themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

Receive = Callable[[bytes], bytes]  # a message that arrived -> the reply; empty: none
IsReply = Callable[[bytes], bool]
SECONDS = 5.0  # after which a message counts as not acknowledged


class PeerCarrier(Protocol):
    """A connection of one peer to the others of its network."""

    def open(self, me: bytes, receive: Receive) -> None:
        """Begin to receive what is sent to the peer with id `me`; `receive` may be called in any thread."""
        ...

    def send(self, to: bytes, content: bytes, is_reply: IsReply) -> bytes | None:
        """Send a message; return the first true reply, or none if there is none within `SECONDS`."""
        ...

    def close(self) -> None:
        """Receive and send no more."""
        ...


class InProcessSwitch:
    """Connects the peers of one process."""

    def __init__(self) -> None:
        self.inboxes: dict[bytes, Receive] = {}


class InProcessCarrier:
    """A carrier that calls the receiver."""

    def __init__(self, switch: InProcessSwitch) -> None:
        self._switch, self._me = switch, b""

    def open(self, me: bytes, receive: Receive) -> None:
        """Begin to receive."""
        self._me = me
        self._switch.inboxes[me] = receive

    def send(self, to: bytes, content: bytes, is_reply: IsReply) -> bytes | None:
        """Call the receiver, if it is there."""
        receive = self._switch.inboxes.get(to)
        reply = b"" if receive is None else receive(content)
        return reply if is_reply(reply) else None

    def close(self) -> None:
        """Receive no more."""
        self._switch.inboxes.pop(self._me, None)
