"""A leak check that diverges costs the verdict and not the run; attacks that fit no row are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tacit
from tacit.errors import ConfigError, DivergedError, EvaluationError, TacitError
from tacit.lab import experiments
from tacit.report.comparison import is_leaking

TOWN: dict[str, Any] = {"users": 60, "places": 40}
GIVEN: dict[str, Any] = {"method": "most-popular", "data": TOWN, "evaluation": {"local_only_users": 3}}


@pytest.mark.parametrize("error", [DivergedError("It diverged."), EvaluationError("A score is not finite.")])
def test_a_check_that_diverges_leaves_a_run_without_a_verdict(
    error: TacitError, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def diverges(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(experiments, "check_leak", diverges)
    made = tacit.run(tacit.Experiment(**GIVEN), folder=tmp_path / "run")
    again = tacit.Run.open(tmp_path / "run")
    for run in (made, again):
        assert run.result["leak"]["ok"] is None
        assert error.message in run.result["leak"]["reason"]
        assert run.result["leak"]["reason"] in run.result["notes"]
    assert not is_leaking([again]), "it is not known to leak"
    assert "NDCG@10" in again.metrics


def test_promotion_is_refused_where_no_row_is_about_an_item() -> None:
    data = {**TOWN, "graph": True, "hops": 1}
    runtime = {"adversaries": {"kind": "promote", "item": "place 1", "share": 0.1}}
    with pytest.raises(ConfigError, match=r"promote.*no rows about items"):
        tacit.run(tacit.Experiment(method={"name": "kgflex", "epochs": 1}, data=data, runtime=runtime))
