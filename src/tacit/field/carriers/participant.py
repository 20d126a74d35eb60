"""Takes part for as long as a program runs: through pauses, leaving, joining, lost connections and other programs.

`tacit device run --stay`, the background service and the program of the page all use this. It opens the device's file
a second time, so that pages and settings answer while it learns; the lock beside the file lets one program take part.
"""

from __future__ import annotations

import logging
import threading

from tacit.errors import DeviceError, TacitError
from tacit.field.carriers.fleet_node import DeviceEvent, Ending, EventListener, FleetNode
from tacit.field.carriers.round_process import WaitingNode
from tacit.field.device.device_file import DeviceFile

log = logging.getLogger("tacit.field.device")
LOOK_SECONDS = 1.0  # between two checks of settings while there is nothing to do
RETRY_SECONDS = 60.0  # after an unexpected error
STOP_SECONDS = 10.0


def _ignore(news: DeviceEvent) -> None:
    """Say nothing."""


class Participant:
    """Takes part with a device until it is stopped."""

    def __init__(self, device: DeviceFile, poll: float = 1.0, listen: EventListener = _ignore) -> None:
        self.device, self.poll, self.listen = device, poll, listen
        self.node: FleetNode | None = None
        self.failure = ""  # why it does not take part although it should, in words

    def run(self, stop: threading.Event) -> None:
        """Take part whenever the user is a member and not paused, until `stop` is set."""
        wait = 0.0
        while not stop.wait(wait):
            wait = LOOK_SECONDS
            try:
                self.device.reread()
                if self.device.terms_digest is not None and self.device.connection and not self.device.sharing.paused:
                    self._take_part(stop)
                self.failure = ""
            except DeviceError as error:  # another program takes part, or the file is gone
                if self.device.is_erased:
                    return
                self.failure = error.message
            except TacitError as error:
                self.failure, wait = error.message, RETRY_SECONDS
            except Exception as error:  # the page must work on, and show it
                log.exception("taking part failed")
                self.failure, wait = f"{type(error).__name__}.", RETRY_SECONDS

    def _take_part(self, stop: threading.Event) -> Ending:
        self.node = WaitingNode(self.device, self.poll)
        try:
            return self.node.run(stop, self.listen)
        finally:
            self.device.participation.release_lock()


class BackgroundParticipant:
    """A participant in a thread of its own, with the device's file opened once more."""

    def __init__(self, device: DeviceFile, poll: float = 1.0) -> None:
        self._device, self._poll = device, poll
        self._stop = threading.Event()
        self._participant: Participant | None = None
        self._thread = threading.Thread(target=self._work, name="taking part", daemon=True)

    @property
    def failure(self) -> str:
        """Why it does not take part although it should, in words."""
        return "" if self._participant is None else self._participant.failure

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def _work(self) -> None:
        with self._device.wait_again() as device:
            self._participant = Participant(device, self._poll)
            self._participant.run(self._stop)

    def stop(self) -> None:
        """End it, and let the file go; a message that is on its way is finished first."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)
