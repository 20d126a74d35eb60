"""The page of the user's file: pause, leave, copy, erase, and what erasing cannot undo.

A coordinator may take half a minute to answer an invitation. Meanwhile there is a page that waits, and all the others.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import tempfile
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tacit.errors import ConfigError, ConsentError, FieldError, TacitError
from tacit.field.device.terms import QUESTIONS
from tacit.field.peer.membership import leave_network
from tacit.languages import translate
from tacit.languages.sentences import Sentence
from tacit.reasons import ReasonCode
from tacit.web.device_view import DeviceView, form_handler, read_upload
from tacit.web.frame import redirect_back
from tacit.web.peers import PREFIX, join_peers
from tacit.web.sent import ReleaseSums
from tacit.wire.envelope import digest_in

if TYPE_CHECKING:
    from tacit.field.invitations import Invitation

TERMS = re.compile("[0-9a-f]{64}")  # the digest of a proposal, as the page writes it
log = logging.getLogger("tacit.field.device")


@dataclass
class PendingJoin:
    """An invitation that was sent to its coordinator, and the result."""

    address: str = ""
    trouble: TacitError | None = None
    welcome: tuple[bytes, str, str] | None = field(default=None, repr=False)  # of terms that the user may agree to
    task: asyncio.Task[None] | None = field(default=None, repr=False)

    @property
    def is_waiting(self) -> bool:
        """Whether there is no answer yet."""
        return self.task is not None and not self.task.done()

    @property
    def question(self) -> ReasonCode | None:
        """What the user must agree to before the device joins, if there is anything."""
        code = None if self.trouble is None else self.trouble.code
        return code if self.welcome is not None and code in QUESTIONS else None

    @property
    def terms(self) -> str:
        """The digest of the terms that the question is about."""
        return "" if self.welcome is None else digest_in(self.welcome[0]).hex()

    def begin(self, address: str, ask: Callable[[], Awaitable[None]]) -> None:
        """Ask to join, and keep what went wrong."""
        self.address, self.trouble, self.welcome = address, None, None
        self.task = asyncio.create_task(self._wait(ask))

    async def _wait(self, ask: Callable[[], Awaitable[None]]) -> None:
        try:
            await ask()
        except TacitError as error:
            self.trouble = error
        except Exception as error:  # it would be reported nowhere else
            log.exception("joining failed")
            self.trouble = FieldError(
                Sentence("Joining failed with an unexpected error: {error}.", error=repr(error)), "Try again."
            )

    def stop(self) -> None:
        """Stop waiting; a later answer has no effect."""
        if self.task is not None:
            self.task.cancel()
        self.task = self.trouble = self.welcome = None


def routes(view: DeviceView) -> list[Route]:
    """Return the page of the user's file and its forms."""

    async def page(request: Request) -> Response:
        sums = ReleaseSums.of(view.cache("ledger", lambda: view.device.ledger.list()[::-1]))
        return view.page_response(
            "mine.html",
            "mine",
            "My file",
            sums=sums,
            word=translate("erase"),
            items=len(view.history),
            proposal=view.device.terms.proposal,
        )

    def pause(form: dict[str, str]) -> str:
        view.device.pause()
        view.say("Paused: this device sends nothing until you resume. Suggestions still work.")
        return from_page(form)

    def resume(form: dict[str, str]) -> str:
        view.device.resume()
        view.say("Resumed: this device sends messages again, as you set under Sharing.")
        return from_page(form)

    def leave(form: dict[str, str]) -> str:
        if view.network is not None:
            leave_network(view.device.store)
            view.say("You have left. What you sent before stays in the models of others.")
            return "/mine"
        view.device.leave()
        view.say("You have left. What you sent before stays in the shared model and cannot be removed from it.")
        return "/mine"

    def agree_to_change(form: dict[str, str]) -> str:
        read = form.get("terms", "")
        view.device.terms.agree(bytes.fromhex(read) if TERMS.fullmatch(read) else b"")
        view.say("You said yes: this device takes part again, in the new way.")
        return "/mine"

    def decline_change(form: dict[str, str]) -> str:
        view.device.terms.decline()
        view.say(
            "You said no: nothing is sent, and your suggestions stay as they are. You can still say yes here. The "
            "server is not told, but it sees that this device takes no part."
        )
        return "/mine"

    joining = PendingJoin()

    async def join(request: Request) -> Response:
        line, _, content = await read_upload(request, "line")
        if joining.is_waiting:
            return redirect_back("/mine/joining")
        if not line.strip():
            joining.stop()
            try:
                _welcome(view, content)
            except ConsentError as error:
                if error.code not in QUESTIONS:
                    raise
                joining.trouble, joining.welcome = error, (content, "", "")
                return redirect_back("/mine/joining")
            return redirect_back("/")
        if "".join(line.split()).startswith(PREFIX):
            joining.begin(translate("a member of the group"), lambda: join_peers(view, line))
            return redirect_back("/mine/joining")
        asked = _invitation(line)
        from tacit.field.invitations import InvitationError, enrol, public_keys

        keys = public_keys(view.device, asked)

        async def ask() -> None:
            try:
                welcome = await run_in_threadpool(enrol, asked, *keys)
                joining.welcome = welcome, asked.address, asked.witness
                _welcome(view, *joining.welcome)
                joining.welcome = None
            except InvitationError:
                view.device.terms.forget_enrolment()
                raise

        joining.begin(asked.address, ask)
        return redirect_back("/mine/joining")

    async def waiting(request: Request) -> Response:
        has_joined = view.device.membership is not None or view.network is not None
        if not joining.is_waiting and (joining.trouble is None or has_joined):
            return redirect_back("/" if has_joined else "/mine")
        reason = None if joining.trouble is None else joining.trouble.reason
        few = 0 if reason is None else reason.parameters.get("needed", 0)
        is_masked = view.device.sharing.masked_only
        return view.page_response("joining.html", "mine", "Joining", joining=joining, few=few, is_masked=is_masked)

    def agree(form: dict[str, str]) -> str:
        question = joining.question
        if joining.welcome is None or question is None or form.get("terms") != joining.terms:
            return "/mine/joining"
        _welcome(view, *joining.welcome, accepts=(question,))
        joining.stop()
        return "/"

    def stop(form: dict[str, str]) -> str:
        joining.stop()
        view.say("Stopped. You have not joined; you can use the invitation again.")
        return "/mine"

    async def state(request: Request) -> Response:
        return JSONResponse({"state": "waiting" if joining.is_waiting else "over"})

    def erase(form: dict[str, str]) -> str:
        if form.get("word", "").strip().casefold() not in (translate("erase"), "erase"):
            raise ConfigError(
                "Nothing was erased: the word was not typed.",
                Sentence("Type “{word}” to erase everything.", word=translate("erase")),
            )
        for running in (view.participant, view.peer):
            if running is not None:
                running.stop()  # it holds the file
        try:
            view.device.erase()
        finally:  # the file may be gone although its keyring complains
            view.is_erased = view.device.is_erased
        return "/"

    async def readable(request: Request) -> Response:
        content = json.dumps(view.device.readable(), ensure_ascii=False, indent=1)
        return _download(content.encode(), "my-tacit-data.json", "application/json")

    async def copy(request: Request) -> Response:
        with tempfile.TemporaryDirectory() as folder:
            view.device.backup(Path(folder) / "copy")
            return _download((Path(folder) / "copy").read_bytes(), "my-device.tacit", "application/octet-stream")

    return [
        Route("/mine", page),
        Route("/mine/pause", form_handler(pause), methods=["POST"]),
        Route("/mine/resume", form_handler(resume), methods=["POST"]),
        Route("/mine/change/yes", form_handler(agree_to_change), methods=["POST"]),
        Route("/mine/change/no", form_handler(decline_change), methods=["POST"]),
        Route("/mine/leave", form_handler(leave), methods=["POST"]),
        Route("/mine/join", join, methods=["POST"]),
        Route("/mine/joining", waiting),
        Route("/mine/joining/state", state),
        Route("/mine/joining/agree", form_handler(agree), methods=["POST"]),
        Route("/mine/joining/stop", form_handler(stop), methods=["POST"]),
        Route("/mine/erase", form_handler(erase), methods=["POST"]),
        Route("/mine/data.json", readable),
        Route("/mine/device.tacit", copy),
    ]


