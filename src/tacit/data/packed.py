"""Tables that come packed: JSON lines, and one table in a zip archive."""

from __future__ import annotations

import gzip
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl

from tacit.errors import DataError

MOST_UNZIPPED = 8 << 30  # bytes: an archive that would unpack to more is refused


def read_json_lines(path: Path) -> pl.DataFrame:
    """Read one JSON object a line; a list in a field (categories) becomes text joined by '|'."""
    content = gzip.decompress(path.read_bytes()) if path.name.lower().endswith(".gz") else path
    frame = pl.read_ndjson(content, infer_schema_length=None)
    lists = [name for name, kind in frame.schema.items() if kind == pl.List(pl.String)]
    return frame.with_columns(pl.col(lists).list.join("|"))


@contextmanager
def unzip_table(path: Path, is_readable: Callable[[Path], bool]) -> Iterator[Path]:
    """Unpack the one readable file of an archive into a folder that is removed afterwards."""
    try:
        with zipfile.ZipFile(path) as archive, tempfile.TemporaryDirectory(prefix="tacit-") as folder:
            found = [
                one
                for one in archive.infolist()
                if not one.is_dir()
                and is_readable(Path(one.filename))
                and not Path(one.filename).name.startswith((".", "_"))
                and not one.filename.startswith("__MACOSX")
            ]
            if len(found) != 1:
                names = ", ".join(one.filename for one in found[:5]) or "none"
                raise DataError(
                    f"{path}: one table is needed in the archive; there are {len(found)} ({names}).",
                    "Unpack it and give the file, or the folder.",
                )
            if found[0].file_size > MOST_UNZIPPED:
                raise DataError(f"{path}: it unpacks to {found[0].file_size / 2**30:.0f} GB.", "Unpack it yourself.")
            inside = Path(folder) / Path(found[0].filename).name
            with archive.open(found[0]) as packed, inside.open("wb") as file:
                shutil.copyfileobj(packed, file)
            yield inside
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError, zlib.error) as error:  # also with a password
        raise DataError(f"{path}: cannot be unpacked ({first_line(error)}).", "Unpack it yourself.") from None


def first_line(error: BaseException) -> str:
    """Return the first line of what an error says."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
