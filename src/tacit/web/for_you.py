"""Recommendations with reasons; "I did this" and "not for me"; interests of a user without a history."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tacit.errors import MethodError
from tacit.field.device.history import HistoryEntry
from tacit.serving.lists import Recommendation
from tacit.web.device_view import DeviceView, ItemView, Undo, form_handler

SHOWN = 12
OFFERED, FOUND = 40, 8  # categories to choose from; titles that a search shows


@dataclass(frozen=True)
class RecommendedItem:
    """One recommendation."""

    thing: ItemView
    why: str


def routes(view: DeviceView) -> list[Route]:
    """Return the page of recommendations and its forms."""

    def suggests_alone() -> bool:
        return view.network is None and view.device.suggests_alone

    def picks() -> list[RecommendedItem] | str:
        shelf = view.shelf
        if shelf is None:
            return "join"
        if (
            not view.history
            and not suggests_alone()
            and (view.network is not None or not view.device.preferences.interests)
        ):
            return "history"
        try:
            found = view.device.recommend(SHOWN) if view.network is None else recommend_among_peers(view)
        except MethodError:
            return "model"
        return [RecommendedItem(shelf.thing(one.item), one.why[:1].upper() + one.why[1:]) for one in found]

    async def page(request: Request) -> Response:
        asked = request.query_params.get("q", "")[:200]
        return view.page_response(
            "for_you.html",
            "for-you",
            "For you",
            picks=view.cache("picks", picks),
            start=_start(view, asked),
            alone=suggests_alone(),
        )

    def choose(form: dict[str, str]) -> str:
        """Replace the chosen categories, and keep the chosen titles."""
        _keep(view, [name for name in form.get("category[]", "").split("\n") if name], _titles(view))
        return "/"

    def add(form: dict[str, str]) -> str:
        _keep(view, _categories(view), [*_titles(view), str(view.label(form.get("item", "")))])
        return "/"

    def clear(form: dict[str, str]) -> str:
        _keep(view, [], [])
        return "/"

    def hide(form: dict[str, str]) -> str:
        item = view.label(form.get("item", ""))
        view.device.preferences.hide(item)
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
        Route("/interests", form_handler(choose), methods=["POST"]),
        Route("/interests/add", form_handler(add), methods=["POST"]),
        Route("/interests/clear", form_handler(clear), methods=["POST"]),
    ]


@dataclass(frozen=True)
class StartView:
    """What a user without a history can choose from, and has chosen."""

    categories: list[tuple[str, bool]]  # the most frequent ones, and whether each is chosen
    titles: list[ItemView]  # chosen
    q: str
    found: list[ItemView]


def _start(view: DeviceView, asked: str) -> StartView | None:
    """Return the choice of interests; none where there is a history, or no catalogue."""
    shelf = view.shelf
    if shelf is None or view.history:
        return None
    labels, chosen = shelf.catalog.categories, view.device.preferences.interests
    names: list[str] = []
    if labels is not None:
        counts = Counter(labels.ids.tolist())
        names = [labels.names[at] for at, _ in counts.most_common(OFFERED)]
    names += [name for name in chosen.categories if name not in names]
    found = (shelf.search(asked, FOUND)[0] or shelf.near(asked, FOUND)) if asked else []
    titles = [shelf.thing(item) for item in chosen.items]
    return StartView([(name, name in chosen.categories) for name in sorted(names)], titles, asked, found)


def _categories(view: DeviceView) -> list[str]:
    return list(view.device.preferences.interests.categories)


def _titles(view: DeviceView) -> list[str]:
    return [str(item) for item in view.device.preferences.interests.items]


def _keep(view: DeviceView, categories: list[str], titles: list[str]) -> None:
    """Store interests, and say what that means."""
    found = view.device.preferences.choose_interests([*categories, *titles])
    view.say(
        "Suggestions now begin with your interests. They stay on this device, and nothing is learnt from them."
        if found
        else "You have chosen no interests."
    )


def recommend_among_peers(view: DeviceView) -> list[Recommendation]:
    """Return recommendations from the model of this peer."""
    from tacit.field.peer.peer_status import recommend_from_peer

    return recommend_from_peer(view.device, SHOWN)


def _title(view: DeviceView, form: dict[str, str]) -> str:
    shelf = view.shelf
    label = view.label(form.get("item", ""))
    return shelf.thing(label).title if shelf is not None else str(label)
