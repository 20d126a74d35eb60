"""Devices as processes: imports everything once, then forks a real process for each device that it is told to start.

Commands on standard input, one answer each on standard output:  start PATH -> pid;  wait PID -> exit status.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from pathlib import Path

from tacit.field.carriers.fleet_node import DeviceEvent
from tacit.field.carriers.supernode import SuperNode
from tacit.field.device import Device


def run(path: str, passphrase: str) -> None:
    """Take part until the rounds are done and the model is here."""
    stop = threading.Event()
    with Device.open(Path(path), passphrase) as device:
        node = SuperNode(device, poll=0.1)

        def listen(news: DeviceEvent) -> None:
            if news.what == "model" and node.status is not None and node.status.phase == "finished":
                stop.set()

        node.run(stop, listen)


def main() -> None:
    """Do as the commands say until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for line in sys.stdin:
        verb, what = line.split()
        if verb == "start":
            pid = os.fork()
            if pid == 0:
                try:
                    run(what, os.environ["TACIT_PASSPHRASE"])
                    os._exit(0)
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(1)
            print(pid, flush=True)
        else:
            print(os.waitpid(int(what), 0)[1], flush=True)


if __name__ == "__main__":
    main()
