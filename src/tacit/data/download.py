"""Fetching official files: resumed when cut, checked before they count, never half-written in the cache."""

from __future__ import annotations

import errno
import hashlib
import http.client
import os
import shutil
import sys
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tacit.errors import DownloadError

DownloadProgress = Callable[[int, int | None], None]
"""Called with bytes so far and bytes in all, None where the server does not say."""

_BLOCK = 1 << 18
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True)
class Remote:
    """An official file: its address, the name it is stored under, and what it must hash to."""

    url: str
    name: str
    checksum: str = ""  # 'md5:...' or 'sha256:...'; empty where none is published
    size: int | None = None


def cache_folder() -> Path:
    """Return where fetched datasets are stored: TACIT_CACHE, or the platform's folder for caches."""
    if own := os.environ.get("TACIT_CACHE"):
        return Path(own).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", str(Path.home() / "AppData/Local"))) / "tacit"
    if sys.platform == "darwin":
        return Path.home() / "Library/Caches/tacit"
    return Path(os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))) / "tacit"


def download(
    remote: Remote, folder: Path, progress: DownloadProgress | None = None, timeout: float = 30.0, attempts: int = 4
) -> Path:
    """Fetch one file into a folder and return its path; a file that is already there is not fetched again.

    Where no checksum is published, that of the first download is stored beside the file and later ones must agree.
    """
    target = folder / remote.name
    if target.is_file():
        return target
    part = folder / f"{remote.name}.part"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(part, remote):
            if not remote.checksum:
                part.unlink(missing_ok=True)  # without a checksum it is not known that the two halves belong together
            _fetch(remote, part, progress, timeout, attempts)
            _check(remote, part)
            part.replace(target)
    except OSError as error:
        if error.errno in _FULL:
            part.unlink(missing_ok=True)
            free = shutil.disk_usage(folder).free if folder.exists() else 0
            raise DownloadError(
                f"The disk is full: {remote.name} cannot be stored in {folder} ({_megabytes(free)} free).",
                "Free some space, or set TACIT_CACHE to a folder on a larger disk.",
            ) from None
        raise DownloadError(
            f"{remote.name} cannot be stored in {folder} ({error.strerror or error}).",
            "Set TACIT_CACHE to a folder you may write to.",
        ) from None
    return target


def _fetch(remote: Remote, part: Path, progress: DownloadProgress | None, timeout: float, attempts: int) -> None:
    trouble = ""
    for _ in range(attempts):
        before = part.stat().st_size if part.exists() else 0
        try:
            if _receive(remote, part, progress, timeout):
                return
            trouble = "the connection was cut"
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 416:  # what we have is at least as long as the file: only the checksum can tell
                    return
                if error.code < 500:
                    raise DownloadError(
                        f"{remote.url} answers {error.code} ({error.reason}).", "It may have moved: see its home page."
                    ) from None
                trouble = f"the server answers {error.code}"
        except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
            trouble = str(getattr(error, "reason", error)) or type(error).__name__
            if not part.exists() or part.stat().st_size == before:
                break  # not even a first byte: no network, so trying again at once is of no use
    raise DownloadError(
        f"{remote.url} cannot be fetched: {trouble}.",
        "Check the network and run it again: the download continues. Or put the file into the folder "
        "that TACIT_DATA names.",
    )


def _receive(remote: Remote, part: Path, progress: DownloadProgress | None, timeout: float) -> bool:
    """Receive what is missing; return whether the file is complete."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(remote.url, headers={"User-Agent": "tacit", "Accept-Encoding": "identity"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    with urllib.request.urlopen(request, timeout=timeout) as response:
        if response.status != 206:
            have = 0  # the server sends all of it
        length = response.headers.get("Content-Length")
        total = have + int(length) if length is not None else remote.size
        _room_for(part.parent, (total or 0) - have)
        with part.open("r+b" if have else "wb") as file:
            file.seek(have)
            while block := response.read(_BLOCK):
                file.write(block)
                have += len(block)
                if progress is not None:
                    progress(have, total)
            file.flush()
            os.fsync(file.fileno())
    return total is None or have >= total


def _room_for(folder: Path, size: int) -> None:
    if shutil.disk_usage(folder).free < size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _check(remote: Remote, part: Path) -> None:
    """Hash the whole file and compare; remove it if it is not what it should be."""
    kept = part.with_name(f"{remote.name}.sha256")
    expected = remote.checksum or (f"sha256:{kept.read_text().strip()}" if kept.exists() else "")
    kind = expected.split(":")[0] or "sha256"
    with part.open("rb") as file:
        seen = hashlib.file_digest(file, kind).hexdigest()
    if expected and seen != expected.split(":")[1].lower():
        part.unlink()
        raise DownloadError(
            f"{remote.name} has the wrong checksum: expected {expected}, got {kind}:{seen}. It was removed.",
            "Fetch it again; if that does not help, the publisher changed the file.",
        )
    if not expected:
        if not _is_archive(part, remote.name):
            part.unlink()
            raise DownloadError(
                f"{remote.url} did not send an archive, probably a web page. It was removed.",
                "Fetch it with a browser and put it into the folder that TACIT_DATA names.",
            )
        kept.write_text(seen + "\n")


def _is_archive(path: Path, name: str) -> bool:
    """Return whether a file begins as its name says it should."""
    if name.endswith(".zip"):
        return zipfile.is_zipfile(path)
    with path.open("rb") as file:
        head = file.read(15)
    return (
        head.startswith(b"\x1f\x8b") if name.endswith(".gz") else not head.lower().startswith((b"<!doctype", b"<html"))
    )


@contextmanager
def _alone(part: Path, remote: Remote) -> Iterator[None]:
    """Keep other processes from writing the same file, where the platform has such locks."""
    lock: IO[bytes]
    path = part.with_suffix(".lock")
    with path.open("wb") as lock:
        try:
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:
            pass
        except BlockingIOError:
            raise DownloadError(
                f"{remote.name} is being fetched by another process.", "Wait until it has finished."
            ) from None
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"
