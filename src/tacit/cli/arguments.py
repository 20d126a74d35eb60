"""Arguments of commands: checks of files and methods, options as one object, and the search for --json."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import click

T = TypeVar("T")


def check_exists(path: Path | None) -> Path | None:
    """Refuse a path that does not exist while arguments are parsed, before anything large is imported."""
    if path is not None:
        from tacit.strict_yaml import refuse_missing

        refuse_missing(path)
    return path


def check_method(name: str | None) -> str | None:
    """Refuse an unknown method, before anything large is imported."""
    if name is not None:
        from tacit.methods.registry import entry

        entry(name)
    return name


def takes(options: type[T]) -> Callable[[Callable[[T], None]], Callable[..., None]]:
    """Turn a function of one dataclass into a command: each field is an option, declared as typer parameters are."""

    def made(function: Callable[[T], None]) -> Callable[..., None]:
        def command(**given: Any) -> None:
            function(options(**given))

        hints = get_type_hints(options, include_extras=True)
        parameters = []
        for field in fields(options):  # type: ignore[arg-type]
            default = field.default if field.default_factory is MISSING else field.default_factory()
            default = inspect.Parameter.empty if default is MISSING else default  # an argument that must be given
            keyword = inspect.Parameter.KEYWORD_ONLY
            parameters.append(inspect.Parameter(field.name, keyword, default=default, annotation=hints[field.name]))
        command.__name__, command.__doc__ = function.__name__, function.__doc__
        command.__annotations__ = hints
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return command

    return made


def asks_for_json(command: click.Command, arguments: Sequence[str]) -> bool:
    """Return whether --json is among the options of a command.

    The command's own parser reads them, so a value or a title '--json' is not mistaken for the option.
    It ignores mistakes; the command reports them as JSON when it parses its arguments.
    """
    context = click.Context(
        command,
        resilient_parsing=True,
        ignore_unknown_options=True,
        allow_interspersed_args=command.allow_interspersed_args,
    )
    options, rest, _ = command.make_parser(context).parse_args(list(arguments))
    if not isinstance(command, click.Group):
        return bool(options.get("as_json"))
    if not rest:
        return False
    return asks_for_json(command.get_command(context, rest[0]) or _unknown(), rest[1:])


def _unknown() -> click.Command:
    """Return a stand-in for a command that does not exist; it knows only --json."""
    return click.Command("unknown", params=[click.Option(["--json", "as_json"], is_flag=True)])
