"""Predicates and entities of a knowledge graph as a user reads them."""

from __future__ import annotations

import re
from urllib.parse import unquote

from tacit.data.exploration import NAMESPACES, STEP, shorten_predicate

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def predicate_words(path: str) -> str:
    """Return a path of predicates as a user reads it, without namespaces, written out or as their usual prefix.

    >>> predicate_words("http://dbpedia.org/ontology/author~dbo:birthPlace")
    'author › birth place'
    """
    return " › ".join(_step_words(step) for step in path.split(STEP))


def _step_words(step: str) -> str:
    prefix, colon, name = shorten_predicate(step).partition(":")
    if prefix + colon not in NAMESPACES.values():
        if "://" not in step:
            return step
        name = _local(step)
    return _HUMP.sub(" ", name.replace("_", " ")).lower()


def entity_words(entity: str) -> str:
    """Return an entity as a user reads it.

    >>> entity_words("http://dbpedia.org/resource/Category:English-language_films")
    'English-language films'
    """
    return _local(entity).removeprefix("Category:") if "://" in entity else entity


def _local(iri: str) -> str:
    tail = re.split(r"[/#]", iri.strip("<>").rstrip("/#"))[-1]
    return unquote(tail).replace("_", " ")
