"""What the tutorials say is true: their commands run in order in a fresh folder and print what is shown."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import tacit
from helpers.commands import run_command
from helpers.page_steps import DOCS, follow
from helpers.waiting import LONG, wait_until

EXAMPLE = DOCS.parent / "examples" / "field.yaml"

pytestmark = pytest.mark.slow

COMMANDS = {"own-data": 4, "compare": 3, "guarantee": 2}


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh folder with the file that the pages use."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    log = tacit.load("town", users=120, places=80).interactions
    assert log.times is not None
    rows = {"user": [f"u{user}" for user in log.users], "song": [f"s{item}" for item in log.items]}
    pl.DataFrame({**rows, "timestamp": log.times.astype(int)}).write_csv("plays.csv")
    return tmp_path


@pytest.mark.parametrize("page", COMMANDS)
def test_every_command_runs_in_order(page: str, reader: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert follow(DOCS / "tutorials" / f"{page}.md", capsys) == COMMANDS[page]
    assert [*reader.glob("runs/*/report.html")] or page == "guarantee"


def accepts(port: str) -> bool:
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", int(port))) == 0


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return str(free.getsockname()[1])


def test_every_command_for_fifty_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("flwr")
    monkeypatch.chdir(tmp_path)
    told = EXAMPLE.read_text(encoding="utf-8").replace("pause: 1h ", "batch: 25\n  pause: 6h ")
    Path("town.yaml").write_text(told, encoding="utf-8")
    assert "batch: 25" in told
    assert follow(DOCS / "tutorials" / "fifty.md", capsys) == 4
    assert run_command(capsys, "federation", "invitations", "town.yaml")[1].count("spring") == 50


def test_every_command_of_friends_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The coordinator is a process of its own; the service and the page are started by tests of theirs."""
    pytest.importorskip("flwr")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TACIT_DEVICE", str(tmp_path / "device.db"))
    monkeypatch.setenv("TACIT_PASSPHRASE", "several words of our own")
    port, metrics = free_port(), free_port()
    told = EXAMPLE.read_text(encoding="utf-8").replace("127.0.0.1:8443", f"127.0.0.1:{port}")
    Path("friends.yaml").write_text(told.replace("9464", metrics), encoding="utf-8")
    catalog = tacit.load("town").catalog
    rows = "".join(f'{catalog.item_ids[item]},"{catalog.title(item)}"\n' for item in range(12))
    Path("watched.csv").write_text(f"item,title\n{rows}", encoding="utf-8")
    text = (DOCS / "tutorials" / "friends.md").read_text(encoding="utf-8")
    lines = [re.split(r"\s+# ", line)[0] for line in re.findall(r"^tacit .+$", text, re.MULTILINE)]
    elsewhere = {"tacit device service install", "tacit device --page"}
    assert elsewhere < set(lines)
    assert len(lines) == 9
    invitations = list[str]()
    server: subprocess.Popen[str] | None = None
    try:
        for line in lines:
            if line == "tacit serve friends.yaml":
                command = [sys.executable, "-c", "from tacit.cli import main; main()", "serve", "friends.yaml"]
                server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True)
                wait_until(lambda: accepts(port), LONG, "the coordinator is up")
            elif line not in elsewhere:
                words = shlex.split(line)[1:]
                code, out, err = run_command(
                    capsys, *(invitations[0] if word.startswith("tacit1:") else word for word in words)
                )
                assert code == 0, (line, out, err)
                invitations += re.findall(r"^tacit1:\S+$", out, re.MULTILINE)
        assert len(invitations) == 13
        assert run_command(capsys, "device", "history", "list", "--json")[1].count('"item"') >= 12
    finally:
        if server is not None:
            server.send_signal(signal.SIGINT if os.name == "posix" else signal.SIGTERM)
            server.communicate(timeout=LONG)
