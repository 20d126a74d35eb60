"""A device's interface for applications on the same machine: JSON over HTTP, a token, an OpenAPI description.

    GET    /v1/openapi.json           this interface, described
    GET    /v1/status                 what the device does now
    GET    /v1/recommendations?k=10   the best items, with reasons
    GET    /v1/interactions           the history, newest first
    POST   /v1/interactions           add one interaction, or a list of them
    DELETE /v1/interactions/{item}    take one away
    POST   /v1/hidden                 never recommend an item again

It listens on 127.0.0.1 only. Every request carries `Authorization: Bearer TOKEN`. Pages in a browser are refused,
whatever they carry: they send an `Origin`, and applications do not.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from tacit.errors import ConfigError, DataError, TacitError
from tacit.field.device.history import HistoryEntry
from tacit.web.device_view import DeviceView
from tacit.web.guard import HEADERS, SMALL, cap_body

T = TypeVar("T")
LEAST_TOKEN = 32  # characters
MOST_ITEMS = 1000  # of one answer or request
LATEST = 253_402_300_799  # the last second of the year 9999


class Interaction(BaseModel):
    """One thing that the user did. `item` is an id or a title of the federation's catalogue."""

    model_config = ConfigDict(extra="forbid", strict=True)
    item: int | Annotated[str, Field(min_length=1, max_length=1000)]
    time: Annotated[int, Field(ge=0, le=LATEST, description="unix seconds")] | None = None
    value: Annotated[float, Field(allow_inf_nan=False, description="a rating or a count")] | None = None


class Hidden(BaseModel):
    """An item that is not to be recommended."""

    model_config = ConfigDict(extra="forbid", strict=True)
    item: int | Annotated[str, Field(min_length=1, max_length=1000)]


INTERACTIONS: TypeAdapter[list[Interaction]] = TypeAdapter(Annotated[list[Interaction], Field(max_length=MOST_ITEMS)])


def open_token_file(path: Path) -> str:
    """Return the token in a file that only its owner can read; a file that is not there is made with a new token."""
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(made, "w", encoding="utf-8") as file:
                file.write(secrets.token_urlsafe(32) + "\n")
        if os.name == "posix" and stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise ConfigError(f"Other users of this machine can read '{path}'.", f"Run: chmod 600 {path}")
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"The token in '{path}' cannot be read: {error}.", "Give another file.") from None
    if len(token) < LEAST_TOKEN or not token.isascii():
        raise ConfigError(
            f"The token in '{path}' has fewer than {LEAST_TOKEN} characters, or strange ones.",
            "Remove the file, and a new token is made.",
        )
    return token


class TokenGuard:
    """Refuses requests without the token, from browsers, to other host names, or too long."""

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self.app, self.token = app, token
        self.hosts = (f"127.0.0.1:{port}", f"localhost:{port}")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        refusal = self._refuse(headers)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        await self.app(scope, cap_body(receive, SMALL, headers), send)

    def _refuse(self, headers: Headers) -> Response | None:
        if headers.get("host", "") not in self.hosts:
            return _problem(421, "host", "This interface answers at its own address only.")
        if "origin" in headers or headers.get("sec-fetch-site", "none") != "none":
            return _problem(403, "browser", "This interface is for applications, not for pages in a browser.")
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not secrets.compare_digest(given.strip().encode(), self.token.encode()):
            return _problem(401, "token", "Send 'Authorization: Bearer TOKEN' with the token of the file.")
        return None


