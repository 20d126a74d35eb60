"""A refusal of an option says in our own words which option it is, which value it has, and what it takes."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from tacit.config import Comparison, Experiment
from tacit.data import load
from tacit.errors import ConfigError
from tacit.field.coordinator.config import RoundRules
from tacit.methods.base import methods
from tacit.types import Config

WRONG = ["Foo@10", -1, 1.5, [], {}, [1, "a"], None, {"foo": 1}, 10**12, float("nan"), [{"name": "foo"}]]
THEIRS = ("Input should", "valid ", "instance of", "unable to", "Value error", "tuple", "dictionary", "Config", ".bool")


def sections(kind: Any) -> list[type[BaseModel]]:
    """The groups of options that an option may hold."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return [kind] if kind.model_fields else []
    return [section for part in typing.get_args(kind) for section in sections(part)]


def paths(options: type[BaseModel], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every option, and those inside it."""
    for name, field in options.model_fields.items():
        yield (*above, name)
        for section in sections(field.annotation):
            yield from paths(section, (*above, name))


def refused(options: type[Config], base: dict[str, Any], path: tuple[str, ...], value: Any) -> str | None:
    """What is said of one wrong value; none where it is not wrong."""
    for part in reversed(path):
        value = {part: value}
    try:
        options.from_options({**base, **value}, "here")
    except ConfigError as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    ("options", "base"),
    [(Experiment, {"method": "ease"}), (Comparison, {"methods": ["ease"]}), (RoundRules, {})],
    ids=["run", "compare", "serve"],
)
def test_no_wrong_value_is_answered_in_the_words_of_the_library(options: type[Config], base: dict[str, Any]) -> None:
    said = {}
    for path in paths(options):
        answers = [answer for value in WRONG if (answer := refused(options, base, path, value))]
        assert answers, path
        said.update({(path, answer): answer for answer in answers})
    theirs = {place: answer for place, answer in said.items() if any(word in answer for word in THEIRS)}
    assert not theirs
    assert all(answer.endswith((".", "?")) and "\n" not in answer for answer in said.values())


@pytest.mark.parametrize("name", sorted(methods()))
def test_nor_a_wrong_value_of_a_method(name: str) -> None:
    config = methods()[name].config
    answers = [refused(config, {}, path, value) for path in paths(config) for value in WRONG]
    assert not [answer for answer in answers if answer and any(word in answer for word in THEIRS)]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"runtime": {"rounds": {"criteria": "size"}}},
            "here: option 'runtime.rounds.criteria' takes a group of options, not 'size'. "
            "Set runtime.rounds.criteria.order: names of criteria, the most important first.",
        ),
        (
            {"runtime": {"rounds": {"criteria": {"order": "size"}}}},
            "here: option 'runtime.rounds.criteria.order' takes a list of names, not 'size'. Write [size].",
        ),
        (
            {"evaluation": {"primary": "Foo@10"}},
            "here, section 'evaluation': there is no primary metric 'Foo@10'. Did you mean 'F1@10'?",
        ),
        (
            {"seed": "one"},
            "here: option 'seed' takes a whole number, not 'one'. Meaning: the seed of all random draws",
        ),
        ({"split": {"kind": "Temporal"}}, "not 'Temporal'. Did you mean 'temporal'?"),
        ({"split": {"test": 1.5}}, "option 'split.test' must be below 1, not 1.5."),
        ({"split": {"validation": "much"}}, "option 'split.validation' takes true or false or a number, not 'much'."),
        ({"name": "my run"}, "option 'name' cannot be 'my run'."),
        ({"evaluation": {"k": True}}, "option 'evaluation.k' takes a list of whole numbers, not true."),
        ({"privacy": [{"name": "disclose", "pii": 1}]}, "here has no option 'privacy.0.pii'. Did you mean 'pi'?"),
        ({"privacy": {"bound": 1}}, "Write privacy=[{...}]; then privacy.0.bound is an option of its first entry."),
        ({"runtime": {"rounds": {"robust": {"rule": "medan"}}}}, "Did you mean 'median'?"),
    ],
    ids=lambda value: "" if isinstance(value, str) else str(value),
)
def test_what_is_said(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Experiment.from_options({"method": "ease", **given}, "here")
    assert said in str(caught.value)


def test_where_a_value_fits_no_kind_of_an_option_the_innermost_problem_is_reported() -> None:
    with pytest.raises(ConfigError, match=r"has no option 'secure\.fooo'"):
        RoundRules.from_options({"secure": {"fooo": 1}}, "here")
    with pytest.raises(
        ConfigError, match=r"'secure' takes a group of options or 'auto', not 'aut'\. Did you mean 'auto'"
    ):
        RoundRules.from_options({"secure": "aut"}, "here")


def test_options_given_in_python_are_answered_alike() -> None:
    with pytest.raises(ConfigError, match=r"data: option 'min_rating' takes a number, not 'high'\."):
        load("town", min_rating="high")
