"""Gossip in unreliable networks: churn, lost messages, different clocks, adversaries. A study of our own.

Same data and split as PEPPER's tables. A peer that is away when a run ends is judged by the model it left with.
Adversaries are judged too, since their own models learn like all others.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from tacit.lab.event_driven import NetworkConfig
from tacit.studies.adversaries import unpopular_item
from tacit.studies.base import StudyResult, reproduction
from tacit.studies.pepper import method_options, recipe, run_with_checkpoints
from tacit.studies.setup import StudySetup
from tacit.studies.sheets import PublishedRow, Sheet, format_cell, value_of

METHODS = ("pepper", "dec-fedavg")  # one that judges what it is sent, and one that does not
NETWORKS = {
    "calm": NetworkConfig(),
    "churn": NetworkConfig(leaving=0.02, loss=0.1),  # 20 % in ten rounds
    "uneven": NetworkConfig(uneven=0.5, staggered=True, delay=0.3, bandwidth=(2.0, 20.0), effort=(0.01, 0.1)),
}
ATTACKS = {
    "10 % adversaries: noise": NetworkConfig(adversaries=0.1, attack="noise"),
    "10 % adversaries: sign-flip": NetworkConfig(adversaries=0.1, attack="flip"),
    "10 % adversaries: an item promoted": NetworkConfig(adversaries=0.1, attack="promote"),
}
ROUNDS = 200  # of eighteen runs, four of them event by event: half an hour; curves still rise, so delays show
SHARES = (0.0, 0.01, 0.1, 0.3)  # of adversaries that promote an item
PROMOTION_ROUNDS = 100
NAMES = (*NETWORKS, *ATTACKS)
CLIPS = {"": 0.0, ", clipped": 1.0}
COLUMNS = [f"{method}{clip}" for method in METHODS for clip in CLIPS]
NOTES = (
    "churn: in each round 2 % of the peers leave, for five rounds on average, half of them without notice; 10 % of all "
    "messages are lost.",
    "uneven: periods of 0.5 to 1.5 rounds, random starting times; messages take at least 0.3 rounds, over "
    "slow and fast links, to slow and fast devices.",
)


@reproduction("gossip-churn", "Networks that are not calm", "Our own", ("ml-100k",), recipe, seeds=1)
def churn_study(setup: StudySetup) -> StudyResult:
    """HR@20 in every network, judging or not, and among adversaries clipping or not."""
    item = unpopular_item(setup)
    attacks = {name: config.model_copy(update={"promoted": item}) for name, config in ATTACKS.items()}
    rows: list[PublishedRow] = []
    for method, (clip, value) in product(METHODS, CLIPS.items()):
        length = {} if setup.quick else {"epochs": ROUNDS}
        options = method_options(setup, method, clip=value) | length
        for name, network in {**({"calm": NETWORKS["calm"]} if value else NETWORKS), **attacks}.items():
            label = f"{method}{clip}, {name}"
            seen = [run_with_checkpoints(setup, label, options, seed, network, item=item) for seed in setup.seeds]
            rows.append(PublishedRow.of(label, "HR@20", [one.last["HR@20"] for one in seen]))
            rows.append(PublishedRow.of(label, "exposure", [one.exposure[-1] for one in seen]))
    title = f"HR@20 after {ROUNDS} rounds, and beside the calm network unclipped"
    shown = [
        [name, *(format_cell(value_of(rows, f"{column}, {name}", "exposure")) for column in COLUMNS)] for name in NAMES
    ]
    sheets = [
        Sheet(title, ["network", *COLUMNS], [[name, *(_beside(rows, c, name) for c in COLUMNS)] for name in NAMES]),
        Sheet("Share of users who would see the promoted item", ["network", *COLUMNS], shown),
    ]
    return StudyResult(rows, sheets, notes=[*NOTES, *_promotion_rows(setup)])


@reproduction("gossip-promotion", "Adversaries that promote an item", "Our own", ("ml-100k",), recipe, seeds=1)
def promotion_study(setup: StudySetup) -> StudyResult:
    """HR@20, and how many would see the promoted item, by the share of adversaries and by what peers do about them."""
    item = unpopular_item(setup)
    rows: list[PublishedRow] = []
    for method, (clip, value) in product(METHODS, CLIPS.items()):
        length = {} if setup.quick else {"epochs": PROMOTION_ROUNDS}
        options = method_options(setup, method, clip=value) | length
        for share in SHARES:
            network = NetworkConfig(adversaries=share, attack="promote", promoted=item)
            label = f"{method}{clip}, {share:.0%}"
            seen = [run_with_checkpoints(setup, label, options, seed, network, item=item) for seed in setup.seeds]
            rows.append(PublishedRow.of(label, "HR@20", [one.last["HR@20"] for one in seen]))
            rows.append(PublishedRow.of(label, "exposure", [one.exposure[-1] for one in seen]))
    sheets = [
        Sheet(
            title,
            ["adversaries", *COLUMNS],
            [[f"{s:.0%}", *(format_cell(value_of(rows, f"{c}, {s:.0%}", metric)) for c in COLUMNS)] for s in SHARES],
        )
        for title, metric in (("HR@20", "HR@20"), ("Share of users who would see the promoted item", "exposure"))
    ]
    return StudyResult(rows, sheets, notes=_promotion_rows(setup))


def _beside(rows: list[PublishedRow], column: str, name: str) -> str:
    """Return an HR@20 with its distance from that of the same method where all is calm; a dash if it was not run."""
    found = value_of(rows, f"{column}, {name}", "HR@20")
    calm = value_of(rows, f"{column.partition(',')[0]}, calm", "HR@20")
    return format_cell(found) if np.isnan(found) else f"{format_cell(found)} ({100 * (found / calm - 1):+.1f} %)"


def _promotion_rows(setup: StudySetup) -> list[str]:
    item = unpopular_item(setup)
    people = int((setup.parts.train.items == item).sum())
    title = setup.parts.catalog.title(item)
    return [
        f"Promoted: '{title}', which {people} users have. Seen: among the first ten of all items outside the history."
    ]
