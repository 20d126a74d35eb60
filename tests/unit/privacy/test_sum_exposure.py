"""Figures of what sums tell go by what was measured, never by more participants than there are."""

from __future__ import annotations

from tacit.privacy.sum_exposure import NAMED, WITHOUT, SumExposure


def test_the_figure_is_that_of_the_next_smaller_sum_that_was_measured() -> None:
    assert [SumExposure.of(n).named for n in (13, 19, 20, 25, 10_000)] == [
        NAMED[13],
        NAMED[13],
        NAMED[20],
        NAMED[20],
        NAMED[max(NAMED)],
    ]
    assert SumExposure.of(min(NAMED) - 1).named == 1.0


def test_sums_of_more_participants_reveal_less_and_always_more_than_sums_without_the_user() -> None:
    figures = [NAMED[n] for n in sorted(NAMED)]
    assert figures == sorted(figures, reverse=True)
    assert min(figures) > WITHOUT
    assert SumExposure.of(20).of_taking_part == NAMED[20] - WITHOUT
