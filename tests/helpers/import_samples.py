"""Files as nine services hand them out, and wrong ones, all made for these tests; beside each what is right to add."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np

from tacit.field.device.import_lines import ImportChoices
from tacit.types import Catalog, Vocabulary

TITLES = (
    "Toy Story (1995)",  # 1
    "GoldenEye (1995)",
    "Four Rooms (1995)",
    "Get Shorty (1995)",
    "Copycat (1995)",  # 5, which Goodreads calls The Hobbit
    "Shanghai Triad (1995)",
    "Twelve Monkeys (1995)",  # 7, which Goodreads calls Dune
    "Matrix, The (1999)",
    "Solaris (1972)",
    "Solaris (2002)",  # 10
    "Dark",
    "Radiohead",
    "Queen - Bohemian Rhapsody",
    "Amélie (2001)",
    "300 (2006)",  # 15
    "Café Luna",
    "Heat (1995)",
    "1984",
    "Creep",
    "Dune",  # 20
)
SHELF = Catalog(Vocabulary(np.arange(1, len(TITLES) + 1)), list(TITLES))


@dataclass(frozen=True)
class Sample:
    """A file, what the user says about it, and the items it may add, each with its day (none: the file has none)."""

    service: str
    name: str
    content: bytes
    right: dict[int, str | None]
    choices: ImportChoices | None = None
    error: str = ""  # what the refusal says, if the file is refused


def day(seconds: int | None) -> str | None:
    """Return the day of a moment."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d")


def zipped(**files: str) -> bytes:
    """Return an archive of texts."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name.replace("__", "/").replace("_csv", ".csv").replace("_json", ".json"), text)
    return out.getvalue()


def as_json(content: Any) -> bytes:
    """Return JSON."""
    return json.dumps(content).encode()


def cell(verb: str, title: str, when: str, details: str = "") -> str:
    """Return one entry of Google's activity page."""
    return (
        '<div class="outer-cell mdl-cell"><div class="mdl-grid"><div class="header-cell"><p>YouTube<br></p></div>'
        f'<div class="content-cell mdl-cell mdl-typography--body-1">{verb}&nbsp;<a href="https://x/watch?v=1">{title}</a>'
        f'<br><a href="https://x/channel">A channel</a><br>{when}<br></div>'
        '<div class="content-cell mdl-cell mdl-typography--body-1 mdl-typography--text-right"></div>'
        f'<div class="content-cell mdl-cell mdl-typography--caption"><b>Products:</b><br>YouTube<br>{details}</div>'
        "</div></div>"
    )


def _table(*lines: str) -> bytes:
    return ("\n".join(lines) + "\n").encode()


def _song(track: str, artist: str, when: str, played: int = 200_000) -> dict[str, Any]:
    return {"endTime": when, "artistName": artist, "trackName": track, "msPlayed": played}


GOODREADS = (
    "Book Id,Title,Author,ISBN,My Rating,Average Rating,Year Published,Original Publication Year,Date Read,Date Added,"
    "Bookshelves,Exclusive Shelf"
)
LETTERBOXD = "Date,Name,Year,Letterboxd URI"
IMDB = "Const,Your Rating,Date Rated,Title,URL,Title Type,IMDb Rating,Runtime (mins),Year"
ACTIVITY = "Profile Name,Start Time,Duration,Attributes,Title,Supplemental Video Type,Device Type,Bookmark"
DAYS, MONTHS = ImportChoices(dates="day-first"), ImportChoices(dates="month-first")

