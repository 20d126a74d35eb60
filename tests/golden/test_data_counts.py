"""Counts of the papers on real data: filters and splits must give them exactly."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.data import SplitConfig, load, split
from tacit.random import Key

pytestmark = pytest.mark.data


@pytest.mark.parametrize(
    ("name", "options", "people", "items", "rows"),
    [
        ("ml-100k", {}, 943, 1682, 100_000),
        ("ml-1m", {}, 6040, 3706, 1_000_209),
        ("ml-1m", {"min_rating": 3, "core": 10}, 6033, 3123, 834_449),  # fewer films than the 3,203 of KGFlex's thesis
        ("ml-1m", {"core": 10}, 6040, 3260, 998_539),  # so KGFlex drops no rating
        ("lastfm-2k", {"duplicates": "keep", "min_per_user": 5}, 1600, 12_454, 185_650),  # FedNCF
        ("lastfm-2k", {"table": "listens"}, 1892, 17_632, 92_834),
        ("foursquare-nyc", {"duplicates": "keep"}, 1083, 38_333, 227_428),
        ("foursquare-nyc", {"duplicates": "keep", "min_per_item": 10, "min_per_user": 10}, 965, 1211, 46_579),  # PEPPER
        (
            "foursquare-nyc",
            {"duplicates": "latest-after", "min_per_item": 10, "min_per_user": 10},
            965,
            1211,
            23_382,
        ),
        ("facebook-books", {}, 1398, 2933, 18_978),
        ("facebook-books", {"core": 5}, 1380, 843, 14_947),
        ("gowalla-1k", {"duplicates": "keep"}, 1000, 24_209, 157_251),
    ],
)
def test_filters_give_the_published_counts(real_data, name, options, people, items, rows):
    real_data(name)
    dataset = load(name, **options)
    assert (dataset.n_users, dataset.n_items, len(dataset)) == (people, items, rows)


def test_the_recipe_of_fpl_on_italy(real_data):
    real_data("foursquare-italy")
    parted = split(load("foursquare-italy", min_per_user=20), SplitConfig(catalog="train"), Key(0))
    assert (len(parted.train), len(parted.train.items)) == (1353, 54_088)
    truth, _ = parted.test.open()
    assert len(truth.items) == 12_883
    assert parted.catalog.n_items == len(np.unique(parted.train.items))


@pytest.mark.parametrize(
    ("ties", "precision", "recall"), [("smaller-item", 0.1026, 0.0395), ("larger-item", 0.1008, 0.0374)]
)
def test_most_popular_on_ml_1m_depends_on_the_tie_rule(real_data, ties, precision, recall):
    real_data("ml-1m")
    parted = split(load("ml-1m", min_per_user=20), SplitConfig(ties=ties), Key(0))
    truth, seen = parted.test.open()
    popularity = np.bincount(parted.train.items, minlength=parted.catalog.n_items)
    top = np.argsort(-popularity, kind="stable")
    hits, shares = [], []
    for person in range(len(seen)):
        shown = _first(top, seen.of(person))
        hit = len(np.intersect1d(shown, truth.of(person)))
        hits.append(hit / 10)
        shares.append(hit / len(truth.of(person)))
    assert np.mean(hits) == pytest.approx(precision, abs=1e-4)
    assert np.mean(shares) == pytest.approx(recall, abs=1e-4)


def _first(top: np.ndarray, seen: np.ndarray) -> np.ndarray:
    return top[: len(seen) + 10][~np.isin(top[: len(seen) + 10], seen)][:10]
