"""What services hand out as JSON or HTML: Google Takeout, Spotify, Trakt, ListenBrainz, Last.fm, and our own copy."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import islice
from typing import Any, NamedTuple

from tacit.errors import DataError
from tacit.field.device.import_lines import LEAST_PLAYED, SEEN_LATER
from tacit.languages.sentences import Sentence

_DID = re.compile(r"(watched|visited|listened to|viewed|played|used|read)\s+", re.IGNORECASE)
_DID_NOT = re.compile(r"(searched for|saved|subscribed to|shared|liked|disliked|voted|answered)\s", re.IGNORECASE)
AD = "It is an advertisement."
SHORT = "It was played for less than 30 seconds."


class Act(NamedTuple):
    """One thing of a file, as it is written there."""

    title: str
    when: str = ""
    rating: str = ""
    year: str = ""
    artist: str = ""
    item: str = ""
    is_ours: bool = False
    left_out: str = ""
    scale: float = 0.0


def read_json(text: str, name: str, most: int) -> list[Act]:
    """Return what a JSON file says, at most one more than `most`; also of one JSON object per line."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        content = _lines(text)
        if content is None:
            raise DataError(
                Sentence("'{name}' is not JSON: {error}.", name=name, error=error), "Ask for the export again."
            ) from None
    found = list(islice(_acts(content), most + 1))
    if not found:
        raise DataError(
            Sentence("'{name}' is JSON of an unknown kind.", name=name),
            "Known are Google Takeout (activity, YouTube, places), Spotify, Trakt, ListenBrainz and Last.fm.",
        )
    return found


def _lines(text: str) -> list[Any] | None:
    rows = [line for line in text.splitlines() if line.strip()]
    try:
        return [json.loads(line) for line in rows] if len(rows) > 1 else None
    except (ValueError, RecursionError):
        return None


def _acts(content: Any) -> Iterator[Act]:
    """Yield everything that a file says was done."""
    if isinstance(content, list):
        for row in content:
            if isinstance(row, dict) and (act := _row(row)) is not None:
                yield act
    elif isinstance(content, dict):
        if isinstance(content.get("features"), list):
            yield from filter(None, map(_feature, content["features"]))
        elif isinstance(content.get("timelineObjects"), list):
            yield from filter(None, map(_visit, content["timelineObjects"]))
        elif "track" in (recent := _dict(content, "recenttracks")):
            yield from _acts(recent["track"])
        elif isinstance(payload := _dict(content, "payload").get("listens"), list):
            yield from _acts(payload)
        elif isinstance(content.get("history"), list) and "sharing" in content:
            yield from filter(None, map(_own, content["history"]))
        elif (act := _row(content)) is not None:
            yield act


def _row(row: dict[str, Any]) -> Act | None:
    """Read one object of a list."""
    if "trackName" in row or "master_metadata_track_name" in row or "ms_played" in row:
        return _spotify(row)
    if "track_metadata" in row:
        about = _dict(row, "track_metadata")
        return Act(
            _text(about.get("track_name")), _text(row.get("listened_at")), artist=_text(about.get("artist_name"))
        )
    if isinstance(row.get("artist"), dict) and "name" in row:  # Last.fm
        artist = row["artist"].get("#text") or row["artist"].get("name")
        return Act(_text(row["name"]), _text(_dict(row, "date").get("uts")), artist=_text(artist))
    if "movie" in row or "show" in row:
        return _trakt(row)
    return _activity(row)


def _spotify(row: dict[str, Any]) -> Act | None:
    title = _text(row.get("trackName") or row.get("master_metadata_track_name") or row.get("episode_name"))
    artist = _text(
        row.get("artistName") or row.get("master_metadata_album_artist_name") or row.get("episode_show_name")
    )
    played = row.get("msPlayed", row.get("ms_played"))
    is_short = isinstance(played, int | float) and played < LEAST_PLAYED
    when = _text(row.get("endTime") or row.get("ts"))
    return Act(title, when, artist=artist, left_out=SHORT if is_short else "") if title or artist else None


