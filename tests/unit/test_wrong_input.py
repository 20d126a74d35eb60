"""What a program may hand over by mistake: each is one clear error, or there is a rule for it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import tacit
from tacit.errors import ConfigError, DataError
from tacit.lab.training import passes
from tacit.methods.base import build
from tacit.protocols.federated import UpdatePath

ROWS = [(f"p{u}", f"i{(u * 5 + k * (1 + u % 3)) % 24}") for u in range(12) for k in range(6)]
FRAME = pl.DataFrame(ROWS, ["user", "item"], orient="row")


def cohort(n_items: int, **given: Any) -> tacit.Clients:
    """Three clients with two items each."""
    items = given.pop("items", np.array([0, n_items - 1, 0, 1, 1, 2], np.int32))
    return tacit.Clients(np.arange(3), given.pop("ptr", np.array([0, 2, 4, 6])), items, n_items, **given)


def catalog(n_items: int) -> tacit.Catalog:
    return tacit.Catalog(tacit.Vocabulary(np.arange(n_items)))


@pytest.fixture(scope="module")
def served() -> tacit.Recommender:
    return tacit.fit(tacit.Experiment(method="ease"), FRAME)


@pytest.mark.parametrize("k", [-1, 2.5, "5", None, True, float("nan")])
def test_a_length_that_is_none_is_refused(served: tacit.Recommender, k: Any) -> None:
    for ask in (
        lambda: served.recommend("p1", k=k),
        lambda: served.recommend_for(["i1"], k=k),
        lambda: served.recommend_all(k=k),
    ):
        with pytest.raises(ConfigError):
            ask()


def test_lists_are_as_long_as_there_are_items_left(served: tacit.Recommender) -> None:
    n_left = served.catalog.n_items - len({item for user, item in ROWS if user == "p1"})
    assert len(served.recommend("p1", k=10**9)) == n_left
    assert served.recommend("p1", k=0) == []
    assert len(served.recommend("p1", k=np.int64(2))) == 2  # type: ignore[arg-type]
    assert served.recommend_all(k=0).height == 0


@pytest.mark.parametrize("user", ["nobody here", None, float("nan"), ["p1"], 7])
def test_an_unknown_user_is_one_error(served: tacit.Recommender, user: Any) -> None:
    with pytest.raises(DataError):
        served.recommend(user)
    with pytest.raises(DataError):
        served.recommend_all([user])


@pytest.mark.parametrize(
    "ask",
    [
        lambda served: served.recommend_for("i1"),
        lambda served: served.recommend_for(None),
        lambda served: served.recommend_all("p1"),
        lambda served: tacit.ListFilter(only="i1"),
        lambda served: tacit.ListFilter(exclude="i1"),
        lambda served: tacit.ListFilter(categories="food"),
        lambda served: served.recommend("p1", among=["i1"]),
    ],
)
def test_one_text_in_place_of_a_list_is_refused(served: tacit.Recommender, ask: Callable[[Any], Any]) -> None:
    with pytest.raises(tacit.TacitError):
        ask(served)


def test_a_history_that_can_be_read_once_and_ids_that_are_none_are_taken(served: tacit.Recommender) -> None:
    once = served.recommend_for((item for item in ["i1", "i2"]), k=3)  # type: ignore[arg-type]
    assert once == served.recommend_for(["i1", "i2"], k=3)
    strange: list[Any] = ["i1", None, ["i2"], None]
    assert served.recommend_for(strange, k=3) == served.recommend_for(["i1"], k=3)
    assert len(served.recommend_for(strange, k=3).notices) == 1


HUGE = FRAME.with_columns(pl.Series("user", [2**63 + at % 7 for at in range(len(ROWS))], dtype=pl.UInt64))


def test_ids_beyond_signed_numbers_are_text() -> None:
    data = tacit.load(HUGE)
    assert data.interactions.user_ids.find(str(2**63 + 1)) == 1
    assert data.interactions.user_ids.find(2**63 + 1) == 1
    assert tacit.load(HUGE.with_columns(pl.col("user") - 2**63)).interactions.user_ids.labels.dtype.kind == "i"


@pytest.mark.parametrize(
    "frame",
    [
        pl.DataFrame(),
        FRAME.clear(),
        FRAME.with_columns(pl.concat_list("user")),
        FRAME.with_columns(pl.struct("user").alias("user")),
        FRAME.with_columns(pl.lit("").alias("user")),
        FRAME.with_columns(pl.lit(None, pl.String).alias("item")),
        FRAME.with_columns(pl.lit(float("nan")).alias("item")),
        pd.concat([FRAME.to_pandas(), FRAME.to_pandas()], axis=1),
        FRAME.to_pandas().set_index("user"),
        FRAME.rename({"user": "uu"}),
        FRAME.to_dict(as_series=False),
        np.zeros((3, 2)),
    ],
)
def test_a_frame_that_is_no_log_is_refused(frame: Any) -> None:
    with pytest.raises(DataError):
        tacit.load(frame)


def test_rows_may_stand_twice_and_in_any_order() -> None:
    plain = tacit.load(FRAME)
    for other in (pl.concat([FRAME, FRAME]), FRAME.reverse()):
        data = tacit.load(other)
        pairs = [
            set(zip(d.interactions.users.tolist(), d.interactions.items.tolist(), strict=True)) for d in (plain, data)
        ]
        assert pairs[0] == pairs[1]
        assert len(data.interactions) == len(plain.interactions)


@pytest.mark.parametrize("given", [None, 5, {"method": "ease"}, FRAME])
def test_only_settings_are_run(given: Any) -> None:
    for act in (tacit.run, tacit.fit, tacit.compare):
        with pytest.raises(ConfigError):
            act(given)
    with pytest.raises(DataError):
        tacit.split(given, tacit.SplitConfig(), tacit.Key(1))


@pytest.mark.parametrize(
    "make",
    [
        lambda: tacit.Experiment(),  # type: ignore[call-arg]
        lambda: tacit.Experiment(method="ease", sed=1),  # type: ignore[call-arg]
        lambda: tacit.Experiment(method="ease", seed=-1),
        lambda: tacit.Experiment(method="ease", seed="x"),
        lambda: tacit.Experiment(method="eaze"),
        lambda: tacit.Experiment(method={"name": "ease", "reg": float("nan")}),
        lambda: tacit.SplitConfig(kind="x"),
        lambda: tacit.SplitConfig(test=1.5),
        lambda: tacit.EvaluationConfig(k=[0]),
        lambda: tacit.Ring(bits=7),
    ],
)
def test_wrong_options_are_one_error_of_ours(make: Callable[[], Any]) -> None:
    with pytest.raises(ConfigError):
        make()


LISTED = """
import tacit
first = tacit.methods()
import tacit.methods.ease
from tacit import methods
assert "ease" in first
assert tacit.methods().keys() == methods().keys() == first.keys()
"""


@pytest.mark.slow
def test_methods_are_listed_also_once_one_was_imported() -> None:
    assert subprocess.run([sys.executable, "-c", LISTED], check=False, timeout=60).returncode == 0


@pytest.mark.parametrize(
    "given",
    [
        {"items": np.array([0, 9, 0, 1, 1, 2], np.int32)},
        {"items": np.array([0, -2, 0, 1, 1, 2], np.int32)},
        {"items": np.array([0.0, 1.0, 0.0, 1.0, 1.0, 2.0])},
        {"ptr": np.array([0, 5, 4, 6])},
        {"ptr": np.array([0, 2, 6])},
        {"values": np.ones(5, np.float32)},
        {"times": np.ones(7, np.int64)},
        {"places": np.ones(1, np.int32)},
    ],
)
def test_histories_that_contradict_themselves_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(DataError):
        cohort(8, **given)


OUTSIDE = cohort(3, items=np.array([-1, 2, 0, 1, 1, 2], np.int32))
OTHERS = [(cohort(8), catalog(3)), (cohort(3), catalog(8)), (OUTSIDE, catalog(3))]


@pytest.mark.parametrize(("clients", "other"), OTHERS)
def test_histories_meet_the_catalogue_that_they_were_made_with(clients: tacit.Clients, other: tacit.Catalog) -> None:
    from tacit.lab.simulation import simulate
    from tacit.testing import check_federated

    key = tacit.Key(1)
    path = UpdatePath(build("fpl"), [], tacit.Ring())  # type: ignore[arg-type]
    options = build("ease").config  # type: ignore[attr-defined]
    for act in (
        lambda: next(passes(build("bpr-mf"), clients, other, key)),
        lambda: next(build("bpr-mf").fit(clients, other, key)),  # type: ignore[attr-defined]
        lambda: next(passes(build("pepper"), clients, other, key)),
        lambda: next(simulate(path, clients, other, key)),
        lambda: check_federated(build("fpl"), clients, other),  # type: ignore[arg-type]
        lambda: tacit.Recommender("ease", options, tacit.Model({}, {}), clients, other, tacit.Vocabulary(np.arange(3))),
    ):
        with pytest.raises(DataError):
            act()
