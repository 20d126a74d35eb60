"""Any method with the functions that other libraries have: `fit(csr)`, `recommend`, `get_params`.

    model = tacit.MatrixModel("ease", {"reg": 300}).fit(user_items)  # scipy sparse, [users, items]
    items, scores = model.recommend(7, N=10)

Rows are users and columns are items, as in `implicit`; entries above zero are what users did. Nothing is held out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from tacit.config import Experiment
from tacit.errors import ConfigError, DataError, MethodError
from tacit.lab.experiments import TrainingJob
from tacit.numerics import one_blas_thread
from tacit.serving.recommender import Recommender, score_rows
from tacit.types import Array, Catalog, Clients, Floats, Vocabulary

BLOCK = 128  # users that are scored at once


class MatrixModel:
    """A method that is fitted to a sparse matrix of users and items, for harnesses of other libraries.

    `options` are those of the method, `settings` sections of an experiment such as `{"privacy": [...]}`. Parameters are
    kept as they are given, so that scikit-learn can clone it.
    """

    def __init__(
        self,
        method: str = "ease",
        options: Mapping[str, Any] | None = None,
        seed: int = 42,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.method, self.options, self.seed, self.settings = method, options, seed, settings
        self.recommender_: Recommender | None = None

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters, as scikit-learn asks for them."""
        return {"method": self.method, "options": self.options, "seed": self.seed, "settings": self.settings}

    def set_params(self, **given: Any) -> Self:
        """Set parameters; one that does not exist is an error."""
        for name, value in given.items():
            if name not in self.get_params():
                raise ConfigError(f"There is no parameter '{name}'.", f"Known: {', '.join(self.get_params())}.")
            setattr(self, name, value)
        return self

    def fit(self, user_items: Any, y: Any = None) -> Self:
        """Learn from a matrix [users, items]; `y` has no effect, scikit-learn passes it."""
        clients = _cohort(user_items)
        if len(clients.items) == 0:
            raise DataError("The matrix has no entries.", "It needs at least one user who did something.")
        given = {
            **(self.settings or {}),
            "method": {**(self.options or {}), "name": self.method},
            "seed": self.seed,
        }
        catalog = Catalog(Vocabulary(np.arange(clients.n_items)))
        job = TrainingJob(
            Experiment.from_options(given, "MatrixModel"), clients, None, catalog, Vocabulary(np.arange(len(clients)))
        )
        self.recommender_ = job.make_recommender(job.learn().model)
        return self

    def predict(self, user_items: Any = None) -> Floats:
        """Return scores [users, items]: of the users it was fitted to, or of new rows if the method can serve them."""
        model = self._require_fitted()
        clients = model.clients if user_items is None else self._new_rows(user_items)
        blocks = [np.arange(at, min(at + BLOCK, len(clients))) for at in range(0, len(clients), BLOCK)]
        with one_blas_thread():
            scores = [
                model.score(block) if user_items is None else score_rows(model.method, model.model, clients.take(block))
                for block in blocks
            ]
        return np.concatenate(scores) if scores else np.zeros((0, clients.n_items), np.float32)

    def recommend(
        self,
        users: int | ArrayLike,
        N: int = 10,  # the name that other libraries have
        filter_already_liked_items: bool = True,
    ) -> tuple[NDArray[np.int64], Floats]:
        """Return item indices and scores, best first: [N] of one user, [users, N] of several.

        A list that has fewer items is filled with the index -1 and the score -inf.
        """
        model, wanted = self._require_fitted(), np.atleast_1d(np.asarray(users))
        if not np.issubdtype(wanted.dtype, np.integer) or ((wanted < 0) | (wanted >= len(model.clients))).any():
            raise DataError(f"Users are rows of the matrix, 0 to {len(model.clients) - 1}.")
        items = np.full((len(wanted), N), -1, np.int64)
        scores = np.full((len(wanted), N), -np.inf, np.float32)
        listed = np.arange(model.catalog.n_items)
        with one_blas_thread():
            for row, user in enumerate(wanted.tolist()):
                unseen = np.setdiff1d(listed, model.clients.of(user)) if filter_already_liked_items else listed
                best, found = model.best_items(user, unseen, N)
                items[row, : len(best)], scores[row, : len(best)] = best, found
        return (items[0], scores[0]) if np.ndim(users) == 0 else (items, scores)

    def _require_fitted(self) -> Recommender:
        if self.recommender_ is None:
            raise MethodError("This model has not learnt yet.", "Call fit(user_items) first.")
        return self.recommender_

    def _new_rows(self, user_items: Any) -> Clients:
        """Return new users; refuse a method that knows only those it was fitted to."""
        model, clients = self._require_fitted(), _cohort(user_items)
        if model.model.private:
            raise MethodError(f"'{model.name}' keeps a vector per user and cannot score new rows.")
        if clients.n_items != model.catalog.n_items:
            raise DataError(f"The matrix has {clients.n_items} items, and the model {model.catalog.n_items}.")
        return clients


def _cohort(user_items: Any) -> Clients:
    """Return a matrix as a cohort; entries must be numbers of which none is below zero."""
    if not sparse.issparse(user_items):
        given: Array = np.asarray(user_items)
        if given.ndim != 2 or given.dtype.kind not in "buif":
            raise DataError("A matrix of numbers is needed, [users, items].", "Give a scipy sparse matrix.")
        user_items = sparse.csr_matrix(given)
    matrix = sparse.csr_matrix(user_items, dtype=np.float32, copy=True)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    if not np.isfinite(matrix.data).all() or (matrix.data < 0).any():
        raise DataError("The matrix has entries that are below zero or not finite.", "Entries say how often, or 1.")
    ids = np.arange(matrix.shape[0], dtype=np.int64)
    return Clients(ids, matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), matrix.shape[1], matrix.data)
