"""Splits by time: one moment for all users, rolling windows, sessions; and notes for readers of their figures."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from tacit.errors import ConfigError, DataError
from tacit.types import Interactions

TRAIN, VALIDATION, TEST, UNUSED = np.int8(0), np.int8(1), np.int8(2), np.int8(3)


@dataclass(frozen=True)
class Period:
    """The test period: from a date, or the newest share of all rows; of so many windows, the one that is tested."""

    share: float
    date: str | None
    windows: int
    window: int


def split_at_moment(log: Interactions, period: Period, validation: float, name: str) -> NDArray[np.int8]:
    """Return the part of each row: train before a moment, test from it on, nothing of what comes after the window.

    Rows at the very moment are later, so no training row is as late as a test row.
    """
    times = needed_times(log, name, "global-time")
    end = int(times.max()) + 1
    first = _share_starts(times, period.share) if period.date is None else read_date(period.date)
    if not times.min() < first < end:
        raise DataError(
            f"split.kind=global-time: the test would begin on {show_day(first)}, but the rows of '{name}' are from "
            f"{show_day(int(times.min()))} to {show_day(end - 1)}.",
            "Set split.date to a day between them, or lower split.test.",
        )
    bounds = first + (end - first) * np.arange(period.windows + 1) // period.windows
    start, stop = int(bounds[period.window - 1]), int(bounds[period.window])
    parts = np.full(len(times), UNUSED)
    parts[times < stop] = TEST
    parts[times < start] = TRAIN
    if validation > 0:
        before = times[times < start]
        parts[(times >= _share_starts(before, validation)) & (times < start)] = VALIDATION
    return parts


def split_last_session(log: Interactions, age: NDArray[np.int64], gap: float, validation: bool) -> NDArray[np.int8]:
    """Return the part of each row: a user's last session is the test, the one before it validation.

    A session ends where nothing was done for more than `gap` minutes. A user's first session is never held out. `age`
    is the place of a row among its user's rows, newest first.
    """
    times = needed_times(log, "the data", "last-session")
    order = np.lexsort((age, log.users))
    new_user = np.ones(len(log), bool)
    new_user[1:] = log.users[order[1:]] != log.users[order[:-1]]
    breaks = np.zeros(len(log), np.int64)
    breaks[1:] = (times[order[:-1]] - times[order[1:]] > gap * 60) & ~new_user[1:]
    before = np.cumsum(breaks)
    starts = np.maximum.accumulate(np.where(new_user, np.arange(len(log)), 0))
    session = np.empty(len(log), np.int64)
    session[order] = before - before[starts]  # 0: the last one
    n_sessions = np.zeros(len(log.user_ids), np.int64)
    np.maximum.at(n_sessions, log.users, session + 1)
    held_out = np.minimum(1 + int(validation), n_sessions - 1)[log.users]
    parts = np.full(len(log), TRAIN)
    parts[session < held_out] = VALIDATION
    parts[(session == 0) & (held_out > 0)] = TEST
    return parts


def keep_next(log: Interactions, parts: NDArray[np.int8], age: NDArray[np.int64]) -> NDArray[np.int8]:
    """Return the parts with only the oldest held-out row of each user; those after it are not used."""
    found = parts.copy()
    for part in (VALIDATION, TEST):
        rows = np.flatnonzero(parts == part)
        oldest = np.full(len(log.user_ids), -1, np.int64)
        np.maximum.at(oldest, log.users[rows], age[rows])
        found[rows[age[rows] < oldest[log.users[rows]]]] = UNUSED
    return found


def needed_times(log: Interactions, name: str, kind: str) -> NDArray[np.int64]:
    """Return the times of the rows; a log without them is refused."""
    if log.times is None:
        raise DataError(
            f"split.kind={kind} needs timestamps, but '{name}' has none.",
            "Take split.kind=random, or name the column with data.columns.",
        )
    return log.times


def read_date(text: str) -> int:
    """Return a date or moment (UTC unless it says otherwise) as unix seconds."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"split.date='{text}' is no date.", "Write it as 2000-12-01, or 2000-12-01T18:00.") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


def show_day(seconds: int) -> str:
    """Return the day of a unix time, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d")


def notes_on_time(log: Interactions, parts: NDArray[np.int8], ties: str, together: bool) -> list[str]:
    """Return what the clock says of a split: futures in training, ties that decided. `together`: at one moment."""
    if log.times is None or not (parts == TEST).any():
        return []
    notes, tested = [], parts == TEST
    later = float((log.times[parts == TRAIN] > np.median(log.times[tested])).mean())
    if not together and later >= 0.005:  # below, it would say 0 %
        notes.append(
            f"{later:.0%} of the training rows are later than half of the test rows: training knows other users' "
            "futures, which a deployed system does not; split.kind=global-time has none of that."
        )
    newest_kept = np.full(len(log.user_ids), np.iinfo(np.int64).min)
    np.maximum.at(newest_kept, log.users[~tested], log.times[~tested])
    tied = np.unique(log.users[tested & (log.times == newest_kept[log.users])])
    if not together and len(tied):
        n_tested = len(np.unique(log.users[tested]))
        notes.append(
            f"which rows are held out depends on split.ties={ties} for {len(tied):,} of {n_tested:,} users: they have "
            "rows of the same time that are not held out."
        )
    return notes


def _share_starts(times: NDArray[np.int64], share: float) -> int:
    """Return the moment from which on about this share of the rows lies."""
    n = max(1, int(len(times) * share))
    return int(np.partition(times, len(times) - n)[len(times) - n])