SAMPLES = (
    # --- Netflix
    Sample(
        "Netflix",
        "a.csv",
        _table("Title,Date", '"Heat","3/13/23"', '"Dark: Season 1: Secrets","3/12/23"'),
        {17: "2023-03-13", 11: "2023-03-12"},
    ),
    Sample(
        "Netflix",
        "b.csv",
        _table("Title,Date", '"Heat","13/3/23"', '"Toy Story","3/12/23"'),
        {17: "2023-03-13", 1: "2023-12-03"},
    ),
    Sample("Netflix", "c.csv", _table("Title,Date", '"Heat","3/12/23"'), {}, error="March or December"),
    Sample("Netflix", "d.csv", _table("Title,Date", '"Heat","3/12/23"'), {17: "2023-12-03"}, DAYS),
    Sample("Netflix", "e.csv", _table("Title,Date", '"Heat","3/12/23"'), {17: "2023-03-12"}, MONTHS),
    Sample(
        "Netflix",
        "f.csv",
        _table(
            ACTIVITY,
            "Ann,2023-03-12 20:00:00,01:40:00,,Heat,,TV,",
            "Ann,2023-03-11 20:00:00,00:00:40,,GoldenEye,TRAILER,TV,",
        ),
        {17: "2023-03-12"},
    ),
    Sample(
        "Netflix",
        "g.csv",
        _table(ACTIVITY, "Ann,2023-03-12 20:00:00,1,,Heat,,TV,", "Bob,2023-03-11 20:00:00,1,,GoldenEye,,TV,"),
        {},
        error="Ann, Bob",
    ),
    Sample(
        "Netflix",
        "h.csv",
        _table(ACTIVITY, "Ann,2023-03-12 20:00:00,1,,Heat,,TV,", "Bob,2023-03-11 20:00:00,1,,GoldenEye,,TV,"),
        {2: "2023-03-11"},
        ImportChoices(profile="Bob"),
    ),
    Sample(
        "Netflix", "i.csv", _table("Title,Date", '"Solaris","1/31/23"', '"The Matrix: Resurrections","1/30/23"'), {}
    ),
    # --- Spotify
    Sample(
        "Spotify",
        "StreamingHistory_music_0.json",
        as_json([_song("Bohemian Rhapsody", "Queen", "2023-12-01 10:15")]),
        {13: "2023-12-01"},
    ),
    Sample(
        "Spotify",
        "StreamingHistory1.json",
        as_json(
            [
                _song("Karma Police", "Radiohead", "2023-12-01 10:15"),
                _song("No Surprises", "Radiohead", "2023-12-05 09:00"),
            ]
        ),
        {12: "2023-12-05"},
    ),
    Sample("Spotify", "skipped.json", as_json([_song("Bohemian Rhapsody", "Queen", "2023-12-01 10:15", 2_000)]), {}),
    Sample("Spotify", "other_artist.json", as_json([_song("Creep", "Stone Temple Pilots", "2023-12-01 10:15")]), {}),
    Sample(
        "Spotify",
        "endsong_0.json",
        as_json(
            [
                {
                    "ts": "2022-01-02T03:04:05Z",
                    "ms_played": 90_000,
                    "master_metadata_track_name": "Bohemian Rhapsody",
                    "master_metadata_album_artist_name": "Queen",
                    "spotify_track_uri": "spotify:track:7",
                },
                {
                    "ts": "2022-01-03T03:04:05Z",
                    "ms_played": 90_000,
                    "master_metadata_track_name": None,
                    "master_metadata_album_artist_name": None,
                    "episode_name": "1984",
                    "episode_show_name": "A podcast",
                },
            ]
        ),
        {13: "2022-01-02"},
    ),
    # --- YouTube
    Sample(
        "YouTube",
        "watch-history.json",
        as_json(
            [
                {"header": "YouTube", "title": "Watched Toy Story", "time": "2024-01-01T00:00:00.123Z"},
                {
                    "header": "YouTube",
                    "title": "Watched Heat",
                    "time": "2024-01-02T00:00:00Z",
                    "details": [{"name": "From Google Ads"}],
                },
                {"header": "YouTube", "title": "Searched for GoldenEye", "time": "2024-01-02T00:00:00Z"},
            ]
        ),
        {1: "2024-01-01"},
    ),
    Sample("YouTube", "disliked.json", as_json([{"title": "Disliked Heat", "time": "2024-01-01T00:00:00Z"}]), {}),
    Sample(
        "YouTube",
        "watch-history.html",
        (
            "<html><body>"
            + cell("Watched", "Heat", "Mar 12, 2023, 5:06:07 PM CET")
            + cell("Watched", "Am&eacute;lie", "Dec 3, 2022, 5:06:07\u202fAM CET")
            + cell("Watched", "GoldenEye", "Mar 11, 2023, 5:06:07 PM CET", "<b>Details:</b><br>From Google Ads<br>")
            + "</body></html>"
        ).encode(),
        {17: "2023-03-12", 14: "2022-12-03"},
    ),
    Sample("YouTube", "german.html", cell("Watched", "Heat", "12.03.2023, 17:06:07 MEZ").encode(), {17: "2023-03-12"}),
    Sample(
        "YouTube", "british.html", cell("Watched", "Heat", "12 Mar 2023, 17:06:07 GMT").encode(), {17: "2023-03-12"}
    ),
    Sample("YouTube", "searches.html", cell("Searched for", "Heat", "12 Mar 2023, 17:06:07 GMT").encode(), {}),
    Sample("YouTube", "other.html", b"<html><body><h1>Hello</h1></body></html>", {}, error="unknown kind"),
    # --- Letterboxd
    Sample(
        "Letterboxd",
        "watched.csv",
        _table(LETTERBOXD, "2024-01-02,The Matrix,1999,u", "2024-01-03,Solaris,1972,u"),
        {8: "2024-01-02", 9: "2024-01-03"},
    ),
    Sample(
        "Letterboxd",
        "diary.csv",
        _table(LETTERBOXD + ",Rating,Rewatch,Tags,Watched Date", "2024-01-09,The Matrix,1999,u,4.5,,,2024-01-01"),
        {8: "2024-01-01"},
    ),
    Sample(
        "Letterboxd",
        "ratings.csv",
        _table(
            LETTERBOXD + ",Rating",
            "2024-01-02,The Matrix,1999,u,0.5",
            "2024-01-02,Heat,1995,u,3",
            "2024-01-02,GoldenEye,1995,u,2.5",
        ),
        {17: "2024-01-02"},
    ),
    Sample("Letterboxd", "watchlist.csv", _table(LETTERBOXD, "2024-01-02,The Matrix,1999,u"), {}),
    Sample(
        "Letterboxd",
        "letterboxd.zip",
        zipped(
            watched_csv=f"{LETTERBOXD}\n2024-01-02,Heat,1995,u\n",
            watchlist_csv=f"{LETTERBOXD}\n2024-01-02,Dark,,u\n",
            ratings_csv=f"{LETTERBOXD},Rating\n2024-01-05,Heat,1995,u,5\n",
        ),
        {17: "2024-01-05"},
    ),
    Sample("Letterboxd", "other_year.csv", _table(LETTERBOXD, "2024-01-02,Heat,1986,u"), {}),
    # --- IMDb
    Sample(
        "IMDb",
        "ratings.csv",
        _table(IMDB, "tt1,8,2023-05-06,Heat,u,Movie,8.3,170,1995", "tt2,3,2023-05-06,GoldenEye,u,Movie,7.2,130,1995"),
        {17: "2023-05-06"},
    ),
    Sample(
        "IMDb",
        "watchlist.csv",
        _table(
            "Position,Const,Created,Modified,Description,Title,URL,Title Type,IMDb Rating,Year,Your Rating,Date Rated",
            "1,tt1,2023-01-01,2023-01-01,,Heat,u,Movie,8.3,1995,,",
        ),
        {},
    ),
    Sample("IMDb", "five.csv", _table(IMDB, "tt1,5,2023-05-06,Heat,u,Movie,8.3,170,1995"), {}),
    Sample(
        "IMDb",
        "lower.csv",
        _table(IMDB, "tt1,5,2023-05-06,Heat,u,Movie,8.3,170,1995"),
        {17: "2023-05-06"},
        ImportChoices(likes_from=2.5),
    ),
    # --- Trakt
    Sample(
        "Trakt",
        "history.json",
        as_json(
            [
                {
                    "id": 7,
                    "watched_at": "2023-02-03T20:00:00.000Z",
                    "action": "watch",
                    "type": "movie",
                    "movie": {"title": "Heat", "year": 1995, "ids": {"trakt": 5}},
                },
                {
                    "id": 5,
                    "watched_at": "2023-02-04T20:00:00.000Z",
                    "action": "watch",
                    "type": "episode",
                    "show": {"title": "Dark", "year": 2017},
                    "episode": {"season": 1, "number": 1, "title": "Secrets"},
                },
            ]
        ),
        {17: "2023-02-03", 11: "2023-02-04"},
    ),
    Sample(
        "Trakt",
        "ratings.json",
        as_json(
            [
                {
                    "rated_at": "2023-02-03T20:00:00Z",
                    "rating": 9,
                    "type": "movie",
                    "movie": {"title": "Heat", "year": 1995},
                },
                {
                    "rated_at": "2023-02-03T20:00:00Z",
                    "rating": 4,
                    "type": "movie",
                    "movie": {"title": "Copycat", "year": 1995},
                },
            ]
        ),
        {17: "2023-02-03"},
    ),
    Sample(
        "Trakt",
        "watched-movies.json",
        as_json([{"plays": 3, "last_watched_at": "2023-02-03T20:00:00Z", "movie": {"title": "Heat", "year": 1995}}]),
        {17: "2023-02-03"},
    ),
    Sample(
        "Trakt",
        "watchlist.json",
        as_json(
            [
                {
                    "rank": 1,
                    "listed_at": "2023-02-03T20:00:00Z",
                    "type": "movie",
                    "movie": {"title": "Heat", "year": 1995},
                }
            ]
        ),
        {},
    ),
    # --- Goodreads
    Sample(
        "Goodreads",
        "export.csv",
        _table(
            GOODREADS,
            '5,"The Hobbit",Tolkien,"=""1""",5,4.3,1998,1937,2020/01/02,2019/01/01,,read',
            '7,"Dune (Dune, #1)",Herbert,"=""2""",4,4.2,1990,1965,2021/03/04,2019/01/01,,read',
        ),
        {20: "2021-03-04"},
    ),
    Sample(
        "Goodreads",
        "shelves.csv",
        _table(
            GOODREADS,
            '7,"Dune",Herbert,"",0,4.2,1990,1965,,2019/01/01,to-read,to-read',
            '18,"1984",Orwell,"",0,4.2,1990,1949,,2019/01/01,currently-reading,currently-reading',
        ),
        {},
    ),
    Sample(
        "Goodreads",
        "unrated.csv",
        _table(GOODREADS, '9,"1984",Orwell,"",0,4.2,1990,1949,,2019/01/01,,read'),
        {18: None},
    ),
    Sample("Goodreads", "one_star.csv", _table(GOODREADS, '9,"1984",Orwell,"",1,4.2,1990,1949,2020/05/06,,,read'), {}),
    # --- Last.fm and ListenBrainz
    Sample(
        "Last.fm",
        "scrobbles.csv",
        _table(
            "uts,utc_time,artist,artist_mbid,album,album_mbid,track,track_mbid",
            '1678640400,"12 Mar 2023, 17:00",Queen,,,,Bohemian Rhapsody,',
        ),
        {13: "2023-03-12"},
    ),
    Sample(
        "Last.fm",
        "bare.csv",
        _table(
            "Queen,A Night at the Opera,Bohemian Rhapsody,12 Mar 2023 17:06",
            "Radiohead,OK Computer,Karma Police,13 Mar 2023 17:06",
        ),
        {13: "2023-03-12", 12: "2023-03-13"},
    ),
    Sample(
        "Last.fm",
        "recent.json",
        as_json(
            {
                "recenttracks": {
                    "track": [{"name": "Karma Police", "artist": {"#text": "Radiohead"}, "date": {"uts": "1678640400"}}]
                }
            }
        ),
        {12: "2023-03-12"},
    ),
    Sample(
        "ListenBrainz",
        "listens.json",
        as_json(
            [{"listened_at": 1678640400, "track_metadata": {"artist_name": "Queen", "track_name": "Bohemian Rhapsody"}}]
        ),
        {13: "2023-03-12"},
    ),
    Sample(
        "ListenBrainz",
        "listens.jsonl",
        b"\n".join(
            as_json(
                {
                    "listened_at": 1678640400 + i,
                    "track_metadata": {"artist_name": "Radiohead", "track_name": f"Song {i}"},
                }
            )
            for i in range(3)
        ),
        {12: "2023-03-12"},
    ),
    # --- lists and tables of one's own
    Sample("plain", "list.txt", b"Heat\nThe Matrix\nNowhere\n300\n", {17: None, 8: None, 15: None}),
    Sample("plain", "item.csv", _table("item,timestamp", "17,1678640400", "99,1678640400"), {17: "2023-03-12"}),
    Sample("plain", "movie_id.csv", _table("movieId,rating,timestamp", "5,5,1678640400", "7,5,1678640400"), {}),
    Sample(
        "plain",
        "said.csv",
        _table("movieId,rating,timestamp", "5,5,1678640400"),
        {5: "2023-03-12"},
        ImportChoices(ids=True),
    ),
    Sample("plain", "both.csv", _table("item_id,title", "5,The Hobbit", "7,Twelve Monkeys"), {7: None}),
    Sample("plain", "ours_but.csv", _table("item,title", "5,The Hobbit", "17,Heat"), {17: None}),
    Sample("plain", "number.csv", _table("title", "7", "5", "1984"), {18: None}),
    Sample("plain", "rated.csv", _table("title,stars", "Heat,4", "GoldenEye,0.5", "Copycat,1"), {17: None}),
    Sample("plain", "near.csv", _table("title", "Haet", "Amelie", "Solaris"), {}),
    Sample("plain", "no_order.csv", _table("title,date", "Heat,1/2/2023", "GoldenEye,2/1/2023"), {}, error="January"),
    Sample("plain", "empty.csv", b"", {}, error="empty"),
    Sample("plain", "who.csv", _table("who,what", "1,2"), {}, error="no column"),
    Sample("plain", "broken.json", b'{"a": [1,', {}, error="not JSON"),
    Sample("plain", "friends.json", b'{"friends": [5, 7]}', {}, error="unknown kind"),
    Sample("plain", "latin.csv", "title\nAmélie\n".encode("latin-1"), {}, error="UTF-8"),
)
