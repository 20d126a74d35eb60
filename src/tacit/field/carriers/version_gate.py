"""The coordinator's side of versions: every answer names its own, and programs that have none in common are refused."""

from __future__ import annotations

from typing import Any

from tacit.wire.versions import HEADER, OWN, VersionRanges, find_older

UPGRADE_REQUIRED = 426


class VersionGate:
    """Names this program's versions in every answer, and refuses requests of programs that have none in common."""

    def __init__(self, app: Any, own: VersionRanges = OWN) -> None:
        self._app, self._own = app, own

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, if both programs understand each other."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def add_versions(message: Any) -> None:
            if message["type"] == "http.response.start":
                named = HEADER.encode("ascii"), self._own.write().encode("ascii")
                message["headers"] = [*message.get("headers", []), named]
            await send(message)

        given = next((value for name, value in scope["headers"] if name == HEADER.encode("ascii")), b"")
        if find_older(self._own, VersionRanges.read(given.decode("ascii", "replace"))) is None:
            await self._app(scope, receive, add_versions)
            return
        await add_versions({"type": "http.response.start", "status": UPGRADE_REQUIRED})
        await add_versions({"type": "http.response.body", "body": b""})
