"""Ranking in shards over an engine changes no bit: metrics and the values of every user are those of one process."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.config import Experiment
from tacit.errors import EngineError
from tacit.evaluation import Evaluation, EvaluationConfig, EvaluationOptions, evaluate
from tacit.heldout import Heldout
from tacit.lab import experiments, memory
from tacit.lab.engine import EngineConfig
from tacit.lab.experiments import run
from tacit.lab.local_only import LocalOnlyTraining, score_alone
from tacit.lab.shard_worker import FileTask
from tacit.lab.sharded_ranking import SpreadRanking, cut_blocks, run_ranking
from tacit.lab.simulation import SimulationOptions, simulate
from tacit.lab.training import passes
from tacit.lab.workers import DaskWorkers, ProcessWorkers, Workers
from tacit.methods.base import Federated, build, entry, methods, options
from tacit.protocols.federated import UpdatePath
from tacit.random import Key
from tacit.serving.recommender import Recommender
from tacit.testing import make_clients, two_tastes
from tacit.types import Catalog, Clients, Vocabulary
from tacit.updates import Ring

USERS = 1000  # eight blocks: seven shards have one or two each
World = tuple[Clients, Catalog]


@pytest.fixture(scope="module")
def processes() -> Iterator[Workers]:
    workers = ProcessWorkers(2)
    yield workers
    workers.close()


def crowd(name: str, world: World) -> Recommender:
    """A model of few users, who stand for many."""
    clients, catalog = world
    fields = entry(name).config.model_fields
    few = {"epochs": 1, "factors": 6, "local_steps": 4, "clients_per_round": 16}
    chosen = options(name, {key: value for key, value in few.items() if key in fields})
    *_, last = passes(build(name, chosen), clients, catalog, Key(1))
    many = np.arange(USERS) % len(clients)
    return Recommender(name, chosen, last.copy().take(many), clients.take(many), catalog, Vocabulary(np.arange(USERS)))


@functools.cache
def held_out() -> Heldout:
    """Up to two unseen items of each user of a crowd."""
    few, catalog = two_tastes()
    clients, rng = few.take(np.arange(USERS) % len(few)), np.random.default_rng(5)
    unseen = [np.setdiff1d(np.arange(catalog.n_items), clients.of(user)) for user in range(USERS)]
    held = [rng.permutation(items)[: user % 3] for user, items in enumerate(unseen)]
    truth = make_clients([sorted(items.tolist()) for items in held], catalog.n_items)
    return Heldout(Clients(clients.ids, truth.ptr, truth.items, catalog.n_items), clients)


def judge(recommender: Recommender, config: EvaluationConfig, engine: EngineConfig | None) -> Evaluation:
    pairs = recommender.score_pairs if recommender.method.scores_pairs else None
    spread = None if engine is None else SpreadRanking(engine, recommender)
    how = EvaluationOptions(score_pairs=pairs, spread=spread, lists=not config.sampled)
    return evaluate(recommender.score, held_out(), recommender.catalog, config, Key(2), how)


def assert_same(one: Evaluation, other: Evaluation) -> None:
    assert one.overall == other.overall
    assert one.notes == other.notes
    np.testing.assert_array_equal(one.rows, other.rows)
    np.testing.assert_array_equal(one.top, other.top)  # type: ignore[arg-type]
    for name, values in one.values.items():
        np.testing.assert_array_equal(values, other.values[name], err_msg=name)


CONFIGS = [EvaluationConfig(k=(3, 5)), EvaluationConfig(k=3, protocol="sampled-7"), EvaluationConfig(k=3, users=700)]


@pytest.mark.slow
@pytest.mark.parametrize("name", list(methods()))
def test_every_method_is_ranked_in_processes_as_in_one(name: str, tastes: World, processes: Workers) -> None:
    recommender = crowd(name, tastes)
    one = judge(recommender, CONFIGS[0], None)
    assert_same(one, judge(recommender, CONFIGS[0], EngineConfig("processes", 3, workers=processes)))
    alone = LocalOnlyTraining(recommender.method, recommender.catalog, Key(3), Ring())
    positions = np.array([7, 0, 4])
    scores = score_alone(alone, recommender.clients, positions)
    for engine in (EngineConfig(threads=2), EngineConfig("processes", workers=processes)):
        assert score_alone(alone, recommender.clients, positions, engine).tobytes() == scores.tobytes()


@pytest.mark.parametrize("config", CONFIGS, ids=["full", "sampled", "some"])
@pytest.mark.parametrize("shards", [1, 2, 3, 7])
def test_the_number_of_shards_changes_nothing(
    config: EvaluationConfig, shards: int, tastes: World, processes: Workers
) -> None:
    recommender = crowd("fed-gmf", tastes)
    engine = EngineConfig("processes", shards, workers=processes)
    assert_same(judge(recommender, config, None), judge(recommender, config, engine))


@pytest.mark.slow
@pytest.mark.skipif(find_spec("distributed") is None, reason="Dask is an extra")
@pytest.mark.filterwarnings("ignore")
def test_dask_ranks_the_same(tastes: World) -> None:
    workers = DaskWorkers("", 2)
    try:
        for name in ("fed-svd", "fpl"):
            recommender = crowd(name, tastes)
            one = judge(recommender, CONFIGS[0], None)
            for shards in (1, 2, 3, 7):
                assert_same(one, judge(recommender, CONFIGS[0], EngineConfig("dask", shards, workers=workers)))
    finally:
        workers.close()


@pytest.mark.parametrize(("users", "shards"), [(0, 3), (1, 3), (128, 2), (129, 2), (1000, 7), (1000, 64)])
def test_shards_are_whole_blocks_and_together_all_users(users: int, shards: int) -> None:
    cuts = cut_blocks(users, shards)
    assert cuts[0] == 0
    assert cuts[-1] == users
    assert all(cut % 128 == 0 for cut in cuts[:-1])
    assert all(low < high for low, high in pairwise(cuts)) or users == 0
    assert len(cuts) - 1 == max(1, min(shards, -(-users // 128)))


@pytest.mark.slow
def test_a_run_with_an_engine_is_the_run_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiments, "LEAST_SCORES", 0)
    asked: dict[str, Any] = {"data": {"source": "town"}, "method": {"name": "fed-svd", "factors": 4, "epochs": 2}}
    asked |= {"evaluation": {"local_only_users": 4}, "split": {"validation": True}}
    looks = {"evaluate_every": 1}
    one = run(Experiment.model_validate({**asked, "runtime": looks}))
    there = {**looks, "engine": "processes", "folder": str(tmp_path)}
    other = run(Experiment.model_validate({**asked, "runtime": there}))
    for what in ("metrics", "leak", "ci", "notes"):
        assert one.result[what] == other.result[what]
    assert one.users.equals(other.users)
    assert one.curve.drop("seconds").equals(other.curve.drop("seconds"))
    assert not list(tmp_path.iterdir()), "files on their way are removed"


def test_what_would_not_fit_is_refused_with_the_figure(
    tastes: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: Workers
) -> None:
    recommender, engine = (
        crowd("fed-svd", tastes),
        EngineConfig("processes", 2, folder=str(tmp_path), workers=processes),
    )
    monkeypatch.setattr(memory, "free_memory", lambda: 1e9)
    memory.refuse_too_large_shards(100e6, 50e6, 2, 2)
    with pytest.raises(EngineError, match=r"need 1\.1 GB.*0\.9 GB are free") as refused:
        memory.refuse_too_large_shards(100e6, 200e6, 2, 2)
    assert "runtime.shards to 5" in refused.value.hint
    with pytest.raises(EngineError) as refused:  # a worker that holds all of its shards: more of them do not help
        memory.refuse_too_large_shards(100e6, 50e6, 4)
    assert "runtime.shards to 2 or fewer" in refused.value.hint
    memory.refuse_too_large_shards(100e6, 100e6, 2)
    with pytest.raises(EngineError) as refused:
        memory.refuse_too_large_shards(100e6, 800e6, 1)
    assert "runtime.shards" not in refused.value.hint
    monkeypatch.setattr(memory, "free_memory", lambda: 1e6)
    with pytest.raises(EngineError, match="GB are free"):
        judge(recommender, CONFIGS[0], engine)
    method = recommender.method
    assert isinstance(method, Federated)
    learning = simulate(UpdatePath(method, (), Ring()), *tastes, Key(1), None, SimulationOptions(engine=engine))
    with pytest.raises(EngineError, match="GB are free"):
        next(learning)
    assert not list(tmp_path.iterdir()), "nothing stays"


def test_a_folder_that_is_not_there_is_refused(tastes: World, tmp_path: Path, processes: Workers) -> None:
    recommender = crowd("fed-svd", tastes)
    engine = EngineConfig("processes", 2, folder=str(tmp_path / "none"), workers=processes)
    with pytest.raises(EngineError) as refused:
        judge(recommender, CONFIGS[0], engine)
    assert "runtime.folder" in refused.value.hint
    method = recommender.method
    assert isinstance(method, Federated)
    with pytest.raises(EngineError):
        next(simulate(UpdatePath(method, (), Ring()), *tastes, Key(1), None, SimulationOptions(engine=engine)))


def test_a_worker_that_does_not_see_the_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineError) as refused:
        run_ranking(FileTask(str(tmp_path / "elsewhere"), 0))
    assert "runtime.folder" in refused.value.hint
