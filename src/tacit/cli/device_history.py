"""`tacit device history ...`: the history on the user's device."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli import app as shell
from tacit.cli.app import Json
from tacit.cli.device import device_app, open_device
from tacit.cli.secret_input import read_names
from tacit.errors import DataError

if TYPE_CHECKING:
    from tacit.field.device.import_preview import ImportPreview
    from tacit.types import Catalog

SHOWN = 50  # rows of a table
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


@history_app.command("import", epilog="Example: tacit device history import watched.csv --yes")
def history_import(
    file: Annotated[Path, typer.Argument(help="A table, a list of titles, or an export of a service; also as ZIP.")],
    yes: Annotated[bool, typer.Option("--yes", help="Add what is certain, without a question.")] = False,
    doubtful: Annotated[bool, typer.Option("--doubtful", help="Also add all rows that are doubtful.")] = False,
    likes_from: Annotated[
        float, typer.Option(min=0, max=5, help="Stars of five; what you rated lower is not added.")
    ] = 3.0,
    facts: Annotated[
        list[str] | None,
        typer.Option(
            "--with", help="dates=day-first or month-first, ids=yes (of this catalogue), scale=10, profile=Ann."
        ),
    ] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Skip damaged rows and add the others.")] = False,
    as_json: Json = False,
) -> None:
    """Show what a file would add to your history, then add it. `history undo` takes it back."""
    from tacit.field.device.import_lines import ImportChoices
    from tacit.field.device.import_preview import read_preview_file

    choices = ImportChoices.read(facts or (), likes_from)
    with open_device() as device:
        preview = read_preview_file(file, device.catalog, choices)
        _show_preview(preview, device.catalog)
        if preview.damaged and not skip_bad:
            raise preview.damage_error()
        accepted = range(len(preview.doubtful)) if doubtful else ()
        found = preview.entries(accepted)
        document = {"preview": preview.counts(), "added": 0, "known_already": 0}
        if not found:
            shell.screen.document(document | {"not_understood": _as_documents(preview.list_not_added())})
            shell.screen.say(
                "Nothing was added. A table needs a column 'title'; put a title with a comma in quotes."
                if len(preview.not_found) == preview.n_rows
                else "Nothing was added."
            )
            raise typer.Exit(DataError.exit_code)
        if not yes and not _confirm(len(found)):
            shell.screen.document(document | {"not_understood": _as_documents(preview.list_not_added(accepted))})
            shell.screen.say("Nothing was added. To add these items, repeat the command with --yes.")
            return
        done = device.history.add_import(preview, accepted)
    result = {"added": done.added, "known_already": done.known_already, "dated": done.dated}
    shell.screen.document(document | result | {"not_understood": _as_documents(done.not_understood)})
    shell.screen.say(f"Added {done.added} items; {done.known_already} were already in your history.")
    shell.screen.say("To take it back: tacit device history undo.")


@history_app.command("undo", epilog="Example: tacit device history undo")
def history_undo(as_json: Json = False) -> None:
    """Take the last import back. What was sent about it before stays sent."""
    with open_device() as device:
        changed = device.history.undo_import()
        total = len(device.history)
    shell.screen.document({"undone": changed, "history": total})
    shell.screen.say(f"Took back {changed} items; your history has {total} items.")


def _confirm(n_items: int) -> bool:
    """Ask before anything is added; without a terminal the answer is no."""
    if shell.screen.as_json or not sys.stdin.isatty():
        return False
    return typer.confirm(f"Add {n_items} items to your history?")


def _show_preview(preview: ImportPreview, catalog: Catalog) -> None:
    """Show what a file would add, and why the rest would not be."""
    counts = preview.counts()
    shell.screen.say(f"{counts['rows']} rows; {counts['certain']} items are certain. Nothing is added yet.")
    if preview.scale:
        shell.screen.say(
            f"Ratings go up to {preview.scale:g}. From {preview.likes_from * preview.scale / 5:g} on they count as "
            "something you did (--likes-from, in stars of five)."
        )
    if preview.certain:
        shown = preview.list_certain(catalog, SHOWN)
        title = f"certain, {len(shown)} of {len(preview.certain)}" if len(shown) < len(preview.certain) else "certain"
        days = ["" if entry.when is None else _day(entry.when) for _, entry in shown]
        shell.screen.table(title, ["item", "when"], [[title, day] for (title, _), day in zip(shown, days, strict=True)])
    doubtful = [one.row for one in preview.doubtful]
    for what, rows in (
        ("doubtful; add them with --doubtful", doubtful),
        ("rated lower, not added", preview.disliked),
        ("nothing that you did, not added", preview.left_out),
        ("cannot be read", preview.damaged),
        ("not found in the catalogue", preview.not_found),
    ):
        if rows:
            _show_skipped_rows(what, rows)


def _as_documents(rows: list[tuple[int, str, str]]) -> list[dict[str, object]]:
    return [{"line": line, "text": text, "why": why} for line, text, why in rows]


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
    title = f"{len(rows)} row{'s' if len(rows) > 1 else ''}: {what}"
    shell.screen.table(title, ["line", "text", "why"], [[str(line), text, why] for line, text, why in rows[:SHOWN]])


def _day(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")
