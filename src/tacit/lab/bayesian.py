"""Bayesian search: the next points follow from what earlier ones reached (TPE of Optuna). Needs the extra `optuna`.

A proposal depends on the seed, the space, and the values of all trials before its batch; never on how many trials run
side by side. So a search with more trials makes the same ones first, and those that are finished are reused.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from tacit.errors import missing_extra
from tacit.lab.search_space import DRAWS, Range, Space
from tacit.random import Key
from tacit.types import Config

WORST = 0.0  # what a trial that diverged or failed counts as: no metric is below


class BayesianConfig(Config):
    """Options of a search that learns from its trials."""

    drawn: int = Field(10, ge=1, description="first points, drawn at random, before values count")
    batch: int = Field(1, ge=1, le=1000, description="points proposed at once; so many trials can run side by side")


class Proposals:
    """Points to try, proposed in batches; `record` says what each of them reached."""

    def __init__(self, space: Space, config: BayesianConfig, key: Key) -> None:
        try:
            import optuna
        except ImportError:
            raise missing_extra("A Bayesian search", "optuna") from None
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        sampler = optuna.samplers.TPESampler(
            seed=int(key.child("bayesian").word) % 2**32, n_startup_trials=config.drawn
        )
        self._study = optuna.create_study(direction="maximize", sampler=sampler)
        self._space = space
        self._ranges = {path: _distribution(values) for path, values in space.items()}
        self._asked: dict[str, Any] = {}  # point -> Optuna's trial
        self._values: dict[str, float] = {}

    def propose(self, n: int) -> list[dict[str, Any]]:
        """Return up to n points that were not proposed before; fewer once the space has no more."""
        found: list[dict[str, Any]] = []
        for _ in range(DRAWS * n):
            if len(found) == n:
                break
            trial = self._study.ask(fixed_distributions=self._ranges)
            point = {path: self._value(path, trial.params[path]) for path in self._space}
            name = repr(point)
            if name not in self._asked:
                self._asked[name] = trial
                found.append(point)
            else:  # it has a value, or waits for one with this batch
                self._study.tell(trial, self._values.get(name, WORST))
        return found

    def record(self, point: dict[str, Any], value: float | None) -> None:
        """Note what a proposed point reached; none: it diverged or failed."""
        name = repr(point)
        self._values[name] = WORST if value is None else value
        self._study.tell(self._asked[name], self._values[name])

    def _value(self, path: str, chosen: Any) -> Any:
        values = self._space[path]
        return chosen if isinstance(values, Range) else values[chosen]


def _distribution(values: Range | Any) -> Any:
    """Return Optuna's form of a range or a list; of a list it chooses a position."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if not isinstance(values, Range):
        return CategoricalDistribution(range(len(values)))
    if isinstance(values.low, int) and isinstance(values.high, int):
        return IntDistribution(values.low, values.high, log=values.log)
    return FloatDistribution(values.low, values.high, log=values.log)
