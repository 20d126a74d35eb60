"""`tacit device privacy`: the user's level, and what federations have spent of their privacy budgets."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tacit.cli import app as shell
from tacit.cli.app import Json
from tacit.cli.device import device_app, open_device

if TYPE_CHECKING:
    from tacit.field.device.budget import PrivacyBudget
    from tacit.privacy.sum_exposure import SumExposure

Level = Literal["strict", "balanced", "open"]


@device_app.command(epilog="Example: tacit device privacy strict")
def privacy(
    level: Annotated[Level | None, typer.Argument(help="The most that a federation may learn of you.")] = None,
    as_json: Json = False,
) -> None:
    """Show what federations may learn of you and have learnt, or choose the most: strict, balanced or open."""
    from tacit.field.device.settings import LEVELS

    with open_device() as device:
        if level is not None:
            device.change(lambda before: before.model_copy(update={"privacy": level}))
        sharing, budgets, member = device.sharing, device.budgets.list(), device.membership
        sums = device.sum_exposure
    found = {"level": sharing.privacy, "most_epsilon": sharing.most_epsilon, "levels": dict(LEVELS)}
    known = {"budgets": [budget.as_json() for budget in budgets], "sums": None if sums is None else _as_json(sums)}
    shell.screen.document({**found, **known})
    shell.screen.say(
        f"Your level is {sharing.privacy}: a federation with differential privacy learns at most epsilon = "
        f"{sharing.most_epsilon:g} of you. Smaller is stricter: strict 1, balanced 4, open 8."
    )
    for budget in budgets:
        shell.screen.say(describe_budget(budget, sharing.most_epsilon))
    if member is not None and member.federation.privacy is None:
        shell.screen.say(f"{member.federation.title} promises no differential privacy: see tacit device share.")
    if sums is not None:
        shell.screen.say(describe_sums(sums))


def _as_json(sums: SumExposure) -> dict[str, float]:
    return {**asdict(sums), "of_taking_part": sums.of_taking_part}


def describe_sums(sums: SumExposure) -> str:
    """Return what a sum without noise tells, by a figure that was measured for its size."""
    smallest = f"The smallest sum that this device was in had {sums.participants} devices."
    if sums.named >= 1:
        return f"{smallest} Such a sum may show everything. More devices tell less, and only noise tells nothing."
    return (
        f"{smallest} In our measurements with whole histories such a sum named {sums.named:.1%} of one. Without "
        f"that user in it, {sums.without:.1%} could be named by what is popular among others. So taking part told "
        f"{sums.of_taking_part:.1%} of a history. More devices tell less, and only noise tells nothing."
    )


def describe_budget(budget: PrivacyBudget, level: float) -> str:
    """Return what a federation has learnt, of how much, and in which rounds."""
    most = min(budget.epsilon, level)
    if budget.is_copied:
        return (
            f"{budget.name}: this device is a copy, so that its budget counts as spent. Recommendations go on, "
            "sharing stops."
        )
    rounds = ", ".join(str(debit.round) for debit in budget.debits) or "none yet"
    now, at_last = (f"{100 * chance:.0f}" for chance in (budget.certainty(), budget.certainty(level)))
    sentence = (
        f"{budget.name}: epsilon {budget.spent_epsilon:.3g} of {most:g} is spent ({budget.used(level):.0%} of your "
        f"budget), in rounds: {rounds}. Whoever knows everything else and guesses whether this device sent what you "
        f"did, or noise alone, is right in at most {now} of 100 cases; with the whole budget in {at_last}."
    )
    if budget.used(level) > 0.995:
        sentence += " It is spent: recommendations go on, sharing stops."
    return sentence
