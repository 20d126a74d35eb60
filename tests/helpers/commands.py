"""Commands run in this process, as a user types them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tacit.cli import main

Command = Callable[..., tuple[int, str, str]]


def run_command(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Run a command to its end; return its exit number, and what it printed on both channels."""
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out, printed.err


def device_document(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    """Run a command of the device with --json; return its document, which holds an error where it failed."""
    code, out, _ = run_command(capsys, "device", *words, "--json")
    document = json.loads(out)
    assert (code == 0) == ("error" not in document)
    return document
