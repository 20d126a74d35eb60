"""Recommendations with reasons; "I did this" and "not for me"."""

from __future__ import annotations

import time
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tacit.device.history import Entry
from tacit.errors import MethodError
from tacit.web.person import Person, Thing, Undo, doing

SHOWN = 12


@dataclass(frozen=True)
class Pick:
    """One recommendation."""

    thing: Thing
    why: str


def routes(person: Person) -> list[Route]:
    """Return the page of recommendations and its forms."""

    def picks() -> list[Pick] | str:
        shelf = person.shelf
        if shelf is None:
            return "join"
        if not person.history:
            return "history"
        try:
            found = person.device.recommend(SHOWN)
        except MethodError:
            return "model"
        return [Pick(shelf.thing(one.item), one.why[:1].upper() + one.why[1:]) for one in found]

    async def page(request: Request) -> Response:
        return person.shown("for_you.html", "for-you", "For you", picks=person.kept("picks", picks))

    def hide(form: dict[str, str]) -> str:
        item = person.label(form.get("item", ""))
        person.device.hide(item)
        person.say(
            f"“{_title(person, form)}” will not be suggested again. Later you can undo that under History.",
            Undo("/history/unhide", item, "for-you"),
        )
        return "/"

    def did(form: dict[str, str]) -> str:
        person.device.history.add([Entry(person.label(form.get("item", "")), int(time.time()))], person.device.catalog)
        person.say(f"“{_title(person, form)}” is in your history.")
        return "/"

    def happen(form: dict[str, str]) -> str:
        if person.neighbours is not None:
            before = len(person.device.ledger.list())
            person.neighbours.round()
            took_part = len(person.device.ledger.list()) > before
            person.say(
                "A round happened, and you took part. Sent shows what left."
                if took_part
                else "A round happened without you, as you decided: nothing left this device."
            )
        return "/sent" if form.get("from") == "sent" else "/"

    return [
        Route("/", page),
        Route("/hide", doing(hide), methods=["POST"]),
        Route("/did", doing(did), methods=["POST"]),
        Route("/round", doing(happen), methods=["POST"]),
    ]


def _title(person: Person, form: dict[str, str]) -> str:
    shelf = person.shelf
    label = person.label(form.get("item", ""))
    return shelf.thing(label).title if shelf is not None else str(label)
