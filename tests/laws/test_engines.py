"""Shards and engines change no bit: models, ledgers and logs are those of one process."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.dying_workers import Dies, OutOfMemory
from tacit.errors import EngineError
from tacit.lab.adversaries import Adversaries, AdversaryConfig
from tacit.lab.engine import EngineConfig
from tacit.lab.events import Events
from tacit.lab.guarantee import PrivacyLog, build_privacy
from tacit.lab.secure_rounds import SecureRoundsConfig
from tacit.lab.shard_worker import ShardTask, WorkerIdentity, run_task
from tacit.lab.shards import Shard, ShardRequest, cut_clients, cut_evenly
from tacit.lab.simulation import SimulationOptions, simulate
from tacit.lab.traffic import Traffic
from tacit.lab.workers import DaskWorkers, ProcessWorkers, Workers, refuse_other_bits
from tacit.methods.base import build, entry, names, options
from tacit.privacy.clipping import Clipping
from tacit.privacy.disclosure import Disclosure, DisclosureConfig
from tacit.privacy.dp import DPConfig
from tacit.protocols.criteria import CriteriaConfig
from tacit.protocols.federated import UpdatePath
from tacit.protocols.robust import RobustConfig
from tacit.protocols.rounds import RoundsConfig
from tacit.protocols.weighing import WeightLog
from tacit.random import Key
from tacit.testing import make_clients
from tacit.types import Catalog, Clients, Labels, Vocabulary, offsets
from tacit.updates import Ring

FEDERATED = names("federated")
KEY, RING = Key(7).child("learn"), Ring()
World = tuple[Clients, Catalog]


@pytest.fixture(scope="module")
def world() -> World:
    """Forty people with three to nine of thirty items."""
    rng = np.random.default_rng(3)
    rows = [np.sort(rng.choice(30, int(rng.integers(3, 10)), replace=False)) for _ in range(40)]
    items = np.concatenate(rows).astype(np.int32)
    times = rng.integers(10**9, 10**9 + 10**6, len(items))
    clients = Clients(np.arange(40), offsets(np.array([len(r) for r in rows])), items, 30, times=times)
    kinds = Labels(np.arange(31), (np.arange(30) // 5).astype(np.int32), list("abcdef"))
    return clients, Catalog(Vocabulary(np.arange(100, 130)), categories=kinds)


@pytest.fixture(scope="module")
def processes() -> Iterator[Workers]:
    workers = ProcessWorkers(2)
    yield workers
    workers.close()


def quick(name: str, **more: Any) -> Any:
    fields = entry(name).config.model_fields
    few = {"epochs": 3, "factors": 6, "learning_rate": 0.05, "clients_per_round": 16, "local_steps": 4, **more}
    return build(name, options(name, {k: v for k, v in few.items() if k in fields}))


Found = tuple[dict[str, Any], dict[str, Any], dict[str, Any], list[dict[str, Any]]]


def learn(name: str, world: World, engine: EngineConfig, how: str = "stages", stages: Any = None, **more: Any) -> Found:
    """Return shared and private part after the last pass, the ledger, and what the logs of a run hold."""
    clients, catalog = world
    method, traffic, logs = quick(name, **more), Traffic.none(len(clients)), []
    disclosure = Disclosure.build(DisclosureConfig(pi=0.5), Vocabulary(np.arange(40)), catalog, KEY)
    if stages is None:
        stages = [disclosure, Clipping(person=0.5)] if how == "stages" else []
    given: dict[str, Any] = {}
    if how == "dp":
        given["privacy_log"] = PrivacyLog()
        dp = build_privacy(DPConfig(epsilon=3.0, bound=1.0), method, clients, catalog, KEY, RING, RoundsConfig())
        stages = [dp]
    elif how == "dropouts":
        given["rounds"] = RoundsConfig(dropout=0.3, over_selection=0.5, minimum=5)
    elif how == "groups":
        given["rounds"] = RoundsConfig(robust=RobustConfig(rule="median", groups=4))
    elif how == "criteria":
        given["weight_log"] = WeightLog()
        given["rounds"] = RoundsConfig(criteria=CriteriaConfig(order=("size", "divergence")))
    elif how in ("exact", "protocol"):
        given["rounds"] = RoundsConfig(dropout=0.1)
        given["secure"] = SecureRoundsConfig(mode=how, n_min=3, k_min=2)  # type: ignore[arg-type]
    elif how == "adversaries":
        config = AdversaryConfig(share=0.3, kind="noise")
        tables = method.spec.item_tables
        given["adversaries"] = Adversaries.build(config, catalog, RING, KEY.child("liars"), tables)
        given["events"] = Events(Vocabulary(np.arange(40)), catalog.item_ids)
    simulation = SimulationOptions(engine=engine, **given)
    for model in simulate(UpdatePath(method, stages, RING), clients, catalog, KEY, traffic, simulation):
        last = model
    if how == "adversaries":
        logs = given["events"].scan().collect().to_dicts()
    elif how == "criteria":
        logs = given["weight_log"].frame().to_dicts()
    elif how == "dp":
        logs = [vars(round_) | {"summed": str(round_)} for round_ in given["privacy_log"].rounds]
    private = {name: array.copy() for name, array in last.private.items()}
    return {name: array.copy() for name, array in last.shared.items()}, private, vars(traffic), logs


def assert_same(left: Found, right: Found) -> None:
    for ours, theirs in zip(left[:3], right[:3], strict=True):
        assert ours.keys() == theirs.keys()
        for name, array in ours.items():
            assert array.dtype == theirs[name].dtype, name
            np.testing.assert_array_equal(array, theirs[name], err_msg=name)
    assert repr(left[3]) == repr(right[3])


@pytest.mark.parametrize("name", FEDERATED)
@pytest.mark.parametrize("shards", [2, 3, 7])
def test_shards_in_threads_give_the_bits_of_one(name: str, shards: int, world: World) -> None:
    one = learn(name, world, EngineConfig())
    assert_same(one, learn(name, world, EngineConfig(shards=shards, threads=2)))


@pytest.mark.slow
@pytest.mark.parametrize("name", FEDERATED)
def test_shards_in_processes_give_the_bits_of_one(name: str, world: World, processes: Workers) -> None:
    one = learn(name, world, EngineConfig())
    for shards in (1, 2, 3, 7):
        assert_same(one, learn(name, world, EngineConfig("processes", shards, workers=processes)))


HOWS = ["dp", "dropouts", "groups", "criteria", "exact", "adversaries"]
CASES = [(name, how) for name in ("fpl", "fed-gmf", "fed-svd") for how in HOWS]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "how"), [*CASES, ("fed-gmf", "protocol")])
@pytest.mark.parametrize("kind", ["local", "processes"])
def test_engines_give_the_same_bits_whatever_happens_in_rounds(
    name: str, kind: Any, how: str, world: World, processes: Workers
) -> None:
    workers = None if kind == "local" else processes
    one = learn(name, world, EngineConfig(), how)
    assert_same(one, learn(name, world, EngineConfig(kind, 3, 2, workers=workers), how))


@pytest.mark.slow
@pytest.mark.skipif(find_spec("distributed") is None, reason="Dask is an extra")
@pytest.mark.filterwarnings("ignore")
def test_dask_gives_the_same_bits(world: World) -> None:
    workers = DaskWorkers("", 2)
    try:
        for name in FEDERATED:
            one = learn(name, world, EngineConfig())
            for shards in (1, 2, 3, 7):
                assert_same(one, learn(name, world, EngineConfig("dask", shards, workers=workers)))
    finally:
        workers.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fpl", "fed-svd"])
def test_a_killed_worker_changes_nothing_but_time(name: str, world: World, tmp_path: Path) -> None:
    """One dies in the first round, one after the first checkpoint; their shards learn the same again elsewhere."""
    rounds = (0, 9) if name != "fed-svd" else (0, 2)
    dying = [Dies(tmp_path, rounds)]
    one = learn(name, world, EngineConfig(), stages=dying, epochs=12)
    assert not list(tmp_path.iterdir())
    assert_same(one, learn(name, world, EngineConfig("processes", 3), stages=dying, epochs=12))
    assert len(list(tmp_path.iterdir())) == len(rounds)


@pytest.mark.slow
def test_a_shard_whose_workers_always_die_is_refused(world: World, tmp_path: Path) -> None:
    scratch, folder = tmp_path / "deaths", tmp_path / "arrays"
    scratch.mkdir()
    folder.mkdir()
    engine = EngineConfig("processes", 2, folder=str(folder))
    with pytest.raises(EngineError) as refused:
        learn("fed-svd", world, engine, stages=[Dies(scratch, (1,), times=99)])
    assert refused.value.exit_code == 18
    assert not list(folder.iterdir()), "arrays on their way are removed"


@pytest.mark.slow
def test_no_cluster_at_an_address_is_refused_and_nothing_stays(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr("tacit.lab.workers.REACH_SECONDS", 1)
    engine = EngineConfig("dask", 2, address="tcp://127.0.0.1:9", folder=str(tmp_path))
    with pytest.raises(EngineError, match=r"127\.0\.0\.1:9"):
        learn("fed-svd", world, engine)
    assert not list(tmp_path.iterdir())


def test_a_shard_that_does_not_fit_in_memory_is_refused_with_what_to_do(
    world: World, tmp_path: Path, processes: Workers
) -> None:
    engine = EngineConfig("processes", 2, folder=str(tmp_path), workers=processes)
    with pytest.raises(EngineError) as refused:
        learn("fed-svd", world, engine, stages=[OutOfMemory()])
    assert "runtime.shards" in refused.value.hint
    assert not list(tmp_path.iterdir()), "arrays on their way are removed"
    assert_same(learn("fed-svd", world, EngineConfig()), learn("fed-svd", world, engine))


def test_a_worker_that_does_not_see_the_folder_is_refused(tmp_path: Path) -> None:
    task = ShardTask(str(tmp_path / "elsewhere"), 0, "fetch", 0)
    with pytest.raises(EngineError) as refused:
        run_task(task)
    assert "runtime.folder" in refused.value.hint


@pytest.mark.parametrize("name", ["tacit", "numpy", "processor"])
def test_a_worker_with_another_version_is_refused(name: str) -> None:
    own = WorkerIdentity.of_this_process()
    refuse_other_bits(own, "tcp://there")
    other = tuple((what, f"{version}.1" if what == name else version) for what, version in own.bits)
    with pytest.raises(EngineError, match=name):
        refuse_other_bits(replace(own, bits=other), "tcp://there")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in FEDERATED if not build(name).spec.client_tables])
def test_a_round_of_few_clients_makes_nothing_of_the_size_of_all(name: str, world: World) -> None:
    """Rounds of twenty among a million clients are many: each may cost what twenty clients and the tables cost."""
    n_clients = 200_000
    clients = world[0].take(np.arange(n_clients) % len(world[0]))
    method = quick(name, clients_per_round=20)
    model = method.init(clients, world[1], KEY)
    shard = Shard(UpdatePath(method, (), RING), KEY, 0, clients, model.private)
    request = ShardRequest(0, np.arange(20) * 99)
    shard.answer(request, model.shared)
    tracemalloc.start()
    try:
        answer, learnt = shard.answer(request, model.shared)
        shard.keep(learnt)
        assert answer.total is not None
        assert tracemalloc.get_traced_memory()[1] < n_clients
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("n_clients", "n_shards"), [(1, 3), (7, 7), (40, 3), (40, 64)])
def test_every_shard_has_clients_and_together_they_are_all(n_clients: int, n_shards: int) -> None:
    rng = np.random.default_rng(n_clients)
    clients = make_clients([[*range(int(rng.integers(0, 9)))] for _ in range(n_clients)], 9)
    cuts = cut_evenly(clients, n_shards)
    assert len(cuts) == min(n_clients, n_shards) + 1
    assert (np.diff(cuts) > 0).all()
    parts = [cut_clients(clients, slice(low, high)) for low, high in pairwise(cuts.tolist())]
    assert np.concatenate([part.ids for part in parts]).tolist() == clients.ids.tolist()
    assert np.concatenate([part.items for part in parts]).tolist() == clients.items.tolist()
    assert np.concatenate([part.sizes for part in parts]).tolist() == clients.sizes.tolist()
