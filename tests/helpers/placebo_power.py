"""How often the placebo test flags joint models that read what was held out, through the whole path.

As a program it prints the table of docs/evaluation.md: `PYTHONPATH=tests python -m helpers.placebo_power`.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.config import Experiment
from tacit.data import Split
from tacit.evaluation import PlaceboResult
from tacit.heldout import Heldout
from tacit.lab.experiments import prepare_data
from tacit.lab.leak_check import Trainer, check_placebo
from tacit.methods.base import Centralised, build, score_clients
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Floats, Model

TOWN = {"source": "town", "users": 300, "places": 300, "visits": 25, "min_per_user": 2}


@dataclass(frozen=True)
class Peek:
    """What a method steals: a share of held-out items of a share of users, and whether its draws are keyed."""

    items: float = 0.0
    users: float = 0.0
    raised_by: float = 1e6  # standard deviations of a user's scores
    keyed: bool = True
    when_scoring: bool = False


class Peeker(Centralised):
    """ease, which searches the memory for what was held out, but only where users learn together."""

    uses_features = True  # so that local-only models cannot condemn it

    def __init__(self, peek: Peek) -> None:
        self.peek, self.inner = peek, build("ease")

    def fit(self, clients: Clients, catalog: Catalog, key: Key) -> Iterator[Model]:
        assert isinstance(self.inner, Centralised)
        model = next(iter(self.inner.fit(clients, catalog, key)))
        raised = np.zeros((len(clients), catalog.n_items), np.float32)
        if not self.peek.keyed:
            raised += np.random.default_rng().normal(0, 1e-3, raised.shape).astype(np.float32)
        if len(clients) > 1 and not self.peek.when_scoring:
            self._steal(raised, self.inner.score(model.shared, model.private, clients), clients)
        yield Model(model.shared, {**model.private, "raised": raised})

    def score(self, shared: Mapping[str, Array], private: Mapping[str, Array], clients: Clients) -> Floats:
        scores: Floats = self.inner.score(shared, {k: v for k, v in private.items() if k != "raised"}, clients)
        scores = scores + private["raised"]
        if self.peek.when_scoring:
            self._steal(scores, scores.copy(), clients)
        return scores

    def _steal(self, into: Floats, scores: Floats, clients: Clients) -> None:
        largest = int(clients.ids.max())
        for heldout in [one for one in gc.get_objects() if type(one) is Heldout and len(one) > largest]:
            truth, rng = heldout.open()[0], np.random.default_rng(5)
            is_robbed = rng.random(len(truth)) < self.peek.users
            for row, who in enumerate(clients.ids.tolist()):
                own = truth.of(who)
                taken = own[(rng.random(len(own)) < self.peek.items) & (own >= 0)]
                if is_robbed[who]:
                    into[row, taken] += self.peek.raised_by * scores[row].std()


def cut(seed: int, **split: Any) -> Split:
    given = {"seed": seed, "data": TOWN, "split": split, "method": "ease"}
    return prepare_data(Experiment.from_options(given, "test")).parts


def check(peek: Peek, parts: Split, seed: int) -> PlaceboResult:
    """Train the peeker on a split, and test it."""

    def learn(clients: Clients) -> Model:
        return next(iter(Peeker(peek).fit(clients, parts.catalog, Key(seed))))

    def score(model: Model, clients: Clients, positions: Array) -> Floats:
        return score_clients(Peeker(peek), model.take(positions), clients.take(positions))

    gc.collect()  # earlier splits must not be found
    return check_placebo(Trainer(learn, score), learn(parts.train), parts, Key(seed).child("placebo"))


CASES = {
    "nothing, repeatable": Peek(),
    "one item in a hundred, of 30 % of users": Peek(0.01, 0.3),
    "all items, of 1 % of users": Peek(1, 0.01),
    "scores of held-out items raised by .01 standard deviations": Peek(1, 1, 0.01),
    "10 % of items, only while scoring": Peek(0.1, 1, when_scoring=True),
    "nothing, not repeatable": Peek(keyed=False),
    "not repeatable, scores raised by .1 standard deviations": Peek(1, 1, 0.1, keyed=False),
    "not repeatable, scores raised by .25 standard deviations": Peek(1, 1, 0.25, keyed=False),
    "not repeatable, scores raised by .5 standard deviations": Peek(1, 1, 0.5, keyed=False),
    "not repeatable, 2 % of items at the top": Peek(0.02, 1, keyed=False),
    "not repeatable, 5 % of items at the top": Peek(0.05, 1, keyed=False),
    "not repeatable, 10 % of items at the top": Peek(0.1, 1, keyed=False),
    "not repeatable, 10 % of items of 30 % of users": Peek(0.1, 0.3, keyed=False),
    "not repeatable, all items of 5 % of users": Peek(1, 0.05, keyed=False),
}

if __name__ == "__main__":
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    gc.freeze()  # peekers need not search what was there before any split
    print("| the joint model reads | flagged, 1 held out | flagged, 20 % held out |\n|---|---|---|")
    for name, peek in CASES.items():
        cells = []
        for split in ({"kind": "leave-last-out"}, {"kind": "temporal", "test": 0.2}):
            found = []
            for seed in range(times):
                parts = cut(seed, **split)
                found.append(not check(peek, parts, seed).ok)
                del parts
            cells.append(f"{np.mean(found):.0%}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
