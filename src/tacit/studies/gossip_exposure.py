"""What a peer can infer from the models that it is sent: a study of our own, PEPPER with GMF.

An observer has what a member gets: models of a peer, and models of others beside them. It knows the method and how
popular items are. Two questions, each asked of many peers:

    items       which items does the sender have? By one model (how far each item is from its mean over others' models),
                by two successive models of the sender (delta attack), and by the sender's own scores where its vector
                is sent. The leak is measured as on a user's page: 0 is no better than guessing popular items.
    community   who is most like a given user? Peers are ranked by how far their models have moved that user's items
                (Belal et al. 2025); the share of the true neighbours among the first is set beside chance.

Each figure is the best of the attacks, the mean over peers: an observer who may choose. Models are read as they would
leave, with bound and noise. Quality is that of the peers' own models, which have no noise of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.config import Experiment, apply_overrides
from tacit.lab.event_driven import GossipRuntime
from tacit.lab.experiments import TrainingJob
from tacit.lab.training import PassOptions, passes
from tacit.methods.base import Gossip
from tacit.numerics import one_blas_thread
from tacit.privacy.meter import auc, prior
from tacit.privacy.noise import SimulatedNoise
from tacit.random import Key
from tacit.studies.base import StudyResult, reproduction
from tacit.studies.pepper import recipe
from tacit.studies.setup import StudySetup
from tacit.studies.sheets import PublishedRow, Sheet, format_cell, value_of
from tacit.types import Array, Clients, Model

Numbers = NDArray[np.float64]

ROUNDS = 30
AFTER = (2, 10, 30)  # rounds after which the observer looks, at this one and the one before
PEERS = 100  # whose models are read
OTHERS = 30  # other models that the observer has beside them
NEIGHBOURS = 20  # a community: so many users whose histories are most like the target's
BOUND = 0.5
BASE: dict[str, Any] = {"name": "pepper", "alpha": 0.0}
SETTINGS: dict[str, dict[str, Any]] = {
    "vector private": {},
    "vector sent": {"user_vector": "sent"},
    "private, bound 0.5": {"send_bound": BOUND},
    "sent, bound 0.5": {"send_bound": BOUND, "user_vector": "sent"},
    "private, noise 0.01": {"send_bound": BOUND, "send_noise": 0.01},
    "private, noise 0.1": {"send_bound": BOUND, "send_noise": 0.1},
    "private, noise 5": {"send_bound": BOUND, "send_noise": 5.0},
    "sent, noise 5": {"send_bound": BOUND, "send_noise": 5.0, "user_vector": "sent"},
}
QUALITY = "HR@20"


@dataclass(frozen=True)
class Observation:
    """What an observer has of one peer: its model, the one before, and the mean of others' models; [D, n_items]."""

    model: Array
    before: Array
    others: Array
    scores: Numbers | None  # of all items by the sender's own vector, where it is sent


@reproduction("gossip-exposure", "What peer models give away", "Our own", ("ml-100k",), recipe, seeds=1)
def gossip_exposure_study(setup: StudySetup) -> StudyResult:
    """Learn with every setting, and read what is sent."""
    rounds, afters = (4, (2, 4)) if setup.quick else (ROUNDS, AFTER)
    rows: list[PublishedRow] = []
    costs: dict[str, float] = {}
    for label, more in SETTINGS.items():
        ends = {"send_periods": rounds} if more.get("send_noise") else {}
        method = {**BASE, "epochs": rounds, **more, **ends}
        found = [_one(setup, label, method, seed, afters) for seed in setup.seeds]
        costs[label] = found[0].pop("epsilon")
        rows += [PublishedRow.of(label, metric, [one[metric] for one in found]) for metric in found[0]]
    columns = [QUALITY, *(f"{what} after {after}" for what in ("leak", "community") for after in afters)]
    lines = [
        [label, f"{costs[label]:,.0f}", *(format_cell(value_of(rows, label, column)) for column in columns)]
        for label in SETTINGS
    ]
    chance = NEIGHBOURS / (len(setup.parts.train) - 1)
    notes = [
        f"leak: 0 is no better than guessing popular items, 1 the whole history; mean over {PEERS} peers, best attack.",
        f"community: share of a user's {NEIGHBOURS} nearest found among the first {NEIGHBOURS}; chance {chance:.3f}.",
        "epsilon: what all models together tell of a user's whole history, local guarantee, delta 1e-6; inf: none.",
        *(["Quick: few rounds. These numbers say nothing about the method."] if setup.quick else []),
    ]
    measured = {
        label: {column: value_of(rows, label, column) for column in columns} | {"epsilon": costs[label]}
        for label in SETTINGS
    }
    sheets = [Sheet("Quality and exposure", ["setting", "epsilon", *columns], lines)]
    return StudyResult(rows, sheets, notes=notes, detail={"measured": measured, "chance": chance, "data": setup.name})


