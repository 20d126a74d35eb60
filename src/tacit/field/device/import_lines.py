"""A line of a file that a user brings along, what the user may say about the file, and which service wrote it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast, get_args

from tacit.data.columns import ROLES
from tacit.errors import DataError
from tacit.field.device.import_dates import DateOrder
from tacit.languages.sentences import Sentence

COUNTS = {"count", "plays", "playcount", "listeningcount", "weight"}  # columns of numbers that are no ratings
IDS = tuple(name for name in ROLES["item"] if name.endswith(("id", "asin", "isbn", "index")) or len(name) < 2)
CALLED = (*ROLES["title"], *(name for name in ROLES["item"] if name not in IDS and name != "item"))
LEAST_PLAYED = 30_000  # milliseconds of a song, below which it was skipped and not listened to
_SEASON = re.compile(
    r"\s*:\s*(season|series|part|volume|chapter|book|limited series|staffel|saison|temporada)\b.*", re.IGNORECASE
)
_IN_SERIES = re.compile(r"\s*\([^()]*#[^()]*\)\s*$")
SEEN_LATER = "It is on a list for later."


@dataclass(frozen=True)
class ImportChoices:
    """What the user says about a file."""

    dates: DateOrder = ""  # of 3/12/23; empty: as the file shows
    ids: bool = False  # ids in the file are those of this catalogue
    likes_from: float = 3.0  # stars of five from which a rating counts as something the user did
    scale: float = 0.0  # the highest rating that is possible; 0: as the service or the numbers show
    profile: str = ""  # of several people in one file

    @classmethod
    def read(cls, facts: Sequence[str], likes_from: float = 3.0) -> ImportChoices:
        """Read what a user says about a file, as NAME=VALUE.

        >>> ImportChoices.read(["dates=day-first", "ids=yes"]).ids
        True
        """
        given = dict(fact.partition("=")[::2] for fact in facts)
        dates, ids, scale = given.pop("dates", ""), given.pop("ids", "no"), given.pop("scale", "0")
        profile = given.pop("profile", "")
        is_number = re.fullmatch(r"\d{1,4}(\.\d+)?", scale) is not None
        if given or dates not in ("", *get_args(DateOrder)) or ids not in ("yes", "no") or not is_number:
            raise DataError(
                Sentence("--with does not know '{given}'.", given=", ".join(facts)),
                "Write dates=day-first, dates=month-first, ids=yes, scale=10 or profile=NAME.",
            )
        return cls(cast(DateOrder, dates), ids == "yes", likes_from, float(scale), profile)


@dataclass(frozen=True)
class ExportLine:
    """One thing that a file says."""

    number: int
    text: str  # what stands there
    spellings: tuple[str, ...] = ()  # titles, the surest first; empty where nothing is named
    when: int | None = None
    value: str = ""
    wrong: str = ""  # why it cannot be read, if it cannot
    year: str = ""
    item: str = ""  # an id
    is_ours: bool = False  # the id is of this catalogue: the column is called `item`, or the user says so
    vague: tuple[str, ...] = ()  # titles that alone prove nothing: of a song without its artist
    left_out: str = ""  # why it is nothing that the user did
    scale: float = 0.0  # the highest rating of the service; 0: not known; below 0: the number is no rating


class TableService(NamedTuple):
    """A service, recognised by the columns of its tables."""

    name: str
    needs: frozenset[str]
    roles: Mapping[str, tuple[str, ...]]
    scale: float = 0.0


SERVICES = (
    TableService(
        "Netflix",
        frozenset({"profilename", "starttime", "title", "supplementalvideotype"}),
        {"title": ("title",), "timestamp": ("starttime",)},
    ),
    TableService(
        "Letterboxd",
        frozenset({"name", "year", "letterboxduri"}),
        {"title": ("name",), "year": ("year",), "rating": ("rating",), "timestamp": ("watcheddate", "date")},
        5.0,
    ),
    TableService(
        "IMDb",
        frozenset({"const", "title"}),
        {"title": ("title",), "year": ("year",), "rating": ("yourrating",), "timestamp": ("daterated",)},
        10.0,
    ),
    TableService(
        "Goodreads",
        frozenset({"bookid", "title", "author", "exclusiveshelf"}),
        {
            "title": ("title",),
            "year": ("originalpublicationyear", "yearpublished"),
            "rating": ("myrating",),
            "timestamp": ("dateread",),
        },
        5.0,
    ),
    TableService("Last.fm", frozenset({"artist", "track"}), {"timestamp": ("uts", "date", "utctime", "listenedat")}),
    TableService("Netflix", frozenset({"title", "date"}), {"title": ("title",), "timestamp": ("date",)}),
)
PLAIN = TableService(
    "",
    frozenset(),
    {
        "item": ("item",),
        "other": IDS,
        "title": CALLED,
        "timestamp": ("watcheddate", *ROLES["timestamp"]),
        "rating": ROLES["rating"],
        "year": ("year", "releaseyear"),
    },
)


def find_service(words: list[str]) -> TableService:
    """Return the service that writes tables with these columns; of Netflix' short table nothing else may be there."""
    there = frozenset(words)
    for service in SERVICES:
        if service.needs <= there and (service.needs != {"title", "date"} or there == service.needs):
            return service
    return PLAIN


def left_out_of(service: str, cells: Mapping[str, str], file: str) -> str:
    """Return why a row of a service is nothing that the user did, if so."""
    if service == "Letterboxd" and "watchlist" in file.lower():
        return SEEN_LATER
    if service == "IMDb" and not cells.get("daterated") and not cells.get("yourrating"):
        return SEEN_LATER
    if service == "Goodreads" and cells.get("exclusiveshelf", "").lower() != "read":
        return Sentence(
            "It is on the shelf “{shelf}”, not among those you read.", shelf=cells.get("exclusiveshelf", "")[:40]
        )
    if service == "Netflix" and cells.get("supplementalvideotype"):
        return "It is a trailer or an extra."
    return ""


def rename_title(service: str, title: str) -> str:
    """Return a title of a service as catalogues have it: a series for its episodes, a book without its series.

    >>> rename_title("Netflix", "Dark: Season 1: Secrets"), rename_title("Goodreads", "Dune (Dune, #1)")
    ('Dark', 'Dune')
    """
    if service == "Netflix":
        return _SEASON.sub("", title) or title
    return _IN_SERIES.sub("", title) if service == "Goodreads" else title


def song_spellings(artist: str, track: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the ways to write a song with its artist, and those that alone prove nothing."""
    if not artist or not track:
        return ((artist or track,) if artist or track else ()), ()
    sure = (f"{artist} - {track}", f"{artist} – {track}", f"{track} - {artist}", f"{track} by {artist}", artist)
    return sure, (track,)
