"""What a coordinator calls things steers no terminal, wherever it is shown."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from helpers.commands import run_command
from helpers.small_federation import CHEAP, PASSPHRASE, founded
from tacit.errors import WireError
from tacit.field.device import Device
from tacit.types import Catalog, Labels, Vocabulary
from tacit.wire.federation import Federation
from tacit.wire.messages import read_welcome, write_welcome

EVIL = "\x1b]0;owned\x07Bar\x9b31m \u202egnp.exe\x00"
CLEAN = "]0;ownedBar31m gnp.exe"


def hostile(names: list[str]) -> tuple[Federation, Catalog]:
    labels = Labels(np.arange(4), np.array([0, 1, 1], np.int32), names)
    catalog = Catalog(
        Vocabulary(np.array(["a", f"b{EVIL}", "d"], dtype=object)), [EVIL, "Kiosk\nAurora", "Pier"], labels
    )
    plain = founded(catalog=catalog)
    return Federation.create(plain.id, EVIL, plain.method, dict(plain.options), catalog), catalog


def test_titles_and_names_of_a_welcome_are_stripped_and_its_digests_hold() -> None:
    federation, catalog = hostile([EVIL, "food"])
    found, read = read_welcome(write_welcome(federation, catalog))
    assert found.digest == federation.digest
    assert found.title == CLEAN
    assert read.titles == [CLEAN, "KioskAurora", "Pier"]
    assert read.categories is not None
    assert list(read.categories.names) == [CLEAN, "food"]
    assert read.item_ids.labels.tolist() == ["a", f"b{EVIL}", "d"], "ids are what messages mean: they are not changed"


def test_categories_that_look_alike_are_refused() -> None:
    with pytest.raises(WireError, match="cannot be seen"):
        read_welcome(write_welcome(*hostile(["food", "food\x1b"])))


def test_a_terminal_gets_no_escapes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TACIT_DEVICE", str(tmp_path / "device.db"))
    monkeypatch.setenv("TACIT_PASSPHRASE", PASSPHRASE)
    Device.create(tmp_path / "device.db", PASSPHRASE, cost=CHEAP).close()
    (tmp_path / "welcome").write_bytes(write_welcome(*hostile([EVIL, "food"])))
    for words in (
        ("join", "--without-guarantee", str(tmp_path / "welcome")),
        ("history", "add", "a", f"b{EVIL}"),
        ("history", "list"),
        ("history", "remove", f"c{EVIL}"),
        ("share", "--never", CLEAN),
        ("history", "list", "--json"),
    ):
        _, out, err = run_command(capsys, "device", *words)
        assert not {"\x1b", "\x9b", "\x07", "\u202e", "\x00"} & set(out + err) - {"\u202e"}, words
        if "--json" in words:
            assert json.loads(out)["history"][1]["item"] == f"b{EVIL}"
        else:
            assert "\u202e" not in out + err
