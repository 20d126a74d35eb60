"""What one sum tells of each of its members, by its size, and what the same attacker names without that member.

A user's items are part of their own sum. An attacker who sees the sum of n users and no more ranks items by their
counts: each of the n is equally probable to be one of those counted. What the user's participation adds is the
difference to the better of two attackers who have nothing of that user: one sees the sum of the n - 1 others, one knows
what is popular among all other users. Both use everything that people like the user tell anyway.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.meter import share_named
from tacit.random import Key
from tacit.studies.sheets import PublishedRow, Sheet, format_cell, value_of
from tacit.types import Clients

SIZES = (7, 10, 13, 20, 26, 40, 50, 100, 200)
SHARES = (0.7, 0.5, 0.3)  # of a history, drawn once for all rounds
NOISES = (2.0, 4.0)  # standard deviations
DRAWS = 3  # ways to part all users into sums
MEASURES = ("named", "named by the others' sum", "named by what is popular", "of taking part", "standard error")
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class NamedShares:
    """Shares of each member's |K| items among the |K| highest scores, one entry per user and draw [users]."""

    named: Numbers
    by_others: Numbers  # by the sum of the other members
    by_popularity: Numbers  # by what is popular among all other users
    draws: int

    @property
    def of_taking_part(self) -> float:
        """Return what the user's own contribution adds to the better attacker without it."""
        return float(self._added.mean())

    @property
    def standard_error(self) -> float:
        """Return the error of that mean; draws of the same user count as one."""
        return float(self._added.std(ddof=1) / np.sqrt(len(self._added) / self.draws))

    @property
    def _added(self) -> Numbers:
        better = max(self.by_others, self.by_popularity, key=lambda values: float(values.mean()))
        return self.named - better

    def rows(self, name: str) -> list[PublishedRow]:
        """Return the figures as rows of a study."""
        means = [float(values.mean()) for values in (self.named, self.by_others, self.by_popularity)]
        figures = dict(zip(MEASURES, [*means, self.of_taking_part, self.standard_error], strict=True))
        return [PublishedRow.of(name, metric, [value]) for metric, value in figures.items()]


def exposure_by_size(people: Clients, key: Key, draws: int = DRAWS) -> list[PublishedRow]:
    """Return what sums of each size name of their members, for whole histories, shares drawn once, and with noise."""
    is_own = own_items(people)
    popular = is_own.sum(axis=0)
    guessed = np.array([share_named((popular - own).astype(np.float64), own) for own in is_own])
    rows = []
    for size in (size for size in SIZES if size <= len(people)):
        parted = [draw_batches(len(people), size, key.child("parts", size, at)) for at in range(draws)]
        ways: Mapping[str, NamedShares] = {
            "all items": _attack_sums(is_own, parted, guessed),
            **{
                f"{share:.0%} drawn once": _attack_sums(is_own, parted, guessed, share=share, key=key)
                for share in SHARES
            },
            **{f"noise of {noise:g}": _attack_sums(is_own, parted, guessed, noise=noise, key=key) for noise in NOISES},
        }
        for way, found in ways.items():
            rows += found.rows(f"sum of {size}, {way}")
    return rows


def exposure_sheet(rows: Sequence[PublishedRow]) -> Sheet:
    """Lay the figures out: sums down, measures across."""
    names = list(dict.fromkeys(row.method for row in rows))
    return Sheet(
        "One sum: the share of a user's items that it names, and what of that is due to the user",
        ["sum", *MEASURES],
        [[name, *(format_cell(value_of(rows, name, metric)) for metric in MEASURES)] for name in names],
    )


def own_items(people: Clients) -> NDArray[np.bool_]:
    """Return which items each user has [users, items]."""
    is_own = np.zeros((len(people), people.n_items), bool)
    is_own[np.repeat(np.arange(len(people)), np.diff(people.ptr)), people.items] = True
    return is_own


def draw_batches(n_people: int, size: int, key: Key) -> NDArray[np.int64]:
    """Return users parted into sums of one size [sums, size]; those who are left over are in none."""
    return key.generator().permutation(n_people)[: n_people // size * size].reshape(-1, size)


def _attack_sums(
    is_own: NDArray[np.bool_],
    parted: Sequence[NDArray[np.int64]],
    guessed: Numbers,
    *,
    share: float = 1.0,
    noise: float = 0.0,
    key: Key | None = None,
) -> NamedShares:
    """Attack every sum for every member of it, with a share of each history and with noise on each count.

    What is not in any sum, and counts with noise, are estimated with what is popular: among all users, or, for the
    attacker who has nothing of the user, among all others.
    """
    popular, n_people = is_own.sum(axis=0), len(is_own)
    named, by_others, by_popularity = [], [], []
    for at, batches in enumerate(parted):
        generator = None if key is None else key.child("chance", at, batches.shape[1]).generator()
        sent = is_own if generator is None or share == 1 else is_own & (generator.random(is_own.shape) < share)
        for members in batches:
            drawn = 0.0 if generator is None or not noise else generator.normal(0, noise, is_own.shape[1])
            counts = sent[members].sum(axis=0) + drawn
            for user in members.tolist():
                own = is_own[user]
                if not own.any():
                    continue
                named.append(share_named(_probable(counts, len(members), popular / n_people, share, noise), own))
                known = (popular - own) / (n_people - 1)
                others = counts - sent[user]
                by_others.append(share_named(_probable(others, len(members) - 1, known, share, noise), own))
                by_popularity.append(guessed[user])
    return NamedShares(np.array(named), np.array(by_others), np.array(by_popularity), len(parted))


def _probable(counts: Numbers, size: int, known: Numbers, share: float, noise: float) -> Numbers:
    """Return how probable it is that a member has each item, by its count as far as that is certain."""
    if noise:
        spread = size * known * (1 - known)
        return (counts * spread + size * known * noise**2) / (spread + noise**2)
    if share == 1:
        return counts + known / 2  # counts decide, and what is popular where they are equal
    unsent = known * (1 - share) / (1 - known * share)
    return counts / size + (1 - counts / size) * unsent
