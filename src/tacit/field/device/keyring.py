"""The system's keyring instead of a passphrase: a random secret that the user's login unlocks.

The secret takes the place of the passphrase and never stands in the device's file; the file says only under which name
the keyring has it. How well it is protected there depends on the keyring: as a rule, as well as the user's login.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tacit.errors import DeviceError
from tacit.languages.sentences import Sentence

SERVICE = "tacit device"
INSTEAD = "Or use a passphrase: leave --keyring out."
UNLOCK = "The key of this device is in that keyring: unlock it, as the user who made the device."


def store_secret() -> tuple[str, str]:
    """Draw a secret, give it to the keyring, and return the name that it has there, and the secret."""
    name, secret = secrets.token_hex(16), secrets.token_urlsafe(32)
    with _complaints() as keyring:
        if 0 < keyring.get_keyring().priority < 1:  # as a file in the clear has; none at all has 0 or less
            raise DeviceError("This machine's keyring does not protect its content.", INSTEAD)
        keyring.set_password(SERVICE, name, secret)
        is_kept = keyring.get_password(SERVICE, name) == secret
    if not is_kept:
        raise DeviceError("This machine's keyring does not store its content.", INSTEAD)
    return name, secret


def load_secret(name: str) -> str:
    """Return a secret from the keyring."""
    with _complaints(UNLOCK) as keyring:
        found = keyring.get_password(SERVICE, name)
    if found is None:
        raise DeviceError(
            "This machine's keyring does not hold the key of this device.",
            "Open the device on the machine and account where it was made. Without the key it cannot be opened.",
        )
    return str(found)


def forget_secret(name: str) -> None:
    """Take a secret out of the keyring, if it is there."""
    with _complaints() as keyring:
        if keyring.get_password(SERVICE, name) is not None:
            keyring.delete_password(SERVICE, name)


@contextmanager
def _complaints(instead: str = INSTEAD) -> Iterator[Any]:
    """Hand out the keyring; whatever is wrong with it becomes a DeviceError."""
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError:
        raise DeviceError(
            "The keyring needs a package that is not installed.",
            Sentence("In the folder of Tacit's source, run: make field. {instead}", instead=instead),
        ) from None
    try:
        yield keyring
    except KeyringError as error:
        why = (str(error).splitlines() or [""])[0].rstrip(".") or type(error).__name__
        raise DeviceError(Sentence("This machine's keyring cannot be used: {why}.", why=why), instead) from None