def _invitation(line: str) -> Invitation:
    if find_spec("flwr") is None:
        raise FieldError(
            "A deployed federation needs Flower, which is not installed.",
            "In the folder of Tacit's source, run: make field.",
        )
    from tacit.field.invitations import Invitation

    return Invitation.parse(line)


def _welcome(
    view: DeviceView, welcome: bytes, address: str = "", witness: str = "", accepts: Collection[ReasonCode] = ()
) -> None:
    """Join with the welcome that a coordinator sent, or with a welcome file; say whom the device trusts."""
    member = view.device.join(welcome, address, witness, accepts)
    trust = view.device.directory.describe_trust(view.device.sharing)
    joined = "You are a member of {group}. Nothing of your history was sent. Check Sharing next. {trust}"
    view.say(joined, group=member.federation.title, trust=trust)


def from_page(form: dict[str, str]) -> str:
    """Return the page that a form was on: one of our own pages, whatever the form says."""
    asked = form.get("from", "")
    return {"for-you": "/", "history": "/history", "sharing": "/sharing", "sent": "/sent", "peers": "/peers"}.get(
        asked, "/mine"
    )


def _download(content: bytes, name: str, kind: str) -> Response:
    return Response(content, media_type=kind, headers={"content-disposition": f'attachment; filename="{name}"'})
