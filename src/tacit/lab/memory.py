"""What fits into memory, asked before anything is made."""

from __future__ import annotations

from pathlib import Path

from tacit.errors import EngineError

SHARE = 0.9  # of what is free: the rest is for what cannot be foreseen
WORKER_BYTES = 250e6  # of a worker that has loaded its code and holds nothing yet


def free_memory() -> float:
    """Return the bytes that can be had without swapping; infinity where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return float("inf")
    found = next((line for line in lines if line.startswith("MemAvailable:")), None)
    return float("inf") if found is None else 1024.0 * int(found.split()[1])


def refuse_too_large_shards(tables: float, shard: float, n_workers: int, n_shards: int = 0) -> None:
    """Refuse shards that would not fit into the memory of this machine: so many bytes of tables, and of a shard.

    `n_shards`: into how many the clients are cut, where a worker holds one at a time. 0: it holds all of its own, and
    more of them would not be smaller together.
    """
    needed, free = n_workers * (WORKER_BYTES + tables + shard), SHARE * free_memory()
    if needed <= free:
        return
    hint = "Use a machine with more memory, or a cluster (runtime.engine=dask)."
    if n_shards and n_workers * (WORKER_BYTES + tables) < free:
        room = free / n_workers - WORKER_BYTES - tables
        hint = f"Set runtime.shards to {int(n_shards * shard / room) + 1} or more."
    elif not n_shards and WORKER_BYTES + tables + n_workers * shard < free:
        most = int((free - n_workers * shard) / (WORKER_BYTES + tables))
        hint = f"Set runtime.shards to {most} or fewer: each worker has tables of its own."
    raise EngineError(
        f"{n_workers} workers need {needed / 1e9:.1f} GB, {(tables + shard) / 1e9:.1f} GB of it each for tables and a "
        f"shard, but {free / 1e9:.1f} GB are free.",
        hint,
    )
