"""Make the pictures of the pages anew: python tools/screenshots.py [person|lab|operator]; needs Chromium."""

from __future__ import annotations

import io
import os
import shutil
import sys
import tempfile
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from playwright.sync_api import sync_playwright

from tacit.config import Comparison, read_config
from tacit.data import DataConfig, load
from tacit.field.carriers.loopback import Loopback
from tacit.field.coordinator import Coordinator, CoordinatorJournal, RoundRules
from tacit.field.device import Device, ScryptCost, Sharing
from tacit.field.device.history import HistoryEntry
from tacit.lab.comparisons import compare
from tacit.lab.experiments import silent
from tacit.protocols.secure_aggregation import DevicePolicy
from tacit.protocols.secure_aggregation.two_stage import SecureAggregationConfig
from tacit.reasons import ReasonCode
from tacit.web.device_view import DeviceView
from tacit.web.guard import PageAddress
from tacit.web.lab import RunFolders, lab_page
from tacit.web.operator import operator_page
from tacit.web.own import build_user_page
from tacit.web.server import serving
from tacit.web.town import Town
from tacit.wire.federation import Federation
from tacit.wire.messages import write_welcome

FIGURES = Path(__file__).parent.parent / "docs" / "figures"
DESK, PHONE = (1200, 860), (390, 844)
RUNS = """
name: shares
data: {source: town}
split: {kind: temporal, test: 0.2, validation: true}
runtime: {evaluate_every: 5, ledger: events}
evaluation: {local_only_users: 0}
methods: [{name: fpl, learning_rate: 0.05, epochs: 40, reg_user: 0.05, reg_positive: 0.05, reg_negative: 0.005}]
grid: {method.pi: [0.0, 0.1, 0.3, 1.0]}
"""
COLOURS = 256
PEOPLE, PLACES, ROUNDS = 24, 60, 8  # of the federation on the operator's page


def taken(
    browser: Any,
    address: PageAddress,
    path: str,
    size: tuple[int, int],
    scheme: str,
    first: str = "",
    locale: str = "en",
) -> Image.Image:
    """Return a picture of a page as it opens; `first` is an element that is brought into view."""
    viewport = {"width": size[0], "height": size[1]}
    context = browser.new_context(viewport=viewport, color_scheme=scheme, locale=locale)
    page = context.new_page()
    page.goto(f"http://{address.hosts[0]}{address.base}{path}")
    if first:
        page.evaluate("where => window.scrollTo(0, document.querySelector(where).offsetTop - 70)", first)
    page.wait_for_timeout(300)
    picture = Image.open(io.BytesIO(page.screenshot()))
    context.close()
    return picture.convert("RGB")


