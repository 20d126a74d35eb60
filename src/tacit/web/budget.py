"""The privacy budget of a user, as their pages show it: in words and as a bar, with three levels to choose from."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.field.device import Device
from tacit.field.device.budget import PrivacyBudget
from tacit.field.device.device_state import SPENT
from tacit.field.device.settings import LEVELS

WORDS = {
    "strict": "Learn little of me",
    "balanced": "Learn something of me",
    "open": "Learn more of me",
}


@dataclass(frozen=True)
class LevelView:
    """One of the levels, and how often a guess would be right when all of it is spent."""

    name: str
    words: str
    epsilon: float
    certainty: float
    is_chosen: bool
    is_passed: bool  # more is spent already: the level cannot be kept any more, only nothing more be shared


@dataclass(frozen=True)
class BudgetView:
    """What a federation may learn of the user, what it has learnt, and what that means."""

    budget: PrivacyBudget
    used: float  # share of what federation and user allow
    most_epsilon: float
    levels: list[LevelView]

    @property
    def is_spent(self) -> bool:
        """Whether nothing more is shared with this federation."""
        return self.used > SPENT

    @property
    def certainty(self) -> float:
        """How often the best guess is right of whether the device sent the history or noise alone, so far."""
        return self.budget.certainty()

    @property
    def most_certainty(self) -> float:
        """The same, when the whole budget is spent."""
        return self.budget.certainty(self.most_epsilon)

    @property
    def shares(self) -> dict[int, float]:
        """The share of the budget that each round has spent."""
        return {debit.round: debit.share for debit in self.budget.debits}


def view_budget(device: Device) -> BudgetView | None:
    """Return the budget of the federation that the device is in; none if it promises no differential privacy."""
    budget = None if device.membership is None else device.budgets.of(device.membership.federation)
    if budget is None:
        return None
    chosen, most = device.sharing.privacy, device.sharing.most_epsilon
    levels = [
        LevelView(name, WORDS[name], epsilon, budget.certainty(epsilon), name == chosen, budget.spent_epsilon > epsilon)
        for name, epsilon in LEVELS.items()
    ]
    return BudgetView(budget, budget.used(most), min(budget.epsilon, most), levels)
