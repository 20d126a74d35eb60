"""Laws of evaluate(): places by brute force, and what may not change a result."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.random_rankings import World, catalog_of, make_world
from tacit.errors import EvaluationError
from tacit.evaluation import Evaluation, EvaluationConfig, EvaluationOptions, evaluate, sample_users, select_heldout
from tacit.evaluation.metrics import METRICS, Positions
from tacit.heldout import Heldout
from tacit.kernels.topk import NOT_FOUND
from tacit.random import Key
from tacit.testing import make_clients
from tacit.types import Catalog, Labels, Vocabulary

FULL = EvaluationConfig(k=(1, 3, 10))
SAMPLED = EvaluationConfig(protocol="sampled-5", k=(1, 3, 10))


def same(a: Evaluation, b: Evaluation) -> None:
    assert a.values.keys() == b.values.keys()
    for name in a.values:
        np.testing.assert_array_equal(a.values[name], b.values[name], err_msg=name)


def rivals_of(scores: np.ndarray, item: int, rivals: list[int]) -> tuple[int, int]:
    """Return how many others are strictly better, and how many are equal."""
    others = scores[[j for j in rivals if j != item]]
    return int((others > scores[item]).sum()), int((others == scores[item]).sum())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_full_ranking_counts_better_and_tied_candidates(seed: int, key: Key) -> None:
    world = make_world(seed)
    rows = [u for u, truth in enumerate(world.truth) if truth]
    ranks = []
    for u in rows:
        rivals = [j for j in range(world.n_items) if j not in world.seen[u]]
        counted = [rivals_of(world.scores[u], i, rivals) if i >= 0 else (NOT_FOUND, 0) for i in world.truth[u]]
        ranks.append(np.array(sorted(counted)).T)
    for k in (1, 4, 12, 60):
        found = evaluate(world.score, world.heldout, world.catalog, EvaluationConfig(k=k), key)
        assert found.rows.tolist() == rows
        assert found.users.tolist() == [world.ids[u] for u in rows]
        for n, (better, equal) in enumerate(ranks):
            for name, metric in METRICS.items():
                expected = metric(Positions(np.array([0, len(better)]), better, 1 + equal), k)[0]
                assert found.values[f"{name}@{k}"][n] == pytest.approx(expected, abs=1e-12), (rows[n], name)


@pytest.mark.parametrize("k", [5, 60])
def test_lists_hold_the_best_candidates_and_padding_where_there_are_none(world: World, key: Key, k: int) -> None:
    top = evaluate(world.score, world.heldout, world.catalog, EvaluationConfig(k=k), key).top
    assert top is not None
    for u in range(len(world.truth)):
        rivals = [j for j in range(world.n_items) if j not in world.seen[u]]
        listed = top[u][top[u] >= 0].tolist()
        assert len(listed) == min(k, len(rivals)) == len(set(listed))
        assert (top[u][len(listed) :] == -1).all()
        assert set(listed) <= set(rivals)
        best = np.sort(world.scores[u, rivals])[::-1][:k]
        np.testing.assert_array_equal(world.scores[u, listed], best)


@pytest.mark.parametrize("config", [FULL, SAMPLED], ids=["full", "sampled"])
class TestWhatChangesNothing:
    def test_shifting_and_scaling_scores(self, world: World, key: Key, config: EvaluationConfig) -> None:
        plain = evaluate(world.score, world.heldout, world.catalog, config, key)
        moved = evaluate(lambda rows: 4 * world.scores[rows] - 8, world.heldout, world.catalog, config, key)
        same(plain, moved)
        np.testing.assert_array_equal(plain.top, moved.top)

    def test_the_order_of_people(self, world: World, key: Key, config: EvaluationConfig) -> None:
        order = np.random.default_rng(0).permutation(len(world.truth)).tolist()
        other = world.take(order)
        plain = evaluate(world.score, world.heldout, world.catalog, config, key)
        moved = evaluate(other.score, other.heldout, other.catalog, config, key)
        to = np.argsort(moved.users)[np.argsort(np.argsort(plain.users))]
        assert (moved.users[to] == plain.users).all()
        for name in plain.values:
            np.testing.assert_array_equal(plain.values[name], moved.values[name][to], err_msg=name)
        for name in plain.overall:
            assert plain.overall[name] == pytest.approx(moved.overall[name], rel=1e-12), name

    def test_who_else_is_evaluated(self, world: World, key: Key, config: EvaluationConfig) -> None:
        some = sample_users(world.heldout, 20, key)
        other = world.take(some.tolist())
        few = evaluate(other.score, select_heldout(world.heldout, some), world.catalog, config, key)
        all_of_them = evaluate(world.score, world.heldout, world.catalog, config, key)
        at = np.searchsorted(all_of_them.rows, some)
        for name in few.values:
            np.testing.assert_array_equal(few.values[name], all_of_them.values[name][at], err_msg=name)

    def test_the_number_of_threads(self, key: Key, config: EvaluationConfig) -> None:
        rng = np.random.default_rng(3)
        world = make_world(5, people=700, n_items=90)
        p, q = rng.normal(size=(700, 8)).astype(np.float32), rng.normal(size=(90, 8)).astype(np.float32)
        one, two = (
            evaluate(
                lambda rows: p[rows] @ q.T, world.heldout, world.catalog, config, key, EvaluationOptions(threads=t)
            )
            for t in (1, 2)
        )
        same(one, two)
        np.testing.assert_array_equal(one.top, two.top)
        assert one.overall == two.overall

    def test_leaving_out_the_lists(self, world: World, key: Key, config: EvaluationConfig) -> None:
        whole = evaluate(world.score, world.heldout, world.catalog, config, key)
        bare = evaluate(
            world.score,
            world.heldout,
            world.catalog,
            config,
            key,
            EvaluationOptions(lists=False, score_pairs=world.score_pairs),
        )
        same(whole, bare)
        assert bare.top is None
        assert bare.overall == {name: whole.overall[name] for name in whole.values}

    def test_the_scorers_own_array(self, world: World, key: Key, config: EvaluationConfig) -> None:
        before = world.scores.copy()
        frozen = np.broadcast_to(np.arange(world.n_items, dtype=np.float32), world.scores.shape)
        evaluate(world.score, world.heldout, world.catalog, config, key)
        evaluate(lambda rows: frozen[rows], world.heldout, world.catalog, config, key)
        np.testing.assert_array_equal(world.scores, before)


@pytest.mark.parametrize("config", [FULL, SAMPLED], ids=["full", "sampled"])
def test_a_perfect_scorer_gets_one(key: Key, config: EvaluationConfig) -> None:
    truth = [[3], [5], [], [0]]
    scores = np.zeros((4, 30), np.float32)
    for u, own in enumerate(truth):
        scores[u, own] = 1
    heldout = Heldout(make_clients(truth, 30), make_clients([[1], [2], [4], []], 30))
    found = evaluate(lambda rows: scores[rows], heldout, catalog_of(30), config, key, EvaluationOptions(auc=True))
    for name in ("HR@1", "NDCG@1", "Precision@1", "Recall@1", "F1@1", "MAP@1", "MRR@1", "HR@10", "NDCG@10", "AUC"):
        assert found.values[name].tolist() == [1, 1, 1], name


def test_an_item_outside_the_catalogue_counts_against_recall(key: Key) -> None:
    scores = np.arange(20, dtype=np.float32)[None]
    heldout = Heldout(make_clients([[-1, -1, 19, 18]], 20), make_clients([[]], 20))
    full = evaluate(lambda rows: scores[rows], heldout, catalog_of(20), FULL, key, EvaluationOptions(auc=True))
    assert full.overall["Recall@3"] == 0.5
    assert full.overall["Precision@3"] == pytest.approx(2 / 3)
    assert full.overall["AUC"] == 0.5
    assert "2 held-out items are not in the catalogue" in full.notes[0]
    sampled = evaluate(lambda rows: scores[rows], heldout, catalog_of(20), SAMPLED, key)
    assert sampled.overall["Recall@3"] == sampled.overall["HR@3"] == sampled.overall["AUC"] == 0.5


def test_auc_is_the_share_of_unseen_items_beaten(world: World, key: Key) -> None:
    found = evaluate(world.score, world.heldout, world.catalog, FULL, key, EvaluationOptions(auc=True, lists=False))
    for n, u in enumerate(found.rows):
        unseen = [j for j in range(world.n_items) if j not in world.seen[u] and j not in world.truth[u]]
        shares = []
        for item in world.truth[u]:
            better, equal = rivals_of(world.scores[u], item, unseen)
            shares.append(0.0 if item < 0 else (len(unseen) - better - equal / 2) / len(unseen))
        assert found.values["AUC"][n] == pytest.approx(np.mean(shares), abs=1e-12)


def test_a_held_out_item_that_was_seen_is_never_found_and_reported(key: Key) -> None:
    scores = np.arange(20, dtype=np.float32)[None]
    heldout = Heldout(make_clients([[19, 18, 18]], 20), make_clients([[19, 3, 3]], 20))
    found = evaluate(lambda rows: scores[rows], heldout, catalog_of(20), FULL, key)
    assert found.overall["Recall@3"] == 0.5, "item 18 is held out once although listed twice"
    assert found.overall["MRR@3"] == 1.0
    assert any("1 held-out items are in the user's history" in note for note in found.notes)


class TestMistakes:
    def test_a_score_that_is_not_finite(self, world: World, key: Key) -> None:
        for wrong in (np.nan, -np.nan, np.inf, -np.inf):
            scores = world.scores.copy()
            scores[200, 5] = wrong
            for config in (FULL, SAMPLED):
                with pytest.raises(EvaluationError, match=rf"user {world.ids[200]} .*must be finite"):
                    evaluate(lambda rows, s=scores: s[rows], world.heldout, world.catalog, config, key)

    def test_a_pair_score_that_is_not_finite(self, world: World, key: Key) -> None:
        with pytest.raises(EvaluationError, match="must be finite"):
            evaluate(
                world.score,
                world.heldout,
                world.catalog,
                SAMPLED,
                key,
                EvaluationOptions(lists=False, score_pairs=lambda rows, items: np.full(len(rows), np.nan, np.float32)),
            )

    def test_scores_of_the_wrong_shape(self, world: World, key: Key) -> None:
        with pytest.raises(EvaluationError, match=r"\(128, 36\), not \(128, 37\)"):
            evaluate(lambda rows: world.scores[rows, 1:], world.heldout, world.catalog, FULL, key)

    def test_nothing_held_out(self, key: Key) -> None:
        heldout = Heldout(make_clients([[], []], 4), make_clients([[1], [2]], 4))
        with pytest.raises(EvaluationError, match="none of the 2 users has a held-out item"):
            evaluate(lambda rows: np.zeros((len(rows), 4), np.float32), heldout, catalog_of(4), FULL, key)

    def test_a_catalogue_that_does_not_fit(self, world: World, key: Key) -> None:
        with pytest.raises(EvaluationError, match="outside the catalogue of 20 items"):
            evaluate(world.score, world.heldout, catalog_of(20), FULL, key)

    def test_people_that_do_not_match(self, key: Key) -> None:
        heldout = Heldout(make_clients([[1]], 4), make_clients([[2], [3]], 4))
        with pytest.raises(EvaluationError, match="1 users do not match the histories of 2"):
            evaluate(lambda rows: np.zeros((len(rows), 4), np.float32), heldout, catalog_of(4), FULL, key)


def test_metrics_of_the_lists_stand_beside_the_means(world: World, key: Key) -> None:
    labels = Labels(np.arange(world.n_items + 1), np.arange(world.n_items, dtype=np.int32) % 2, ["even", "odd"])
    catalog = Catalog(Vocabulary(np.arange(world.n_items)), categories=labels)
    found = evaluate(world.score, world.heldout, catalog, FULL, key)
    for k in (1, 3, 10):
        for name in ("ItemCoverage", "Gini", "ShannonEntropy", "ACLT", "PopREO", "PopRSP"):
            assert np.isfinite(found.overall[f"{name}@{k}"])
        assert found.recommended[k].sum() == (found.top[:, :k] >= 0).sum()  # type: ignore[index]
        assert found.bias[k].names == ["even", "odd"]


def test_a_sample_of_people_is_keyed_sorted_and_has_held_out_items(world: World, key: Key) -> None:
    some = sample_users(world.heldout, 25, key)
    assert len(some) == 25
    assert (np.diff(some) > 0).all()
    assert all(world.truth[u] for u in some)
    assert some.tolist() != sample_users(world.heldout, 25, Key(8)).tolist()
    everyone = sample_users(world.heldout, 10**6, key)
    assert everyone.tolist() == [u for u, t in enumerate(world.truth) if t]
    back = world.take(list(range(len(world.truth)))[::-1])
    chosen = {back.ids[u] for u in sample_users(back.heldout, 25, key)}
    assert chosen == {world.ids[u] for u in some}, "the order of people must not matter"


def test_what_a_user_is_ranked_by_does_not_depend_on_the_block(key: Key) -> None:
    """A block of one would be a matrix times a vector, which adds in another order."""
    rng = np.random.default_rng(3)
    users, items = rng.normal(size=(129, 37)).astype(np.float32), rng.normal(size=(37, 501)).astype(np.float32)
    histories = [[u % 7, 40 + u] for u in range(129)]
    truth, seen = make_clients([[300 + u % 90] for u in range(129)], 501), make_clients(histories, 501)
    heldout, catalog, asked = Heldout(truth, seen), catalog_of(501), []

    def score(positions: np.ndarray) -> np.ndarray:
        asked.append(len(positions))
        scores: np.ndarray = users[positions] @ items
        # the last bit of every score decides a place: where bits differ, so do the metrics
        return np.asarray(scores.view(np.int32) % 1024, np.float32)

    whole = evaluate(score, heldout, catalog, FULL, key)
    alone = evaluate(lambda at: score(at + 128), select_heldout(heldout, np.array([128])), catalog, FULL, key)
    assert min(asked) > 1
    for name in whole.values:
        assert whole.values[name][128] == alone.values[name][0]


@pytest.mark.parametrize("config", [FULL, SAMPLED], ids=["full", "sampled"])
@pytest.mark.parametrize("lists", [True, False])
def test_a_sample_of_users_has_the_values_that_all_have(
    world: World, key: Key, config: EvaluationConfig, lists: bool
) -> None:
    def score_pairs(rows: np.ndarray, items: np.ndarray) -> np.ndarray:
        return np.asarray(world.scores[rows, items], np.float32)

    some = config.model_copy(update={"users": 5})
    options = EvaluationOptions(lists=lists, score_pairs=score_pairs)
    whole = evaluate(world.score, world.heldout, world.catalog, config, key, options)
    part = evaluate(world.score, world.heldout, world.catalog, some, key, options)
    other_seed = evaluate(world.score, world.heldout, world.catalog, some, Key(8), options)
    assert len(part) == 5
    assert part.users.tolist() == other_seed.users.tolist()
    at = np.searchsorted(whole.rows, part.rows)
    assert whole.users[at].tolist() == part.users.tolist()
    for name in whole.values:
        assert whole.values[name][at].tolist() == part.values[name].tolist(), name
    low, high = part.ci("NDCG@10")
    assert low <= part.mean("NDCG@10") <= high
