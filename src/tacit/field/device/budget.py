"""The privacy budget: what one federation may learn of this device's user, and what its sums have spent of it.

A budget belongs to the id of a federation: a device that leaves and joins again finds it as it was. It is debited in
the transaction that submits a masked vector, because others can open a sum without this device, and nothing is
refunded. What is spent is computed from the events that were written down, never from options.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from tacit.errors import ConsentError, DevicePolicyError, PrivacyError, WireError
from tacit.field.device.store import Store
from tacit.privacy.accounting import PrivacyEvent, account, mu_for
from tacit.privacy.dp import DifferentialPrivacy
from tacit.protocols.secure_aggregation.context import Session
from tacit.protocols.secure_aggregation.noise_shares import check_noise_room
from tacit.reasons import ReasonCode
from tacit.types import Array
from tacit.wire.federation import Federation

PLACE = "budgets"
TOLERANCE = 1e-9  # of the whole budget: shares of a plan are floating-point numbers


@dataclass(frozen=True)
class Debit:
    """One noisy sum that this device adds to: what it costs, and why."""

    round: int
    share: float  # of the budget
    event: dict[str, Any]  # a PrivacyEvent
    when: str = ""  # UTC; nothing, as long as no vector is submitted


@dataclass(frozen=True)
class PrivacyBudget:
    """The budget of one federation."""

    federation: str  # id
    name: str
    epsilon: float
    delta: float
    debits: tuple[Debit, ...] = ()
    is_copied: bool = False  # it came with a copy: what the original has spent since is not known

    @property
    def spent(self) -> float:
        """The share of the budget that is spent."""
        return 1.0 if self.is_copied else math.fsum(debit.share for debit in self.debits)

    @cached_property
    def spent_epsilon(self) -> float:
        """What all sums so far reveal about the user, at most."""
        return self.epsilon if self.is_copied else self.epsilon_with()

    @cached_property
    def spent_mu(self) -> float:
        """What all sums so far reveal, as the mu of one Gaussian mechanism."""
        if self.is_copied:
            return mu_for(self.epsilon, self.delta)
        events = [PrivacyEvent.from_dict(debit.event) for debit in self.debits]
        return account(events, self.delta).mu or 0.0

    def used(self, level: float) -> float:
        """Return how much of the budget is used, as a share of what federation and user allow together."""
        most = mu_for(min(self.epsilon, level), self.delta)
        return 1.0 if self.is_copied else min(1.0, (self.spent_mu / most) ** 2)

    def certainty(self, epsilon: float | None = None) -> float:
        """Return how often the best guess is right of whether this device sent its user's history or noise alone.

        1/2 is the toss of a coin. The guesser knows all that the federation publishes and what all others did. None:
        after all sums so far.
        """
        mu = self.spent_mu if epsilon is None else mu_for(min(self.epsilon, epsilon), self.delta)
        return 0.5 * (1.0 + math.erf(mu / math.sqrt(8.0)))

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON object, with what is spent."""
        return {**asdict(self), "spent": self.spent, "spent_epsilon": self.spent_epsilon}

    def epsilon_with(self, *more: Debit) -> float:
        """Return the epsilon of all sums so far and some more, from their events; infinite where none holds."""
        events = [PrivacyEvent.from_dict(debit.event) for debit in (*self.debits, *more)]
        try:
            return account(events, self.delta).epsilon_server
        except PrivacyError:
            return math.inf

    def with_debit(self, debit: Debit, level: float) -> PrivacyBudget:
        """Return the budget after one more sum; refuse what exceeds it, or the user's own level."""
        if self.is_copied:
            raise ConsentError.because(ReasonCode.COPIED_BUDGET)
        if not debit.share > 0 or not self.spent + debit.share <= 1 + TOLERANCE:
            raise ConsentError.because(ReasonCode.BUDGET_SPENT, cost=debit.share, spent=self.spent)
        after = self.epsilon_with(debit)
        if not after <= self.epsilon * (1 + TOLERANCE):  # noise in steps that are too coarse costs more than its share
            raise ConsentError.because(ReasonCode.BUDGET_SPENT, cost=debit.share, spent=self.spent)
        if not after <= level * (1 + TOLERANCE):
            raise ConsentError.because(ReasonCode.PRIVACY_LEVEL, epsilon=after, level=level)
        return replace(self, debits=(*self.debits, debit))


