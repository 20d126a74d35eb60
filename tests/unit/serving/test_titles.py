"""A history may name items by their titles; a title that several items have, and an id, are told apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tacit
from helpers.commands import run_command
from tacit.config import apply_overrides
from tacit.errors import ConfigError
from tacit.types import Catalog, Vocabulary

TOWN = {"source": "town", "users": 60, "places": 40, "visits": 15}


def test_an_item_is_found_by_id_then_by_a_title_that_one_item_has() -> None:
    catalog = Catalog(Vocabulary(np.array([1, 2, 3, 4])), ["Alien", "Solaris", "Solaris", "1"])
    assert [catalog.find(name) for name in (1, "1", "alien", "Solaris", "nothing")] == [0, 0, 0, None, None]


def test_a_history_of_titles_gives_the_list_of_a_history_of_ids(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tacit.fit(tacit.Experiment(method="ease", data=TOWN))
    ids = [model.catalog.item_ids[3], model.catalog.item_ids[5]]
    titles = [model.catalog.title(3), model.catalog.title(5).upper()]
    assert any("," in title for title in titles)
    wanted = [one.item for one in model.recommend_for(ids, k=4)]
    assert [one.item for one in model.recommend_for(titles, k=4)] == wanted
    model.save(tmp_path / "model")
    code, document, *_ = run_command(
        capsys, "recommend", str(tmp_path / "model"), "--items", ",".join(titles), "-k", "4", "--json"
    )
    assert code == 0
    assert all(f'"item": {item}' in document for item in wanted)
    assert "ignored" not in document


def test_a_list_of_one_stage_needs_no_number() -> None:
    one = {"privacy": [{"name": "dp", "epsilon": 2}]}
    assert apply_overrides(one, {"privacy.bound": 1})["privacy"] == [{"name": "dp", "epsilon": 2, "bound": 1}]
    assert one == {"privacy": [{"name": "dp", "epsilon": 2}]}
    with pytest.raises(ConfigError):
        apply_overrides({"privacy": [{"name": "clip"}, {"name": "dp"}]}, {"privacy.bound": 1})


def test_a_split_that_holds_nothing_out_is_refused_with_the_command_that_trains_on_everything() -> None:
    with pytest.raises(ConfigError) as raised:
        tacit.SplitConfig.from_options({"kind": "none"}, "split")
    assert "tacit fit" in str(raised.value)
