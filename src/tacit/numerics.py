"""Arithmetic that simulation, serving and field share: one BLAS thread, and when a model counts as diverged."""

from __future__ import annotations

from threadpoolctl import threadpool_limits

DIVERGENCE_LIMIT = 1e3  # vectors that rank well stay far below


def one_blas_thread() -> threadpool_limits:
    """Sums inside BLAS depend on how many threads share them; one thread gives the same bits on every machine size."""
    return threadpool_limits(limits=1, user_api="blas")
