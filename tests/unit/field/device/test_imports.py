"""An import that cannot harm: no item that the user did not mean, no date lost, a preview before and an undo after."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from helpers.import_samples import SAMPLES, SHELF, Sample, day
from helpers.small_federation import CATALOG, PASSPHRASE, made
from tacit.errors import DataError
from tacit.field.device import Device
from tacit.field.device.history import IMPORT, HistoryEntry
from tacit.field.device.import_dates import read_dates
from tacit.field.device.import_files import read_lines
from tacit.field.device.import_lines import ImportChoices
from tacit.field.device.import_preview import ImportPreview, read_preview


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "device.db"


def preview_of(content: str, choices: ImportChoices | None = None, name: str = "a.csv") -> ImportPreview:
    return read_preview(content.encode(), name, CATALOG, choices)


@pytest.mark.parametrize("sample", SAMPLES, ids=[f"{one.service}-{one.name}" for one in SAMPLES])
def test_a_file_of_a_service_adds_what_the_user_did_and_nothing_else(sample: Sample) -> None:
    if sample.error:
        with pytest.raises(DataError, match=sample.error):
            read_preview(sample.content, sample.name, SHELF, sample.choices)
        return
    preview = read_preview(sample.content, sample.name, SHELF, sample.choices)
    assert {entry.item: day(entry.when) for entry in preview.entries()} == sample.right


def test_there_are_samples_of_all_services() -> None:
    services = {sample.service for sample in SAMPLES}
    wanted = {"Netflix", "Spotify", "YouTube", "Letterboxd", "IMDb", "Trakt", "Goodreads", "Last.fm", "ListenBrainz"}
    assert wanted < services
    assert len(SAMPLES) >= 40


def test_what_is_known_is_never_replaced_by_less(path: Path) -> None:
    with made(path, items=()) as device:
        device.history.add([HistoryEntry("place-0007-hill", 1_714_521_600, 4.0)], CATALOG)
        done = device.history.add_import(preview_of("title\nHill Hotel\n"))
        assert (done.added, done.known_already) == (0, 1)
        assert device.history.list() == [HistoryEntry("place-0007-hill", 1_714_521_600, 4.0)]
        device.history.add_import(preview_of("title,date\nHill Hotel,2020-01-01\n"))
        assert device.history.list() == [HistoryEntry("place-0007-hill", 1_714_521_600, 4.0)], "the later time stays"
        device.history.add_import(preview_of("title,date,stars\nHill Hotel,2025-01-01,5\n"))
        assert device.history.list() == [HistoryEntry("place-0007-hill", 1_735_689_600, 5.0)]


def test_an_import_is_undone_also_after_the_program_was_started_again(path: Path) -> None:
    with made(path, items=()) as device:
        device.history.add([HistoryEntry("place-0007-hill")], CATALOG)
        device.history.add_import(preview_of("title,date\nHill Hotel,2024-05-01\nEel House,2024-05-02\nKite Shop,\n"))
        device.history.add([HistoryEntry("place-0010-kite", 1_714_521_600)], CATALOG)
    with Device.open(path, PASSPHRASE) as device:
        assert device.history.last_import == "a.csv"
        assert device.history.undo_import() == 2, "the one that was changed since stays"
        assert {entry.item: entry.when for entry in device.history.list()} == {
            "place-0007-hill": None,
            "place-0010-kite": 1_714_521_600,
        }
        with pytest.raises(DataError, match="no import to undo"):
            device.history.undo_import()


def test_doubtful_rows_are_added_only_if_the_user_accepts_them(path: Path) -> None:
    preview = preview_of("title\nHil Hotle\nMill Museum\n")
    assert [one.title for one in preview.doubtful] == ["Hill Hotel"]
    assert {entry.item for entry in preview.entries()} == {"place-0012-mill"}
    assert len(preview.entries([0])) == 2
    with made(path, items=()) as device:
        assert device.history.add_import(preview, [0]).added == 2


def test_the_threshold_of_likes_can_be_changed() -> None:
    content = "title,stars\nHill Hotel,2\nEel House,3.5\nMill Museum,5\n"
    counts = [len(preview_of(content, ImportChoices(likes_from=stars)).entries()) for stars in (0, 3, 4, 5)]
    assert counts == [3, 2, 1, 1]
    assert preview_of(content, ImportChoices(scale=10)).scale == 10
    assert len(preview_of(content, ImportChoices(scale=10)).entries()) == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2023-03-12", "2023-03-12"),
        ("2023/3/12", "2023-03-12"),
        ("2023-03-12T23:30:00-02:00", "2023-03-13"),
        ("12.03.2023", "2023-03-12"),
        ("12.3.23 17:06", "2023-03-12"),
        ("Mar 12, 2023, 11:59:59 PM", "2023-03-12"),
        ("12 March 2023", "2023-03-12"),
        ("Sun, 12 Mar 2023 17:06:07 GMT", "2023-03-12"),
        ("Tue Apr 03 18:00:09 +0000 2012", "2012-04-03"),
        ("1678640400", "2023-03-12"),
        ("1678640400000", "2023-03-12"),
        ("3/3/23", "2023-03-03"),
        ("2023-02-30", None),
        ("12 Smarch 2023", None),
        ("soon", None),
        ("99/99/99", None),
        ("00/05/2020", None),
        ("05/00/2020", None),
    ],
)
def test_dates_of_usual_forms_are_read(text: str, expected: str | None) -> None:
    assert day(read_dates([text])[0]) == expected


def test_what_is_said_of_a_file_is_checked() -> None:
    facts = ["dates=month-first", "scale=10", "profile=Ann"]
    assert ImportChoices.read(facts, 2.0) == ImportChoices("month-first", False, 2.0, 10.0, "Ann")
    for wrong in ("dates=none", "ids=perhaps", "scale=much", "colour=red", "dates"):
        with pytest.raises(DataError):
            ImportChoices.read([wrong] if wrong != "dates" else ["dates=", "dates=x"])


def archive_of(method: int = zipfile.ZIP_DEFLATED, **files: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(f"{name}.csv", content)
    return made.getvalue()


def test_an_archive_in_an_archive_is_not_unpacked() -> None:
    inner, table = archive_of(a=b"title\nHill Hotel\n"), b"title\nEel House\n"
    assert [line.text for line in read_lines(archive_of(a=inner, b=table), "a.zip")] == ["Eel House"]
    with pytest.raises(DataError, match="no file of a known kind"):
        read_lines(archive_of(a=inner), "a.zip")


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_damaged_archive_is_refused_wherever_its_damage_is(method: int) -> None:
    table = "title,date\n" + "".join(f"Film {i},2020-01-01\n" for i in range(30))
    whole = archive_of(method, a=table.encode())
    places = range(4, len(whole), 3)
    n_refused = 0
    for at in places:
        for content in (whole[:at] + bytes(255 - one for one in whole[at : at + 30]) + whole[at + 30 :], whole[:at]):
            try:
                read_lines(content, "a.zip")
            except DataError:
                n_refused += 1
    assert n_refused > len(places)


def test_half_a_character_in_json_is_read_as_a_question_mark() -> None:
    for content in (
        b'[{"title": "Watched Hill \\ud800", "time": "2020-01-01"}]',
        b'[{"trackName": "Hill \\ud800", "artistName": "\\udfff"}]',
    ):
        (line,) = read_lines(content, "a.json")
        assert "Hill ?" in line.text
        for text in (line.text, *line.spellings):
            text.encode()


def test_an_undo_takes_back_the_last_import_only(path: Path) -> None:
    with made(path, items=()) as device:
        device.history.add_import(preview_of("title\nHill Hotel\nEel House\n"))
        device.history.add_import(preview_of("title\nHill Hotel\n", name="b.csv"))
        assert device.history.last_import == "", "the last import changed nothing"
        with pytest.raises(DataError, match="no import to undo"):
            device.history.undo_import()
        assert len(device.history) == 2


def test_what_the_user_adds_or_removes_after_an_import_is_no_part_of_it(path: Path) -> None:
    with made(path, items=()) as device:
        device.history.add_import(preview_of("title\nHill Hotel\nEel House\nKite Shop\n"))
        device.history.add([HistoryEntry("place-0007-hill")], CATALOG)
        device.history.remove("place-0010-kite", CATALOG)
        assert b"kite" not in (device.store.get(IMPORT) or b""), "what was removed is gone"
        assert device.history.undo_import() == 1
        assert [entry.item for entry in device.history.list()] == ["place-0007-hill"]
        device.history.add_import(preview_of("title\nKite Shop\n"))
        device.history.remove("place-0010-kite", CATALOG)
        assert device.store.get(IMPORT) is None


def test_an_undo_puts_rows_back_where_they_were(path: Path) -> None:
    with made(path, items=()) as device:
        first = [HistoryEntry(item) for item in ("place-0007-hill", "place-0010-kite", "place-0012-mill")]
        device.history.add(first, CATALOG)
        device.history.add_import(preview_of("title,date\nKite Shop,2024-05-01\nEel House,\nHill Hotel,2024-05-01\n"))
        device.history.add([HistoryEntry("place-0001-bar")], CATALOG)
        assert device.history.undo_import() == 3
        assert device.history.list() == [*first, HistoryEntry("place-0001-bar")]
    with Device.open(path, PASSPHRASE) as device:
        assert device.history.list() == [*first, HistoryEntry("place-0001-bar")]
