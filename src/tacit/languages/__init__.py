"""The language of the user's page: English texts are the keys, and each other language is one file of translations.

`translate("Removed “{title}”.", title=...)` returns the text in the language of the request that is answered now. A
catalogue is `LANGUAGE.json`: {English text: translation}, with its own names of months and its marks of numbers under
keys that begin with "@". A text without a translation stays English; tests refuse that for what lies in this folder.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import datetime
from functools import cache

ENGLISH = "en"
LANGUAGE: ContextVar[str] = ContextVar("language", default=ENGLISH)
MARKS: Mapping[str, str] = {
    "@name": "English",
    "@months": "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec",
    "@day": "{day} {month} {year}, {time}",
    "@thousands": ",",
    "@decimal": ".",
}


@cache
def languages() -> Mapping[str, str]:
    """Return the languages that there are, by code, in their own words."""
    from importlib.resources import files

    found = sorted(
        file.name.removesuffix(".json") for file in files(__package__).iterdir() if file.name.endswith(".json")
    )
    return {code: read_mark("@name", code) for code in [ENGLISH, *found]}


@cache
def catalogue(language: str) -> Mapping[str, str]:
    """Return the translations of a language; English needs none."""
    if language == ENGLISH:
        return {}
    from importlib.resources import files  # only pages in other languages need it

    texts: dict[str, str] = json.loads(files(__package__).joinpath(f"{language}.json").read_text(encoding="utf-8"))
    return texts


def translate(text: str, /, **values: object) -> str:
    """Return a text in the language of this request, with values in the places of their names."""
    found = catalogue(LANGUAGE.get()).get(text, text)
    return found.format(**values) if values else found


def read_mark(name: str, language: str = "") -> str:
    """Return how a language writes numbers or days."""
    return catalogue(language or LANGUAGE.get()).get(name, MARKS[name])


def write_number(n: float, form: str = "") -> str:
    """Return a number with the marks of the language.

    >>> write_number(1200), write_number(0.5, "%.2f")
    ('1,200', '0.50')
    """
    return replace_marks(form % n if form else f"{n:,}")


def replace_marks(text: str) -> str:
    """Return a number that is written as in English with the marks of the language."""
    return text.translate({ord(","): read_mark("@thousands"), ord("."): read_mark("@decimal")})


def format_moment(moment: datetime) -> str:
    """Return a day and time as a language writes them."""
    month = read_mark("@months").split()[moment.month - 1]
    return read_mark("@day").format(day=moment.day, month=month, year=moment.year, time=f"{moment:%H:%M}")


def choose_language(setting: str, accepted: str) -> str:
    """Return the language of a setting, or the first that the browser accepts and that there is, or English.

    >>> choose_language("", "fr-CH, de;q=0.9, en;q=0.8"), choose_language("en", "de"), choose_language("", "xx")
    ('de', 'en', 'en')
    """
    known = languages()
    if setting in known:
        return setting
    wanted: list[tuple[float, str]] = []
    for part in accepted[:1000].split(","):
        tag, _, weight = part.partition(";q=")
        try:
            wanted.append((-float(weight or 1), tag.strip().lower().split("-")[0]))
        except ValueError:
            continue
    return next((code for weight, code in sorted(wanted, key=lambda one: one[0]) if code in known and weight), ENGLISH)
