"""VSM worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.errors import MethodError
from tacit.methods.base import build, options
from tacit.random import Key
from tacit.types import Catalog, Labels, Triples, Vocabulary

# item 0: jazz, bar; item 1: jazz; item 2: bar; item 3: nothing
CATEGORIES = Labels(np.array([0, 2, 3, 4, 4]), np.array([0, 1, 0, 1], np.int32), ["jazz", "bar", "unused"])
CATALOG = Catalog(Vocabulary(np.arange(4)), categories=CATEGORIES)


def test_cosine_of_features_by_hand(cohort) -> None:
    method = build("vsm")
    clients = cohort([[1], [0], [1, 2], [3]], 4)
    model = next(method.fit(clients, CATALOG, Key(0)))
    half = np.sqrt(0.5)  # jazz and bar are on two items each, so item 0 is (1, 1) / sqrt 2 whatever their idf is
    expected = [[half, 1, 0, 0], [1, half, half, 0], [1, half, half, 0], [0, 0, 0, 0]]
    np.testing.assert_allclose(method.score(model.shared, {}, clients), expected, atol=1e-6)


def test_a_rare_feature_counts_more_by_its_idf(cohort) -> None:
    labels = Labels(np.array([0, 2, 3, 4]), np.array([0, 1, 0, 0], np.int32), ["common", "rare"])
    catalog = Catalog(Vocabulary(np.arange(4)), categories=Labels(np.array([0, 2, 3, 4, 4]), labels.ids, labels.names))
    clients = cohort([[0]], 4)
    idf = np.log(4 / np.array([3, 1]))
    for weighting, vector in (("tf-idf", idf), ("binary", np.ones(2))):
        method = build("vsm", options("vsm", {"weighting": weighting}))
        model = next(method.fit(clients, catalog, Key(0)))
        expected = vector[0] / np.linalg.norm(vector)
        assert method.score(model.shared, {}, clients)[0, 1] == pytest.approx(expected, rel=1e-5)


def test_reasons_are_names_of_shared_features(cohort) -> None:
    method = build("vsm")
    clients = cohort([[1, 1, 2]], 4)
    model = next(method.fit(clients, CATALOG, Key(0)))
    found = method.explain(model.shared, {}, clients, 0)
    assert {(reason.kind, reason.about) for reason in found} == {("feature", "jazz"), ("feature", "bar")}
    assert sum(reason.weight for reason in found) == pytest.approx(1.0)
    assert method.explain(model.shared, {}, clients, 3) == []


def test_statements_of_a_graph_are_features_too(cohort) -> None:
    graph = Triples(
        np.array([0, 1, 3], np.int32),
        np.array([0, 0, 0], np.int32),
        np.array([2, 2, 2], np.int32),
        Vocabulary(np.array(["a", "b", "Rossi", "no item"], dtype=object)),
        ["director"],
        np.array([0, 1, -1], np.int32),
    )
    method = build("vsm", options("vsm", {"features": "graph"}))
    clients = cohort([[0]], 3)
    model = next(method.fit(clients, Catalog(Vocabulary(np.arange(3)), graph=graph), Key(0)))
    np.testing.assert_allclose(method.score(model.shared, {}, clients), [[1, 1, 0]], atol=1e-6)
    assert method.explain(model.shared, {}, clients, 1)[0].about == "director: Rossi"


@pytest.mark.parametrize(("given", "words"), [({}, "no categories"), ({"features": "graph"}, "no knowledge graph")])
def test_a_catalogue_without_features_is_refused(cohort, given: dict[str, str], words: str) -> None:
    with pytest.raises(MethodError, match=words):
        next(build("vsm", options("vsm", given)).fit(cohort([[0]], 3), Catalog(Vocabulary(np.arange(3))), Key(0)))
