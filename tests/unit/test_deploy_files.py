"""The files to deploy with: they can be read, and what they name exists. Containers are not started here."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers.waiting import LONG, wait_until
from tacit.config import read_config
from tacit.field.serve import ServeConfig

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CONTAINER = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))


ROUTER = (DEPLOY / "Containerfile.router").read_text(encoding="utf-8")
ROUTERS: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.router.yaml").read_text(encoding="utf-8"))


def exported() -> set[str]:
    """Return the metrics of the coordinator, with the endings that Prometheus adds."""
    source = (ROOT / "src" / "tacit" / "field" / "metrics.py").read_text(encoding="utf-8")
    families = re.findall(r'(Counter|Gauge|Summary)MetricFamily\(\s*f?"(tacit_\w+)"', source)
    assert len(families) > 8
    return {name + ("_total" if kind == "Counter" else "") for kind, name in families}


@pytest.mark.parametrize("name", ["alerts.yml", "grafana/dashboard.json"])
def test_rules_and_panels_name_metrics_that_there_are(name: str) -> None:
    text = (DEPLOY / name).read_text(encoding="utf-8")
    named = set(re.findall(r"\btacit_[a-z_]+", text))
    assert len(named) >= 2
    assert named <= exported()
    yaml.safe_load(text)


def test_rules_ask_for_states_that_rounds_have() -> None:
    metrics = pytest.importorskip("tacit.field.metrics")
    states = re.findall(r'state="(\w+)"', (DEPLOY / "alerts.yml").read_text(encoding="utf-8"))
    assert len(states) == 2
    assert set(states) <= set(metrics.ROUND_STATES)


def test_every_file_that_is_mounted_or_read_is_there() -> None:
    mounts = [volume for service in COMPOSE["services"].values() for volume in service.get("volumes", [])]
    files = [mount.split(":")[0] for mount in mounts if mount.startswith(".")]
    assert len(files) == 6
    assert all((DEPLOY / file).is_file() for file in files)
    assert {mount.split(":")[0] for mount in mounts if not mount.startswith(".")} == COMPOSE["volumes"].keys()
    rules = yaml.safe_load((DEPLOY / "prometheus.yml").read_text(encoding="utf-8"))
    assert all((DEPLOY / file).is_file() for file in rules["rule_files"])
    for line in re.findall(r"^COPY (?!--from)(.+) \S+$", CONTAINER + ROUTER, re.MULTILINE):
        assert all((ROOT / source).exists() for source in line.split())


def test_the_containers_have_no_rights_that_they_do_not_need() -> None:
    for ours in (COMPOSE["services"]["coordinator"], ROUTERS["services"]["router"]):
        assert ours["read_only"] is True
        assert ours["cap_drop"] == ["ALL"]
    for image in (CONTAINER, ROUTER):
        assert re.search(r"^USER (?!0|root)\S+", image, re.MULTILINE)
        assert "HEALTHCHECK" in image
    others = [port for name, one in COMPOSE["services"].items() if name != "coordinator" for port in one["ports"]]
    assert all(port.startswith("127.0.0.1:") for port in others)


def test_the_coordinators_file_is_one_that_serve_takes_and_writes_only_where_it_may() -> None:
    config = read_config(ServeConfig, DEPLOY / "town.yaml")
    assert str(config.folder).startswith("/var/lib/tacit/")
    ports = {str(address).rpartition(":")[2] for address in (config.listen, config.metrics)}
    assert ports == set(re.findall(r"^EXPOSE (\d+) (\d+)$", CONTAINER, re.MULTILINE)[0])


def test_the_image_has_the_python_that_is_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (version,) = set(re.findall(r"^FROM python:([\d.]+)-slim", CONTAINER + ROUTER, re.MULTILINE))
    assert f"Programming Language :: Python :: {version}" in project["classifiers"]


def test_the_dashboard_is_whole() -> None:
    board = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text(encoding="utf-8"))
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"]) == 8


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    text = (DEPLOY / "systemd" / "tacit.service").read_text(encoding="utf-8")
    unit = tmp_path / "tacit.service"
    unit.write_text(text.replace("/opt/tacit/bin/tacit", "/bin/true"), encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=LONG, check=False
    )
    assert (done.returncode, [line for line in done.stderr.splitlines() if "tacit.service" in line]) == (0, [])


@pytest.mark.slow
def test_the_routers_commands_make_a_member_that_listens_and_ends_as_it_is_told(tmp_path: Path) -> None:
    """The commands of deploy/README.md and of the image, with this machine's paths and a free port."""
    pytest.importorskip("zenoh")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    secret, catalog = tmp_path / "passphrase", tmp_path / "books.csv"
    secret.write_text("several words of our own\n", encoding="utf-8")
    catalog.write_text("item,title\n1,Dune\n2,Emma\n3,Ubik\n", encoding="utf-8")
    environment = {**os.environ, "TACIT_DEVICE": str(tmp_path / "router.db"), "HOME": str(tmp_path)}

    def tacit(*words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", "from tacit.cli import main; main()", *words]
        return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    word = str(secret)
    found = ("found", "Books", str(catalog), "--router", f"127.0.0.1:{port}", "--period", "0.5")
    history = ("device", "--passphrase-file", word, "history", "add", "Dune", "Emma")
    for words in (("device", "--passphrase-file", word, "init"), ("peer", "--passphrase-file", word, *found), history):
        done = tacit(*words)
        said, _ = done.communicate(timeout=LONG)
        assert done.returncode == 0, said
    (line,) = re.findall(r"^CMD (\[.+\])$", ROUTER, re.MULTILINE)
    changes = {"/run/secrets/passphrase": word, "0.0.0.0:7447": f"127.0.0.1:{port}"}
    router = tacit(*(changes.get(part, part) for part in json.loads(line)))
    try:
        (check,) = re.findall(r"^    CMD (\[.+\])$", ROUTER, re.MULTILINE)
        asked = [part.replace("7447", port) for part in json.loads(check)[1:]]

        def answers() -> bool:
            ended = router.poll() is not None
            return ended or subprocess.run([sys.executable, *asked], capture_output=True, timeout=LONG).returncode == 0

        wait_until(answers, LONG, "the router is healthy")
        assert router.poll() is None, router.communicate(timeout=LONG)[0]
        (signal_name,) = re.findall(r"^STOPSIGNAL (\w+)$", ROUTER, re.MULTILINE)
        router.send_signal(getattr(signal, signal_name))
        said, _ = router.communicate(timeout=LONG)
        assert router.returncode in (0, 130), said
    finally:
        router.kill()
        router.communicate(timeout=LONG)
