"""What a server makes of noisy sums: everything here is post-processing, from sums, their noise and public knowledge.

The noise in a sum is known, so how far a direction stands out of it is known too. In a matrix [n, m] with noise of
variance 1 in every number, singular values of noise alone stay below sqrt(n) + sqrt(m). Above, the spiked model gives
the true value and how well the found vector agrees with the true one (Benaych-Georges, Nadakuditi 2012).

Rows of rare items hold more noise than signal. `find_posterior` shrinks each row towards what is known of its item
without any history: its popularity and its public features (a prior, as in Curmei et al. 2023).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.types import Catalog

Reals = NDArray[np.float64]
EM_STEPS = 15
MOST_FEATURES = 64
LEAST_CARRIERS = 0.005  # share of the catalogue: rarer features say little
_YEAR = re.compile(r"\((\d{4})\)\s*$")


@dataclass(frozen=True)
class Spectrum:
    """Left singular vectors of a noisy matrix, by how far they stand out of the noise."""

    vectors: Reals  # [n, k]
    agreement: Reals  # [k] squared cosine with the true vector, 0 at the edge of the noise
    values: Reals  # [k] true singular values, in units of the noise
    right: Reals  # [m, k]

    def keep(self, k: int) -> Spectrum:
        """Return the first k directions."""
        return Spectrum(self.vectors[:, :k], self.agreement[:k], self.values[:k], self.right[:, :k])


def decompose(matrix: Reals) -> tuple[Reals, Reals, Reals]:
    """Return left vectors, values and right vectors of a tall matrix, by its small Gramian, with signs settled."""
    squares, right = np.linalg.eigh(matrix.T @ matrix)
    values, right = np.sqrt(np.maximum(squares[::-1], 1e-12)), right[:, ::-1]
    left = (matrix @ right) / values
    largest = np.abs(left).argmax(axis=0)
    signs = np.where(left[largest, np.arange(left.shape[1])] < 0, -1.0, 1.0)
    return left * signs, values, right * signs


def find_directions(sums: Reals, *, is_exact: bool) -> Spectrum:
    """Return the directions of a sum whose noise has variance 1 in every number, or of an exact one."""
    vectors, seen, right = decompose(sums)
    if is_exact:
        return Spectrum(vectors, np.ones(len(seen)), seen, right)
    n, m = sums.shape
    stands_out = seen > np.sqrt(n) + np.sqrt(m)
    beta, y = m / n, seen**2 / n
    t = (y - beta - 1 + np.sqrt(np.maximum((y - beta - 1) ** 2 - 4 * beta, 0.0))) / 2
    t = np.where(stands_out, t, 0.0)
    agreement = np.where(stands_out, np.clip((t**2 - beta) / np.maximum(t**2 + t, 1e-12), 0.0, 1.0), 0.0)
    return Spectrum(vectors, agreement, np.sqrt(t * n), right)


def find_posterior(sums: Reals, sizes: Reals, k: int, features: Reals) -> Reals:
    """Return the posterior means of the rows of U V', of which `sums` are the noisy ones (noise of variance 1).

    Row i of U has the prior N(A' f_i s_i, s_i^2 I): features f_i [F] say where it is, its size s_i how far from it.
    EM finds V, A and the scale of each direction; without features the prior mean is 0.
    """
    _, values, right = decompose(sums)
    signal = np.sqrt(np.maximum(values[:k] ** 2 - len(sums), 1e-3 * len(sums)))
    v, mean, s = right[:, :k] * signal / np.linalg.norm(sizes), np.zeros((len(sums), k)), sizes[:, None]
    u, penalty = mean, np.eye(features.shape[1])
    for _ in range(EM_STEPS):
        strength, turn = np.linalg.eigh(v.T @ v)  # in this frame posterior covariances are diagonal
        variance = 1 / (np.maximum(strength, 0.0) + s**-2)
        u = ((sums @ v @ turn + mean @ turn * s**-2) * variance) @ turn.T
        v = np.linalg.solve(u.T @ u + (turn * variance.sum(axis=0)) @ turn.T, u.T @ sums).T
        if features.shape[1]:
            fit = np.linalg.solve(features.T @ features + penalty, features.T @ (u / s))
            mean = (features @ fit) * s
            size = np.square((u - mean) / s).mean(axis=0) + (variance * s**-2).mean(axis=0) @ np.square(turn.T)
            size = np.sqrt(np.maximum(size, 1e-6))
            v, mean, u = v * size, mean / size, u / size
    return u @ v.T


def public_features(catalog: Catalog) -> Reals:
    """Return what the catalogue says of its items, [n_items, F]: a column of ones, categories, years in titles.

    Columns follow from the catalogue alone. Without categories and years there are none.
    """
    n_items = catalog.n_items
    columns: list[Reals] = []
    if catalog.categories is not None and len(catalog.categories.ids):
        matrix = catalog.categories.matrix()
        carriers = np.asarray(matrix.getnnz(axis=0)).ravel()
        chosen = np.argsort(-carriers, kind="stable")[:MOST_FEATURES]
        chosen = chosen[carriers[chosen] >= max(2.0, LEAST_CARRIERS * n_items)]
        columns += [(np.asarray(matrix[:, [column]].todense()).ravel() > 0).astype(np.float64) for column in chosen]
    columns += _years(catalog)
    return np.column_stack([np.ones(n_items), *columns]) if columns else np.zeros((n_items, 0))


def _years(catalog: Catalog) -> list[Reals]:
    """Return a column for each year that many titles end with, and one for each decade of the others."""
    if catalog.titles is None:
        return []
    found = [_YEAR.search(title) for title in catalog.titles]
    years = np.array([0 if match is None else int(match.group(1)) for match in found])
    if (years > 0).mean() < 0.5:
        return []
    least = max(2.0, 2 * LEAST_CARRIERS * catalog.n_items)
    common = [year for year in np.unique(years[years > 0]) if (years == year).sum() >= least]
    rest = np.where(np.isin(years, common), 0, years // 10)
    decades = [decade for decade in np.unique(rest[rest > 0]) if (rest == decade).sum() >= 2]
    return [(years == year).astype(float) for year in common] + [(rest == decade).astype(float) for decade in decades]
