"""The command that logs finished runs to MLflow."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tacit.cli import app as shell
from tacit.cli.app import Json, app


@app.command(epilog="Example: tacit mlflow runs/town-ease-42-1a2b3c4d --server http://127.0.0.1:5000")
def mlflow(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders.")],
    server: Annotated[
        str, typer.Option("--server", help="Address of the MLflow server; default: MLFLOW_TRACKING_URI.")
    ] = "",
    experiment: Annotated[str, typer.Option("--experiment", help="MLflow's experiment for the runs.")] = "tacit",
    as_json: Json = False,
) -> None:
    """Log options, metrics and curves of finished runs to an MLflow server; nothing of single users."""
    from tacit.lab.mlflow_log import MLflowLog
    from tacit.report.folder import Run

    runs = [Run.open(folder) for folder in folders]
    log = MLflowLog(server, experiment)
    logged = {str(folder): log(run) for folder, run in zip(folders, runs, strict=True)}
    shell.screen.document({"experiment": experiment, "runs": logged})
    for folder, name in logged.items():
        shell.screen.say(f"{folder}: {name}")
