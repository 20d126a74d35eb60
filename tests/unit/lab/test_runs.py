"""What a run, a comparison and their options promise, each promise once broken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import tacit
from tacit.errors import ConfigError, StorageError
from tacit.lab.comparisons import compare
from tacit.lab.training import RuntimeConfig, TrainingContext, learn
from tacit.methods.base import Centralised
from tacit.report.figures import _count_by_item
from tacit.types import Catalog, Clients, Model, Vocabulary

pytestmark = pytest.mark.slow

TOWN: dict[str, Any] = {"users": 100, "places": 60}
FEW: dict[str, Any] = {"local_only_users": 3, "k": [5]}


@pytest.mark.parametrize("method", ["fpl", "fcf"])
def test_a_method_that_asks_some_clients_is_also_checked_alone(method: str) -> None:
    options = {"name": method, "clients_per_round": 7, "epochs": 1}
    run = tacit.run(tacit.Experiment(method=options, data=TOWN, evaluation=FEW))
    assert run.result["leak"]["ok"]


@pytest.mark.parametrize(("asked", "told"), [(0, True), (60, False)])
def test_a_draw_that_leaves_no_client_out_is_reported(asked: int, told: bool) -> None:
    options = {"name": "fpl", "clients_per_round": asked, "epochs": 1}
    secure = {"runtime": {"secure": {"draw": True, "n_min": 3, "k_min": 2}}}
    run = tacit.run(tacit.Experiment(method=options, data=TOWN, evaluation={**FEW, "local_only_users": 0}, **secure))
    notes = [note for note in run.result["notes"] if "runtime.secure.draw" in note]
    assert bool(notes) == told
    assert all("set method.clients_per_round below 100" in note for note in notes)


class Rising(Centralised):
    """A method whose quality is told by the pass."""

    def __init__(self, values: list[float]) -> None:
        self.values = values

    def fit(self, clients: Clients, catalog: Catalog, key: tacit.Key) -> Any:
        for value in self.values:
            yield Model({"value": np.array(value)}, {})

    def score(self, shared: Any, private: Any, clients: Clients) -> Any:
        raise AssertionError("nothing is scored here")


@pytest.mark.parametrize("keep", ["best", "last"])
def test_patience_counts_only_looks_without_a_better_one(keep: str) -> None:
    one = Clients(np.arange(1), np.array([0, 1]), np.zeros(1, np.int32), 2)
    config = RuntimeConfig(evaluate_every=1, patience=2, keep=keep)
    values = [0.1, 0.2, 0.3, 0.2, 0.1, 0.9]
    catalog = Catalog(Vocabulary(np.arange(2)))
    look = lambda model: {"m": float(model.shared["value"])}  # noqa: E731
    learnt = learn(Rising(values), one, catalog, tacit.Key(0), config, context=TrainingContext(look, "m"))
    assert len(learnt.curve) == 5, "it stops after two looks that were no better, not before"
    assert float(learnt.model.shared["value"]) == (0.3 if keep == "best" else 0.1)


def test_options_that_would_do_nothing_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"split\.validation"):
        tacit.Experiment(method="ease", runtime={"evaluate_every": 5})
    with pytest.raises(ConfigError, match=r"runtime\.evaluate_every"):
        tacit.Experiment(method="ease", runtime={"patience": 5})


def test_rows_are_tested_only_against_rows_under_the_same_conditions(tmp_path: Path) -> None:
    comparison = tacit.Comparison(
        name="sweep", data=TOWN, evaluation=FEW, methods=["random", "ease"], grid={"data.min_per_user": [1, 30]}
    )
    compared = tacit.compare(comparison, out=tmp_path)
    assert compared.as_json()["best"] is None, "there is no best over different people"
    tested = {row.label: row.p_t is not None for row in compared.rows}
    assert tested == {
        "random min_per_user=1": True,
        "random min_per_user=30": True,
        "ease min_per_user=1": False,
        "ease min_per_user=30": False,
    }


def test_a_legacy_row_is_labelled_and_never_the_best(tmp_path: Path) -> None:
    comparison = tacit.Comparison(
        name="legacy",
        data=TOWN,
        evaluation={"local_only_users": 0, "k": [5]},
        methods=[{"name": "bpr-mf", "epochs": 30, "learning_rate": 0.05}],
        grid={"split.negatives": ["clean", "legacy"]},
    )
    told = tacit.compare(comparison, out=tmp_path)
    assert told.best.label.endswith("negatives=clean")
    assert [row["sampling"] for row in told.as_json()["rows"]] == ["clean", "legacy"]


def test_something_else_in_the_way_is_told_before_anything_is_learnt(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep me")
    with pytest.raises(StorageError, match="not a run folder"):
        tacit.compare(tacit.Comparison(name="mine", methods=["ease"]), out=tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["mine"]


def test_a_held_out_row_that_repeats_history_is_never_found_unless_asked() -> None:
    rows = [(u, i, t) for u in range(30) for t, i in enumerate([*range(u % 5, u % 5 + 6), u % 5])]
    data = tacit.load(pl.DataFrame(rows, ["user", "item", "timestamp"], orient="row"), duplicates="keep")
    found = {}
    for repeats in ("miss", "rank"):
        evaluation = {"protocol": "sampled-3", "k": [1], "repeats": repeats, "local_only_users": 0}
        experiment = tacit.Experiment(method="item-knn", split={"kind": "leave-last-out"}, evaluation=evaluation)
        run = tacit.run(experiment, data)
        found[repeats] = (run.metrics["HR@1"], run.result["sampling"], " ".join(run.result["notes"]))
    assert found["miss"][:2] == (0.0, "clean")
    assert "never found" in found["miss"][2]
    assert found["rank"][0] > 0
    assert found["rank"][1] == "legacy"
    assert "a leak" in found["rank"][2]


@pytest.mark.parametrize("method", ["most-popular", "pepper"])
@pytest.mark.parametrize(
    ("section", "given"),
    [
        ("adversaries", {"kind": "noise", "share": 0.2}),
        ("rounds", {"dropout": 0.2}),
        ("secure", {}),
        ("ledger", "events"),
    ],
)
def test_a_refusal_names_the_option_that_only_federated_methods_have(method: str, section: str, given: Any) -> None:
    experiment = tacit.Experiment(method=method, data=TOWN, evaluation=FEW, runtime={section: given})
    with pytest.raises(ConfigError) as refused:
        tacit.run(experiment)
    assert f"runtime.{section}" in refused.value.message
    assert "in one place" not in refused.value.message


def test_folds_with_catalogues_of_their_own_are_compared(tmp_path: Path) -> None:
    rows = [f"{user},{(user * 37 + at * 11) % 97},{at}" for user in range(40) for at in range(4)]
    (tmp_path / "log.csv").write_text("\n".join(["user,item,timestamp", *rows]))
    folds = {"kind": "k-fold", "folds": 2, "catalog": "train"}
    asked = {"data": {"source": str(tmp_path / "log.csv")}, "methods": ["most-popular", "ease"], "split": folds}
    made = compare(tacit.Comparison.from_options(asked, "the test"), out=tmp_path / "runs")
    first, second = (run.items for run in made.rows[0].runs)
    assert len(first) != len(second)
    trained, shown = _count_by_item(made.rows[0].runs)
    assert len(trained) == len(set(first["item"]) | set(second["item"]))
    assert trained.sum() == first["train_count"].sum() + second["train_count"].sum()
    assert shown.sum() == first["recommended"].sum() + second["recommended"].sum()


def test_a_comparison_goes_through_all_folds_and_pairs_users() -> None:
    folds = {"kind": "k-fold", "folds": 3}
    planned = list(tacit.Comparison(split=folds, methods=["ease", "random"], repeat=2).experiments())
    assert [label for label, _ in planned] == ["ease"] * 6 + ["random"] * 6
    assert [(one.seed, one.split.fold) for _, one in planned[:6]] == [(s, f) for s in (42, 43) for f in (1, 2, 3)]
    chosen = list(tacit.Comparison(split={**folds, "fold": 2}, methods=["ease"]).experiments())
    assert [one.split.fold for _, one in chosen] == [2]
