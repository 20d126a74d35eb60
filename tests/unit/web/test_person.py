"""The person's page: what it shows is what the device says, and what it does is done."""

from __future__ import annotations

import io
import json
import re
import zipfile
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest

from helpers.page_visitor import Visitor, took_part
from helpers.small_federation import CATALOG, CHEAP, PASSPHRASE, first_shared, founded, made, request
from tacit.errors import DeviceError
from tacit.field.device import Device, Sharing
from tacit.field.device.exposure import LedgerReader, evidence
from tacit.field.device.history import HistoryEntry
from tacit.field.device.limits import TimeLimits
from tacit.field.device.settings import USUAL_PI
from tacit.privacy.meter import measure_exposure
from tacit.reasons import ReasonCode
from tacit.types import Catalog, Labels, Vocabulary
from tacit.web import sharing
from tacit.web.device_view import DeviceView
from tacit.web.own import build_user_page
from tacit.web.server import serving
from tacit.web.words import format_percent
from tacit.wire.federation import Federation
from tacit.wire.messages import write_welcome

pytestmark = pytest.mark.slow

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{ 7 * 7 }}"


def test_recommendations_are_those_of_the_device_with_their_reasons(visitor: Visitor, device: Device) -> None:
    page = visitor.get("/")
    found = re.findall(r"<h2>(.*?)</h2>", page.html)
    assert found == [one.title for one in device.recommend(12)]
    assert "Because of “" in page.text


def test_before_the_first_model_a_user_without_a_history_sees_what_is_popular(tmp_path: Path) -> None:
    catalog = replace(CATALOG, popularity=np.arange(CATALOG.n_items, dtype=np.float64))
    with Device.create(tmp_path / "new.db", PASSPHRASE, cost=CHEAP) as device:
        device.join(write_welcome(founded(catalog=catalog), catalog), "127.0.0.1", accepts={ReasonCode.NO_GUARANTEE})
        with serving(build_user_page(DeviceView(device))) as address:
            page = Visitor(address).get("/")
        assert re.findall(r"<h2>(.*?)</h2>", page.html) == CATALOG.titles[:3:-1]
        assert "data-until-model" in page.html
        assert "What do you like?" in page.text


def test_not_for_me_can_be_undone(visitor: Visitor, device: Device) -> None:
    first = device.recommend(1)[0]
    assert visitor.post("/hide", {"item": str(first.item)}).status == 303
    assert device.preferences.hidden == [first.item]
    page = visitor.get("/")
    assert first.title not in re.findall(r"<h2>(.*?)</h2>", page.html)
    form = re.search(r'<form method="post" action="(/[^"]*)">((?:<input[^>]*>)*)<button[^>]*>Undo<', page.html)
    assert form, "the undo stands beside what was said"
    fields = dict(re.findall(r'name="([^"]*)" value="([^"]*)"', form[2]))
    assert visitor.post(form[1], fields).headers["location"] == "/"
    assert device.preferences.hidden == []
    assert "Undo" not in visitor.get("/").text
    visitor.post("/hide", {"item": str(first.item)})
    assert first.title in visitor.get("/history").text
    visitor.post("/history/unhide", {"item": str(first.item)})
    assert device.preferences.hidden == []


def test_history_is_added_found_and_removed(visitor: Visitor, device: Device) -> None:
    assert "Hill Hotel" in visitor.get("/history?q=hOTel").text
    assert visitor.post("/history/add", {"item": "place-0007-hill"}).headers["location"] == "/history"
    page = visitor.get("/history?mine=hill")
    assert "1 thing" not in page.text
    assert page.html.count('action="/history/remove"') == 1
    assert device.history.list()[-1].item == "place-0007-hill"
    visitor.post("/history/remove", {"item": "place-0007-hill"})
    assert "place-0007-hill" not in [entry.item for entry in device.history.list()]
    assert visitor.post("/history/add", {"item": "no such place"}).status == 400
    assert len(device.history) == 4


