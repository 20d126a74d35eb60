"""Secrets and titles for commands, without the command line, which other users and the shell's history can read."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import typer

from tacit.errors import DataError, DeviceError


def read_secret(
    what: str, variable: str, file: Path | None = None, descriptor: int | None = None, *, confirm: bool = False
) -> str:
    """Return a secret: the first line of a file or of an open descriptor, an environment variable, or a prompt."""
    try:
        if descriptor is not None:
            with os.fdopen(os.dup(descriptor), encoding="utf-8") as opened:
                return opened.readline().rstrip("\n")
        if file is not None:
            return file.read_text(encoding="utf-8").partition("\n")[0]
    except (OSError, UnicodeDecodeError) as error:
        source = f"'{file}'" if descriptor is None else f"File descriptor {descriptor}"
        raise DeviceError(f"{source} cannot be read: {error}.", "Give a text file.") from None
    given = os.environ.get(variable)
    if given is not None:
        return given
    if not sys.stdin.isatty():
        raise DeviceError(
            f"The {what.partition(' (')[0].lower()} is missing, and there is no terminal to ask for it.",
            f"Set {variable} or give a file: see --help.",
        )
    return str(typer.prompt(what, hide_input=True, confirmation_prompt=confirm, err=True))


def read_names(file: Path | None) -> list[str]:
    """Return the lines of a file, or of standard input for -, without empty ones."""
    if file is None:
        return []
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"'{file}' cannot be read: {error}.", "Give a text file in UTF-8, one name a line.") from None
    return [line.strip() for line in text.splitlines() if line.strip()]
