"""A real browser that looks at a page and complains."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from tacit.web.guard import PageAddress

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PHONE, DESK = {"width": 390, "height": 844}, {"width": 1280, "height": 900}


@contextmanager
def real_browser() -> Iterator[Any]:
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("the pages in a real browser: no Chromium here (apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []  # root cannot have one
        browser = playwright.chromium.launch(executable_path=found, args=sandbox)
        yield browser
        browser.close()


def opened(browser: Any, address: Any, size: dict[str, int] = DESK, scheme: str = "light") -> Any:
    """A page that came in by the start link; anything that the console complains of fails the test."""
    context = browser.new_context(viewport=size, color_scheme=scheme, accept_downloads=True)
    page = context.new_page()
    page.complaints = []
    page.on("console", lambda said: page.complaints.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.on("request", lambda asked: page.complaints.append(asked.url) if address.hosts[0] not in asked.url else None)
    page.goto(f"http://{address.hosts[0]}{address.base}/")  # the start link works once; several pages share a address
    page.wait_for_url(f"http://{address.hosts[0]}{address.base}/")
    return page


def barriers(browser: Any, address: PageAddress, paths: Sequence[str]) -> list[Any]:
    """What axe finds on some pages, on a desk by day and on a phone at night; and pages wider than the screen."""
    from axe_playwright_python.sync_playwright import Axe

    axe, found = Axe(), []
    for size, scheme in ((DESK, "light"), (PHONE, "dark")):
        page = opened(browser, address, size, scheme)
        for path in paths:
            page.goto(f"http://{address.hosts[0]}{address.base}{path}")
            told = axe.run(page).response["violations"]
            found += [(path, scheme, one["id"], [node["html"][:120] for node in one["nodes"][:3]]) for one in told]
            wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            found += [(path, scheme, f"{wide} pixels too wide")] if wide > 0 else []
        found += page.complaints
        page.context.close()
    return found
