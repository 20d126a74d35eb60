"""The user's pages are for readers who are no engineers: they have no words of the protocol."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.page_visitor import Visitor, took_part
from helpers.private_session import PrivateSession, founded, member
from helpers.small_federation import CHEAP, PASSPHRASE, first_shared, made, request
from tacit.field.device import Device
from tacit.web.device_view import DeviceView
from tacit.web.own import build_user_page
from tacit.web.server import serving

PAGES = ("/", "/history", "/sharing", "/sent", "/mine")
TECHNICAL = re.compile(
    r"\b(federations?|coordinator|rounds?|notes?|mask(?:s|ed)?|secure sums?|cohorts?|ledger|leak index)\b",
    re.IGNORECASE,
)


def read_pages(device: Device) -> dict[str, str]:
    """Return what stands on every page of a device, labels for screen readers included."""
    with device, serving(build_user_page(DeviceView(device))) as address:
        pages = {path: Visitor(address).get(path) for path in PAGES}
    labels = {
        path: " ".join(re.findall(r'(?:aria-label|aria-valuetext|title|data-sayings)="([^"]*)"', pages[path].html))
        for path in pages
    }
    assert {page.status for page in pages.values()} == {200}
    return {path: f"{page.text} {labels[path]}" for path, page in pages.items()}


def build_reader(path: Path) -> Device:
    """A member that has sent what a server can read."""
    device = made(path)
    took_part(device, 2)
    return device


def build_private_member(path: Path) -> Device:
    """A member of a group with a guarantee, that has spent some of its budget under masks."""
    terms = founded()
    device = member(path, terms, pi=0.5)
    device.receive(request(terms, 0, first_shared(terms), learn=False))
    PrivateSession(terms, device).ask(1)
    return device


def build_newcomer(path: Path) -> Device:
    """A device that has not joined."""
    return Device.create(path, PASSPHRASE, cost=CHEAP)


@pytest.mark.slow
@pytest.mark.parametrize("build", [build_reader, build_private_member, build_newcomer])
def test_no_page_has_words_of_the_protocol(build: Callable[[Path], Device], tmp_path: Path) -> None:
    found = {path: TECHNICAL.findall(text) for path, text in read_pages(build(tmp_path / "device.db")).items()}
    assert found == {path: [] for path in PAGES}


def test_sharing_has_one_button_that_saves(tmp_path: Path) -> None:
    assert len(re.findall(r"\bSave\b", read_pages(build_reader(tmp_path / "device.db"))["/sharing"])) == 1
