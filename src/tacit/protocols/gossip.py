"""What a node does: it sends its model to its view, reads what arrives, learns, and chooses peers anew.

A node is its own arrays, what it has of its person's history, and whom it has heard of. Its functions are given the
letter that arrived or the peers that a sampling service offers, and nothing else: there is no way from a node to
another one. Every runtime drives these functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.methods.base import Gossip
from tacit.methods.peers import Acquaintance
from tacit.types import Array
from tacit.updates import Letters

STRIKES = 2  # letters in a row that were not acknowledged, before a peer is given up
TOO_LARGE = 1e3  # no honest model holds such a number


@dataclass
class Node:
    """One node. `nodes` are its arrays, a cohort of one; `own` is what it has of its person's history."""

    id: int
    nodes: Mapping[str, Array]
    own: Any
    view: list[int]
    judged: dict[int, np.float32] = field(default_factory=dict)  # sender -> what its last model was worth
    strikes: dict[int, int] = field(default_factory=dict)  # peer -> letters in a row without an answer
    senders: set[int] = field(default_factory=set)  # whose letters it has lately read
    ticks: int = 0
    unread: bool = True  # nothing has arrived since it last learnt
    refused: int = 0  # letters that were no models


def send(method: Gossip, node: Node) -> Letters:
    """Return a copy of what the node sends to everyone in its view."""
    node.ticks += 1
    return method.letters(node.nodes, np.array([node.id]), node.own).take(np.array([0]))


def read(method: Gossip, node: Node, letter: Letters) -> bool:
    """Mix one letter in, and learn if the node learns at every receipt. Says whether it was a model at all."""
    if not is_model(letter, method.letters(node.nodes, np.array([node.id]), node.own)):
        node.refused += 1
        return False
    node.nodes, worths = method.mix(node.nodes, letter, node.own)
    if worths[0] >= 0:
        node.judged[int(letter.senders[0])] = worths[0]
    node.unread = False
    node.senders.add(int(letter.senders[0]))
    if method.config.learns == "receipt":
        node.nodes = method.learn(node.nodes, node.own)
    return True


def rest(method: Gossip, node: Node) -> None:
    """End a period: learn, if the node learns once in each or nothing has arrived in this one."""
    if method.config.learns == "round" or node.unread:
        node.nodes = method.learn(node.nodes, node.own)
    node.unread = True


def renew(method: Gossip, node: Node, offered: NDArray[np.int64], chance: np.uint64) -> None:
    """Choose peers anew among the best senders and those on offer."""
    n = len(node.judged)
    known, worths = np.fromiter(node.judged, np.int64, n), np.fromiter(node.judged.values(), np.float32, n)
    useful = np.flatnonzero(worths > 0)
    useful = useful[np.argsort(known[useful])]
    acquainted = Acquaintance(known[useful], worths[useful], offered)
    node.view = [int(peer) for peer in method.choose(acquainted, chance)]
    node.senders.clear()


def answered(node: Node, peer: int, was: bool) -> None:
    """Note whether a peer acknowledged a letter; one that does not, time and again, is forgotten."""
    if was:
        node.strikes.pop(peer, None)
        return
    node.strikes[peer] = node.strikes.get(peer, 0) + 1
    if node.strikes[peer] >= STRIKES:
        forget(node, peer)


def forget(node: Node, peer: int) -> None:
    """Know a peer no longer: it said goodbye, or does not answer."""
    node.view = [other for other in node.view if other != peer]
    node.judged.pop(peer, None)
    node.strikes.pop(peer, None)


def is_model(letter: Letters, mine: Letters) -> bool:
    """Return whether a letter holds the same arrays as one's own, with believable numbers in them."""
    if letter.tables.keys() != mine.tables.keys() or len(letter) != 1:
        return False
    for name, table in mine.tables.items():
        theirs = letter.tables[name]
        if theirs.shape != table.shape or theirs.dtype != table.dtype:
            return False
        if not float(np.abs(theirs).max(initial=0.0)) < TOO_LARGE:  # NaN is not smaller
            return False
    return bool(letter.samples[0] >= 0 and letter.ages[0] >= 0)
