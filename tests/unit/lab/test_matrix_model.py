"""A method behind `fit(csr)` and `recommend`: the same bits as the usual way, and clear refusals."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from scipy import sparse

import tacit
from tacit.errors import ConfigError, DataError, MethodError

MATRIX = sparse.csr_matrix((np.random.default_rng(3).random((30, 20)) < 0.3).astype(np.float32))


@pytest.mark.parametrize(("name", "options"), [("ease", {"reg": 5}), ("als", {"epochs": 2, "factors": 3})])
def test_a_matrix_gives_the_model_of_the_same_log(name: str, options: dict[str, float]) -> None:
    model = tacit.MatrixModel(name, options).fit(MATRIX)
    users, items = MATRIX.nonzero()
    log = tacit.load(pl.DataFrame({"user": users, "item": items}))
    assert log.n_items == 20
    usual = tacit.fit(tacit.Experiment(method={"name": name, **options}), log)
    for user in np.unique(users)[:5].tolist():
        wanted = usual.recommend(user, 6)
        found, scores = model.recommend(user, N=6)
        assert found.tolist() == [one.item for one in wanted]
        assert scores.tolist() == [one.score for one in wanted]
    several, _ = model.recommend([3, 1], N=6)
    assert several[1].tolist() == model.recommend(1, N=6)[0].tolist()


def test_short_lists_are_filled_and_liked_items_return_on_request() -> None:
    model = tacit.MatrixModel("most-popular").fit(MATRIX)
    items, scores = model.recommend(0, N=20)
    unseen = 20 - MATRIX[0].nnz
    assert (items[unseen:] == -1).all()
    assert np.isneginf(scores[unseen:]).all()
    assert sorted(model.recommend(0, N=20, filter_already_liked_items=False)[0].tolist()) == list(range(20))


def test_new_rows_are_scored_where_the_method_can() -> None:
    model = tacit.MatrixModel("ease", {"reg": 5}).fit(MATRIX)
    assert np.allclose(model.predict(MATRIX), model.predict(), atol=1e-6)
    assert model.predict(MATRIX[:0]).shape == (0, 20)
    factors = tacit.MatrixModel("als", {"epochs": 1, "factors": 2}).fit(MATRIX)
    with pytest.raises(MethodError):
        factors.predict(MATRIX)
    with pytest.raises(DataError):
        model.predict(MATRIX[:, :5])


def test_parameters_are_kept_as_given_so_that_it_can_be_cloned() -> None:
    options = {"reg": 5}
    model = tacit.MatrixModel("ease", options, seed=7)
    again = type(model)(**model.get_params())
    assert again.get_params()["options"] is options
    assert (again.set_params(seed=8).seed, again.recommender_) == (8, None)
    with pytest.raises(ConfigError):
        model.set_params(rate=1)


@pytest.mark.parametrize(
    "wrong",
    [np.zeros((3, 4)), -MATRIX, MATRIX * np.nan, np.ones(3), [["a"]]],
    ids=["empty", "below", "nan", "1d", "text"],
)
def test_a_matrix_that_is_none_is_refused(wrong: object) -> None:
    with pytest.raises(DataError):
        tacit.MatrixModel("most-popular").fit(wrong)


def test_it_refuses_before_it_has_learnt_and_unknown_rows_and_options() -> None:
    with pytest.raises(MethodError):
        tacit.MatrixModel().recommend(0)
    model = tacit.MatrixModel("most-popular").fit(MATRIX)
    for users in (30, -1, [0, 99], [0.5]):
        with pytest.raises(DataError):
            model.recommend(users)
    with pytest.raises(ConfigError):
        tacit.MatrixModel("ease", {"rag": 5}).fit(MATRIX)
