"""What a command does not need, it does not import: reading a help text does not wait for numba."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

HEAVY = {"cryptography", "jinja2", "matplotlib", "numba", "numpy", "polars", "pydantic", "scipy", "scipy.stats"}
ASKED = """
import json, sys
from tacit.cli import main
try:
    main(sys.argv[1:])
except SystemExit as ended:
    print(json.dumps([ended.code, sorted(sys.modules)]), file=sys.stderr)
"""
LIGHT = {  # command -> its exit number
    ("--help",): 0,
    ("--version",): 0,
    ("run", "--help"): 0,
    ("device", "share", "--help"): 0,
    ("methods",): 0,
    ("run", "nowhere.yaml"): 3,
    ("run", "nowhere.yaml", "--json"): 3,
    ("compare", "nowhere.yaml"): 3,
    ("tune", "nowhere.yaml"): 3,
    ("run",): 3,
    ("run", "--method", "eaze"): 3,
    ("methods", "eaze"): 3,
    ("run", "--bogus"): 2,
    ("frobnicate",): 2,
}
WITHOUT = {  # a module that must be imported lazily wherever it is used -> modules that must not bring it
    "scipy.stats": (
        "tacit.config",
        "tacit.lab.comparisons",
        "tacit.lab.tuning",
        "tacit.field.device",
        "tacit.field.coordinator",
        "tacit.privacy.accounting",
        "tacit.privacy.noise",
    ),
    "numba": ("tacit.field.carriers.participant", "tacit.field.carriers.round_process", "tacit.cli.device_run"),
    "polars": ("tacit.field.device", "tacit.field.carriers.supernode", "tacit.cli.device_run"),
    "fastapi": ("tacit.field.carriers.supernode",),
    "scipy.special": ("tacit.field.device", "tacit.field.carriers.supernode"),
    "dp_accounting": ("tacit.config", "tacit.privacy.accounting", "tacit.privacy.noise"),
    "mpmath": ("tacit.config", "tacit.privacy.accounting", "tacit.privacy.noise"),
    "matplotlib": ("tacit.lab.comparisons", "tacit.lab.tuning", "tacit.report.page"),
    "numpy": ("tacit", "tacit.cli", "tacit.errors", "tacit.strict_yaml", "tacit.methods.registry"),
}


def imported(code: str, *arguments: str) -> tuple[int, set[str]]:
    """Run Python in a process of its own; return what it says last: an exit number and every module it imported."""
    path = os.pathsep.join(sys.path)
    asked = [sys.executable, "-c", code, *arguments]
    ran = subprocess.run(asked, capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONPATH": path})
    assert ran.returncode == 0, ran.stderr
    number, modules = json.loads(ran.stderr.splitlines()[-1])
    return number, set(modules)


@pytest.mark.parametrize("command", LIGHT, ids=" ".join)
def test_a_command_that_computes_nothing_imports_nothing_large(command: tuple[str, ...]) -> None:
    number, modules = imported(ASKED, *command)
    assert number == LIGHT[command]
    assert not HEAVY & modules


@pytest.mark.slow
@pytest.mark.parametrize("large", WITHOUT)
def test_what_few_need_is_imported_where_it_is_used(large: str) -> None:
    names = ", ".join(WITHOUT[large])
    _, modules = imported(f"import json, sys, {names}; print(json.dumps([0, sorted(sys.modules)]), file=sys.stderr)")
    assert large not in modules


@pytest.mark.slow
def test_the_check_itself_sees_what_is_imported() -> None:
    number, modules = imported(ASKED, "methods", "ease")
    assert number == 0
    assert {"numba", "numpy", "pydantic"} <= modules
