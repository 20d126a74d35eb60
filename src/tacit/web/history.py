"""The user's history: search and add, remove, import, hidden items."""

from __future__ import annotations

import time
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tacit.errors import BadRowsError, ConsentError, DataError
from tacit.field.device.history import HistoryEntry, ImportResult, read_import
from tacit.field.device.similar_names import normalise_text
from tacit.web.device_view import MOST_UPLOAD, CatalogIndex, DeviceView, RowsPage, form_handler, read_upload
from tacit.web.frame import redirect_back

PAGE, FOUND, MISSED = 50, 8, 200
NEAR = 4  # things that are offered where nothing is called so


def routes(view: DeviceView) -> list[Route]:
    """Return the page of the user's history and its forms."""
    last: dict[str, Any] = {}  # what the last import understood

    async def page(request: Request) -> Response:
        asked = request.query_params
        query, mine, shelf = asked.get("q", "")[:200], asked.get("mine", "")[:200], view.shelf
        found, total = shelf.search(query, FOUND) if shelf is not None else ([], 0)
        near = shelf.near(query, NEAR) if shelf is not None and len(query.strip()) > 2 and not found else []
        has = view.cached("has", lambda: {entry.item for entry in view.history})
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
            hidden=[shelf.thing(item) for item in view.device.hidden] if shelf is not None else [],
            most=MOST_UPLOAD,
            is_member=shelf is not None,
        )

    def add(form: dict[str, str]) -> str:
        item = view.label(form.get("item", ""))
        view.device.history.add([HistoryEntry(item, int(time.time()))], view.device.catalog)
        view.say(f"Added “{_name_of(view, item)}”.")
        return "/history"

    def remove(form: dict[str, str]) -> str:
        item = view.device.history.remove(view.label(form.get("item", "")), None)
        view.say(f"Removed “{_name_of(view, item)}”. What was sent about it before stays sent.")
        return "/history"

    def unhide(form: dict[str, str]) -> str:
        item = view.label(form.get("item", ""))
        view.device.unhide(item)
        view.say(f"“{_name_of(view, item)}” may be suggested again.")
        return "/" if form.get("from") == "for-you" else "/history"

    async def bring(request: Request) -> Response:
        _, name, content = await read_upload(request)
        if view.shelf is None:
            raise ConsentError("There is no catalogue yet, which an import needs.", "Join a federation first.")
        if not name:
            raise DataError("No file was chosen.", "Choose one and try again.")
        last.clear()
        try:  # in a thread, so that other pages answer meanwhile; what is stored is stored here
            read = await run_in_threadpool(read_import, content, name, view.device.catalog)
            last.update(name=name, done=view.device.history.add_import(*read))
        except BadRowsError as error:
            last.update(name=name, bad=error, content=content)  # until the user decides about those rows
        return redirect_back("/history/imported")

    def bring_rest(form: dict[str, str]) -> str:
        if "content" not in last:
            return "/history"
        content, name = last.pop("content"), last["name"]
        done = view.device.history.import_bytes(content, name, view.device.catalog, skip_bad=True)
        last.clear()
        last.update(name=name, done=done)
        return "/history/imported"

    async def imported(request: Request) -> Response:
        if not last:
            return redirect_back("/history")
        if "content" in last:
            return view.page_response(
                "damaged.html", "history", "Import", file=last["name"], bad=last["bad"], most=MISSED
            )
        done: ImportResult = last["done"]
        return view.page_response("imported.html", "history", "Import", file=last["name"], done=done, most=MISSED)

    return [
        Route("/history", page),
        Route("/history/add", form_handler(add), methods=["POST"]),
        Route("/history/remove", form_handler(remove), methods=["POST"]),
        Route("/history/unhide", form_handler(unhide), methods=["POST"]),
        Route("/history/import", bring, methods=["POST"]),
        Route("/history/import/rest", form_handler(bring_rest), methods=["POST"]),
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
