"""A class that is to be a method has all parts, and each part takes what it is handed, in this order."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature

from tacit.errors import ConfigError


def check_class(name: str, cls: type, kinds: Sequence[type]) -> None:
    """Refuse a class that is no whole method, and say which part is missing or takes other arguments."""
    base = next((kind for kind in kinds if issubclass(cls, kind)), None)
    if base is None:
        raise ConfigError(
            f"Method '{name}': {cls.__name__} is none of {', '.join(kind.__name__ for kind in kinds)}.",
            "Derive it from one of the three classes in tacit.methods.base.",
        )
    missing = sorted(getattr(cls, "__abstractmethods__", ()))
    if missing:
        raise ConfigError(f"Method '{name}': {cls.__name__} has no {', '.join(missing)}.", "Define what is missing.")
    for part in sorted(getattr(base, "__abstractmethods__", ())):
        _check_parameters(name, cls, part, base)
    if not (cls.__doc__ or "").strip():
        raise ConfigError(f"Method '{name}': {cls.__name__} has no docstring.", "Add one: lists show its first line.")


def _check_parameters(name: str, cls: type, part: str, base: type) -> None:
    """Refuse a part that takes its arguments in another order: they are handed over by their places."""
    wanted, seen = getattr(base, part), getattr(cls, part)
    if not callable(wanted) or not callable(seen):
        return
    expected, taken = list(signature(wanted).parameters), list(signature(seen).parameters)
    fits = not any(found in expected and found != here for found, here in zip(taken, expected, strict=False))
    try:
        signature(seen).bind(*expected)
    except TypeError:  # it needs more, or takes fewer
        fits = False
    if not fits:
        raise ConfigError(
            f"Method '{name}': {cls.__name__}.{part} takes ({', '.join(taken)}), not ({', '.join(expected)}).",
            "Take the arguments in this order.",
        )
