"""Options of the evaluation: what is accepted, and what the refusals say."""

from __future__ import annotations

from typing import Any

import pytest

from tacit.errors import ConfigError
from tacit.evaluation import EvaluationConfig


def test_defaults_and_spellings() -> None:
    assert EvaluationConfig().k == (10,)
    assert EvaluationConfig().sampled == 0
    assert EvaluationConfig(protocol="uni100").protocol == "sampled-100"
    assert EvaluationConfig(protocol="sampled-007").sampled == 7
    assert EvaluationConfig(k=[20, 1, 20, 10]).k == (1, 10, 20)
    assert EvaluationConfig(k=5).k == (5,)
    assert EvaluationConfig(primary="ndcg@10").primary == "NDCG@10"
    assert EvaluationConfig(protocol="uni5", primary="auc").primary == "AUC"


def test_the_primary_metric_follows_k_unless_it_is_given() -> None:
    assert EvaluationConfig(k=(1, 10, 20)).primary == "NDCG@10"
    assert EvaluationConfig(k=(1, 20)).primary == "NDCG@20"
    assert EvaluationConfig(k=(1, 20), primary="HR@1").primary == "HR@1"


def test_a_config_survives_its_own_json() -> None:
    config = EvaluationConfig(protocol="uni50", k=(5, 1), primary="HR@5", local_only_users=0)
    assert EvaluationConfig.model_validate_json(config.model_dump_json()) == config


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"protocol": "half"}, "the protocols are 'full' and 'sampled-N'"),
        ({"protocol": "sampled-0"}, "from 1 to 1000000"),
        ({"k": []}, "at least one list length"),
        ({"k": [0, 10]}, "from 1 to 100, not 0"),
        ({"k": [101]}, "from 1 to 100, not 101"),
        ({"primary": "HR@20"}, "add 20 to k"),
        ({"primary": "NDGC@10"}, "Did you mean 'NDCG@10'?"),
        ({"primary": "AUC"}, "there is no primary metric 'AUC'"),
        ({"primary": "ItemCoverage@10"}, "there is no primary metric"),
        ({"local_only_users": -1}, "must be at least 0, not -1"),
        ({"ks": 3}, "has no option 'ks'"),
    ],
)
def test_refusals_say_what_is_wrong(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        EvaluationConfig(**given)
    assert message in str(error.value)
