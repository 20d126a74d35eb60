"""A real browser on the user's page: all that a user can do, by mouse and keyboard, wide and narrow, light and dark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.browser import PHONE, barriers, opened
from helpers.page_visitor import Visitor, took_part
from helpers.small_federation import made
from tacit.field.device import Device
from tacit.field.device.exposure import LedgerReader
from tacit.field.device.settings import USUAL_PI
from tacit.web.device_view import DeviceView
from tacit.web.own import build_user_page
from tacit.web.server import serving
from tacit.web.words import format_percent

pytestmark = pytest.mark.slow

PAGES = ("/", "/history?q=hotel", "/sharing", "/sent", "/mine")


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Device]:
    with made(tmp_path_factory.mktemp("browser") / "device.db") as device:
        took_part(device, 2)
        yield device


@pytest.fixture(scope="module")
def address(device: Device) -> Iterator[Any]:
    with serving(build_user_page(DeviceView(device))) as address:
        yield address


@pytest.fixture
def page(browser: Any, address: Any) -> Iterator[Any]:
    page = opened(browser, address)
    yield page
    assert page.complaints == []
    page.context.close()


@pytest.mark.slow
def test_no_page_has_a_barrier(browser: Any, address: Any) -> None:
    assert barriers(browser, address, PAGES) == []


def test_a_user_adds_finds_and_removes(page: Any, device: Device) -> None:
    from playwright.sync_api import expect

    page.get_by_role("link", name="History").click()
    page.get_by_label("Search the catalogue").type("hill")
    page.get_by_role("button", name="Add Hill Hotel").click()
    assert page.get_by_role("status").inner_text() == "Added “Hill Hotel”."
    page.get_by_label("Find in your history").type("HILL")
    expect(page.locator("#mine-list .rows > li")).to_have_count(1)
    page.get_by_role("button", name="Never share: Hill Hotel").click()
    assert device.sharing.never_items == ("place-0007-hill",)
    page.get_by_role("button", name="Share again: Hill Hotel").click()
    page.get_by_role("button", name="Remove Hill Hotel").click()
    assert "stays sent" in page.get_by_role("status").inner_text()
    assert len(device.history) == 4


def test_a_user_imports_a_file_and_reads_what_was_not_understood(page: Any, device: Device, tmp_path: Path) -> None:
    file = tmp_path / "watched.csv"
    file.write_text("Name,Date\nPine Park,2024-05-01\nNowhere,2024-05-02\n")
    page.goto(page.url + "history")
    page.get_by_label("File").set_input_files(file)
    page.get_by_role("button", name="Look at the file").click()
    assert page.get_by_role("heading", level=1).inner_text() == "Nothing was added yet"
    assert "Nowhere" in page.get_by_role("region", name="Not in the catalogue").inner_text()
    before = len(device.history)
    page.get_by_role("button", name="Add to my history").click()
    assert page.get_by_role("heading", level=1).inner_text() == "Added to your history"
    assert len(device.history) == before + 1
    page.get_by_role("button", name="Undo this import").click()
    assert len(device.history) == before


def test_the_slider_answers_at_once_by_keyboard_and_is_saved(page: Any, device: Device) -> None:
    page.get_by_role("link", name="Sharing").click()
    slider = page.get_by_role("slider")
    slider.focus()
    page.keyboard.press("Home")
    assert page.locator("#saying").inner_text() == "Nothing: no hint about what you did is sent."
    assert page.locator("[data-read=named]").inner_text() == "0 %"
    for _ in range(3):
        page.keyboard.press("PageUp")
    assert slider.get_attribute("aria-valuetext") == "Some: 30 in 100 hints about what you did may be sent."
    assert page.locator("[data-read=named]").inner_text() == "91 %", "as measured at pi = 0.3"
    assert device.sharing.pi == USUAL_PI, "nothing is saved yet"
    page.get_by_label("drinks").check()
    page.get_by_role("button", name="Save settings").click()
    assert (device.sharing.pi, device.sharing.never_categories) == (0.3, ("drinks",))
    assert page.get_by_role("slider").input_value() == "30"
    page.get_by_label("drinks").uncheck()
    page.get_by_role("button", name="Save settings").click()


def test_a_user_sees_what_left_and_what_can_be_inferred_from_it(page: Any, device: Device) -> None:
    page.get_by_role("link", name="Sent").click()
    found = LedgerReader.of(device).measure()
    assert page.locator("#named").inner_text() == str(found.exposure.named)
    assert page.locator("#leak").inner_text() == format_percent(found.exposure.leak_index)
    last = device.ledger.list()[-1]
    entry = page.locator(f"[data-entry='{last.number}']")
    entry.locator("summary").click()
    assert f"About what you did: {len(last.positives)}" in entry.inner_text()
    assert last.digest in entry.inner_text()
    for label in {*last.positives}:
        assert device.catalog.title(device.catalog.item_ids.index(label)) in entry.inner_text()


def test_a_user_hides_an_item_pauses_and_exports(page: Any, device: Device, tmp_path: Path) -> None:
    first = page.locator(".picks h2").first.inner_text()
    page.get_by_role("button", name=f"Not for me: {first}").click()
    assert first not in page.locator(".picks h2").all_inner_texts()
    page.get_by_role("button", name="Pause").click()
    assert device.sharing.paused
    page.get_by_role("button", name="Resume").click()
    assert not device.sharing.paused
    page.get_by_role("link", name="My file").click()
    with page.expect_download() as waiting:
        page.get_by_role("link", name="Readable copy").click()
    assert first in Path(waiting.value.path()).read_text() or device.preferences.hidden
    device.preferences.unhide(device.preferences.hidden[0])


def test_everything_works_by_keyboard_alone(page: Any) -> None:
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')").startswith("I did this: ")


def test_without_scripts_the_same_can_be_done(browser: Any, address: Any, device: Device) -> None:
    context = browser.new_context(java_script_enabled=False, viewport=PHONE)
    page = context.new_page()
    page.goto(f"http://{address.hosts[0]}{address.base}/")
    page.get_by_role("link", name="History").click()
    page.get_by_label("Search the catalogue").fill("ink")
    page.get_by_role("button", name="Search").click()
    page.get_by_role("button", name="Add Ink Library").click()
    assert "place-0008-ink" in [entry.item for entry in device.history.list()]
    device.history.remove("place-0008-ink", None)
    context.close()


def test_a_foreign_site_in_the_same_browser_gets_nothing(page: Any, device: Device, address: Any) -> None:
    """Even a page of another origin that knows the secret path cannot post a form."""
    other = page.context.new_page()
    target = f"http://{address.hosts[0]}{address.base}"
    form = f'<form method="post" action="{target}/mine/pause"></form>'
    other.route("http://evil.example/", lambda route: route.fulfill(body=form, content_type="text/html"))
    other.goto("http://evil.example/")
    with other.expect_navigation():
        other.evaluate("document.forms[0].submit()")
    assert "not open to you" in other.content()
    assert not device.sharing.paused
    other.close()


def test_a_user_leaves_and_erases(browser: Any, tmp_path: Path) -> None:
    with made(tmp_path / "device.db") as device, serving(build_user_page(DeviceView(device))) as own:
        page = opened(browser, own)
        page.get_by_role("link", name="My file").click()
        page.get_by_role("button", name="Leave").click()
        assert device.membership is None
        page.get_by_label("Type “erase”").fill("erase")
        page.get_by_role("button", name="Erase everything").click()
        assert page.get_by_role("heading", level=1).inner_text() == "Everything is erased"
        assert "stays in the shared model" in page.locator("main").inner_text()
        assert not (tmp_path / "device.db").exists()
        assert Visitor(own).get("/mine/data.json").status == 200
        assert page.complaints == []
        page.context.close()
