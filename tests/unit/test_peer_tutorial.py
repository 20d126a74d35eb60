"""What the tutorial of peers says is true: its commands run in their order in a fresh folder."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.waiting import LONG

pytest.importorskip("zenoh")
pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "peers.md"
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_every_command_runs_and_models_are_exchanged(tmp_path: Path) -> None:
    assert shutil.which("bash"), "the page is for a shell"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    script = "".join(BLOCK.findall(PAGE.read_text(encoding="utf-8"))).replace("7447", port)
    assert script.count("tacit peer") >= 7
    program = tmp_path / "bin" / "tacit"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -c "from tacit.cli import main; main()" "$@"\n')
    program.chmod(0o755)
    ends = "set -eu\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n"
    path = f"{program.parent}:{os.environ['PATH']}"
    environment = {**os.environ, "HOME": str(tmp_path), "PATH": path, "COLUMNS": "200", "NO_COLOR": "1"}
    done = subprocess.run(
        ["bash", "-c", ends + script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=LONG
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Ended after 4 periods" in done.stdout + done.stderr
    models = re.search(r"Models: (\d+) sent to 1 peers, (\d+) read", done.stdout + done.stderr)
    assert models, done.stdout + done.stderr
    assert int(models[1]) >= 3
    assert int(models[2]) >= 1
