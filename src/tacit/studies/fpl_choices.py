"""The options that FPL is run with, chosen on the validation part as the papers do.

BPR-MF chooses the length F of the vectors among {10, 20, 50}, with alpha in {0.005, 0.05, 0.5} and 10 to 50 passes.
The papers then take its alpha and F for FPL too; a step that suits one client is too large where many are summed, so
here each configuration chooses for itself, one thing after the other: alpha among the papers' three and 0.02 between
them (at pi = 0.1 and 1, the better of the two counts), then F if it is trained for at most 50 passes, then the number
of passes for every pi. FCF chooses its number of passes.

On a few users the best of many trials is often the luckiest: where fewer than 4,000 are validated, trials of at most
50 passes are made with up to three seeds, and their mean counts (Italy's 1,353 users: three seeds).

An epoch of sFPL+ and pFPL+ is not what the papers' text says. Their table 4 (Brazil: TCC = 50 R+ (|I| + T (1 + pi)) and
35 R+ (...)) shows R+ visits to clients in an epoch of all four configurations, and each visit of a + configuration
takes T = R+ / |U| triples: T times the training of the others. So the + configurations may go on for up to 50 T passes
of R+ triples here, 600 at most, as long as validation gets better, at fewer values of pi; their figures within 50
passes stand beside.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tacit.studies.setup import StudySetup

RATES = (0.005, 0.05, 0.5)
STEPS = (0.005, 0.02, 0.05, 0.5)
STEPS_AT = (0.1, 1.0)  # pi at which the step is chosen
FACTORS = (10, 20, 50)
PASSES, EVALUATE_EVERY = 50, 5
ENOUGH_USERS, MOST_SEEDS = 4000, 3
FCF_RATE, FCF_PASSES, FCF_EVALUATE_EVERY = 0.05, 10, 5
LONG_PASSES, LONG_EVALUATE_EVERY, LONG_PATIENCE = 600, 20, 10
SHORT_PIS = (0.1, 0.5, 1.0)  # of the figures within 50 passes, which stand in tables only
PIS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
LONG_PIS = (0.0, 0.1, 0.2, 0.5, 1.0)  # where hundreds of passes are made
PAPERS_REGS: dict[str, Any] = dict.fromkeys(("reg_user", "reg_positive", "reg_negative"))  # none: they follow alpha
PAPERS_BPR: dict[str, Any] = {"name": "bpr-mf", **PAPERS_REGS}
NEIGHBOURS = tuple(range(10, 101, 10))

SHORT = " (50 passes)"
CONFIGURATIONS = ("sFPL", "sFPL+", "pFPL", "pFPL+")
SHORTENED = tuple(name + SHORT for name in CONFIGURATIONS if name.endswith("+"))

QUICK_PIS, QUICK_PASSES = (0.0, 0.5, 1.0), 8


@dataclass(frozen=True)
class Choice:
    """One configuration of FPL: its step, and for every pi the passes that were best and what they reached."""

    name: str
    learning_rate: float
    factors: int
    passes: dict[float, int]  # by pi; none where learning diverged
    values: dict[float, float]  # precision at 10 on the validation part

    @property
    def pi(self) -> float:
        """The best pi above 0 on validation."""
        return max((pi for pi in self.values if pi > 0), key=lambda pi: self.values[pi])

    def method(self, pi: float | None = None) -> dict[str, Any]:
        """Return the method to run, at a pi or at the best one."""
        at = self.pi if pi is None else pi
        return {
            "name": "fpl",
            "preset": self.name.removesuffix(SHORT),
            "learning_rate": self.learning_rate,
            "factors": self.factors,
            "epochs": self.passes[at],
            "pi": at,
            **PAPERS_REGS,
        }

    def describe(self, pi: float | None = None) -> str:
        """Return the options in a few words."""
        at = self.pi if pi is None else pi
        return f"pi={at:g} alpha={self.learning_rate:g} F={self.factors} passes={self.passes[at]}"


@dataclass(frozen=True)
class Choices:
    """What validation chose: options of the baselines by name, and the configurations of FPL."""

    baselines: dict[str, dict[str, Any]]
    fpl: dict[str, Choice]
    quick: bool = False

    def notes(self) -> list[str]:
        """Say how the options came about, and which configurations do not use BPR-MF's step."""
        if self.quick:
            return ["Quick: fixed options and few passes. These numbers say nothing about the methods."]
        rate = self.baselines["bpr-mf"]["learning_rate"]
        others = [f"{c.name} {c.learning_rate:g}" for c in self.fpl.values() if c.learning_rate != rate]
        if not others:
            return [f"alpha = {rate:g}, chosen with BPR-MF on validation, was best for every configuration."]
        return [
            f"BPR-MF chose alpha = {rate:g} on validation; configurations that did better with another step, since"
            f" updates are summed over clients: {', '.join(others)}."
        ]

    def detail(self) -> dict[str, Any]:
        """Return everything that was chosen, for the result."""
        configurations = {
            name: {
                "learning_rate": choice.learning_rate,
                "factors": choice.factors,
                "best_pi": choice.pi,
                "passes_by_pi": choice.passes,
                "validation_precision_by_pi": choice.values,
            }
            for name, choice in self.fpl.items()
        }
        return {"baselines": self.baselines, "configurations": configurations}


