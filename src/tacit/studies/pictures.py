"""Pictures dealt to clients, and what a client can say of its own: the setting of chapter 5's experiments."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.data.formats.images import Faces
from tacit.protocols.criteria import class_balance
from tacit.random import Key

SHARDS = 2  # of equal digits per client
FEWEST = 5  # photographs of a user
Indices = list[NDArray[np.int64]]


def iid(labels: NDArray[np.uint8], n_clients: int, key: Key) -> Indices:
    """Deal pictures at random into parts of equal size."""
    order = key.generator().permutation(len(labels))
    return [np.sort(part) for part in np.array_split(order, n_clients)]


def by_shards(labels: NDArray[np.uint8], n_clients: int, key: Key) -> Indices:
    """Sort pictures by digit, cut them into two shards per client, and deal the shards (McMahan et al., 2017)."""
    shards = np.array_split(np.argsort(labels, kind="stable"), SHARDS * n_clients)
    dealt = key.generator().permutation(len(shards)).reshape(n_clients, SHARDS)
    return [np.sort(np.concatenate([shards[s] for s in mine])) for mine in dealt]


def test_parts(train: Indices, labels: NDArray[np.uint8], test_labels: NDArray[np.uint8], key: Key) -> Indices:
    """Deal test pictures so that every client's are of the digits it has, in the same proportions."""
    shares = np.array([np.bincount(labels[mine], minlength=10) for mine in train], float)  # [C, 10]
    parts: list[list[NDArray[np.int64]]] = [[] for _ in train]
    for digit in range(10):
        pictures = np.flatnonzero(test_labels == digit)
        pictures = pictures[key.child(digit).generator().permutation(len(pictures))]
        total = shares[:, digit].sum()
        ends = np.rint(np.cumsum(shares[:, digit]) / max(total, 1.0) * len(pictures)).astype(int)
        for client, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            parts[client].append(pictures[start:end])
    return [np.sort(np.concatenate(part)) for part in parts]


@dataclass(frozen=True)
class Celebrity:
    """A celebrity's photographs: positions in CelebA's lists, to learn from and to test with."""

    train: NDArray[np.int64]
    test: NDArray[np.int64]


def celebrities(faces: Faces, key: Key, share: float = 0.5) -> list[Celebrity]:
    """Keep a share of all photographs, users with five or more, and hold a fifth of each user's out."""
    chosen = np.sort(key.child("half").generator().permutation(len(faces.images))[: int(share * len(faces.images))])
    people = []
    for identity in np.unique(faces.identities[chosen]):
        mine = chosen[faces.identities[chosen] == identity]
        if len(mine) >= FEWEST:
            mine = mine[key.child("hold out", int(identity)).generator().permutation(len(mine))]
            n_test = len(mine) // 5
            people.append(Celebrity(np.sort(mine[n_test:]), np.sort(mine[:n_test])))
    return people


def label_diversity(labels: NDArray[np.uint8], clients: Indices) -> NDArray[np.float64]:
    """How many different labels each client has."""
    return np.array([float(len(np.unique(labels[mine]))) for mine in clients])


def smile_balance(faces: Faces, clients: Indices) -> NDArray[np.float64]:
    """min / max of the numbers of smiling and of other photographs (5.8)."""
    smiles = faces.attributes[:, faces.names.index("Smiling")]
    yes = np.array([smiles[mine].sum() for mine in clients])
    return class_balance(yes, np.array([len(mine) for mine in clients]) - yes)


def sharp_fraction(faces: Faces, clients: Indices) -> NDArray[np.float64]:
    """The share of each client's photographs that are not blurry."""
    blurry = faces.attributes[:, faces.names.index("Blurry")]
    return np.array([1.0 - blurry[mine].mean() for mine in clients])
