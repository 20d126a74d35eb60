"""The commands of the user of a device: `tacit device ...`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from tacit.cli import app as shell
from tacit.cli.app import Json, app
from tacit.cli.secret_input import read_names, read_secret
from tacit.errors import ConsentError, DeviceError

if TYPE_CHECKING:
    from tacit.field.device import Device, Sharing
    from tacit.field.device.device_file import DeviceFile
    from tacit.field.device.ledger import LedgerEntry

Opened = TypeVar("Opened", bound="DeviceFile")
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
    passphrase_fd: int | None = None


_place = _DevicePath()


def usual_file() -> Path:
    """Return the default path of a device."""
    given = os.environ.get(FILE)
    root = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(given) if given else Path(root) / "tacit" / "device.db"


FileOption = Annotated[Path | None, typer.Option("--file", help=f"The device's file; default: ${FILE}.")]
PassphraseFile = Annotated[
    Path | None, typer.Option(help=f"A file whose first line is the passphrase; default: ${PASSPHRASE}, or a prompt.")
]
PassphraseFd = Annotated[
    int | None, typer.Option(min=0, help="An open file descriptor whose first line is the passphrase.")
]


@device_app.callback()
def _of(
    context: typer.Context,
    file: FileOption = None,
    passphrase_file: PassphraseFile = None,
    passphrase_fd: PassphraseFd = None,
    page: Annotated[bool, typer.Option("--page", help="Open your page in the browser, on this machine only.")] = False,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port of the page; 0: any free port.")] = 0,
) -> None:
    """Your own device: your history, what you share, what was sent. With --page: in the browser."""
    choose_device(file, passphrase_file, passphrase_fd)
    if context.invoked_subcommand is not None:
        return
    if not page:
        shell.screen.say(context.get_help())
        return
    from tacit.cli.pages import device_page, need_page

    need_page()
    with open_device() as device:
        device_page(device, port)


def choose_device(file: Path | None, passphrase_file: Path | None, passphrase_fd: int | None) -> None:
    """Note which file and which passphrase the commands of this call are about."""
    _place.file, _place.passphrase_file, _place.passphrase_fd = file, passphrase_file, passphrase_fd


def given_passphrase_file() -> Path | None:
    """Return the file that was given for the passphrase, if one was."""
    return _place.passphrase_file


def device_path() -> Path:
    """Return the path of the device of this command."""
    return _place.file or usual_file()


def read_passphrase(new: bool = False) -> str:
    """Return the passphrase: from the keyring if it is there, or from a file, the environment or a prompt."""
    from tacit.field.device.vault import SHORTEST

    keeper = "" if new else keyring_name()
    if keeper:
        if _place.passphrase_file is not None or _place.passphrase_fd is not None:
            raise DeviceError("This device's key is in the keyring, not in a file.", "Omit --passphrase-file.")
        from tacit.field.device.keyring import load_secret

        return load_secret(keeper)
    asked = f"Passphrase ({SHORTEST} characters or more, best several words)" if new else "Passphrase"
    return read_secret(asked, PASSPHRASE, _place.passphrase_file, _place.passphrase_fd, confirm=new)


def keyring_name() -> str:
    """Return the name of the device's key in the keyring; empty if the device has a passphrase."""
    from tacit.field.device.store import Store

    return Store.keeper(device_path())


def open_device() -> Device:
    """Open the device of this command."""
    from tacit.field.device import Device
    from tacit.field.device.device_path import refuse_if_missing

    refuse_if_missing(device_path())
    return say_if_sitting_out(Device.open(device_path(), read_passphrase()))


def open_waiting() -> DeviceFile:
    """Open the file of this command's device, for a program that waits."""
    from tacit.field.device.device_file import DeviceFile
    from tacit.field.device.device_path import refuse_if_missing

    refuse_if_missing(device_path())
    return say_if_sitting_out(DeviceFile.open_waiting(device_path(), read_passphrase()))


def say_if_sitting_out(device: Opened) -> Opened:
    """Say that a device was restored and does not take part yet, if so."""
    until = device.participation.sits_out_until
    if until is not None:
        rounds = "the first rounds" if until < 0 else f"rounds up to {until}"
        if not shell.screen.as_json:
            text = f"This device was restored from a copy: it sits out {rounds}."
            shell.screen.err.print(text, markup=False, soft_wrap=True)
    return device


@device_app.command(epilog="Example: tacit device init")
def init(keyring: Keyring = False, as_json: Json = False) -> None:
    """Create your device: one encrypted file, and a recovery code that opens it if the passphrase is lost."""
    from tacit.field.device import Device
    from tacit.field.device.device_path import refuse_if_there
    from tacit.field.device.keyring import forget_secret, store_secret

    refuse_if_there(device_path())
    name, secret = store_secret() if keyring else ("", read_passphrase(new=True))
    try:
        with Device.create(device_path(), secret, keeper=name) as device:
            code = device.make_recovery_code()
    except BaseException:
        if name:
            forget_secret(name)
        raise
    shell.screen.document({"file": str(device_path()), "recovery_code": code})
    shell.screen.say(f"Your device is {device_path()}. It sends nothing before you join a federation.")
    if keyring:
        shell.screen.say("Its key is in this machine's keyring: without the code you can open it only on this machine.")
    say_code(code)


def say_code(code: str) -> None:
    """Print a recovery code, once."""
    shell.screen.say(
        f"Recovery code: {code}\nWrite it down and keep it apart from this machine: it is not shown again. Whoever has "
        "it and the file can open the device. To use it: tacit device passphrase --forgotten."
    )


