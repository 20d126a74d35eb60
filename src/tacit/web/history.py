"""Her history: search and add, remove, import, and what is hidden."""

from __future__ import annotations

import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tacit.device.alike import plainly
from tacit.device.history import Entry, Imported
from tacit.errors import BadRowsError, ConsentError, DataError
from tacit.web.frame import back
from tacit.web.person import MOST_UPLOAD, Leaf, Person, Shelf, doing, uploaded

PAGE, FOUND, MISSED = 50, 8, 200
NEAR = 4  # things that are offered where nothing is called so


def routes(person: Person) -> list[Route]:
    """Return the page of her history and its forms."""
    last: dict[str, Any] = {}  # what the last import understood

    async def page(request: Request) -> Response:
        asked = request.query_params
        look, mine, shelf = asked.get("q", "")[:200], asked.get("mine", "")[:200], person.shelf
        found, total = shelf.search(look, FOUND) if shelf is not None else ([], 0)
        near = shelf.near(look, NEAR) if shelf is not None and len(look.strip()) > 2 and not found else []
        has = person.kept("has", lambda: {entry.item for entry in person.history})
        rows = _found(person.history, plainly(mine), shelf)
        leaf = Leaf.of(rows, asked.get("page", "1"), PAGE)
        sharing = person.device.sharing
        return person.shown(
            "history.html",
            "history",
            "History",
            q=look,
            mine=mine,
            found=found or near,
            is_near=bool(near),
            found_total=total,
            has=has,
            leaf=leaf,
            listed=[(entry, None if shelf is None else shelf.thing(entry.item)) for entry in leaf.rows],
            total=len(person.history),
            never=set(sharing.never_items),
            hidden=[shelf.thing(item) for item in person.device.hidden] if shelf is not None else [],
            most=MOST_UPLOAD,
            is_member=shelf is not None,
        )

    def add(form: dict[str, str]) -> str:
        item = person.label(form.get("item", ""))
        person.device.history.add([Entry(item, int(time.time()))], person.device.catalog)
        person.say(f"Added “{_called(person, item)}”.")
        return "/history"

    def remove(form: dict[str, str]) -> str:
        item = person.device.history.remove(person.label(form.get("item", "")), None)
        person.say(f"Removed “{_called(person, item)}”. What was sent about it before stays sent.")
        return "/history"

    def unhide(form: dict[str, str]) -> str:
        item = person.label(form.get("item", ""))
        person.device.unhide(item)
        person.say(f"“{_called(person, item)}” may be suggested again.")
        return "/" if form.get("from") == "for-you" else "/history"

    async def bring(request: Request) -> Response:
        _, name, content = await uploaded(request)
        if person.shelf is None:
            raise ConsentError("There is no catalogue yet to compare a file with.", "Join a federation first.")
        if not name:
            raise DataError("No file was chosen.", "Choose one and try again.")
        last.clear()
        try:
            done = person.device.history.import_bytes(content, name, person.device.catalog)
            last.update(name=name, done=done)
        except BadRowsError as error:
            last.update(name=name, bad=error, content=content)  # until she says whether to go on without those rows
        return back("/history/imported")

    def bring_rest(form: dict[str, str]) -> str:
        if "content" not in last:
            return "/history"
        content, name = last.pop("content"), last["name"]
        done = person.device.history.import_bytes(content, name, person.device.catalog, skip_bad=True)
        last.clear()
        last.update(name=name, done=done)
        return "/history/imported"

    async def imported(request: Request) -> Response:
        if not last:
            return back("/history")
        if "content" in last:
            return person.shown("damaged.html", "history", "Import", file=last["name"], bad=last["bad"], most=MISSED)
        done: Imported = last["done"]
        return person.shown("imported.html", "history", "Import", file=last["name"], done=done, most=MISSED)

    return [
        Route("/history", page),
        Route("/history/add", doing(add), methods=["POST"]),
        Route("/history/remove", doing(remove), methods=["POST"]),
        Route("/history/unhide", doing(unhide), methods=["POST"]),
        Route("/history/import", bring, methods=["POST"]),
        Route("/history/import/rest", doing(bring_rest), methods=["POST"]),
        Route("/history/imported", imported),
    ]


def _found(history: list[Entry], text: str, shelf: Shelf | None) -> list[Entry]:
    """Return what is called so, or everything if nothing is asked for."""
    if not text:
        return history
    titles = (plainly(str(entry.item)) if shelf is None else shelf.searched(entry.item) for entry in history)
    return [entry for entry, title in zip(history, titles, strict=True) if text in title]


def _called(person: Person, label: Any) -> str:
    shelf = person.shelf
    return str(label) if shelf is None else shelf.thing(label).title
