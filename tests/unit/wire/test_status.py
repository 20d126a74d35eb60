"""What a coordinator tells devices that look for messages."""

from __future__ import annotations

import pytest

from tacit.wire.status import CoordinatorStatus, describe_duration


def test_a_status_is_read_as_it_was_written() -> None:
    status = CoordinatorStatus("waiting", 5, 13)
    assert CoordinatorStatus.read(status.write()) == status
    assert status.missing == 8
    assert "8 more" in status.describe()
    waiting = CoordinatorStatus("pause", 17, 13, 60, 4, 13)
    assert CoordinatorStatus.read(waiting.write()) == waiting
    assert (waiting.missing, waiting.new_missing) == (0, 9)
    earlier = '{"phase":"pause","here":17,"needed":13,"seconds":60}'
    assert CoordinatorStatus.read(earlier) == CoordinatorStatus("pause", 17, 13, 60)
    most = 10**9
    assert CoordinatorStatus.read(CoordinatorStatus("waiting", *[most] * 5).write()) is not None, "it fits"


@pytest.mark.parametrize(
    "line",
    [
        *("", "{}", "[]", "waiting", '{"phase":"waiting"}', "[" * 150),
        '{"phase":"x","here":1,"needed":1,"seconds":0}',
        '{"phase":"pause","here":-1,"needed":1,"seconds":0}',
        '{"phase":"pause","here":true,"needed":1,"seconds":0}',
        '{"phase":"pause","here":1e3,"needed":1,"seconds":0}',
        '{"phase":["pause"],"here":1,"needed":1,"seconds":0}',
        CoordinatorStatus("pause", 10**9 + 1).write(),
        CoordinatorStatus("pause").write() + " " * 200,
    ],
)
def test_what_is_no_status_is_none(line: str) -> None:
    assert CoordinatorStatus.read(line) is None


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 seconds"), (89, "89 seconds"), (90, "2 minutes"), (21_600, "6 hours"), (2e5, "2 days")],
)
def test_durations_in_words(seconds: float, words: str) -> None:
    assert describe_duration(seconds) == words
