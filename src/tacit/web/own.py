"""The user's pages as one application."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from tacit.languages import LANGUAGE, choose_language
from tacit.web import for_you, history, mine, peers, sent, sharing
from tacit.web.device_view import MOST_UPLOAD, DeviceView, form_handler
from tacit.web.frame import application, page_response
from tacit.web.guard import STATIC
from tacit.web.mine import from_page
from tacit.web.server import Page


class OwnPages:
    """Sets the language of every answer; answers every request with one page after the device was erased."""

    def __init__(self, app: ASGIApp, view: DeviceView) -> None:
        self.app, self.view = app, view

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with that page, or pass the request on."""
        accepted = Headers(scope=scope).get("accept-language", "")
        is_public = scope["path"].startswith(STATIC)  # it says nothing of the user, so nothing of their language
        setting = "" if self.view.is_erased or is_public else self.view.device.preferences.language
        LANGUAGE.set(choose_language(setting, accepted))
        over = self.view.is_erased and not is_public
        answer = page_response("erased.html", title="Everything is erased") if over else self.app
        await answer(scope, receive, send)


def build_user_page(view: DeviceView) -> Page:
    """Return the page of a device."""
    parts = (for_you, history, sharing, peers, sent, mine)

    async def state(request: Request) -> Response:
        return JSONResponse({**view.state().as_json(), "tone": view.state().tone})

    def choose(form: dict[str, str]) -> str:
        view.device.preferences.language = form.get("language", "")
        return from_page(form)

    async def app(request: Request) -> Response:
        return page_response("app.html", title="Tacit", port=request.url.port)

    language = Route("/language", form_handler(choose), methods=["POST"])
    routes = [
        Route("/static/app.html", app),
        Route("/state", state),
        language,
        *(route for part in parts for route in part.routes(view)),
    ]
    return Page(OwnPages(application(routes), view), {"/history/import": MOST_UPLOAD, "/mine/join": MOST_UPLOAD})
