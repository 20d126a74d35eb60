"""How often the leak verdict flags leaks of several strengths, on made-up local-only models.

As a program it prints the table of docs/evaluation.md: `python tests/unit/evaluation/leak_power.py` (a minute or two).
"""

from __future__ import annotations

import sys

import numpy as np

from helpers.random_rankings import catalog_of
from tacit.evaluation import is_decided, sample_stages, select_heldout, swap
from tacit.evaluation.leak import LEVEL, STAGES
from tacit.heldout import Heldout
from tacit.testing import make_clients

N_ITEMS, HISTORY, PEOPLE = 500, 20, 100
KINDS = {
    "nothing": (0.0,),
    "scores of held-out items raised by so many standard deviations": (0.1, 0.25, 0.5, 1.0),
    "this share of the held-out items at the top": (0.02, 0.05, 0.1, 0.3),
    "all held-out items of this share of people at the top": (0.02, 0.05, 0.1, 0.3),
}


def flagged(kind: str, strength: float, held_out: int, seed: int) -> tuple[bool, int]:
    """Return whether one made-up method is flagged, and how many people that took.

    Items are popular by their index and every model follows the catalogue's order a little: not a leak.
    """
    rng = np.random.default_rng(seed)
    weights = 1.0 / np.arange(1, N_ITEMS + 1) ** 0.7
    drawn = [
        rng.choice(N_ITEMS, HISTORY + held_out, replace=False, p=weights / weights.sum()).tolist()
        for _ in range(PEOPLE)
    ]
    seen, truth = [d[:HISTORY] for d in drawn], [d[HISTORY:] for d in drawn]
    heldout = Heldout(make_clients(truth, N_ITEMS), make_clients(seen, N_ITEMS))
    order = -np.arange(N_ITEMS) / N_ITEMS
    scores = (rng.normal(size=(PEOPLE, N_ITEMS)) + order).astype(np.float32)
    for u, own in enumerate(truth):
        scores[u, seen[u]] += 5
        if kind.startswith("scores"):
            scores[u, own] += strength
        elif kind.startswith("this share"):
            scores[u, [item for item in own if rng.random() < strength]] += 10
        elif kind.startswith("all") and rng.random() < strength:
            scores[u, own] += 10
    for n in sample_stages(PEOPLE):
        swapped = swap(scores[:n], select_heldout(heldout, np.arange(n)), catalog_of(N_ITEMS))
        if is_decided(swapped):
            break
    return min(swapped.p_values().values()) * 2 * len(STAGES) < LEVEL, n


def share(kind: str, strength: float, held_out: int, times: int) -> tuple[float, float]:
    """Return the share of flagged methods, and the mean number of people checked."""
    found = [flagged(kind, strength, held_out, seed) for seed in range(times)]
    return float(np.mean([leak for leak, _ in found])), float(np.mean([people for _, people in found]))


if __name__ == "__main__":
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    print(
        "| leak | strength | flagged, 1 held out | people | flagged, 10 held out | people |\n|---|---|---|---|---|---|"
    )
    for kind, strengths in KINDS.items():
        for strength in strengths:
            cells = [
                f"{rate:.0%} | {people:.0f}" for rate, people in (share(kind, strength, n, times) for n in (1, 10))
            ]
            print(f"| {kind} | {strength:g} | {' | '.join(cells)} |", flush=True)
