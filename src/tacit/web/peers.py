"""The page of a network of peers: how many peers there are, what was sent to how many, and what they could infer."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tacit.web.device_view import DeviceView
from tacit.web.frame import redirect_back

PREFIX = "tacitp1:"  # of an invitation to peers
PRIVATE, SENT, NOISY = "vector private", "vector sent", "private, noise 5"  # settings that were measured


@cache
def load_peer_exposure() -> dict[str, Any]:
    """Return what was measured of models that peers send, and by which command."""
    found: dict[str, Any] = json.loads(files("tacit.web").joinpath("measured", "peers.json").read_text("utf-8"))
    return found


def routes(view: DeviceView) -> list[Route]:
    """Return the page of peers."""

    async def page(request: Request) -> Response:
        if view.network is None:
            return redirect_back("/mine")
        from tacit.field.peer.peer_status import CLOCK_OFF, read_status

        network = view.network.network
        status = view.cache("peer status", lambda: read_status(view.device))
        lab, options = load_peer_exposure(), network.options
        setting = NOISY if status.epsilon is not None else SENT if options.get("user_vector") == "sent" else PRIVATE
        shelf = view.shelf
        return view.page_response(
            "peers.html",
            "peers",
            "Peers",
            counts=status,
            is_clock_off=abs(status.clock_off) > CLOCK_OFF,
            lab=lab,
            is_measured=network.method == lab["method"],
            measured=lab["measured"][setting],
            is_vector_sent=options.get("user_vector") == "sent",
            never=[shelf.thing(item) for item in view.device.sharing.never_items] if shelf is not None else [],
        )

    return [Route("/peers", page)]


async def join_peers(view: DeviceView, line: str) -> None:
    """Join a network with an invitation: a member is asked for terms and catalogue."""
    from tacit.field.peer.founding import PeerInvitation, join_network
    from tacit.field.peer.zenoh_carrier import ZenohCarrier

    invitation = PeerInvitation.parse(line)

    def join() -> str:
        with view.device.open_again() as device:
            return join_network(device, invitation, lambda seal: ZenohCarrier(seal, invitation.routers)).network.title

    title = await run_in_threadpool(join)
    view.say(
        "You are a member of {group}, a group without a server. Nothing of your history was sent. See Peers next.",
        group=title,
    )
