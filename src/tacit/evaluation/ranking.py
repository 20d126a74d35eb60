"""Ranking block by block: where held-out items stand, and the lists."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.errors import EvaluationError
from tacit.evaluation.config import EvaluationConfig
from tacit.evaluation.heldout import HeldoutItems
from tacit.evaluation.metrics import Positions, Values, accuracy_metrics
from tacit.kernels.candidates import count_rivals, draw_candidates
from tacit.kernels.llvm.denormals import flush_denormals
from tacit.kernels.topk import NOT_FOUND, auc_rows, rank_rows
from tacit.numerics import one_blas_thread
from tacit.random import Key
from tacit.types import Array, Floats

Scorer: TypeAlias = Callable[[NDArray[np.int64]], Floats]
PairScorer: TypeAlias = Callable[[NDArray[np.int64], NDArray[np.int32]], Floats]

BLOCK = 128  # users scored at once; fixed, so that results do not depend on the number of threads


def rank_in_blocks(work: Callable[[NDArray[np.int64]], None], rows: NDArray[np.int64], threads: int) -> None:
    """Run `work` on blocks of users in worker threads, one BLAS thread each.

    Even one thread is a worker: all of them treat denormal numbers alike, whatever the caller's thread does.
    """
    blocks = enumerate([rows[start : start + BLOCK] for start in range(0, len(rows), BLOCK)])
    failed: dict[int, Exception] = {}
    stopped = threading.Event()

    def drain() -> None:
        """Take blocks in order until there is none: a task for each would cost more than ranking a small one."""
        while not stopped.is_set():
            with taking:
                number, block = next(blocks, (-1, rows))
            if number < 0:
                return
            try:
                work(block)
            except Exception as error:
                failed[number] = error
                stopped.set()

    taking = threading.Lock()
    with one_blas_thread(), ThreadPoolExecutor(threads, initializer=flush_denormals) as pool:
        try:
            for future in [pool.submit(drain) for _ in range(threads)]:
                future.result()
        finally:
            stopped.set()
    if failed:
        raise failed[min(failed)]  # all blocks before it were taken before it, so that it is always the same


@dataclass(frozen=True)
class TieOrder:
    """The order of tied items in lists: drawn by key, and begun at another place for every user."""

    key: Key
    order: NDArray[np.int64]  # [n] place of each item; of tied items the one with the larger place is listed first
    item_at: NDArray[np.int32]  # [n] its inverse

    @classmethod
    def draw(cls, key: Key, n_items: int) -> TieOrder:
        """Draw the order of a catalogue."""
        item_at = np.argsort(key.bits(np.arange(n_items), 1)[:, 0], kind="stable").astype(np.int32)
        order = np.empty(n_items, np.int64)
        order[item_at] = np.arange(n_items)
        return cls(key, order, item_at)

    def shifts(self, ids: Array) -> NDArray[np.int64]:
        """Return by how many places, around the end, the order is moved on for each user."""
        n = len(self.order)
        drawn = self.key.child("people").uniform(ids, 1)[:, 0]
        return np.minimum((drawn * n).astype(np.int64), max(n - 1, 0))

    def best(self, scores: Floats, user: int, candidates: Array, k: int) -> NDArray[np.int64]:
        """Return the k best of some items for one user, as an evaluation lists them."""
        places = (self.order[candidates] + self.shifts(np.array([user]))[0]) % max(len(self.order), 1)
        keys = -np.asarray(scores, np.float32)[candidates]  # as the evaluation compares them
        best: NDArray[np.int64] = candidates[np.lexsort((-places, keys))[:k]]
        return best


@dataclass(frozen=True)
class EvaluationOptions:
    """How an evaluation is carried out, and what it may leave out; the numbers it has in common do not depend on it.

    `lists=False` leaves out lists and their metrics, and ranks only users with held-out items; then the sampled
    protocol scores its candidates with `score_pairs(rows, items)` if given. `auc=True` adds AUC under the full
    protocol (the sampled one always has it): the share of all unseen items that a held-out item beats. `spread` ranks
    users elsewhere: it gets a request and the positions of its users among all, and answers with what was found.
    """

    threads: int = 1
    score_pairs: PairScorer | None = None
    lists: bool = True
    auc: bool = False
    spread: Callable[[RankingRequest, NDArray[np.int64]], RankedUsers] | None = None


@dataclass(frozen=True)
class RankingRequest:
    """Users to be ranked, and how: all that another process needs beside their scores."""

    data: HeldoutItems
    n_items: int
    config: EvaluationConfig
    key: Key
    lists: bool
    auc: bool

    def of(self, rows: slice) -> RankingRequest:
        """Return the same of some users."""
        return replace(self, data=self.data.cut(rows))

    def rank(self, score: Scorer, score_pairs: PairScorer | None, threads: int) -> RankedUsers:
        """Rank them in this process; scorers take positions among these users."""
        options = EvaluationOptions(threads, score_pairs, self.lists, self.auc)
        ranking = Ranking(self.data, self.n_items, self.config, self.key, score, options)
        rank_in_blocks(ranking.rank, np.arange(len(self.data)) if self.lists else self.data.with_truth, threads)
        return RankedUsers(ranking.top, ranking.is_short, self._measure(ranking))

    def _measure(self, ranking: Ranking) -> dict[str, Values]:
        """Return the metrics of every user with held-out items, from where these stand."""
        kept, config = self.data.with_truth, self.config
        ends = np.append(self.data.truth_ptr[kept], len(self.data.truth))
        found = Positions(ends, ranking.better, ranking.tied)
        values = accuracy_metrics(found, config.k, apart=config.sampled > 0)
        if self.auc or config.sampled:
            values["AUC"] = found.per_user(ranking.auc) / found.sizes
        return values


@dataclass(frozen=True)
class RankedUsers:
    """Lists of users, and the metrics of those with held-out items."""

    top: NDArray[np.int32]  # [users, k]
    is_short: NDArray[np.bool_]  # [users] whether there were fewer candidates than the sampled protocol asks for
    values: dict[str, Values]  # metric -> [users with held-out items]

    @classmethod
    def join(cls, parts: Sequence[RankedUsers]) -> RankedUsers:
        """Put users one after the other."""
        return cls(
            np.concatenate([part.top for part in parts]),
            np.concatenate([part.is_short for part in parts]),
            {name: np.concatenate([part.values[name] for part in parts]) for name in parts[0].values},
        )


class Ranking:
    """Ranks blocks of users; each block writes its own part of the results."""

    def __init__(
        self,
        data: HeldoutItems,
        n_items: int,
        config: EvaluationConfig,
        key: Key,
        score: Scorer,
        options: EvaluationOptions,
    ) -> None:
        self.data, self.n_items, self.n_sampled = data, n_items, config.sampled
        self.score, self.lists, self.wants_auc = score, options.lists, options.auc
        self.score_pairs = None if options.lists else options.score_pairs
        self.ranks_repeats = config.sampled > 0 and config.repeats == "rank"
        self.word = key.child("candidates").word
        self.ties = TieOrder.draw(key.child("ties"), n_items)
        self.shifts = self.ties.shifts(data.ids)
        self.top = np.full((len(data), config.max_k), -1, np.int32)
        self.better: NDArray[np.int64] = np.full(len(data.truth), NOT_FOUND)
        self.tied: NDArray[np.int64] = np.ones(len(data.truth), np.int64)
        self.auc: Values = np.zeros(len(data.truth))
        self.is_short = np.zeros(len(data), np.bool_)

    def rank(self, rows: NDArray[np.int64]) -> None:
        """Rank the users of one block."""
        if self.n_sampled:
            self._sampled(rows)
        else:
            self._full(rows, self.scores(rows), self.data.truth_ptr)

    def scores(self, rows: NDArray[np.int64]) -> Floats:
        """Ask the method and check the shape of its answer.

        One user alone is scored twice, because a matrix times a vector has other bits than a matrix times a matrix.
        What a user is ranked by must not depend on who else is in the block.
        """
        asked = np.repeat(rows, 2) if len(rows) == 1 else rows
        scores = np.ascontiguousarray(self.score(asked), np.float32)[: len(rows)]
        if scores.shape != (len(rows), self.n_items):
            raise EvaluationError(
                f"The scores of {len(rows)} users have the shape {scores.shape}, not {(len(rows), self.n_items)}.",
                "score must return one row per user and one column per item of the catalogue.",
            )
        return scores

    def _full(self, rows: NDArray[np.int64], scores: Floats, truth_ptr: Array) -> None:
        data, bits, ties = self.data, scores.view(np.int32), self.ties
        seen, truth = (data.seen_ptr, data.seen), (truth_ptr, data.truth)
        order = (ties.order, ties.item_at, self.shifts)
        bad = rank_rows(bits, rows, *seen, *truth, *order, self.top, self.better, self.tied)
        if bad >= 0:
            raise _not_finite(data, rows[bad], scores[bad])
        if self.wants_auc and not self.n_sampled:
            auc_rows(bits, rows, data.seen_ptr, data.seen, data.truth_ptr, data.truth, self.auc)

    def _sampled(self, rows: NDArray[np.int64]) -> None:
        data, n = self.data, self.n_sampled
        ptr, items, self.is_short[rows] = draw_candidates(
            self.word, data.ids, rows, data.seen_ptr, data.seen, data.truth_ptr, data.truth, self.n_items, n
        )
        held = np.concatenate([np.arange(data.truth_ptr[u], data.truth_ptr[u + 1]) for u in rows])
        truth = data.truth[held]
        local = np.repeat(np.arange(len(rows)), np.diff(data.truth_ptr)[rows])  # [held] row in the block
        known = truth >= 0
        if not self.ranks_repeats:
            known &= ~data.truth_seen[held]
        n_each = np.diff(ptr)
        own = np.full(len(held), np.nan, np.float32)
        if self.score_pairs is not None:
            asked = np.concatenate([rows[local[known]], rows[np.repeat(local, n_each)]])
            pairs = np.asarray(self.score_pairs(asked, np.concatenate([truth[known], items])), np.float32)
            finite = np.isfinite(pairs)
            if not finite.all():
                raise _not_finite(data, asked[np.argmin(finite)], pairs[~finite])
            own[known], others = pairs[: known.sum()], pairs[known.sum() :]
        else:
            scores = self.scores(rows)
            if self.lists:
                nothing_held_out = np.zeros(len(data) + 1, np.int64)
                self._full(rows, scores, nothing_held_out)
            wrong = np.flatnonzero(~np.isfinite(scores).all(axis=1))
            if len(wrong):
                raise _not_finite(data, rows[wrong[0]], scores[wrong[0]])
            own[known] = scores[local[known], truth[known]]
            others = scores[np.repeat(local, n_each), items]
        better, tied = count_rivals(own, others, ptr)
        beaten = n_each - np.where(known, better + 0.5 * (tied - 1), 0.0)
        self.better[held], self.tied[held] = better, tied
        self.auc[held] = np.where(known, np.where(n_each > 0, beaten / np.maximum(n_each, 1), 0.5), 0.0)


def _not_finite(data: HeldoutItems, row: int, scores: Array) -> EvaluationError:
    seen = scores[~np.isfinite(scores)][0]
    return EvaluationError(
        f"The method gave the score {seen} to an item for user {data.ids[row]} (row {row}); scores must be finite.",
        "It has probably diverged: lower its learning rate.",
    )
