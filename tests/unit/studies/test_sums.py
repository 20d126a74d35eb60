"""The figure of quality against bytes is made on the built-in town, with every method in it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tacit.methods.base import methods
from tacit.studies import reproduce, sums
from tacit.studies.setup import StudySetup

TINY = {"data.users": 150, "data.places": 80}


@pytest.mark.slow
def test_it_leaves_rows_tables_and_a_figure(tmp_path: Path) -> None:
    made = reproduce("sums-quality", "town", quick=True, settings=TINY, out=tmp_path)[0]
    stored = json.loads((made.folder / "result.json").read_text())
    rows = {(row["method"], row["metric"]): row for row in stored["rows"]}
    assert all(np.isfinite(row["ours"]) and row["published"] is None for row in rows.values())
    for name in ("fed-svd", "fed-als", "fed-ease", "fpl"):
        assert rows[f"{name}, alone", "NDCG@10"]["ours"] < rows["most-popular", "NDCG@10"]["ours"] + 0.05
        points = stored["detail"]["points"][name][0]
        assert [point["rounds"] for point in points] == list(range(1, len(points) + 1))
        assert rows[name, "KB per user up"]["ours"] * 1e3 == pytest.approx(points[-1]["up"])
        assert points[-1]["up"] == pytest.approx(points[0]["up"] * len(points)), "every round sends the same rows"
    assert rows["fed-svd", "NDCG@10"]["ours"] > rows["most-popular", "NDCG@10"]["ours"]
    assert "Quick: fixed options" in (made.folder / "table.md").read_text()
    assert (made.folder / "figures" / "quality-bytes.svg").stat().st_size > 5_000


def test_options_are_chosen_on_validation_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = {
        "ease": ({}, {"reg": (20, 200)}, 0),
        "fed-svd": ({"epochs": 3}, {"factors": (4, 8)}, 1),
    }
    monkeypatch.setattr(sums, "SEARCHED", few)

    def chosen() -> dict[str, dict[str, object]]:
        given = sums.recipe("town")
        setup = StudySetup("town", given, TINY, seeds=1, quick=False, choices=tmp_path, progress=lambda *_: None)
        return sums._choices(setup)

    first = chosen()
    assert first["ease"]["reg"] in (20, 200)
    assert first["fed-svd"]["factors"] in (4, 8)
    assert first["fed-svd"]["epochs"] in (1, 2, 3)
    assert ("fed-gmf" in first) == ("fed-gmf" in methods())
    monkeypatch.setattr(StudySetup, "search", None)  # a second search would fail
    assert chosen() == first


def test_each_dataset_has_its_protocol() -> None:
    assert sums.recipe("ml-100k")["evaluation"]["protocol"] == "sampled-99"
    assert sums.recipe("ml-1m")["evaluation"]["protocol"] == "sampled-100"
    assert sums.recipe("lastfm-2k")["data"]["table"] == "tags"
    assert all(sums.recipe(name)["split"] == {"kind": "leave-last-out"} for name in sums.DATASETS)
