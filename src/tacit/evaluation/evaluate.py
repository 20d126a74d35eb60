"""evaluate(): rank, place the held-out items, measure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tacit.errors import EvaluationError
from tacit.evaluation.config import EvaluationConfig
from tacit.evaluation.heldout import HeldoutItems, open_heldout, sample_users, select_heldout
from tacit.evaluation.population import measure_lists
from tacit.evaluation.ranking import EvaluationOptions, RankedUsers, RankingRequest, Scorer
from tacit.evaluation.result import Evaluation
from tacit.heldout import Heldout
from tacit.random import Key
from tacit.types import Catalog

SAMPLE = Key(0).child("evaluated users")


def evaluate(
    score: Scorer,
    heldout: Heldout,
    catalog: Catalog,
    config: EvaluationConfig,
    key: Key,
    options: EvaluationOptions = EvaluationOptions(),  # noqa: B008 - frozen
) -> Evaluation:
    """Measure a scorer on what was held out, one value per user first.

    `score(positions)` returns the scores [len(positions), n_items] of the users at these positions of `heldout`. It is
    called for up to 128 users at a time, from several threads if `options.threads` is above 1. `key` fixes the
    candidates of the sampled protocol and the order of tied items in the lists: give the same one to all methods
    compared.

    Full protocol: candidates are all items the user has not seen. Sampled: each held-out item is ranked against its own
    N items drawn from those neither seen nor held out. Every metric is computed for each held-out item alone and
    averaged over the user's items. With `config.users`, only so many users are evaluated, the same whatever the key:
    methods and seeds are then compared user by user.
    """
    threads, lists = options.threads, options.lists
    if threads < 1:
        raise EvaluationError(f"An evaluation needs at least one thread, not {threads}.")
    chosen: NDArray[np.int64] | None = None
    if config.users and config.users < len(heldout):
        chosen = sample_users(heldout, config.users, SAMPLE)
        heldout, score, options = _narrow(heldout, chosen, score, options)
    data = open_heldout(heldout, catalog)
    request, kept = RankingRequest(data, catalog.n_items, config, key, lists, options.auc), data.with_truth
    if options.spread is None:
        ranking = request.rank(score, options.score_pairs, threads)
    else:
        ranking = options.spread(request, np.arange(len(data)) if chosen is None else chosen)
    values = ranking.values
    whole = measure_lists(ranking.top, data, catalog, config.k) if lists else None
    return Evaluation(
        protocol=config.protocol,
        k=config.k,
        users=data.ids[kept],
        rows=kept if chosen is None else chosen[kept],
        values=values,
        overall={name: float(value.mean()) for name, value in values.items()} | (whole.metrics if whole else {}),
        top=ranking.top if lists else None,
        recommended=whole.recommended if whole else {},
        bias=whole.bias if whole else {},
        notes=(*_notes(data, ranking, config), *(whole.notes if whole else ()), *_note_sample(chosen)),
    )


def _narrow(
    heldout: Heldout, chosen: NDArray[np.int64], score: Scorer, options: EvaluationOptions
) -> tuple[Heldout, Scorer, EvaluationOptions]:
    """Return what was held out from some users, and scorers that take positions among these."""
    pairs = options.score_pairs
    narrow = None if pairs is None else lambda rows, items: pairs(chosen[rows], items)
    return (
        select_heldout(heldout, chosen),
        lambda positions: score(chosen[positions]),
        replace(options, score_pairs=narrow),
    )


def _note_sample(chosen: NDArray[np.int64] | None) -> list[str]:
    if chosen is None:
        return []
    return [f"{len(chosen)} users, drawn at random, were evaluated; coverage and bias are of their lists alone"]


def _notes(data: HeldoutItems, ranking: RankedUsers, config: EvaluationConfig) -> Iterator[str]:
    """Say what happened to held-out items that could not be ranked as the protocol has it."""
    cold = int(np.count_nonzero(data.truth < 0))
    if cold:
        yield f"{cold} held-out items are not in the catalogue: they count as never found"
    short = int(np.count_nonzero(ranking.is_short[data.with_truth]))
    if short:
        yield f"{short} users had fewer than {config.sampled} unseen items: they were ranked against all of them"
    again = int(np.count_nonzero(data.truth_seen))
    if again and config.sampled and config.repeats == "rank":
        yield f"{again} held-out items are in the user's history too, and were ranked all the same: a leak"
    elif again:
        yield f"{again} held-out items are in the user's history too: they are no candidates and never found"
