"""The leak verdict: a model that learns from one user alone must not know what was held out from that user.

Without item features, the history of one user does not determine which unseen item comes next. What such a local-only
model may know honestly is the catalogue: its order may follow popularity or time, and initial values and ties may
follow its order. The models of other users know the same. So held-out items of a user are ranked twice among the same
rivals, by the user's own local-only model and by the local-only models of other users. If the user's own model is
better beyond chance, held-out items have leaked.

Two statistics are tested, each over users: AUC, which detects items that were spared as negatives, and the mean gain 1
/ log2(place + 1), which detects single items at the top. Users are added in stages while the evidence is neither clear
nor absent: most honest methods need the first stage only. Where training is given held-out items (to spare them as
negatives), some users learn once more with those of someone else: a model that changes has read them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.errors import EvaluationError, TacitError
from tacit.evaluation.compare import check_same_users, pair_differences, t_test
from tacit.evaluation.heldout import open_heldout
from tacit.evaluation.metrics import Values
from tacit.evaluation.result import Evaluation
from tacit.heldout import Heldout
from tacit.types import Array, Catalog, Floats

if TYPE_CHECKING:
    from tacit.evaluation.placebo import PlaceboResult

LEVEL = 0.01  # of the whole verdict; Bonferroni's correction over stages and statistics is part of the p-values below
NO_SIGN = 0.3  # p-values above it, uncorrected, end the check: more users would hardly change them
STAGES = (0.12, 0.36, 1.0)  # shares of the users asked for
LEAST = 12  # users in a stage: fewer could prove nothing after the correction
PARTNERS = 5  # other users whose models rank the same items
BLIND = (  # what local-only models cannot show
    "what happens only where users learn together",
    "a leak of few of the held-out items or users",
    "methods with item features, whose lead may be honest",
    "code that reads the held-out items from memory or disk only when it is not checked",
)
BLIND_WITH_PLACEBO = ("code that reads the log itself, from a file or from memory, where users learn together",)
BLIND_BY_CHANCE = ("a leak of few of the held-out items or users, in a method that is not repeatable",)


@dataclass(frozen=True)
class SwapTest:
    """Held-out items ranked by the user's own local-only model and by those of others: one value per user each."""

    own: dict[str, Values]
    others: dict[str, Values]

    def __len__(self) -> int:
        return len(self.own["AUC"])

    def p_values(self) -> dict[str, float]:
        """Return the one-sided p-value of each statistic, uncorrected."""
        return {name: lead_by_chance(self.own[name], self.others[name]) for name in self.own}