def build_api(view: DeviceView, token: str, port: int) -> ASGIApp:
    """Return the interface of a device, behind its guard."""

    async def describe(request: Request) -> Response:
        return _answer(openapi())

    async def status(request: Request) -> Response:
        member = view.cache("member", lambda: view.device.membership)
        method = None if member is None else member.federation.method
        return _answer({"state": view.state().as_json(), "interactions": len(view.history), "method": method})

    async def recommendations(request: Request) -> Response:
        k = _whole(request, "k", 10, 1)
        view.cache("member", lambda: view.device.membership)  # another program may have changed the file
        found = view.device.recommend(k)
        rows = [{"item": one.item, "title": one.title, "score": one.score, "why": one.why} for one in found]
        return _answer({"recommendations": rows})

    async def history(request: Request) -> Response:
        limit, offset = _whole(request, "limit", 100, 1), _whole(request, "offset", 0, 0, 10**9)
        rows = [{"item": one.item, "time": one.when, "value": one.value} for one in view.history]
        return _answer({"total": len(rows), "interactions": rows[offset : offset + limit]})

    async def add(request: Request) -> Response:
        given = await _body(request, _several)
        entries = [HistoryEntry(_label(view, one.item), one.time, one.value) for one in given]
        return _answer({"new": view.device.history.add(entries, _catalog(view))}, 201)

    async def remove(request: Request) -> Response:
        item = _label(view, request.path_params["item"])
        return _answer({"removed": view.device.history.remove(item, _catalog(view))})

    async def hide(request: Request) -> Response:
        given = await _body(request, Hidden.model_validate_json)
        view.device.preferences.hide(_label(view, given.item))
        return _answer({"hidden": [str(item) for item in view.device.preferences.hidden]}, 201)

    routes = [
        Route("/v1/openapi.json", describe),
        Route("/v1/status", status),
        Route("/v1/recommendations", recommendations),
        Route("/v1/interactions", history),
        Route("/v1/interactions", add, methods=["POST"]),
        Route("/v1/interactions/{item:path}", remove, methods=["DELETE"]),
        Route("/v1/hidden", hide, methods=["POST"]),
    ]
    handlers: dict[Any, Any] = {TacitError: _on_error, HTTPException: _on_http}
    return TokenGuard(Starlette(routes=routes, exception_handlers=handlers), token, port)


def _several(text: bytes) -> list[Interaction]:
    """Read one interaction, or a list of them."""
    one = text.lstrip()[:1] == b"{"
    return [Interaction.model_validate_json(text)] if one else INTERACTIONS.validate_json(text)


async def _body(request: Request, read: Callable[[bytes], T]) -> T:
    try:
        return read(await request.body())
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the body"
        raise HTTPException(422, f"{where}: {first['msg']}") from None


def _whole(request: Request, name: str, default: int, least: int, most: int = MOST_ITEMS) -> int:
    """Read a whole number of the query."""
    text = request.query_params.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 12 and least <= int(text) <= most):
        raise HTTPException(422, f"{name}: a whole number from {least} to {most} is needed")
    return int(text)


def _label(view: DeviceView, item: int | str) -> int | str:
    return view.label(item) if isinstance(item, str) else item


def _catalog(view: DeviceView) -> Any:
    """Return the catalogue of the federation, or none before the device has joined one."""
    shelf = view.shelf
    return None if shelf is None else shelf.catalog


def _answer(document: Any, status: int = 200) -> Response:
    return JSONResponse(document, status, headers=HEADERS)


def _problem(status: int, code: str, message: str, hint: str = "") -> Response:
    return _answer({"error": {"code": code, "message": message, "hint": hint}}, status)


async def _on_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, TacitError)
    status = 422 if isinstance(error, DataError) else 409
    return _problem(status, type(error).__name__, error.message, error.hint)


async def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _problem(error.status_code, "request", error.detail)


def openapi() -> dict[str, Any]:
    """Return the description of this interface, version 3.1."""
    from tacit import __version__

    schemas = {kind.__name__: kind.model_json_schema() for kind in (Interaction, Hidden)}
    named = {name: {"$ref": f"#/components/schemas/{name}"} for name in schemas}
    count = {"type": "integer", "minimum": 0, "maximum": MOST_ITEMS}

    def operation(summary: str, *query: str, takes: Any = None, status: str = "200") -> dict[str, Any]:
        found: dict[str, Any] = {"summary": summary, "responses": {status: {"description": "as JSON"}}}
        found["responses"] |= {code: {"description": "an error, as JSON"} for code in ("401", "409", "422")}
        if query:
            found["parameters"] = [{"name": name, "in": "query", "schema": count} for name in query]
        if takes is not None:
            found["requestBody"] = {"required": True, "content": {"application/json": {"schema": takes}}}
        return found

    one_or_many = {"oneOf": [named["Interaction"], {"type": "array", "items": named["Interaction"]}]}
    by_item = {"name": "item", "in": "path", "required": True, "schema": {"type": "string"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Tacit device", "version": __version__},
        "security": [{"token": []}],
        "paths": {
            "/v1/openapi.json": {"get": operation("This description.")},
            "/v1/status": {"get": operation("What the device does now.")},
            "/v1/recommendations": {"get": operation("The best items, with reasons.", "k")},
            "/v1/interactions": {
                "get": operation("The history, newest first.", "limit", "offset"),
                "post": operation("Add interactions.", takes=one_or_many, status="201"),
            },
            "/v1/interactions/{item}": {"delete": {**operation("Take an interaction away."), "parameters": [by_item]}},
            "/v1/hidden": {"post": operation("Never recommend an item again.", takes=named["Hidden"], status="201")},
        },
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }
