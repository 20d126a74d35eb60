"""Fitting on everything: all interactions are learnt from, none is recommended again."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tacit
from helpers.commands import run_command
from tacit.errors import ConfigError, StorageError

TOWN = {"source": "town", "users": 40, "places": 30, "visits": 12}


def test_nothing_is_held_out() -> None:
    data = tacit.load(tacit.DataConfig(**TOWN))
    experiment = tacit.Experiment(method="ease", data=TOWN)
    model = tacit.fit(experiment)
    pairs = len(np.unique(data.interactions.users.astype(np.int64) * data.n_items + data.interactions.items))
    assert pairs == len(model.clients.items)
    assert pairs > len(tacit.run(experiment).recommender.clients.items)
    for user in range(5):
        label, mine = model.user_ids[user], set(model.clients.take([user]).items.tolist())
        shown = {model.catalog.item_ids.index(one.item) for one in model.recommend(label, k=30)}
        assert not shown & mine


def test_a_run_that_stopped_early_is_fitted_with_the_passes_of_its_model() -> None:
    runtime = {"evaluate_every": 1, "patience": 1}
    method = {"name": "bpr-mf", "epochs": 6, "factors": 4}
    run = tacit.run(tacit.Experiment(method=method, data=TOWN, split={"validation": True}, runtime=runtime))
    fitted = tacit.fit(run)
    assert fitted.options.epochs == run.result["passes"]
    with pytest.raises(ConfigError):
        tacit.fit(run.experiment)


def test_the_command_writes_a_model_that_recommends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tacit.run(tacit.Experiment(method="ease", data=TOWN), folder=tmp_path / "run")
    model = str(tmp_path / "model")
    code, out, _ = run_command(capsys, "fit", str(run.folder), "--out", model, "--json")
    assert (code, json.loads(out)["method"]) == (0, "ease")
    user = str(run.users["user"][0])
    _, out, _ = run_command(capsys, "recommend", model, "--user", user, "--json")
    shown = [one["item"] for one in json.loads(out)["recommendations"]]
    assert shown == [one.item for one in tacit.Recommender.load(model).recommend(user)]
    code, *_ = run_command(capsys, "fit", str(run.folder), "--out", str(run.folder), "--json")
    assert code == StorageError.exit_code
    assert tacit.Run.open(tmp_path / "run").metrics == run.metrics
