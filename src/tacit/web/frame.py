"""The common frame of all pages: layout, style and errors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, PrefixLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from tacit.errors import TacitError
from tacit.report.page import stylesheet
from tacit.report.sent import join_words
from tacit.web import words
from tacit.web.guard import BASE

NAMED = {"history": "History", "sharing": "Sharing", "sent": "Sent", "mine": "My file"}  # pages with forms
STATIC = {"style.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}


@cache
def _jinja() -> Environment:
    own, report = PackageLoader("tacit.web"), PackageLoader("tacit.report", "")
    jinja = Environment(
        loader=PrefixLoader({"web": own, "report": report}),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    jinja.globals["base"] = BASE.get
    jinja.filters.update(
        count=words.plural,
        bytes=words.format_bytes,
        day=words.format_time,
        listed=join_words,
        percent=words.format_percent,
    )
    return jinja


def render_page(template: str, /, **values: Any) -> str:
    """Return a page as HTML; data is escaped."""
    return _jinja().get_template(f"web/{template}").render(**values)


def page_response(template: str, /, status: int = 200, **values: Any) -> Response:
    """Answer with a page."""
    return HTMLResponse(render_page(template, **values), status)


def redirect_back(to: str) -> Response:
    """Answer a form with a redirect to its page, so that reloading does not repeat the action."""
    return RedirectResponse(to, status_code=303)


def application(routes: Sequence[BaseRoute]) -> Starlette:
    """Return an application with its routes, the static files and pages for errors."""
    static = [Route("/static/{name}", _static)]
    handlers: dict[Any, Any] = {TacitError: _trouble, HTTPException: _not_there}
    return Starlette(routes=[*routes, *static], exception_handlers=handlers)


@cache
def static(name: str) -> str:
    """Return a static file; the style is that of the report, with additions for the pages."""
    own = files("tacit.web").joinpath("static", "page.css" if name == "style.css" else name).read_text(encoding="utf-8")
    return f"{stylesheet()}\n{own}" if name == "style.css" else own


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in STATIC:
        raise HTTPException(404, "There is no such file.")
    return Response(static(name), media_type=STATIC[name])


async def _trouble(request: Request, error: TacitError) -> Response:
    return page_response(
        "trouble.html", 400, title="That did not work", message=error.message, hint=error.hint, **_way(request)
    )


async def _not_there(request: Request, error: HTTPException) -> Response:
    title = "There is no such page" if error.status_code == 404 else "That did not work"
    return page_response("trouble.html", error.status_code, title=title, message=error.detail, hint="", **_way(request))


def _way(request: Request) -> dict[str, str]:
    """Return the address and title of the page that the form was on."""
    page = request.url.path.split("/")[1]
    is_there = page in NAMED and any(getattr(route, "path", "") == f"/{page}" for route in request.app.routes)
    return {"back": f"/{page}", "back_to": NAMED[page]} if is_there else {"back": "/", "back_to": "the start"}
