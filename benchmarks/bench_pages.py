"""The person's pages with ten thousand things in her history and fifty thousand in the catalogue: seconds for each."""

from __future__ import annotations

import http.client
import json
import tempfile
import time
from pathlib import Path

import numpy as np

from tacit.field.device import Device, ScryptCost
from tacit.field.device.history import HistoryEntry
from tacit.random import Key
from tacit.reasons import ReasonCode
from tacit.types import Catalog, Labels, Vocabulary
from tacit.web.device_view import DeviceView
from tacit.web.own import build_user_page
from tacit.web.server import PageAddress, freeze_loaded_objects, serving
from tacit.wire.federation import Federation
from tacit.wire.messages import Request, write_request, write_welcome

ITEMS, HERS, TIMES = 50_000, 10_000, 5
PATHS = ("/", "/history", "/history?q=thing", "/history?mine=77&page=3", "/sharing", "/sent", "/mine")


def large_device(folder: Path) -> Device:
    titles = [f"The {item % 977} thing number {item} of a large catalogue" for item in range(ITEMS)]
    kinds = Labels(np.arange(ITEMS + 1), (np.arange(ITEMS) % 40).astype(np.int32), [f"kind {k}" for k in range(40)])
    catalog = Catalog(Vocabulary(np.arange(ITEMS)), titles, kinds)
    federation = Federation.create("ab" * 16, "large", "fpl", {"local_steps": 24}, catalog)
    device = Device.create(folder / "device.db", "a benchmark", cost=ScryptCost(log_n=10))
    device.join(write_welcome(federation, catalog), "here", accepts={ReasonCode.NO_GUARANTEE})
    device.change(lambda before: before.model_copy(update={"masked_only": False}))
    device.history.add([HistoryEntry(5 * item, 1_700_000_000 + item) for item in range(HERS)], None)
    shared = federation.download(federation.first_model(catalog, Key(7)))
    for number in range(3):
        entry = device.learn(write_request(federation, Request(number, shared, True, number - 1)))
        device.release(entry)
        device.answers.mark_sent(entry)
    return device


def visit(address: PageAddress, path: str) -> float:
    """Return the processor's seconds of this process, page and visitor, for one visit."""
    connection = http.client.HTTPConnection("127.0.0.1", address.port, timeout=60)
    started = time.process_time()
    connection.request("GET", address.base + path, headers={"Host": address.hosts[0]})
    answer = connection.getresponse()
    answer.read()
    spent = time.process_time() - started
    connection.close()
    if answer.status != 200:
        raise SystemExit(f"{path} answered {answer.status}")
    return spent


def main() -> None:
    with (
        tempfile.TemporaryDirectory(prefix="tacit-bench-") as folder,
        large_device(Path(folder)) as device,
        serving(build_user_page(DeviceView(device))) as address,
    ):
        freeze_loaded_objects()
        for path in PATHS:
            visits = [visit(address, path) for _ in range(TIMES)]
            line = {"benchmark": "pages", "path": path, "seconds": min(visits[1:]), "first_seconds": visits[0]}
            print(
                json.dumps(
                    {name: round(value, 4) if isinstance(value, float) else value for name, value in line.items()}
                )
            )


if __name__ == "__main__":
    main()