def kept(name: str, *pictures: Image.Image) -> None:
    """Write pictures beside each other as one small file."""
    gap = 24 if len(pictures) > 1 else 0
    width = sum(picture.width for picture in pictures) + gap * (len(pictures) - 1)
    whole = Image.new("RGB", (width, max(picture.height for picture in pictures)), "#8f98a3")
    left = 0
    for picture in pictures:
        whole.paste(picture, (left, 0))
        left += picture.width + gap
    path = FIGURES / f"page-{name}.png"
    flat = sorted(whole.getcolors(whole.width * whole.height) or [], reverse=True)[: COLOURS // 2]
    rare = whole.quantize(COLOURS - len(flat), Image.Quantize.MAXCOVERAGE).getpalette() or []
    palette = Image.new("P", (1, 1))
    palette.putpalette([part for _, colour in flat for part in colour] + rare)  # flat colours stay as they are
    whole.quantize(palette=palette, dither=Image.Dither.NONE).save(path, optimize=True)
    print(path, f"{path.stat().st_size / 1000:.0f} kB")


class Losing(Loopback):
    """One device stops answering in the middle of its first sum."""

    def __init__(self, devices: Mapping[int, Device], lost: int) -> None:
        super().__init__(devices)
        self.lost, self.asked = lost, 0

    def ask(self, requests: Mapping[int, bytes], seconds: float) -> Generator[tuple[int, bytes]]:
        """Ask those that still answer."""
        self.asked += 1
        kept = {who: turn for who, turn in requests.items() if who != self.lost or self.asked != 3}
        yield from super().ask(kept, seconds)


def federation(folder: Path) -> tuple[Path, RoundRules]:
    """Run a small federation under masks, whose people do something new between rounds; return its journal."""
    data = load(DataConfig(source="town", users=PEOPLE, places=PLACES))
    catalog, log = data.catalog, data.interactions
    terms = Federation.create("ab" * 16, "Seaside friends", "fpl", {"local_steps": 20, "learning_rate": 0.05}, catalog)
    journal, devices = CoordinatorJournal.create(folder / "journal.db", terms, catalog, seed=1), {}
    later: dict[int, list[int]] = {}
    bold = DevicePolicy(d_min=0, cool_down=0)
    for person in range(PEOPLE):
        device = Device.create(folder / f"{person}.db", "a picture", cost=ScryptCost(log_n=10), seed=person)
        device.join(write_welcome(terms, catalog), accepts={ReasonCode.NO_GUARANTEE})
        device.share(Sharing(pi=1.0, masked_only=True, device_policy=bold))
        order = np.argsort(log.times[log.users == person]) if log.times is not None else slice(None)
        did = list(dict.fromkeys(log.items[log.users == person][order].tolist()))
        half = len(did) // 2
        device.history.add([HistoryEntry(catalog.item_ids[item]) for item in did[:half]], catalog)
        number = journal.members.add(device.identity, device.identity)
        devices[number], later[number] = device, did[half:]
    for done in range(1, ROUNDS + 1):
        rules = RoundRules(
            rounds=done, minimum=10, secure=SecureAggregationConfig(n_min=10, dropped=0.1), device_policy=bold
        )
        Coordinator(journal, rules, Losing(devices, lost=7 if done == 5 else 0)).run()
        for number, device in devices.items():
            if later[number]:
                device.history.add([HistoryEntry(catalog.item_ids[later[number].pop(0)])], catalog)
    journal.close()
    for device in devices.values():
        device.close()
    return folder / "journal.db", RoundRules(
        rounds=50, minimum=10, secure=SecureAggregationConfig(n_min=10, dropped=0.1)
    )


def person(browser: Any, folder: Path) -> None:
    """Take the person's pages."""
    town = Town.create(folder / "device.db", silent)
    assert town.device is not None
    with town.device as device, serving(build_user_page(DeviceView(device, "town", town))) as address:
        kept("for-you", taken(browser, address, "/", DESK, "light"))
        kept("sharing", taken(browser, address, "/sharing", (1200, 1050), "dark"))
        kept("sent", taken(browser, address, "/sent", (1200, 1120), "light"))
        looks = (("/", "light"), ("/sharing", "dark"), ("/sent", "light"), ("/history?q=caf", "dark"))
        kept("phone", *(taken(browser, address, path, PHONE, scheme) for path, scheme in looks))
        words = (("/mine", "footer", "en"), ("/", "", "de"), ("/sharing", "", "de"), ("/sent", "footer", "de"))
        looks_of = (taken(browser, address, path, PHONE, "light", first, locale) for path, first, locale in words)
        kept("languages", *looks_of)


def lab(browser: Any, folder: Path) -> None:
    """Take the lab's page."""
    file = folder / "shares.yaml"
    file.write_text(RUNS, encoding="utf-8")
    compare(read_config(Comparison, file), out=folder / "runs")
    with serving(lab_page(RunFolders([folder / "runs"]))) as address:
        kept("lab", taken(browser, address, "/", (1200, 1000), "light", "#figures"))
        kept("lab-dark", taken(browser, address, "/", DESK, "dark"))
        looks = (("light", ""), ("dark", "#figures"))
        kept("phone-lab", *(taken(browser, address, "/", PHONE, scheme, first) for scheme, first in looks))


def operator(browser: Any, folder: Path) -> None:
    """Take the operator's page."""
    journal, rules = federation(folder)
    with serving(operator_page(journal, rules, lambda: PEOPLE)) as address:
        kept("operator", taken(browser, address, "/", (1200, 1000), "light"))
        kept("operator-dark", taken(browser, address, "/", (1200, 1000), "dark", "#quality"))
        looks = (("light", ""), ("dark", "#phases"))
        kept("phone-operator", *(taken(browser, address, "/", PHONE, scheme, first) for scheme, first in looks))


def main() -> None:
    """Make them all, or those that are named: person, lab, operator."""
    makers = {"person": person, "lab": lab, "operator": operator}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=sandbox)
        for name in sys.argv[1:] or makers:
            makers[name](browser, Path(folder))
        browser.close()


if __name__ == "__main__":
    main()
