"""Which methods there are, read from their sources: a method's module is imported when the method is first used.

Importing every method means importing numba and all kernels, which whoever only wants their names should not wait for.
So the files of this folder are parsed, not run: a class decorated with `@register("name", Config)` is a method, the
first line of its docstring is its summary, and its kind follows from what it and its bases define. A method of another
package (an entry point in the group `tacit.methods`), or of a notebook, is known as soon as its module has run.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from tacit.errors import ConfigError, nearest

if TYPE_CHECKING:
    from tacit.types import Config

Kind: TypeAlias = Literal["centralised", "federated", "gossip"]
T = TypeVar("T", bound=type)

PACKAGE = "tacit.methods"
SOURCE = Path(__file__).parent.parent.parent  # the folder that holds `tacit`
MARKS: Mapping[str, Kind] = {"fit": "centralised", "apply": "federated", "mix": "gossip"}  # what only this kind defines
_REGISTERED: dict[tuple[str, str], tuple[type[Config], type]] = {}  # (module, name) -> options, class


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
        return self._registered()[0]

    @property
    def build(self) -> Callable[[Any], Any]:
        """What makes the method from its options."""
        return self._registered()[1]

    def _registered(self) -> tuple[type[Config], type]:
        if (self.module, self.name) not in _REGISTERED:
            import_module(self.module)
        return _REGISTERED[self.module, self.name]


def register(name: str, config: type[Config]) -> Callable[[T], T]:
    """Class decorator: make a method known under `name`, with `config` as its options."""

    def keep(cls: T) -> T:
        if kind_of(dir(cls)) is None:
            raise ConfigError(
                f"'{name}' is no method: its class {cls.__name__} has neither fit, nor apply, nor mix.",
                "A centralised method has fit, a federated one learn and apply, a gossip one learn and mix.",
            )
        _REGISTERED[cls.__module__, name] = config, cls
        return cls

    return keep


def methods() -> dict[str, Entry]:
    """Return every registered method by name: ours, and those of packages that declare `tacit.methods`."""
    _import_plugins()
    others = {}
    for (module, name), (_, cls) in _REGISTERED.items():
        kind = kind_of(dir(cls))
        if not module.startswith(f"{PACKAGE}.") and kind is not None:
            others[name] = Entry(name, kind, _first_line(cls.__doc__), module)
    return dict(sorted({**_declared(), **others}.items()))


def entry(name: str) -> Entry:
    """Return the registered method of that name."""
    known = methods()
    if name not in known:
        raise ConfigError(f"There is no method '{name}'.", nearest(name, known))
    return known[name]


def options(name: str, given: Mapping[str, Any]) -> Config:
    """Check the options of a method and fill in its defaults."""
    return entry(name).config.checked(given, where=f"method '{name}'")


def build(name: str, config: Config | None = None) -> Any:
    """Return a method ready to learn."""
    found = entry(name)
    return found.build(config if config is not None else found.config())


def kind_of(names: Iterable[str]) -> Kind | None:
    """Return the kind of a method whose class defines these names; none if it is not a method."""
    defined = set(names)
    return next((kind for mark, kind in MARKS.items() if mark in defined), None)


@cache
def _import_plugins() -> None:
    for point in entry_points(group=PACKAGE):
        point.load()


@cache
def _declared() -> dict[str, Entry]:
    """Return the methods of this folder, without importing them."""
    found = {}
    for file in sorted(Path(__file__).parent.glob("*.py")):
        if "@register(" not in file.read_text(encoding="utf-8"):
            continue
        module = f"{PACKAGE}.{file.stem}"
        for node in _tree(module).body:
            name = _registered_name(node)
            if isinstance(node, ast.ClassDef) and name is not None:
                kind = kind_of(_defined(module, node))
                if kind is None:
                    raise ConfigError(f"'{name}' is no method: {node.name} and its bases define none of {[*MARKS]}.")
                found[name] = Entry(name, kind, _first_line(ast.get_docstring(node)), module)
    return found


@cache
def _tree(module: str) -> ast.Module:
    path = SOURCE / Path(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text(encoding="utf-8"))


def _registered_name(node: ast.stmt) -> str | None:
    """Return the name in a class's `@register("name", ...)`."""
    for decorator in node.decorator_list if isinstance(node, ast.ClassDef) else ():
        match decorator:
            case ast.Call(func=ast.Name(id="register"), args=[ast.Constant(value=str(name)), *_]):
                return name
    return None


def _defined(module: str, node: ast.ClassDef) -> Iterator[str]:
    """Yield the functions that a class and its bases define, as far as the bases are of this package."""
    yield from (item.name for item in node.body if isinstance(item, ast.FunctionDef))
    for base in node.bases:
        if isinstance(base, ast.Name):
            yield from _defined_by_name(module, base.id)


def _defined_by_name(module: str, name: str) -> Iterator[str]:
    """Yield what the class of that name defines, which stands in a module or is imported into it."""
    for node in _tree(module).body:
        match node:
            case ast.ClassDef(name=found) if found == name:
                yield from _defined(module, node)
            case ast.ImportFrom(module=str(home), names=names) if home.startswith("tacit."):
                yield from (
                    item
                    for alias in names
                    if (alias.asname or alias.name) == name
                    for item in _defined_by_name(home, alias.name)
                )


def _first_line(text: str | None) -> str:
    return next(iter((text or "").strip().splitlines()), "")