def _one(
    setup: StudySetup, label: str, method: Mapping[str, Any], seed: int, afters: tuple[int, ...]
) -> dict[str, float]:
    """Learn once; return quality, leak and community by the number of rounds, and the guarantee's cost."""
    settings = {"seed": seed, "method": dict(method), "evaluation.local_only_users": 0}
    experiment = Experiment.from_options(apply_overrides(setup.base, settings), "the study")
    job, built, parts = TrainingJob.from_split(experiment, setup.parts), experiment.method.build(), setup.parts
    assert isinstance(built, Gossip)
    key, result, before = Key(seed), dict[str, float](), dict[str, Array]()
    reader = _Observer(built, parts.train, built.init(parts.train, parts.catalog, key.child("learn", "init")).private)
    with one_blas_thread():
        options = PassOptions(gossip=GossipRuntime(threads=experiment.runtime.threads))
        for done, model in enumerate(passes(built, parts.train, parts.catalog, key.child("learn"), options), 1):
            setup.progress(f"{setup.name}: {label}, seed {seed}", done, built.config.epochs)
            if done + 1 in afters:
                before = reader.read_all(model, key.child("before", done))
            if done in afters:
                seen = reader.read_all(model, key.child("now", done))
                result[f"leak after {done}"] = reader.leak(seen, before, model)
                result[f"community after {done}"] = reader.community(seen, before)
        result[QUALITY] = float(job.evaluate(model, parts.test, lists=False).overall[QUALITY])
    release = built.release
    sent = sum(table[0].size for table in before.values())
    result["epsilon"] = np.inf if release is None else release.epsilon(built.config.epochs, sent)
    return result


