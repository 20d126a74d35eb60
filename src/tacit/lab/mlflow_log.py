"""Log finished runs to MLflow: options, metrics and curves; nothing of single users. Needs the extra `mlflow`.

`MLflowLog` is a callback: `tacit.run(experiment, on_run=MLflowLog("http://127.0.0.1:5000"))`. A run that the server has
already is not logged twice. MLflow's own telemetry is switched off.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from typing import Any

from tacit.config import to_yaml
from tacit.errors import StorageError, missing_extra
from tacit.report.folder import Run

TAG = "tacit.run"
LONGEST = 500  # characters of a parameter that every MLflow server takes
BATCH = 100  # parameters in a request; MLflow refuses more


class MLflowLog:
    """Where runs are logged: a tracking server, and the experiment that its pages show them under."""

    def __init__(self, server: str = "", experiment: str = "tacit") -> None:
        for switch in ("MLFLOW_DISABLE_TELEMETRY", "DO_NOT_TRACK"):  # read when MLflow is imported
            os.environ.setdefault(switch, "true")
        try:
            from mlflow.exceptions import MlflowException
            from mlflow.tracking import MlflowClient
        except ImportError:
            raise missing_extra("Logging to MLflow", "mlflow") from None
        self._refusal = MlflowException
        try:
            self._client = MlflowClient(tracking_uri=server or None)
            known = self._client.get_experiment_by_name(experiment)
            self._experiment = self._client.create_experiment(experiment) if known is None else known.experiment_id
        except MlflowException as error:
            raise self._explain(error) from None

    def __call__(self, run: Run) -> str:
        """Log a run, unless it is there; return its id on the server."""
        try:
            return self._log(run)
        except self._refusal as error:
            raise self._explain(error) from None

    def _log(self, run: Run) -> str:
        from mlflow.entities import Metric, Param

        name, now = _name(run), int(1000 * time.time())
        found = self._client.search_runs([self._experiment], filter_string=f"tags.`{TAG}` = '{name}'")
        if found:
            return str(found[0].info.run_id)
        label = f"{run.result['method']} on {run.result['data']}, seed {run.result['seed']}"
        made = self._client.create_run(self._experiment, run_name=label).info.run_id
        params = [Param(key, value[:LONGEST]) for key, value in _parameters(run).items()]
        for at in range(0, len(params), BATCH):
            self._client.log_batch(made, params=params[at : at + BATCH])
        metrics = [Metric(_spell(key), value, now, 0) for key, value in run.metrics.items()]
        for row in run.curve.to_dicts():
            step = int(row.pop("pass"))
            metrics += [
                Metric(f"curve.{_spell(key)}", float(value), now, step)
                for key, value in row.items()
                if isinstance(value, int | float)
            ]
        for at in range(0, len(metrics), BATCH):
            self._client.log_batch(made, metrics=metrics[at : at + BATCH])
        self._client.set_terminated(made)
        self._client.set_tag(made, TAG, name)  # last: a log that broke off is made anew
        return str(made)

    def _explain(self, error: Exception) -> StorageError:
        return StorageError(
            f"MLflow refused: {error}", "Is the server running? Give its address, such as http://127.0.0.1:5000."
        )


def _name(run: Run) -> str:
    """Return what distinguishes a run from others: its experiment and its metrics, whatever it is called."""
    experiment = to_yaml(run.experiment.model_copy(update={"name": "run"}))
    return hashlib.blake2b(f"{experiment}{sorted(run.metrics.items())}".encode(), digest_size=12).hexdigest()


def _parameters(run: Run) -> dict[str, str]:
    """Return all options of an experiment: "method.factors" -> "20"."""
    found: dict[str, str] = {}

    def add(path: str, value: Any) -> None:
        if isinstance(value, dict) and value:
            for key, part in value.items():
                add(f"{path}.{key}" if path else str(key), part)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            for at, part in enumerate(value):
                add(f"{path}.{at}", part)
        else:
            found[_spell(path)] = str(value)

    add("", run.experiment.model_dump(mode="json"))
    return found


def _spell(name: str) -> str:
    """Return a name that MLflow takes: it refuses '@'.

    >>> _spell("NDCG@10")
    'NDCG_10'
    """
    return re.sub(r"[^\w\-. /]", "_", name)
