"""The output of a command: one JSON document or text, progress with time left, errors with hints."""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console

from tacit.errors import TacitError
from tacit.plain_text import strip_controls

if TYPE_CHECKING:
    from rich.progress import Progress

WIDE = 200  # columns of tables in a file or a pipe
QUIET_SECONDS = 2.0  # anything shorter needs no progress bar


class Screen:
    """Prints results to standard output, everything else to standard error; with `as_json` one document and no text."""

    def __init__(self, as_json: bool = False) -> None:
        self.as_json = as_json
        self.out = Console(soft_wrap=True, highlight=False)
        if not self.out.is_terminal and "COLUMNS" not in os.environ:
            self.out.width = WIDE
        self.err = Console(stderr=True, highlight=False)
        self._started = time.monotonic()
        self._bar: Progress | None = None
        self._task: Any = None
        self._what = ""
        self._printed = False  # the one document

    @property
    def width(self) -> int | None:
        """Columns of the terminal; none if the output goes into a file or a pipe."""
        return self.out.width if self.out.is_terminal else None

    def say(self, text: str = "") -> None:
        """Print a line of text, unless JSON was asked for."""
        if not self.as_json:
            self.out.print(strip_controls(text, keep_lines=True), markup=False)

    def document(self, value: Any) -> None:
        """Print the one JSON document of a command, if it was asked for."""
        if self.as_json and not self._printed:
            self._printed = True
            text = json.dumps(finite(value), ensure_ascii=False)  # it escapes C0; C1 steers some terminals, too
            text = re.sub("[\x7f-\x9f]", lambda found: f"\\u{ord(found[0]):04x}", text)
            print(text, flush=True)  # a page's address is read while it is served

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], notes: str = "") -> None:
        """Print a table: text aligned left, numbers aligned right."""
        if self.as_json:
            return
        from rich.table import Table
        from rich.text import Text

        table = Table(
            title=Text(title, style="table.title") if title else None,
            title_justify="left",
            caption=notes or None,
            caption_justify="left",
        )
        for i, column in enumerate(columns):
            is_number = all(row[i].replace(",", "").replace(".", "").lstrip("-").isdigit() for row in rows)
            table.add_column(Text(column), justify="right" if is_number else "left", no_wrap=i == 0, overflow="fold")
        for row in rows:
            table.add_row(
                *(Text(strip_controls(cell, keep_lines=True)) for cell in row)
            )  # verbatim: brackets in a title are not markup
        self.out.print(table)

    def progress(self, what: str, done: int, total: int) -> None:
        """Show how far a long job is, and the time left; nothing before two seconds or without a terminal."""
        if not self.err.is_terminal or self.as_json:
            return
        if self._bar is None:
            if time.monotonic() - self._started < QUIET_SECONDS:
                return
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                Progress,
                TextColumn,
                TimeElapsedColumn,
                TimeRemainingColumn,
            )

            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=30),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=self.err,
                transient=True,
            )
            self._bar.start()
        if what != self._what:  # a new task, because a task with a known total cannot become one without
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._task = self._bar.add_task(what, total=total or None)
            self._what = what
        self._bar.update(self._task, completed=done, total=total or None)

    def close(self) -> None:
        """Remove the progress bar."""
        if self._bar is not None:
            self._bar.stop()
            self._bar, self._task, self._what = None, None, ""

    def fail(self, error: TacitError) -> None:
        """Print an error and its hint: as the JSON document, or on standard error if that is printed already."""
        self.close()
        kind = type(error).__name__
        if self.as_json and not self._printed:
            self.refuse(kind, error.message, error.hint, error.code)
            return
        self.err.print(f"[bold red]{kind}[/]: ", end="")
        self.err.print(strip_controls(error.message, keep_lines=True), markup=False, soft_wrap=True)
        if error.hint:
            self.err.print(strip_controls(error.hint, keep_lines=True), markup=False, soft_wrap=True, style="dim")

    def refuse(self, kind: str, message: str, hint: str, code: object = None) -> None:
        """Print an error as the one JSON document."""
        about = {"kind": kind, "message": message, "hint": hint}
        self.document({"error": about if code is None else {**about, "code": str(code)}})


def finite(value: Any) -> Any:
    """Replace NaN and infinities by null, because JSON has neither."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(k): finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    return value
