"""Options under their former names: read for one version, with one notice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import pytest

from tacit import types
from tacit.errors import ConfigError
from tacit.types import Config


class Inner(Config):
    former_names: ClassVar[Mapping[str, str]] = {"section.before": "section.now"}
    now: int = 1


class Outer(Config):
    section: Inner = Inner()


@pytest.fixture(autouse=True)
def nothing_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(types, "_NOTICED", set())


def test_a_former_name_is_read_with_one_notice(capsys: pytest.CaptureFixture[str]) -> None:
    assert Outer.from_options({"section": {"before": 5}}, "here").section == Inner(now=5)
    assert Outer.from_options({"section": {"before": 6}}, "here").section.now == 6
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == ["section.before is now section.now; the old name goes with 0.3"]


def test_an_override_under_the_former_name_wins_over_the_default() -> None:
    assert Outer.from_options({"section": {"now": 1, "before": 7}}, "here").section.now == 7


def test_the_new_name_needs_no_notice_and_is_what_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert Outer.from_options({"section": {"now": 2}}, "here").model_dump() == {"section": {"now": 2}}
    assert capsys.readouterr().err == ""


def test_a_name_that_never_was_is_still_refused() -> None:
    with pytest.raises(ConfigError):
        Outer.from_options({"section": {"other": 1}}, "here")
