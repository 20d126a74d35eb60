"""What may leave: the pi of each client, coins that fall as often as they should, and what never leaves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tacit.errors import ConfigError, DataError, MethodError
from tacit.privacy.disclosure import Disclosure, DisclosureConfig
from tacit.privacy.update_sink import UpdateSink, row_bytes
from tacit.random import Key
from tacit.types import Catalog, Labels, Vocabulary
from tacit.updates import PlannedRows, Release, Ring, UpdatePlan

PEOPLE = Vocabulary(np.arange(2000) + 10)
ITEMS = Vocabulary(np.array(["bar", "café", "pier", "park"], dtype=object))
CATALOG = Catalog(ITEMS, categories=Labels(np.array([0, 1, 2, 3, 3]), np.array([0, 0, 1]), ["food", "sea"]))


def built(**given: object) -> Disclosure:
    return Disclosure.build(DisclosureConfig.from_options(given, "privacy"), PEOPLE, CATALOG, Key(5))


def test_one_number_holds_for_all_clients() -> None:
    assert (built(pi=0.25).pi == 0.25).all()
    assert (built(pi=1).pi == 1.0).all()


def test_a_distribution_is_drawn_once_per_person_and_has_its_shape() -> None:
    uniform, beta = built(pi="uniform(0.2, 0.6)").pi, built(pi="beta(2,5)").pi
    assert uniform.min() >= 0.2
    assert uniform.max() <= 0.6
    assert abs(uniform.mean() - 0.4) < 0.01
    assert abs(uniform.std() - 0.4 / np.sqrt(12)) < 0.005
    assert abs(beta.mean() - 2 / 7) < 0.01
    assert abs(beta.var() - 2 * 5 / (7**2 * 8)) < 0.002
    assert np.array_equal(beta, built(pi="beta(2,5)").pi)


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_a_file_gives_each_user_a_pi(tmp_path: Path, suffix: str) -> None:
    file, comma = tmp_path / f"pi{suffix}", "," if suffix == ".csv" else "\t"
    rows = [f"{label}{comma}{i / 2000}" for i, label in enumerate(PEOPLE.labels)] + [f"unknown-user{comma}0.5"]
    file.write_text(f"user{comma}pi\n" + "\n".join(reversed(rows)), encoding="utf-8")
    assert np.allclose(built(pi=str(file)).pi, np.arange(2000) / 2000)


FILES = {
    "misses people": ("user,pi\n10,0.5\n", "no value for 1999 users, such as '11'"),
    "out of range": ("user,pi\n" + "\n".join(f"{u},{1.5 if u == 12 else 0.5}" for u in PEOPLE.labels), "'12' 1.5"),
    "no number": ("user,pi\n10,much\n", "not a table with columns user and pi"),
    "no column": ("who,pi\n10,0.5\n", "not a table with columns user and pi"),
    "twice": ("user,pi\n10,0.5\n10,0.6\n", "'10' more than once"),
    "empty value": (
        "user,pi\n" + "\n".join(f"{u},{'' if u == 12 else 0.5}" for u in PEOPLE.labels),
        "no value for 1 users",
    ),
}


@pytest.mark.parametrize("case", FILES)
def test_a_file_that_cannot_be_is_refused(case: str, tmp_path: Path) -> None:
    text, said = FILES[case]
    (tmp_path / "pi.csv").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=said):
        built(pi=str(tmp_path / "pi.csv"))


WRONG = {
    "above": ({"pi": 1.01}, "from 0 to 1"),
    "below": ({"pi": -0.1}, "from 0 to 1"),
    "nan": ({"pi": float("nan")}, "from 0 to 1"),
    "spread above": ({"pi": "uniform(0.5,1.5)"}, "between 0 and 1"),
    "spread backwards": ({"pi": "uniform(0.9,0.1)"}, "smaller number first"),
    "flat beta": ({"pi": "beta(0,1)"}, "above 0"),
    "no file": ({"pi": "somewhere.csv"}, "no file 'somewhere.csv'"),
    "no number": ({"pi": "uniform(0.1.2,1)"}, "no file"),
    "no category": ({"never_categories": ("fodo",)}, "no category 'fodo'.*food"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_is_refused(case: str) -> None:
    given, said = WRONG[case]
    with pytest.raises(ConfigError, match=said):
        built(**given)


def test_an_item_that_does_not_exist_is_refused() -> None:
    with pytest.raises(DataError, match=r"item for never_items 'caffe'.*café"):
        built(never_items=("caffe",))


def test_categories_need_a_catalogue_that_has_some() -> None:
    config = DisclosureConfig(never_categories=("food",))
    with pytest.raises(ConfigError, match="has no categories"):
        Disclosure.build(config, PEOPLE, Catalog(ITEMS), Key(5))


def plan_of(n_rows: int = 20) -> UpdatePlan:
    """Every client mentions items 0..3 in turn; the first half of its rows is sensitive."""
    ptr = np.arange(len(PEOPLE) + 1) * n_rows
    ids = np.tile(np.arange(n_rows) % 4, len(PEOPLE)).astype(np.int32)
    marks = np.tile(np.arange(n_rows) < n_rows // 2, len(PEOPLE))
    return UpdatePlan(np.arange(len(PEOPLE)), (PlannedRows("items", ptr, ids, marks),))


def released(plan: UpdatePlan, stage: Disclosure, key: Key, ring: Ring | None = None) -> Release:
    """Return what leaves of rows of three numbers."""
    narrow = stage.narrow(plan, key)
    sink = UpdateSink(narrow, [(stage, key)], ring or Ring(), {"items": (4, 3)})
    sink.put(0, np.ones((narrow.parts[0].n_rows, 3), np.float32))
    return sink.finish()[1]


def test_coins_fall_as_often_as_each_persons_pi_says() -> None:
    stage, plan = built(pi="uniform(0,1)"), plan_of(40)
    sent = released(plan, stage, Key(1))
    assert (sent.negatives == 20).all()
    expected, spread = 20 * stage.pi, np.sqrt(20 * stage.pi * (1 - stage.pi))
    z = (sent.positives - expected) / np.maximum(spread, 0.3)
    assert abs(z.mean()) < 0.1
    assert abs(z.std() - 1) < 0.1
    again = released(plan, stage, Key(2))
    assert not np.array_equal(sent.positives, again.positives), "another round tosses other coins"


def test_one_coin_per_item_keeps_or_drops_all_its_rows_together() -> None:
    kept = built(pi=0.5, coin="item").narrow(plan_of(40), Key(1)).parts[0].kept
    assert kept is not None
    by_item = kept.reshape(-1, 40)[:, :20].reshape(-1, 5, 4)
    assert (by_item == by_item[:, :1]).all()
    assert abs(by_item[:, 0].mean() - 0.5) < 0.02
    assert kept.reshape(-1, 40)[:, 20:].all()


def test_secret_items_never_leave_as_positives() -> None:
    stage = built(pi=1.0, never_items=("pier",), never_categories=("food",))
    assert stage.is_secret.tolist() == [True, True, True, False]
    sent = released(plan_of(), stage, Key(1), Ring(bits=32))
    assert (sent.positives == 2).all()
    assert (sent.bytes == 12 * row_bytes(3, Ring(bits=32))).all()
    with pytest.raises(MethodError, match="cannot mark some of them as sensitive"):
        stage.narrow(UpdatePlan(np.arange(2), (PlannedRows("items", np.arange(3) * 4, None, True),)), Key(1))


def test_a_method_says_which_rows_of_other_tables_mention_a_secret_item() -> None:
    stage = built(pi=1.0, never_items=("pier",))
    marks = np.array([True, False, True, True])
    rows = PlannedRows("features", np.array([0, 4]), np.arange(4, dtype=np.int32), marks, lambda secret: marks & secret)
    kept = stage.narrow(UpdatePlan(np.array([0]), (rows,)), Key(1)).parts[0].kept
    assert kept is not None
    assert kept.tolist() == [1, 1, 0, 1]


def test_rows_that_another_stage_took_away_stay_away() -> None:
    stage, plan = built(pi=1.0, never_items=("pier",)), plan_of()
    without = replace(plan.parts[0], kept=np.tile(np.arange(20) != 0, len(PEOPLE)).astype(np.uint8))
    kept = stage.narrow(replace(plan, parts=(without,)), Key(1)).parts[0].kept
    assert kept is not None
    assert np.flatnonzero(kept[:20] == 0).tolist() == [0, 2, 6]
