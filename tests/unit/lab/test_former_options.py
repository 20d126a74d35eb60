"""Options, results and public names of the version before: read, with one notice each."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

import tacit
from tacit import types
from tacit.config import read_config
from tacit.evaluation import EvaluationConfig
from tacit.field.coordinator import RoundRules
from tacit.field.device.settings import Sharing
from tacit.methods.base import options
from tacit.protocols.secure_aggregation import DevicePolicy
from tacit.studies import reproduce, reproductions
from tacit.studies.base import StudyResult

OLD = """
data: {source: town, people: 40, places: 60}
split: {validation: 0.1}
method: {name: fed-gmf, epochs: 2}
runtime:
  look_every: 1
  liars: {kind: noise, share: 0.2}
  rounds: {robust: {rule: median, groups: 4, liars: 0.25}}
  network: {liars: 0.1, lie: flip}
evaluation: {twin_people: 3}
"""


@pytest.fixture(autouse=True)
def nothing_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(types, "_NOTICED", set())


def test_an_old_file_is_read_with_one_notice_for_each_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "old.yaml").write_text(OLD)
    experiment = read_config(tacit.Experiment, tmp_path / "old.yaml", ["runtime.look_every=2"])
    assert (experiment.runtime.evaluate_every, experiment.evaluation.local_only_users) == (2, 3)
    assert experiment.runtime.adversaries is not None
    assert experiment.runtime.rounds.robust is not None
    assert experiment.runtime.rounds.robust.adversaries == 0.25
    assert (experiment.runtime.network.adversaries, experiment.runtime.network.attack) == (0.1, "flip")
    notices = capsys.readouterr().err.splitlines()
    assert "runtime.look_every is now runtime.evaluate_every; the old name goes with 0.3" in notices
    assert len(notices) == len(set(notices)) == 7


def test_a_coordinator_reads_its_old_rules() -> None:
    rules = RoundRules.from_options(
        {"secure": None, "readable": True, "robust": {"rule": "median", "groups": 4, "liars": 0.25}}, "here"
    )
    assert rules.robust is not None
    assert rules.robust.adversaries == 0.25
    assert RoundRules.from_options({"guards": {"n_min": 4}}, "here").device_policy.n_min == 4


@pytest.mark.parametrize("old", ["twin_people", "local_only_people"])
def test_both_former_names_of_the_local_only_users_are_read(old: str) -> None:
    assert EvaluationConfig.from_options({old: 7}, "here").local_only_users == 7


@pytest.mark.parametrize("method", ["fed-als", "fed-svd"])
def test_the_former_name_of_user_weight_is_read(method: str) -> None:
    assert options(method, {"person_weight": 0.5}).model_dump()["user_weight"] == 0.5


def test_settings_in_an_old_device_file_are_read_without_a_notice(capsys: pytest.CaptureFixture[str]) -> None:
    stored = json.loads(Sharing(device_policy=DevicePolicy(n_min=17)).model_dump_json())
    stored["guards"] = stored.pop("device_policy")
    assert Sharing.model_validate(stored).device_policy.n_min == 17
    assert capsys.readouterr().err == ""


def test_the_former_id_of_a_study_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = reproductions()["robust-adversaries"]
    monkeypatch.setitem(reproductions(), found.name, replace(found, make=lambda setup: StudyResult([], [])))
    settings = {"data.users": 30, "data.places": 30}
    made = reproduce("robust-liars", "town", quick=True, settings=settings, out=tmp_path)[0]
    assert made.name == "robust-adversaries"
    assert "robust-liars" in capsys.readouterr().err


def test_a_leak_verdict_has_both_names_and_an_old_one_is_read(tmp_path: Path) -> None:
    given = {"data": {"source": "town", "users": 40, "places": 60}, "method": "ease"}
    made = tacit.run(
        tacit.Experiment.from_options({**given, "evaluation": {"local_only_users": 3}}, "here"),
        folder=tmp_path / "run",
    )
    leak = made.result["leak"]
    assert leak["twin"] == leak["local_only"]
    file = tmp_path / "run" / "result.json"
    result = json.loads(file.read_text())
    expected = result["leak"].pop("local_only")
    file.write_text(json.dumps(result))
    assert tacit.Run.open(tmp_path / "run").result["leak"]["local_only"] == expected


def test_a_public_name_of_the_version_before_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert tacit.Letters is tacit.PeerModels
    assert capsys.readouterr().err == "tacit.Letters is now tacit.PeerModels; the old name goes with 0.3\n"


def test_the_former_names_of_users_are_read() -> None:
    given = {"data": {"source": "town", "people": 40}, "runtime": {"ledger": "people"}, "method": "ease"}
    read = tacit.Experiment.from_options(given, "here")
    assert (read.data.users, read.runtime.ledger) == (40, "users")


def test_a_run_with_the_former_names_of_users_opens(tmp_path: Path) -> None:
    given = {"data": {"source": "town", "users": 40, "places": 60}, "method": "ease"}
    made = tacit.run(tacit.Experiment.from_options(given, "here"), folder=tmp_path / "run")
    for folder in (tmp_path / "run", tmp_path / "run" / "model"):
        (folder / "users.parquet").rename(folder / "people.parquet")
    file = tmp_path / "run" / "result.json"
    result = json.loads(file.read_text())
    counts, leak = result["about_data"]["counts"], result["leak"]
    counts |= {"people": counts.pop("users"), "people_tested": counts.pop("users_tested")}
    leak["people"] = leak.pop("users")
    file.write_text(json.dumps(result))
    again = tacit.Run.open(tmp_path / "run")
    assert again.result["about_data"]["counts"] == made.result["about_data"]["counts"]
    assert again.result["leak"]["users"] == made.result["leak"]["users"]
    assert again.users.equals(made.users)
    assert again.people.equals(made.users)
    assert again.recommender.user_ids[0] == made.recommender.user_ids[0]


def test_a_model_in_a_folder_with_the_former_name_of_users_has_its_own_users(tmp_path: Path) -> None:
    given = {"data": {"source": "town", "users": 40, "places": 60}, "method": "ease"}
    made = tacit.fit(tacit.Experiment.from_options(given, "here"))
    others = pl.DataFrame({"user": [f"other {at}" for at in range(40)]})
    others.write_parquet(tmp_path / "people.parquet")
    made.save(tmp_path)
    assert not (tmp_path / "people.parquet").exists()
    others.write_parquet(tmp_path / "people.parquet")
    assert tacit.Recommender.load(tmp_path).user_ids.labels.tolist() == made.user_ids.labels.tolist()
