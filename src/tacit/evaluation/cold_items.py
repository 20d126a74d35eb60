"""How items without a training row are found: among all items, and among each other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tacit.errors import EvaluationError
from tacit.evaluation.config import EvaluationConfig
from tacit.evaluation.evaluate import evaluate
from tacit.evaluation.ranking import EvaluationOptions, Scorer
from tacit.heldout import Heldout
from tacit.random import Key
from tacit.types import Catalog, Clients, offsets

METRICS = ("Recall", "NDCG", "HR")


def evaluate_cold_items(
    score: Scorer,
    heldout: Heldout,
    catalog: Catalog,
    cold: NDArray[np.int32],
    config: EvaluationConfig,
    key: Key,
    options: EvaluationOptions = EvaluationOptions(),  # noqa: B008 - frozen
) -> dict[str, float]:
    """Measure a scorer on held-out rows of cold items, under the full protocol; other held-out rows are no misses.

    `ColdRecall@20` ranks cold items as users see them, among all unseen items. `ColdAloneRecall@20` ranks cold items
    among themselves: which of the new items suit whom.
    """
    truth, seen = heldout.open()
    known = truth.keep(np.isin(truth.items, cold))
    if not len(known.items):
        raise EvaluationError(
            f"None of the {len(cold)} cold items has a held-out row.", "Raise split.cold_items, or draw another seed."
        )
    whole = config.model_copy(update={"protocol": "full"})
    how = replace(options, lists=False, score_pairs=None)
    among_all = evaluate(score, Heldout(known, seen), catalog, whole, key, how)
    alone = Heldout(_renumber(known, cold), _renumber(seen.keep(np.isin(seen.items, cold)), cold))
    among_cold = evaluate(lambda rows: score(rows)[:, cold], alone, catalog.take(cold), whole, key, how)
    found = {"Cold": among_all, "ColdAlone": among_cold}
    return {
        f"{kind}{name}@{k}": one.overall[f"{name}@{k}"]
        for kind, one in found.items()
        for name in METRICS
        for k in config.k
    }


def _renumber(clients: Clients, cold: NDArray[np.int32]) -> Clients:
    """Return clients with the numbers that their items have among the cold ones."""
    return Clients(
        clients.ids, offsets(clients.sizes), np.searchsorted(cold, clients.items).astype(np.int32), len(cold)
    )
