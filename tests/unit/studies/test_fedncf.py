"""FedNCF's tables and figures are made on the built-in town; what is reported was chosen by validation alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.errors import DivergedError
from tacit.studies import fedncf, fedncf_best, reproduce
from tacit.studies import fedncf_published as printed
from tacit.studies.setup import StudySetup
from tacit.studies.traces import Checkpoint, Trace, trace_method

pytestmark = pytest.mark.slow

TINY = {"data.users": 60, "data.places": 130, "data.visits": 20}


def made(name: str, out: Path) -> tuple[dict[str, Any], Path]:
    folder = reproduce(name, "town", quick=True, settings=TINY, out=out)[0].folder
    stored: dict[str, Any] = json.loads((folder / "result.json").read_text())
    assert all(row["published"] is None for row in stored["rows"]), "nothing is published about the town"
    return stored, folder


def test_rules_are_compared_clean_and_legacy(tmp_path: Path) -> None:
    stored, folder = made("fedncf-aggregation", tmp_path)
    for rule in printed.RULES:
        assert {row["sampling"] for row in stored["rows"] if row["method"] == rule} == {"clean", "legacy"}
        looks = stored["detail"]["clean"][rule]["lines"][0]
        assert [look["passes"] for look in looks] == [1, 2]
        best = max(looks, key=lambda look: look["validation"]["NDCG@10"])
        reported = next(r["ours"] for r in stored["rows"] if r["method"] == rule and r["metric"] == "HR@10")
        assert reported == pytest.approx(best["test"]["HR@10"])
    assert (folder / "figures" / "convergence.svg").stat().st_size > 5_000


def test_models_are_listed_with_their_centralised_counterparts(tmp_path: Path) -> None:
    stored, folder = made("fedncf-quality", tmp_path)
    clean = {row["method"] for row in stored["rows"] if row["sampling"] == "clean"}
    assert {"most-popular", *printed.MODELS, "gmf", "mlp", "neumf", *(f"{n}, alone" for n in printed.MODELS)} <= clean
    assert all(np.isfinite(row["ours"]) for row in stored["rows"])
    assert (folder / "figures" / "convergence-devices.svg").exists()


def test_the_best_is_chosen_on_validation_and_listed_with_its_counterparts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored, folder = made("fedncf-best", tmp_path)
    known = {row["method"] for row in stored["rows"]}
    assert {"most-popular", *printed.MODELS, "gmf", "mlp", "neumf", *(f"{n}, alone" for n in printed.MODELS)} <= known
    assert (folder / "figures" / "convergence.svg").exists()
    monkeypatch.setattr(fedncf_best, "PASSES", {"ml-100k": {"fed-gmf": (2, 3)}})
    setup = StudySetup(
        "town", fedncf.recipe("town"), TINY, seeds=1, quick=False, choices=tmp_path, progress=lambda *_: None
    )
    found = fedncf_best._search_model(setup, "fed-gmf")
    method, told = found["method"], found["stages"]
    assert method["epochs"] == 3
    assert method["learning_rate"] in (0.001, 0.005)
    assert [set(stage["best"]) for stage in told] == [set(stage) for stage in fedncf_best.stages(20)]
    for stage, reached in zip(told, np.maximum.accumulate([-1, *(s["value"] for s in told)]), strict=False):
        for option, value in stage["best"].items():
            overruled = any(option in later["best"] for later in told[told.index(stage) + 1 :])
            assert overruled or (method.get(option) == value) == (stage["value"] > reached), option
    assert told[0]["kept"]
    kept = json.loads(next(tmp_path.glob("fedncf-best-fed-gmf-town-*.json")).read_text())
    assert kept["method"] | {"epochs": 3} == method
    sheet = fedncf_best._search_sheet({"fed-gmf": found})
    assert len(sheet.lines) == len(told)


def test_a_stage_that_diverges_is_reported_and_the_search_continues(tmp_path: Path) -> None:
    setup = StudySetup(
        "town", fedncf.recipe("town"), TINY, seeds=1, quick=False, choices=tmp_path, progress=lambda *_: None
    )
    first = fedncf.paper_options(setup, "fed-gmf", epochs=1)
    found = fedncf_best._search(setup, "fed-gmf", first, [{"own_rate": (1e9,)}, {"shrink": (1.0,)}], 2)
    assert [stage["kept"] for stage in found["stages"]] == [False, True]
    assert "own_rate" not in found["method"]
    sheet = fedncf_best._search_sheet({"fed-gmf": found})
    assert sheet.lines[0][2:4] == ["all diverged", "–"]


def test_a_seed_that_diverges_late_ends_with_what_was_seen_of_it_and_one_that_never_began_is_an_error(
    tmp_path: Path,
) -> None:
    setup = StudySetup(
        "town", fedncf.recipe("town"), TINY, seeds=1, quick=False, choices=tmp_path, progress=lambda *_: None
    )
    runaway = fedncf.paper_options(
        setup, "fed-gmf", epochs=40, server_rate=300, server_momentum=0.999, learning_rate=0.05
    )
    trace = trace_method(setup, "runaway", runaway, 40)
    assert 0 < len(trace.lines[0]) < 40
    assert trace.curve("HR@10")
    with pytest.raises(DivergedError):
        trace_method(setup, "at once", runaway | {"learning_rate": 1e6}, 40)


def test_fewer_people_leave_fewer_items(tmp_path: Path) -> None:
    setup = StudySetup(
        "town", fedncf.recipe("town"), TINY, seeds=1, quick=True, choices=tmp_path, progress=lambda *_: None
    )
    all_of_them, half = (fedncf.sample_users_of(setup, share, 42).parts for share in (1.0, 0.5))
    assert len(half.train) == round(len(all_of_them.train) / 2)
    assert half.catalog.n_items < all_of_them.catalog.n_items
    counts = np.bincount(half.train.items, minlength=half.catalog.n_items)
    truth, _ = half.test.open()
    held = half.validation.open()[0] if half.validation is not None else truth
    assert np.all((counts > 0) | np.isin(np.arange(len(counts)), np.append(truth.items, held.items)))
    assert len(set(fedncf.sample_users_of(setup, 0.5, 43).parts.user_ids.labels) ^ set(half.user_ids.labels)) > 0


@pytest.mark.parametrize("name", ["fedncf-cost", "fedncf-heterogeneity"])
def test_costs_are_finite_and_positive(name: str, tmp_path: Path) -> None:
    stored, _ = made(name, tmp_path)
    assert stored["rows"]
    assert all(row["ours"] > 0 for row in stored["rows"])


def test_a_pass_is_chosen_by_validation_and_a_level_is_reached_by_the_mean() -> None:
    def look(passes: int, validation: float, test: float) -> Checkpoint:
        both = {"HR@10": test, "NDCG@10": validation}
        return Checkpoint(passes, 0.0, both, {"HR@10": test, "NDCG@10": test})

    trace = Trace("x", [[look(1, 0.3, 0.1), look(2, 0.1, 0.9)], [look(1, 0.1, 0.2), look(2, 0.4, 0.5)]])
    assert trace.test_values("HR@10") == [0.1, 0.5]
    assert trace.curve("HR@10") == [(1, pytest.approx(0.15)), (2, pytest.approx(0.7))]
    assert trace.passes_to("HR@10", 0.6) == 2
    assert trace.passes_to("HR@10", 0.8) is None


def test_legacy_repeats_rows_on_last_fm_only(tmp_path: Path) -> None:
    def legacy(name: str) -> dict[str, Any]:
        setup = StudySetup(
            name, fedncf.recipe(name), {}, seeds=2, quick=True, choices=tmp_path, progress=lambda *_: None
        )
        other = fedncf.legacy(setup)
        assert (other.name, other.is_named, len(other.seeds)) == (setup.name, setup.is_named, 2)
        return other.base

    assert legacy("ml-100k")["split"]["negatives"] == "legacy"
    assert "duplicates" not in legacy("ml-100k")["data"]
    assert legacy("lastfm-2k")["data"]["duplicates"] == "keep"
    assert legacy("lastfm-2k")["evaluation"]["repeats"] == "rank"
    assert fedncf.recipe("ml-100k")["split"] == {"kind": "leave-last-out"}
