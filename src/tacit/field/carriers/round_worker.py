"""The process of one round: `round_process` starts it, says what to do on its standard input, and reads what happens.

It opens the device's file with a key that it was handed, takes the lock, and answers the message that has come and
those that follow. It ends once the coordinator says that no round is running, or after a minute without a message.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time
from base64 import b64decode
from dataclasses import asdict
from pathlib import Path
from typing import Any

from flwr.proto.fleet_pb2 import PullMessagesRequest, PullMessagesResponse
from flwr.proto.node_pb2 import Node

from tacit.errors import TacitError
from tacit.field.carriers.fleet_node import DeviceEvent
from tacit.field.carriers.supernode import SuperNode
from tacit.field.device import Device
from tacit.field.device.store import Store
from tacit.field.json_log import log_to_stderr

IDLE_SECONDS = 60.0  # without a message, whatever the coordinator says


class RoundNode(SuperNode):
    """Answers a message that was found already, and the messages of the same round after it."""

    def __init__(self, device: Device, poll: float, found: Any) -> None:
        super().__init__(device, poll)
        self._found, self._last = found, time.monotonic()

    def finish(self, number: int, stop: threading.Event, listen: Any) -> None:
        """Answer until the round is over, over a connection of its own to the same session."""
        with self._connect() as client:
            self._serve(client, Node(node_id=number), stop, listen)

    def _poll(self, client: Any, node: Any) -> Any:
        found, self._found = self._found, None
        if found is None:
            found = client.PullMessages(PullMessagesRequest(node=node))
        if found.messages_list:
            self._last = time.monotonic()
            return found
        is_running = self.status is not None and self.status.phase == "round"
        return found if is_running and time.monotonic() - self._last < IDLE_SECONDS else None


def main() -> None:
    """Do the work of one round."""
    out, stop = os.fdopen(os.dup(1), "w", encoding="utf-8"), threading.Event()
    os.dup2(2, 1)  # what a library prints is no line for the other process
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C: the process that waits decides, and closes the pipe
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    about = json.loads(sys.stdin.readline())
    if about["log"]:
        log_to_stderr()
    else:
        logging.getLogger("tacit").addHandler(logging.NullHandler())

    def say(**line: Any) -> None:
        try:
            print(json.dumps(line), file=out, flush=True)
        except OSError:  # the other process is gone
            stop.set()

    try:
        _work(about, stop, say)
    except TacitError as error:
        say(error=error.message, hint=error.hint)


def _work(about: dict[str, Any], stop: threading.Event, say: Any) -> None:
    key, file_id = about["secret"]
    with Device(Store.open_handed(Path(about["file"]), b64decode(key), file_id)) as device:
        found = PullMessagesResponse.FromString(b64decode(about["found"]))
        node = RoundNode(device, about["poll"], found)
        say(ready=True)
        if not sys.stdin.readline():
            return  # it was closed: the user wants to stop
        device.participation.take_lock()
        threading.Thread(target=_await_end, args=(stop,), daemon=True).start()

        def tell(news: DeviceEvent) -> None:
            say(event=asdict(news), status="" if node.status is None else node.status.write())

        node.finish(int(about["node"]), stop, tell)


def _await_end(stop: threading.Event) -> None:
    """Stop once the other process has closed the pipe, or is gone."""
    sys.stdin.read()
    stop.set()


if __name__ == "__main__":
    main()
