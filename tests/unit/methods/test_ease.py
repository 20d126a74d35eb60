"""EASE against its formula, in both of its forms."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.errors import MethodError
from tacit.methods import ease
from tacit.methods.base import build, options
from tacit.random import Key
from tacit.types import Catalog, Clients, Vocabulary


def formula(x: np.ndarray, reg: float) -> np.ndarray:
    p = np.linalg.inv(x.T @ x + reg * np.eye(x.shape[1]))
    b = -p / np.diag(p)
    np.fill_diagonal(b, 0.0)
    return b


@pytest.mark.parametrize("people", [25, 5, 1], ids=["primal", "dual", "alone"])
@pytest.mark.parametrize("reg", [0.5, 20.0])
def test_scores_and_reasons_are_those_of_the_formula(crowd: Clients, people: int, reg: float) -> None:
    clients = crowd.take(np.arange(people))
    x = clients.matrix().toarray().astype(float)
    method = build("ease", options("ease", {"reg": reg}))
    model = next(method.fit(clients, Catalog(Vocabulary(np.arange(12))), Key(0)))
    assert ("weights" in model.shared) == (people == 25), "the form that needs less memory was not taken"
    weights = formula(x, reg)
    np.testing.assert_allclose(method.score(model.shared, {}, clients), x @ weights, atol=2e-6)
    item = int(np.argmax(np.where(x[0] == 0, x[0] @ weights, -np.inf)))
    parts = {i: weights[i, item] for i in clients.of(0) if weights[i, item] > 0}
    found = {reason.about: reason.weight for reason in method.explain(model.shared, {}, clients.take([0]), item)}
    for about, weight in found.items():
        assert weight == pytest.approx(parts[about] / sum(parts.values()), rel=1e-3)
    assert list(found.values()) == sorted(found.values(), reverse=True)
    assert method.explain(model.shared, {}, clients.take([0]), 11) == [], "no client has item 11"


def test_a_new_user_is_scored_from_a_history(crowd: Clients, cohort) -> None:
    method = build("ease", options("ease", {"reg": 1.0}))
    model = next(method.fit(crowd, Catalog(Vocabulary(np.arange(12))), Key(0)))
    made_up_client = cohort([[3, 11]], 12)
    expected = formula(crowd.matrix().toarray().astype(float), 1.0)[3]
    np.testing.assert_allclose(method.score(model.shared, {}, made_up_client)[0], expected, atol=2e-6)


def test_too_large_a_catalogue_is_refused_with_its_size(crowd: Clients, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ease, "MOST_BYTES", 1000.0)
    with pytest.raises(MethodError, match=r"ease needs about .* 25 users and 11 items .*Use item-knn"):
        next(build("ease").fit(crowd, Catalog(Vocabulary(np.arange(12))), Key(0)))
