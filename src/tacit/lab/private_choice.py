"""A choice among trials that reveals little of any one client: the exponential mechanism on the validation part.

Every trial learns under differential privacy, so its model is a noisy release of its own. Given the models, a client
changes the sum of a metric over clients by its own value and by nothing else: at most 1. The choice costs what the
exponential mechanism costs, and the search costs that and all trainings together. What trials reached is not reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from tacit.errors import ConfigError
from tacit.privacy.accounting import PrivacyEvent, account
from tacit.privacy.dp import RESERVE
from tacit.privacy.noise import SimulatedNoise, choose_exponential
from tacit.random import Key
from tacit.types import Config

BETWEEN_0_AND_1 = ("HR", "NDCG", "Precision", "Recall", "F1", "MAP", "MRR", "AUC")  # of each user


class PrivateChoiceConfig(Config):
    """How the best trial is chosen under differential privacy."""

    epsilon: float = Field(
        gt=0, le=40, allow_inf_nan=False, description="what the choice among trials tells of a client"
    )


def refuse_unbounded(metric: str) -> None:
    """Refuse a metric whose sum a client could change by more than 1."""
    if metric.split("@")[0] not in BETWEEN_0_AND_1:
        raise ConfigError(
            f"private_choice needs a metric that is between 0 and 1 for each user, and {metric} is none.",
            f"Set evaluation.primary to one of {', '.join(BETWEEN_0_AND_1)}.",
        )


def choose_trial(sums: Sequence[float], config: PrivateChoiceConfig, key: Key) -> int:
    """Return the position of a trial: the larger the sum of its metric over clients, the likelier."""
    return choose_exponential(SimulatedNoise(key.child("private choice")), sums, 1.0, config.epsilon * RESERVE)


def account_search(trainings: Sequence[Mapping[str, Any]], config: PrivateChoiceConfig) -> dict[str, Any]:
    """Return what all trainings, by the events that their runs wrote down, and the choice among them cost together."""
    events = [PrivacyEvent.from_dict(event) for training in trainings for event in training["events"]]
    events.append(PrivacyEvent("exponential", epsilon=config.epsilon, label="choice of a trial"))
    found = account(events, min(float(training["delta"]) for training in trainings)).to_dict()
    return {"counts_search": True, **found, "trainings": len(trainings), "simulated_noise": True}
