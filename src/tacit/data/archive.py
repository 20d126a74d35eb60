"""Official files, wherever they are: plain, gzipped, or inside a zip or tar archive of a folder."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, cast

from tacit.errors import DataError

_BLOCK = 1 << 26


@dataclass(frozen=True)
class Member:
    """One official file: where it is, and its name inside an archive."""

    path: Path
    inside: str | None = None

    def __str__(self) -> str:
        return f"{self.path}" if self.inside is None else f"{self.path}:{self.inside}"

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Yield the bytes of the file, unpacked."""
        try:
            if self.inside is None and self.path.name.endswith(".gz"):
                with gzip.open(self.path) as packed:
                    yield cast(IO[bytes], packed)
            elif self.inside is None:
                with self.path.open("rb") as plain:
                    yield plain
            elif zipfile.is_zipfile(self.path):
                with zipfile.ZipFile(self.path) as archive, archive.open(self.inside) as member:
                    yield member
            else:
                with tarfile.open(self.path) as tar:
                    found = tar.extractfile(self.inside)
                    yield found if found is not None else io.BytesIO()
        except (OSError, EOFError, zipfile.BadZipFile, tarfile.TarError) as error:
            raise DataError(f"{self}: cannot be read ({error}).", "Fetch the file again.") from None

    def read(self) -> bytes:
        """Return all bytes."""
        with self.open() as handle:
            return handle.read()

    def blocks(self, size: int = _BLOCK) -> Iterator[tuple[int, bytes]]:
        """Yield (lines before it, bytes) of blocks that end at a line's end, so that large files need little memory."""
        with self.open() as handle:
            before, rest = 0, b""
            while block := handle.read(size):
                cut = block.rfind(b"\n") + 1
                if cut == 0:
                    rest += block
                    continue
                whole = rest + block[:cut]
                yield before, whole
                before, rest = before + whole.count(b"\n"), block[cut:]
            if rest:
                yield before, rest


def find_member(folder: Path, name: str) -> Member | None:
    """Return the official file of that name in a folder: itself, gzipped, one folder deeper, or inside an archive."""
    if not folder.is_dir():
        return None
    inner = sorted(path for path in folder.iterdir() if path.is_dir())
    for place in (folder, *inner):
        for candidate in (place / name, place / f"{name}.gz"):
            if candidate.is_file():
                return Member(candidate)
    for place in (folder, *inner):
        for path in sorted(place.iterdir()):
            if path.is_file() and path.name.lower().endswith((".zip", ".tar", ".tar.gz", ".tgz")):
                inside = _inside(path, name)
                if inside is not None:
                    return Member(path, inside)
    return None


def require_member(folder: Path, name: str) -> Member:
    """Return an official file, or say that it is missing."""
    found = find_member(folder, name)
    if found is None:
        raise DataError(f"{folder}: the official file {name} is missing (plain, .gz, or inside a .zip or .tar.gz).")
    return found


def _inside(path: Path, name: str) -> str | None:
    try:
        if path.name.lower().endswith(".zip"):
            with zipfile.ZipFile(path) as archive:
                names = archive.namelist()
        else:
            with tarfile.open(path) as tar:
                names = tar.getnames()
    except (OSError, EOFError, zipfile.BadZipFile, tarfile.TarError) as error:
        raise DataError(f"{path}: not a readable archive ({error}).", "Remove it and fetch it again.") from None
    return next((n for n in names if PurePosixPath(n).name == name and "__MACOSX" not in n), None)