def test_sharing_is_saved_whole_and_refused_whole(visitor: Visitor, device: Device) -> None:
    visitor.save_sharing(pi="30", never=["drinks", "food"])
    assert (device.sharing.pi, device.sharing.never_categories) == (0.3, ("drinks", "food"))
    visitor.save_sharing(pi="30", never=["drinks", "food"], masked_only="yes")
    assert device.sharing.masked_only
    assert not device.sharing.measure, "a box that is not ticked"
    visitor.save_sharing(pi="30", never=["drinks", "food"], masked_only="yes", measure="yes")
    assert device.sharing.measure
    assert "only mixed with those of others" in visitor.get("/sent").text
    visitor.save_sharing(pi="30", never=["drinks", "food"])
    assert not device.sharing.masked_only
    visitor.post("/sharing/never", {"item": "place-0001-bar"})
    assert device.sharing.never_items == ("place-0001-bar",)
    assert "Some: 30 in 100 hints" in visitor.get("/sharing").text
    before = device.sharing
    for pi in ("101", "-1", "nan", "much", ""):
        assert visitor.save_sharing(pi=pi).status == 400
    assert visitor.save_sharing(pi="10", never="no such kind").status == 400
    for shown in ("", "{}", "[]", '{"pi": 30, "never": [7], "masked_only": true, "measure": true}'):
        assert visitor.post("/sharing/save", {"pi": "10", "shown": shown}).status == 400
    assert visitor.post("/sharing/never", {"item": "no such place"}).status == 400
    assert device.sharing == before
    visitor.post("/sharing/never", {"item": "place-0001-bar", "again": "yes"})
    assert device.sharing.never_items == ()


def test_an_old_page_changes_only_what_was_changed_on_it(visitor: Visitor, device: Device) -> None:
    """Meanwhile the first sum turned masked_only on, and the user forbade a kind and paused elsewhere."""
    page = visitor.get("/sharing")
    settled = Sharing(pi=0.333, masked_only=True, measure=False, never_categories=("food",), paused=True)
    device.share(settled)
    assert visitor.save_sharing(page, pi=f"{100 * USUAL_PI:.0f}", measure="yes").status == 303
    assert device.sharing == settled, "nothing was changed on that page"
    visitor.save_sharing(page, pi="20", measure="yes", never=["drinks"], masked_only="yes")
    assert device.sharing == settled.model_copy(update={"pi": 0.2, "never_categories": ("drinks", "food")})
    visitor.save_sharing(pi="20", never=["drinks"])
    assert device.sharing == Sharing(
        pi=0.2, masked_only=False, measure=False, never_categories=("drinks",), paused=True
    )


def test_what_was_announced_is_what_leaves(visitor: Visitor, device: Device) -> None:
    announced = device.upcoming()
    assert announced is not None
    page = visitor.get("/sent")
    assert f"in exchange {announced.round}, exactly these hints" in page.text
    assert f"About what you did: {len(announced.rows.positives)}" in page.text
    federation = founded()
    entry = device.learn(request(federation, announced.round, first_shared(federation)))
    release = device.ledger.list()[-1]
    assert (release.positives, release.negatives) == (announced.rows.positives, announced.rows.negatives)
    assert release.bytes == announced.bytes
    assert f'data-entry="{entry}"' in visitor.get("/sent").html
    assert "waiting" in visitor.get("/sent").text


def test_the_numbers_are_those_of_the_ledger_and_of_the_meter(visitor: Visitor, device: Device) -> None:
    releases = device.ledger.list()
    page = visitor.get("/sent")
    tiles = re.findall(r"<dd>([^<]*)</dd>", page.html.partition('id="sums"')[2])[:3]
    rows = [sum(len(getattr(release, kind)) for release in releases) for kind in ("positives", "negatives")]
    assert tiles == [str(len(releases)), *map(str, rows)]
    for release in releases:
        assert f"{release.bytes:,} bytes" in page.text
        assert release.digest in page.html
    history = device.history.clients(0, CATALOG).items
    model = device.membership.model()  # type: ignore[union-attr]
    popularity = np.exp(model.shared["items"][:, -1])  # type: ignore[union-attr]
    proof = evidence([(release.positives, release.negatives) for release in releases], len(history), CATALOG)
    meter = measure_exposure(history, popularity, proof)
    assert page.of("named") == str(meter.named)
    assert page.of("items") == str(meter.items) == "4"
    assert page.of("leak") == format_percent(meter.leak_index)
    assert page.of("wrong") == str(meter.accused - meter.named)
    found = LedgerReader.of(device).measure()
    assert found.exposure == meter
    assert len(found.named) == meter.named
    assert LedgerReader.of(device).measure(device.upcoming()).readable == 3


