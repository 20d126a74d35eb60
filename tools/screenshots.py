"""Make the pictures of the pages in docs/figures anew: python tools/screenshots.py (needs Chromium)."""

from __future__ import annotations

import io
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

from tacit.comparisons import compare
from tacit.config import Comparison, read
from tacit.experiments import silent
from tacit.web.guard import Door
from tacit.web.lab import Lab, lab_page
from tacit.web.own import person_page
from tacit.web.person import Person
from tacit.web.server import serving
from tacit.web.town import Town

FIGURES = Path(__file__).parent.parent / "docs" / "figures"
DESK, PHONE = (1200, 860), (390, 844)
RUNS = """
name: shares
data: {source: town}
split: {kind: temporal, test: 0.2, validation: true}
runtime: {look_every: 5, ledger: events}
evaluation: {twin_people: 0}
methods: [{name: fpl, learning_rate: 0.05, epochs: 40, reg_user: 0.05, reg_positive: 0.05, reg_negative: 0.005}]
grid: {method.pi: [0.0, 0.1, 0.3, 1.0]}
"""
COLOURS = 256


def taken(browser: Any, door: Door, path: str, size: tuple[int, int], scheme: str, first: str = "") -> Image.Image:
    """Return a picture of a page as it opens; `first` is an element that is brought into view."""
    viewport = {"width": size[0], "height": size[1]}
    context = browser.new_context(viewport=viewport, color_scheme=scheme)
    page = context.new_page()
    page.goto(door.link)
    page.wait_for_url(f"http://{door.hosts[0]}/")
    page.goto(f"http://{door.hosts[0]}{path}")
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
    whole.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(path, optimize=True)
    print(path, f"{path.stat().st_size / 1000:.0f} kB")


def main() -> None:
    """Make them all."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=sandbox)
        town = Town.founded(Path(folder) / "device.db", silent)
        assert town.device is not None
        with town.device as device, serving(person_page(Person(device, "town", town))) as door:
            kept("for-you", taken(browser, door, "/", DESK, "light"))
            kept("sharing", taken(browser, door, "/sharing", (1200, 1050), "dark"))
            kept("sent", taken(browser, door, "/sent", (1200, 1120), "light"))
            looks = (("/", "light"), ("/sharing", "dark"), ("/sent", "light"), ("/history?q=caf", "dark"))
            kept("phone", *(taken(browser, door, path, PHONE, scheme) for path, scheme in looks))
        file = Path(folder) / "shares.yaml"
        file.write_text(RUNS, encoding="utf-8")
        compare(read(Comparison, file), Path(folder) / "runs")
        with serving(lab_page(Lab([Path(folder) / "runs"]))) as door:
            kept("lab", taken(browser, door, "/", (1200, 1000), "light", "#figures"))
        browser.close()


if __name__ == "__main__":
    main()
