"""Everything that is installed has a hash, what builds Tacit included."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LOCKS = sorted((ROOT / "requirements").glob("*.lock"))


def name_of(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9_.-]", requirement.strip())[0].lower().replace("_", "-")


def locked(path: Path) -> dict[str, str]:
    """Return the packages of a lock and what stands behind each."""
    entries = re.split(r"^(?=[a-z0-9])", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {name_of(entry): entry for entry in entries if entry.strip()}


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_every_package_of_a_lock_has_a_hash_and_what_builds_tacit_is_in_it(lock: Path) -> None:
    packages, project = locked(lock), tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert all("--hash=sha256:" in entry for entry in packages.values())
    needed = [*project["build-system"]["requires"], *project["project"]["dependencies"], "editables"]
    assert {name_of(requirement) for requirement in needed} <= packages.keys()
    given = (ROOT / "requirements" / "build.in").read_text(encoding="utf-8")
    assert all(requirement in given for requirement in project["build-system"]["requires"])


def test_the_locks_are_those_that_make_writes_and_installs_with_hashes() -> None:
    recipes = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert {f"requirements/{lock.name}" for lock in LOCKS} == set(re.findall(r"-o (requirements/\w+\.lock)", recipes))
    assert "install --no-deps --require-hashes -r" in recipes
    installs = [line for line in recipes.splitlines() if "--editable ." in line]
    assert installs
    assert all("--no-build-isolation" in line and "--no-deps" in line for line in installs)


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_every_lock_has_the_versions_that_are_tested(lock: Path) -> None:
    # All locks are installed into one environment, in any order: none may replace what another needs.
    packages, dev = locked(lock), locked(ROOT / "requirements" / "dev.lock")
    assert {name: entry for name, entry in packages.items() if dev.get(name, entry) != entry} == {}


def test_the_lock_of_the_field_has_what_devices_and_coordinators_need() -> None:
    assert {"flwr", "starlette", "keyring"} <= locked(ROOT / "requirements" / "field.lock").keys()


def test_a_lock_is_installed_as_it_is_everywhere() -> None:
    # pip resolves anew without --no-deps, and refuses a lock once a newer version of package[extra] is out.
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    ).stdout.split()
    if not listed:
        pytest.skip("this folder has no history of git")
    texts = {
        name: (ROOT / name).read_text(encoding="utf-8", errors="replace") for name in listed if "test_locks" not in name
    }
    lines = [(name, line) for name, text in texts.items() for line in text.splitlines() if "--require-hashes" in line]
    assert lines
    assert [(name, line) for name, line in lines if not re.search(r"--no-deps\W+--require-hashes", line)] == []
