"""Pink's example (Ferrara's thesis, examples 6.1 to 6.4) to the digit."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.config import Experiment
from tacit.kernels.kgflex import affinities, information_gain, score_items
from tacit.lab.experiments import run
from tacit.methods.parts.features import features_of
from tacit.studies.kgflex import recipe
from tacit.types import Catalog, Triples, Vocabulary

PLACES = ["Rijksmuseum", "Vondelpark", "Capitoline Museums", "Piazza Navona", "Central Park"]
FACTS = [
    *((place, "type", "Location") for place in PLACES),
    ("Rijksmuseum", "location", "Amsterdam"),
    ("Rijksmuseum", "type", "Art Museum"),
    ("Vondelpark", "location", "Amsterdam"),
    ("Vondelpark", "type", "Urban Park"),
    ("Capitoline Museums", "location", "Rome"),
    ("Capitoline Museums", "type", "Art Museum"),
    ("Piazza Navona", "location", "Rome"),
    ("Central Park", "location", "New York"),
    ("Central Park", "type", "Urban Park"),
]


@pytest.fixture
def catalog() -> Catalog:
    entities = sorted({e for head, _, tail in FACTS for e in (head, tail)})
    relations = ["location", "type"]
    heads, kinds, tails = (
        np.array([names.index(fact[at]) for fact in FACTS], np.int32)
        for at, names in ((0, entities), (1, relations), (2, entities))
    )
    graph = Triples(
        heads,
        kinds,
        tails,
        Vocabulary(np.array(entities, dtype=object)),
        relations,
        np.array([entities.index(place) for place in PLACES], np.int32),
    )
    return Catalog(Vocabulary(np.array(PLACES, dtype=object)), graph=graph)


def described(catalog: Catalog, place: str) -> set[str]:
    known = features_of(catalog, "graph", "the test")
    at = PLACES.index(place)
    return {known.names[f] for f in known.ids[known.ptr[at] : known.ptr[at + 1]]}


def test_example_6_1_what_is_known_of_the_vondelpark(catalog: Catalog) -> None:
    assert described(catalog, "Vondelpark") == {"type: Location", "location: Amsterdam", "type: Urban Park"}


def test_example_6_2_the_features_of_what_pink_likes(catalog: Catalog) -> None:
    own = described(catalog, "Rijksmuseum") | described(catalog, "Vondelpark")
    assert own == {"type: Location", "location: Amsterdam", "type: Urban Park", "type: Art Museum"}


@pytest.mark.parametrize(
    ("feature", "gain"),
    [
        ("location: Amsterdam", 1.0),
        ("type: Art Museum", 0.31),
        ("type: Location", 0.0),
        ("type: Urban Park", 0.0),
    ],
)
def test_example_6_3_how_telling_each_feature_is(catalog: Catalog, feature: str, gain: float) -> None:
    liked, others = ["Rijksmuseum", "Vondelpark"], ["Piazza Navona", "Central Park"]
    positives, negatives = (float(sum(feature in described(catalog, p) for p in some)) for some in (liked, others))
    assert round(information_gain(positives, negatives, 2.0), 2) == gain


def test_example_6_4_only_the_art_museum_feature_recommends_the_capitoline_museums(catalog: Catalog) -> None:
    known = features_of(catalog, "graph", "the test")
    own = ["location: Amsterdam", "type: Art Museum", "type: Location", "type: Urban Park"]
    own = np.array([[list(known.names).index(name) for name in own]], np.int32)
    k = np.array([[1.0, information_gain(1.0, 0.0, 2.0), 0.0, 0.0]], np.float32)
    p, table = np.full((1, 4, 2), 0.5, np.float32), np.full((len(known), 3), 0.25, np.float32)
    affinity, scores = np.empty((1, 4), np.float32), np.empty((1, 5), np.float32)
    affinities(own, k, p, table, affinity)
    score_items(own, affinity, *known.carriers(), scores)
    art = k[0, 1] * (2 * 0.5 * 0.25 + 0.25)
    assert scores[0, PLACES.index("Capitoline Museums")] == pytest.approx(art, abs=1e-7)
    assert scores[0, PLACES.index("Piazza Navona")] == 0.0
    assert scores[0, PLACES.index("Rijksmuseum")] == pytest.approx(0.5 + art, abs=1e-7)


@pytest.mark.data
@pytest.mark.slow
def test_books_are_as_diverse_and_unbiased_as_published_and_more_accurate(real_data) -> None:
    real_data("facebook-books")
    method = {"name": "kgflex", "factors": 5, "epochs": 20, "features_per_hop": (200, 400)}
    given = {**recipe("facebook-books"), "method": method, "seed": 42}
    given["evaluation"] = {**given["evaluation"], "local_only_users": 0}
    found = run(Experiment.from_options(given, "test")).metrics
    assert found["NDCG@10"] >= 0.085
    assert found["Gini@10"] >= 0.30
    assert found["ItemCoverage@10"] >= 600
    assert found["PopREO@10"] <= 0.16
