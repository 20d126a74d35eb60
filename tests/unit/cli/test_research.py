"""tune and reproduce as a person uses them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.commands import Command

pytestmark = pytest.mark.slow

TINY = ["--set", "data.users=120", "--set", "data.places=80"]
SEARCH = """
data: {source: town, people: 120, places: 80}
split: {validation: 0.2}
method: {name: bpr-mf, epochs: 3}
search: {method.learning_rate: [0.01, 500.0], method.factors: [4, 8]}
"""


def test_tune_prints_one_document_and_its_best_runs(tacit: Command, tmp_path: Path) -> None:
    (tmp_path / "search.yaml").write_text(SEARCH)
    code, out, _ = tacit("tune", "search.yaml", "--json")
    found = json.loads(out)
    assert code == 0
    assert {"best", "metric", "trials", "experiment"} <= found.keys()
    assert found["best"]["method.learning_rate"] == 0.01
    assert [trial["diverged"] for trial in found["trials"]] == [False, False, True, True]
    code, out, _ = tacit("run", found["experiment"], "--json")
    assert code == 0
    assert json.loads(out)["method"] == "bpr-mf"


def test_tune_shows_the_trials_best_first(tacit: Command, tmp_path: Path) -> None:
    (tmp_path / "search.yaml").write_text(SEARCH)
    code, out, _ = tacit("tune", "search.yaml")
    assert code == 0
    lines = [line for line in out.splitlines() if line.startswith("│")]
    assert "0.01" in lines[0]
    assert "diverged" in lines[-1]
    assert "best.yaml" in out


def test_tune_without_a_validation_part_says_what_to_do(tacit: Command, tmp_path: Path) -> None:
    (tmp_path / "search.yaml").write_text(SEARCH)
    code, out, _ = tacit("tune", "search.yaml", "--set", "split.validation=false", "--json")
    error = json.loads(out)["error"]
    assert code == 3
    assert "split.validation" in error["message"] + error["hint"]
    assert not (tmp_path / "runs").exists()


def test_reproduce_prints_the_contract(tacit: Command) -> None:
    code, out, err = tacit("reproduce", "fpl-diversity", "--data", "town", "--quick", *TINY, "--json")
    assert code == 0, err
    found = json.loads(out)
    assert {"name", "data", "rows", "seconds"} <= found.keys()
    assert found["data"] == "town"
    wanted = {"method", "metric", "published", "ours", "sd", "seeds", "sampling"}
    assert all(wanted <= row.keys() for row in found["rows"])
    assert {row["sampling"] for row in found["rows"]} == {"clean"}


def test_reproduce_without_a_name_lists_what_there_is(tacit: Command) -> None:
    code, out, _ = tacit("reproduce", "--json")
    assert code == 0
    names = {entry["name"] for entry in json.loads(out)["reproductions"]}
    assert {"fpl-accuracy", "fpl-diversity", "fpl-pi", "fpl-coverage", "fpl-popularity", "fpl-bias"} <= names
    assert "fpl-communication" in tacit("reproduce")[1]


def test_reproduce_says_the_nearest_name(tacit: Command) -> None:
    code, out, _ = tacit("reproduce", "fpl-acuracy", "--json")
    assert code == 3
    assert "fpl-accuracy" in json.loads(out)["error"]["hint"]


AUDIT = ["audit", "--method", "dp-popular", "--data", "town", *TINY, "--canaries", "60"]


def test_audit_prints_the_ledger_beside_what_was_measured(tacit: Command) -> None:
    code, out, _ = tacit(*AUDIT, "--set", "privacy=[{name: dp, epsilon: 2}]", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["ok"]
    assert found["epsilon_lower"] <= found["epsilon_server"] == pytest.approx(2.0, rel=2e-3)
    assert found["canaries"] == 60
    assert found["simulated_noise"]
    assert set(found["bounds"]) == {"any_mechanism", "gaussian_noise"}


def test_audit_without_a_guarantee_is_refused(tacit: Command) -> None:
    for privacy in ([], ["--set", "privacy=[{name: clip, row: 1.0}]"]):
        code, out, _ = tacit(*AUDIT, *privacy, "--json")
        assert code == 3
        assert "dp" in json.loads(out)["error"]["hint"]
