"""Write docs/options.md, the table of every option, from the classes that declare them; a test holds them together."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from tacit.config import Comparison, Experiment
from tacit.data import SplitConfig
from tacit.data.load import DataConfig
from tacit.evaluation import EvaluationConfig
from tacit.field.device.settings import Sharing
from tacit.field.serve import ServeConfig
from tacit.lab.training import RuntimeConfig
from tacit.lab.tuning import Tuning
from tacit.methods.registry import PACKAGE, methods
from tacit.privacy.clipping import ClippingConfig
from tacit.privacy.disclosure import DisclosureConfig
from tacit.privacy.dp import DPConfig
from tacit.refusals import describe_kind

PAGE = Path(__file__).parent.parent / "docs" / "options.md"
HEAD = """# Options

Every option of an experiment, a comparison, a search, a coordinator and a device. `tools/option_tables.py` writes this
page from the classes that declare the options. An experiment is a YAML file with the sections below; `--set PATH=VALUE`
sets one option on the command line, with the path in the first column. A group of options whose default is *none* is
off; `--set runtime.secure={}` turns it on with its defaults. An unknown option is refused, and the nearest known one
named.
"""
PRIVACY = """
A list of stages, each with its `name`: `privacy: [{name: disclose, pi: 0.5}, {name: clip, row: 0.1}]`. They act in this
order, between an update and the message that leaves a device.
"""
BOUNDS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


def _section(kind: Any) -> type[BaseModel] | None:
    """Return the group of options that a value may be, if it is one."""
    for arm in [kind, *get_args(kind)]:
        bare = get_args(arm)[0] if get_origin(arm) is Annotated else arm
        if isinstance(bare, type) and issubclass(bare, BaseModel):
            return bare
    return None


def _type(field: FieldInfo) -> str:
    limits = [
        f"{sign} {getattr(note, name):g}"
        for note in field.metadata
        for name, sign in BOUNDS.items()
        if getattr(note, name, None) is not None
    ]
    kind = describe_kind(field.annotation)
    return f"{kind}, {', '.join(limits)}" if limits else kind


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "*required*"
    value = field.default_factory() if field.default_factory is not None else field.default  # type: ignore[call-arg]
    if value is None or value is PydanticUndefined:
        return "*none*"
    if isinstance(value, BaseModel):
        return "*its defaults*"
    if isinstance(value, Path):
        value = str(value)
    text = json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False, default=str)
    return f"`{text if len(text) <= 60 else text[:57] + '…'}`"


def rows(config: type[BaseModel], path: str = "") -> Iterator[tuple[str, str, str, str]]:
    """Yield (option, type, default, description) of a group of options and of the groups in it."""
    for name, field in config.model_fields.items():
        inner, here = _section(field.annotation), f"{path}{name}"
        if get_origin(field.annotation) is Literal and len(get_args(field.annotation)) == 1:
            continue  # the name of a stage
        described = field.description or (_first_line(inner) if inner is not None else "")
        yield f"`{here}`", _type(field), _default(field), described
        if inner is not None and get_origin(field.annotation) is not tuple and inner.__name__ != "MethodChoice":
            yield from rows(inner, f"{here}.")


def _first_line(cls: type[Any]) -> str:
    return (cls.__doc__ or "").strip().splitlines()[0].rstrip(".")


def _table(config: type[BaseModel], path: str = "", skip: frozenset[str] = frozenset()) -> str:
    found = [row for row in rows(config, path) if row[0].strip("`").split(".")[0] not in skip]
    if not found:
        return "It has no options.\n"
    lines = [("option", "type", "default", "description"), ("---",) * 4, *found]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


def page() -> str:
    """Return the whole page."""
    sections = frozenset({"data", "split", "privacy", "runtime", "evaluation", "method", "methods"})
    parts = [HEAD, "## An experiment\n", _table(Experiment, skip=sections)]
    parts += ["## data\n", _table(DataConfig, "data."), "## split\n", _table(SplitConfig, "split.")]
    parts += ["## runtime\n", _table(RuntimeConfig, "runtime."), "## privacy\n", PRIVACY.strip() + "\n"]
    for stage in (DisclosureConfig, ClippingConfig, DPConfig):
        parts += [f"### {stage.model_fields['name'].default}\n", _first_line(stage) + ".\n", _table(stage)]
    parts += ["## evaluation\n", _table(EvaluationConfig, "evaluation.")]
    parts += ["## A comparison\n", "It has `methods` in the place of `method`, and:\n"]
    parts += [_table(Comparison, skip=sections | {"name", "seed"})]
    parts += ["## A search\n", "An experiment for `tacit tune`, and:\n"]
    parts += [_table(Tuning, skip=sections | {"name", "seed"})]
    parts += ["## method\n", "`method` is a name, or a group of options with the `name` of a method and those below.\n"]
    for name, entry in methods().items():
        if entry.module.startswith(f"{PACKAGE}."):
            parts += [f"### {name}\n", f"{entry.kind.capitalize()}. {entry.summary}\n", _table(entry.config, "method.")]
    parts += ["## A coordinator\n", "The file of `tacit serve`; see [Deploy](deploy.md).\n", _table(ServeConfig)]
    parts += ["## A device\n", "What `tacit device share` sets; see [Device](device.md).\n", _table(Sharing)]
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
