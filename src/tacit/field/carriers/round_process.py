"""A node that waits, and gives each round to a process of its own: what learning needs is in memory while it learns.

    waits     this process polls, with the file's lock; it imports nothing that learns
    starts    a message has come: `round_worker` starts, opens the file, and says that it is ready
    rounds    the lock changes hands: the worker answers this message and the next ones, until the round is over
    ends      the worker lets the lock go and ends; this process takes it back

The worker gets the file's data key through its standard input, never on a command line or in the environment. Once that
pipe closes, because this process wants to stop or was killed, the worker finishes the message it is at, and ends. So
one process at a time has the lock, and a kill at any point is what it is for a single process.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import subprocess
import sys
import threading
from base64 import b64encode
from typing import IO, Any

from tacit.errors import DeviceError
from tacit.field.carriers.fleet_node import DeviceEvent, FleetNode, LostLockError, LostSessionError
from tacit.wire.status import CoordinatorStatus

log = logging.getLogger("tacit.field.device")
WORKER = "tacit.field.carriers.round_worker"
CHECK_SECONDS = 0.2  # between two checks whether to stop
END_SECONDS = 60.0  # a worker that was asked to end has so long to finish its message
SECRETS = ("TACIT_PASSPHRASE", "TACIT_NEW_PASSPHRASE", "TACIT_RECOVERY_CODE")  # the worker needs none of them


class WaitingNode(FleetNode):
    """Takes part with a device's file, and with a process for each round."""

    def _handle(self, client: Any, node: Any, found: Any, stop: threading.Event) -> None:
        participation = self.device.participation
        with _Worker() as worker:
            worker.write(
                {
                    "file": str(self.device.store.path),
                    "secret": [b64encode(self.device.store.hand_over()[0]).decode(), self.device.store.hand_over()[1]],
                    "poll": self.poll,
                    "node": str(node.node_id),
                    "found": b64encode(found.SerializeToString()).decode(),
                    "log": logging.getLogger("tacit").isEnabledFor(logging.INFO),
                }
            )
            for line in worker.lines(stop):
                if "ready" in line:
                    participation.release_lock()
                    worker.write({"go": True})
                elif "event" in line:
                    self._signing.status = CoordinatorStatus.read(line["status"]) or self.status
                    self._listen(DeviceEvent(**line["event"]))
                elif "error" in line:
                    worker.error = LostSessionError(line["error"], line["hint"])
        try:
            participation.take_lock()
        except DeviceError as error:
            raise LostLockError(error.message, error.hint) from None
        if worker.error is not None:
            raise worker.error


class _Worker:
    """The process of a round, and the pipes to it."""

    def __init__(self) -> None:
        environment = {name: value for name, value in os.environ.items() if name not in SECRETS}
        self.error: LostSessionError | None = None
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        self._lines: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True).start()

    def __enter__(self) -> _Worker:
        return self

    def __exit__(self, *what: object) -> None:
        self._end()
        try:
            code = self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        if code and self.error is None:
            self.error = LostSessionError(
                f"The process for a round ended unexpectedly ({code}).", "It will be tried again."
            )

    def write(self, about: dict[str, Any]) -> None:
        """Write to the worker; one that is gone, or was asked to end, is noticed where its lines end."""
        assert self._process.stdin is not None
        if self._process.stdin.closed:
            return
        try:
            self._process.stdin.write(json.dumps(about).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            return

    def lines(self, stop: threading.Event) -> Any:
        """Yield what the worker says, until it ends; from `stop` on it is asked to."""
        while True:
            if stop.is_set():
                self._end()
            try:
                line = self._lines.get(timeout=CHECK_SECONDS)
            except queue.Empty:
                continue
            if line is None:
                return
            yield line

    def _end(self) -> None:
        """Ask the worker to end."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
        except OSError:
            return

    def _read(self, out: IO[bytes]) -> None:
        try:
            with out:
                for line in out:
                    self._lines.put(json.loads(line))
        except ValueError:  # a worker that was killed had written a part of a line
            log.warning("a line of the process for a round was cut")
        finally:
            self._lines.put(None)
