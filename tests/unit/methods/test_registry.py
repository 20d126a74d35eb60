"""The registry reads sources; what it reads is what the modules say when they run."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tacit.errors import ConfigError
from tacit.methods import registry
from tacit.methods.base import Centralised, Federated, Gossip, register
from tacit.types import Config

KINDS = {"centralised": Centralised, "federated": Federated, "gossip": Gossip}
PLUGIN = '''
from tacit.methods.base import Centralised, register
from tacit.types import Config

class Options(Config):
    """Options."""

@register("ease", Options)
@register("together", Options)
class Together(Centralised):
    """Had together.

    More.
    """

    def fit(self, clients, catalog, key): ...

    def score(self, shared, private, clients): ...
'''


def test_what_is_read_is_what_modules_register() -> None:
    for file in Path(registry.__file__).parent.glob("*.py"):
        import_module(f"tacit.methods.{file.stem}")
    registered = {name: module for module, name in registry._REGISTERED if module.startswith("tacit.methods.")}
    assert {name: found.module for name, found in registry._find_declared().items()} == registered


@pytest.mark.parametrize("name", registry.methods())
def test_kind_and_summary_are_those_of_the_class(name: str) -> None:
    found = registry.entry(name)
    method = registry.build(name)
    assert [kind for kind, contract in KINDS.items() if isinstance(method, contract)] == [found.kind]
    assert found.summary == (type(method).__doc__ or "").strip().splitlines()[0] != ""


def test_a_class_of_no_kind_is_refused() -> None:
    class Nothing:
        """It has only a score."""

        def score(self) -> None: ...

    with pytest.raises(ConfigError) as refused:
        register("nothing", Config)(Nothing)
    assert "'nothing'" in refused.value.message
    assert "nothing" not in registry.methods()


@pytest.mark.slow
def test_a_package_adds_methods_by_entry_point_and_they_come_before_ours(tmp_path: Path) -> None:
    (tmp_path / "plugin.py").write_text(PLUGIN)
    about = tmp_path / "plugin-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[tacit.methods]\ntogether = plugin\n")
    asked = "\n".join(
        [
            "import json, tacit.methods.ease",  # ours is imported first, and still does not stand in the way
            "from tacit.methods.registry import methods",
            "found = methods()",
            "told = {n: [found[n].kind, found[n].summary, found[n].module] for n in ('together', 'ease', 'fpl')}",
            "print(json.dumps([told, found['ease'].build.__name__]))",
        ]
    )
    path = os.pathsep.join([str(tmp_path), str(Path(registry.SOURCE)), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    asked_in = [sys.executable, "-c", asked]
    ran = subprocess.run(asked_in, capture_output=True, text=True, check=True, timeout=60, env=environment)
    told: Any
    told, built = json.loads(ran.stdout)
    assert told["together"] == ["centralised", "Had together.", "plugin"]
    assert told["ease"] == ["centralised", "Had together.", "plugin"]
    assert told["fpl"][0] == "federated"
    assert built == "Together"
    assert "'ease' of plugin" in ran.stderr, "a method is not replaced without notice"


def test_the_example_of_a_plug_in_is_found_where_our_own_methods_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """It writes `tacit.register` and `tacit.Federated`; whoever contributes starts from it."""
    tree = ast.parse((Path(__file__).parents[3] / "examples" / "pfedrec.py").read_text(encoding="utf-8"))
    monkeypatch.setattr(registry, "_tree", lambda module: tree)
    declared = {registry._registered_name(node): node for node in tree.body}
    found = declared["pfedrec"]
    assert isinstance(found, ast.ClassDef)
    assert registry._kind("tacit.methods.pfedrec", found.name) == "federated"
