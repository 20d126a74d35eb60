"""Messages about refused options: which option, its value, and what it takes instead."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, Tag, ValidationError
from pydantic.fields import FieldInfo

from tacit.errors import ConfigError, nearest

SHOWN = 60  # characters of a value that a message repeats
_OURS = ("value_error", "no_such_stage")  # the code of this package writes their messages
_WORDS: dict[Any, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
_MANY: dict[Any, str] = {int: "a list of whole numbers", float: "a list of numbers", str: "a list of names"}
_BOUNDS = {
    "greater_than": ("gt", "must be above"),
    "greater_than_equal": ("ge", "must be at least"),
    "less_than": ("lt", "must be below"),
    "less_than_equal": ("le", "must be at most"),
}
_LENGTHS = {
    "too_short": ("min_length", "needs", "or more values"),
    "too_long": ("max_length", "takes", "or fewer values"),
    "string_too_short": ("min_length", "needs", "or more characters"),
    "string_too_long": ("max_length", "takes", "or fewer characters"),
}


def refusal(options: type[BaseModel], error: ValidationError, where: str) -> ConfigError:
    """Describe the first problem of some options, with what to do about it."""
    problems = [(_place(options, problem["loc"]), problem) for problem in error.errors()]
    first = problems[0][0][0]
    same = [(place, problem) for place, problem in problems if place[0][: len(first)] == first]
    (path, holder, field, kind), problem = max(same, key=lambda found: len(found[0][0]))  # the innermost of a union
    option, seen, what = ".".join(path), problem["input"], problem["type"]
    named = f"{where}: option '{option}'" if option else where
    if what == "extra_forbidden":
        known = holder.model_fields if holder is not None else options.model_fields
        return ConfigError(f"{where} has no option '{option}'.", nearest(path[-1], known))
    if what == "missing":
        return ConfigError(f"{where} needs the option '{option}'.", _describe_option(option, field))
    if what in _BOUNDS:
        bound, words = _BOUNDS[what]
        return ConfigError(f"{named} {words} {problem['ctx'][bound]:.12g}, not {show_value(seen)}.", _meaning(field))
    if what in _LENGTHS:
        bound, words, of = _LENGTHS[what]
        return ConfigError(f"{named} {words} {problem['ctx'][bound]} {of}, not {show_value(seen)}.", _meaning(field))
    if what == "string_pattern_mismatch":
        return ConfigError(f"{named} cannot be {show_value(seen)}.", _meaning(field))
    if what in _OURS:
        message = problem["msg"].removeprefix("Value error, ").rstrip(".")
        end = "" if message.endswith("?") else "."
        if len(_arms(kind)) == 1 and _is_section(
            _bare(_arms(kind)[0])
        ):  # the message is about several options, and names them
            return ConfigError(f"{where}{f', section {show_value(option)}' if option else ''}: {message}{end}")
        is_named = show_value(seen).strip("'") in message
        return ConfigError(f"{named}: {message}{end if is_named else f' (given: {show_value(seen)}).'}")
    return ConfigError(
        f"{named} takes {describe_kind(kind)}, not {show_value(seen)}.", _advice(option, field, kind, seen)
    )


_Place = tuple[list[str], type[BaseModel] | None, FieldInfo | None, Any]  # path, its section, its field, what it takes


def _place(options: type[BaseModel], loc: Sequence[str | int]) -> _Place:
    """Find an option by the location that pydantic reports, without the parts that name the arms of a union."""
    path: list[str] = []
    holder: type[BaseModel] | None = None
    field: FieldInfo | None = None
    kind: Any = options
    for at, part in enumerate(loc):
        arms = _arms(kind)
        if len(arms) > 1:
            meant = [arm for arm in arms if part in (getattr(_bare(arm), "__name__", None), _tag(arm))]
            kind = meant[0] if meant and at + 1 < len(loc) else kind  # the problem is inside of it, or it is the union
            continue
        here = _bare(arms[0]) if arms else kind
        if _is_section(here):
            holder, field = here, here.model_fields.get(str(part))
            kind = None if field is None else field.annotation
        elif get_origin(here) in (tuple, list, dict) and part != "[key]":
            kind = get_args(here)[1 if get_origin(here) is dict else 0]
        else:
            break
        path.append(str(part))
    return path, holder, field, kind


def _bare(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _tag(kind: Any) -> str | None:
    notes = get_args(kind)[1:] if get_origin(kind) is Annotated else ()
    return next((note.tag for note in notes if isinstance(note, Tag)), None)


def _arms(kind: Any) -> list[Any]:
    """Return the kinds of value that an option takes, apart from none."""
    bare = _bare(kind)
    return [arm for arm in get_args(bare) if arm is not NoneType] if get_origin(bare) in (Union, UnionType) else [kind]


def describe_kind(kind: Any) -> str:
    """Say what an option takes: 'a whole number', "'full' or 'none'", 'a list'."""
    words = [_word(_bare(arm)) for arm in _arms(kind)]
    return " or ".join(dict.fromkeys(words))


def _word(kind: Any) -> str:
    origin = get_origin(kind)
    if origin is Literal:
        names = [show_value(name) for name in get_args(kind)]
        return " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    if origin in (tuple, list):
        return _MANY.get(get_args(kind)[0], "a list")
    if origin is dict or _is_section(kind):
        return "a group of options"
    return _WORDS.get(kind, "another kind of value")


def _advice(option: str, field: FieldInfo | None, kind: Any, seen: Any) -> str:
    """Say what to write instead: the nearest name, the value as a list, an option of the section."""
    arms = [_bare(arm) for arm in _arms(kind)]
    names = [name for arm in arms if get_origin(arm) is Literal for name in get_args(arm) if isinstance(name, str)]
    close = get_close_matches(str(seen).lower(), names, n=1, cutoff=0.6)
    if close:
        return f"Did you mean '{close[0]}'?"
    if any(get_origin(arm) in (tuple, list) and type(seen) is get_args(arm)[0] for arm in arms):
        return f"Write [{seen}]."
    if isinstance(seen, dict) and seen and any(get_origin(arm) in (tuple, list) for arm in arms):
        inner = next(iter(seen))
        return f"Write {option}=[{{...}}]; then {option}.0.{inner} is an option of its first entry."
    for arm in arms:
        if _is_section(arm):
            name, _, value = seen.replace(":", " ", 1).partition(" ") if isinstance(seen, str) else ("", "", "")
            if name in arm.model_fields and value:  # a colon or the space behind it was forgotten
                return f"Did you mean '{name}: {value.strip()}'?"
            needed = [name for name, inner in arm.model_fields.items() if inner.is_required()]
            if len(needed) == 1:
                return _describe_option(f"{option}.{needed[0]}", arm.model_fields[needed[0]])
            inner = [name for name, one in arm.model_fields.items() if seen in _choices(one.annotation)]
            if len(inner) == 1 and isinstance(seen, str):
                return f"Did you mean {option}.{inner[0]}={seen}?"
            known = f"Its options are {', '.join(needed or arm.model_fields)}."
            if needed or not isinstance(seen, bool):
                return known
            wanted = "{} for its defaults" if seen else "null to leave it out"
            return f"Write {option}={wanted}, or set {option}.OPTION. {known}"
    return _meaning(field)


def _choices(kind: Any) -> list[Any]:
    """Return the names among which an option chooses, if it does."""
    return [name for arm in _arms(kind) if get_origin(_bare(arm)) is Literal for name in get_args(_bare(arm))]


def _meaning(field: FieldInfo | None) -> str:
    return f"Meaning: {field.description}." if field is not None and field.description else ""


def _describe_option(option: str, field: FieldInfo | None) -> str:
    return f"Set {option}: {field.description}." if field is not None and field.description else f"Set {option}."


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def show_value(value: Any) -> str:
    """Return a value as it would be written in YAML, shortened where it is long."""
    if isinstance(value, str):
        text = f"'{value}'"
    elif value is None:
        text = "nothing"
    elif isinstance(value, Mapping | list | tuple | bool):
        text = json.dumps(value, default=str, ensure_ascii=False)
    else:
        text = str(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