@dataclass(frozen=True)
class LeakVerdict:
    """Whether an evaluation is clean; `reason` says why in one sentence.

    `ok` is none where the verdict could not be made, because local-only models diverged.
    """

    ok: bool | None
    reason: str
    users: int
    local_only: dict[str, float]
    most_popular: dict[str, float]
    p_values: dict[str, float]  # per statistic: how likely such a lead of the own models is by chance, corrected
    own: dict[str, float] = field(default_factory=dict)  # means of the statistics by the own local-only models
    others: dict[str, float] = field(default_factory=dict)  # ... and by those of other users
    placebo: PlaceboResult | None = None  # of the joint model, if it was trained once more

    @classmethod
    def of_error(cls, error: TacitError) -> LeakVerdict:
        """Return the verdict of a check that ended with an error."""
        return cls(None, f"The leak check could not be made: {error.message}", 0, {}, {}, {})

    @classmethod
    def join(cls, local_only: LeakVerdict | None, placebo: PlaceboResult | None) -> LeakVerdict | None:
        """Return one verdict of both checks, none where neither was made: it is a leak if either says so."""
        if placebo is None:
            return local_only
        if local_only is None:
            return cls(placebo.ok, f"{placebo.reason}.", 0, {}, {}, {}, placebo=placebo)
        ok = placebo.ok if local_only.ok is None else local_only.ok and placebo.ok
        return replace(local_only, ok=ok, reason=f"{placebo.reason}. {local_only.reason}", placebo=placebo)

    @property
    def blind_to(self) -> tuple[str, ...]:
        """What the checks that were made cannot see."""
        if self.placebo is None:
            return BLIND
        return (*BLIND_WITH_PLACEBO, *(() if self.placebo.is_exact else BLIND_BY_CHANCE))

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as plain JSON."""
        return {
            "ok": self.ok,
            "local_only": dict(self.local_only),
            "twin": dict(self.local_only),  # its former name, until 0.3
            "most_popular": dict(self.most_popular),
            "own": dict(self.own),
            "others": dict(self.others),
            "reason": self.reason,
            "users": self.users,
            "p_values": dict(self.p_values),
            "blind_to": list(self.blind_to),
            "placebo": None if self.placebo is None else self.placebo.to_dict(),
        }


def sample_stages(users: int) -> list[int]:
    """Return how many users are checked after each stage, ascending; the last is all of them.

    >>> sample_stages(100), sample_stages(50), sample_stages(8)
    ([12, 36, 100], [12, 18, 50], [8])
    """
    return sorted({min(users, max(LEAST, round(share * users))) for share in STAGES})


def is_decided(swapped: SwapTest) -> bool:
    """Whether more users would hardly change the verdict: the evidence is clear, or there is no sign at all."""
    p_values = swapped.p_values().values()
    return min(p_values) > NO_SIGN or _correct_p_values(min(p_values)) < LEVEL / 5


def swap(scores: Floats, heldout: Heldout, catalog: Catalog) -> SwapTest:
    """Rank every client's held-out items by its own local-only model and by those of the next clients.

    `scores` [P, n_items] has one local-only model per row, for the users of `heldout` in the same order. Items and
    rivals are those that neither of the two has seen, so both models rank the same. Tied items have the mean of the
    places they take. Someone with nothing to compare is left out.
    """
    data, n = open_heldout(heldout, catalog), catalog.n_items
    if not np.isfinite(scores).all():
        raise EvaluationError(
            "A local-only model gave a score that is not finite.", "It has probably diverged: lower its learning rate."
        )
    gains = discounted_gains(n)
    seen = np.zeros((len(data), n), np.bool_)
    seen[np.repeat(np.arange(len(data)), np.diff(data.seen_ptr)), data.seen] = True
    found: list[Values] = []
    for u in range(len(data)):
        truth = data.truth[data.truth_ptr[u] : data.truth_ptr[u + 1]]
        truth = truth[truth >= 0]
        pairs = []
        for step in range(1, min(PARTNERS, len(data) - 1) + 1):
            v = (u + step) % len(data)
            is_rival = ~(seen[u] | seen[v])
            items = truth[is_rival[truth]]
            is_rival[truth] = False
            if len(items) and is_rival.any():
                pairs.append([rank_among_rivals(scores[who], items, is_rival, gains) for who in (u, v)])
        if pairs:
            found.append(np.mean(pairs, axis=0))  # [own or other, statistic]
    table = np.array(found).reshape(-1, 2, 2)
    own, others = ({"AUC": table[:, who, 0], "gain": table[:, who, 1]} for who in (0, 1))
    return SwapTest(own, others)


def discounted_gains(n_items: int) -> Values:
    """Return the sum of 1 / log2(place + 1) over the first places: 0 of them, 1, ... up to all and one more."""
    return np.concatenate([[0.0], np.cumsum(1.0 / np.log2(np.arange(2, n_items + 3)))])


def rank_among_rivals(scores: Array, items: Array, is_rival: Array, gains: Values) -> tuple[float, float]:
    """Return mean AUC and mean gain of some items among rivals; each item alone."""
    rivals = np.sort(scores[is_rival])
    low, high = np.searchsorted(rivals, scores[items], "left"), np.searchsorted(rivals, scores[items], "right")
    better, tied = len(rivals) - high, high - low + 1
    return float(np.mean((low + high) / 2) / len(rivals)), float(np.mean((gains[better + tied] - gains[better]) / tied))


def judge_leak(
    local_only: Evaluation,
    most_popular: Evaluation,
    swapped: SwapTest,
    uses_features: bool,
    reads_held_out: bool = False,
) -> LeakVerdict:
    """Judge local-only models by how much better they know the held-out items of their own user.

    It is a leak if a corrected p-value is below 0.01, unless the method scores from item features: then a lead may be
    honest, and is only shown. `reads_held_out` says that local-only models changed when the held-out items that their
    training was given became those of someone else: a leak for certain. The evaluations of the local-only models and of
    Most Popular are for the reader.
    """
    check_same_users("the local-only model", local_only, "Most Popular", most_popular)
    p_values = {name: _correct_p_values(p) for name, p in swapped.p_values().items()}
    own, others = ({name: _mean(values) for name, values in part.items()} for part in (swapped.own, swapped.others))
    users, name = len(swapped), min(p_values, key=lambda name: p_values[name])
    means = f"{name} {own[name]:.3f} against {others[name]:.3f} (p = {p_values[name]:.2g}, {users} users)"
    leads = p_values[name] < LEVEL
    knows = f"Models that learnt from one user alone know that user's held-out items {'' if leads else 'no '}better"
    reason = f"{knows} than the models of others do, {means}"
    if leads:
        honest = "the method uses item features, so this can be honest"
        reason += f"; {honest}" if uses_features else ": training must have read them"
    ok = not leads or uses_features
    if reads_held_out:
        ok, reason = (
            False,
            f"Training reads what was held out: with another user's held-out items it gives another model. {reason}",
        )
    reason = f"{reason}."
    return LeakVerdict(ok, reason, users, _means(local_only), _means(most_popular), p_values, own, others)


def lead_by_chance(own: Values, others: Values) -> float:
    """Return the one-sided p-value of a lead: a paired t-test, never below what signs alone could show.

    With d users who differ, no paired evidence is stronger than all d signs agreeing, 2^-d. This keeps few users, or
    differences without variance, from looking certain.

    >>> lead_by_chance(np.ones(3), np.zeros(3)), lead_by_chance(np.ones(10), np.zeros(10)) < 0.01
    (0.125, True)
    """
    if len(own) == 0:
        return 1.0
    differences = pair_differences(own, others)
    return max(t_test(differences, "greater"), 0.5 ** int(np.count_nonzero(differences)))


def _correct_p_values(p: float) -> float:
    return min(1.0, p * 2 * len(STAGES))


def _mean(values: Values) -> float:
    return float(values.mean()) if len(values) else 0.5


def _means(found: Evaluation) -> dict[str, float]:
    return {name: float(values.mean()) for name, values in found.values.items()}
