"""The person's page as an installed app in a real browser: it starts offline, and keeps nothing that is private."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from helpers.browser import opened
from helpers.page_visitor import Visitor
from helpers.small_federation import made
from tacit.web.device_view import DeviceView
from tacit.web.own import build_user_page
from tacit.web.server import serving

pytestmark = pytest.mark.slow

KEPT = """async () => {
  const found = [];
  for (const name of await caches.keys())
    for (const request of await (await caches.open(name)).keys()) found.push(new URL(request.url).pathname);
  return found;
}"""


def wait_for_worker(page: Any) -> None:
    page.wait_for_function(
        "navigator.serviceWorker.getRegistration('/static/').then((one) => one?.active?.state === 'activated')"
    )


def test_it_can_be_installed_starts_offline_and_keeps_no_private_page(browser: Any, tmp_path: Path) -> None:
    from axe_playwright_python.sync_playwright import Axe

    with made(tmp_path / "device.db") as device, serving(build_user_page(DeviceView(device))) as address:
        page = opened(browser, address)
        wait_for_worker(page)
        errors = page.context.new_cdp_session(page).send("Page.getInstallabilityErrors")
        assert [one["errorId"] for one in errors["installabilityErrors"] if one["errorId"] != "in-incognito"] == []
        for path in ("/history", "/sharing", "/sent", "/mine"):
            page.goto(f"http://{address.hosts[0]}{address.base}{path}")
        kept = page.evaluate(KEPT)
        assert kept
        assert all(path.startswith("/static/") for path in kept)
        start = f"http://{address.hosts[0]}/static/app.html"
        page.goto(start)
        page.wait_for_url(f"http://{address.hosts[0]}{address.base}/")  # the program runs: it goes straight to the page
        assert page.complaints == []
    page.goto(start)  # the program has ended: the worker answers
    assert page.get_by_role("heading", name="Tacit is not running").is_visible()
    assert Axe().run(page).response["violations"] == []
    with made(tmp_path / "other.db") as device, serving(build_user_page(DeviceView(device)), address.port) as other:
        page.get_by_role("heading", name="Open the link of this start").wait_for()
        page.goto(f"http://{other.hosts[0]}{other.base}/")
        page.goto(start)
        page.wait_for_url(f"http://{other.hosts[0]}{other.base}/")
    page.context.close()


def test_erasing_removes_the_app_s_traces_from_the_browser(browser: Any, tmp_path: Path) -> None:
    with made(tmp_path / "device.db") as device, serving(build_user_page(DeviceView(device))) as address:
        page = opened(browser, address)
        wait_for_worker(page)
        assert page.evaluate("localStorage.length") == 1
        Visitor(address).post("/mine/erase", {"word": "erase"})
        page.goto(f"http://{address.hosts[0]}{address.base}/")
        page.wait_for_function(f"({KEPT})().then((kept) => kept.length === 0)")
        page.wait_for_function("navigator.serviceWorker.getRegistrations().then((all) => all.length === 0)")
        assert page.evaluate("localStorage.length") == 0
        page.context.close()


def test_public_files_are_in_the_language_of_the_reader(tmp_path: Path) -> None:
    with made(tmp_path / "device.db") as device, serving(build_user_page(DeviceView(device))) as address:
        visitor = Visitor(address)
        before = visitor.get("/static/app.html").body
        device.preferences.language = "de"
        assert visitor.get("/static/app.html").body == before
        assert visitor.get("/static/app.html", Accept_Language="de").body != before


def test_public_files_do_not_contain_the_secret_path(tmp_path: Path) -> None:
    with made(tmp_path / "device.db") as device, serving(build_user_page(DeviceView(device))) as address:
        visitor = Visitor(address)
        visitor.base = ""  # answers as they are
        for name in ("app.html", "app.js", "worker.js", "manifest.webmanifest", "icon-maskable.svg"):
            answer = visitor.get(f"/static/{name}")
            assert answer.status == 200, name
            assert address.secret.encode() not in answer.body
            assert address.token.encode() not in answer.body
