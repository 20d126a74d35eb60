"""The order of methods under two splits, made on the built-in town."""

from __future__ import annotations

from pathlib import Path

import pytest

from tacit.methods.base import names
from tacit.methods.choice import MethodChoice
from tacit.studies import reproduce, split_ranking


def test_rows_are_methods_with_options_that_exist() -> None:
    known = {*names("centralised"), *names("federated")}
    for method in split_ranking.ROWS.values():
        assert MethodChoice.model_validate(method).name in known
    assert {*split_ranking.WITH_ORDER} <= {*split_ranking.ROWS}


@pytest.mark.slow
def test_both_orders_and_their_agreement_are_there(tmp_path: Path) -> None:
    tiny = {"data.users": 80, "data.places": 40}
    made = reproduce("split-ranking", "town", quick=True, settings=tiny, out=tmp_path)[0]
    assert len(made.found.detail["figures"]) == 6
    assert all(-1 <= float(text) <= 1 for _, *both in made.found.detail["agreement"] for text in both)
