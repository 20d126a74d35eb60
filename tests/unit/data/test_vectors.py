"""Public vectors: files of any encoder in the order of the catalogue, and vectors made here; what is wrong is named."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tacit.data import load, vectors
from tacit.data.vectors import make_vectors
from tacit.errors import ConfigError, DataError
from tacit.types import Catalog, Labels, Vocabulary

LOG = pl.DataFrame({"user": [1, 1, 2, 2], "item": ["b", "a", "c", "a"]})
VECTORS = {"a": [3.0, 4.0], "b": [0.0, 2.0], "c": [-1.0, 0.0], "z": [9.0, 9.0]}


def write(path: Path, rows: dict[str, list[float]]) -> Path:
    """Write vectors in the form that the ending says."""
    if path.suffix == ".npz":
        np.savez(path, items=np.array([*rows]), vectors=np.array([*rows.values()]))
    elif path.suffix == ".parquet":
        pl.DataFrame({"item": [*rows], "vector": [*rows.values()]}).write_parquet(path)
    else:
        columns = {f"v{at}": [row[at] for row in rows.values()] for at in range(len(next(iter(rows.values()))))}
        pl.DataFrame({"item": [*rows], **columns}).write_csv(path, separator="," if path.suffix == ".csv" else "\t")
    return path


@pytest.mark.parametrize("ending", ["npz", "parquet", "csv", "tsv"])
def test_vectors_come_in_the_order_of_the_catalogue_at_length_one(ending: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"vectors.{ending}", VECTORS)
    found = load(LOG, vectors=str(path)).catalog.vectors
    np.testing.assert_allclose(found, [[0.6, 0.8], [0.0, 1.0], [-1.0, 0.0]], atol=1e-3)
    assert found is not None
    assert np.array_equal(found, found.astype(np.float16).astype(np.float32)), "as it travels to devices"


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ({"a": [1.0], "z": [1.0]}, "2 of 3 items"),
        ({"a": [1.0], "b": [float("nan")], "c": [1.0]}, "'b'"),
        ({"a": [1.0], "b": [1.0], "c": [float("inf")]}, "'c'"),
        ({"a": [], "b": [], "c": []}, "0 numbers"),
    ],
)
def test_vectors_of_another_catalogue_or_with_wrong_numbers_are_refused(
    rows: dict[str, list[float]], said: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=said):
        load(LOG, vectors=str(write(tmp_path / "vectors.npz", rows)))


def test_files_that_hold_no_vectors_are_refused(tmp_path: Path) -> None:
    wrong: dict[str, Any] = {"items": np.array(["a", "b", "c"]), "vectors": np.zeros((2, 3))}
    np.savez(tmp_path / "short.npz", **wrong)
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    (tmp_path / "text.csv").write_text("item,v\na,1\nb,two\nc,3\n")
    (tmp_path / "none.csv").write_text("name,v\na,1\n")
    np.savez(tmp_path / "twice.npz", items=np.array(["a", "b", "c", "a"]), vectors=np.ones((4, 2)))
    np.savez(tmp_path / "single.npz", items=np.array("a"), vectors=np.ones((1, 2)))
    np.savez(tmp_path / "complex.npz", items=np.array(["a", "b", "c"]), vectors=np.full((3, 2), 1 + 1j))
    with (tmp_path / "array.npz").open("wb") as file:
        np.save(file, np.ones((3, 2)))
    (tmp_path / "cut.npz").write_bytes((tmp_path / "twice.npz").read_bytes()[:200])
    wrong_files = ("short.npz", "other.npz", "text.csv", "none.csv", "twice.npz", "missing.npz", "single.npz")
    for name in (*wrong_files, "complex.npz", "array.npz", "cut.npz"):
        with pytest.raises(DataError, match=name.partition(".")[0]):
            load(LOG, vectors=str(tmp_path / name))


def test_a_file_with_another_digest_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "vectors.csv", VECTORS)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert load(LOG, vectors=str(path), vectors_digest=digest).catalog.vectors is not None
    path.write_text(path.read_text().replace("9.0", "8.0"))
    with pytest.raises(DataError, match="digest"):
        load(LOG, vectors=str(path), vectors_digest=digest)


@pytest.mark.parametrize("given", [{"vectors_width": 3}, {"vectors": True, "vectors_digest": "0" * 64}])
def test_options_without_effect_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="vectors"):
        load("town", **given)


def test_vectors_made_here_put_like_beside_like() -> None:
    titles = ["Harbour Nights (1994)", "Harbour Days (1995)", "Desert Song (1950)", "Desert Wind (1951)"]
    found = make_vectors(Catalog(Vocabulary(np.arange(4)), titles), 3)
    near = found @ found.T
    assert near[0, 1] > 0.9
    assert near[2, 3] > 0.9
    assert abs(near[0, 2]) < 0.1


def test_vectors_made_here_repeat_and_follow_their_items() -> None:
    town = load("town", users=20, places=40, vectors=True, vectors_width=8)
    again = load("town", users=20, places=40, vectors=True, vectors_width=8)
    assert town.catalog.vectors is not None
    assert town.catalog.vectors.shape == (town.n_items, 8)
    assert np.array_equal(town.catalog.vectors, again.catalog.vectors)
    some = town.catalog.take(np.array([5, 2]))
    assert np.array_equal(some.vectors, town.catalog.vectors[[5, 2]])


def one_category_each(n_items: int, n_categories: int) -> Catalog:
    """A catalogue in which every item has one category, and every category has as many items."""
    ids = (np.arange(n_items) % n_categories).astype(np.int32)
    names = [str(name) for name in range(n_categories)]
    return Catalog(Vocabulary(np.arange(n_items)), categories=Labels(np.arange(n_items + 1), ids, names))


@pytest.mark.parametrize("most_dense", [3000, 2])
@pytest.mark.parametrize("shape", [(60, 12, 5), (60, 12, 50), (12, 6, 8)])
def test_directions_of_one_length_are_the_same_in_every_call(
    shape: tuple[int, int, int], most_dense: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "MOST_DENSE", most_dense)
    n_items, n_categories, width = shape
    catalog = one_category_each(n_items, n_categories)
    found = [make_vectors(catalog, width) for _ in range(3)]
    assert found[0].shape == (n_items, min(width, n_categories))
    assert found[0].tobytes() == found[1].tobytes() == found[2].tobytes()
    assert np.isfinite(found[0]).all()


def test_the_two_ways_to_find_directions_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = load("town", users=40, places=120).catalog
    exact = make_vectors(catalog, 6)
    monkeypatch.setattr(vectors, "MOST_DENSE", 2)
    np.testing.assert_allclose(make_vectors(catalog, 6) @ exact.T, exact @ exact.T, atol=0.02)


def test_an_item_without_statements_has_a_vector_of_zeros() -> None:
    titles = ["", "Harbour Nights", "Harbour Days", "Desert Nights", "Desert Days"]
    found = make_vectors(Catalog(Vocabulary(np.arange(5)), titles), 4)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), [0, 1, 1, 1, 1], atol=1e-3)


def test_what_all_items_have_in_common_gives_no_vectors() -> None:
    catalog = Catalog(Vocabulary(np.arange(3)), ["Harbour Nights"] * 3)
    with pytest.raises(DataError, match=r"data\.vectors=true"):
        make_vectors(catalog, 4)


def test_a_catalogue_that_says_nothing_gives_no_vectors() -> None:
    with pytest.raises(DataError, match=r"data\.vectors=true"):
        load(LOG, vectors=True)