class Budgets:
    """The budgets of all federations that this device ever shared with."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def list(self) -> list[PrivacyBudget]:
        """Return every budget that was touched."""
        return list(self._read().values())

    def of(self, federation: Federation) -> PrivacyBudget | None:
        """Return the budget of a federation, none if it has no guarantee; its first terms hold, whatever came later."""
        if federation.privacy is None:
            return None
        new = PrivacyBudget(federation.id, federation.title, federation.privacy.epsilon, federation.privacy.delta)
        return self._read().get(federation.id, new)

    def check(self, federation: Federation, debit: Debit, level: float) -> PrivacyBudget:
        """Return the budget as one more sum would leave it; refuse a sum that must not be."""
        budget = self.of(federation)
        if budget is None or federation.privacy is None:
            raise ConsentError.because(ReasonCode.OTHER_TERMS)
        if (budget.epsilon, budget.delta) != (federation.privacy.epsilon, federation.privacy.delta):
            raise ConsentError.because(ReasonCode.OTHER_GUARANTEE, epsilon=budget.epsilon, delta=budget.delta)
        return budget.with_debit(debit, level)

    def debit(self, federation: Federation, debit: Debit, level: float, when: str) -> None:
        """Spend what a sum costs, inside the transaction that submits the vector."""
        after = self.check(federation, replace(debit, when=when), level)
        self._write({**self._read(), federation.id: after})

    def refuse_without_guarantee(self, federation: Federation) -> None:
        """Refuse to join a federation without a guarantee under the number of one that had a guarantee."""
        budget = self._read().get(federation.id)
        if budget is not None and federation.privacy is None:
            raise ConsentError.because(ReasonCode.OTHER_GUARANTEE, epsilon=budget.epsilon, delta=budget.delta)

    def begin(self, federation: Federation) -> None:
        """Note the guarantee under which a federation is joined, inside a transaction; an earlier one stays."""
        budget = self.of(federation)
        if budget is not None:
            self._write({**self._read(), federation.id: budget})

    def close_copies(self, federation: Federation | None) -> None:
        """Let all budgets, also that of the federation that it is in, count as spent, inside a transaction.

        This file is a copy, and the original may have gone on.
        """
        if federation is not None:
            self.begin(federation)
        self._write({name: replace(budget, is_copied=True) for name, budget in self._read().items()})

    def _read(self) -> dict[str, PrivacyBudget]:
        stored = self._store.get_json(PLACE) or {}
        return {
            name: PrivacyBudget(**{**value, "debits": tuple(Debit(**one) for one in value["debits"])})
            for name, value in stored.items()
        }

    def _write(self, budgets: Mapping[str, PrivacyBudget]) -> None:
        self._store.put_json(PLACE, {name: asdict(budget) for name, budget in budgets.items()})


def plan_debit(federation: Federation, shared: Mapping[str, Array], session: Session) -> Debit | None:
    """Return what a session would cost; none without a guarantee. Refuse one whose noise would not be that agreed on.

    Everything follows from what this device received and agreed on, and nothing from what the server says it costs.
    """
    privacy = federation.guarantee
    if privacy is None:
        return None
    terms, n_asked = session.terms, session.n_participants
    share, shapes = _share_of(federation, shared), federation.built.shapes(shared)
    if share == 0:
        raise WireError.because(ReasonCode.PLAN_DONE)
    if not 0 < share <= 1 + TOLERANCE:
        raise WireError.because(ReasonCode.OTHER_TERMS)
    if terms.n_min < privacy.n_needed(n_asked):
        raise DevicePolicyError.because(ReasonCode.WEAK_NOISE, n_min=terms.n_min, needed=privacy.n_needed(n_asked))
    if privacy.delta * n_asked >= 1:
        raise DevicePolicyError.because(ReasonCode.LARGE_DELTA, cohort=n_asked, delta=privacy.delta)
    check_noise_room(terms.layout, privacy, share, n_asked)
    event = _event_of(privacy, share, n_asked, shapes)
    return Debit(terms.round, share, {**event.to_dict(), "label": f"round {terms.round}"})


def _share_of(federation: Federation, shared: Mapping[str, Array]) -> float:
    try:
        return float(federation.path().budget_share(shared))
    except (LookupError, ValueError, TypeError, ArithmeticError):  # a plan that no honest server makes
        raise WireError.because(ReasonCode.OTHER_TERMS) from None


def _event_of(
    privacy: DifferentialPrivacy, share: float, n_asked: int, shapes: Mapping[str, tuple[int, ...]]
) -> PrivacyEvent:
    try:
        return privacy.event(share, "a sum", n_asked, shapes)
    except PrivacyError:  # noise in steps so coarse that no account holds
        raise WireError.because(ReasonCode.OTHER_TERMS) from None