def choices(setup: StudySetup) -> Choices:
    """Return the options for a dataset: searched on validation once, each part kept, or fixed for a quick run."""
    if setup.quick:
        return _fixed_choices()
    grid = {"rates": RATES, "factors": FACTORS, "passes": (PASSES, EVALUATE_EVERY), "neighbours": NEIGHBOURS}
    baselines = setup.recall("fpl-baselines", grid, lambda: _baselines(setup))
    fcf = setup.recall(
        "fpl-fcf", {**grid, "fcf": (FCF_RATE, FCF_PASSES, FCF_EVALUATE_EVERY)}, lambda: _fcf(setup, baselines)
    )
    factors = baselines["bpr-mf"]["factors"]

    def configuration(name: str) -> Choice:
        file = f"fpl-{name.removesuffix(SHORT)}{'-50' * name.endswith(SHORT)}"
        asked: dict[str, Any] = {"steps": (STEPS, STEPS_AT), "factors": (factors, FACTORS), "limits": limits_of(name)}
        if (seeds := seeds_of(setup, name)) > 1:
            asked["seeds"] = seeds
        return _read(setup.recall(file, asked, lambda: asdict(_configure(setup, name, factors))))

    return Choices({**baselines, "fcf": fcf}, {name: configuration(name) for name in (*CONFIGURATIONS, *SHORTENED)})


def _fixed_choices() -> Choices:
    passes = dict.fromkeys(QUICK_PIS, QUICK_PASSES)
    fixed = {
        name: Choice(name, 0.05, 10, passes, {pi: pi for pi in QUICK_PIS}) for name in (*CONFIGURATIONS, *SHORTENED)
    }
    bpr = {**PAPERS_BPR, "learning_rate": 0.05, "factors": 10, "epochs": QUICK_PASSES}
    plain: dict[str, dict[str, Any]] = {name: {"name": name} for name in ("user-knn", "item-knn")}
    fcf = {"name": "fcf", "factors": 10, "epochs": QUICK_PASSES}
    return Choices({"bpr-mf": bpr, **plain, "fcf": fcf}, fixed, quick=True)


def _baselines(setup: StudySetup) -> dict[str, Any]:
    grid = {"method.learning_rate": RATES, "method.factors": FACTORS}
    tuned = setup.search("bpr-mf", {**PAPERS_BPR, "epochs": PASSES}, grid, {"evaluate_every": EVALUATE_EVERY})
    factors, rate = tuned.best.settings["method.factors"], tuned.best.settings["method.learning_rate"]
    found: dict[str, Any] = {
        "bpr-mf": {**PAPERS_BPR, "learning_rate": rate, "factors": factors, "epochs": tuned.best.passes}
    }
    for name in ("user-knn", "item-knn"):
        near = setup.search(name, {"name": name}, {"method.neighbours": NEIGHBOURS})
        found[name] = {"name": name, "neighbours": near.best.settings["method.neighbours"]}
    return found


