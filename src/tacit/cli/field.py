"""The commands of a deployed federation: serve and enroll for the operator, `device join` for a user."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli import app as shell
from tacit.cli.app import Json, Set, app
from tacit.cli.arguments import check_exists
from tacit.cli.device import device_app, open_device
from tacit.cli.secret_input import read_names
from tacit.errors import DeviceError, FieldError
from tacit.reasons import ReasonCode, describe_reason

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from contextlib import AbstractContextManager

    from tacit.field.coordinator import Carrier
    from tacit.field.coordinator.members import EnrolledDevice
    from tacit.field.coordinator.round_log import RoundRecord
    from tacit.field.device import Device
    from tacit.field.device.membership import Membership
    from tacit.field.serve import ServeConfig
    from tacit.reasons import RoundReason

File = Annotated[Path, typer.Argument(callback=check_exists, help="A federation in YAML; see examples/field.yaml.")]


def needs_flower() -> None:
    """Refuse the command if Flower is not installed."""
    if find_spec("flwr") is None or find_spec("httpx") is None:
        raise FieldError(
            "A deployed federation needs Flower, which is not installed.",
            "In the folder of Tacit's source, run: make field.",
        )


@app.command(epilog="Example: tacit serve examples/field.yaml")
def serve(
    file: File,
    settings: Set = [],  # noqa: B006
    page: Annotated[bool, typer.Option("--page", help="Open a page that shows the rounds as they happen.")] = False,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port of the page; 0: any free port.")] = 0,
    check: Annotated[
        bool, typer.Option("--check", help="Only say what is wrong with FILE, and what it would do.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run the coordinator of a federation: ask devices, add their answers, keep the model. A restart continues."""
    needs_flower()
    from tacit.config import read_config
    from tacit.field.json_log import log_to_stderr
    from tacit.field.operator_sentences import describe_trial
    from tacit.field.serve import ServeConfig
    from tacit.field.serve import serve as run
    from tacit.wire.status import describe_duration

    log_to_stderr()
    config = read_config(ServeConfig, file, settings)
    if check:
        _report_check(config)
        return
    done: list[RoundRecord] = []

    def started(devices: int, done: int) -> None:
        where = f"'{config.name}' at {config.listen}"
        rounds = config.rounds
        if rounds.rounds is not None and done >= rounds.rounds:
            shell.screen.say(f"{where}: all {done} rounds are done. To train on, raise rounds.rounds.")
            return
        when = f", {describe_duration(rounds.pause_seconds)} apart" if rounds.pause_seconds else ""
        much = "rounds without end" if rounds.rounds is None else f"{rounds.rounds - done} rounds"
        shell.screen.say(f"{where}: {much}{when}. They begin when {devices} devices are connected. Ctrl-C stops it.")
        if config.trial is not None:
            shell.screen.say(describe_trial(config.trial))
        if rounds.readable:
            shell.screen.say("Rounds may be readable (rounds.readable): you can then read each answer.")

    def finished(ended: RoundReason | None) -> None:
        shell.screen.say(_summary(done))
        if ended is not None:
            shell.screen.say(f"Finished. {describe_reason(ended)}")
        if config.after == "stay":
            shell.screen.say("Devices can still join and fetch the model. Ctrl-C stops it (or set after: end).")

    def report(happened: RoundRecord) -> None:
        done.append(happened)
        shell.screen.say(_in_words(happened))

    beside = _beside(config, port) if page else None
    ended: RoundReason | None = None
    try:
        with _interrupt_on_term():
            more = {} if beside is None else {"beside": beside}
            ended = run(config, report, on_start=started, on_end=finished, **more)
    except KeyboardInterrupt:
        shell.screen.say(f"Stopped; finished rounds are kept, and a restart continues. {_summary(done)}")
    document = {"rounds": [happened.public() | {"why": _why(happened)} for happened in done]}
    shell.screen.document(document | ({} if ended is None else {"finished": ended.public().as_dict()}))


