"""Every text of the user's pages has a translation with the same values; no page shows one language in another."""

from __future__ import annotations

import copy
import json
import pickle
import re
import string
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.page_texts import PAGES, SOURCE, every_text
from helpers.page_visitor import Visitor, took_part
from helpers.small_federation import made
from helpers.waiting import LONG, wait_until
from tacit.errors import ConfigError, ConsentError
from tacit.field.device import Device
from tacit.field.device.device_state import DeviceState, DeviceStateCode
from tacit.field.device.link_record import LinkRecord
from tacit.languages import LANGUAGE, MARKS, catalogue, choose_language, languages, translate
from tacit.languages.sentences import Sentence, is_translated, localise, read_sentence, write_sentence
from tacit.reasons import DEVICE, WORDINGS, ReasonCode, RoundReason, describe_reason
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


def formats_in(text: str) -> list[str]:
    return sorted(f"{name}:{form}" for _, name, form, _ in string.Formatter().parse(text) if form and len(form) < 5)


@pytest.mark.slow
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
        assert re.findall(r":[,.\d]*[,gf%]", "".join(formats_in(text))) == re.findall(
            r":[,.\d]*[,gf%]", "".join(formats_in(key))
        ), key
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
    with device, serving(build_user_page(DeviceView(device))) as address:
        visitor = Visitor(address)
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


@pytest.mark.slow
def test_no_page_in_another_language_shows_an_english_text(tmp_path: Path) -> None:
    device = made(tmp_path / "device.db")
    took_part(device, 2)
    english = {text for text in every_text() if len(text) > 12 and catalogue("de")[text] != text and "{" not in text}
    with device, serving(build_user_page(DeviceView(device))) as address:
        visitor = Visitor(address)
        device.preferences.language = "de"
        for path in ("/", "/history", "/sharing", "/sent", "/mine", "/no-such-page"):
            page = visitor.get(path)
            shown = re.sub(r' data-texts="[^"]*"', "", page.html)
            shown = re.sub(r'<(\w+)[^>]*lang="en"[^>]*>.*?</\1>', "", shown, flags=re.DOTALL)
            assert [text for text in english if text in shown] == [], path
            state = json.loads(visitor.get("/state").html)
            assert state["badge"] in catalogue("de").values()


@pytest.mark.parametrize("language", OTHERS)
@pytest.mark.parametrize("code", [code for code in ReasonCode if DEVICE in WORDINGS[code].about])
def test_every_reason_of_a_device_is_in_every_language(code: ReasonCode, language: str) -> None:
    reason = RoundReason(code, dict.fromkeys(WORDINGS[code].public, 1234.5))
    error = ConsentError.because(code, **reason.parameters)
    before = LANGUAGE.set(language)
    try:
        for said in (*describe_reason(reason), error.message, error.hint):
            assert is_translated(said)
            assert localise(said) != said
            assert "{" not in localise(said)
            assert "1,234" not in localise(said)
    finally:
        LANGUAGE.reset(before)
    assert str(error.message).startswith(describe_reason(reason).what)  # English, whatever page is open


@pytest.mark.usefixtures("german")
def test_a_sentence_keeps_its_values_through_copies_processes_and_files() -> None:
    inner = Sentence("The row names no item.")
    said = Sentence("{why} (in {inside})", why=inner, inside="a.csv")
    for same in (said, copy.deepcopy(said), pickle.loads(pickle.dumps(said)), read_sentence(write_sentence(said))):
        assert same == "The row names no item. (in a.csv)"
        assert localise(same) == f"{translate_to('de', inner)} (in a.csv)"
        assert is_translated(same)
    assert localise(Sentence("{n:row} of {all:,}", n=1200, all=3400)) == "1.200 Zeilen of 3.400"
    assert not is_translated(Sentence("nobody has translated {n}", n=1))
    assert not is_translated(Sentence("{why} (in {inside})", why=Sentence("not this"), inside=""))
    assert read_sentence("as earlier versions wrote it") == "as earlier versions wrote it"


FORMS: list[tuple[str, dict[str, str]]] = [
    ("/sharing/save", {"pi": "2000", "shown": "{}"}),
    ("/sharing/save", {"pi": "20", "shown": "{}"}),
    ("/history/import/undo", {}),
    ("/history/remove", {"item": "no such thing"}),
    ("/history/add", {"item": "no such thing"}),
    ("/mine/erase", {"word": "no"}),
    ("/mine/join", {"line": "no invitation"}),
    ("/mine/join", {"line": "tacitp1:no invitation"}),
    ("/mine/change/yes", {}),
    ("/no-such-page", {}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("path", "form"), FORMS)
def test_a_refusal_is_shown_in_the_language_of_the_page(path: str, form: dict[str, str], tmp_path: Path) -> None:
    with made(tmp_path / "device.db") as device, serving(build_user_page(DeviceView(device))) as address:
        device.preferences.language = "de"
        if path == "/mine/join":
            device.leave()
        visitor = Visitor(address)
        answer = visitor.post(path, form)
        if answer.status == 303:
            wait_until(lambda: "over" in visitor.get("/mine/joining/state").html, LONG, "an answer")
            answer = visitor.get("/mine/joining")
        assert answer.status in (200, 400, 404, 405)
        assert "notice warn" in answer.html or answer.status != 200
        assert '<span lang="en">' not in answer.html


def test_what_an_import_leaves_out_is_reported_in_the_language_of_the_page(tmp_path: Path) -> None:
    rows = "title,rating,date\nno such title at all,4,2024-01-01\nCorner,two,2024-01-01\nCorner\n"
    device = made(tmp_path / "device.db")
    took_part(device, 2)
    with device, serving(build_user_page(DeviceView(device))) as address:
        device.preferences.language = "de"
        visitor = Visitor(address)
        visitor.upload("/history/import", "mine.csv", rows.encode())
        shown = visitor.get("/history/imported")
        assert "„two“ ist keine Bewertung." in shown.text
        assert "1 Feld, aber die erste Zeile hat 3" in shown.text
        assert '<span lang="en">' not in shown.html


def test_a_lost_connection_is_reported_in_the_language_of_the_page(tmp_path: Path) -> None:
    why = Sentence("{address} cannot be reached ({error}).", address="example.org:9092", error="ConnectError")
    link = LinkRecord.read(json.loads(json.dumps(LinkRecord("unreachable", 1.0, why).as_json())))
    assert link is not None
    assert link.why == "example.org:9092 cannot be reached (ConnectError)."
    before = LANGUAGE.set("de")
    try:
        said = DeviceState(DeviceStateCode.UNREACHABLE, since=1.0, why=link.why, has_model=True).describe()
    finally:
        LANGUAGE.reset(before)
    assert "example.org:9092 ist nicht erreichbar (ConnectError)." in said


@pytest.mark.parametrize(("word", "is_erased"), [("Löschen", True), ("erase", True), ("ja", False)])
def test_the_word_that_erases_everything_is_one_of_the_language(tmp_path: Path, word: str, is_erased: bool) -> None:
    device = made(tmp_path / "device.db")
    with device, serving(build_user_page(DeviceView(device))) as address:
        device.preferences.language = "de"
        visitor = Visitor(address)
        assert "„löschen“" in visitor.get("/mine").text
        visitor.post("/mine/erase", {"word": word})
        assert device.is_erased == is_erased


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
