"""The common frame of all pages: layout, style and errors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, PrefixLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from tacit.errors import TacitError
from tacit.languages import LANGUAGE, catalogue, languages, translate, write_number
from tacit.languages.sentences import is_translated, localise
from tacit.report.page import stylesheet
from tacit.web import words
from tacit.web.guard import BASE

NAMED = {"history": "History", "sharing": "Sharing", "sent": "Sent", "mine": "My file"}  # pages with forms
SCRIPT_TEXTS = (  # of static/page.js
    *("under 1 %", "over 99 %", "100 % or more", "Page closed", "The program behind this page has ended."),
    "This file is larger than the {n} MB that can be read.",
)
STATIC = {
    "style.css": "text/css",
    "page.js": "text/javascript",
    "app.js": "text/javascript",
    "worker.js": "text/javascript",
    "icon.svg": "image/svg+xml",
    "icon-maskable.svg": "image/svg+xml",
    "manifest.webmanifest": "application/manifest+json",
}


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
    jinja.globals.update(base=BASE.get, language=LANGUAGE.get, languages=languages, script_texts=_script_texts, t=_text)
    jinja.filters.update(
        count=words.plural,
        bytes=words.format_bytes,
        day=words.format_time,
        listed=words.join_names,
        number=write_number,
        percent=words.format_percent,
        localised=_mark_language,
    )
    return jinja


def _text(text: str, /, **values: Any) -> Markup:
    """Return a text of a page in its language. It may contain HTML; values are escaped."""
    found = Markup(translate(text))  # our own texts
    return found.format(**values) if values else found


def _mark_language(text: str) -> Markup:
    """Return what a program said, in the language of the page; what is in no language file is marked as English."""
    shown = localise(text)
    return escape(shown) if is_translated(text) else Markup('<span lang="en">{}</span>').format(shown)


def _script_texts() -> str:
    """Return the translations that the script needs, as JSON."""
    return json.dumps({text: catalogue(LANGUAGE.get()).get(text, text) for text in SCRIPT_TEXTS})


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