def test_what_changes_in_the_middle_of_a_visit_is_seen_by_the_next(
    visitor: Visitor, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, changes = LedgerReader.of, [lambda: device.history.add([HistoryEntry("place-0007-hill")], CATALOG)]

    def reading(one: Device) -> LedgerReader:
        found = read(one)
        if changes:
            changes.pop()()
        return found

    monkeypatch.setattr("tacit.web.sent.LedgerReader.of", reading)
    assert visitor.get("/sent").of("items") == "4"
    assert visitor.get("/sent").of("items") == "5"


def test_only_what_may_have_left_readable_counts_as_exposed(tmp_path: Path) -> None:
    with made(tmp_path / "device.db") as device:
        assert LedgerReader.of(device).measure().exposure.named == 0
        device.learn(request(founded(), 0))
        assert LedgerReader.of(device).measure().readable == 0, "it lies on the disk, and nothing has left"
        took = LedgerReader.of(device).measure().exposure
        assert took == LedgerReader.of(device).measure().guessing


def test_a_misspelt_search_offers_what_is_nearly_called_so(visitor: Visitor) -> None:
    for asked in ("kite+shpo", "K%C3%8FTE", "shop%20kite"):
        page = visitor.get(f"/history?q={asked}")
        assert 'aria-label="Add Kite Shop"' in page.html
    assert "Did you mean one of these?" in visitor.get("/history?q=kite+shpo").text
    assert "No title in the catalogue" in visitor.get("/history?q=zzzzzz").text


def test_pause_leave_and_join_again(visitor: Visitor, device: Device) -> None:
    visitor.post("/mine/pause", {"from": "sent"})
    assert device.sharing.paused
    assert "paused" in visitor.get("/").text
    visitor.post("/mine/resume")
    assert not device.sharing.paused
    visitor.post("/mine/leave")
    assert device.membership is None
    for path in ("/", "/history", "/sharing", "/sent", "/mine"):
        assert visitor.get(path).status == 200
    assert len(device.ledger.list()) == 2
    assert visitor.upload("/mine/join", "x", b"not a welcome").status == 400
    visitor.upload("/mine/join", "welcome.tacit", write_welcome(founded(), CATALOG))
    assert device.membership is None, "there is no guarantee, and the user is asked first"
    visitor.agree_to_join()
    assert device.membership is not None


def test_everything_can_be_taken_along(visitor: Visitor, device: Device, tmp_path: Path) -> None:
    readable = visitor.get("/mine/data.json")
    assert json.loads(readable.body) == device.readable()
    assert "attachment" in readable.headers["content-disposition"]
    copy = tmp_path / "copy"
    copy.write_bytes(visitor.get("/mine/device.tacit").body)
    with Device.open(copy, PASSPHRASE) as other:
        assert other.readable() == {**device.readable(), "sharing": other.sharing.model_dump(mode="json")}


def test_erasing_asks_says_what_it_cannot_undo_and_does_it(visitor: Visitor, tmp_path: Path) -> None:
    page = visitor.get("/mine")
    assert "2 messages with" in page.text
    assert "may have kept them" in page.text
    assert visitor.post("/mine/erase", {"word": "yes"}).status == 400
    assert (tmp_path / "device.db").exists()
    visitor.post("/mine/erase", {"word": " Erase "})
    assert not (tmp_path / "device.db").exists()
    for path in ("/", "/history", "/sharing", "/sent", "/mine"):
        assert "Everything is erased" in visitor.get(path).text
    assert "Everything is erased" in visitor.post("/history/add", {"item": "place-0007-hill"}).text


def test_a_command_erases_nothing_while_the_page_takes_part_with_the_file(visitor: Visitor, tmp_path: Path) -> None:
    with Device.open(tmp_path / "device.db", PASSPHRASE) as other, pytest.raises(DeviceError):
        other.erase()
    assert visitor.get("/history").status == 200
    assert visitor.post("/history/add", {"item": "place-0007-hill"}).status in (200, 303)
    with Device.open(tmp_path / "device.db", PASSPHRASE) as other:
        assert "place-0007-hill" in {entry.item for entry in other.history.list()}


def archive(files: dict[str, str]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as made_archive:
        for name, content in files.items():
            made_archive.writestr(name, content)
    return out.getvalue()


def test_a_file_is_read_and_what_was_not_understood_is_reported(visitor: Visitor, device: Device) -> None:
    table = "Date,Name,Year,Rating\n2024-05-01,Hill Hotel,,4\n2024-05-02,Nowhere <b>Bar</b>,1999,5\n"
    before = len(device.history)
    content = archive({"a/watched.csv": table, "a/readme.txt": "hello", "profile.json": "{}"})
    assert visitor.upload("/history/import", "letterboxd.zip", content).headers["location"] == "/history/imported"
    page = visitor.get("/history/imported")
    assert "certain 1 doubtful 0 rated low 0 not things you did 0 not in the catalogue 1" in page.text
    assert "Nowhere &lt;b&gt;Bar" in page.html
    assert len(device.history) == before, "nothing is added before the user agrees"
    assert visitor.post("/history/import/add").headers["location"] == "/history/imported"
    assert "added 1 known already 0 not added 1" in visitor.get("/history/imported").text
    assert HistoryEntry("place-0007-hill", 1_714_521_600, 4.0) in device.history.list()


MALFORMED = (
    ("empty.csv", b""),
    ("open.csv", b'title\n"open\n'),
    ("ragged.csv", b"title,date\na\n"),
    ("binary.csv", b"\xff\xfe\x00"),
    ("no.json", b'{"a": [1, 2'),
    ("deep.json", b"[" * 200_000),
    ("other.json", b'{"friends": []}'),
    ("broken.zip", b"PK\x03\x04 and then nothing"),
    ("../../etc/passwd", b"who,what\n1,2\n"),
    ("", b""),
)


def test_a_malformed_file_adds_nothing_and_is_explained(visitor: Visitor, device: Device) -> None:
    before = device.readable()
    for name, content in MALFORMED:
        answer = visitor.upload("/history/import", name, content)
        assert answer.status == 400, name
        assert "did not work" in answer.text
    assert device.readable() == before


def test_damaged_rows_are_shown_and_the_others_added_once_confirmed(visitor: Visitor, device: Device) -> None:
    before = device.readable()
    table = b"title,date\nHill Hotel,2024-05-01\nMill Museum,2024-13-01\n<b>,2024-05-02,x\n"
    assert visitor.upload("/history/import", "seen.csv", table).headers["location"] == "/history/imported"
    page = visitor.get("/history/imported")
    assert "Nothing was added yet" in page.text
    assert "cannot be read 2" in page.text
    assert "3 Mill Museum, 2024-13-01 the timestamp '2024-13-01' cannot be read" in page.text
    assert "4 <b>, 2024-05-02, x 3 fields, but the first line has 2" in page.text
    assert "&lt;b&gt;, 2024-05-02" in page.html
    assert device.readable() == before
    assert visitor.post("/history/import/add").headers["location"] == "/history/imported"
    assert "added 1 known already 0 not added 2" in visitor.get("/history/imported").text
    assert HistoryEntry("place-0007-hill", 1_714_521_600) in device.history.list()
    after = device.readable()
    assert visitor.post("/history/import/add").headers["location"] == "/history", "a file is added once"
    assert device.readable() == after
    assert "Undo the last import" in visitor.get("/history").text
    assert visitor.post("/history/import/undo").headers["location"] == "/history"
    assert device.readable() == before


def test_a_file_whose_dates_are_not_clear_is_asked_about(visitor: Visitor, device: Device) -> None:
    table = b"title,date,stars\nHill Hotel,3/12/23,5\nHil Hotle,3/11/23,5\nMill Museum,3/10/23,2\n"
    assert visitor.upload("/history/import", "seen.csv", table).headers["location"] == "/history/imported"
    page = visitor.get("/history/imported")
    assert "whether 3/12/23 is in March or December" in page.text
    visitor.post("/history/import/again", {"dates": "day-first"})
    assert "certain 1 doubtful 1 rated low 1" in visitor.get("/history/imported").text
    visitor.post("/history/import/again", {"likes_from": "1"})
    assert "certain 2 doubtful 1 rated low 0" in visitor.get("/history/imported").text
    assert visitor.post("/history/import/again", {"likes_from": "many"}).status == 400
    visitor.post("/history/import/add", {"doubtful": "0"})
    entries = {entry.item: entry.when for entry in device.history.list()}
    assert entries["place-0007-hill"] == 1_701_561_600, "3 December"
    assert "place-0012-mill" in entries


def test_trouble_leads_back_to_the_page_that_the_form_was_on(visitor: Visitor) -> None:
    assert 'href="/history">Back to History' in visitor.upload("/history/import", "empty.csv", b"").html
    assert 'href="/mine">Back to My file' in visitor.post("/mine/erase", {"word": "no"}).html
    assert 'href="/">Back to the start' in visitor.get("/nowhere").html


def hostile_device(path: Path) -> Device:
    """A device whose catalogue was written by an attacker."""
    titles = [HOSTILE + str(item) for item in range(6)]
    kinds = Labels(np.arange(7), np.zeros(6, np.int32), [HOSTILE])
    catalog = Catalog(Vocabulary(np.array([f"{HOSTILE}-{i}" for i in range(6)], dtype=object)), titles, kinds)
    federation = Federation.create("cd" * 16, HOSTILE, "fpl", {"local_steps": 4}, catalog)
    device = Device.create(path, PASSPHRASE, cost=CHEAP)
    device.join(write_welcome(federation, catalog), HOSTILE, accepts={ReasonCode.NO_GUARANTEE})
    device.change(lambda before: before.model_copy(update={"masked_only": False}))
    device.history.add([HistoryEntry(catalog.item_ids[item]) for item in (0, 1)], catalog)
    entry = device.learn(request(federation, 0, first_shared(federation, catalog)))
    device.release(entry)
    return device


def test_script_in_a_title_is_text(tmp_path: Path) -> None:
    with hostile_device(tmp_path / "d.db") as device, serving(build_user_page(DeviceView(device))) as address:
        visitor = Visitor(address)
        for path in ("/", "/history?q=script", "/sharing", "/sent", "/mine"):
            page = visitor.get(path)
            assert page.status == 200
            assert page.html.count("<script") == 1, "only our own file"
            assert "<img src=x" not in page.html
            assert HOSTILE[:20] in page.text or "alert(1)" in page.text
        visitor.post("/history/add", {"item": f"{HOSTILE}-3"})
        assert len(device.history) == 3


def test_what_another_program_writes_is_seen(visitor: Visitor, device: Device, tmp_path: Path) -> None:
    assert "Hill Hotel" not in visitor.get("/history").text
    with Device.open(tmp_path / "device.db", PASSPHRASE) as other:
        other.history.add([HistoryEntry("Hill Hotel")], other.catalog)
        other.pause()
    assert "Hill Hotel" in visitor.get("/history").text
    assert "paused" in visitor.get("/history").text
    with Device.open(tmp_path / "device.db", PASSPHRASE) as other:
        other.leave()
    assert "not joined a group" in visitor.get("/").text
    assert device.membership is None


def test_long_lists_are_paged(tmp_path: Path) -> None:
    with made(tmp_path / "device.db") as device:
        took_part(device, 23)
        with serving(build_user_page(DeviceView(device))) as address:
            first, second = (Visitor(address).get(f"/sent?page={number}") for number in (1, 2))
        assert (first.html.count("data-entry"), second.html.count("data-entry")) == (20, 3)


def test_limits_in_time_are_set_on_the_page(visitor: Visitor, device: Device) -> None:
    fields = {"rounds_per_day": "4", "mb_per_day": "2,5", "hours": "22 - 7", "pause_minutes": ""}
    assert visitor.save_sharing(pi="50", measure="yes", **fields).status == 303
    limits = device.sharing.limits
    assert (limits.rounds_per_day, limits.bytes_per_day, limits.hours, limits.pause_minutes) == (
        4,
        2_500_000,
        "22-7",
        0,
    )
    assert 'value="22-7"' in visitor.get("/sharing").html
    for wrong in ({"rounds_per_day": "-1"}, {"mb_per_day": "many"}, {"hours": "9"}, {"mb_per_day": "1e999"}):
        assert visitor.save_sharing(pi="20", measure="yes", **wrong).status == 400
    assert (device.sharing.limits, device.sharing.pi) == (limits, 0.5)
    page = visitor.get("/sharing")
    exact = limits.model_copy(update={"bytes_per_day": 1_234_567_890, "pause_minutes": 5})
    device.change(lambda before: before.model_copy(update={"limits": exact}))
    shown = {"rounds_per_day": "4", "mb_per_day": "2.5", "hours": "22-7"}
    visitor.save_sharing(page, pi="20", measure="yes", **shown)
    assert (device.sharing.limits, device.sharing.pi) == (exact, 0.2), "an old page changes no limits by itself"
    visitor.save_sharing(page, pi="20", measure="yes", **shown | {"hours": ""})
    assert (device.sharing.limits.hours, device.sharing.limits.pause_minutes) == ("", 5)
    visitor.save_sharing(pi="20", measure="yes")
    assert device.sharing.limits == TimeLimits()


def test_unmetered_networks_are_offered_where_the_system_tells(
    visitor: Visitor, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "is_metered", lambda: None)
    assert 'name="unmetered_only"' not in visitor.get("/sharing").html
    monkeypatch.setattr(sharing, "is_metered", lambda: False)
    assert 'name="unmetered_only"' in visitor.get("/sharing").html
    assert visitor.save_sharing(pi="50", measure="yes", unmetered_only="yes").status == 303
    assert device.sharing.limits.unmetered_only
    monkeypatch.setattr(sharing, "is_metered", lambda: None)
    assert 'name="unmetered_only" value="yes" checked' in visitor.get("/sharing").html, "it can be taken back"
    visitor.save_sharing(pi="50", measure="yes")
    assert not device.sharing.limits.unmetered_only


def test_too_many_rows_are_refused_and_the_page_goes_on(visitor: Visitor, device: Device) -> None:
    before = device.history.list()
    answer = visitor.upload("/history/import", "all.csv", b"title\n" + b"Eel House\n" * 2_900_000)
    assert answer.status == 400
    assert device.history.list() == before
    assert visitor.get("/history").status == 200


@pytest.mark.parametrize("text", ["²", "--5", "-", "9" * 5000, "٣"])
def test_what_only_looks_like_a_number_is_no_item_and_no_page(visitor: Visitor, device: Device, text: str) -> None:
    before = device.history.list()
    assert visitor.post("/history/add", {"item": text}).status == 400
    assert visitor.post("/history/remove", {"item": text}).status == 400
    assert visitor.get(f"/history?page={quote(text)}").status == 200
    visitor.upload("/history/import", "a.csv", b"title\nHill Hotel\n")
    assert visitor.post("/history/import/add", {"doubtful": text}).status == 303
    assert len(device.history) - len(before) in (0, 1)
