"""Studies of our own run on the built-in town: adversaries and rules, quality against exposure."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tacit.studies import adversaries, reproduce
from tacit.studies.sheets import value_of

pytestmark = pytest.mark.slow

TINY = {"data.users": 120, "data.places": 60}


def test_every_attack_meets_every_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = ("no adversaries", "5 % NaN", "5 % promote")
    monkeypatch.setattr(adversaries, "ATTACKS", {name: adversaries.ATTACKS[name] for name in few})
    made = reproduce("robust-adversaries", "town", quick=True, settings=TINY, out=tmp_path)[0]
    rows = made.found.rows
    assert {row.method for row in rows} == {f"{attack}; {rule}" for attack in few for rule in adversaries.DEFENCES}
    assert all(row.ours is not None and np.isfinite(row.ours) for row in rows)
    assert value_of(rows, "no adversaries; plain sum", "refused") == 0
    assert value_of(rows, "5 % NaN; plain sum", "refused") > 0
    assert "Promoted" in (made.folder / "table.md").read_text()


def test_sharing_less_hides_more_and_time_finds_it_out(tmp_path: Path) -> None:
    made = reproduce("fpl-exposure", "town", quick=True, settings=TINY, out=tmp_path)[0]
    rows = made.found.rows
    for after in (1, 10):
        leaks = [value_of(rows, f"pi={pi:g}", f"leak after {after}") for pi in (0.0, 0.3, 1.0)]
        assert leaks == sorted(leaks), "a larger pi tells more"
    assert value_of(rows, "pi=0.3", "named after 1") < value_of(rows, "pi=0.3", "named after 10")
    assert [point["pi"] for point in made.found.detail["curve"]] == [0.0, 0.3, 1.0]
    assert (made.folder / "figures" / "exposure.svg").stat().st_size > 5_000
