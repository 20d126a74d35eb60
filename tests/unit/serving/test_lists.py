"""Lists: what may stand on them, what stands in for an unknown taste, and files that other tools read."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import tacit
from helpers.commands import run_command
from helpers.ranx_alone import ask_ranx
from tacit.errors import DataError, MethodError, StorageError
from tacit.serving.lists import ListFilter, write_lists

KINDS = ("jazz", "rock", "folk")
ROWS = [(f"u{u}", f"i{(u * 7 + k * k) % 20}", KINDS[(u * 7 + k * k) % 20 % 3]) for u in range(24) for k in range(6)]


@pytest.fixture(scope="module")
def model() -> tacit.Recommender:
    frame = pl.DataFrame(ROWS, ["user", "item", "category"], orient="row").unique(maintain_order=True)
    return tacit.fit(tacit.Experiment(method={"name": "ease", "reg": 5}), tacit.load(frame))


def test_a_filter_leaves_the_order_and_takes_away_the_rest(model: tacit.Recommender) -> None:
    whole = [one.item for one in model.recommend("u3", k=20)]
    jazz = {item for _, item, kind in ROWS if kind == "jazz"}
    assert [one.item for one in model.recommend("u3", 20, ListFilter(categories=["jazz"]))] == [
        item for item in whole if item in jazz
    ]
    assert [one.item for one in model.recommend("u3", 20, ListFilter(exclude=whole[:2]))] == whole[2:]
    assert [one.item for one in model.recommend("u3", 20, ListFilter(only=[whole[4], whole[1]]))] == [
        whole[1],
        whole[4],
    ]
    assert model.recommend("u3", 20, ListFilter(exclude=whole[:1], only=whole[:1])) == []


def test_filters_refuse_what_is_not_there(model: tacit.Recommender) -> None:
    with pytest.raises(DataError, match="jaz"):
        model.recommend("u3", among=ListFilter(categories=["jaz"]))
    with pytest.raises(DataError, match="i99"):
        model.recommend("u3", among=ListFilter(exclude=["i99"]))
    plain = pl.DataFrame([row[:2] for row in ROWS], ["user", "item"], orient="row").unique(maintain_order=True)
    uncategorised = tacit.fit(tacit.Experiment(method="most-popular"), tacit.load(plain))
    with pytest.raises(DataError, match="categories"):
        uncategorised.recommend("u3", among=ListFilter(categories=["jazz"]))


def test_unknown_items_are_ignored_with_a_notice_and_an_empty_history_gets_popular_items(
    model: tacit.Recommender,
) -> None:
    known, mixed = model.recommend_for(["i1", "i4"], 5), model.recommend_for(["i1", "nowhere", "i4"], 5)
    assert mixed == known
    assert (known.notices, len(mixed.notices), "nowhere" in mixed.notices[0]) == ((), 1, True)
    counts = model.clients.matrix().getnnz(axis=0)
    for history in ([], ["nowhere"]):
        popular = model.recommend_for(history, 4)
        assert [one.score for one in popular] == sorted(counts.tolist(), reverse=True)[:4]
        assert popular.notices
        assert popular[0].why == f"chosen by {max(counts)} people"


def test_a_method_with_a_vector_per_user_serves_new_users_popular_items_only() -> None:
    frame = pl.DataFrame([row[:2] for row in ROWS], ["user", "item"], orient="row").unique(maintain_order=True)
    factors = tacit.fit(tacit.Experiment(method={"name": "als", "epochs": 1, "factors": 2}), tacit.load(frame))
    assert factors.recommend_for([], 3).notices
    with pytest.raises(MethodError):
        factors.recommend_for(["i1"], 3)


@pytest.mark.slow
def test_files_of_all_lists_are_read_by_polars_and_ranx(model: tacit.Recommender, tmp_path: Path) -> None:
    lists = model.recommend_all(k=4)
    assert lists.columns == ["user", "rank", "item", "title", "score"]
    assert lists["user"].n_unique() == 24
    assert set(lists["rank"].to_list()) == {1, 2, 3, 4}
    for name in ("a.tsv", "a.csv", "a.parquet", "a.jsonl", "a.trec"):
        write_lists(lists, tmp_path / name)
    assert pl.read_csv(tmp_path / "a.tsv", separator="\t").equals(pl.read_csv(tmp_path / "a.csv"))
    assert pl.read_parquet(tmp_path / "a.parquet").equals(lists)
    assert pl.read_ndjson(tmp_path / "a.jsonl")["item"].to_list() == lists["item"].to_list()
    read = ask_ranx("found = ranx.Run.from_file(given, kind='trec').to_dict()", str(tmp_path / "a.trec"))
    first = {item: score for user, item, score in lists.select("user", "item", "score").rows() if user == "u5"}
    assert read["u5"].keys() == first.keys()
    assert np.allclose([read["u5"][item] for item in first], list(first.values()), atol=1e-6)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "a.jsonl", "a.parquet", "a.trec", "a.tsv"]


def test_a_file_that_cannot_hold_the_lists_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    spaced = pl.DataFrame({"user": ["a b"], "rank": [1], "item": ["i"], "title": ["t"], "score": [1.0]})
    with pytest.raises(StorageError, match="a b"):
        write_lists(spaced, tmp_path / "lists.trec")
    with pytest.raises(StorageError, match="xlsx"):
        write_lists(spaced, tmp_path / "lists.xlsx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_command_lists_filters_and_writes(
    model: tacit.Recommender, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "model")
    model.save(folder)
    code, out, _ = run_command(
        capsys, "recommend", folder, "--history", "i1", "--history", "no", "--category", "rock", "--json"
    )
    wanted = model.recommend_for(["i1", "no"], among=ListFilter(categories=["rock"]))
    document = json.loads(out)
    assert code == 0
    assert [one["item"] for one in document["recommendations"]] == [one.item for one in wanted]
    assert len(document["notices"]) == 1
    file = tmp_path / "lists.tsv"
    code, out, _ = run_command(capsys, "recommend", folder, "--all", "--out", str(file), "-k", "2", "--json")
    assert (code, json.loads(out)["rows"], len(pl.read_csv(file, separator="\t"))) == (0, 48, 48)
    for wrong in (["--user", "u1", "--all"], ["--all"], [], ["--user", "u1", "--out", "x.tsv"]):
        code, out, _ = run_command(capsys, "recommend", folder, *wrong, "--json")
        assert (code != 0, json.loads(out)["error"]["kind"]) == (True, "ConfigError")


def test_a_list_shows_itself_in_a_notebook(model: tacit.Recommender) -> None:
    shown = model.recommend_for(["i1", "<b>"], 2)._repr_html_()
    assert shown.count("<tr>") == 3
    assert "&lt;b&gt;" in shown
