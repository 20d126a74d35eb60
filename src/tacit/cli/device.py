"""The commands of the user of a device: `tacit device ...`."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli import app as shell
from tacit.cli.app import Json, app
from tacit.errors import ConfigError, ConsentError, DeviceError

if TYPE_CHECKING:
    from tacit.field.device import Device, Sharing

device_app = typer.Typer(
    invoke_without_command=True, help="Your own device: your history, what you share, what was sent."
)
app.add_typer(device_app, name="device")

Keyring = Annotated[bool, typer.Option("--keyring", help="Keep the key in this machine's keyring.")]
PASSPHRASE = "TACIT_PASSPHRASE"
FILE = "TACIT_DEVICE"


@dataclass
class _DevicePath:
    """The file of the device, and the source of its passphrase."""

    file: Path | None = None
    passphrase_file: Path | None = None


_place = _DevicePath()


def usual_file() -> Path:
    """Return the default path of a device."""
    given = os.environ.get(FILE)
    root = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(given) if given else Path(root) / "tacit" / "device.db"


@device_app.callback()
def _of(
    context: typer.Context,
    file: Annotated[Path | None, typer.Option("--file", help=f"The device's file; default: ${FILE}.")] = None,
    passphrase_file: Annotated[
        Path | None,
        typer.Option(help=f"A file whose first line is the passphrase; default: ${PASSPHRASE}, or a prompt."),
    ] = None,
    page: Annotated[bool, typer.Option("--page", help="Open your page in the browser, on this machine only.")] = False,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port of the page; 0: any free port.")] = 0,
) -> None:
    """Your own device: your history, what you share, what was sent. With --page: in the browser."""
    _place.file, _place.passphrase_file = file, passphrase_file
    if context.invoked_subcommand is not None:
        return
    if not page:
        shell.screen.say(context.get_help())
        return
    from tacit.cli.pages import device_page, need_page

    need_page()
    with open_device() as device:
        device_page(device, port)


def _path() -> Path:
    return _place.file or usual_file()


def _passphrase(new: bool = False) -> str:
    """Return the passphrase: from the keyring if it is there, or from the file, the environment or a prompt."""
    from tacit.field.device.vault import SHORTEST

    keeper = "" if new else _keeper()
    if keeper:
        if _place.passphrase_file is not None:
            raise DeviceError("This device's key is in the keyring, not in a file.", "Omit --passphrase-file.")
        from tacit.field.device.keyring import load_secret

        return load_secret(keeper)
    if _place.passphrase_file is not None:
        try:
            return _place.passphrase_file.read_text(encoding="utf-8").partition("\n")[0]
        except (OSError, UnicodeDecodeError) as error:
            raise DeviceError(f"'{_place.passphrase_file}' cannot be read: {error}.", "Give a text file.") from None
    given = os.environ.get(PASSPHRASE)
    if given is not None:
        return given
    if not sys.stdin.isatty():
        raise DeviceError(
            "The passphrase is missing, and there is no terminal to ask for it.",
            f"Set {PASSPHRASE} or give --passphrase-file.",
        )
    asked = f"Passphrase ({SHORTEST} characters or more, best several words)" if new else "Passphrase"
    return str(typer.prompt(asked, hide_input=True, confirmation_prompt=new, err=True))


def _keeper() -> str:
    """Return the name of the device's key in the keyring; empty if the device has a passphrase."""
    from tacit.field.device.store import Store

    return Store.keeper(_path())


def open_device() -> Device:
    """Open the device of this command."""
    from tacit.field.device import Device
    from tacit.field.device.store import refuse_if_missing

    refuse_if_missing(_path())
    return Device.open(_path(), _passphrase())


@device_app.command(epilog="Example: tacit device init")
def init(keyring: Keyring = False, as_json: Json = False) -> None:
    """Create your device: one encrypted file. Remember the passphrase; nobody can restore it."""
    from tacit.field.device import Device
    from tacit.field.device.keyring import forget_secret, store_secret
    from tacit.field.device.store import refuse_if_there

    refuse_if_there(_path())
    name, secret = store_secret() if keyring else ("", _passphrase(new=True))
    try:
        Device.create(_path(), secret, keeper=name).close()
    except BaseException:
        if name:
            forget_secret(name)
        raise
    shell.screen.document({"file": str(_path())})
    shell.screen.say(f"Your device is {_path()}. It sends nothing before you join a federation.")
    if keyring:
        shell.screen.say("Its key is in this machine's keyring: you can open it only on this machine.")


