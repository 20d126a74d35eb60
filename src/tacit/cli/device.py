"""The verbs of a person whose device this is: `tacit device ...`."""

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
    invoke_without_command=True, help="Your own device: your history, what you share, what has left."
)
app.add_typer(device_app, name="device")

Keyring = Annotated[bool, typer.Option("--keyring", help="Let this machine's keyring hold the key.")]
PASSPHRASE = "TACIT_PASSPHRASE"
FILE = "TACIT_DEVICE"


@dataclass
class _DevicePath:
    """Which file the verbs speak of, and where its passphrase comes from."""

    file: Path | None = None
    passphrase_file: Path | None = None


_place = _DevicePath()


def usual_file() -> Path:
    """Return where a person's device usually lies."""
    given = os.environ.get(FILE)
    root = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(given) if given else Path(root) / "tacit" / "device.db"


@device_app.callback()
def _of(
    context: typer.Context,
    file: Annotated[Path | None, typer.Option("--file", help=f"The device's file; otherwise ${FILE}.")] = None,
    passphrase_file: Annotated[
        Path | None, typer.Option(help=f"A file whose first line is the passphrase; otherwise ${PASSPHRASE}, or asked.")
    ] = None,
    page: Annotated[bool, typer.Option("--page", help="Open your page in the browser, on this machine only.")] = False,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port of the page; 0: any free one.")] = 0,
) -> None:
    """Your own device: your history, what you share, what has left. With --page in the browser."""
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
    """Take the passphrase from the keyring, if it is there, or from the file, the environment or the terminal."""
    from tacit.field.device.vault import SHORTEST

    keeper = "" if new else _keeper()
    if keeper:
        if _place.passphrase_file is not None:
            raise DeviceError("This device's key is in the keyring, not in a file.", "Leave --passphrase-file out.")
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
        raise DeviceError("There is nobody to ask for the passphrase.", f"Set {PASSPHRASE} or give --passphrase-file.")
    asked = f"Passphrase ({SHORTEST} characters or more, best several words)" if new else "Passphrase"
    return str(typer.prompt(asked, hide_input=True, confirmation_prompt=new, err=True))


def _keeper() -> str:
    """Return under which name the keyring has the key of the device; nothing where a person knows it."""
    from tacit.field.device.store import Store

    return Store.keeper(_path())


def open_device() -> Device:
    """Open the device that the command speaks of."""
    from tacit.field.device import Device
    from tacit.field.device.store import refuse_if_missing

    refuse_if_missing(_path())
    return Device.open(_path(), _passphrase())


@device_app.command(epilog="Example: tacit device init")
def init(keyring: Keyring = False, as_json: Json = False) -> None:
    """Make your device: one encrypted file. Remember the passphrase; nobody can restore it."""
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
    shell.screen.say(f"Your device is {_path()}. Nothing leaves it before you join a federation.")
    if keyring:
        shell.screen.say("Its key is in this machine's keyring: it opens for you here, and nowhere else.")


