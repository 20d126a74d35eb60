"""A real browser: a user without a history chooses interests, and suggestions begin."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.browser import PHONE, barriers, opened
from helpers.page_visitor import took_part
from helpers.small_federation import CATALOG, made
from tacit.field.device import Device
from tacit.web.device_view import DeviceView
from tacit.web.own import build_user_page
from tacit.web.server import serving

pytestmark = pytest.mark.slow


@pytest.fixture
def newcomer(tmp_path: Path) -> Iterator[Device]:
    """A member with a model and an empty history."""
    with made(tmp_path / "device.db") as device:
        took_part(device, 1)
        for entry in device.history.list():
            device.history.remove(entry.item, CATALOG)
        yield device


def test_interests_start_suggestions(browser: Any, newcomer: Device) -> None:
    with serving(build_user_page(DeviceView(newcomer))) as address:
        page = opened(browser, address, PHONE)
        assert page.locator(".picks > li").count() == 0
        page.get_by_label("culture").check()
        page.get_by_role("button", name="Suggest from these").click()
        assert "stay on this device" in page.get_by_role("status").inner_text()
        assert newcomer.preferences.interests.categories == ("culture",)
        assert "Because you chose “culture”" in page.locator(".picks .why").first.inner_text()
        page.get_by_label("Or search for a title that you like").fill("hill")
        page.get_by_role("button", name="Search").click()
        page.get_by_role("button", name="I like Hill Hotel").click()
        assert [CATALOG.called(item) for item in newcomer.preferences.interests.items] == ["Hill Hotel"]
        assert newcomer.preferences.interests.categories == ("culture",)
        page.get_by_role("button", name="Forget my interests").click()
        assert not newcomer.preferences.interests
        assert page.complaints == []
        page.context.close()
        assert barriers(browser, address, ["/", "/?q=hill"]) == []
