"""Gossip where the network is not calm: nodes come and go, letters get lost, clocks differ, some lie. Our own study.

Same data and split as PEPPER's tables. Whoever is away when a run ends is judged with the model she left with; liars
are judged too, for their own nodes learn as everybody's.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from tacit.reproduce.base import Found, reproduction
from tacit.reproduce.lab import Lab
from tacit.reproduce.liars import unpopular
from tacit.reproduce.pepper import given, recipe, watched
from tacit.reproduce.sheets import Row, Sheet, number, value_of
from tacit.runtimes.network import NetworkConfig

METHODS = ("pepper", "dec-fedavg")  # one that judges what it is sent, and one that does not
NETWORKS = {
    "calm": NetworkConfig(),
    "churn": NetworkConfig(leaving=0.02, loss=0.1),  # 20 % in ten rounds
    "uneven": NetworkConfig(uneven=0.5, staggered=True, delay=0.3, bandwidth=(2.0, 20.0), effort=(0.01, 0.1)),
}
LIES = {
    "10 % liars: noise": NetworkConfig(liars=0.1, lie="noise"),
    "10 % liars: flipped signs": NetworkConfig(liars=0.1, lie="flip"),
    "10 % liars: an item promoted": NetworkConfig(liars=0.1, lie="promote"),
}
ROUNDS = 200  # of eighteen runs, four of them event by event: half an hour; curves still rise, so delays show
NAMES = (*NETWORKS, *LIES)
CLIPS = {"": 0.0, ", clipped": 1.0}
COLUMNS = [f"{method}{clip}" for method in METHODS for clip in CLIPS]
NOTES = (
    "churn: in each round 2 % of the nodes leave, for five rounds on average, half of them without a word; 10 % of all "
    "letters get lost.",
    "uneven: periods of 0.5 to 1.5 rounds, each node beginning when it likes; letters travel 0.3 rounds and more, over "
    "slow and fast links, to slow and fast devices.",
)


@reproduction("gossip-churn", "Networks that are not calm", "Our own", ("ml-100k",), recipe, seeds=1)
def churn(lab: Lab) -> Found:
    """HR@20 in every network, judging or not, and among liars clipping or not."""
    item = unpopular(lab)
    lies = {name: config.model_copy(update={"promoted": item}) for name, config in LIES.items()}
    rows: list[Row] = []
    for method, (clip, value) in product(METHODS, CLIPS.items()):
        length = {} if lab.quick else {"epochs": ROUNDS}
        options = given(lab, method, clip=value) | length
        for name, network in {**({"calm": NETWORKS["calm"]} if value else NETWORKS), **lies}.items():
            label = f"{method}{clip}, {name}"
            seen = [watched(lab, label, options, seed, network, item=item) for seed in lab.seeds]
            rows.append(Row.of(label, "HR@20", [one.last["HR@20"] for one in seen]))
            rows.append(Row.of(label, "exposure", [one.exposure[-1] for one in seen]))
    title = f"HR@20 after {ROUNDS} rounds, and beside the calm network unclipped"
    shown = [[name, *(number(value_of(rows, f"{column}, {name}", "exposure")) for column in COLUMNS)] for name in NAMES]
    sheets = [
        Sheet(title, ["network", *COLUMNS], [[name, *(_beside(rows, c, name) for c in COLUMNS)] for name in NAMES]),
        Sheet("Share of people who would see the promoted item", ["network", *COLUMNS], shown),
    ]
    return Found(rows, sheets, notes=[*NOTES, *_promoted(lab)])


def _beside(rows: list[Row], column: str, name: str) -> str:
    """Return an HR@20 with its distance from that of the same method where all is calm; a dash if it was not run."""
    found = value_of(rows, f"{column}, {name}", "HR@20")
    calm = value_of(rows, f"{column.partition(',')[0]}, calm", "HR@20")
    return number(found) if np.isnan(found) else f"{number(found)} ({100 * (found / calm - 1):+.1f} %)"


def _promoted(lab: Lab) -> list[str]:
    item = unpopular(lab)
    people = int((lab.parts.train.items == item).sum())
    title = lab.parts.catalog.title(item)
    return [f"Promoted: '{title}', which {people} people have. Seen: among her first ten of all items she has not had."]
