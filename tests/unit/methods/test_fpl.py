"""FPL's options, its schedule, and what it refuses before anything is learnt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.cli.app import main
from tacit.config import Experiment
from tacit.errors import ConfigError, DivergedError, MethodError
from tacit.lab import training
from tacit.lab.experiments import run
from tacit.lab.simulation import SimulationOptions, simulate
from tacit.methods.base import build_federated, options
from tacit.protocols.federated import UpdatePath
from tacit.random import Key
from tacit.testing import make_clients
from tacit.types import Catalog, Clients, Vocabulary
from tacit.updates import Ring

CATALOG = Catalog(Vocabulary(np.arange(12)))


def clients_of(*histories: list[int]) -> Clients:
    return make_clients(histories, 12)


def path_of(**given: Any) -> UpdatePath:
    return UpdatePath(build_federated("fpl", options("fpl", given)), (), Ring())


@pytest.fixture
def forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing may be learnt: whoever reads a model of a pass has begun training."""

    def trained(*given: Any, **more: Any) -> Any:
        for _ in simulate(*given, **more):
            raise AssertionError("training began before the error")
        yield

    monkeypatch.setattr(training, "simulate", trained)


PEOPLE = "user,item,timestamp\n" + "".join(f"u{u},i{i},{i}\n" for u in range(8) for i in range(u, u + 12))
EVERY = PEOPLE + "".join(f"all,i{i},{i}\n" for i in range(19)) + "all,only she,99\n"
COMMANDS: dict[str, tuple[str, list[str], int, str]] = {
    "pi above 1": (PEOPLE, ["method.pi=1.5"], 3, "from 0 to 1"),
    "pi of a stage below 0": (PEOPLE, ["privacy=[{name: disclose, pi: -1}]"], 3, "from 0 to 1"),
    "pi as a missing file": (PEOPLE, ["method.pi=nowhere.csv"], 3, "no file 'nowhere.csv'"),
    "a pi file that misses people": (PEOPLE, ["method.pi={pi}"], 3, "no value for 7 users, such as 'u1'"),
    "a pi file beyond 1": (PEOPLE, ["method.pi={beyond}"], 3, "'u0' 7"),
    "a never-share item": (PEOPLE, ["privacy=[{name: disclose, never_items: [i99]}]"], 4, "never_items 'i99'"),
    "a never-share category": (
        PEOPLE,
        ["privacy=[{name: disclose, never_categories: [bar]}]"],
        3,
        "this catalogue has no categories",
    ),
    "more clients than people": (PEOPLE, ["method.clients_per_round=9"], 6, "9 clients per round, but there are 8"),
    "history has every item": (EVERY, ["split.test=0.1", "split.catalog=train"], 6, "has every item"),
    "someone left with nothing": (
        PEOPLE + "one,i3,4\n",
        ["split.kind=leave-last-out"],
        4,
        "at least 2 rows per user",
    ),
    "zero triples": (PEOPLE, ["method.local_steps=-1"], 3, "local_steps"),
    "zero epochs": (PEOPLE, ["method.epochs=0"], 3, "epochs"),
    "pi twice": (PEOPLE, ["method.pi=0.5", "privacy=[{name: disclose}]"], 3, "Keep one of them"),
}