@device_app.command(epilog='Example: tacit device share --pi 0.3 --never Bakery --never "Café Luna"')
def share(
    pi: Annotated[float | None, typer.Option(min=0, max=1, help="How often a row about what you did leaves.")] = None,
    never: Annotated[list[str], typer.Option(help="An item or a category that never leaves.")] = [],  # noqa: B006
    again: Annotated[list[str], typer.Option(help="Take an item or a category off the never list.")] = [],  # noqa: B006
    masked_only: Annotated[
        bool | None, typer.Option("--masked-only/--also-readable", help="Take part in secure sums only.")
    ] = None,
    least: Annotated[int | None, typer.Option(min=2, help="People that a secure sum must have, at least.")] = None,
    measure: Annotated[
        bool | None,
        typer.Option("--measure/--no-measure", help="Add to secure sums whether your newest item was in your list."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Decide what may leave, from the next message on; without options, show it."""
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
        f"pi = {settled.pi:g}: a row about something you did leaves {settled.pi:.0%} of the time. A round draws"
        " many: of a short history nearly everything leaves within a few rounds. --never keeps things back for good."
    )
    named = [f"'{name}'" for name in (*settled.never_items, *settled.never_categories)]
    shell.screen.say(f"Never: {', '.join(named) or 'nothing named'}")
    masks = "only under masks" if settled.masked_only else "under masks, or readable where the federation has none"
    shell.screen.say(f"Sent {masks}; a secure sum must have {settled.guards.n_min} people.")
    helps = "helps" if settled.measure and settled.pi else "does not help"
    shell.screen.say(f"This device {helps} to measure how good recommendations are, inside secure sums only.")
    shell.screen.say("Paused: nothing leaves." if settled.paused else "Not paused.")
    shell.screen.say("This is control, not a guarantee: over many rounds a reader can still guess.")


@device_app.command(epilog="Example: tacit device recommend -k 5")
def recommend(
    k: Annotated[int, typer.Option("-k", min=1, max=1000, help="How many.")] = 10, as_json: Json = False
) -> None:
    """Show what to do next, from what is on this device. Nothing is sent."""
    with open_device() as device:
        found = device.recommend(k)
    rows = [{"item": r.item, "title": r.title, "score": r.score, "why": r.why} for r in found]
    shell.screen.document({"recommendations": rows})
    table = [[str(i), r.title, f"{r.score:.3f}", r.why] for i, r in enumerate(found, 1)]
    shell.screen.table("For you", ["", "item", "score", "why"], table)


@device_app.command(epilog="Example: tacit device hide 17")
def hide(item: Annotated[str, typer.Argument(help="An id or a title.")], as_json: Json = False) -> None:
    """Say "not for me": never recommend this again. It changes nothing of what you share."""
    with open_device() as device:
        device.hide(item)
        hidden = device.hidden
    shell.screen.document({"hidden": hidden})
    shell.screen.say("It will not be recommended again.")


@device_app.command(epilog="Example: tacit device ledger")
def ledger(
    since: Annotated[int, typer.Option(min=0, help="Entries after this number.")] = 0, as_json: Json = False
) -> None:
    """Show what has left this device: when, to whom, which items, how many bytes, masked or not."""
    with open_device() as device:
        entries, member = device.ledger.list(since), device.membership
    shell.screen.document({"ledger": [entry.as_json() for entry in entries]})
    rows = [
        [
            str(entry.number),
            entry.when,
            entry.to,
            str(entry.round),
            f"{len(entry.positives)} yours, {len(entry.negatives)} others",
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
        yours = ", ".join(f"'{title}'" for title in titles) or "none of yours"
        shell.screen.say(f"Entry {entry.number} spoke of {yours}. Every item of every entry: --json.")


@device_app.command(epilog="Example: tacit device pause")
def pause(as_json: Json = False) -> None:
    """Let nothing leave until you resume. Recommendations go on working."""
    with open_device() as device:
        device.pause()
    shell.screen.document({"paused": True})
    shell.screen.say("Paused: nothing leaves this device.")


@device_app.command(epilog="Example: tacit device resume")
def resume(as_json: Json = False) -> None:
    """Let messages leave again, as you decided with `share`."""
    with open_device() as device:
        device.resume()
    shell.screen.document({"paused": False})
    shell.screen.say("Resumed.")


@device_app.command(epilog="Example: tacit device leave")
def leave(as_json: Json = False) -> None:
    """Leave the federation. History, settings and ledger stay; recommendations end; what was sent stays sent."""
    with open_device() as device:
        if device.membership is None:
            raise ConsentError("This device is in no federation: there is nothing to leave.")
        device.leave()
    shell.screen.document({"left": True})
    shell.screen.say(
        "You have left. Recommendations and titles came from the federation and went with it; your history, settings "
        "and ledger are still here. What was sent before stays in the shared model: it cannot be taken out again."
    )


@device_app.command(epilog="Example: tacit device passphrase")
def passphrase(
    new_file: Annotated[Path | None, typer.Option(help="A file whose first line is the new passphrase.")] = None,
    keyring: Keyring = False,
    as_json: Json = False,
) -> None:
    """Choose another passphrase. Copies made before still open with the old one."""
    from tacit.field.device.keyring import forget_secret, store_secret

    with open_device() as device:
        before, name = _keeper(), ""
        if keyring:
            name, chosen = store_secret()
        elif new_file is not None:
            chosen = new_file.read_text(encoding="utf-8").partition("\n")[0]
        elif not sys.stdin.isatty():
            raise DeviceError("There is nobody to ask for the new passphrase.", "Give --new-file or --keyring.")
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
    file: Annotated[Path, typer.Argument(help="The file to be written.")],
    readable: Annotated[bool, typer.Option("--readable", help="As JSON that anybody can read, you too.")] = False,
    as_json: Json = False,
) -> None:
    """Write a copy of your device, encrypted with the same passphrase."""
    with open_device() as device:
        if readable:
            device.export_readable(file)
        else:
            device.export(file)
    shell.screen.document({"file": str(file), "encrypted": not readable})
    shell.screen.say(f"Written to {file}." + (" Anybody who has it can read it." if readable else ""))


@device_app.command("import", epilog="Example: tacit device import my-device.copy")
def import_copy(
    copy: Annotated[Path, typer.Argument(help="A file that `export` wrote.")], as_json: Json = False
) -> None:
    """Make this machine's device from a copy. Use one copy at a time: two would answer the same round."""
    from tacit.field.device import Device
    from tacit.field.device.copies import refuse_import

    refuse_import(copy, _path())
    Device.import_copy(copy, _path(), _passphrase()).close()
    shell.screen.document({"file": str(_path())})
    shell.screen.say(f"Your device is {_path()}.")


@device_app.command(epilog="Example: tacit device erase --yes")
def erase(yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False, as_json: Json = False) -> None:
    """Destroy everything on this device. It cannot undo what was sent: that stays in the shared model."""
    from tacit.field.device.store import refuse_if_missing

    refuse_if_missing(_path())
    if not yes:
        if not sys.stdin.isatty():
            raise ConfigError("Erasing asks first, and there is nobody to answer.", "Give --yes.")
        typer.confirm(f"Destroy {_path()} and everything in it?", abort=True, err=True)
    with open_device() as device:
        device.erase()
    shell.screen.document({"erased": str(_path())})
    shell.screen.say("Erased. What was sent before stays in the shared model; exported copies are still copies.")