def _report_check(config: ServeConfig) -> None:
    """Say what a configuration would do, without doing it."""
    from tacit.field.check import check_config

    found = check_config(config)
    change = None if found.change is None else vars(found.change)
    about = {
        "founded": found.is_founded,
        "federation": found.federation,
        "method": found.method,
        "items": found.items,
        "devices": found.devices,
    }
    shell.screen.document(about | {"needed": found.needed, "change": change, "warnings": list(found.warnings)})
    verb = "goes on with" if found.is_founded else "would found"
    shell.screen.say(f"Nothing is wrong with it. It {verb} '{config.name}': {found.method}, {found.items:,} items.")
    shell.screen.say(f"Rounds begin when {found.needed} devices are connected; {found.devices} are enrolled.")
    if change is not None:
        counts = ", ".join(f"{count} {name}" for name, count in change.items())
        shell.screen.say(f"A start publishes a changed catalogue: {counts}.")
    for warning in found.warnings:
        shell.screen.say(warning)


@contextmanager
def _interrupt_on_term() -> Iterator[None]:
    """Let SIGTERM end the coordinator as Ctrl-C does."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _summary(rounds: Sequence[RoundRecord]) -> str:
    """Return how many rounds there were, of each kind."""
    states = [happened.state for happened in rounds]
    masked = sum(happened.masked and happened.state == "finished" for happened in rounds)
    return (
        f"{states.count('finished')} rounds finished, {masked} of them masked; {states.count('abandoned')} "
        f"abandoned, {states.count('skipped')} skipped."
    )


def _in_words(happened: RoundRecord) -> str:
    """Return a sentence about a round: its outcome, whether the coordinator could read answers, and why."""
    if not happened.asked:
        return f"Round {happened.number}: {happened.state}, no device was asked. {_why(happened)}".rstrip()
    seen = "masked" if happened.masked else "each answer was readable"
    is_cut_off = happened.called_off == happened.asked
    answers = f"{happened.asked} were asked" if is_cut_off else f"{happened.answered} of {happened.asked} answered"
    return f"Round {happened.number}: {happened.state}, {answers}; {seen}. {_why(happened)}".rstrip()


def _why(happened: RoundRecord) -> str:
    """Return the reason of a round in words; with what to do only if the round did not finish."""
    if happened.reason is None:
        return ""
    description = describe_reason(happened.reason)
    return f"{description.what} {description.meaning}" if happened.state == "finished" else str(description)


def _beside(config: ServeConfig, port: int) -> Callable[[Path, Carrier], AbstractContextManager[object]]:
    """Return a function that opens the operator's page while the coordinator runs."""
    from tacit.cli.pages import need_page, open_meanwhile

    need_page()
    from tacit.web.operator import operator_page

    def beside(journal: Path, carrier: Carrier) -> AbstractContextManager[object]:
        page = operator_page(journal, config.rules, lambda: len(carrier.present()))
        return open_meanwhile(page, port, "The operator's page")

    return beside


