"""Dates of which the day or the month comes first: the column tells, or else the user is asked."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from tacit.data import DataConfig
from tacit.data.clock import DateOrder, to_seconds
from tacit.errors import ConfigError, DataError


@pytest.mark.parametrize(
    ("texts", "dates", "day"),
    [
        (["03/04/2024", "25/04/2024"], "auto", "2024-04-03"),
        (["03/04/2024", "04/25/2024"], "auto", "2024-03-04"),
        (["03/04/2024", "05/04/2024"], "day-first", "2024-04-03"),
        (["03/04/2024", "05/04/2024"], "month-first", "2024-03-04"),
        (["03.04.2024", "05.04.2024"], "auto", "2024-04-03"),
        (["03.04.2024", "05.24.2024"], "auto", "2024-03-04"),
        (["3-4-2024 10:30", "25-4-2024 11:00"], "auto", "2024-04-03"),
    ],
)
def test_dates_that_begin_with_a_day_or_a_month_are_distinguished_by_the_column(
    texts: list[str], dates: DateOrder, day: str
) -> None:
    seconds = to_seconds(pl.Series(texts), lambda row: f"line {row + 1}", dates=dates)
    assert str(np.datetime64(int(seconds[0]), "s"))[:10] == day


@pytest.mark.parametrize("texts", [["03/04/2024", "05/06/2024"], ["25/04/2024", "04/25/2024"]])
def test_dates_that_could_be_either_are_asked_for(texts: list[str]) -> None:
    with pytest.raises(DataError) as raised:
        to_seconds(pl.Series(texts), lambda row: f"line {row + 1}")
    assert "data.dates" in raised.value.hint


@pytest.mark.parametrize("wrong", ["day-first", "month-first"])
def test_an_order_that_a_column_contradicts_is_refused(wrong: DateOrder) -> None:
    with pytest.raises(DataError):
        to_seconds(pl.Series(["25/04/2024", "04/25/2024"]), lambda row: f"line {row + 1}", dates=wrong)


def test_the_order_of_dates_is_an_option_of_own_files_only() -> None:
    with pytest.raises(ConfigError):
        DataConfig.from_options({"source": "town", "dates": "day-first"}, "data")
