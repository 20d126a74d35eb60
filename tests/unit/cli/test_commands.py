"""Each command as a person uses it: what it prints, what it leaves behind, how it ends."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from helpers.commands import Command
from tacit.cli.screen import Screen
from tacit.report.folder import Run

pytestmark = pytest.mark.slow

TOWN = ["--data", "town", "--set", "data.users=120", "--set", "data.places=80"]


def document(printed: tuple[int, str, str]) -> Any:
    """The one JSON document of a command; nothing else may stand on standard output."""
    code, out, err = printed
    assert code == 0, f"exit {code}: {out}{err}"
    return json.loads(out)


def test_run_prints_the_contract_and_leaves_a_whole_folder(tacit: Command, tmp_path: Path) -> None:
    result = document(tacit("run", "--method", "ease", *TOWN, "--json"))
    wanted = "run method data protocol seed metrics users train_seconds bytes_up bytes_down leak peak_mb"
    assert {*wanted.split(), "passes", "passes_run", "rounds"} <= result.keys()
    assert {"ok", "twin", "most_popular"} <= result["leak"].keys()
    assert result["leak"]["ok"] is True
    assert all(math.isfinite(value) for value in result["metrics"].values())
    folder = tmp_path / result["run"]
    files = {p.name for p in folder.iterdir()}
    assert {"experiment.yaml", "result.json", "users.parquet", "items.parquet", "ledger.parquet", "model"} <= files
    assert {"environment.json", "log.txt", "report.html"} <= files
    assert not [p for p in folder.parent.iterdir() if p.name.startswith(".")], "a scratch folder was left behind"
    people = pl.read_parquet(folder / "users.parquet")
    assert people["NDCG@10"].mean() == pytest.approx(result["metrics"]["NDCG@10"], abs=1e-12)


def test_the_saved_configuration_gives_the_same_numbers(tacit: Command) -> None:
    options = ["--method", "bpr-mf", "--set", "method.epochs=3", *TOWN, "--json"]
    first = document(tacit("run", *options))
    again = document(tacit("run", f"{first['run']}/experiment.yaml", "--json"))
    assert again["metrics"] == first["metrics"]
    assert again["run"] == first["run"], "the same configuration has the same folder"


@pytest.mark.parametrize("method", ["als", "fpl", "neumf"])
def test_threads_do_not_change_a_bit(tacit: Command, method: str) -> None:
    options = ["run", "--method", method, "--set", "method.epochs=2", *TOWN, "--json"]
    one, two = (document(tacit(*options, "--threads", n)) for n in ("1", "2"))
    assert one["metrics"] == two["metrics"]
    a, b = (Run.open(found["run"]).recommender.model for found in (one, two))
    for left, right in ((a.shared, b.shared), (a.private, b.private)):
        assert left.keys() == right.keys()
        assert all(np.array_equal(left[name], right[name]) for name in left)


def test_repeat_gives_mean_and_spread_over_seeds(tacit: Command) -> None:
    result = document(tacit("run", "--method", "random", *TOWN, "--repeat", "3", "--json"))
    assert result["seeds"] == [42, 43, 44]
    assert len(set(result["runs"])) == 3
    singles = [Run.open(folder).metrics["NDCG@10"] for folder in result["runs"]]
    assert result["metrics"]["NDCG@10"] == pytest.approx(np.mean(singles))
    assert result["sd"]["NDCG@10"] == pytest.approx(np.std(singles, ddof=1))


def test_compare_tests_against_the_best_and_writes_a_report(tacit: Command, tmp_path: Path) -> None:
    Path("c.yaml").write_text(
        "name: two\ndata: {source: town, people: 120, places: 80}\n"
        "methods: [random, most-popular, {name: ease, reg: 50}]\n"
    )
    result = document(tacit("compare", "c.yaml", "--json"))
    rows = {row["method"]: row for row in result["rows"]}
    assert result["best"] == "ease"
    assert rows["ease"]["p_value_vs_best"] is None
    assert rows["random"]["p_value_vs_best"] < 0.01
    page = Path(result["report"]).read_text()
    assert all(name in page for name in rows)
    made = {p.suffix for p in (Path(result["report"]).parent / "figures").iterdir()}
    assert made == {".png", ".svg"}


def test_a_sweep_runs_every_point_of_the_grid(tacit: Command) -> None:
    Path("c.yaml").write_text(
        "name: sweep\ndata: {source: town, people: 120, places: 80}\nevaluation: {local_only_users: 0}\n"
        "methods: [{name: fpl, epochs: 2}]\ngrid: {method.pi: [0.0, 1.0], method.learning_rate: [0.01, 0.02]}\n"
    )
    labels = [row["label"] for row in document(tacit("compare", "c.yaml", "--json"))["rows"]]
    assert labels == [f"fpl pi={pi} learning_rate={rate}" for pi in (0.0, 1.0) for rate in (0.01, 0.02)]


def test_recommend_gives_reasons_and_nothing_from_the_history(tacit: Command) -> None:
    run = document(tacit("run", "--method", "item-knn", *TOWN, "--json"))["run"]
    found = document(tacit("recommend", run, "--user", "7", "-k", "5", "--json"))["recommendations"]
    assert len(found) == 5
    assert all(row["why"] for row in found)
    recommender = Run.open(run).recommender
    mine = {recommender.catalog.item_ids[i] for i in recommender.clients.of(recommender.user_ids.index(7))}
    assert not mine & {row["item"] for row in found}
    code, out, _ = tacit("recommend", run, "--user", "7", "-k", "2")
    assert code == 0
    assert "because of" in out


def test_the_other_commands_print_text_and_json(tacit: Command) -> None:
    names = [d["name"] for d in document(tacit("data", "list", "--json"))["datasets"]]
    assert {"town", "ml-100k", "ml-1m", "lastfm-2k", "foursquare-nyc"} <= set(names)
    about = document(tacit("data", "info", "town", "--set", "data.users=50", "--json"))
    assert about["users"] == 50
    assert document(tacit("doctor", "--json"))["ok"] is True
    options = document(tacit("methods", "ease", "--json"))["options"]
    assert "reg" in options
    listed = {one["name"]: one for one in document(tacit("methods", "--json"))["methods"]}
    kinds = {name: listed[name]["kind"] for name in ("ease", "fpl", "pepper")}
    assert kinds == {"ease": "centralised", "fpl": "federated", "pepper": "gossip"}
    assert listed["ease"]["options"] == options
    assert all(one["summary"] for one in listed.values())
    for command in (["data", "list"], ["doctor"], ["methods"], ["methods", "fpl"], ["data", "info", "town"]):
        code, out, _ = tacit(*command)
        assert code == 0
        assert out.strip()


def test_data_info_is_words_for_people_and_json_for_machines(tacit: Command) -> None:
    rows = ["u1,i1,3,1700000000", "u1,i2,4.5,1700000001", "u2,i2,4,1700000001"]
    Path("mine.csv").write_text("\n".join(["user,item,rating,timestamp", *rows]))
    code, out, _ = tacit("data", "info", "mine.csv")
    rows = [[cell.strip() for cell in line.split("│")] for line in out.splitlines() if "│" in line]
    told = {row[1]: row[2] for row in rows}
    assert code == 0
    assert not [sign for sign in ("{", '"', "[", "null", "true", "false") if sign in out]
    assert told["interactions"] == "3, 75 % of all pairs"
    assert told["per user"] == "1 to 2, median 1.5, mean 1.5"
    assert told["ratings"] == "3 to 4.5"
    assert told["times"] == "2023-11-14 to 2023-11-14"
    assert told["columns"] == "user: user"
    assert told["known of items"] == "their ids only"
    assert told["watch out"].startswith("1 of 2 users have a single row")
    assert document(tacit("data", "info", "mine.csv", "--json"))["per_person"]["median"] == 1.5


def test_a_table_shows_what_stands_in_it_brackets_and_all(capsys: pytest.CaptureFixture[str]) -> None:
    Screen().table("of [a]", ["[b]"], [["Film [rec]"], ["odd [/b]"]])
    out = capsys.readouterr().out
    assert all(text in out for text in ("of [a]", "[b]", "Film [rec]", "odd [/b]"))


def test_ones_own_file_by_path(tacit: Command) -> None:
    rows = [f"u{u},i{(u * 7 + k * 3) % 20},{1_600_000_000 + k}" for u in range(20) for k in range(10)]
    Path("mine.csv").write_text("\n".join(["who,what,when", *rows]))
    columns = "data.columns={user: who, item: what, timestamp: when}"
    result = document(tacit("run", "--method", "ease", "--data", "mine.csv", "--set", columns, "--json"))
    assert result["users"] == 20


BAD = {
    "unknown method": (["run", "--method", "eaze"], 3, "Did you mean 'ease'?"),
    "unknown option": (["run", "--method", "ease", "--set", "method.regg=1"], 3, "Did you mean 'reg'?"),
    "unknown section option": (["run", "--method", "ease", "--set", "split.tests=0.1"], 3, "Did you mean 'test'?"),
    "wrong type": (["run", "--method", "ease", "--set", "method.reg=much"], 3, "option 'reg'"),
    "unknown data": (["run", "--method", "ease", "--data", "m1-1m"], 4, "ml-1m"),
    "no such file": (["run", "no.yaml"], 3, "no.yaml"),
    "--method NAME": (["run"], 3, "--method"),
    "a core of nothing": (["run", "--method", "ease", *TOWN, "--set", "data.core=79"], 4, "core=79"),
    "not a run": (["recommend", "nowhere", "--user", "1"], 9, "nowhere"),
    "unknown command": (["frobnicate"], 2, "frobnicate"),
    "privacy without effect": (
        ["run", "--method", "ease", *TOWN, "--set", "privacy=[{name: disclose, pi: 0.5}]"],
        3,
        "whole histories",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gets_one_clear_message_and_leaves_nothing(tacit: Command, case: str, tmp_path: Path) -> None:
    arguments, number, words = BAD[case]
    code, out, err = tacit(*arguments)
    assert code == number, f"exit {code}: {err}"
    assert words in err.replace("\n", " ")
    assert out == ""
    assert not list(tmp_path.iterdir()), "something was left behind"
    code, out, _ = tacit(*arguments, "--json")
    error = json.loads(out)["error"]
    assert code == number
    assert error.keys() == {"kind", "message", "hint"}


def test_an_unknown_person_is_named(tacit: Command) -> None:
    run = document(tacit("run", "--method", "most-popular", *TOWN, "--json"))["run"]
    code, _, err = tacit("recommend", run, "--user", "unknown-user")
    assert code == 4
    assert "unknown-user" in err


def test_keys_that_stand_twice_are_refused(tacit: Command) -> None:
    Path("twice.yaml").write_text("seed: 1\nseed: 2\nmethod: ease\n")
    code, _, err = tacit("run", "twice.yaml")
    assert code == 3
    assert "occurs twice" in err.replace("\n", " ")


def test_recommend_on_a_comparison_names_its_runs(tacit: Command, tmp_path: Path) -> None:
    given = {"data": {"source": "town", "users": 60, "places": 40}, "methods": ["most-popular", "random"]}
    (tmp_path / "both.yaml").write_text(json.dumps({"name": "both", **given, "evaluation": {"local_only_users": 0}}))
    assert tacit("compare", str(tmp_path / "both.yaml"))[0] == 0
    code, out, _ = tacit("recommend", "runs/both", "--user", "1", "--json")
    error = json.loads(out)["error"]
    assert (code, error["kind"]) == (9, "StorageError")
    runs = [
        name for row in json.loads((tmp_path / "runs/both/result.json").read_text())["rows"] for name in row["runs"]
    ]
    assert all(name in error["hint"] for name in runs)
    assert tacit("recommend", runs[0], "--user", "1")[0] == 0


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        ("true", "runtime.secure={}"),
        ("false", "runtime.secure=null"),
        ("protocol", "runtime.secure.mode=protocol"),
        ("3", "n_min"),
    ],
)
def test_a_value_for_a_group_of_options_is_answered_with_what_to_write(tacit: Command, value: str, advice: str) -> None:
    code, out, _ = tacit("run", "--method", "fpl", *TOWN, "--set", f"runtime.secure={value}", "--json")
    error = json.loads(out)["error"]
    assert (code, error["kind"]) == (3, "ConfigError")
    assert advice in error["hint"]


def test_a_pattern_that_matches_several_folders_is_one_clear_error(tacit: Command, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    code, _, err = tacit("recommend", str(tmp_path / "a"), str(tmp_path / "b"), "--user", "7")
    assert code == 2
    assert "pattern" in err