class _Observer:
    """An observer who reads the models of all peers, as they would leave."""

    def __init__(self, method: Gossip, clients: Clients, first: Mapping[str, Array]) -> None:
        self.method, self.clients, self.first = method, clients, first
        self.popularity = np.bincount(clients.items, minlength=clients.n_items).astype(np.float64)
        draws = np.random.default_rng(1)
        self.targets = draws.permutation(len(clients))[:PEERS]
        self.beside = draws.permutation(len(clients))[:OTHERS]
        self.own = np.zeros((len(clients), clients.n_items), bool)
        self.own[clients.rows, clients.items] = True

    def read_all(self, model: Model, key: Key) -> dict[str, Array]:
        """Return what every peer would send now, arrays with the peer axis first."""
        models = model.private
        own = self.method.own(model.shared, models, self.clients)
        whole = self.method.peer_models(models, np.arange(len(self.clients)), own)
        if self.method.release is None or not self.method.release.bound:
            return {name: table.copy() for name, table in whole.tables.items()}
        shaped = []
        for at in range(len(self.clients)):
            first = {name: self.first[name][at : at + 1] for name in whole.tables}
            source = SimulatedNoise(key.child(at))
            shaped.append(self.method.release.shape(whole.take(np.array([at])), first, source).tables)
        return {name: np.concatenate([one[name] for one in shaped]) for name in whole.tables}

    def leak(self, seen: Mapping[str, Array], before: Mapping[str, Array], model: Model) -> float:
        """Return the leak index of the best attack, the mean over peers."""
        found: dict[str, list[float]] = {}
        for at in self.targets.tolist():
            observed = self._observe(at, seen, before, model)
            known = prior(self.popularity, int(self.own[at].sum()))
            guess = auc(known, self.own[at])
            for name, attack in ATTACKS.items():
                scores = attack(observed)
                if scores is None:
                    continue
                belief = _standard(scores)
                for how, by in (("alone", belief), ("with popularity", belief + _standard(known))):
                    found.setdefault(f"{name}, {how}", []).append(
                        max(0.0, (auc(by, self.own[at]) - guess) / (1.0 - guess))
                    )
        return max(float(np.mean(values)) for values in found.values())

    def _observe(self, at: int, seen: Mapping[str, Array], before: Mapping[str, Array], model: Model) -> Observation:
        others = self.beside[self.beside != at]
        scores = None
        if "users" in seen:
            private = {**{name: array[at : at + 1] for name, array in model.private.items()}}
            private |= {name: table[at : at + 1] for name, table in seen.items()}
            scores = self.method.score(model.shared, private, self.clients.take([at]))[0].astype(np.float64)
        return Observation(seen["items"][at], before["items"][at], seen["items"][others].mean(axis=0), scores)

    def community(self, seen: Mapping[str, Array], before: Mapping[str, Array]) -> float:
        """Return the share of users' nearest that are found by their models; of several attacks, the best."""
        mean = seen["items"][self.beside].mean(axis=0)
        moved = {
            "distance": _lengths(seen["items"] - mean),
            "delta": _lengths(seen["items"] - before["items"]),
        }
        sizes = self.own.sum(axis=1)
        found: dict[str, list[float]] = {name: [] for name in moved}
        for at in self.targets.tolist():
            shared = (self.own & self.own[at]).sum(axis=1)
            alike = shared / (sizes + sizes[at] - shared)
            alike[at] = -1.0
            true = set(np.argsort(-alike, kind="stable")[:NEIGHBOURS].tolist())
            for name, lengths in moved.items():
                rank = lengths[:, self.own[at]].mean(axis=1) / np.maximum(lengths.mean(axis=1), 1e-12)
                rank[at] = -np.inf
                best = np.argsort(-rank, kind="stable")[:NEIGHBOURS].tolist()
                found[name].append(len(true & set(best)) / NEIGHBOURS)
        return max(float(np.mean(values)) for values in found.values())


def _lengths(moved: Array) -> Numbers:
    """Return how far each item of each peer is from where it was [peers, n_items]."""
    lengths: Numbers = np.sqrt((moved.astype(np.float64) ** 2).sum(axis=1))
    return lengths


def _standard(values: Numbers) -> Numbers:
    centred: Numbers = values - values.mean()
    return centred / max(float(centred.std()), 1e-12)


def _along(moved: Array) -> Numbers:
    """Return how far items moved in the direction that most moved in; those that moved farthest are positive."""
    table = moved.astype(np.float64)
    direction = np.linalg.svd(table, full_matrices=False)[0][:, 0]
    found: Numbers = direction @ table
    return found if np.abs(found[found > 0]).sum() >= np.abs(found[found < 0]).sum() else -found


Attack = Callable[[Observation], Numbers | None]
ATTACKS: dict[str, Attack] = {
    "distance from others": lambda seen: _lengths((seen.model - seen.others)[None])[0],
    "direction from others": lambda seen: _along(seen.model - seen.others),
    "delta of two models": lambda seen: _lengths((seen.model - seen.before)[None])[0],
    "direction of the delta": lambda seen: _along(seen.model - seen.before),
    "the sender's own scores": lambda seen: seen.scores,
}
