"""The guard: which requests a page accepts, their size, and what the browser must not do with the answer.

A page listens on 127.0.0.1 only. That is not enough: any site that is open in the same browser can send requests there,
and another user of the machine can too. So

    host      must be the address that the page was started on: a name that was made to point here is refused
    token     the start link carries one, which works once; it is changed for the path below which all pages are
    path      is secret and new for each start. A cookie would not do: browsers send it to every port of this machine
    origin    whatever changes something must come from the page itself
    size      a request is cut off at its cap, whatever length it claims
    headers   nothing is loaded from elsewhere, framed, sniffed or kept
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from starlette.datastructures import Headers, QueryParams
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tacit.languages.sentences import Sentence

STATIC = "/static/"  # style and script, which say nothing
SMALL = 64 * 1024  # bytes of a form
BASE: ContextVar[str] = ContextVar("base", default="")  # the secret path of the page that is answered now
DRAINED = 2**28  # bytes that are read and thrown away before a connection is cut
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "worker-src 'self'; manifest-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}
_HEAD = """<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="/static/icon.svg" type="image/svg+xml"><link rel="stylesheet" href="/static/style.css">
"""
WELCOME = f"""{_HEAD}<title>Tacit</title><meta http-equiv="refresh" content="0;url={{base}}/"></head>
<body><main><p><a href="{{base}}/">Open the page</a></p></main></body></html>"""
REFUSED = f"""{_HEAD}<title>Not open · Tacit</title></head>
<body><main class="narrow"><p class="kicker">Tacit</p><h1>This page is not open to you</h1>
<p class="lead">{{why}}</p></main></body></html>"""
USED = "This link was used already, and works once. Go on where it was opened, or start the program again for another."
NO_TOKEN = "Open the link that the program printed in its terminal: it contains the key of this page."


@dataclass(frozen=True)
class PageAddress:
    """The address of a page, and its secrets, which are new for each start."""

    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    secret: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    @property
    def hosts(self) -> tuple[str, str]:
        """The host names of the page."""
        return f"127.0.0.1:{self.port}", f"localhost:{self.port}"

    @property
    def link(self) -> str:
        """The start link."""
        return f"http://{self.hosts[0]}/?{urlencode({'key': self.token})}"

    @property
    def base(self) -> str:
        """The path below which all pages are; requests that know it are accepted."""
        return f"/{self.secret}"


class Guard:
    """Wraps a page: refuses requests, bounds their size, and sets headers of answers."""

    def __init__(self, app: ASGIApp, address: PageAddress, caps: Mapping[str, int]) -> None:
        self.app, self.address, self.caps = app, address, caps
        self._is_used = False  # the start link

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        send = _seal(send, scope["path"], self.address.base)
        answer = self._answer(scope, headers)
        if answer is not None:
            await answer(scope, receive, send)
            return
        path = scope["path"]
        if not path.startswith(STATIC):
            path = "/" + path.removeprefix(self.address.base).removeprefix("/")
        scope = {**scope, "path": path, "raw_path": path.encode()}
        BASE.set("" if path.startswith(STATIC) else self.address.base)  # static files are public
        await self.app(scope, cap_body(receive, self.caps.get(path, SMALL), headers), send)

    def _answer(self, scope: Scope, headers: Headers) -> Response | None:
        """Return a refusal or the first page, or none to accept the request."""
        host, method, path = headers.get("host", ""), scope["method"], scope["path"]
        if host not in self.address.hosts:
            return PlainTextResponse("This page can be opened at its own address only.", 421)
        if method not in ("GET", "HEAD", "POST"):
            return PlainTextResponse("This page accepts GET and POST only.", 405)
        if path.startswith(STATIC):
            return None
        key = QueryParams(scope["query_string"]).get("key")
        if path == "/" and method == "GET" and key is not None and _same(key, self.address.token):
            if self._is_used:
                return _refuse(USED, 403)
            self._is_used = True
            return HTMLResponse(
                WELCOME.format(base=self.address.base)
            )  # no redirect: it would be a link's from elsewhere
        if not _same(f"{path}/".split("/")[1], self.address.secret):  # a target need not have a slash
            return _refuse(NO_TOKEN, 403)
        if method == "POST" and not _is_own(headers, host):
            return _refuse("This request came from another site. Nothing was changed.", 403)
        if headers.get("sec-fetch-site", "none") == "cross-site":
            return _refuse("This request came from another site.", 403)
        return None


def _same(given: str, secret: str) -> bool:
    return secrets.compare_digest(given.encode(), secret.encode())


def _is_own(headers: Headers, host: str) -> bool:
    """Return whether the headers say that a request comes from the page itself; without headers: no."""
    origin: str | None = headers.get("origin")
    site: str | None = headers.get("sec-fetch-site")
    return origin == f"http://{host}" if origin is not None else site == "same-origin"


def _refuse(why: str, status: int) -> Response:
    return HTMLResponse(REFUSED.format(why=why), status)


def cap_body(receive: Receive, cap: int, headers: Headers) -> Receive:
    """Stop reading at the cap. Some of the rest is read and discarded, so that the browser receives the answer."""
    claimed = headers.get("content-length", "0")
    seen = int(claimed) if claimed.isdecimal() and int(claimed) > cap else 0

    async def reading() -> Message:
        nonlocal seen
        message: Message = {"more_body": True}
        if seen <= cap:
            message = await receive()
            seen += len(message.get("body", b""))
        if seen <= cap:
            return message
        drained = 0
        while message.get("more_body") and drained < DRAINED:
            message = await receive()
            drained += len(message.get("body", b""))
        size = f"{cap / 2**20:.3g} MB" if cap >= 2**20 else f"{cap // 1024} kB"
        text = "The request is larger than {size}, the limit of this page. Nothing was changed."
        raise HTTPException(413, Sentence(text, size=size))

    return reading


def _seal(send: Send, path: str, base: str) -> Send:
    headers: dict[str, Any] = {**HEADERS, **({"cache-control": "max-age=60"} if path.startswith(STATIC) else {})}
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = [
                (name, base.encode() + value if name == b"location" and value.startswith(b"/") else value)
                for name, value in message.get("headers", [])
            ]
            message["headers"] = [*own, *raw]
        await send(message)

    return sending