def _fcf(setup: StudySetup, baselines: Mapping[str, Any]) -> dict[str, Any]:
    method = {"name": "fcf", "factors": baselines["bpr-mf"]["factors"], "epochs": FCF_PASSES}
    best = setup.search(
        "fcf", method, {"method.learning_rate": (FCF_RATE,)}, {"evaluate_every": FCF_EVALUATE_EVERY}
    ).best
    return {**method, "learning_rate": FCF_RATE, "epochs": best.passes}


def limits_of(name: str) -> dict[str, Any]:
    """Return how long a configuration may learn, how often it is evaluated, and which pi are tried."""
    if name.endswith("+"):
        return {"most": LONG_PASSES, "evaluate_every": LONG_EVALUATE_EVERY, "patience": LONG_PATIENCE, "pis": LONG_PIS}
    return {
        "most": PASSES,
        "evaluate_every": EVALUATE_EVERY,
        "patience": 0,
        "pis": SHORT_PIS if name in SHORTENED else PIS,
    }


def seeds_of(setup: StudySetup, name: str) -> int:
    """Return how many seeds a trial is made with, so that the luck of one does not choose."""
    if limits_of(name)["most"] > PASSES:
        return 1
    return min(MOST_SEEDS, -(-ENOUGH_USERS // max(1, len(setup.practice.parts.train))))


def most_passes(setup: StudySetup, name: str) -> int:
    """Return how many passes a configuration makes at most: as many triples as the papers' visits train."""
    train = setup.practice.parts.train
    return min(PASSES * max(1, len(train.items) // len(train)), int(limits_of(name)["most"]))


def count_trials(name: str, most: int) -> int:
    """Return how many combinations are tried at most for a configuration that makes so many passes."""
    steps, lengths = len(STEPS) * len(STEPS_AT), len(FACTORS) - 1 if most <= PASSES else 0
    known = 1 if lengths else len(STEPS_AT)  # with another length, what was tried before does not count
    return steps + lengths + len(limits_of(name)["pis"]) - known


def _configure(setup: StudySetup, name: str, factors: int) -> Choice:
    limits, seeds = limits_of(name), seeds_of(setup, name)
    most = most_passes(setup, name)
    runtime = {"evaluate_every": limits["evaluate_every"], "patience": limits["patience"]}
    method: dict[str, Any] = {
        "name": "fpl",
        "preset": name.removesuffix(SHORT),
        "factors": factors,
        "epochs": most,
        **PAPERS_REGS,
    }
    grid = {"method.learning_rate": STEPS, "method.pi": STEPS_AT}
    steps = setup.search(f"alpha of {name}", method, grid, runtime, seeds)
    rate, pi = steps.best.settings["method.learning_rate"], steps.best.settings["method.pi"]
    method["learning_rate"] = rate
    found = {t.settings["method.pi"]: t for t in steps.trials if t.settings["method.learning_rate"] == rate}
    others = [length for length in FACTORS if length != factors]
    if others and most <= PASSES:
        other = setup.search(f"F of {name}", {**method, "pi": pi}, {"method.factors": others}, runtime, seeds).best
        if (other.value or 0.0) > (steps.best.value or 0.0):
            method["factors"], found = other.settings["method.factors"], {pi: other}
    rest = [pi for pi in limits["pis"] if pi not in found]
    if rest:
        tried = setup.search(f"pi of {name}", method, {"method.pi": rest}, runtime, seeds).trials
        found |= {trial.settings["method.pi"]: trial for trial in tried}
    finite = {pi: found[pi] for pi in limits["pis"] if found[pi].value is not None}
    passes, values = {pi: t.passes for pi, t in finite.items()}, {pi: t.value or 0.0 for pi, t in finite.items()}
    return Choice(name, rate, method["factors"], passes, values)


def _read(stored: Mapping[str, Any]) -> Choice:
    passes = {float(pi): int(n) for pi, n in stored["passes"].items()}
    values = {float(pi): float(value) for pi, value in stored["values"].items()}
    return Choice(stored["name"], stored["learning_rate"], stored["factors"], passes, values)
