"""Fit on everything: a model to serve learns from all interactions, once its options have been chosen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tacit.config import Experiment
from tacit.data import load
from tacit.data.split import cohort
from tacit.errors import ConfigError
from tacit.lab.experiments import TrainingJob, silent, take_data, take_settings
from tacit.report.folder import Run
from tacit.serving.recommender import Recommender
from tacit.types import Progress


def fit(experiment: Experiment | Run | Path | str, data: Any = None, *, progress: Progress = silent) -> Recommender:
    """Return a model that has learnt from every interaction. Nothing is held out, so nothing is measured.

    Of a run, the number of passes is the one after which its model was kept. `data` takes the place of its source: a
    dataset, a pandas or polars frame, a path or a name.
    """
    if isinstance(experiment, Run):
        experiment = _with_passes(experiment.experiment, int(experiment.result["passes"]))
    experiment = take_settings(Experiment, experiment)
    if experiment.runtime.patience or experiment.runtime.evaluate_every:
        raise ConfigError(
            "Checkpoints and early stopping need a validation part, and fitting on everything has none.",
            "Fit from the folder of a run, which says after how many passes to stop, or set runtime.evaluate_every=0.",
        )
    progress("loading data", 0, 0)
    handed_over = take_data(experiment, data)
    dataset = load(experiment.data) if handed_over is None else handed_over
    train = cohort(dataset.interactions, np.ones(len(dataset), bool))
    job = TrainingJob(experiment, train, None, dataset.catalog, dataset.interactions.user_ids)
    return job.make_recommender(job.learn(progress).model)


def _with_passes(experiment: Experiment, passes: int) -> Experiment:
    """Return an experiment that stops after so many passes, without checkpoints."""
    runtime = experiment.runtime.model_copy(update={"evaluate_every": 0, "patience": 0})
    method = experiment.method
    if experiment.runtime.evaluate_every:
        if "epochs" not in type(method.options).model_fields:
            raise ConfigError(
                f"'{method.name}' has no option for the number of passes, so its early stopping cannot be repeated.",
                "Fit from an experiment without checkpoints.",
            )
        options = method.options.model_copy(update={"epochs": passes})
        method = method.model_copy(update={"options": options})
    return experiment.model_copy(update={"runtime": runtime, "method": method})
