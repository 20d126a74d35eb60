"""A device with a model and two sent messages, its page, and a visitor."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.browser import real_browser
from helpers.page_visitor import Visitor, took_part
from helpers.small_federation import made
from tacit.field.device import Device
from tacit.web.device_view import DeviceView
from tacit.web.own import build_user_page
from tacit.web.server import serving


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with real_browser() as browser:
        yield browser


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Device]:
    with made(tmp_path / "device.db") as device:
        took_part(device, 2)
        yield device


@pytest.fixture
def visitor(device: Device) -> Iterator[Visitor]:
    with serving(build_user_page(DeviceView(device))) as address:
        yield Visitor(address)
