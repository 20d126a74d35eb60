"""Her file: pause, leave, take along, erase, and the honest sentence on what erasing cannot undo."""

from __future__ import annotations

import json
import tempfile
from importlib.util import find_spec
from pathlib import Path

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tacit.device import Device
from tacit.device.membership import Membership
from tacit.errors import ConfigError, FieldError
from tacit.web.frame import back
from tacit.web.person import Person, doing, uploaded
from tacit.web.sent import Sums

WORD = "erase"


def routes(person: Person) -> list[Route]:
    """Return the page of her file and its forms."""

    async def page(request: Request) -> Response:
        sums = Sums.of(person.kept("ledger", lambda: person.device.ledger.list()[::-1]))
        return person.shown("mine.html", "mine", "My file", sums=sums, word=WORD, items=len(person.history))

    def pause(form: dict[str, str]) -> str:
        person.device.pause()
        person.say("Paused: nothing leaves this device until you resume. Suggestions go on working.")
        return _from(form)

    def resume(form: dict[str, str]) -> str:
        person.device.resume()
        person.say("Resumed: messages may leave again, as you decided under Sharing.")
        return _from(form)

    def leave(form: dict[str, str]) -> str:
        person.device.leave()
        person.say("You have left. What was sent before stays in the shared model: it cannot be taken out again.")
        return "/mine"

    async def join(request: Request) -> Response:
        line, _, content = await uploaded(request, "line")
        member = await run_in_threadpool(_joined, person.device, line.strip(), content)
        person.say(f"You are a member of {member.federation.name}. Nothing has left by that: see Sharing first.")
        return back("/")

    def erase(form: dict[str, str]) -> str:
        if form.get("word", "").strip().casefold() != WORD:
            raise ConfigError("Nothing was erased: the word was not typed.", f"Type “{WORD}” to erase everything.")
        person.device.erase()
        person.is_erased = True
        return "/"

    async def readable(request: Request) -> Response:
        content = json.dumps(person.device.readable(), ensure_ascii=False, indent=1)
        return _download(content.encode(), "my-tacit-data.json", "application/json")

    async def copy(request: Request) -> Response:
        with tempfile.TemporaryDirectory() as folder:
            person.device.export(Path(folder) / "copy")
            return _download((Path(folder) / "copy").read_bytes(), "my-device.tacit", "application/octet-stream")

    return [
        Route("/mine", page),
        Route("/mine/pause", doing(pause), methods=["POST"]),
        Route("/mine/resume", doing(resume), methods=["POST"]),
        Route("/mine/leave", doing(leave), methods=["POST"]),
        Route("/mine/join", join, methods=["POST"]),
        Route("/mine/erase", doing(erase), methods=["POST"]),
        Route("/mine/data.json", readable),
        Route("/mine/device.tacit", copy),
    ]


def _joined(device: Device, line: str, content: bytes) -> Membership:
    """Join by an invitation, which asks its coordinator, or by a welcome file, which asks nobody."""
    if not line:
        return device.join(content)
    if find_spec("flwr") is None:
        raise FieldError(
            "The field needs Flower, which is not installed.", "Where Tacit's source lies, run: pip install '.[field]'."
        )
    from tacit.field.invitations import Invitation, accept

    return accept(device, Invitation.parsed(line))


def _from(form: dict[str, str]) -> str:
    """Return the page that a form was on: one of ours, never what a form makes up."""
    asked = form.get("from", "")
    return {"for-you": "/", "history": "/history", "sharing": "/sharing", "sent": "/sent"}.get(asked, "/mine")


def _download(content: bytes, name: str, kind: str) -> Response:
    return Response(content, media_type=kind, headers={"content-disposition": f'attachment; filename="{name}"'})
