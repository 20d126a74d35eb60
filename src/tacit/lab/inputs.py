"""What decides a run beside its options, its data and Tacit: the code of an own method, and files that options name."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tacit.methods.choice import MethodChoice
from tacit.types import Config

KNOWN = {"tacit", "pydantic", *sys.stdlib_module_names}  # Tacit's sources are in `WorkerIdentity`


def digest_inputs(method: MethodChoice, stages: Sequence[Config]) -> str | None:
    """Return a digest of own code and of files that options name; none if the file of that code is not known."""
    options = method.options
    code = _digest_code(type(method.build()), type(options))
    if code is None:
        return None
    found = hashlib.blake2b(code.encode(), digest_size=16)
    chosen = [one.model_dump(mode="json") for one in (options, *stages)]
    for path in sorted(set(_find_paths(chosen))):
        for file in [path] if path.is_file() else sorted(one for one in path.rglob("*") if one.is_file()):
            _add_file(found, file)
    return found.hexdigest()


@cache  # by class, as Python keeps code that it has read
def _digest_code(*classes: type) -> str | None:
    """Return a digest of the modules of classes and their bases, of a package that of the whole package."""
    found = hashlib.blake2b(digest_size=16)
    for name in sorted({base.__module__ for cls in classes for base in cls.__mro__}):
        package = name.partition(".")[0]
        if package in KNOWN:
            continue
        file = getattr(sys.modules.get(package), "__file__", None)
        if package in ("__main__", "__mp_main__") or file is None:  # a script can be another with each call
            return None
        path = Path(file)
        for source in sorted(path.parent.rglob("*.py")) if path.name == "__init__.py" else [path]:
            _add_file(found, source)
    return found.hexdigest()


def _find_paths(value: Any) -> Iterator[Path]:
    """Yield the files and folders that an option names."""
    if isinstance(value, Mapping | list):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _find_paths(inner)
    elif isinstance(value, str) and value:
        try:
            if Path(value).exists():
                yield Path(value)
        except (OSError, ValueError):  # too long for a name, or no text of one
            return


def _add_file(digest: hashlib.blake2b, path: Path) -> None:
    try:
        content = hashlib.blake2b(path.read_bytes()).hexdigest()
    except OSError as error:  # the run says so where it reads it
        content = str(error)
    digest.update(f"{path} {content}\n".encode("utf-8", "surrogatepass"))
