"""Whether there is a device at a path: said before a passphrase is asked for, which would be in vain."""

from __future__ import annotations

from pathlib import Path

from tacit.errors import DeviceError


def refuse_if_missing(path: Path) -> None:
    """Say that there is no device, if so: so no passphrase is asked for in vain."""
    if not path.is_file():
        raise DeviceError(f"There is no device '{path}'.", "Make one with `tacit device init`.")


def refuse_if_there(path: Path) -> None:
    """Say that there is a device already, if so: so no passphrase is asked for in vain."""
    if path.exists():
        raise already_there(path)


def already_there(path: Path) -> DeviceError:
    """Return the error of a place that is taken."""
    return DeviceError(
        f"There is already a device: '{path}'.",
        "Use it, erase it first, or choose another: tacit device --file OTHER init.",
    )
