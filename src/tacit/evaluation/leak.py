"""The leak verdict: a model that learns alone must not beat Most Popular.

The local-only twin of a method learns from one person's history and nothing else. Without item features it cannot
know which unseen item she takes next; if it still ranks held-out items better than popularity does, something told
it, usually training negatives that spare the held-out items.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.evaluation.compare import check_same_people, paired, t_test
from tacit.evaluation.metrics import Values
from tacit.evaluation.result import Evaluation

LEVEL = 0.01


@dataclass(frozen=True)
class Leak:
    """Whether an evaluation is clean; `reason` says why in one sentence."""

    ok: bool
    reason: str
    people: int
    twin: dict[str, float]
    most_popular: dict[str, float]
    p_values: dict[str, float]  # per metric judged: how likely such a lead of the twin is by chance

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as plain JSON."""
        return {
            "ok": self.ok,
            "twin": dict(self.twin),
            "most_popular": dict(self.most_popular),
            "reason": self.reason,
            "people": self.people,
            "p_values": dict(self.p_values),
        }


def verdict(twin: Evaluation, most_popular: Evaluation, primary: str, uses_features: bool) -> Leak:
    """Judge the twin against Most Popular on the same people, by the primary metric and AUC (if both have it).

    It is a leak if the twin's mean is higher on either with a one-sided p below 0.01, unless the method scores from
    item features: then a twin may be good honestly, and is only shown.
    """
    check_same_people("the local-only twin", twin, "Most Popular", most_popular)
    judged = [primary, *(["AUC"] if primary != "AUC" and {"AUC"} <= twin.values.keys() & most_popular.values else [])]
    p_values = {name: lead_by_chance(twin.of(name), most_popular.of(name)) for name in judged}
    leading = [name for name in judged if p_values[name] < LEVEL]
    people = len(twin)
    if not leading:
        told = " or ".join(f"{name} (p = {p_values[name]:.2g})" for name in judged)
        ok, reason = True, f"Learning alone does not beat Most Popular beyond chance on {told}, {people} people."
    else:
        name = leading[0]
        lead = (
            f"Learning alone beats Most Popular on {name}, {twin.mean(name):.4f} against "
            f"{most_popular.mean(name):.4f} (p = {p_values[name]:.1g}, {people} people)"
        )
        ok = uses_features
        reason = (
            f"{lead}; the method uses item features, so this can be honest."
            if uses_features
            else f"{lead}: it must have been told what was held out."
        )
    return Leak(ok, reason, people, _means(twin), _means(most_popular), p_values)


def lead_by_chance(twin: Values, most_popular: Values) -> float:
    """Return the one-sided p-value of the twin's lead: a paired t-test, never below what signs alone could show.

    With d people who differ, no paired evidence is stronger than all d signs agreeing, 2^-d. This keeps few people, or
    differences without variance, from looking certain: fewer than seven can never prove a leak.

    >>> lead_by_chance(np.ones(3), np.zeros(3)), lead_by_chance(np.ones(10), np.zeros(10)) < 0.01
    (0.125, True)
    """
    differences = paired(twin, most_popular)
    return max(t_test(differences, "greater"), 0.5 ** int(np.count_nonzero(differences)))


def _means(found: Evaluation) -> dict[str, float]:
    return {name: float(values.mean()) for name, values in found.values.items()}
