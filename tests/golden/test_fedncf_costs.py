"""FedNCF's table 7 and its counts of parameters, from formulas."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tacit.evaluation.neural_costs import NeuralCost, local_flops, masks, touched_rows
from tacit.models.ncf import gmf, mlp, neumf
from tacit.studies import fedncf_published as printed
from tacit.studies.fedncf_costs import COSTS


@pytest.mark.parametrize("data", printed.DATASETS)
@pytest.mark.parametrize("name", printed.MODELS)
def test_table_7_is_five_samples_per_observation_at_one_rate(name: str, data: str) -> None:
    least, most, mean = printed.OBSERVATIONS[data]
    published = dict(zip(("mean", "least", "most"), printed.TABLE_7[data][name], strict=False))
    for what, n in (("least", least), ("most", most), ("mean", mean)):
        ours = local_flops(printed.PER_SAMPLE[name], n) / 1e3
        assert ours == pytest.approx(published[what], rel=0.004, abs=0.06), f"{what}: {ours} against {published[what]}"


@pytest.mark.parametrize("name", printed.MODELS)
def test_our_count_of_a_forward_pass_is_near_the_published_rate(name: str) -> None:
    ours, theirs = COSTS[name].forward, printed.PER_SAMPLE[name]
    assert 0 <= theirs - ours <= 15, f"{ours} operations counted, {theirs} published"


def test_parameters_are_those_of_the_models_and_of_the_paper() -> None:
    shapes = {"fed-gmf": gmf(12), "fed-mlp": mlp(12, printed.LAYERS), "fed-neumf": neumf(12, printed.LAYERS)}
    h, d, n = printed.LAYERS, 12, 1000
    between = sum(a * b for a, b in pairwise(h))
    paper = {  # section 3.4, without the count of each row
        "fed-gmf": d * n + d + 1,
        "fed-mlp": d * n + 2 * d * h[0] + between + h[-1] + sum(h) + 1,
        "fed-neumf": 2 * d * n + 2 * d * h[0] + between + d + h[-1] + sum(h) + 1,
    }
    for name, cost in COSTS.items():
        assert cost.width == shapes[name].width
        assert cost.layer_numbers == shapes[name].n_layers
        assert cost.dense(n) == paper[name]
        assert masks(cost, n, 11) == 10 * (paper[name] + n)


def test_sparse_rows_are_what_is_touched() -> None:
    cost = NeuralCost(12)
    assert touched_rows(0, 1682) == 0
    assert touched_rows(1682, 1682) == pytest.approx(1683), "someone who did everything touches everything"
    assert cost.sparse_bytes(10) == 10 * (4 + 48) + 4 + 14 * 4
    assert cost.sparse_bytes(10, 8) == 10 * (4 + 96) + 4 + 14 * 8
    assert cost.sparse_bytes(touched_rows(105, 1682)) < cost.dense(1682) * 4 / 2
