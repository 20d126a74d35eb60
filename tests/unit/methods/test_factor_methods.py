"""bpr-mf, als and pure-svd: what they compute, and how they fail."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.errors import DivergedError
from tacit.methods.base import build, options
from tacit.random import Key
from tacit.types import Catalog, Clients, Model, Vocabulary

CATALOG = Catalog(Vocabulary(np.arange(12)))


def last(name: str, clients: Clients, seed: int = 0, **given: object) -> tuple[object, Model]:
    method = build(name, options(name, given))
    for model in method.fit(clients, CATALOG, Key(seed)):
        final = model
    return method, final


def test_als_reaches_a_minimum_of_the_weighted_squares(crowd: Clients) -> None:
    alpha, reg = 3.0, 0.5
    method, model = last("als", crowd, factors=4, alpha=alpha, reg=reg, epochs=200)
    x = crowd.matrix().toarray().astype(float)
    p, q = model.private["people"].astype(float), model.shared["items"].astype(float)
    weighted = (1 + alpha * x) * (x - p @ q.T)
    np.testing.assert_allclose(weighted @ q - reg * p, 0, atol=2e-3, err_msg="people are not at their minimum")
    np.testing.assert_allclose(weighted.T @ p - reg * q, 0, atol=2e-2, err_msg="items are not at their minimum")
    np.testing.assert_allclose(method.score(model.shared, model.private, crowd), p @ q.T, atol=1e-5)


def test_als_gives_a_new_user_the_vector_of_the_history(crowd: Clients) -> None:
    method, model = last("als", crowd, factors=4)
    known = method.score(model.shared, model.private, crowd)
    np.testing.assert_allclose(method.score(model.shared, {}, crowd), known, atol=1e-5)
    rows, items = np.array([3, 4]), np.array([0, 11])
    np.testing.assert_allclose(method.score_pairs(model.shared, {}, rows, items, crowd), known[rows, items], atol=1e-5)


def test_als_explains_the_whole_score(crowd: Clients) -> None:
    method, model = last("als", crowd, factors=4, alpha=2.0, reg=0.5)
    found = method.explain(model.shared, {}, crowd.take([0]), 3)
    y, chosen = model.shared["items"].astype(float), crowd.of(0)
    system = y.T @ y + 0.5 * np.eye(4) + 2.0 * y[chosen].T @ y[chosen]
    parts = y[chosen] @ np.linalg.solve(system, y[3])
    score = method.score(model.shared, {}, crowd)[0, 3]
    assert 3.0 * parts.sum() == pytest.approx(score, abs=1e-4)
    positive = np.maximum(parts, 0)
    for reason in found:
        assert reason.weight == pytest.approx(positive[chosen == reason.about][0] / positive.sum(), rel=1e-2)


@pytest.mark.parametrize("factors", [1, 3, 50])
@pytest.mark.parametrize("people", [25, 1])
def test_pure_svd_is_the_truncated_svd(crowd: Clients, factors: int, people: int) -> None:
    clients = crowd.take(np.arange(people))
    x = clients.matrix().toarray().astype(float)
    _, _, v = np.linalg.svd(x, full_matrices=False)
    method, model = last("pure-svd", clients, factors=factors)
    np.testing.assert_allclose(method.score(model.shared, {}, clients), x @ v[:factors].T @ v[:factors], atol=1e-5)
    again = last("pure-svd", clients, seed=5, factors=factors)[1]
    np.testing.assert_allclose(again.shared["items"], model.shared["items"], atol=1e-5)
    assert (model.shared["items"][11] == 0).all()


def test_bpr_yields_every_epoch_and_depends_on_the_seed(crowd: Clients) -> None:
    method = build("bpr-mf", options("bpr-mf", {"epochs": 3, "factors": 4}))
    models = [model.copy() for model in method.fit(crowd, CATALOG, Key(0))]
    assert len(models) == 3
    assert not np.array_equal(models[0].shared["items"], models[1].shared["items"])
    other = last("bpr-mf", crowd, seed=1, epochs=3, factors=4)[1]
    assert not np.array_equal(models[2].shared["items"], other.shared["items"])


def test_bpr_learns_to_prefer_the_history(crowd: Clients) -> None:
    method, model = last("bpr-mf", crowd, epochs=300, learning_rate=0.05, factors=8)
    scores = method.score(model.shared, model.private, crowd)
    had = crowd.matrix().toarray() > 0
    auc = [np.mean(s[h][:, None] > s[~h][None, :]) for s, h in zip(scores, had, strict=True)]
    assert np.mean(auc) > 0.95


def test_bpr_negatives_never_hit_what_is_avoided(cohort) -> None:
    # one person with items 0 and 1; 2 is avoided, so only 3 to 11 can be pushed down
    avoid = cohort([[2]], 12)
    rate = {"epochs": 200, "learning_rate": 0.1, "factors": 2, "reg_bias": 0.0}
    for also, pushed in ((None, True), (avoid, False)):
        clients = cohort([[0, 1]], 12, avoid=also)
        method = build("bpr-mf", options("bpr-mf", rate))
        start = Key(0).child("bias").normal(np.arange(12), 1, 0.1)[:, 0]
        for model in method.fit(clients, CATALOG, Key(0)):
            final = model
        assert (final.shared["bias"][2] < start[2]) == pushed
        assert (final.shared["bias"][3:] < start[3:]).all()


def test_who_has_everything_learns_no_pair_and_ends(cohort) -> None:
    clients = cohort([list(range(12)), [0]], 12)
    method, model = last("bpr-mf", clients, epochs=5, factors=4)
    first = Key(0).child("people").normal(np.arange(2), 4, 0.1)
    assert np.array_equal(model.private["people"][0], first[0])
    assert not np.array_equal(model.private["people"][1], first[1])
    alone = last("bpr-mf", clients.take([0]), epochs=2, factors=4)[1]
    assert np.isfinite(method.score(alone.shared, alone.private, clients.take([0]))).all()


def test_bpr_says_that_it_diverged_and_what_to_do(crowd: Clients) -> None:
    with pytest.raises(DivergedError, match=r"bpr-mf diverged in epoch \d+.*Lower method.learning_rate \(now 100\)"):
        last("bpr-mf", crowd, epochs=200, learning_rate=100.0)


def test_bpr_regularisation_of_none_follows_the_rate() -> None:
    from tacit.methods.bpr_mf import BPRMFConfig

    by_rate = BPRMFConfig(learning_rate=0.2, reg_user=None, reg_positive=None, reg_negative=None)
    np.testing.assert_allclose(by_rate.regs(), [0.01, 0.01, 0.001, 0])
    np.testing.assert_allclose(BPRMFConfig(reg_user=1, reg_positive=2, reg_negative=3, reg_bias=4).regs(), [1, 2, 3, 4])


def test_bpr_reasons_are_the_most_aligned_items_of_the_history(crowd: Clients) -> None:
    method, model = last("bpr-mf", crowd, epochs=20, learning_rate=0.05, factors=4)
    q, one = model.shared["items"], crowd.take([1])
    item = int(np.setdiff1d(np.arange(12), one.items)[0])
    cosines = {int(i): q[i] @ q[item] / np.linalg.norm(q[i]) / np.linalg.norm(q[item]) for i in one.items}
    found = method.explain(model.shared, {}, one, item)
    expected = sorted((i for i, c in cosines.items() if c > 0), key=lambda i: -cosines[i])[:5]
    assert [reason.about for reason in found] == expected
