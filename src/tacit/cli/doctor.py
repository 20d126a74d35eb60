"""`tacit doctor`: checks what is missing on this machine and how to fix it."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

NEEDED = (
    "numpy",
    "scipy",
    "numba",
    "polars",
    "pydantic",
    "pyyaml",
    "typer",
    "rich",
    "jinja2",
    "matplotlib",
    "rapidfuzz",
    "cryptography",
)
EXTRAS = (("flwr", "field"), ("starlette", "page"))
LEAST_FREE_GB = 1.0


@dataclass(frozen=True)
class Finding:
    """One check: whether it passed, what was found, how to fix it."""

    what: str
    ok: bool
    seen: str
    mend: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {"what": self.what, "ok": self.ok, "seen": self.seen, "mend": "" if self.ok else self.mend}


def examine(cache: Path, present: Callable[[], list[str]]) -> Iterator[Finding]:
    """Check Python, packages, the compiler, folders, disk and data; `present` names the datasets on this machine."""
    yield Finding(
        "Python", sys.version_info >= (3, 11), sys.version.split()[0], "Install Python 3.11 or newer and run `make`."
    )
    for name in NEEDED:
        try:
            yield Finding(name, True, version(name))
        except PackageNotFoundError:
            yield Finding(name, False, "not installed", "Run `make demo` or `pip install tacit` again.")
    for name, extra in EXTRAS:
        try:
            seen = version(name)
        except PackageNotFoundError:
            seen = f"not installed; to install it, in the folder of Tacit's source: pip install -e '.[{extra}]'"
        yield Finding(f"{name} (optional: {extra})", True, seen)
    yield _compiler()
    for what, folder in (("cache folder", cache), ("this folder", Path.cwd())):
        yield _writable(what, folder)
    free = shutil.disk_usage(Path.cwd()).free / 2**30
    yield Finding("free disk", free >= LEAST_FREE_GB, f"{free:.1f} GB", "Free some space: runs and datasets need it.")
    root = os.environ.get("TACIT_DATA")
    if root and not Path(root).is_dir():
        yield Finding("TACIT_DATA", False, f"'{root}' is not a folder", "Unset it or point it at a folder of datasets.")
        return
    yield Finding("TACIT_DATA", True, root or "not set: datasets are downloaded when first used")
    names = present()
    yield Finding("datasets here", True, ", ".join(names) or "only town, the built-in one")


def _compiler() -> Finding:
    try:
        import numpy as np

        from tacit.kernels.llvm.denormals import flushed_denormals
        from tacit.random import mix

        with flushed_denormals():
            mix(np.zeros(1, np.uint64))
    except Exception as error:
        return Finding("compiled kernels", False, f"{type(error).__name__}: {error}", "Reinstall numba and llvmlite.")
    return Finding("compiled kernels", True, "numba compiles and runs")


def _writable(what: str, folder: Path) -> Finding:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder):
            return Finding(what, True, str(folder))
    except OSError as error:
        return Finding(what, False, f"'{folder}': {error.strerror}", "Make it writable, or set TACIT_CACHE to another.")
