"""What a device's process holds: while it waits for a round, and the process that learns, after one round.

`waiting` is a process with a device's file open and everything imported that looks for messages; `learning` has learnt
one update of the built-in town with fpl. MB are from /proc/self/smaps_rollup: resident, its own share of what several
processes map (Pss), and what is its own alone. Seconds are processor time from the start of the interpreter, scrypt for
the passphrase included. It reads /proc, so it runs on Linux only.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

PASSPHRASE = "only for a benchmark"
USAGE = """
import json, time
held = {line.split()[0][:-1]: int(line.split()[1]) // 1024 for line in open("/proc/self/smaps_rollup") if ":" in line
        and line.split()[-1] == "kB"}
print(json.dumps({"resident_mb": held["Rss"], "share_mb": held["Pss"],
                  "own_mb": held["Private_Clean"] + held["Private_Dirty"], "seconds": round(time.process_time(), 2)}))
"""
WAITING = """
import sys
from pathlib import Path
from tacit.cli import device_run
from tacit.field.carriers.participant import Participant
from tacit.field.device.device_file import DeviceFile
device = DeviceFile.open_waiting(Path(sys.argv[1]), sys.argv[2])
device.sharing, device.participation.link, device.group
"""
LEARNING = """
import sys
from pathlib import Path
from tacit.field.carriers import round_worker
from tacit.field.device import Device
device = Device.open(Path(sys.argv[1]), sys.argv[2])
assert device.upcoming() is not None
"""


def make_device(path: Path) -> None:
    """Make a device of the built-in town with a model and a history."""
    import tacit
    from tacit.field.device import Device
    from tacit.field.device.history import HistoryEntry
    from tacit.random import Key
    from tacit.reasons import ReasonCode
    from tacit.wire.federation import Federation
    from tacit.wire.messages import Request, write_request, write_welcome

    data = tacit.load("town")
    federation = Federation.create("0" * 32, "bench", "fpl", {"local_steps": 20}, data.catalog)
    items = sorted({*data.interactions.items[data.interactions.users == 0].tolist()})
    with Device.create(path, PASSPHRASE) as device:
        device.join(write_welcome(federation, data.catalog), accepts={ReasonCode.NO_GUARANTEE})
        device.history.add([HistoryEntry(data.catalog.item_ids[item]) for item in items], device.catalog)
        shared = federation.download(federation.first_model(data.catalog, Key(0)))
        device.receive(write_request(federation, Request(0, shared, learn=False)))


def main() -> None:
    """Print one JSON line per process."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    with tempfile.TemporaryDirectory(prefix="tacit-bench-") as folder:
        path = Path(folder) / "device.db"
        make_device(path)
        for name, code in (("waiting", WAITING), ("learning", LEARNING)):
            command = [sys.executable, "-c", code + USAGE, str(path), PASSPHRASE]
            runs = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(3)]
            found = min((json.loads(run) for run in runs), key=lambda one: one["seconds"])
            print(json.dumps({"bench": "waiting", "data": name, "threads": 1, **found, "commit": commit}), flush=True)


if __name__ == "__main__":
    main()
