"""Every release of a simulation, one by one: who, in which round, which rows, positive or negative, how many bytes."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tacit.errors import ConfigError
from tacit.methods.base import Schedule
from tacit.types import Vocabulary
from tacit.updates import Message

MOST = 50_000_000  # releases
BUFFERED_ROWS = 2**21  # of item tables, before they go to disk


def refuse_too_many(schedule: Schedule) -> None:
    """Refuse, before anything is learnt, a run that would release more often than a file of it is worth."""
    expected = schedule.rounds * schedule.clients_per_round
    if expected > MOST:
        raise ConfigError(
            f"This run makes {expected:,} releases, too many to keep each of them ({MOST:,} at most).",
            "Set runtime.ledger=users, or ask for fewer rounds or clients per round.",
        )


class Events:
    """Releases as they happen, kept in a scratch folder that vanishes with this object."""

    def __init__(self, users: Vocabulary, items: Vocabulary) -> None:
        self._users, self._items = pl.Series(users.labels.tolist()), pl.Series(items.labels.tolist())
        self._scratch = Path(tempfile.mkdtemp(prefix="tacit-events-"))
        weakref.finalize(self, shutil.rmtree, self._scratch, ignore_errors=True)
        self._frames: list[pl.DataFrame] = []
        self._n_buffered, self._n_parts = 0, 0

    def write(self, number: int, message: Message, tables: Sequence[str]) -> None:
        """Note what the senders of one message released in round `number`; `tables` are those with a row per item."""
        n_clients = len(message.clients)
        sent = {True: [_no_items()], False: [_no_items()]}
        for name in tables:
            ptr, ids, _ = message.tables[name]
            owner, marks = np.repeat(np.arange(n_clients), np.diff(ptr)), message.sensitive[name]
            for is_positive, rows in sent.items():
                chosen = marks == is_positive
                rows.append(np.stack([owner[chosen], ids[chosen]]))
        self._frames.append(
            pl.DataFrame(
                {
                    "round": pl.repeat(number, n_clients, dtype=pl.Int64, eager=True),
                    "user": self._users.gather(message.clients),
                    "positives": self._list_labels(np.concatenate(sent[True], axis=1), n_clients),
                    "negatives": self._list_labels(np.concatenate(sent[False], axis=1), n_clients),
                    "bytes": message.release.bytes,
                }
            )
        )
        self._n_buffered += n_clients + int((message.release.positives + message.release.negatives).sum())
        if self._n_buffered > BUFFERED_ROWS:
            self._flush()

    def _list_labels(self, rows: NDArray[np.int64], n_clients: int) -> pl.Series:
        """Return one list of labels per client from (client, item) rows [2, R]."""
        order = np.argsort(rows[0], kind="stable")
        labels = pl.DataFrame({"client": rows[0][order], "item": self._items.gather(rows[1][order])})
        lists = labels.group_by("client", maintain_order=True).agg("item")
        everyone = pl.DataFrame({"client": np.arange(n_clients)}).join(lists, on="client", how="left")
        return everyone.sort("client")["item"].fill_null([])

    def _flush(self) -> None:
        if self._frames:
            path = self._scratch / f"{self._n_parts:06d}.parquet"
            pl.concat(self._frames).write_parquet(path)
            self._n_parts += 1
        self._frames, self._n_buffered = [], 0

    def scan(self) -> pl.LazyFrame:
        """Return all releases so far, in order; read from disk as far as they are needed."""
        self._flush()
        return pl.scan_parquet(sorted(self._scratch.glob("*.parquet")))

    def save(self, path: Path) -> None:
        """Write all releases into one file, without holding them in memory."""
        self.scan().sink_parquet(path, row_group_size=2**16)


def _no_items() -> NDArray[np.int64]:
    return np.zeros((2, 0), np.int64)
