"""The test vectors of the protocol are what this code makes, and what a second reading of it in JavaScript makes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FILE = ROOT / "docs" / "protocol-vectors.json"


def test_the_vectors_are_what_this_code_makes() -> None:
    command = [sys.executable, str(ROOT / "tools" / "protocol_vectors.py"), "--check"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == 0, found.stderr


@pytest.mark.slow
def test_a_second_reading_agrees_and_notices_a_changed_bit(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node is not on this machine")
    script = [node, str(ROOT / "tests" / "helpers" / "protocol_vectors.mjs")]
    found = subprocess.run([*script, str(FILE)], capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == 0, found.stderr
    assert int(found.stdout.split()[0]) > 100
    text = FILE.read_text()
    at = text.index('"total": "') + len('"total": "')
    bent = tmp_path / "bent.json"
    bent.write_text(text[:at] + ("1" if text[at] == "0" else "0") + text[at + 1 :])
    assert subprocess.run([*script, str(bent)], capture_output=True, timeout=120, check=False).returncode != 0