@device_app.command(epilog='Example: tacit device share --pi 0.3 --never Bakery --never "Café Luna"')
def share(
    pi: Annotated[
        float | None, typer.Option(min=0, max=1, help="Probability that a row about an item of your history is sent.")
    ] = None,
    never: Annotated[list[str], typer.Option(help="An item or category never sent as yours; -: standard input.")] = [],  # noqa: B006
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
        for name in excluded:
            item, category = find_forbidden(name, device.catalog)
            items |= set() if item is None else {item}
            categories |= set() if category is None else {category}
        for name in again:
            item, category = find_forbidden(name, device.catalog)
            items.discard(item if item is not None else "")
            categories.discard(category or "")
        policy = sharing.device_policy
        return sharing.model_copy(
            update={
                "pi": sharing.pi if pi is None else pi,
                "never_items": tuple(sorted(items, key=str)),
                "never_categories": tuple(sorted(categories)),
                "masked_only": sharing.masked_only if masked_only is None else masked_only,
                "measure": sharing.measure if measure is None else measure,
                "device_policy": policy if least is None else policy.model_copy(update={"n_min": least}),
            }
        )

    excluded = [name for given in never for name in (read_names(Path("-")) if given == "-" else [given])]
    with open_device() as device:
        settled = device.change(decide)
        has_guarantee = device.membership is not None and device.membership.federation.privacy is not None
    shell.screen.document(settled.model_dump(mode="json"))
    drawn = (
        "It is drawn once for each item: what was kept back stays back."
        if settled.coin == "once"
        else "A round draws many rows, so a few rounds send nearly all of a short history (tacit device draw once)."
    )
    shell.screen.say(
        f"pi = {settled.pi:g}: a row about an item of your history is sent with a probability of {settled.pi:.0%}. "
        f"{drawn} --never excludes items for good."
    )
    named = [f"'{name}'" for name in (*settled.never_items, *settled.never_categories)]
    shell.screen.say(f"Never: {', '.join(named) or 'no item and no category'}")
    masks = "only in masked rounds" if settled.masked_only else "masked, or readable in rounds without masks"
    shell.screen.say(f"Messages are sent {masks}; a masked round must have {settled.device_policy.n_min} participants.")
    helps = "helps" if settled.measure and settled.pi else "does not help"
    shell.screen.say(f"This device {helps} to measure the quality of recommendations, in masked rounds only.")
    shell.screen.say("Paused: nothing is sent." if settled.paused else "Not paused.")
    if has_guarantee:
        shell.screen.say("This federation promises differential privacy whatever you share: tacit device privacy.")
    else:
        shell.screen.say(
            "These settings limit what is sent; they are no guarantee. Over many rounds a reader can still guess."
        )


@device_app.command(epilog="Example: tacit device recommend -k 5")
def recommend(
    k: Annotated[int, typer.Option("-k", min=1, max=1000, help="Length of the list.")] = 10, as_json: Json = False
) -> None:
    """Show recommendations, computed on this device. Nothing is sent."""
    with open_device() as device:
        found, is_alone = device.recommend(k), device.suggests_alone
    rows = [{"item": r.item, "title": r.title, "score": r.score, "why": r.why} for r in found]
    shell.screen.document({"recommendations": rows, "alone": is_alone})
    table = [[str(i), r.title, f"{r.score:.3f}", r.why] for i, r in enumerate(found, 1)]
    shell.screen.table("For you", ["", "item", "score", "why"], table)
    if is_alone:
        shell.screen.say(
            "There is no model yet: these follow your own history and what the catalogue says of its items."
        )


@device_app.command(epilog="Example: tacit device hide 17")
def hide(
    item: Annotated[str, typer.Argument(help="An id or a title; -: one a line from standard input.")],
    as_json: Json = False,
) -> None:
    """Never recommend this item again. What you share stays the same."""
    with open_device() as device:
        for name in read_names(Path("-")) if item == "-" else [item]:
            device.preferences.hide(name)
        hidden = device.preferences.hidden
    shell.screen.document({"hidden": hidden})
    shell.screen.say("It will not be recommended again.")


@device_app.command(epilog="Example: tacit device ledger")
def ledger(
    since: Annotated[int, typer.Option(min=0, help="Show entries after this number.")] = 0, as_json: Json = False
) -> None:
    """Show what this device has sent: when, to whom, which items, how many bytes, masked or not; and budgets spent."""
    from tacit.cli.device_privacy import describe_budget

    with open_device() as device:
        entries, member = device.ledger.list(since), device.membership
        budgets, level = device.budgets.list(), device.sharing.most_epsilon
    shell.screen.document(
        {"ledger": [entry.as_json() for entry in entries], "budgets": [budget.as_json() for budget in budgets]}
    )
    rows = [
        [
            str(entry.number),
            entry.when,
            entry.to,
            str(entry.round),
            _count_rows(entry),
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
        if entry.whole:
            named = [f"all {entry.derived} items: it is your whole model, learnt from your history"]
        elif entry.derived:
            named += [f"{entry.derived} features of yours"]
        yours = ", ".join(named) or "none of yours"
        shell.screen.say(f"Entry {entry.number} is about {yours}. To see all items of all entries, use --json.")
    for budget in budgets:
        shell.screen.say(describe_budget(budget, level))


def _count_rows(entry: LedgerEntry) -> str:
    if entry.whole:
        return f"whole model, {entry.derived} items"
    return f"{len(entry.positives) + entry.derived} yours, {len(entry.negatives) + entry.others} others"


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
