"""An exported model scores as Tacit does, without Tacit; what is no sum over a history is refused."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tacit
from helpers.commands import run_command
from tacit.errors import ConfigError, MethodError
from tacit.methods.base import entry, names
from tacit.serving.export import export
from tacit.serving.onnx_export import export_onnx

TOWN = {"source": "town", "users": 60, "places": 40, "visits": 15}
SHORT = {"epochs": 1}
IN_ONNX = {
    "ease",
    "pure-svd",
    "most-popular",
    "gmf",
    "mlp",
    "neumf",
    "fed-gmf",
    "fed-mlp",
    "fed-neumf",
    "bpr-mf",
    "fpl",
}


def fitted(method: str) -> tacit.Recommender:
    options = SHORT if "epochs" in entry(method).config.model_fields else {}
    return tacit.fit(tacit.Experiment(method={"name": method, **options}, data={**TOWN, "graph": True}))


@pytest.mark.parametrize("method", [*names("centralised"), *names("federated")])
def test_a_model_is_exported_exactly_or_refused(method: str, tmp_path: Path) -> None:
    recommender = fitted(method)
    try:
        export(recommender, tmp_path / "model")
    except MethodError:
        assert not (tmp_path / "model").exists()
        return
    n, history = recommender.catalog.n_items, recommender.clients.take([3]).items
    numbers = np.fromfile(tmp_path / "model" / "weights.f32", "<f4").reshape(n + 1, n)
    wanted = recommender.score(np.array([3]))[0]
    assert np.abs(numbers[0] + numbers[1 + history].sum(axis=0) - wanted).max() <= 1e-4 * np.abs(wanted).max()


@pytest.mark.parametrize("method", ["ease", "pure-svd", "most-popular"])
def test_usual_methods_can_be_exported(method: str, tmp_path: Path) -> None:
    assert export(fitted(method), tmp_path)["method"] == method


@pytest.mark.slow
@pytest.mark.parametrize("program", ["python", "node"])
def test_scorers_recommend_what_tacit_recommends(
    program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if program == "node" and shutil.which("node") is None:
        pytest.skip("there is no node on this machine")
    recommender = fitted("ease")
    recommender.save(tmp_path / "saved")
    folder = tmp_path / "model"
    code, *_ = run_command(capsys, "export", str(tmp_path / "saved"), "--out", str(folder), "--json")
    assert code == 0
    history = [recommender.catalog.item_ids[int(item)] for item in recommender.clients.take([5]).items]
    wanted = recommender.recommend_for(history, k=6)
    runner = [sys.executable, folder / "scorer.py"] if program == "python" else ["node", folder / "scorer.mjs"]
    command = [*map(str, runner), str(folder), "6", *map(str, history), "no-such-item"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    found = json.loads(done.stdout)
    assert [one["id"] for one in found] == [one.item for one in wanted]
    assert [one["score"] for one in found] == pytest.approx([one.score for one in wanted], rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("method", [*names("centralised"), *names("federated")])
def test_an_onnx_runtime_scores_as_tacit_does_or_the_model_is_refused(method: str, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    recommender = fitted(method)
    try:
        about = export_onnx(recommender, tmp_path / "model")
    except MethodError:
        assert method not in IN_ONNX
        assert not (tmp_path / "model").exists()
        return
    position = np.array([3, 7])
    given = (
        recommender.clients.matrix()[position].toarray()
        if about["input"] == "history"
        else next(iter(recommender.model.private.values()))[position]
    )
    session = runtime.InferenceSession(str(tmp_path / "model" / "model.onnx"), providers=["CPUExecutionProvider"])
    found = session.run(["scores"], {about["input"]: given.astype(np.float32)})[0]
    wanted = recommender.score(position)
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= 1e-4 * np.abs(wanted).max()


def test_without_its_extra_an_export_to_onnx_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ConfigError) as raised:
        export_onnx(fitted("most-popular"), tmp_path / "model")
    assert "tacit[onnx]" in raised.value.hint
    assert not (tmp_path / "model").exists()
