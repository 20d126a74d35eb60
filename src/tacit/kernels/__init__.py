"""Arrays in, arrays out: the inner loops, compiled.

Compiled code is kept on disk between runs, in a folder named after the sources of all kernels. numba itself checks only
the file of a kernel, and would use code built from an older version of the files beside it. Compiled code does the same
to the bit whether it was just compiled or comes from there (`kernels.linking`).
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numba

from tacit.kernels import compile_once, linking

FAST = {"reassoc", "contract", "nsz"}  # sums in any order, the same one every time; NaN stays NaN


def _cache_folder() -> Path:
    here = Path(__file__).parent
    sources = b"".join(file.read_bytes() for file in sorted(here.rglob("*.py")))
    name = f"kernels-{hashlib.blake2b(sources, digest_size=8).hexdigest()}"
    beside = here / "__pycache__"
    if os.access(beside if beside.is_dir() else here, os.W_OK):
        return beside / name
    home = os.environ.get("TACIT_CACHE") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "tacit" / name


linking.install()
compile_once.install()
if "NUMBA_CACHE_DIR" not in os.environ:
    numba.config.CACHE_DIR = str(_cache_folder())  # type: ignore[attr-defined]
