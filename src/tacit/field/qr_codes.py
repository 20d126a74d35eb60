"""Invitations as QR codes, for paper and phones: the same line, as one SVG file each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tacit.errors import FieldError, StorageError
from tacit.wire.catalogue import digest_of

MODULE = 4  # points of an SVG for each square


def prepare_folder(folder: Path) -> None:
    """Make the folder, and see that codes can be made, before any invitation is."""
    try:
        import segno  # noqa: F401

        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except ModuleNotFoundError:
        raise FieldError(
            "QR codes need the package 'segno', which is not installed.",
            "In the folder of Tacit's source, run: make field. Or leave --qr out.",
        ) from None
    except OSError as error:
        raise StorageError(f"'{folder}' cannot be made: {error.strerror}.", "Choose another folder.") from None


def code_files(lines: Sequence[str], folder: Path) -> list[Path]:
    """Return where the code of each line is written: a name by a digest, which does not reveal the line."""
    return [folder / f"invitation-{digest_of(line.encode())[:8]}.svg" for line in lines]


def write_codes(lines: Sequence[str], folder: Path) -> None:
    """Write each line as a QR code, for the owner of the folder alone."""
    import segno

    for line, file in zip(lines, code_files(lines, folder), strict=True):
        try:
            file.touch(0o600)
            file.chmod(0o600)  # of a file that was there
            segno.make_qr(line, error="l", boost_error=False).save(str(file), scale=MODULE)
        except segno.DataOverflowError:
            raise FieldError(
                "The invitation is too long for a QR code.", "Use a certificate that machines trust."
            ) from None
        except OSError as error:
            raise StorageError(
                f"'{file}' cannot be written: {error.strerror}.", "The invitations hold all the same."
            ) from None