@device_app.command(epilog='Example: tacit device share --pi 0.3 --never Bakery --never "Café Luna"')
def share(
    pi: Annotated[
        float | None, typer.Option(min=0, max=1, help="Probability that a row about an item of your history is sent.")
    ] = None,
    never: Annotated[list[str], typer.Option(help="An item or a category that is never sent as yours.")] = [],  # noqa: B006
    again: Annotated[list[str], typer.Option(help="Remove an item or a category from the never list.")] = [],  # noqa: B006
    masked_only: Annotated[
        bool | None, typer.Option("--masked-only/--also-readable", help="Take part in masked rounds only.")
    ] = None,
    least: Annotated[int | None, typer.Option(min=2, help="Least number of participants in a masked round.")] = None,
    measure: Annotated[
        bool | None,
        typer.Option(
            "--measure/--no-measure", help="Report, in masked rounds only, whether your newest item was in your list."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Set what may be sent, from the next message on; without options, show the settings."""
    from tacit.field.device.settings import find_forbidden

    def decide(sharing: Sharing) -> Sharing:
        items, categories = set(sharing.never_items), set(sharing.never_categories)
        for name in never:
            item, category = find_forbidden(name, device.catalog)
            items |= set() if item is None else {item}
            categories |= set() if category is None else {category}
        for name in again:
            item, category = find_forbidden(name, device.catalog)
            items.discard(item if item is not None else "")
            categories.discard(category or "")
        return sharing.model_copy(
            update={
                "pi": sharing.pi if pi is None else pi,
                "never_items": tuple(sorted(items, key=str)),
                "never_categories": tuple(sorted(categories)),
                "masked_only": sharing.masked_only if masked_only is None else masked_only,
                "measure": sharing.measure if measure is None else measure,
                "guards": sharing.guards if least is None else sharing.guards.model_copy(update={"n_min": least}),
            }
        )

    with open_device() as device:
        settled = device.change(decide)
    shell.screen.document(settled.model_dump(mode="json"))
    shell.screen.say(
        f"pi = {settled.pi:g}: a row about an item of your history is sent with a probability of {settled.pi:.0%}. A"
        " round draws many rows, so a few rounds send nearly all of a short history. --never excludes items for good."
    )
    named = [f"'{name}'" for name in (*settled.never_items, *settled.never_categories)]
    shell.screen.say(f"Never: {', '.join(named) or 'no item and no category'}")
    masks = "only in masked rounds" if settled.masked_only else "masked, or readable in rounds without masks"
    shell.screen.say(f"Messages are sent {masks}; a masked round must have {settled.guards.n_min} participants.")
    helps = "helps" if settled.measure and settled.pi else "does not help"
    shell.screen.say(f"This device {helps} to measure the quality of recommendations, in masked rounds only.")
    shell.screen.say("Paused: nothing is sent." if settled.paused else "Not paused.")
    shell.screen.say(
        "These settings limit what is sent; they are no guarantee. Over many rounds a reader can still guess."
    )


@device_app.command(epilog="Example: tacit device recommend -k 5")
def recommend(
    k: Annotated[int, typer.Option("-k", min=1, max=1000, help="Length of the list.")] = 10, as_json: Json = False
) -> None:
    """Show recommendations, computed on this device. Nothing is sent."""
    with open_device() as device:
        found = device.recommend(k)
    rows = [{"item": r.item, "title": r.title, "score": r.score, "why": r.why} for r in found]
    shell.screen.document({"recommendations": rows})
    table = [[str(i), r.title, f"{r.score:.3f}", r.why] for i, r in enumerate(found, 1)]
    shell.screen.table("For you", ["", "item", "score", "why"], table)


@device_app.command(epilog="Example: tacit device hide 17")
def hide(item: Annotated[str, typer.Argument(help="An id or a title.")], as_json: Json = False) -> None:
    """Never recommend this item again. What you share stays the same."""
    with open_device() as device:
        device.hide(item)
        hidden = device.hidden
    shell.screen.document({"hidden": hidden})
    shell.screen.say("It will not be recommended again.")


@device_app.command(epilog="Example: tacit device ledger")
def ledger(
    since: Annotated[int, typer.Option(min=0, help="Show entries after this number.")] = 0, as_json: Json = False
) -> None:
    """Show what this device has sent: when, to whom, which items, how many bytes, masked or not."""
    with open_device() as device:
        entries, member = device.ledger.list(since), device.membership
    shell.screen.document({"ledger": [entry.as_json() for entry in entries]})
    rows = [
        [
            str(entry.number),
            entry.when,
            entry.to,
            str(entry.round),
            f"{len(entry.positives) + entry.derived} yours, {len(entry.negatives) + entry.others} others",
            str(entry.bytes),
            "zeros only" if entry.zeros else "masked" if entry.masked else "readable",
            entry.state,
        ]
        for entry in entries
    ]
    shell.screen.table("", ["", "when", "to", "round", "rows", "bytes", "for the receiver", "state"], rows)
    for entry in entries[-1:]:
        labels = dict.fromkeys(entry.positives)
        titles = [str(label) if member is None else member.catalog.called(label) for label in labels]
        named = [f"'{title}'" for title in titles]
        named += [f"{entry.derived} features of yours"] if entry.derived else []
        yours = ", ".join(named) or "none of yours"
        shell.screen.say(f"Entry {entry.number} is about {yours}. To see all items of all entries, use --json.")


@device_app.command(epilog="Example: tacit device pause")
def pause(as_json: Json = False) -> None:
    """Send nothing until you resume. Recommendations still work."""
    with open_device() as device:
        device.pause()
    shell.screen.document({"paused": True})
    shell.screen.say("Paused: this device sends nothing.")


@device_app.command(epilog="Example: tacit device resume")
def resume(as_json: Json = False) -> None:
    """Send messages again, as you set with `share`."""
    with open_device() as device:
        device.resume()
    shell.screen.document({"paused": False})
    shell.screen.say("Resumed: this device takes part again.")


@device_app.command(epilog="Example: tacit device leave")
def leave(as_json: Json = False) -> None:
    """Leave the federation. History, settings and ledger stay; recommendations end; sent messages stay sent."""
    with open_device() as device:
        if device.membership is None:
            raise ConsentError("This device is not a member of a federation.", "There is nothing to leave.")
        device.leave()
    shell.screen.document({"left": True})
    shell.screen.say(
        "You have left. Your history, settings and ledger are still here; its model and titles are deleted. "
        "What you sent before stays in the shared model and cannot be removed from it."
    )


@device_app.command(epilog="Example: tacit device passphrase")
def passphrase(
    new_file: Annotated[Path | None, typer.Option(help="A file whose first line is the new passphrase.")] = None,
    keyring: Keyring = False,
    as_json: Json = False,
) -> None:
    """Change the passphrase. Earlier copies still open with the old one."""
    from tacit.field.device.keyring import forget_secret, store_secret

    with open_device() as device:
        before, name = _keeper(), ""
        if keyring:
            name, chosen = store_secret()
        elif new_file is not None:
            chosen = new_file.read_text(encoding="utf-8").partition("\n")[0]
        elif not sys.stdin.isatty():
            raise DeviceError(
                "The new passphrase is missing, and there is no terminal to ask for it.",
                "Give --new-file or --keyring.",
            )
        else:
            chosen = str(typer.prompt("New passphrase", hide_input=True, confirmation_prompt=True, err=True))
        try:
            device.change_passphrase(chosen, keeper=name)
        except BaseException:
            if name:
                forget_secret(name)
            raise
    if before:
        forget_secret(before)
    shell.screen.document({"changed": True})
    shell.screen.say("The key is in this machine's keyring now." if keyring else "The passphrase is changed.")


@device_app.command(epilog="Example: tacit device export my-device.copy")
def export(
    file: Annotated[Path, typer.Argument(help="The file to write.")],
    readable: Annotated[bool, typer.Option("--readable", help="As JSON, without encryption.")] = False,
    as_json: Json = False,
) -> None:
    """Write a copy of your device, encrypted with the same passphrase."""
    with open_device() as device:
        if readable:
            device.export_readable(file)
        else:
            device.export(file)
    shell.screen.document({"file": str(file), "encrypted": not readable})
    shell.screen.say(
        f"Written to {file}." + (" It is not encrypted: anybody who has it can read it." if readable else "")
    )


@device_app.command("import", epilog="Example: tacit device import my-device.copy")
def import_copy(
    copy: Annotated[Path, typer.Argument(help="A file that `export` wrote.")], as_json: Json = False
) -> None:
    """Restore your device from a copy. Use only one copy at a time: two would answer the same round."""
    from tacit.field.device import Device
    from tacit.field.device.copies import refuse_import

    refuse_import(copy, _path())
    Device.import_copy(copy, _path(), _passphrase()).close()
    shell.screen.document({"file": str(_path())})
    shell.screen.say(f"Your device is {_path()}.")


@device_app.command(epilog="Example: tacit device erase --yes")
def erase(
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False, as_json: Json = False
) -> None:
    """Delete everything on this device. What was sent stays in the shared model."""
    from tacit.field.device.store import refuse_if_missing

    refuse_if_missing(_path())
    if not yes:
        if not sys.stdin.isatty():
            raise ConfigError("Erasing needs a confirmation, and there is no terminal to ask for it.", "Give --yes.")
        typer.confirm(f"Delete {_path()} and everything in it?", abort=True, err=True)
    with open_device() as device:
        device.erase()
    shell.screen.document({"erased": str(_path())})
    shell.screen.say("Erased. What was sent before stays in the shared model. Exported copies still exist.")
