"""`tacit peer ...`: recommendations among peers, without a server."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli import app as shell
from tacit.cli.app import Json, Set, app
from tacit.cli.device import FileOption, PassphraseFd, PassphraseFile, choose_device, open_device
from tacit.cli.device_run import stop_on_signals
from tacit.errors import ConfigError

if TYPE_CHECKING:
    from tacit.field.peer.runner import PeriodOutcome

peer_app = typer.Typer(no_args_is_help=True, help="Peers without a server: found or join a network, take part.")
app.add_typer(peer_app, name="peer")
Routers = Annotated[list[str], typer.Option("--router", help="Address HOST:PORT of a router; may be repeated.")]


@peer_app.callback()
def _of(
    file: FileOption = None,
    passphrase_file: PassphraseFile = None,
    passphrase_fd: PassphraseFd = None,
) -> None:
    """Peers without a server: found or join a network, take part."""
    choose_device(file, passphrase_file, passphrase_fd)


@peer_app.command(epilog="Example: tacit peer found Books books.csv --router 192.0.2.7:7447")
def found(
    name: Annotated[str, typer.Argument(help="Name of the network.")],
    catalogue: Annotated[str, typer.Argument(help="A table of items (item, title, category), or a dataset's name.")],
    router: Routers = [],  # noqa: B006
    method: Annotated[str, typer.Option(help="How peers learn.")] = "pepper",
    settings: Set = [],  # noqa: B006
    period: Annotated[float, typer.Option(min=0.1, max=86_400, help="Seconds between two sendings.")] = 600.0,
    as_json: Json = False,
) -> None:
    """Found a network: its terms are fixed from now on. Its routers run `tacit peer run --listen`."""
    from tacit.config import parse_overrides
    from tacit.field.catalogue_file import read_catalogue
    from tacit.field.peer.founding import draw_network_id, found_network
    from tacit.field.peer.zenoh_carrier import check_address
    from tacit.wire.network import PeerNetwork

    given = {path.removeprefix("method."): value for path, value in parse_overrides(settings).items()}
    if not router:
        raise ConfigError("A network needs at least one router.", "Name it: --router HOST:PORT; two are better.")
    routers = [check_address(address) for address in router]
    items = read_catalogue(catalogue)
    id, seed = draw_network_id()
    network = PeerNetwork.create(id, name, method, given, items, seed, period)
    with open_device() as device:
        found_network(device, network, items, routers)
    shell.screen.document({"network": network.digest.hex(), "method": method, "items": items.n_items})
    shell.screen.say(
        f"Founded '{network.title}': {method}, {items.n_items:,} items, digest {network.digest.hex()[:16]}. "
        "You are its first member. Add your history, run `tacit peer run`, and invite others: tacit peer invite."
    )


@peer_app.command(epilog="Example: tacit peer invite")
def invite(as_json: Json = False) -> None:
    """Print an invitation. Whoever has the line can join, and read what members are sent.

    `tacit peer join` takes it for seven days. It holds the network's secret, which does not change: another
    program can join by it later, too.
    """
    from tacit.field.peer.founding import invite as make_invitation
    from tacit.field.peer.membership import require_membership

    with open_device() as device:
        line = make_invitation(device, require_membership(device.store)).line()
    shell.screen.document({"invitation": line})
    shell.screen.say(line)


@peer_app.command(epilog="Example: tacit peer join tacitp1:eyJu...")
def join(
    line: Annotated[str, typer.Argument(help="An invitation.")],
    router: Routers = [],  # noqa: B006
    as_json: Json = False,
) -> None:
    """Join a network: terms and catalogue come from a member and are checked. None of your data is sent."""
    from dataclasses import replace

    from tacit.field.peer.founding import PeerInvitation, join_network
    from tacit.field.peer.zenoh_carrier import ZenohCarrier

    invitation = PeerInvitation.parse(line)
    invitation = replace(invitation, routers=tuple(dict.fromkeys([*router, *invitation.routers])))
    with open_device() as device:
        member = join_network(device, invitation, lambda seal: ZenohCarrier(seal, invitation.routers))
    network = member.network
    shell.screen.document({"network": network.digest.hex(), "name": network.title, "method": network.method})
    shell.screen.say(
        f"You are a member of '{network.title}' ({network.method}, {member.catalog.n_items:,} items).\n"
        "Nothing was sent. When you take part, other members receive whole models that your device learnt: they can "
        "infer some of your history from them. Items on your never list are not learnt from "
        "(tacit device share --never).\nNext: tacit device history add, then tacit peer run."
    )


@peer_app.command(epilog="Example: tacit peer run --listen 0.0.0.0:7447")
def run(
    listen: Annotated[
        list[str], typer.Option("--listen", help="Be a router for others at HOST:PORT; may be repeated.")
    ] = [],  # noqa: B006
    router: Routers = [],  # noqa: B006
    period: Annotated[
        float | None, typer.Option(min=0.1, max=86_400, help="Seconds between two sendings; default: the network's.")
    ] = None,
    periods: Annotated[int | None, typer.Option(min=1, help="End after so many periods.")] = None,
    as_json: Json = False,
) -> None:
    """Take part: send your model to a few peers in each period, read theirs, learn here. Ctrl-C ends it."""
    from tacit.field.peer.peer_device import PeerDevice
    from tacit.field.peer.runner import PeerRunner
    from tacit.field.peer.zenoh_carrier import ZenohCarrier

    stop = threading.Event()
    with open_device() as device, stop_on_signals(stop):
        peer = PeerDevice(device)
        routers = list(dict.fromkeys([*router, *peer.member.routers]))

        def report(outcome: PeriodOutcome | str) -> None:
            shell.screen.say(outcome if isinstance(outcome, str) else _describe(outcome))

        runner = PeerRunner(peer, lambda: ZenohCarrier(peer.seal, routers, listen), report, period)
        shell.screen.say(f"Taking part in '{peer.member.network.title}' through {', '.join(routers)}. Ctrl-C ends it.")
        done = runner.run(stop, periods)
        received = peer.file.received
    shell.screen.document({"periods": done, "received": received})
    shell.screen.say(f"Ended after {done} periods. What was sent: tacit device ledger.")


def _describe(outcome: PeriodOutcome) -> str:
    return (
        f"Period {outcome.number}: sent a model to {outcome.sent} peers, {outcome.acknowledged} acknowledged it; "
        f"{outcome.received} models read so far."
    )


@peer_app.command(epilog="Example: tacit peer status")
def status(as_json: Json = False) -> None:
    """Show what this peer knows and has done: counts, no names."""
    from tacit.field.peer.peer_status import CLOCK_OFF, read_status

    with open_device() as device:
        found = read_status(device)
    shell.screen.document(found.as_json())
    state = "paused" if found.is_paused else "running" if found.is_running else "not running"
    shell.screen.say(f"'{found.network}' ({found.method}): {state}, {found.periods} periods, model of age {found.age}.")
    shell.screen.say(
        f"Peers: {found.known} known, {found.view} in the view, {found.sampled} sampled, {found.dead} silent; "
        f"{found.senders} sent to this one lately."
    )
    shell.screen.say(
        f"Models: {found.sent} sent to {found.receivers} peers, {found.received} read, {found.refused} refused."
    )
    if found.epsilon is not None and found.epsilon_limit is not None:
        shell.screen.say(
            f"Noise is on every model: epsilon {found.epsilon:.1f} is spent, {found.epsilon_limit:.1f} at most "
            "(local guarantee: it holds against everyone, for your whole history)."
        )
    if abs(found.clock_off) > CLOCK_OFF:
        shell.screen.say(f"Your clock and those of others differ by {abs(found.clock_off) / 60:.0f} minutes: set it.")


@peer_app.command(epilog="Example: tacit peer recommend -k 5")
def recommend(
    k: Annotated[int, typer.Option("-k", min=1, max=1000, help="Length of the list.")] = 10, as_json: Json = False
) -> None:
    """Show recommendations from this peer's model. Nothing is sent."""
    from tacit.field.peer.peer_status import recommend_from_peer

    with open_device() as device:
        best = recommend_from_peer(device, k)
    rows = [{"item": r.item, "title": r.title, "score": r.score, "why": r.why} for r in best]
    shell.screen.document({"recommendations": rows})
    table = [[str(i), r.title, f"{r.score:.3f}", r.why] for i, r in enumerate(best, 1)]
    shell.screen.table("For you", ["", "item", "score", "why"], table)


@peer_app.command(epilog="Example: tacit peer leave")
def leave(as_json: Json = False) -> None:
    """Leave the network: keys, model and what is known of others are deleted. Sent models stay sent."""
    from tacit.field.peer.membership import leave_network, require_membership

    with open_device() as device:
        require_membership(device.store)
        leave_network(device.store)
    shell.screen.document({"left": True})
    shell.screen.say("You have left. History, settings and ledger are still here; what you sent stays with others.")