@pytest.mark.slow
@pytest.mark.usefixtures("forbidden")
@pytest.mark.parametrize("case", COMMANDS)
def test_bad_input_is_one_clear_error_before_any_training(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, given, code, said = COMMANDS[case]
    (tmp_path / "log.csv").write_text(log, encoding="utf-8")
    (tmp_path / "pi.csv").write_text("user,pi\nu0,0.5\n", encoding="utf-8")
    (tmp_path / "beyond.csv").write_text("user,pi\n" + "".join(f"u{u},{7 - u}\n" for u in range(8)), encoding="utf-8")
    files = {"{pi}": str(tmp_path / "pi.csv"), "{beyond}": str(tmp_path / "beyond.csv")}
    for name, path in files.items():
        given = [text.replace(name, path) for text in given]
    settings = [part for text in given for part in ("--set", text)]
    where = ["--data", str(tmp_path / "log.csv"), "--out", str(tmp_path / "runs")]
    with pytest.raises(SystemExit) as stopped:
        main(["run", "--method", "fpl", *where, *settings])
    shown = " ".join(capsys.readouterr().err.split())
    assert stopped.value.code == code, shown
    assert said in shown
    assert "Traceback" not in shown
    assert not list((tmp_path / "runs").glob("*/result.json"))


def test_a_person_with_one_item_takes_part() -> None:
    clients = clients_of([3], [1, 2, 5, 7], [0, 3])
    for model in simulate(path_of(epochs=2), clients, CATALOG, Key(1)):
        assert np.isfinite(model.private["p"]).all()


def test_an_empty_history_and_a_full_one_are_refused() -> None:
    with pytest.raises(MethodError, match="at least one item"):
        next(simulate(path_of(), clients_of([3], [], [1, 2]), CATALOG, Key(1)))
    with pytest.raises(MethodError, match="every item"):
        next(simulate(path_of(), clients_of([3], list(range(12))), CATALOG, Key(1)))


def test_presets_are_the_four_configurations_of_the_paper() -> None:
    rng = np.random.default_rng(0)
    clients = clients_of(*(rng.choice(12, size, replace=False).tolist() for size in (4, 6, 8, 6)))
    found = {}
    for preset in ("sFPL", "sFPL+", "pFPL", "pFPL+"):
        method = path_of(preset=preset, epochs=2).method
        schedule = method.schedule(clients)
        found[preset] = schedule.rounds_per_pass, schedule.clients_per_round
        steps = int(method.init(clients, CATALOG, Key(1)).shared["local_steps"])
        assert schedule.rounds_per_pass * schedule.clients_per_round * steps == len(clients.items)
    assert found == {"sFPL": (24, 1), "sFPL+": (4, 1), "pFPL": (6, 4), "pFPL+": (1, 4)}
    with pytest.raises(ConfigError, match="no preset 'xFPL'"):
        options("fpl", {"preset": "xFPL"})
    with pytest.raises(ConfigError, match="either, not both"):
        options("fpl", {"preset": "sFPL", "local_steps": 3})


@pytest.mark.parametrize("rounds", [1, 5, 7, 30])
def test_so_many_rounds_are_run_as_were_asked_for(rounds: int) -> None:
    clients = clients_of([1, 2, 5, 7], [0, 3, 4, 6], [2, 3, 8, 9])
    assert path_of(preset="pFPL", rounds=rounds).method.schedule(clients).rounds == rounds


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["sFPL", "sFPL+", "pFPL", "pFPL+"])
@pytest.mark.parametrize("reference", [False, True])
def test_running_away_stops_with_a_hint(preset: str, reference: bool) -> None:
    rng = np.random.default_rng(1)
    clients = clients_of(*(rng.choice(12, 6, replace=False).tolist() for _ in range(150)))
    rate = 0.5 if preset.startswith("p") else 40.0
    path, how = path_of(preset=preset, learning_rate=rate, epochs=40), SimulationOptions(reference=reference)
    with pytest.raises(DivergedError, match="learning_rate") as stopped:
        list(simulate(path, clients, CATALOG, Key(1), options=how))
    assert "Lower" in str(stopped.value) or "lower" in str(stopped.value)


def test_a_run_that_diverges_leaves_no_folder(tmp_path: Path) -> None:
    experiment = Experiment.from_options(
        {
            "data": {"source": "town", "users": 200, "places": 60},
            "method": {"name": "fpl", "preset": "pFPL+", "learning_rate": 0.5},
        },
        "test",
    )
    with pytest.raises(DivergedError, match="learning_rate"):
        run(experiment, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()
