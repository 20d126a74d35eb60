"""The command `view`, and the pages that `demo` and `device` open with --page."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli import app as shell
from tacit.cli.app import app
from tacit.errors import ConfigError

if TYPE_CHECKING:
    from tacit.field.device import Device
    from tacit.web.device_view import RunningParticipant
    from tacit.web.server import Page

Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="Port on 127.0.0.1; 0: any free port.")]


@app.command(epilog="Example: tacit view runs/town-ease-42-1a2b3c4d runs/town-fpl-42-5e6f7a8b")
def view(
    folders: Annotated[
        list[Path], typer.Argument(metavar="RUNS...", help="Run folders, comparisons, folders of runs.")
    ],
    port: Port = 0,
) -> None:
    """Show runs side by side in the browser. New runs appear by themselves."""
    need_page()
    from tacit.web.lab import RunFolders, lab_page

    show(lab_page(RunFolders(folders)), port, "The page of the runs")


def town_page(port: int) -> None:
    """Open the page of one user of the generated town; the other users are simulated."""
    need_page()
    import tempfile

    from tacit.web.device_view import DeviceView
    from tacit.web.own import build_user_page
    from tacit.web.town import Town

    with stop_on_sigterm(), tempfile.TemporaryDirectory(prefix="tacit-") as folder:
        town = Town.create(Path(folder) / "device.db", shell.screen.progress)
        shell.screen.close()
        assert town.device is not None
        with town.device as device:
            show(build_user_page(DeviceView(device, "town", town)), port, "The page of one user of the town")


def device_page(device: Device, port: int) -> None:
    """Open the page of a device, and take part while it is open."""
    need_page()
    from tacit.web.device_view import DeviceView
    from tacit.web.own import build_user_page

    with taking_part(device) as participant, taking_part_among_peers(device) as peer:
        view = DeviceView(device, participant=participant, peer=peer)
        show(build_user_page(view), port, "Your page", "This program takes part for you while it runs. ")


@contextmanager
def taking_part(device: Device) -> Iterator[RunningParticipant]:
    """Take part in a thread of its own while the block runs."""
    from importlib.util import find_spec

    if find_spec("flwr") is None or find_spec("httpx") is None:
        yield MissingFlower()
        return
    from tacit.field.carriers.participant import BackgroundParticipant

    participant = BackgroundParticipant(device)
    participant.start()
    try:
        yield participant
    finally:
        participant.stop()


@contextmanager
def taking_part_among_peers(device: Device) -> Iterator[RunningParticipant | None]:
    """Take part in a network of peers in a thread of its own while the block runs, where Zenoh is installed."""
    from importlib.util import find_spec

    if find_spec("zenoh") is None:
        yield None
        return
    from tacit.field.peer.background import BackgroundPeer

    peer = BackgroundPeer(device)
    peer.start()
    try:
        yield peer
    finally:
        peer.stop()


class MissingFlower:
    """Takes no part, because the package for it is not installed."""

    failure = "The package Flower is missing; in the folder of Tacit's source, run: make field."

    def stop(self) -> None:
        """Do nothing."""


def need_page() -> None:
    """Refuse the command if the packages of the pages are missing."""
    try:
        import python_multipart  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            f"The pages need the package '{error.name}'.",
            "In the folder of Tacit's source, run: make field.",
        ) from None


def show(page: Page, port: int, what: str, meanwhile: str = "") -> None:
    """Serve a page until Ctrl-C; `meanwhile` says what else the program does."""
    from tacit.web.server import serve_page

    def say(link: str) -> None:
        shell.screen.document({"page": link})
        shell.screen.say(f"{what} is open on this machine only:\n\n  {link}\n\n{meanwhile}Ctrl-C closes it.")

    with stop_on_sigterm():
        serve_page(page, port, say)


@contextmanager
def stop_on_sigterm() -> Iterator[None]:
    """Let SIGTERM end the program as Ctrl-C does: it closes open files and removes temporary ones."""
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def open_meanwhile(page: Page, port: int, what: str) -> Iterator[None]:
    """Serve a page while something else runs; the link goes to standard error, like the log."""
    from tacit.web.server import serving

    with serving(page, port) as address:
        shell.screen.err.print(f"{what} is open on this machine only: {address.link}", markup=False, soft_wrap=True)
        yield