def _trakt(row: dict[str, Any]) -> Act | None:
    about = _dict(row, "movie") or _dict(row, "show")
    when = row.get("watched_at") or row.get("last_watched_at") or row.get("rated_at") or row.get("collected_at")
    later = SEEN_LATER if "listed_at" in row else "It is in a collection." if "collected_at" in row else ""
    title, year = _text(about.get("title")), _text(about.get("year"))
    return Act(title, _text(when), _text(row.get("rating")), year, left_out=later, scale=10.0) if title else None


def _activity(row: dict[str, Any]) -> Act | None:
    if not isinstance(row.get("title"), str):
        return None
    title, details = _text(row["title"]), row.get("details")
    is_ad = isinstance(details, list) and {"name": "From Google Ads"} in details
    left_out = AD if is_ad else _not_done(title)
    return Act(_DID.sub("", title, count=1).strip(), _text(row.get("time")), left_out=left_out)


def _not_done(title: str) -> str:
    return "It is a search, a mark or a list, and nothing that you did." if _DID_NOT.match(title) else ""


def _feature(feature: Any) -> Act | None:
    about = _dict(feature, "properties")
    if not about:
        return None
    place = _dict(about, "location")
    title = about.get("Title") or about.get("name") or place.get("name") or place.get("Business Name")
    rating = _text(about.get("five_star_rating_published"))
    return Act(_text(title), _text(about.get("date") or about.get("Published")), rating, scale=5.0)


def _visit(one: Any) -> Act | None:
    visit = _dict(one, "placeVisit")
    if not visit:
        return None
    stamp = _dict(visit, "duration").get("startTimestamp")
    return Act(_text(_dict(visit, "location").get("name")), _text(stamp))


def _own(row: Any) -> Act | None:
    """Read a row of `tacit device export --readable`; its ratings were accepted before."""
    if not isinstance(row, dict) or "item" not in row:
        return None
    rating = _text(row.get("value"))
    return Act(_text(row.get("title")), _text(row.get("when")), rating, item=_text(row["item"]), scale=-1.0)


def _dict(value: Any, key: str) -> dict[str, Any]:
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def _text(value: Any) -> str:
    """Return a value as text that can be written: JSON may name half a character, which becomes a question mark."""
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        return ""
    return str(value).strip().encode(errors="replace").decode()


# --- HTML -------------------------------------------------------------------------------------------------------------


class _Cells(HTMLParser):
    """Collects the cells of Google's activity pages: for each, its links and its bare words."""

    def __init__(self) -> None:
        super().__init__()
        self.cells: list[tuple[list[str], list[str]]] = []
        self._depth, self._in_link = 0, False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        kind = dict(attrs).get("class") or ""
        if tag == "div" and (self._depth or ("content-cell" in kind and "text-right" not in kind)):
            self._depth += 1
            if self._depth == 1:
                self.cells.append(([], []))
        self._in_link = tag == "a" or (self._in_link and tag != "br")

    def handle_endtag(self, tag: str) -> None:
        if tag == "div" and self._depth:
            self._depth -= 1
        if tag == "a":
            self._in_link = False

    def handle_data(self, data: str) -> None:
        words = " ".join(data.split())
        if self._depth and words:
            self.cells[-1][0 if self._in_link else 1].append(words)


def read_html(text: str, name: str) -> list[Act]:
    """Return what a page of Google's activity says: in each cell a verb, a title as a link, and a time at the end."""
    parser = _Cells()
    parser.feed(text)
    acts: list[Act] = []
    for links, words in parser.cells:
        if acts and "From Google Ads" in words:  # the details of the cell before
            acts[-1] = acts[-1]._replace(left_out=AD)
        if len(words) < 2 or not (_DID.match(words[0] + " ") or _DID_NOT.match(words[0] + " ")):
            continue
        title = links[0] if links else _DID.sub("", words[0], count=1)
        acts.append(Act(title, words[-1], left_out=_not_done(words[0] + " ")))
    if not acts:
        raise DataError(
            Sentence("'{name}' is a page of an unknown kind.", name=name),
            "Known is the watch history of Google Takeout.",
        )
    return acts
