"""KGFlex beyond the laws: a naive reference, chosen features, both ways to draw, and small data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from helpers.knowledge_graph import small_world
from helpers.one_round import learn_once
from tacit.data.words import entity_words, predicate_words
from tacit.errors import MethodError
from tacit.lab.simulation import simulate
from tacit.methods.kgflex import KGFlex, KGFlexCentral, KGFlexConfig
from tacit.methods.parts.features import features_of
from tacit.protocols.federated import UpdatePath
from tacit.random import Key
from tacit.serving.recommender import explain_in_words
from tacit.types import Catalog, Clients, Labels, Reason, Vocabulary
from tacit.updates import Ring

KEY = Key(5)


def carried(catalog: Catalog) -> list[set[int]]:
    known = features_of(catalog, "graph", "test")
    return [set(known.ids[known.ptr[i] : known.ptr[i + 1]].tolist()) for i in range(catalog.n_items)]


def test_a_round_is_the_gradient_of_the_naive_version() -> None:
    clients, catalog = small_world()
    method = KGFlex(KGFlexConfig(factors=4, learning_rate=0.5))
    model = method.init(clients, catalog, KEY)
    shared, private = model.shared, model.private
    update, moved = learn_once(method, model, clients, KEY)
    features, rows = carried(catalog), update.tables["features"]
    for c in range(len(clients)):
        own = [int(f) for f in private["features"][c] if f >= 0]
        k, p = dict(zip(own, private["weights"][c], strict=False)), dict(zip(own, private["p"][c], strict=False))
        g, b = shared["features"][:, :-1].astype(np.float64), shared["features"][:, -1].astype(np.float64)
        drawn = iter(KEY.child("learn", 0).bits(clients.ids[[c]], 400)[0] >> np.uint64(32))
        d_g, d_b, d_p = (dict.fromkeys(own, 0.0) for _ in range(3))
        for i in clients.of(c):
            j = next(j for w in drawn if (j := int(w) * catalog.n_items >> 32) not in clients.of(c))
            r = [sum(k[f] * (p[f] @ g[f] + b[f]) for f in features[item] if f in k) for item in (i, j)]
            z = 1 / (1 + np.exp(r[0] - r[1]))
            for item, sign in ((i, 1.0), (j, -1.0)):
                for f in features[item] & k.keys():
                    d_g[f] = d_g[f] + sign * z * k[f] * p[f]
                    d_b[f] = d_b[f] + sign * z * k[f]
                    d_p[f] = d_p[f] + sign * z * k[f] * g[f]
        sent = slice(rows.ptr[c], rows.ptr[c + 1])
        assert rows.ids[sent].tolist() == own
        expected = np.array([[*np.broadcast_to(d_g[f], 4), d_b[f]] for f in own]) * 0.5
        np.testing.assert_allclose(rows.values[sent], expected, atol=2e-6)
        for s, f in enumerate(own):
            np.testing.assert_allclose(moved["p"][c, s], p[f] + 0.5 * d_p[f], atol=2e-6)


@pytest.mark.parametrize("draws", ["list", "set"])
@pytest.mark.parametrize("ratio", [1, 3])
def test_a_person_keeps_the_most_telling_features_of_each_hop(draws: str, ratio: int) -> None:
    clients, catalog = small_world()
    known, features = features_of(catalog, "graph", "test"), carried(catalog)
    method = KGFlex(KGFlexConfig(features_per_hop=(3, 2), gain_draws=draws, gain_ratio=ratio))
    found, weights = method.weigh(known, np.array([3, 2]), clients, KEY)
    for c in range(len(clients)):
        history = clients.of(c)
        words = iter(KEY.bits(clients.ids[[c]], 900)[0] >> np.uint64(32))
        others = []
        while len(others) < ratio * len(history):
            j = int(next(words)) * catalog.n_items >> 32
            others += [j] if j not in history else []
        if draws == "set":
            others = list(set(others))
        gains = {}
        for f in set.union(*(features[i] for i in history)):
            n = ratio * len(history)
            yes = np.array([ratio * sum(f in features[i] for i in history), sum(f in features[j] for j in others)])
            parts = [yes, n - yes]
            h = sum(part.sum() / (2 * n) * entropy(part) for part in parts)
            if 1 - h > 1e-12:
                gains[f] = 1 - h
        best: list[int] = []
        for hop, most in ((1, 3), (2, 2)):
            here = [f for f in gains if known.hops[f] == hop]
            best += sorted(here, key=lambda f: (-round(gains[f], 12), f))[:most]
        mine = found[c][found[c] >= 0]
        assert mine.tolist() == sorted(best)
        np.testing.assert_allclose(weights[c, : len(mine)], [gains[f] for f in sorted(best)], atol=1e-6)


def entropy(counts: np.ndarray) -> float:
    q = counts[counts > 0] / max(counts.sum(), 1)
    return float(-(q * np.log2(q)).sum())


def test_central_training_on_all_clients_at_once_equals_federated_training_on_all_at_once() -> None:
    clients, catalog = small_world()
    config = KGFlexConfig(share=1.0, epochs=4)
    *_, federated = simulate(UpdatePath(KGFlex(config), (), Ring()), clients, catalog, KEY)
    *_, central = KGFlexCentral(config).fit(clients, catalog, KEY)
    assert np.array_equal(federated.shared["features"], central.shared["features"])
    assert np.array_equal(federated.private["p"], central.private["p"])


def test_a_reason_names_the_features_that_carried_the_score() -> None:
    clients, catalog = small_world()
    method = KGFlex(KGFlexConfig(epochs=20))
    *_, model = simulate(UpdatePath(method, (), Ring()), clients, catalog, KEY)
    own = model.take(np.array([2]))
    item = int(np.argmax(method.score(own.shared, own.private, clients.take([2]))[0]))
    found = method.explain(own.shared, own.private, clients.take([2]), item)
    known = features_of(catalog, "graph", "test")
    assert found
    assert {r.about for r in found} <= {known.names[f] for f in carried(catalog)[item]}
    assert [r.weight for r in found] == sorted((r.weight for r in found), reverse=True)


def test_an_object_without_a_name_is_explained_by_an_item_of_the_history() -> None:
    catalog = Catalog(Vocabulary(np.arange(3)), titles=["Dune", "Emma", "Ulysses"])
    named, nameless = Reason("feature", "author: Herbert", 0.6, (0,)), Reason("feature", "subject: 141", 0.4, (1, 2))
    assert (
        explain_in_words([named, nameless], catalog) == "you like “author: Herbert” and “subject: 141” (as in “Emma”)"
    )
    assert explain_in_words([replace(nameless, shown_by=())], catalog) == "you like “subject: 141”"


def test_items_and_people_without_features_score_zero_and_send_nothing() -> None:
    clients, catalog = small_world()
    assert catalog.graph is not None
    linked = catalog.graph.item_entity.copy()
    linked[clients.of(0)] = -1  # nothing is known of the client's items
    bare = replace(catalog, graph=replace(catalog.graph, item_entity=linked))
    method = KGFlex(KGFlexConfig())
    model = method.init(clients, bare, KEY)
    update, _ = learn_once(method, model, clients, KEY)
    assert np.diff(update.tables["features"].ptr)[0] == 0
    scores = method.score(model.shared, model.private, clients)
    assert not scores[0].any()
    assert not scores[:, clients.of(0)].any()
    assert scores[1].any()
    bare_items = int((np.diff(model.shared["item_ptr"]) == 0).sum())
    told = [f"{bare_items} of 30 items carry no feature", f"1 of {len(clients)} users have no feature that tells"]
    for found, expected in zip(method.remarks(model.shared, model.private), told, strict=True):
        assert found.startswith(expected)
    whole = method.init(clients, catalog, KEY)
    assert method.remarks(whole.shared, whole.private) == []


def test_whoever_has_every_item_has_nothing_to_compare_with() -> None:
    _, catalog = small_world()
    everything = Clients(np.array([0]), np.array([0, 30]), np.arange(30, dtype=np.int32), 30)
    method = KGFlex(KGFlexConfig())
    model = method.init(everything, catalog, KEY)
    assert (model.private["features"] == -1).all()
    update, _ = learn_once(method, model, everything, KEY)
    assert not len(update.tables["features"].ids)


def test_a_graph_that_says_nothing_of_the_items_is_refused() -> None:
    clients, catalog = small_world()
    assert catalog.graph is not None
    lost = replace(catalog, graph=replace(catalog.graph, item_entity=np.full(30, -1, np.int32)))
    with pytest.raises(MethodError, match=r"has no statement about any item \(0 of 30 items are linked"):
        KGFlex(KGFlexConfig()).init(clients, lost, KEY)
    nothing = np.zeros(0, np.int32)
    empty = replace(catalog, graph=replace(catalog.graph, heads=nothing, relations=nothing, tails=nothing))
    with pytest.raises(MethodError, match="the knowledge graph has no statement about any"):
        KGFlex(KGFlexConfig()).init(clients, empty, KEY)
    with pytest.raises(MethodError, match="no categories"):
        KGFlex(KGFlexConfig()).init(clients, Catalog(catalog.item_ids), KEY)
    with pytest.raises(MethodError, match="no knowledge graph"):
        KGFlex(KGFlexConfig(features="graph")).init(clients, Catalog(catalog.item_ids), KEY)


def test_categories_do_where_there_is_no_graph() -> None:
    clients, catalog = small_world()
    marks = Labels(np.arange(31), np.arange(30, dtype=np.int32) % 4, ["a", "b", "c", "d"])
    model = KGFlex(KGFlexConfig()).init(clients, Catalog(catalog.item_ids, categories=marks), KEY)
    assert model.shared["names"].tolist() == ["a", "b", "c", "d"]


def test_two_items_may_be_the_same_entity() -> None:
    _, catalog = small_world()
    assert catalog.graph is not None
    linked = catalog.graph.item_entity.copy()
    linked[7] = linked[3]
    found = carried(replace(catalog, graph=replace(catalog.graph, item_entity=linked)))
    assert found[7] == found[3] == carried(catalog)[3]


def test_names_are_written_in_words() -> None:
    assert predicate_words("http://dbpedia.org/ontology/literaryGenre") == "literary genre"
    assert predicate_words("film.film.genre") == "film.film.genre"
    assert predicate_words("dbo:musicComposer~dct:subject") == "music composer › subject"
    assert predicate_words("owner~home: town") == "owner › home: town"
    assert entity_words("http://dbpedia.org/resource/J._R._R._Tolkien") == "J. R. R. Tolkien"
