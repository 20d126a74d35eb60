"""The routes of a coordinator for notices: what was noted of its members, and new keys of their identities."""

from __future__ import annotations

import base64
from typing import Any

from tacit.errors import MessageError
from tacit.field.carriers.enrolment_limits import NEW_IDENTITY_KEY, EnrolmentLimit
from tacit.field.coordinator import CoordinatorJournal
from tacit.field.directory_notices import NOTICES
from tacit.protocols.notices import Notice


class NoticeRoutes:
    """Answers members: whoever knows the federation's id may read the notices, and a key is changed by signatures."""

    def __init__(self, journal: CoordinatorJournal, limit: EnrolmentLimit) -> None:
        self._journal, self._limit = journal, limit

    def add_to(self, app: Any) -> None:
        """Let an application have the routes."""
        app.add_route(f"{NOTICES}/{{federation}}", self._show, methods=["GET"])
        app.add_route(NEW_IDENTITY_KEY, self._change, methods=["POST"])

    async def _show(self, request: Any) -> Any:
        from starlette.concurrency import run_in_threadpool
        from starlette.responses import Response

        if request.path_params["federation"] != self._journal.federation.id:
            return Response(status_code=404)
        return Response(await run_in_threadpool(self._list), media_type="application/octet-stream")

    def _list(self) -> bytes:
        journal = self._journal.again()  # a connection of this thread's own
        try:
            return journal.notices.list().encode()
        finally:
            journal.close()

    async def _change(self, request: Any) -> Any:
        """Let an identity be signed for by another key: 400 what is no notice, 403 what is not signed by both keys."""
        from starlette.concurrency import run_in_threadpool
        from starlette.responses import Response

        if not self._limit.allows("" if request.client is None else request.client.host):
            return Response(status_code=429)
        try:
            given = await request.json()
            notice = Notice.decode(base64.b64decode(given["notice"], validate=True))
        except (ValueError, KeyError, TypeError, RecursionError, MessageError):
            return Response(status_code=400)
        return Response(status_code=200 if await run_in_threadpool(self._changed, notice) else 403)

    def _changed(self, notice: Notice) -> bool:
        journal = self._journal.again()
        try:
            return journal.notices.change_key(notice)
        finally:
            journal.close()
