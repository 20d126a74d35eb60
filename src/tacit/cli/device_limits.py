"""`tacit device limits`: when this device takes part at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli import app as shell
from tacit.cli.app import Json
from tacit.cli.device import device_app, open_device
from tacit.errors import ConfigError

if TYPE_CHECKING:
    from tacit.field.device import Sharing
    from tacit.field.device.limits import TimeLimits

MB = 1_000_000
ALL = "all"


@device_app.command(epilog="Example: tacit device limits --rounds-per-day 4 --hours 22-7")
def limits(
    rounds_per_day: Annotated[
        int | None, typer.Option(min=-1, help="Most rounds in 24 hours; -1: without limit.")
    ] = None,
    megabytes_per_day: Annotated[
        float | None, typer.Option("--mb-per-day", min=-1, help="Most megabytes in 24 hours; -1: without limit.")
    ] = None,
    hours: Annotated[str | None, typer.Option(help=f"Hours of the day, local time, like 22-7; '{ALL}': all.")] = None,
    pause_minutes: Annotated[int | None, typer.Option(min=0, help="Least minutes between two rounds.")] = None,
    mains_only: Annotated[
        bool | None, typer.Option("--mains-only/--also-on-battery", help="Only on mains power, if this system tells.")
    ] = None,
    unmetered_only: Annotated[
        bool | None,
        typer.Option("--unmetered-only/--also-metered", help="Only on unmetered networks, if this system tells."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Set when this device takes part, by its own clock; without options, show it. A begun round is finished."""
    from pydantic import ValidationError

    from tacit.field.device.limits import TimeLimits, is_on_mains
    from tacit.field.device.metered import is_metered

    if mains_only and is_on_mains() is None:
        raise ConfigError("This system does not tell whether it is on mains power.", "Leave --mains-only out.")
    if unmetered_only and is_metered() is None:
        raise ConfigError("This system does not tell whether its connection is metered.", "Leave --unmetered-only out.")

    def decide(sharing: Sharing) -> Sharing:
        before = sharing.limits
        n_bytes = None if megabytes_per_day is None else round(megabytes_per_day * MB)
        given = {
            "rounds_per_day": _choose(rounds_per_day, before.rounds_per_day),
            "bytes_per_day": _choose(n_bytes, before.bytes_per_day),
            "hours": before.hours if hours is None else hours.replace(ALL, ""),
            "pause_minutes": before.pause_minutes if pause_minutes is None else pause_minutes,
            "mains_only": before.mains_only if mains_only is None else mains_only,
            "unmetered_only": before.unmetered_only if unmetered_only is None else unmetered_only,
        }
        try:
            return sharing.model_copy(update={"limits": TimeLimits.model_validate(given)})
        except ValidationError as error:
            raise ConfigError(f"{error.errors()[0]['msg']}.", "See tacit device limits --help.") from None

    with open_device() as device:
        settled = device.change(decide).limits
        obstacle = device.participation.find_obstacle(device.sharing)
    shell.screen.document(
        {**settled.model_dump(mode="json"), "resting": None if obstacle is None else str(obstacle.code)}
    )
    for sentence in describe_limits(settled):
        shell.screen.say(sentence)
    if obstacle is not None:
        shell.screen.say(f"Now: {obstacle.message}")


def _choose(given: int | None, before: int | None) -> int | None:
    """Return what holds from now on; a negative number takes a limit away."""
    return before if given is None else None if given < 0 else given


def describe_limits(limits: TimeLimits) -> list[str]:
    """Return the limits in words."""
    sentences = []
    if limits.rounds_per_day is not None:
        sentences.append(f"At most {limits.rounds_per_day} rounds in 24 hours.")
    if limits.bytes_per_day is not None:
        sentences.append(f"At most {limits.bytes_per_day / MB:g} MB in 24 hours, received and sent.")
    if limits.hours:
        sentences.append(f"Only from {limits.hours.replace('-', ' to ')} o'clock, local time.")
    if limits.pause_minutes:
        sentences.append(f"At least {limits.pause_minutes} minutes between two rounds.")
    if limits.mains_only:
        sentences.append("Only on mains power.")
    if limits.unmetered_only:
        sentences.append("Only on unmetered networks.")
    return sentences or ["This device takes part at any time, as often as it is asked."]
