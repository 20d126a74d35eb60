"""The folder of a coordinator: one program at a time runs rounds with it; backup and restore."""

from __future__ import annotations

import io
import os
import sqlite3
import tarfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path, PurePosixPath

from tacit.errors import FieldError, StorageError
from tacit.field.coordinator import CoordinatorJournal
from tacit.locks import lock_file

JOURNAL, TLS = "journal.db", "tls"
SECONDS_PER_ROUND = 10.0  # rounds are seldom faster: so many numbers are left out after a restore
SPARE_ROUNDS = 10
MOST_SKIPPED = 10_000_000


@contextmanager
def hold_folder(folder: Path) -> Iterator[None]:
    """Keep other coordinators, roll-backs and restores out while rounds run or files change."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = os.open(folder / "serving.lock", os.O_CREAT | os.O_RDWR | getattr(os, "O_CLOEXEC", 0), 0o600)
    try:
        try:
            lock_file(file)
        except OSError:
            raise FieldError(
                f"Another program works with '{folder}': only one coordinator runs a federation at a time.",
                "Stop it first (Ctrl-C there, or systemctl stop), then try again.",
            ) from None
        yield
    finally:
        os.close(file)


def find_journal(folder: Path) -> Path:
    """Return the journal of a federation that was founded; where none was, nothing is made."""
    journal = folder / JOURNAL
    if not journal.is_file():
        raise StorageError(f"There is no journal '{journal}'.", "Start the coordinator first: tacit serve.")
    return journal


def write_backup(folder: Path, to: Path) -> int:
    """Write journal and certificates into one file, also while rounds run; return its bytes."""
    journal = find_journal(folder)
    unfinished = to.with_name(f".{to.name}.part")
    try:
        with tarfile.open(unfinished, "x:gz", format=tarfile.PAX_FORMAT) as archive:
            _add(archive, JOURNAL, _copy_database(journal))
            for path in sorted((folder / TLS).glob("*")):
                _add(archive, f"{TLS}/{path.name}", path.read_bytes())
        unfinished.chmod(0o600)
        if to.exists():
            raise StorageError(f"'{to}' exists already.", "Choose another name: a backup replaces no file.")
        unfinished.replace(to)
    except OSError as error:
        raise StorageError(f"'{to}' cannot be written: {error.strerror or error}.", "Choose another place.") from None
    finally:
        unfinished.unlink(missing_ok=True)
    return to.stat().st_size


def restore_backup(copy: Path, folder: Path, now: float | None = None) -> CoordinatorJournal:
    """Put a backup into a folder without a journal. Numbers of rounds that may have been used since are left out.

    Devices answer no round twice: without that, the coordinator would ask in vain until its numbers pass theirs.
    """
    if (folder / JOURNAL).exists():
        raise StorageError(f"There is a journal in '{folder}' already.", "Move it away first: nothing is replaced.")
    files = _read_backup(copy)
    with hold_folder(folder):
        try:
            for name, content in files.items():
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                path.touch(0o600)
                path.write_bytes(content)
            journal = CoordinatorJournal.open(folder / JOURNAL)
            moment = time.time() if now is None else now
            away = max(0.0, moment - (journal.rounds.last_time or moment))
            journal.rounds.skip(min(MOST_SKIPPED, SPARE_ROUNDS + int(away / SECONDS_PER_ROUND)))
        except BaseException:
            (folder / JOURNAL).unlink(missing_ok=True)
            raise
    return journal


def _read_backup(copy: Path) -> dict[str, bytes]:
    try:
        with tarfile.open(copy, "r:gz") as archive:
            found = {member.name: member for member in archive.getmembers() if member.isfile()}
            for name in found:
                parts = PurePosixPath(name).parts
                if name != JOURNAL and (len(parts) != 2 or parts[0] != TLS or parts[1] in ("", ".", "..")):
                    raise StorageError(f"'{copy}' is no backup of a coordinator: it holds '{name}'.", "Choose another.")
            if JOURNAL not in found:
                raise StorageError(f"'{copy}' is no backup of a coordinator: it has no journal.", "Choose another.")
            return {name: _content(archive, member) for name, member in found.items()}
    except (OSError, tarfile.TarError, EOFError) as error:
        raise StorageError(f"'{copy}' cannot be read: {error}.", "Choose another copy.") from None


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    return b"" if file is None else file.read()


def _copy_database(path: Path) -> bytes:
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(":memory:")) as target:
        source.backup(target)
        return target.serialize()


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    about = tarfile.TarInfo(name)
    about.size, about.mode, about.mtime = len(content), 0o600, int(time.time())
    archive.addfile(about, io.BytesIO(content))
