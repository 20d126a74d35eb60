"""Copies of a device: readable ones for the user, encrypted ones for another machine; and its end."""

from __future__ import annotations

import json
import os
import secrets
import shlex
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tacit.errors import DeviceError
from tacit.field.device.file_lock import FileLock
from tacit.field.device.history import History
from tacit.field.device.keyring import forget_secret
from tacit.field.device.ledger import Ledger
from tacit.field.device.membership import Membership
from tacit.field.device.settings import Sharing
from tacit.field.device.store import Store
from tacit.languages.sentences import Sentence
from tacit.types import Catalog, Label

HEAD = b"SQLite format 3\0"  # of any database


def readable_copy(
    history: History, sharing: Sharing, hidden: list[Label], member: Membership | None, ledger: Ledger
) -> dict[str, Any]:
    """Return the user's data as one JSON object; `titles` has the titles of items, if known."""
    entries, releases = history.list(), ledger.list()
    mentioned = (label for release in releases for label in (*release.positives, *release.negatives))
    named = dict.fromkeys([*(entry.item for entry in entries), *hidden, *sharing.never_items, *mentioned])
    titles = {} if member is None else _titles(named, member.catalog)
    return {
        "history": [
            {"item": entry.item, "title": titles.get(str(entry.item)), "when": entry.when, "value": entry.value}
            for entry in entries
        ],
        "sharing": sharing.model_dump(mode="json"),
        "hidden": hidden,
        "federation": None if member is None else member.federation.model_dump(mode="json"),
        "ledger": [release.as_json() for release in releases],
        "titles": titles,
    }


def _titles(named: Iterable[Label], catalog: Catalog) -> dict[str, str]:
    """Return the titles of items by their ids, as JSON has them."""
    places = ((label, catalog.item_ids.place(label)) for label in named)
    known = catalog.titles is not None
    return {str(label): catalog.title(place) for label, place in places if known and place is not None}


def write_readable(path: Path, value: dict[str, Any]) -> None:
    """Write the user's data as JSON into a new file that only its owner can read."""
    try:
        with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8") as file:
            json.dump(value, file, ensure_ascii=False, indent=1)
    except FileExistsError:
        raise DeviceError(Sentence("'{path}' exists already.", path=path), "Choose another name.") from None
    except OSError as error:
        raise DeviceError(
            Sentence("'{path}' cannot be written: {error}.", path=path, error=error.strerror), "Choose another place."
        ) from None


def write_copy(store: Store, path: Path) -> None:
    """Write an encrypted copy that opens with the same secrets."""
    if Store.keeper(store.path) and not store.has_recovery:
        raise DeviceError(
            "This device's key is in the keyring of this machine, so a backup could not be opened elsewhere.",
            "Make a recovery code first: tacit device recovery-code. Or set a passphrase: tacit device passphrase.",
        )
    store.copy_to(path)


def erase_device(store: Store) -> None:
    """Destroy a device's file, and then its key, where a keyring has it."""
    name = Store.keeper(store.path)
    store.erase()
    if name:
        forget_secret(name)


def refuse_restore(copy: Path, path: Path) -> None:
    """Say why a file cannot become the device at `path`, if so; it takes no passphrase to know that."""
    if not copy.is_file():
        raise DeviceError(
            Sentence("There is no file '{copy}'.", copy=copy), "Give one that `tacit device backup` wrote."
        )
    with copy.open("rb") as file:
        if file.read(len(HEAD)) != HEAD:
            raise DeviceError(
                Sentence("'{copy}' is not a backup of a device.", copy=copy),
                Sentence(
                    "To add its rows to your history: tacit device history import {path}", path=shlex.quote(str(copy))
                ),
            )
    if path.exists():
        raise DeviceError(
            Sentence("There is already a device, which was not changed: '{path}'.", path=path),
            "To restore the backup elsewhere: tacit device --file PATH restore BACKUP.",
        )


def restore_file(copy: Path, path: Path) -> None:
    """Put a backup at `path`, where nothing may be yet; the backup itself is not changed."""
    refuse_restore(copy, path)
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with os.fdopen(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
            with copy.open("rb") as source:
                shutil.copyfileobj(source, file)
            file.flush()
            os.fsync(file.fileno())
        FileLock(path).path.unlink(missing_ok=True)
        unfinished.replace(path)
    except OSError as error:
        raise DeviceError(
            Sentence("'{path}' cannot be written: {error}.", path=path, error=error.strerror), "Choose another place."
        ) from None
    finally:
        unfinished.unlink(missing_ok=True)
