"""Files that people bring along: understood where they can be, explained where they cannot."""

from __future__ import annotations

import io
import json
import resource
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tacit.errors import DataError
from tacit.field.device import import_files
from tacit.field.device.import_files import TooLongError, read_lines
from tacit.field.device.import_lines import ExportLine
from tacit.field.device.names import Names, title_spellings
from tacit.types import Catalog, Vocabulary

FILMS = Catalog(
    Vocabulary(np.arange(1, 6)),
    ["Toy Story (1995)", "Matrix, The (1999)", "Solaris (1972)", "Solaris (2002)", "Café Luna"],
)


def found(lines: list[ExportLine]) -> list[Any]:
    names = Names(FILMS)
    told: list[Any] = []
    for line in lines:
        try:
            match = names.match(line)
            told.append(match.doubt or FILMS.title(match.item or 0))
        except DataError as error:
            told.append(error.message)
    return told


def test_letterboxd_is_understood_by_name_and_year() -> None:
    content = (
        "Date,Name,Year,Letterboxd URI,Rating,Watched Date\n"
        "2024-01-02,The Matrix,1999,https://boxd.it/x,4.5,2024-01-01\n"
        "2024-01-03,Solaris,1972,https://boxd.it/y,,2024-01-02\n"
        "2024-01-03,Solaris,,https://boxd.it/y,,\n"
    )
    lines = read_lines(content.encode(), "diary.csv")
    assert found(lines) == ["Matrix, The (1999)", "Solaris (1972)", "“Solaris” is the title of 2 items."]
    assert [(line.when, line.value) for line in lines] == [(1_704_067_200, "4.5"), (1_704_153_600, ""), (None, "")]


def test_youtube_history_and_activity_are_understood() -> None:
    acts = [
        {"header": "YouTube", "title": "Watched Toy Story", "time": "2024-01-01T00:00:00.123Z"},
        {"header": "YouTube", "title": "Watched something else", "time": "2024-01-01T00:00:01Z"},
        {"header": "Ads"},
    ]
    lines = read_lines(json.dumps(acts).encode(), "watch-history.json")
    assert found(lines) == ["Toy Story (1995)", "The catalogue has no item “something else”."]
    assert lines[0].when == 1_704_067_200


@pytest.mark.parametrize(
    "content",
    [
        {"features": [{"properties": {"date": "2024-01-01T00:00:00Z", "location": {"name": "café  luna"}}}]},
        {"features": [{"properties": {"Title": "Café Luna", "Published": "2024-01-01T00:00:00Z"}}]},
        {
            "timelineObjects": [
                {"activitySegment": {}},
                {
                    "placeVisit": {
                        "location": {"name": "Café Luna"},
                        "duration": {"startTimestamp": "2024-01-01T00:00:00.000Z"},
                    }
                },
            ]
        },
    ],
)
def test_places_of_google_maps_are_understood(content: dict[str, Any]) -> None:
    lines = read_lines(json.dumps(content).encode(), "places.json")
    assert found(lines) == ["Café Luna"]
    assert lines[0].when == 1_704_067_200


def test_an_archive_is_searched_and_what_is_unknown_in_it_left_alone() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("Takeout/a.json", json.dumps([{"title": "Watched Toy Story", "time": "2024-01-01T00:00:00Z"}]))
        archive.writestr("b.csv", "item\n5\n")
        archive.writestr("c.csv", '"never closed')
        archive.writestr("../../d.json", '{"x": 1}')
        archive.writestr("picture.jpg", b"\xff\xd8")
    assert found(read_lines(out.getvalue(), "all.zip")) == ["Toy Story (1995)", "Café Luna"]


def test_damaged_lines_of_a_file_in_an_archive_are_reported_and_the_others_read() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("diary.csv", "Name,Date\nToy Story,2024-01-01\nSolaris,soon\n")
    lines = read_lines(out.getvalue(), "all.zip")
    assert [(line.number, "(in diary.csv)" in line.wrong) for line in lines] == [(2, False), (3, True)]


def test_times_in_several_usual_forms_are_read_and_of_two_kinds_the_rarer_is_no_time() -> None:
    stamps = ["2024-01-01", "2024-01-01T00:00:00.5Z", "2024-01-01 02:00:00+02:00", "1704067200", "1969-01-01", ""]
    content = "item,when\n" + "".join(f"5,{stamp}\n" for stamp in stamps)
    lines = read_lines(content.encode(), "when.csv")
    assert [line.when for line in lines] == [1_704_067_200] * 3 + [None] * 3
    assert [bool(line.wrong) for line in lines] == [False] * 3 + [True] * 2 + [False]
    numbers = read_lines(b"item,when\n5,1704067200\n4,1704067200000\n3,1704067201\n2,2024-01-01\n1,-1\n", "when.csv")
    assert [line.when for line in numbers] == [1_704_067_200, None, 1_704_067_201, None, None]


def test_an_archive_that_swells_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_files, "MOST_BYTES", 2**16)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb.csv", "item\n" + "5\n" * 2**17)
    assert len(out.getvalue()) < 2**16
    with pytest.raises(DataError, match="unpacks to more"):
        read_lines(out.getvalue(), "bomb.zip")


def test_odd_json_is_no_trouble() -> None:
    for content in ([1, None, {"title": 3}], {"features": [None, 1]}, {"timelineObjects": [[]]}, "word", {}):
        with pytest.raises(DataError):
            read_lines(json.dumps(content).encode() if content != "word" else b"[]", "odd.json")


def test_spellings_try_the_surest_first() -> None:
    assert list(title_spellings("A Bug's Life", "1998"))[:2] == ["A Bug's Life (1998)", "Bug's Life, A (1998)"]
    assert Names(FILMS).match(ExportLine(1, "", item="2", is_ours=True)).item == 1
    assert Names(FILMS).match(ExportLine(1, "", ("Cafe Luna",))).doubt == "Is it “Café Luna”?"
    with pytest.raises(DataError):
        Names(FILMS).match(ExportLine(1, "", ("2",)))


def zipped(content: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("history.csv", content)
    return out.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: b"title\n" + b"Eel\n" * 7_000_000, TooLongError),
        (lambda: zipped(b"title\n" + b"Eel\n" * 300_000), TooLongError),
        (lambda: zipped(b"title\n" + b"Eel\n" * 20_000_000), DataError),
        (lambda: b"[" + b"{}," * 9_000_000 + b"{}]", TooLongError),
        (lambda: b"[" * 30_000_000, TooLongError),
        (lambda: b"[" + b'{"title":"x"},' * 250_000 + b"{}]", TooLongError),
        (lambda: b"title," * 5_000_000 + b"\n1\n", DataError),
    ],
    ids=["rows", "rows in an archive", "an archive that grows", "objects", "depth", "acts", "columns"],
)
def test_a_file_is_bounded_by_rows_as_well_as_bytes(make: Callable[[], bytes], error: type[DataError]) -> None:
    content = make()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(error):
        read_lines(content, "a file")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400 * 1024, "kB, for files of 30 MB"


@pytest.mark.slow
def test_an_archive_that_lies_about_its_size_is_cut_off() -> None:
    content = bytearray(zipped(b"title\n" + b"Eel\n" * 20_000_000))
    for place in (content.index(b"PK\3\4") + 22, content.index(b"PK\1\2") + 24):
        content[place : place + 4] = (1000).to_bytes(4, "little")
    with pytest.raises(DataError):
        read_lines(bytes(content), "all.zip")
