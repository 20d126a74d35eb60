"""Tacit: recommenders that learn from users' histories without collecting them.

    import tacit

    run = tacit.run(tacit.Experiment(method="ease", data={"source": "town"}))
    run.metrics["NDCG@10"], run.recommend(7, k=5)

Names are imported when they are first used, so that `import tacit` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tacit.config import Comparison, Experiment
    from tacit.data import DataConfig, Dataset, Split, SplitConfig, load, split
    from tacit.errors import TacitError
    from tacit.evaluation import Evaluation, EvaluationConfig, EvaluationOptions, evaluate
    from tacit.heldout import Heldout
    from tacit.lab.comparisons import compare
    from tacit.lab.experiments import run
    from tacit.lab.fitting import fit
    from tacit.lab.matrix_model import MatrixModel
    from tacit.methods.base import Centralised, Federated, FederatedSpec, Gossip, Schedule, methods, register
    from tacit.privacy.update_sink import Stage, UpdateSink
    from tacit.protocols.criteria import criterion
    from tacit.random import Key
    from tacit.report.folder import Run
    from tacit.serving.lists import ListFilter, Recommendation, Recommendations
    from tacit.serving.recommender import Recommender
    from tacit.types import Catalog, Clients, Config, Interactions, Model, Reason, Vocabulary
    from tacit.updates import Message, PeerModels, PlannedRows, Release, Ring, Total, UpdatePlan

_HOMES = {
    "lab.comparisons": ("compare",),
    "config": ("Comparison", "Experiment"),
    "data": ("DataConfig", "Dataset", "Split", "SplitConfig", "load", "split"),
    "errors": ("TacitError",),
    "evaluation": ("Evaluation", "EvaluationConfig", "EvaluationOptions", "evaluate"),
    "heldout": ("Heldout",),
    "lab.experiments": ("run",),
    "lab.fitting": ("fit",),
    "lab.matrix_model": ("MatrixModel",),
    "methods.base": ("Centralised", "Federated", "FederatedSpec", "Gossip", "Schedule", "methods", "register"),
    "privacy.update_sink": ("Stage", "UpdateSink"),
    "protocols.criteria": ("criterion",),
    "random": ("Key",),
    "report.folder": ("Run",),
    "serving.lists": ("ListFilter", "Recommendation", "Recommendations"),
    "serving.recommender": ("Recommender",),
    "types": ("Catalog", "Clients", "Config", "Interactions", "Model", "Reason", "Vocabulary"),
    "updates": ("PeerModels", "Message", "PlannedRows", "Release", "Ring", "Total", "UpdatePlan"),
}
_FORMER = {"Letters": "PeerModels"}  # public names of the version before
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [  # noqa: RUF022 - by package, as above
    "compare",
    "Comparison",
    "Experiment",
    "DataConfig",
    "Dataset",
    "Split",
    "SplitConfig",
    "load",
    "split",
    "TacitError",
    "Evaluation",
    "EvaluationConfig",
    "EvaluationOptions",
    "evaluate",
    "run",
    "fit",
    "MatrixModel",
    "Centralised",
    "Federated",
    "FederatedSpec",
    "Gossip",
    "Schedule",
    "methods",
    "register",
    "Stage",
    "UpdateSink",
    "criterion",
    "Key",
    "Run",
    "ListFilter",
    "Recommendation",
    "Recommendations",
    "Recommender",
    "Catalog",
    "Clients",
    "Config",
    "Heldout",
    "Interactions",
    "Model",
    "Reason",
    "Vocabulary",
    "PeerModels",
    "Message",
    "PlannedRows",
    "Release",
    "Ring",
    "Total",
    "UpdatePlan",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("tacit")
    if name in _FORMER:
        from tacit.types import notice_former_name

        notice_former_name(f"tacit.{name}", f"tacit.{_FORMER[name]}")
        name = _FORMER[name]
    if name not in _HOME:
        raise AttributeError(f"module 'tacit' has no attribute '{name}'")
    return getattr(import_module(f"tacit.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