@app.command(epilog="Example: tacit enroll examples/field.yaml")
def enroll(
    file: File,
    days: Annotated[float, typer.Option(min=0.001, max=365, help="Days that the invitation is valid.")] = 7.0,
    revoke: Annotated[int | None, typer.Option(help="Number of a device that is not asked again.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="Show the numbers of the enrolled devices.")] = False,
    witness: Annotated[bool, typer.Option("--witness", help="Make the line for the witness of the directory.")] = False,
    settings: Set = [],  # noqa: B006
    as_json: Json = False,
) -> None:
    """Make a one-line invitation for one device, or revoke a device."""
    needs_flower()
    from tacit.config import read_config
    from tacit.field.coordinator.round_policy import count_new
    from tacit.field.serve import ServeConfig, make_invitation, make_witness_line
    from tacit.field.serve import open_federation as federation_of

    config = read_config(ServeConfig, file, settings)
    journal = federation_of(config)
    try:
        if revoke is not None:
            if not journal.members.revoke(revoke):
                raise FieldError(f"There is no device {revoke}.", "List the devices with --list.")
            shell.screen.document({"revoked": revoke})
            shell.screen.say(f"Device {revoke} is revoked: it is not asked again.")
        elif witness:
            line = make_witness_line(config, journal)
            shell.screen.document({"witness": line})
            shell.screen.say(line)
        elif listed:
            known = journal.members.devices()
            new, needed = count_new(config.rules, journal)
            waiting = {"new": new, "new_missing": max(0, needed - new) if new else 0}
            shell.screen.document({"devices": [_describe_device(device) for device in known], **waiting})
            shell.screen.table("", ["device", ""], [[str(device.number), _state_of(device)] for device in known])
            if waiting["new_missing"]:
                missing = waiting["new_missing"]
                shell.screen.say(f"In no batch yet: {new}. They wait until {needed} are connected; {missing} missing.")
        else:
            line = make_invitation(config, journal, days)
            shell.screen.document({"invitation": line, "days": days})
            shell.screen.say(line)
    finally:
        journal.close()


def _describe_device(device: EnrolledDevice) -> dict[str, int | bool | None]:
    """Return a device for programs of the operator: its batch, and since when that waits for it."""
    waiting = {"batch": device.batch or None, "stays": device.stays, "missing_since": device.missing or None}
    return {"device": device.number, "revoked": device.revoked, **waiting}


def _state_of(device: EnrolledDevice) -> str:
    if device.revoked:
        return "revoked"
    if device.missing:
        return f"missed by its batch since {datetime.fromtimestamp(device.missing, UTC):%Y-%m-%d %H:%M} UTC"
    return ""


@device_app.command(epilog="Example: tacit device join tacit1:eyJh...")
def join(
    invitation: Annotated[
        str, typer.Argument(help="A file with the invitation that you received, - for standard input, or itself.")
    ],
    readable: Annotated[
        bool, typer.Option("--also-readable", help="Also send where the coordinator can read each answer.")
    ] = False,
    trial: Annotated[
        bool, typer.Option("--trial", help="Agree to a trial, in which a sum hides you among fewer people.")
    ] = False,
    without_guarantee: Annotated[
        bool, typer.Option("--without-guarantee", help="Agree that nothing bounds what sums tell of you over time.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Become a member of a federation. Joining sends nothing of your history; check `share` first."""
    from tacit.field.operator_sentences import describe_trial

    if invitation == "-":
        invitation = "".join(read_names(Path("-")))
    answers = {ReasonCode.TRIAL: trial, ReasonCode.NO_GUARANTEE: without_guarantee}
    accepts = {question for question, is_yes in answers.items() if is_yes}
    with open_device() as device:
        path = Path(invitation)
        if len(invitation) < 200 and path.is_file():
            content = path.read_bytes()
            if content.startswith(b"TCIT"):
                member = device.join(content, accepts=accepts)
            else:
                member = _accept_invitation(device, content.decode(errors="replace"), accepts)
        elif not invitation.startswith("tacit1:"):
            raise DeviceError(
                f"'{invitation[:60]}' is neither an invitation nor a file.", "Copy the whole line, from 'tacit1:' on."
            )
        else:
            member = _accept_invitation(device, invitation, accepts)
        if readable:
            device.change(lambda before: before.model_copy(update={"masked_only": False}))
        federation, sharing, trust = member.federation, device.sharing, device.directory.describe_trust(device.sharing)
    shell.screen.document(
        {"federation": federation.title, "method": federation.method, "items": member.catalog.n_items}
    )
    shell.screen.say(f"You are a member of {federation.title}: {federation.method}, {member.catalog.n_items:,} items.")
    if federation.privacy is not None:
        shell.screen.say(
            f"It promises differential privacy: epsilon {federation.privacy.epsilon:g}, delta "
            f"{federation.privacy.delta:g}. Your own level is {sharing.privacy}: tacit device privacy."
        )
        if federation.privacy.epsilon > sharing.most_epsilon:
            shell.screen.say(
                f"Your level is lower (epsilon {sharing.most_epsilon:g}): your device sends nothing beyond it, perhaps "
                "nothing at all."
            )
    if federation.trial is not None:
        shell.screen.say(describe_trial(federation.trial))
    elif federation.privacy is None:
        shell.screen.say("It has no guarantee: over time, sums tell some of your history, and nothing bounds how much.")
    if sharing.masked_only:
        shell.screen.say("You send in masked rounds only: the coordinator reads sums of many, no single answer.")
        shell.screen.say(trust)
    else:
        shell.screen.say("You also send in readable rounds, where the coordinator can read each answer.")
    shell.screen.say(f"You share with pi = {sharing.pi:g}. Change it with `tacit device share --pi ... --never ...`.")


def _accept_invitation(device: Device, line: str, accepts: Collection[ReasonCode]) -> Membership:
    needs_flower()
    from tacit.field.invitations import Invitation, accept

    return accept(device, Invitation.parse(line), accepts)
