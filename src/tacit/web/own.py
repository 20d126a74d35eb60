"""The person's page, put together."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from tacit.web import for_you, history, mine, sent, sharing
from tacit.web.frame import application, shown
from tacit.web.person import MOST_UPLOAD, Person
from tacit.web.server import Page


class Ended:
    """Once everything is erased there is nothing left to ask."""

    def __init__(self, app: ASGIApp, person: Person) -> None:
        self.app, self.person = app, person

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Say so, or hand the request on."""
        over = self.person.is_erased and not scope["path"].startswith("/static/")
        answer = shown("erased.html", title="Everything is erased") if over else self.app
        await answer(scope, receive, send)


def person_page(person: Person) -> Page:
    """Return the page of a device."""
    rooms = (for_you, history, sharing, sent, mine)
    routes = [route for room in rooms for route in room.routes(person)]
    return Page(Ended(application(routes), person), {"/history/import": MOST_UPLOAD, "/mine/join": MOST_UPLOAD})
