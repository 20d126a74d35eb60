"""The user's history: search and add, remove, import, hidden items."""

from __future__ import annotations

import time
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tacit.errors import ConsentError, DataError
from tacit.field.device.history import HistoryEntry
from tacit.field.device.import_dates import DateOrderError
from tacit.field.device.import_files import ProfileError
from tacit.field.device.import_lines import ImportChoices
from tacit.field.device.import_preview import read_preview
from tacit.field.device.similar_names import normalise_text
from tacit.web.device_view import MOST_UPLOAD, NUMBER, CatalogIndex, DeviceView, RowsPage, form_handler, read_upload
from tacit.web.frame import redirect_back

PAGE, FOUND, MISSED = 50, 8, 200
NEAR = 4  # things that are offered where nothing is called so


def routes(view: DeviceView) -> list[Route]:
    """Return the page of the user's history and its forms."""
    last: dict[str, Any] = {}  # the file that was chosen: its preview or a question about it; then what was done

    async def page(request: Request) -> Response:
        asked = request.query_params
        query, mine, shelf = asked.get("q", "")[:200], asked.get("mine", "")[:200], view.shelf
        found, total = shelf.search(query, FOUND) if shelf is not None else ([], 0)
        near = shelf.near(query, NEAR) if shelf is not None and len(query.strip()) > 2 and not found else []
        has = view.cache("has", lambda: {entry.item for entry in view.history})
        rows = _find(view.history, normalise_text(mine), shelf)
        leaf = RowsPage.of(rows, asked.get("page", "1"), PAGE)
        sharing = view.device.sharing
        return view.page_response(
            "history.html",
            "history",
            "History",
            q=query,
            mine=mine,
            found=found or near,
            is_near=bool(near),
            found_total=total,
            has=has,
            leaf=leaf,
            listed=[(entry, None if shelf is None else shelf.thing(entry.item)) for entry in leaf.rows],
            total=len(view.history),
            never=set(sharing.never_items),
            hidden=[shelf.thing(item) for item in view.device.preferences.hidden] if shelf is not None else [],
            most=MOST_UPLOAD,
            is_member=shelf is not None,
            undoable=view.device.history.last_import,
        )

    def add(form: dict[str, str]) -> str:
        item = view.label(form.get("item", ""))
        view.device.history.add([HistoryEntry(item, int(time.time()))], view.device.catalog)
        view.say("Added “{title}”.", title=_name_of(view, item))
        return "/history"

    def remove(form: dict[str, str]) -> str:
        item = view.device.history.remove(view.label(form.get("item", "")), None)
        view.say("Removed “{title}”. What was sent about it before stays sent.", title=_name_of(view, item))
        return "/history"

    def unhide(form: dict[str, str]) -> str:
        item = view.label(form.get("item", ""))
        view.device.preferences.unhide(item)
        view.say("“{title}” may be suggested again.", title=_name_of(view, item))
        return "/" if form.get("from") == "for-you" else "/history"

    async def read(content: bytes, name: str, choices: ImportChoices) -> Response:
        """Read a file in a thread, so that other pages answer meanwhile; a question about it is stored for the user."""
        last.clear()
        last.update(name=name, content=content, choices=choices)
        try:
            last["preview"] = await run_in_threadpool(read_preview, content, name, view.device.catalog, choices)
        except (DateOrderError, ProfileError) as error:
            last["question"] = error
        except DataError:
            last.clear()
            raise
        return redirect_back("/history/imported")

    async def bring(request: Request) -> Response:
        _, name, content = await read_upload(request)
        if view.shelf is None:
            raise ConsentError("There is no catalogue yet, which an import needs.", "Join a group first.")
        if not name:
            raise DataError("No file was chosen.", "Choose one and try again.")
        return await read(content, name, ImportChoices())

    async def read_again(request: Request) -> Response:
        form = await request.form()
        if "content" not in last:
            return redirect_back("/history")
        given = {name: str(value) for name, value in form.items()}
        return await read(last["content"], last["name"], _choices(given, last["choices"]))

    async def add_read(request: Request) -> Response:
        form = await request.form()
        if last.get("preview") is None:
            return redirect_back("/history")
        accepted = {int(str(at)) for at in form.getlist("doubtful") if NUMBER.fullmatch(str(at))}
        name, preview = last["name"], last["preview"]
        done = view.device.history.add_import(preview, accepted)
        last.clear()
        last.update(name=name, done=done)
        return redirect_back("/history/imported")

    def undo(form: dict[str, str]) -> str:
        changed = view.device.history.undo_import()
        last.clear()
        view.say("The import was undone: {n} rows. What was sent about them before stays sent.", n=changed)
        return "/history"

    async def imported(request: Request) -> Response:
        if not last:
            return redirect_back("/history")
        template = "imported.html" if "done" in last else "question.html" if "question" in last else "preview.html"
        return view.page_response(template, "history", "Import", most=MISSED, catalog=view.device.catalog, **last)

    return [
        Route("/history", page),
        Route("/history/add", form_handler(add), methods=["POST"]),
        Route("/history/remove", form_handler(remove), methods=["POST"]),
        Route("/history/unhide", form_handler(unhide), methods=["POST"]),
        Route("/history/import", bring, methods=["POST"]),
        Route("/history/import/again", read_again, methods=["POST"]),
        Route("/history/import/add", add_read, methods=["POST"]),
        Route("/history/import/undo", form_handler(undo), methods=["POST"]),
        Route("/history/imported", imported),
    ]


def _find(history: list[HistoryEntry], text: str, shelf: CatalogIndex | None) -> list[HistoryEntry]:
    """Return the entries that match a search, or all entries without one."""
    if not text:
        return history
    titles = (normalise_text(str(entry.item)) if shelf is None else shelf.normalise(entry.item) for entry in history)
    return [entry for entry, title in zip(history, titles, strict=True) if text in title]


def _name_of(view: DeviceView, label: Any) -> str:
    shelf = view.shelf
    return str(label) if shelf is None else shelf.thing(label).title


def _choices(given: dict[str, str], before: ImportChoices) -> ImportChoices:
    """Return what the user says about a file, from a form; what the form does not ask stays as it was."""
    try:
        likes_from = float(given.get("likes_from", before.likes_from))
    except ValueError:
        likes_from = -1.0
    if not 0 <= likes_from <= 5:
        raise DataError("The least number of stars is between 0 and 5.", "Go back and write another.")
    dates = given.get("dates", before.dates)
    asked = "likes_from" in given
    return ImportChoices(
        dates if dates in ("day-first", "month-first") else "",  # type: ignore[arg-type]
        given.get("ids") == "yes" if asked else before.ids,
        likes_from,
        before.scale,
        given.get("profile", before.profile),
    )
