"""Every text of the user's pages has a translation with the same values; no page shows one language in another."""

from __future__ import annotations

import json
import re
import string
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.page_texts import PAGES, SOURCE, every_text
from helpers.page_visitor import Visitor, took_part
from helpers.small_federation import made
from tacit.errors import ConfigError
from tacit.field.device import Device
from tacit.languages import LANGUAGE, MARKS, catalogue, choose_language, languages, translate
from tacit.web.device_view import DeviceView
from tacit.web.own import build_user_page
from tacit.web.server import serving
from tacit.web.words import format_bytes, format_time, plural, write_number

OTHERS = [code for code in languages() if code != "en"]
BETWEEN_TAGS = re.compile(r">([^<>{}]*[A-Za-z]{2}[^<>{}]*)<")


@pytest.fixture
def german() -> Iterator[None]:
    before = LANGUAGE.set("de")
    yield
    LANGUAGE.reset(before)


def values_in(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


@pytest.mark.parametrize("language", OTHERS)
def test_a_language_has_every_text_with_the_same_values_and_tags_and_no_others(language: str) -> None:
    texts = catalogue(language)
    assert {key for key in texts if key.startswith("@")} == {*MARKS}
    own = {key: text for key, text in texts.items() if not key.startswith("@")}
    assert sorted(every_text() - own.keys()) == []
    assert sorted(own.keys() - every_text()) == []
    for key, text in own.items():
        assert text.strip(), key
        assert values_in(text) == values_in(key), key
        assert sorted(re.findall(r"<[^>]*>", text)) == sorted(re.findall(r"<[^>]*>", key)), key


@pytest.mark.parametrize("page", PAGES)
def test_templates_have_no_text_outside_translations(page: str) -> None:
    source = (SOURCE / "web" / "templates" / f"{page}.html").read_text(encoding="utf-8")
    bare = re.sub(r"\{\{.*?\}\}(?!\})|\{%.*?%\}", "", source, flags=re.DOTALL)
    assert [text.strip() for text in BETWEEN_TAGS.findall(bare) if text.strip(" ·\n") != "Tacit"] == []
    assert re.findall(r'(?:aria-label|title|alt)="[^"{]*[A-Za-z]{2}', source) == []


def test_the_browser_and_then_the_setting_choose_the_language(tmp_path: Path) -> None:
    device = made(tmp_path / "device.db")
    took_part(device, 2)
    with device, serving(build_user_page(DeviceView(device))) as door:
        visitor = Visitor(door)
        assert 'lang="en"' in visitor.get("/history").html
        german = visitor.get("/history", Accept_Language="de-AT,de;q=0.9,en;q=0.5")
        assert '<html lang="de">' in german.html
        assert translate_to("de", "Your history") in german.text
        visitor.post("/language", {"language": "de", "from": "history"})
        assert '<html lang="de">' in visitor.get("/history").html
        assert device.preferences.language == "de"
        visitor.post("/language", {"language": "", "from": "history"})
        assert '<html lang="de">' not in visitor.get("/history").html


def translate_to(language: str, text: str) -> str:
    return catalogue(language)[text]


def test_no_page_in_another_language_shows_an_english_text(tmp_path: Path) -> None:
    device = made(tmp_path / "device.db")
    took_part(device, 2)
    english = {text for text in every_text() if len(text) > 12 and catalogue("de")[text] != text and "{" not in text}
    with device, serving(build_user_page(DeviceView(device))) as door:
        visitor = Visitor(door)
        device.preferences.language = "de"
        for path in ("/", "/history", "/sharing", "/sent", "/mine", "/no-such-page"):
            page = visitor.get(path)
            shown = re.sub(r' data-texts="[^"]*"', "", page.html)
            shown = re.sub(r'<(\w+)[^>]*lang="en"[^>]*>.*?</\1>', "", shown, flags=re.DOTALL)
            assert [text for text in english if text in shown] == [], path
            state = json.loads(visitor.get("/state").html)
            assert state["badge"] in catalogue("de").values()


def test_an_unknown_language_is_refused_and_nothing_is_kept(tmp_path: Path) -> None:
    with made(tmp_path / "device.db") as device:
        with pytest.raises(ConfigError):
            device.preferences.language = "xx"
        assert device.preferences.language == ""
        assert isinstance(device, Device)


@pytest.mark.usefixtures("german")
def test_numbers_days_and_counts_follow_the_language() -> None:
    assert write_number(1_234_567) == "1.234.567"
    assert write_number(0.25, "%.2f") == "0,25"
    assert format_bytes(15_300) == "15,3 kB"
    assert format_time(1_700_000_000) == "14. Nov. 2023, 22:13"
    assert (plural(1, "thing"), plural(1200, "thing")) == ("1 Ding", "1.200 Dinge")
    assert translate("no such text") == "no such text"


@pytest.mark.parametrize(
    ("setting", "accepted", "chosen"),
    [
        ("", "", "en"),
        ("", "de", "de"),
        ("", "fr, de;q=0.5", "de"),
        ("", "en;q=0.2, de;q=0.9", "de"),
        ("", "de;q=0, en", "en"),
        ("en", "de", "en"),
        ("zz", "de", "de"),
        ("", "de;q=hello, ,;;;", "en"),
        ("", "de," * 100_000, "de"),
    ],
)
def test_a_language_is_chosen_whatever_a_browser_sends(setting: str, accepted: str, chosen: str) -> None:
    assert choose_language(setting, accepted) == chosen
