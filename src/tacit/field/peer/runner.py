"""A peer that runs by itself: it sends once in a period, receives at any time, and reconnects without being asked."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tacit.errors import ConsentError, FieldError, MethodError
from tacit.field.peer.carrier import PeerCarrier
from tacit.field.peer.peer_device import PeerDevice, PeerSend
from tacit.wire.peer_messages import PeerSeal

AT_ONCE = 8  # messages that are on their way at the same time
PAUSE = 1.0  # seconds between two looks at the settings while paused, and between two tries to connect
LONGEST_PAUSE = 60.0


@dataclass(frozen=True)
class PeriodOutcome:
    """What a period did: messages with a model, how many were acknowledged, records asked for, models read so far.

    `slowest` is the longest time in seconds until a message was acknowledged or given up.
    """

    number: int
    sent: int
    acknowledged: int
    contacts: int
    received: int
    slowest: float = 0.0


Report = Callable[[PeriodOutcome | str], None]


class PeerRunner:
    """Drives a peer with a carrier, until it is stopped."""

    def __init__(
        self, peer: PeerDevice, connect: Callable[[], PeerCarrier], report: Report, period: float | None = None
    ) -> None:
        self._peer, self._connect, self._report = peer, connect, report
        self.period = period or peer.member.network.period
        self._carrier: PeerCarrier | None = None
        self._slowest = 0.0

    def run(self, stop: threading.Event, periods: int | None = None) -> int:
        """Take part until `stop` is set, or for so many periods; return how many were begun."""
        self._peer.warm_up()
        done, trouble = 0, 0
        draws = random.SystemRandom()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            try:
                while not stop.is_set() and (periods is None or done < periods):
                    if self._peer.device.sharing.paused:
                        self._disconnect()
                        stop.wait(PAUSE)
                        continue
                    try:
                        if self._carrier is None:
                            self._open()
                            stop.wait(draws.uniform(0, self.period) if done == 0 else 0)
                        self._run_period(stop, pool)
                        done, trouble = done + 1, 0
                    except ConsentError as error:  # paused or left meanwhile: nothing was sent
                        if self._peer.device.store.get("network") is None:
                            raise
                        self._report(str(error))
                    except (FieldError, MethodError) as error:  # a method without any history to learn from, too
                        self._report(str(error))
                        trouble += 1
                        stop.wait(min(LONGEST_PAUSE, PAUSE * 2**trouble))
                if self._carrier is not None and not self._peer.device.sharing.paused:
                    self._deliver(self._peer.goodbye(), pool)
            finally:
                self._disconnect()
        return done

    def _open(self) -> None:
        carrier = self._connect()
        carrier.open(self._peer.identity.id, self._peer.receive)
        self._carrier = carrier

    def _disconnect(self) -> None:
        if self._carrier is not None:
            self._carrier.close()
            self._carrier = None

    def _run_period(self, stop: threading.Event, pool: ThreadPoolExecutor) -> None:
        begin, self._slowest = time.monotonic(), 0.0
        contacts = self._deliver(self._peer.exchange_records(), pool)
        sends = self._peer.begin_period()
        acknowledged = self._deliver(sends, pool)
        stop.wait(max(0.0, begin + self.period / 2 - time.monotonic()))
        if not stop.is_set():  # later, because a router may have died meanwhile, which looks like many dead peers
            self._deliver(self._peer.ask_again(), pool)
        stop.wait(max(0.0, begin + self.period - time.monotonic()))
        self._peer.end_period()
        about = self._peer.file
        outcome = PeriodOutcome(
            about.state.ticks, len(sends), acknowledged, contacts, about.received, round(self._slowest, 2)
        )
        self._report(outcome)

    def _deliver(self, sends: Sequence[PeerSend], pool: ThreadPoolExecutor) -> int:
        """Send messages, note what became of them, and return how many were acknowledged.

        Each looks at the user's settings just before it leaves: one that finds the device paused is not sent.
        """
        carrier, device = self._carrier, self._peer.device
        assert carrier is not None, "messages are sent while connected"

        def attempt(send: PeerSend) -> tuple[bool, bytes | None]:
            if device.sharing.paused:
                return False, None
            begin = time.monotonic()
            reply = send_peer_message(carrier, send, self._peer.seal)
            self._slowest = max(self._slowest, time.monotonic() - begin)
            return True, reply

        outcomes = list(zip(sends, pool.map(attempt, sends), strict=True))
        self._peer.withdraw([send for send, (left, _) in outcomes if not left])
        return self._peer.settle_all([(send, reply) for send, (left, reply) in outcomes if left])


def send_peer_message(carrier: PeerCarrier, send: PeerSend, seal: PeerSeal) -> bytes | None:
    """Send one message; return the reply of its receiver, if it came."""
    return carrier.send(send.to.id, send.content, lambda reply: seal.read_ack(reply, send.content) is not None)
