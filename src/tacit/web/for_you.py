"""Recommendations with reasons; "I did this" and "not for me"."""

from __future__ import annotations

import time
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tacit.errors import MethodError
from tacit.field.device.history import HistoryEntry
from tacit.web.device_view import DeviceView, ItemView, Undo, form_handler

SHOWN = 12


@dataclass(frozen=True)
class RecommendedItem:
    """One recommendation."""

    thing: ItemView
    why: str


def routes(view: DeviceView) -> list[Route]:
    """Return the page of recommendations and its forms."""

    def picks() -> list[RecommendedItem] | str:
        shelf = view.shelf
        if shelf is None:
            return "join"
        if not view.history:
            return "history"
        try:
            found = view.device.recommend(SHOWN)
        except MethodError:
            return "model"
        return [RecommendedItem(shelf.thing(one.item), one.why[:1].upper() + one.why[1:]) for one in found]

    async def page(request: Request) -> Response:
        return view.page_response("for_you.html", "for-you", "For you", picks=view.cached("picks", picks))

    def hide(form: dict[str, str]) -> str:
        item = view.label(form.get("item", ""))
        view.device.hide(item)
        view.say(
            "“{title}” will not be suggested again. You can undo this later under History.",
            Undo("/history/unhide", item, "for-you"),
            title=_title(view, form),
        )
        return "/"

    def did(form: dict[str, str]) -> str:
        view.device.history.add([HistoryEntry(view.label(form.get("item", "")), int(time.time()))], view.device.catalog)
        view.say("“{title}” is in your history.", title=_title(view, form))
        return "/"

    def happen(form: dict[str, str]) -> str:
        if view.neighbours is not None:
            before = len(view.device.ledger.list())
            view.neighbours.round()
            took_part = len(view.device.ledger.list()) > before
            view.say(
                "You have learnt once with the others. The page Sent shows what was sent."
                if took_part
                else "The others have learnt without you, as you decided: this device sent nothing."
            )
        return "/sent" if form.get("from") == "sent" else "/"

    return [
        Route("/", page),
        Route("/hide", form_handler(hide), methods=["POST"]),
        Route("/did", form_handler(did), methods=["POST"]),
        Route("/round", form_handler(happen), methods=["POST"]),
    ]


def _title(view: DeviceView, form: dict[str, str]) -> str:
    shelf = view.shelf
    label = view.label(form.get("item", ""))
    return shelf.thing(label).title if shelf is not None else str(label)
