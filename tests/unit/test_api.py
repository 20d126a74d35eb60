"""The Python interface: a frame of one's own in five lines, saved, loaded, served."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import yaml

import tacit
from tacit.config import read_config
from tacit.errors import StorageError
from tacit.lab.experiments import folder_name

ROWS = [(f"p{u}", f"i{(u * 5 + k * (1 + u % 3)) % 24}", 1_600_000_000 + 60 * k) for u in range(30) for k in range(12)]
COLUMNS = ["user", "item", "timestamp"]


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_a_frame_is_learnt_from_saved_and_served(kind: str, tmp_path: Path) -> None:
    frame = pd.DataFrame(ROWS, columns=COLUMNS) if kind == "pandas" else pl.DataFrame(ROWS, COLUMNS, orient="row")
    run = tacit.run(tacit.Experiment(method={"name": "ease", "reg": 5}), tacit.load(frame))
    assert 0 < run.metrics["NDCG@10"] <= 1
    run.recommender.save(str(tmp_path / "model"))
    loaded = tacit.Recommender.load(str(tmp_path / "model"))
    assert loaded.recommend("p3", k=5) == run.recommend("p3", k=5)
    assert loaded.recommend_for(["i1", "i2"], k=2)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fed-gmf", "fed-als", "fed-svd", "fed-ease", "fed-slist"])
def test_what_is_saved_is_what_devices_receive_and_serves_as_before(name: str, tmp_path: Path) -> None:
    """Not what a server remembers: it is of no use to whoever serves, and tells of the last rounds."""
    options = {"fed-gmf": {"epochs": 2, "server_momentum": 0.5}, "fed-svd": {"factors": 4}}
    given = {"name": name, **options.get(name, {})}
    run = tacit.run(tacit.Experiment(method=given), tacit.load(pl.DataFrame(ROWS, COLUMNS, orient="row")))
    run.recommender.save(tmp_path / "model")
    loaded = tacit.Recommender.load(tmp_path / "model")
    assert loaded.recommend("p3", k=5) == run.recommend("p3", k=5)
    assert not any("momentum" in array for array in loaded.model.shared)
    if not loaded.model.private:
        assert loaded.recommend_for(["i1", "i2"], k=2) == run.recommender.recommend_for(["i1", "i2"], k=2)


def test_a_run_on_data_it_was_handed_does_not_name_other_data(tmp_path: Path) -> None:
    data = tacit.load(pl.DataFrame(ROWS, COLUMNS, orient="row"))
    run = tacit.run(tacit.Experiment(method="most-popular"), data, folder=str(tmp_path / "run"))
    saved = read_config(tacit.Experiment, tmp_path / "run" / "experiment.yaml")
    assert saved.data.source == f"given-frame-{data.fingerprint}"
    with pytest.raises(tacit.TacitError, match="given-frame"):
        tacit.run(saved)
    assert tacit.Run.open(tmp_path / "run").metrics == run.metrics


@pytest.mark.slow
def test_a_frame_a_path_and_settings_in_a_file_are_taken_as_they_are(tmp_path: Path) -> None:
    frame = pl.DataFrame(ROWS, COLUMNS, orient="row")
    frame.write_csv(tmp_path / "mine.csv")
    given = {"method": "most-popular", "data": {"source": "town", "min_per_item": 14}}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(given), encoding="utf-8")
    whole = tacit.run(tacit.Experiment(method="most-popular"), frame)
    kept = tacit.run(str(tmp_path / "mine.yaml"), frame)
    assert 0 < kept.recommender.catalog.n_items < whole.recommender.catalog.n_items, "the file's filters hold"
    assert tacit.run(tmp_path / "mine.yaml", str(tmp_path / "mine.csv")).metrics == kept.metrics
    assert tacit.fit(tmp_path / "mine.yaml", frame).recommend("p3", k=3)
    comparison = tacit.Comparison(name="mine", methods=["most-popular"], data=given["data"])
    compared = tacit.compare(comparison, frame, out=tmp_path / "runs")
    assert compared.rows[0].metrics == kept.metrics
    assert tacit.compare(compared.folder / "comparison.yaml", frame, out=tmp_path / "runs").reused


def test_every_public_name_is_there() -> None:
    for name in tacit.__all__:
        assert getattr(tacit, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        tacit.nothing  # noqa: B018


@pytest.mark.slow
def test_a_comparison_of_handed_over_data_is_filed_under_its_contents(tmp_path: Path) -> None:
    comparison = tacit.Comparison(name="mine", methods=["most-popular"])
    rows = pl.DataFrame(ROWS, COLUMNS, orient="row")
    compared = tacit.compare(comparison, tacit.load(rows), out=str(tmp_path))
    again = tacit.compare(comparison, tacit.load(rows), out=tmp_path)
    other = tacit.compare(comparison, tacit.load(rows.head(len(ROWS) - 3)), out=tmp_path)
    [first], [second], [third] = (one.rows[0].runs for one in (compared, again, other))
    assert first.folder == second.folder != third.folder
    assert first.folder is not None
    assert first.folder.name.startswith("given-frame-")


def test_named_data_that_was_handed_over_can_be_loaded_again(tmp_path: Path) -> None:
    data = tacit.load("town", users=30, places=20, visits=9)
    first = tacit.run(tacit.Experiment(method="most-popular"), data, folder=tmp_path / "run")
    saved = read_config(tacit.Experiment, tmp_path / "run" / "experiment.yaml")
    assert (saved.data.source, saved.data.users) == ("town", 30)
    assert tacit.run(saved).metrics == first.metrics
    changed = dataclasses.replace(data, interactions=data.interactions.take(np.arange(len(data) - 5)))
    assert changed.request is None


def test_results_are_shown_in_a_few_lines() -> None:
    data = tacit.load("town", users=30, places=20, visits=9)
    run = tacit.run(tacit.Experiment(method="most-popular"), data)
    assert len(repr(run)) < 300
    assert f"{run.metrics['NDCG@10']:.4f}" in repr(run)
    for shown in (run, data):
        assert "<table>" in shown._repr_html_()


def test_the_name_of_an_experiment_does_not_change_its_folder() -> None:
    one = tacit.Experiment(method="ease")
    assert folder_name(one) == folder_name(one.model_copy(update={"name": "another"}))
    assert folder_name(one) != folder_name(one.model_copy(update={"seed": 1}))
    assert folder_name(tacit.Experiment(method="ease", data={"source": "my plays.csv"})).startswith("my_plays-ease-42-")


def test_a_folder_that_cannot_be_written_is_refused_before_data_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    nowhere = tacit.Experiment(method="ease", data={"source": "no-such-data.csv"})
    with pytest.raises(StorageError):
        tacit.run(nowhere, folder=tmp_path / "file" / "run")
    with pytest.raises(StorageError):
        tacit.compare(tacit.Comparison(methods=["ease"], data=nowhere.data), out=tmp_path / "file")
