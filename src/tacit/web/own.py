"""The user's pages as one application."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from tacit.web import for_you, history, mine, sent, sharing
from tacit.web.device_view import MOST_UPLOAD, DeviceView
from tacit.web.frame import application, page_response
from tacit.web.server import Page


class ErasedPages:
    """Answers every request with one page after the device was erased."""

    def __init__(self, app: ASGIApp, person: DeviceView) -> None:
        self.app, self.person = app, person

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with that page, or pass the request on."""
        over = self.person.is_erased and not scope["path"].startswith("/static/")
        answer = page_response("erased.html", title="Everything is erased") if over else self.app
        await answer(scope, receive, send)


def person_page(person: DeviceView) -> Page:
    """Return the page of a device."""
    rooms = (for_you, history, sharing, sent, mine)
    routes = [route for room in rooms for route in room.routes(person)]
    return Page(ErasedPages(application(routes), person), {"/history/import": MOST_UPLOAD, "/mine/join": MOST_UPLOAD})
