"""The studies of secure sums run on the built-in town."""

from __future__ import annotations

from pathlib import Path

import pytest

from tacit.studies import fedncf_masking, reproduce, secure_attacks, secure_costs, secure_quality
from tacit.studies.sheets import value_of

TINY = {"data.users": 90, "data.places": 60}

pytestmark = pytest.mark.slow


def test_attacks_on_sums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secure_attacks, "METHODS", {"fed-gmf": {"epochs": 1}, "fed-svd": {"factors": 4, "epochs": 1}})
    rows = reproduce("secure-attacks", "town", quick=True, settings=TINY, out=tmp_path)[0].found.rows
    assert value_of(rows, "same group, guarded", "share of later sums refused") > 0.4
    assert value_of(rows, "fed-svd, two stages, k_min 3", "rows standing alone") == 0
    open_, guess = (
        value_of(rows, name, "AUC after 50") for name in ("same group, no guard", "guesses the popular items")
    )
    assert 0 < guess < 1
    told = [value_of(rows, f"sum of {size}, all items", "of taking part") for size in (7, 40)]
    assert told[0] > told[1] > 0, "a sum always tells more of a member, and less the larger it is"
    assert told[0] > value_of(rows, "sum of 7, 50% drawn once", "of taking part")
    assert open_ > value_of(rows, "same group, no guard", "AUC after 1")


def test_what_two_stages_cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sums = {"plain": None, "k_min 1": {"k_min": 1}, "k_min 60": {"k_min": 60}}
    monkeypatch.setattr(secure_quality, "SUMS", sums)
    rows = reproduce("secure-quality", "town", quick=True, settings=TINY, out=tmp_path)[0].found.rows
    for method in ("fed-gmf, groups of 20", "fed-svd, all clients"):
        plain, same = (value_of(rows, f"{method}; {name}", "NDCG@10") for name in ("plain", "k_min 1"))
        assert plain == same
        assert value_of(rows, f"{method}; k_min 60", "rows moved") < value_of(rows, f"{method}; plain", "rows moved")


def test_masking_costs_and_the_papers_formulas(tmp_path: Path) -> None:
    made = reproduce("fedncf-masking", "town", quick=True, settings=TINY, out=tmp_path)[0]
    rows = made.found.rows
    assert 0 < value_of(rows, "FedGMF", "ms masks") < value_of(rows, "FedGMF", "ms all")
    gmf = 99 * (12 * 1000 + 12 + 1 + 1000)
    tower = 2 * 12 * 48 + 48 * 24 + 24 * 12 + 12 * 6 + (48 + 24 + 12 + 6)
    assert fedncf_masking.parameters("FedGMF", 100) == gmf
    assert fedncf_masking.parameters("FedMLP", 100) == 99 * (12 * 1000 + tower + 6 + 1 + 1000)
    assert fedncf_masking.parameters("FedNeuMF", 100) == 99 * (24 * 1000 + tower + 12 + 6 + 1 + 1000)


def test_hiding_costs_of_masks_and_encryption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secure_costs, "KEYS", (1024,))
    monkeypatch.setattr(secure_costs, "GROUPS", {"town": 4})
    found = reproduce("secure-costs", "town", quick=True, settings=TINY, out=tmp_path)[0].found
    ways = dict.fromkeys(row.method for row in found.rows)
    assert list(ways)[:3] == [
        "masks (ours), all phases",
        "Paillier 1,024, 31 to a ciphertext",
        "Paillier 1,024, each on its own",
    ]
    assert len(ways) == 4 or "tenseal" in found.notes[-1]
    for way in ways:
        assert all(value_of(found.rows, way, f"s {part}") > 0 for part in ("user", "adding", "opening"))
    packed, single = (value_of(found.rows, way, "kB up") for way in list(ways)[1:3])
    assert packed < single / 20
