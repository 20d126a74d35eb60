"""A file that is broken: the message names the file, the line, and says in plain words what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tacit.config import Experiment, read_config
from tacit.errors import ConfigError
from tacit.strict_yaml import read_yaml

BROKEN = {
    "tab": ("data:\n\tsource: town\nmethod: ease\n", 2, "indented with a tab"),
    "bracket": ("data: {source: town\nmethod: ease\n", 2, "the '{' of line 1 is not closed"),
    "list": ("evaluation:\n  k: [1, 2}\nmethod: ease\n", 2, "the '[' of line 2 is not closed"),
    "quote": ("seed: 3\nname: 'x\nmethod: ease\n", 2, "a quote that opens here is never closed"),
    "too far in": ("method:\n  name: ease\n   reg: 3\n", 3, "it is indented too far"),
    "between": ("data:\n  source: town\n method: ease\n", 3, "begins at a column at which no line above begins"),
    "no space": ("method:ease\nseed: 3\n", 2, "a space is missing after the ':' above"),
    "two on a line": ("seed: 3\nmethod: name: ease\n", 2, "two options are on one line"),
    "twice": ("method: ease\nseed: 3\nmethod: fpl\n", 3, "'method' occurs twice, first in line 1"),
    "sign": ("method: ease\nname: @home\n", 2, "a value cannot begin with '@'"),
    "alias": ("name: *x\n", 1, "'*x' refers to an anchor that does not exist"),
    "tag": ("name: !!python/object:os.system x\n", 1, "tags are not supported"),
    "second": ("method: ease\n---\nmethod: fpl\n", 2, "a second document begins here"),
    "dash": ("method: ease\nseed: - 3\n", 2, "a list begins on the line of its option"),
    "escape": ('name: "a\\q"\n', 1, "means nothing inside double quotes"),
    "not text": ("method: ease\nname: a\x00b\n", 2, "a control character"),
    "twice merged": ("a: &a {x: 1}\nb:\n  <<: *a\n  <<: *a\n", 4, "'<<' occurs twice, first in line 3"),
    "merges no group": ("b:\n  <<: 3\n", 2, "'<<' merges a group, and its value is not one"),
    "no name": ("? [1, 2]\n: 3\n", 1, "an option's name cannot be a list"),
}
THEIRS = ("token", "scalar", "mapping", "unicode string", "block end", "stream", "constructor")


@pytest.mark.parametrize(("text", "line", "said"), BROKEN.values(), ids=BROKEN)
def test_a_broken_file(text: str, line: int, said: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        read_config(Experiment, file)
    message = str(caught.value)
    assert message.startswith(f"'{file}', line {line}")
    assert said in message
    assert caught.value.hint
    assert "\n" not in message
    assert not any(word in message for word in THEIRS)


def test_a_forgotten_colon_is_noticed_although_it_is_yaml(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("data:\n  source town\nmethod: ease\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"option 'data' takes a group of options.* Did you mean 'source: town'"):
        read_config(Experiment, file)


def test_a_group_may_take_over_another_and_its_own_keys_win() -> None:
    """A merge key is YAML; a key that the other group has as well stands once in each group."""
    text = "base: &base {factors: 8, reg: 0.1}\nmethod:\n  <<: *base\n  reg: 0.2\n"
    assert read_yaml(text, "mine.yaml") == {
        "base": {"factors": 8, "reg": 0.1},
        "method": {"factors": 8, "reg": 0.2},
    }
