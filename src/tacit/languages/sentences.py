"""Sentences that know their template and values, so that a page can show in its language what was said in English."""

from __future__ import annotations

import re
from collections.abc import Mapping
from numbers import Integral, Real
from string import Formatter
from typing import Any

from tacit.languages import ENGLISH, LANGUAGE, catalogue, replace_marks, translate, write_number

WORDS = re.compile("[A-Za-z]{2}")


class Sentence(str):
    """An English text with the template and the values that it was made of.

    In a template, `{left:device}` is '1 device' or '1,200 devices'; other values are formatted as usual.

    >>> Sentence("{left:device} remained, with {share:.1%} of it.", left=1200, share=0.25)
    '1,200 devices remained, with 25.0% of it.'
    """

    __slots__ = ("template", "values")
    template: str
    values: Mapping[str, Any]

    def __new__(cls, template: str, /, **values: Any) -> Sentence:
        """Format the template in English."""
        kept = {name: _plain(value) for name, value in values.items()}
        made = super().__new__(cls, _Words(ENGLISH).vformat(template, (), kept))
        made.template, made.values = template, kept
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        """Keep template and values in copies and other processes."""
        return _make, (self.template, dict(self.values))


class _Words(Formatter):
    """Formats a template in a language: counts with their nouns, numbers with its marks, sentences in it."""

    def __init__(self, language: str) -> None:
        self._is_english = language == ENGLISH

    def format_field(self, value: Any, format_spec: str) -> Any:
        if isinstance(value, str) and not self._is_english:
            value = localise(value) if isinstance(value, Sentence) else value
        if format_spec.isalpha() and len(format_spec) > 1:
            noun = format_spec if value == 1 else f"{format_spec}s"
            return f"{value:,} {noun}" if self._is_english else translate(f"{{n}} {noun}", n=write_number(value))
        text: str = super().format_field(value, format_spec)
        return text if self._is_english or not isinstance(value, float | int) else replace_marks(text)


def join_sentences(*parts: str) -> Sentence:
    """Return one text of several, with spaces between them."""
    values = {f"part{at}": part for at, part in enumerate(part for part in parts if part)}
    return Sentence(" ".join(f"{{{name}}}" for name in values), **values)


def _plain(value: Any) -> str | int | float:
    """Return a value as texts and JSON can hold it: numbers of arrays become Python's."""
    if isinstance(value, Integral):
        return int(value) if not isinstance(value, bool) else value
    if isinstance(value, Real):
        return float(value)
    return value if isinstance(value, str) else str(value)


def _make(template: str, values: Mapping[str, Any]) -> Sentence:
    return Sentence(template, **values)


def localise(text: str) -> str:
    """Return a text in the language of this request; one without a translation stays English."""
    language = LANGUAGE.get()
    if language == ENGLISH:
        return text
    if not isinstance(text, Sentence):
        return catalogue(language).get(text, text)
    found = catalogue(language).get(text.template, text.template)
    return _Words(language).vformat(found, (), text.values)


def is_translated(text: str) -> bool:
    """Say whether the language of this request has a text and all sentences in it."""
    language = LANGUAGE.get()
    template = text.template if isinstance(text, Sentence) else text
    parts = text.values.values() if isinstance(text, Sentence) else ()
    bare = re.sub(r"\{[^{}]*\}", "", template)
    has_it = language == ENGLISH or not WORDS.search(bare) or template in catalogue(language)
    return has_it and all(is_translated(part) for part in parts if isinstance(part, Sentence))


def write_sentence(text: str) -> Any:
    """Return a text for JSON, with its template and values if it has them."""
    if not isinstance(text, Sentence):
        return text
    values = {name: write_sentence(part) if isinstance(part, str) else part for name, part in text.values.items()}
    return {"template": text.template, "values": values}


def read_sentence(stored: Any) -> str:
    """Read what `write_sentence` wrote.

    >>> read_sentence(write_sentence(Sentence("{n:device} left.", n=2)))
    '2 devices left.'
    """
    if not isinstance(stored, dict):
        return str(stored)
    values = {name: read_sentence(part) if isinstance(part, dict) else part for name, part in stored["values"].items()}
    return Sentence(stored["template"], **values)
