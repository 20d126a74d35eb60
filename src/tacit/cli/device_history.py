"""`tacit device history ...`: the history on the user's device."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from tacit.cli import app as shell
from tacit.cli.app import Json
from tacit.cli.device import device_app, open_device
from tacit.cli.secret_input import read_names
from tacit.errors import BadRowsError, DataError

history_app = typer.Typer(no_args_is_help=True, help="Your history. It never leaves this device.")
device_app.add_typer(history_app, name="history")


@history_app.command("add", epilog='Example: tacit device history add "Café Luna" 17')
def history_add(
    items: Annotated[list[str] | None, typer.Argument(help="Ids or titles.")] = None,
    names_from: Annotated[
        Path | None, typer.Option("--from", help="A file with ids or titles, one a line; -: standard input.")
    ] = None,
    when: Annotated[datetime | None, typer.Option(help="Time of the interaction (UTC); default: now.")] = None,
    as_json: Json = False,
) -> None:
    """Add items to your history."""
    from tacit.field.device.history import HistoryEntry

    named = [*(items or ()), *read_names(names_from)]
    if not named:
        raise DataError("Nothing was named.", "Give ids or titles, or --from FILE; - is standard input.")
    moment = int((when or datetime.now(UTC)).replace(tzinfo=UTC).timestamp())
    with open_device() as device:
        new = device.history.add([HistoryEntry(item, moment) for item in named], device.catalog)
        total = len(device.history)
    shell.screen.document({"added": new, "history": total})
    shell.screen.say(f"Added {new}; your history has {total} items.")
    if new < len(set(named)):
        shell.screen.say(f"Items that were already there now have the time {_day(moment)} UTC.")


@history_app.command("remove", epilog='Example: tacit device history remove "Café Luna"')
def history_remove(
    item: Annotated[str, typer.Argument(help="An id or a title; -: one line of standard input.")],
    as_json: Json = False,
) -> None:
    """Remove an item from your history. What was sent about it before stays sent."""
    named = (read_names(Path("-")) or [""])[0] if item == "-" else item
    with open_device() as device:
        removed = device.history.remove(named, device.catalog)
        total = len(device.history)
    shell.screen.document({"removed": removed, "history": total})
    shell.screen.say(f"Removed; your history has {total} items.")


@history_app.command("import", epilog="Example: tacit device history import watched.csv")
def history_import(
    file: Annotated[Path, typer.Argument(help="A CSV table, a Letterboxd export or Google Takeout.")],
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Skip damaged rows and add the others.")] = False,
    as_json: Json = False,
) -> None:
    """Add items from a file, and list the rows that were not understood."""
    with open_device() as device:
        try:
            done = device.history.import_file(file, device.catalog, skip_bad=skip_bad)
        except BadRowsError as error:
            _show_skipped_rows("cannot be read", error.rows)
            raise
    missed = [{"line": line, "text": text, "why": why} for line, text, why in done.not_understood]
    shell.screen.document({"added": done.added, "known_already": done.known_already, "not_understood": missed})
    shell.screen.say(f"Added {done.added} items; {done.known_already} were already in your history.")
    if missed:
        _show_skipped_rows("were not understood" if len(missed) > 1 else "was not understood", done.not_understood)
    if missed and not done.added and not done.known_already:
        shell.screen.say(
            "No row was understood. A table needs a column 'item' or 'title'; put a title with a comma in quotes."
        )
        raise typer.Exit(DataError.exit_code)


@history_app.command("list", epilog="Example: tacit device history list")
def history_list(as_json: Json = False) -> None:
    """Show your history."""
    with open_device() as device:
        entries, member = device.history.list(), device.membership
    titles = {} if member is None else {member.catalog.item_ids[i]: i for i in range(member.catalog.n_items)}
    rows = []
    for entry in entries:
        known = member is not None and entry.item in titles
        title = member.catalog.title(titles[entry.item]) if known and member is not None else "not in the catalogue"
        rows.append((entry.item, title, "" if entry.when is None else _day(entry.when)))
    shell.screen.document({"history": [{"item": item, "title": title, "when": when} for item, title, when in rows]})
    shell.screen.table("", ["item", "title", "when"], [[str(cell) for cell in row] for row in rows])


def _show_skipped_rows(what: str, rows: list[tuple[int, str, str]]) -> None:
    """Show the rows of a file that were skipped, and why."""
    title = f"{len(rows)} row{'s' if len(rows) > 1 else ''} {what}"
    shell.screen.table(title, ["line", "text", "why"], [[str(line), text, why] for line, text, why in rows[:50]])


def _day(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")
