"""A peer in a thread of its own, for as long as a page is open: it opens the device's file once more."""

from __future__ import annotations

import logging
import threading

from tacit.errors import TacitError
from tacit.field.device import Device
from tacit.field.peer.peer_device import PeerDevice
from tacit.field.peer.runner import PeerRunner, PeriodOutcome
from tacit.field.peer.zenoh_carrier import ZenohCarrier

log = logging.getLogger("tacit.field.peer")
LOOK_SECONDS, RETRY_SECONDS, STOP_SECONDS = 1.0, 60.0, 10.0


class BackgroundPeer:
    """Takes part among peers whenever the device is a member of a network, until it is stopped."""

    def __init__(self, device: Device) -> None:
        self._device, self._stop = device, threading.Event()
        self.failure = ""  # why it does not take part although it should, in words
        self._thread = threading.Thread(target=self._work, name="taking part among peers", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def _work(self) -> None:
        with self._device.open_again() as device:
            wait = 0.0
            while not self._stop.wait(wait):
                wait = LOOK_SECONDS
                try:
                    if device.is_erased:
                        return
                    if device.store.get("network") is not None and not device.sharing.paused:
                        self._take_part(device)
                    self.failure = ""
                except TacitError as error:  # left meanwhile, another program takes part, no history yet
                    self.failure = error.message
                except Exception as error:  # the page must go on, and say it
                    log.exception("taking part failed")
                    self.failure, wait = f"{type(error).__name__}.", RETRY_SECONDS

    def _take_part(self, device: Device) -> None:
        peer = PeerDevice(device)
        try:
            PeerRunner(peer, lambda: ZenohCarrier(peer.seal, peer.member.routers), self._note).run(self._stop)
        finally:
            device.store.lock.release()

    def _note(self, outcome: PeriodOutcome | str) -> None:
        """Keep why nothing is exchanged, until something is."""
        self.failure = outcome if isinstance(outcome, str) else ""

    def stop(self) -> None:
        """End it, and let the file go; messages that are on their way are finished first."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)
