"""Arithmetic that simulation, serving and field share: BLAS in one thread, products of long tables in blocks of rows.

A product is cut at the same rows however many threads share it, so its bits depend on neither.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

DIVERGENCE_LIMIT = 1e3  # vectors that rank well stay far below
BLOCK_ROWS = 2**13  # of a long table: several blocks for each thread, and a block outweighs handing it over
Result = TypeVar("Result")
_THREADS = ContextVar("threads of the server's step", default=1)


def one_blas_thread() -> AbstractContextManager[object]:
    """Sums inside BLAS depend on how many threads share them; one thread gives the same bits on every machine size."""
    limits: AbstractContextManager[object] = _controller(len(sys.modules)).limit(limits=1, user_api="blas")
    return limits


@lru_cache(maxsize=1)
def _controller(n_modules: int) -> ThreadpoolController:
    """Find the libraries that are loaded, anew once a module was imported: looking takes a millisecond."""
    return ThreadpoolController()


@contextmanager
def server_threads(n: int) -> Iterator[None]:
    """Let the server's step use so many threads: no client learns meanwhile."""
    token = _THREADS.set(n)
    try:
        yield
    finally:
        _THREADS.reset(token)


def map_blocks(work: Callable[[slice], Result], n_rows: int) -> list[Result]:
    """Return what `work` finds for each block of rows, in order."""
    blocks = [slice(start, min(start + BLOCK_ROWS, n_rows)) for start in range(0, n_rows, BLOCK_ROWS)]
    n_threads = min(_THREADS.get(), len(blocks))
    if n_threads < 2:
        return [work(block) for block in blocks]
    with ThreadPoolExecutor(n_threads) as pool:
        return list(pool.map(work, blocks))


def inner_product(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return left' right of two long tables: the blocks' products, added in order."""
    if not len(left):
        return np.zeros((left.shape[1], right.shape[1]))
    found, *others = map_blocks(lambda rows: left[rows].T @ right[rows], len(left))
    for product in others:
        found += product
    return found


def multiply_table(table: NDArray[np.float64], matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a long table times a matrix."""
    found = np.empty((len(table), matrix.shape[1]))
    map_blocks(lambda rows: np.matmul(table[rows], matrix, out=found[rows]), len(table))
    return found
