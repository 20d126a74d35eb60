"""The page of sharing: in words, with a slider, per category and per item, with measured quality and exposure."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tacit.errors import ConfigError
from tacit.field.device import Sharing
from tacit.field.device.limits import TimeLimits, is_on_mains
from tacit.field.device.metered import is_metered
from tacit.field.device.settings import LEVELS
from tacit.languages import translate
from tacit.types import ragged_rows
from tacit.web.budget import view_budget
from tacit.web.chart import BOX, chart
from tacit.web.device_view import DeviceView, form_handler
from tacit.web.frame import redirect_back

SAYINGS: list[tuple[float, str]] = [
    (0.0, "Nothing: no hint about what you did is sent."),
    (0.005, "A little: {pi} in 100 hints about what you did may be sent."),
    (0.25, "Some: {pi} in 100 hints about what you did may be sent."),
    (0.45, "About half: {pi} in 100 hints about what you did may be sent."),
    (0.6, "Most: {pi} in 100 hints about what you did may be sent."),
    (0.95, "Nearly all: {pi} in 100 hints about what you did may be sent."),
    (1.0, "All: every hint about what you did may be sent."),
]
BOXES = ("masked_only", "measure")  # check boxes of the form


def describe_pi(pi: float) -> str:
    """Return in words how much is shared."""
    words = [text for least, text in SAYINGS if pi >= least][-1]
    return translate(words, pi=f"{100 * pi:.0f}")


@cache
def load_curve(data: str) -> dict[str, Any]:
    """Return what was measured over pi on a dataset, and by which command."""
    found: dict[str, Any] = json.loads(files("tacit.web").joinpath("measured", f"{data}.json").read_text("utf-8"))
    return found


def between(curve: list[dict[str, Any]], pi: float, what: str, after: str = "") -> float:
    """Return a value at pi: measured, or interpolated linearly between two measured ones."""
    right = next(place for place, point in enumerate(curve) if place and point["pi"] >= pi)
    points = curve[right - 1 : right + 1]
    low, high = (float(point[what][after] if after else point[what]) for point in points)
    start, end = (float(point["pi"]) for point in points)
    return low + (pi - start) / (end - start) * (high - low)


def routes(view: DeviceView) -> list[Route]:
    """Return the page of sharing and its forms."""

    async def page(request: Request) -> Response:
        if view.network is not None:  # whole models are sent there, no hints
            return redirect_back("/peers")
        sharing, lab, shelf = view.device.sharing, load_curve(view.curve), view.shelf
        curve = lab["curve"]
        values = {"quality": between(curve, sharing.pi, "quality"), "named": between(curve, sharing.pi, "named", "10")}
        return view.page_response(
            "sharing.html",
            "sharing",
            "Sharing",
            saying=describe_pi(sharing.pi),
            sayings=json.dumps([(least, translate(text)) for least, text in SAYINGS]),
            percent=_percent(sharing),
            coin=sharing.coin,
            shown=json.dumps(_choices(sharing)),
            lab=lab,
            method=view.method,
            chart=chart(curve, lab["popular"], sharing.pi, values),
            drawn=json.dumps({"curve": curve, **BOX}),
            values=values,
            categories=view.cache("categories", lambda: _categories(view)),
            never=[shelf.thing(item) for item in sharing.never_items] if shelf is not None else [],
            budget=view.cache("budget", lambda: view_budget(view.device)),
            limits=_write_limits(sharing.limits),
            knows_mains=sharing.limits.mains_only or is_on_mains() is not None,
            knows_metered=sharing.limits.unmetered_only or is_metered() is not None,
        )

    def save(form: dict[str, str]) -> str:
        pi, shown = _pi(form.get("pi", "")), _show(form.get("shown", ""))
        level = form.get("privacy", shown["privacy"])
        if level not in LEVELS:
            raise ConfigError("There is no such level; nothing was changed.", "Open Sharing again and save.")
        limits = {name: form.get(name, "").strip() for name in shown["limits"]}
        read_limits(limits)
        chosen = {name for name in form.get("never[]", "").split("\n") if name}

        def decide(before: Sharing) -> Sharing:
            never = ({*before.never_categories} - ({*shown["never"]} - chosen)) | (chosen - {*shown["never"]})
            update: dict[str, Any] = {"never_categories": tuple(sorted(never))}
            if 100 * pi != shown["pi"]:
                update["pi"] = pi
            for box in BOXES:
                if (form.get(box) == "yes") != shown[box]:
                    update[box] = not shown[box]
            if level != shown["privacy"]:
                update["privacy"] = level
            if limits != shown["limits"]:
                changed = {name: text for name, text in limits.items() if text != shown["limits"][name]}
                update["limits"] = read_limits(_write_limits(before.limits) | changed)
            return before.model_copy(update=update)

        view.device.change(decide)
        view.say("Saved. It is valid from the next message on. Earlier messages stay as they were.")
        return "/sharing"

    def never(form: dict[str, str]) -> str:
        item, again = view.label(form.get("item", "")), form.get("again") == "yes"

        def decide(before: Sharing) -> Sharing:
            items = {*before.never_items} - {item}
            settled = tuple(sorted(items if again else {*items, item}, key=str))
            return Sharing.model_validate({**before.model_dump(), "never_items": settled})

        view.device.change(decide)
        title = view.shelf.thing(item).title if view.shelf is not None else str(item)
        text = "Hints about “{title}” may be sent again, as your slider says."
        view.say(text if again else "Hints about “{title}” are never sent.", title=title)
        return "/sharing" if form.get("from") == "sharing" else "/history"

    return [
        Route("/sharing", page),
        Route("/sharing/save", form_handler(save), methods=["POST"]),
        Route("/sharing/never", form_handler(never), methods=["POST"]),
    ]


def read_limits(form: dict[str, str]) -> TimeLimits:
    """Return the limits in time that a form says; empty fields are no limits."""
    rounds, megabytes, minutes = (
        form.get(name, "").strip() for name in ("rounds_per_day", "mb_per_day", "pause_minutes")
    )
    try:
        return TimeLimits.model_validate(
            {
                "rounds_per_day": int(rounds) if rounds else None,
                "bytes_per_day": round(float(megabytes.replace(",", ".")) * 1_000_000) if megabytes else None,
                "hours": form.get("hours", "").replace(" ", ""),
                "pause_minutes": int(minutes or 0),
                "mains_only": form.get("mains_only") == "yes",
                "unmetered_only": form.get("unmetered_only") == "yes",
            }
        )
    except (ValueError, OverflowError):
        raise ConfigError(
            "These limits cannot be read; nothing was changed.",
            "Give numbers, and hours like 22-7, or leave a field empty.",
        ) from None


def _write_limits(limits: TimeLimits) -> dict[str, str]:
    """Return the limits in time as a form shows them."""
    return {
        "rounds_per_day": "" if limits.rounds_per_day is None else str(limits.rounds_per_day),
        "mb_per_day": "" if limits.bytes_per_day is None else f"{limits.bytes_per_day / 1_000_000:g}",
        "hours": limits.hours,
        "pause_minutes": str(limits.pause_minutes or ""),
        "mains_only": "yes" if limits.mains_only else "",
        "unmetered_only": "yes" if limits.unmetered_only else "",
    }


def _percent(sharing: Sharing) -> int:
    """Return the position of the slider."""
    return round(100 * sharing.pi)


def _choices(sharing: Sharing) -> dict[str, Any]:
    """Return what a form shows as chosen: only differences from it are changes, however old the page is."""
    chosen = {"pi": _percent(sharing), "never": sharing.never_categories, "privacy": sharing.privacy}
    chosen["limits"] = _write_limits(sharing.limits)
    return chosen | {box: getattr(sharing, box) for box in BOXES}


def _show(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
        is_right = isinstance(found["never"], list) and all(isinstance(found[box], bool) for box in BOXES)
        is_right = is_right and found["privacy"] in LEVELS
        read_limits(found["limits"])
        is_right = is_right and {*found["limits"]} == {*_write_limits(TimeLimits())}
        if is_right and isinstance(found["pi"], int) and all(isinstance(name, str) for name in found["never"]):
            return dict(found)
    except (ValueError, KeyError, TypeError, AttributeError, ConfigError):
        pass
    raise ConfigError("This form is incomplete; nothing was changed.", "Open Sharing again and save.")


def _pi(text: str) -> float:
    try:
        percent = float(text)
    except ValueError:
        percent = -1.0
    if not 0 <= percent <= 100:
        raise ConfigError("How much to share must be a number from 0 to 100.", "Move the slider and save again.")
    return percent / 100


def _categories(view: DeviceView) -> list[tuple[str, int, bool]]:
    """Return every category, its number of history items, and whether it is never sent; the user's own first."""
    shelf = view.shelf
    if shelf is None or shelf.catalog.categories is None:
        return []
    kinds = shelf.catalog.categories
    own = view.device.history.clients(0, shelf.catalog).items
    times = np.bincount(kinds.ids[ragged_rows(kinds.ptr, own)], minlength=len(kinds.names))
    mine = dict(zip(kinds.names, times.tolist(), strict=True))
    never = set(view.device.sharing.never_categories)
    names = sorted(set(shelf.catalog.categories.names), key=lambda name: (-mine[name], name))
    return [(name, mine[name], name in never) for name in names]
