"""The files to deploy with: they can be read, and what they name exists. Containers are not started here."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers.waiting import LONG
from tacit.config import read_config
from tacit.field.serve import ServeConfig

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CONTAINER = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))


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


def test_every_file_that_is_mounted_or_read_is_there() -> None:
    mounts = [volume for service in COMPOSE["services"].values() for volume in service.get("volumes", [])]
    files = [mount.split(":")[0] for mount in mounts if mount.startswith(".")]
    assert len(files) == 6
    assert all((DEPLOY / file).is_file() for file in files)
    assert {mount.split(":")[0] for mount in mounts if not mount.startswith(".")} == COMPOSE["volumes"].keys()
    rules = yaml.safe_load((DEPLOY / "prometheus.yml").read_text(encoding="utf-8"))
    assert all((DEPLOY / file).is_file() for file in rules["rule_files"])
    for line in re.findall(r"^COPY (?!--from)(.+) \S+$", CONTAINER, re.MULTILINE):
        assert all((ROOT / source).exists() for source in line.split())


def test_the_containers_have_no_rights_that_they_do_not_need() -> None:
    coordinator = COMPOSE["services"]["coordinator"]
    assert coordinator["read_only"] is True
    assert coordinator["cap_drop"] == ["ALL"]
    assert re.search(r"^USER (?!0|root)\S+", CONTAINER, re.MULTILINE)
    assert "HEALTHCHECK" in CONTAINER
    others = [port for name, one in COMPOSE["services"].items() if name != "coordinator" for port in one["ports"]]
    assert all(port.startswith("127.0.0.1:") for port in others)


def test_the_coordinators_file_is_one_that_serve_takes_and_writes_only_where_it_may() -> None:
    config = read_config(ServeConfig, DEPLOY / "town.yaml")
    assert str(config.folder).startswith("/var/lib/tacit/")
    ports = {str(address).rpartition(":")[2] for address in (config.listen, config.metrics)}
    assert ports == set(re.findall(r"^EXPOSE (\d+) (\d+)$", CONTAINER, re.MULTILINE)[0])


def test_the_image_has_the_python_that_is_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (version,) = set(re.findall(r"^FROM python:([\d.]+)-slim", CONTAINER, re.MULTILINE))
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
