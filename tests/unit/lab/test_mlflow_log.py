"""Finished runs go to MLflow once, with options and metrics, and with nothing of single users."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import tacit
from helpers.commands import run_command
from tacit.config import Comparison
from tacit.errors import ConfigError
from tacit.lab.mlflow_log import MLflowLog
from tacit.report.folder import Run

SMALL = {"source": "town", "users": 80, "places": 40}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    pytest.importorskip("mlflow", reason="the extra 'mlflow' is not installed")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # the server's own store, without a server
    return (tmp_path / "mlruns").as_uri()


def experiment() -> tacit.Experiment:
    method = {"name": "bpr-mf", "epochs": 4}
    return tacit.Experiment.from_options(
        {"data": SMALL, "method": method, "split": {"validation": True}, "runtime": {"evaluate_every": 2}}, "the test"
    )


@pytest.mark.filterwarnings("ignore")
def test_a_run_is_logged_with_options_metrics_and_its_curve(server: str, tmp_path: Path) -> None:
    from mlflow.tracking import MlflowClient

    log = MLflowLog(server, "towns")
    run = tacit.run(experiment(), folder=tmp_path / "run", on_run=log)
    client = MlflowClient(tracking_uri=server)
    (found,) = client.search_runs([client.get_experiment_by_name("towns").experiment_id])
    assert found.data.params["method.epochs"] == "4"
    assert found.data.metrics["NDCG_10"] == run.metrics["NDCG@10"]
    steps = [point.step for point in client.get_metric_history(found.info.run_id, "curve.NDCG_10")]
    assert steps == run.curve["pass"].to_list()
    assert log(Run.open(tmp_path / "run")) == found.info.run_id, "it is not logged twice"


@pytest.mark.filterwarnings("ignore")
def test_every_run_of_a_comparison_is_logged_by_callback_and_by_command(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    methods = [{"name": "ease"}, {"name": "most-popular"}]
    comparison = Comparison.from_options({"name": "both", "data": SMALL, "methods": methods}, "the test")
    logged: list[str] = []
    log = MLflowLog(server)
    compared = tacit.compare(comparison, out=tmp_path / "runs", on_run=lambda run: logged.append(log(run)))
    assert len(set(logged)) == 2
    folders = [str(row.runs[0].folder) for row in compared.rows]
    code, document, *_ = run_command(capsys, "mlflow", *folders, "--server", server, "--json")
    assert code == 0
    assert all(name in document for name in logged)


def test_without_its_extra_logging_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    monkeypatch.setitem(sys.modules, "mlflow.exceptions", None)
    with pytest.raises(ConfigError) as raised:
        MLflowLog()
    assert "tacit[mlflow]" in raised.value.hint
