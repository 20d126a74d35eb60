"""Which methods there are, read from their sources: a method's module is imported when the method is first used.

Importing every method means importing numba and all kernels, which whoever only wants their names should not wait for.
So the files of this folder are parsed, not run. A class decorated with `@register("name", Config)` is a method. The
first line of its docstring is its summary, and its kind is that of its base class in `base`. A method of another
package (an entry point in the group `tacit.methods`), or of a notebook, is known once its module has run.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from tacit.errors import ConfigError, nearest

if TYPE_CHECKING:
    from tacit.methods.base import Method
    from tacit.types import Config

Kind: TypeAlias = Literal["centralised", "federated", "gossip"]

PACKAGE = "tacit.methods"
SOURCE = Path(__file__).parent.parent.parent  # the folder that holds `tacit`
BASES: Mapping[str, Kind] = {"Centralised": "centralised", "Federated": "federated", "Gossip": "gossip"}
_REGISTERED: dict[tuple[str, str], tuple[type[Config], type[Method]]] = {}  # (module, name) -> options, class


@dataclass(frozen=True)
class Entry:
    """A registered method. Its options and its class are imported when they are asked for."""

    name: str
    kind: Kind
    summary: str
    module: str

    @property
    def config(self) -> type[Config]:
        """The class of its options."""
        return self._import_parts()[0]

    @property
    def build(self) -> Callable[[Any], Method]:
        """What makes the method from its options."""
        return self._import_parts()[1]

    def _import_parts(self) -> tuple[type[Config], type[Method]]:
        if (self.module, self.name) not in _REGISTERED:
            import_module(self.module)
        return _REGISTERED[self.module, self.name]


def remember(name: str, config: type[Config], cls: type[Method]) -> None:
    """Store a method under its name; `base.register` does so when its module runs."""
    if not cls.__module__.startswith(f"{PACKAGE}.") and name in _find_declared():
        print(f"Method '{name}' of {cls.__module__} replaces Tacit's own method of that name.", file=sys.stderr)
    _REGISTERED[cls.__module__, name] = config, cls


def methods() -> dict[str, Entry]:
    """Return every registered method by name: ours, and those of packages that declare `tacit.methods`."""
    _import_plugins()
    others = {}
    for (module, name), (_, cls) in _REGISTERED.items():
        if not module.startswith(f"{PACKAGE}."):
            others[name] = Entry(name, cls.kind, _first_line(cls.__doc__), module)
    return dict(sorted({**_find_declared(), **others}.items()))


def entry(name: str) -> Entry:
    """Return the registered method of that name."""
    known = methods()
    if name not in known:
        raise ConfigError(f"There is no method '{name}'.", nearest(name, known))
    return known[name]


def options(name: str, given: Mapping[str, Any]) -> Config:
    """Check the options of a method and fill in its defaults."""
    return entry(name).config.from_options(given, where=f"method '{name}'")


def build(name: str, config: Config | None = None) -> Method:
    """Return a method ready to learn."""
    found = entry(name)
    return found.build(config if config is not None else found.config())


def names(kind: Kind) -> list[str]:
    """Return the names of all registered methods of a kind."""
    return [name for name, found in methods().items() if found.kind == kind]


@cache
def _import_plugins() -> None:
    for point in entry_points(group=PACKAGE):
        point.load()


@cache
def _find_declared() -> dict[str, Entry]:
    """Return the methods of this folder, without importing them."""
    found = {}
    for file in sorted(Path(__file__).parent.glob("*.py")):
        if "register(" not in file.read_text(encoding="utf-8"):
            continue
        module = f"{PACKAGE}.{file.stem}"
        for node in _tree(module).body:
            name = _registered_name(node)
            if isinstance(node, ast.ClassDef) and name is not None:
                kind = _kind(module, node.name)
                if kind is None:
                    raise ConfigError(
                        f"Method '{name}': {node.name} in {module} derives from none of {', '.join(BASES)}.",
                        "Name the base class as it is imported from tacit.",
                    )
                found[name] = Entry(name, kind, _first_line(ast.get_docstring(node)), module)
    return found


@cache
def _tree(module: str) -> ast.Module:
    path = SOURCE / Path(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text(encoding="utf-8"))


def _registered_name(node: ast.stmt) -> str | None:
    """Return the name in a class's `@register("name", ...)` or `@tacit.register("name", ...)`."""
    for decorator in node.decorator_list if isinstance(node, ast.ClassDef) else ():
        match decorator:
            case ast.Call(
                func=ast.Name(id="register") | ast.Attribute(value=ast.Name(id="tacit"), attr="register"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                return name
    return None


def _kind(module: str, name: str) -> Kind | None:
    """Return the kind of a class that stands in a module or is imported into it; none if it is no method."""
    if module == f"{PACKAGE}.base":
        return BASES.get(name)
    for node in _tree(module).body:
        match node:
            case ast.ClassDef(name=found) if found == name:
                kinds = (_kind_of_base(module, base) for base in node.bases)
                return next((kind for kind in kinds if kind is not None), None)
            case ast.ImportFrom(module=str(home), names=aliases) if home.startswith("tacit."):
                for alias in aliases:
                    if (alias.asname or alias.name) == name:
                        return _kind(home, alias.name)
    return None


def _kind_of_base(module: str, base: ast.expr) -> Kind | None:
    """Return the kind of a base class, written as it was imported or as `tacit.Federated`."""
    match base:
        case ast.Name(id=name):
            return _kind(module, name)
        case ast.Attribute(value=ast.Name(id="tacit"), attr=name):
            return BASES.get(name)
    return None


def _first_line(text: str | None) -> str:
    return next(iter((text or "").strip().splitlines()), "")
