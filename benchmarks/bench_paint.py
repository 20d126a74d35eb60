"""First paint in Chromium: a person's pages with 10,000 things and 50,000 items, the operator's, the lab's.

Milliseconds from the start of a navigation to the first contentful paint, as the browser itself reports them. `cold`
is the first visit right after her file changed, so that nothing that the page keeps can be used. `work` is what does
not depend on what else the machine does: processor time of the page's thread in the browser, and of the server.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from bench_pages import PATHS, large_device
from tacit.config import Experiment
from tacit.field.coordinator import CoordinatorJournal, RoundRules
from tacit.field.coordinator.round_log import RoundRecord
from tacit.field.coordinator.round_stats import PhaseCounts, RoundStats, SummedQuality
from tacit.field.device.history import HistoryEntry
from tacit.lab.experiments import run
from tacit.protocols.secure_aggregation.two_stage import SecureAggregationConfig
from tacit.web.device_view import DeviceView
from tacit.web.lab import RunFolders, key_of, lab_page
from tacit.web.operator import operator_page
from tacit.web.own import build_user_page
from tacit.web.server import PageAddress, freeze_loaded_objects, serving

ROUNDS, TIMES = 1_000, 7
NAMES = ("adverts", "shares", "vectors", "confirmations", "unmaskings")
SETS = ("full", "sampled-100")  # what a lab cannot compare
PAINT = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"


def painted(page: Any, address: str) -> float:
    """Return the milliseconds to the first contentful paint of one navigation."""
    page.goto(address, wait_until="load")
    while (found := page.evaluate(PAINT)) is None:
        page.wait_for_timeout(20)
    return float(found)


def worked(context: Any, page: Any, address: str) -> float:
    """Return the processor seconds of one navigation: the page's main thread, and this process with its server."""
    probe = context.new_cdp_session(page)
    probe.send("Performance.enable", {"timeDomain": "threadTicks"})
    started = time.process_time()
    page.goto(address, wait_until="load")
    here = time.process_time() - started
    told = {one["name"]: one["value"] for one in probe.send("Performance.getMetrics")["metrics"]}
    return float(told["TaskDuration"]) + here


def told(browser: Any, address: PageAddress, kind: str, path: str, before: Callable[[], None]) -> None:
    """Print what a page took, cold and warm."""
    context = browser.new_context(viewport={"width": 1200, "height": 860})
    page = context.new_page()
    page.goto(address.link)
    page.wait_for_url(f"http://{address.hosts[0]}/")
    address = f"http://{address.hosts[0]}{path}"
    page.goto(f"http://{address.hosts[0]}/static/icon.svg")
    before()
    cold = painted(page, address)
    warm = [painted(page, address) for _ in range(TIMES)]
    line = {"benchmark": "paint", "page": kind, "path": path, "cold_ms": cold, "warm_ms": median(warm)}
    line |= {"best_ms": min(warm), "worst_ms": max(cold, *warm), "work_ms": 1000 * worked(context, page, address)}
    print(json.dumps({name: round(value) if isinstance(value, float) else value for name, value in line.items()}))
    context.close()


def long_journal(path: Path) -> RoundRules:
    """Write a journal of many rounds of a secure sum."""
    from tacit.data import load
    from tacit.random import Key
    from tacit.wire.federation import Federation

    catalog = load("town").catalog
    federation = Federation.create("ab" * 16, "long", "fpl", {"local_steps": 24}, catalog)
    journal, shared = (
        CoordinatorJournal.create(path, federation, catalog, seed=1),
        federation.first_model(catalog, Key(7)),
    )
    phases = tuple(PhaseCounts(stage, name, 50, 48, 0, 0, 9_000, 20_000, 0.2) for stage in (1, 2) for name in NAMES)
    for number in range(ROUNDS):
        happened = RoundRecord(number, "finished", 50, 48, 0, 2, 90_000, 200_000, 2.0)
        journal.finish(happened, shared, [], RoundStats(phases, SummedQuality(9, 30)))
    journal.close()
    return RoundRules(rounds=2 * ROUNDS, secure=SecureAggregationConfig())


def main() -> None:
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        sys.exit("There is no Chromium here (apt-get install chromium).")
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    with tempfile.TemporaryDirectory(prefix="tacit-bench-") as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=sandbox)
        with large_device(Path(folder)) as device, serving(build_user_page(DeviceView(device))) as address:
            freeze_loaded_objects()
            changed = [0]

            def change() -> None:
                changed[0] += 1
                device.history.add([HistoryEntry(5 * changed[0] + 1, 1_800_000_000)], None)

            for path in PATHS:
                told(browser, address, "person", path, change)
            told(
                browser, address, "an empty one", "/nowhere", lambda: None
            )  # what browser and machine take by themselves
        rules = long_journal(Path(folder) / "journal.db")
        with serving(operator_page(Path(folder) / "journal.db", rules, lambda: 50)) as address:
            told(browser, address, "operator", "/", lambda: None)
        folders = [Path(folder) / str(negatives) for negatives in SETS]
        for place, protocol in zip(folders, SETS, strict=True):
            given = {"method": "most-popular", "evaluation": {"protocol": protocol, "local_only_users": 0}}
            run(Experiment.from_options(given, "a benchmark"), folder=place)
        lab = RunFolders(folders)
        with serving(lab_page(lab)) as address:
            told(browser, address, "lab, a set not yet drawn", f"/?set={key_of(lab.sets()[1])}", lambda: None)
        browser.close()


if __name__ == "__main__":
    main()
