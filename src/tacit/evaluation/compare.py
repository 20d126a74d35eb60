"""Paired significance tests of methods over users, corrected for the number of comparisons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from tacit.errors import EvaluationError
from tacit.evaluation.metrics import Values
from tacit.evaluation.result import Evaluation, mean_interval


@dataclass(frozen=True)
class PairedTest:
    """One paired comparison; `difference` is the mean of first minus second over users."""

    first: str
    second: str
    difference: float
    ci: tuple[float, float]  # 95 % of the difference
    p_t: float  # paired t-test, two-sided
    p_wilcoxon: float  # Wilcoxon signed-rank test, two-sided
    p_t_holm: float  # the same two after Holm's correction over the family of comparisons
    p_wilcoxon_holm: float


@dataclass(frozen=True)
class ComparedMethod:
    """One method beside the best one; `against_best` is None for the best itself."""

    method: str
    mean: float
    ci: tuple[float, float]
    against_best: PairedTest | None


@dataclass(frozen=True)
class MethodComparison:
    """Methods from the best mean to the worst, each against the best (one family), and all pairs (another)."""

    metric: str
    rows: list[ComparedMethod]
    pairs: list[PairedTest]

    @property
    def best(self) -> str:
        """The method with the highest mean."""
        return self.rows[0].method


def compare_methods(methods: Mapping[str, Evaluation | Sequence[Evaluation]], metric: str) -> MethodComparison:
    """Compare methods on one metric that has a value per user.

    Several evaluations of one method (seeds) are averaged per user first. All must be of the same users under the
    same protocol.
    """
    if not methods:
        raise EvaluationError("There is nothing to compare.", "Give at least one evaluated method.")
    _check_same(methods)
    values = {name: average(_as_list(found), metric) for name, found in methods.items()}
    ranked = sorted(values, key=lambda name: -values[name].mean())
    best, rest = ranked[0], ranked[1:]
    against = dict(zip(rest, _family([(name, best) for name in rest], values), strict=True))
    rows = [
        ComparedMethod(name, float(values[name].mean()), mean_interval(values[name]), against.get(name))
        for name in ranked
    ]
    return MethodComparison(metric, rows, _family(list(combinations(ranked, 2)), values))


def average(seeds: Sequence[Evaluation], metric: str) -> Values:
    """Return one value per user: the mean over several evaluations of the same users."""
    mean: Values = np.mean([found.of(metric) for found in seeds], axis=0, dtype=np.float64)
    return mean


def _as_list(found: Evaluation | Sequence[Evaluation]) -> Sequence[Evaluation]:
    return [found] if isinstance(found, Evaluation) else found


def _check_same(methods: Mapping[str, Evaluation | Sequence[Evaluation]]) -> None:
    first: tuple[str, Evaluation] | None = None
    for name, given in methods.items():
        if not _as_list(given):
            raise EvaluationError(f"'{name}' has no evaluation to compare.", "Give at least one seed of each method.")
        for found in _as_list(given):
            first = first or (name, found)
            check_same_users(first[0], first[1], name, found)


def check_same_users(a: str, first: Evaluation, b: str, second: Evaluation) -> None:
    """Refuse to pair evaluations of different users or protocols."""
    if not np.array_equal(first.users, second.users):
        raise EvaluationError(
            f"'{a}' and '{b}' were evaluated on different users ({len(first)} and {len(second)}).",
            "Paired comparisons need the same users in the same order: use the same data and split.",
        )
    if first.protocol != second.protocol:
        raise EvaluationError(
            f"'{a}' was evaluated by the protocol '{first.protocol}' and '{b}' by '{second.protocol}'.",
            "Use one protocol for all methods compared.",
        )


def _family(names: Sequence[tuple[str, str]], values: Mapping[str, Values]) -> list[PairedTest]:
    """Compare pairs of methods as one family of tests."""
    differences = [pair_differences(values[a], values[b]) for a, b in names]
    p_t = [t_test(d) for d in differences]
    p_w = [wilcoxon(d) for d in differences]
    return [
        PairedTest(a, b, float(d.mean()), mean_interval(d), t, w, t_holm, w_holm)
        for (a, b), d, t, w, t_holm, w_holm in zip(names, differences, p_t, p_w, holm(p_t), holm(p_w), strict=True)
    ]


def pair_differences(first: Values, second: Values) -> Values:
    """Return the differences per user; rounded to 12 digits, so that equal ones are equal to the tests."""
    return np.round(first - second, 12)


def t_test(differences: Values, alternative: str = "two-sided") -> float:
    """Return the p-value of a paired t-test ('two-sided' or 'greater'); equal vectors give 1, one user gives 1.

    >>> round(t_test(np.array([1.0, 2.0, 3.0])), 4)  # t = 2 / (1 / sqrt(3)) = 3.4641 with 2 degrees of freedom
    0.0742
    >>> t_test(np.zeros(5)), t_test(np.zeros(5), "greater")
    (1.0, 1.0)
    """
    from scipy import special

    n, mean = len(differences), float(differences.mean())
    if n < 2 or not differences.any():
        return 1.0
    error = float(differences.std(ddof=1)) / np.sqrt(n)
    if error == 0:  # every user differs by the same amount
        return 0.0 if alternative == "two-sided" or mean > 0 else 1.0
    t = mean / error
    return float(special.stdtr(n - 1, -t) if alternative == "greater" else 2 * special.stdtr(n - 1, -abs(t)))


def wilcoxon(differences: Values) -> float:
    """Return the two-sided p-value of Wilcoxon's signed-rank test; ties of a user are dropped, equal vectors give 1.

    >>> wilcoxon(np.array([1.0, 2.0, 3.0, 4.0]))  # all positive: 2 of 2^4 sign patterns
    0.125
    """
    from scipy import stats  # here, because importing it takes longer than all the rest of this package

    kept = differences[differences != 0]
    return float(stats.wilcoxon(kept).pvalue) if len(kept) else 1.0


def holm(p_values: Sequence[float]) -> NDArray[np.float64]:
    """Return p-values corrected by Holm: the i-th smallest of m times m - i + 1, never decreasing, at most 1.

    >>> holm([0.01, 0.04, 0.03]).tolist()  # 0.01 * 3; 0.03 * 2; 0.04 * 1 raised to 0.06
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, np.float64)
    order = np.argsort(p, kind="stable")
    factors = len(p) - np.arange(len(p))
    corrected = np.empty(len(p))
    corrected[order] = np.minimum(np.maximum.accumulate(p[order] * factors), 1.0)
    return corrected
