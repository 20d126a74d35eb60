"""Paired tests against scipy, Holm by hand, and what cannot be compared."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from tacit.errors import EvaluationError
from tacit.evaluation import Evaluation, compare_methods, holm
from tacit.evaluation.compare import t_test, wilcoxon


def found(values: np.ndarray, protocol: str = "full", first: int = 0) -> Evaluation:
    people = np.arange(first, first + len(values))
    return Evaluation(protocol, (10,), people, people, {"HR@10": values.astype(np.float64)}, {})


@pytest.mark.parametrize("n", [8, 40, 300])
def test_p_values_are_those_of_scipy(n: int) -> None:
    rng = np.random.default_rng(n)
    a, b = rng.normal(0.2, 1, n), rng.normal(0, 1, n)
    result = compare_methods({"a": found(a), "b": found(b)}, "HR@10").pairs[0]
    first, second = (a, b) if result.first == "a" else (b, a)
    assert result.p_t == pytest.approx(stats.ttest_rel(a, b).pvalue, rel=1e-9)
    assert result.p_wilcoxon == pytest.approx(stats.wilcoxon(a, b).pvalue, rel=1e-9)
    assert result.difference == pytest.approx((first - second).mean(), abs=1e-12)
    interval = stats.ttest_rel(first, second).confidence_interval(0.95)
    assert result.ci == pytest.approx((interval.low, interval.high))
    assert t_test(a - b, "greater") == pytest.approx(stats.ttest_rel(a, b, alternative="greater").pvalue)


def test_holm_by_hand() -> None:
    # sorted .005 .01 .03 .04: times 4, 3, 2, 1 -> .02 .03 .06 .04, and the last is raised to .06
    assert holm([0.01, 0.04, 0.03, 0.005]).tolist() == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]).tolist() == [1.0, 1.0]
    assert holm([]).tolist() == []


def test_families_are_corrected_apart() -> None:
    rng = np.random.default_rng(0)
    base = rng.random(60)
    methods = {"c": found(base), "a": found(base + 0.02 * rng.normal(1, 1, 60)), "b": found(base + 0.01)}
    result = compare_methods(methods, "HR@10")
    assert [row.method for row in result.rows] == ["a", "b", "c"]
    assert result.best == "a"
    assert result.rows[0].against_best is None
    against = [row.against_best for row in result.rows[1:]]
    assert [pair.p_t_holm for pair in against if pair] == pytest.approx(
        holm([pair.p_t for pair in against if pair]).tolist()
    )
    assert len(result.pairs) == 3
    assert [p.p_wilcoxon_holm for p in result.pairs] == pytest.approx(
        holm([p.p_wilcoxon for p in result.pairs]).tolist()
    )


def test_equal_vectors_have_p_one() -> None:
    same = np.array([0.1, 0.3, 0.0, 1.0])
    pair = compare_methods({"a": found(same), "b": found(same + 1e-16)}, "HR@10").pairs[0]
    assert pair.p_t == pair.p_wilcoxon == pair.p_t_holm == pair.p_wilcoxon_holm == 1.0
    assert pair.difference == 0.0


def test_a_constant_difference_and_a_single_person() -> None:
    assert t_test(np.full(6, 0.5)) == 0.0
    assert t_test(np.full(6, -0.5), "greater") == 1.0
    assert t_test(np.array([0.5])) == 1.0
    assert wilcoxon(np.array([0.5])) == 1.0


def test_seeds_are_averaged_per_person_first() -> None:
    one, two = np.array([0.0, 1.0, 0.5]), np.array([1.0, 1.0, 0.0])
    rows = compare_methods({"a": [found(one), found(two)]}, "HR@10").rows
    assert rows[0].mean == pytest.approx(np.mean([0.5, 1.0, 0.25]))
    assert rows[0].ci == pytest.approx(found(np.array([0.5, 1.0, 0.25])).ci("HR@10"))


def test_refusals() -> None:
    ten = np.zeros(10)
    with pytest.raises(EvaluationError, match="'a' and 'b' were evaluated on different users"):
        compare_methods({"a": found(ten), "b": found(ten, first=1)}, "HR@10")
    with pytest.raises(EvaluationError, match="protocol 'full' and 'b' by 'sampled-9'"):
        compare_methods({"a": found(ten), "b": found(ten, "sampled-9")}, "HR@10")
    with pytest.raises(EvaluationError, match="Did you mean 'HR@10'"):
        compare_methods({"a": found(ten)}, "HR@1")
    with pytest.raises(EvaluationError, match="nothing to compare"):
        compare_methods({}, "HR@10")
    with pytest.raises(EvaluationError, match="'a' has no evaluation"):
        compare_methods({"a": []}, "HR@10")


def test_intervals_percentiles_and_cdf() -> None:
    result = found(np.array([0.0, 0.0, 0.5, 1.0]))
    low, high = result.ci("HR@10")
    expected = stats.t.interval(0.95, 3, loc=0.375, scale=stats.sem([0.0, 0.0, 0.5, 1.0]))
    assert (low, high) == pytest.approx(expected)
    assert found(np.array([0.5])).ci("HR@10") == (0.5, 0.5)
    assert result.percentiles("HR@10", (50, 100)) == {50: 0.25, 100: 1.0}
    x, share = result.cdf("HR@10")
    assert x.tolist() == [0.0, 0.5, 1.0]
    assert share.tolist() == [0.5, 0.75, 1.0]
