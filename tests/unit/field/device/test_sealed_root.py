"""Names, counters and versions of all rows are under one root: what was changed behind the device's back is noticed."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from helpers.small_federation import CATALOG, CHEAP, PASSPHRASE, copy_file, founded, made, noon, request
from helpers.stored_device import PLACES, full_device, read_everything
from tacit.errors import DeviceError
from tacit.field.device import Device, ScryptCost, Sharing
from tacit.field.device.history import HistoryEntry
from tacit.field.device.settings import USUAL_PI

FORMER = Path(__file__).parent / "former"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    path = full_device(tmp_path_factory.mktemp("whole") / "device.db")
    return path, read_everything(path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "device.db"


def rows_of(path: Path, question: str, *given: Any) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(question, given).fetchall()


def change(path: Path, *statements: tuple[str, tuple[Any, ...]]) -> None:
    """Change a file as an attacker without the passphrase would."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for (trigger,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {trigger}")
        for statement, given in statements:
            connection.execute(statement, given)


def refused_or_same(path: Path, expected: dict[str, Any]) -> str:
    """Say whether a changed file is refused, or reads as before; anything else fails the test by what it raises."""
    try:
        found = read_everything(path)
    except DeviceError:
        return "refused"
    return "same" if found == expected else "silently wrong"


def flip(content: bytes, at: int, bit: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]


def check_flips(whole: tuple[Path, dict[str, Any]], path: Path, n: int, seed: int) -> None:
    content, draw = whole[0].read_bytes(), random.Random(seed)
    copy_file(whole[0], path)
    seen = {"refused": 0, "same": 0, "silently wrong": 0}
    for _ in range(n):
        at, bit = draw.randrange(len(content)), draw.randrange(8)
        path.write_bytes(flip(content, at, bit))
        Path(f"{path}-journal").unlink(missing_ok=True)
        seen[refused_or_same(path, whole[1])] += 1
    assert seen["silently wrong"] == 0, seen
    assert min(seen["refused"], seen["same"]) > n / 20, seen


@pytest.mark.slow
def test_a_flipped_bit_anywhere_is_refused_or_harmless(whole: tuple[Path, dict[str, Any]], path: Path) -> None:
    check_flips(whole, path, 150, 1)


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", range(10))
def test_four_thousand_flipped_bits(whole: tuple[Path, dict[str, Any]], path: Path, seed: int) -> None:
    check_flips(whole, path, 400, 100 + seed)


def stored_names(path: Path) -> list[str]:
    return [name for (name,) in rows_of(path, "SELECT name FROM places ORDER BY name")]


def test_every_place_of_the_full_device_is_read_by_these_tests(whole: tuple[Path, dict[str, Any]]) -> None:
    assert set(stored_names(whole[0])) <= set(PLACES)
    assert {"prepared", "outbox", "masked", "measured"} & set(stored_names(whole[0]))


def test_a_bit_of_a_name_is_noticed(whole: tuple[Path, dict[str, Any]], path: Path) -> None:
    for name in stored_names(whole[0]):
        for bit in (0, 3):
            other = flip(name.encode(), len(name) // 2, bit).decode()
            copy_file(whole[0], path)
            change(path, ("UPDATE places SET name = ? WHERE name = ?", (other, name)))
            with pytest.raises(DeviceError):
                Device.open(path, PASSPHRASE)


def test_a_missing_row_is_noticed(whole: tuple[Path, dict[str, Any]], path: Path) -> None:
    removals = [("DELETE FROM places WHERE name = ?", (name,)) for name in stored_names(whole[0])]
    for table in ("history", "ledger", "marks", "turns"):
        for (row,) in rows_of(whole[0], f"SELECT row FROM {table}"):
            removals.append((f"DELETE FROM {table} WHERE row = ?", (row,)))
    assert len(removals) > 20
    for removal in removals:
        copy_file(whole[0], path)
        change(path, removal)
        with pytest.raises(DeviceError):
            read_everything(path)


def test_a_changed_number_of_a_row_is_noticed(whole: tuple[Path, dict[str, Any]], path: Path) -> None:
    for table in ("history", "ledger", "marks", "turns"):
        for (row,) in rows_of(whole[0], f"SELECT row FROM {table}"):
            copy_file(whole[0], path)
            change(path, (f"UPDATE {table} SET row = 77 WHERE row = ?", (row,)))
            with pytest.raises(DeviceError):
                read_everything(path)


def narrow(device: Device) -> None:
    device.share(Sharing(pi=0.1, never_items=("place-0005-fig",), masked_only=True, paused=True))


def renew(device: Device) -> None:
    device.history.remove("place-0005-fig", CATALOG)


def mark(device: Device) -> None:
    device.answers.mark_sent(1)


CHANGES: dict[str, tuple[str, Callable[[Device], Any]]] = {
    "settings": ("places", narrow),
    "a removed item": ("history", renew),
    "a mark": ("marks", mark),
    "an entry": ("ledger", lambda device: device.learn(request(founded(), 1))),
    "the root": ("root", narrow),
    "the passphrase": ("facts", lambda device: device.change_passphrase("a longer walk", CHEAP)),
}


@pytest.mark.parametrize("what", CHANGES)
def test_an_old_row_that_is_put_back_is_noticed(path: Path, what: str) -> None:
    table, act = CHANGES[what]
    with made(path) as device:
        device.release(device.learn(request(founded(), 0)))
        before = {row[0]: row for row in rows_of(path, f"SELECT * FROM {table}")}
        act(device)
    after = {row[0]: row for row in rows_of(path, f"SELECT * FROM {table}")}
    key = rows_of(path, f"SELECT name FROM pragma_table_info('{table}') WHERE pk")[0][0]
    for name in before.keys() | after.keys():
        if before.get(name) == after.get(name):
            continue
        copy = path.with_name("copy.db")
        shutil.copy(path, copy)
        old = before.get(name)
        holes = ", ".join("?" * len(old or ()))
        put_back = [] if old is None else [(f"INSERT INTO {table} VALUES ({holes})", old)]
        change(copy, (f"DELETE FROM {table} WHERE {key} = ?", (name,)), *put_back)
        for passphrase in (PASSPHRASE, "a longer walk"):
            with pytest.raises(DeviceError), Device.open(copy, passphrase, noon) as device:
                device.readable()


def rows_in_transaction(device: Device) -> Any:
    return device._store.connection.execute("SELECT sealed FROM places WHERE name = 'sharing'").fetchone()


def test_a_row_that_was_never_committed_is_not_accepted(path: Path) -> None:
    with made(path) as device:
        taken: list[Any] = []

        def take_back() -> None:
            with device._store.transaction():
                device._store.put("sharing", Sharing(pi=1.0).model_dump_json().encode())
                taken.extend(rows_in_transaction(device))
                raise RuntimeError

        with pytest.raises(RuntimeError):
            take_back()
        assert device.sharing.pi == USUAL_PI
    change(path, ("UPDATE places SET sealed = ? WHERE name = 'sharing'", (taken[0],)))
    with pytest.raises(DeviceError), Device.open(path, PASSPHRASE) as device:
        assert device.sharing


def test_programs_that_share_a_file_see_what_the_other_wrote(path: Path) -> None:
    made(path).close()
    with Device.open(path, PASSPHRASE, noon) as one, Device.open(path, PASSPHRASE, noon) as other:
        for item in (0, 3, 4, 6):
            one.history.add([HistoryEntry(CATALOG.item_ids[item])], CATALOG)
            other.preferences.hide(NAMED := CATALOG.item_ids[item + 1])
            assert len(other.history) == len(one.history)
            assert NAMED in one.preferences.hidden


# --- files of before --------------------------------------------------------------------------------------------------


def test_a_file_of_the_former_format_opens_with_all_that_was_in_it(path: Path) -> None:
    shutil.copy(FORMER / "format-2.db", path)
    expected = json.loads((FORMER / "format-2.json").read_text())
    settings = Sharing.model_validate(expected["readable"]["sharing"])
    expected["readable"]["sharing"] = settings.model_dump(mode="json")  # options may have new names, not new values
    for term in ("privacy", "authority", "version", "trial"):  # there was no guarantee, no amendment and no trial
        expected["readable"]["federation"][term] = None
    expected["readable"]["budgets"] = []
    expected["readable"]["interests"] = {"items": [], "categories": []}
    for entry in expected["readable"]["ledger"]:  # there were no peers
        entry["whole"] = False
    expected["readable"]["ledger"][1]["state"] = "may have left"  # it was called not sent, which cannot be known
    with Device.open(path, PASSPHRASE, noon) as device:
        assert device.readable() == expected["readable"]
        assert device.identity.hex() == expected["identity"]
        assert [str(found.item) for found in device.recommend(5)] == expected["recommend"]
    with Device.open(path, PASSPHRASE, noon) as device:  # and again, as it is now
        assert device.readable() == expected["readable"]
        turn, answer = ((FORMER / f"format-2-{name}.bin").read_bytes() for name in ("turn", "answer"))
        assert device.answers.step_session(turn)[0] == answer  # the sum that it was in goes on


def test_a_damaged_file_of_the_former_format_is_left_as_it_is(path: Path) -> None:
    shutil.copy(FORMER / "format-2.db", path)
    change(path, ("UPDATE marks SET entry = 9 WHERE row = 1", ()))
    before = path.read_bytes()
    with pytest.raises(DeviceError):
        Device.open(path, PASSPHRASE, noon)
    assert path.read_bytes() == before


# --- lengths, costs, erasure ------------------------------------------------------------------------------------------


def test_lengths_of_rows_do_not_reveal_items_or_states(path: Path) -> None:
    with made(path) as device:
        for number in range(3):
            entry = device.learn(request(founded(), number))
            device.release(entry)
            if number:
                device.answers.mark_sent(entry)
            else:
                device.answers.mark_not_sent(entry, "ReadTimeout")
        device.history.add([HistoryEntry("x"), HistoryEntry("a much longer name of an item, by far", 5, 4.5)], None)
    for table in ("history", "marks", "ledger"):
        lengths = {length for (length,) in rows_of(path, f"SELECT length(sealed) FROM {table}")}
        assert len(lengths) == 1, table


def test_new_files_cost_at_least_what_owasp_asks_for() -> None:
    cost = ScryptCost()
    assert (2**cost.log_n, cost.r, cost.p) >= (2**17, 8, 1)


@pytest.mark.parametrize("act", ["erase", "passphrase"])
def test_the_former_wrapped_key_is_overwritten_in_the_journal_too(path: Path, act: str) -> None:
    with made(path) as device:
        (lock,) = rows_of(path, "SELECT value FROM facts WHERE name = 'lock'")[0]
        wrapped, held = json.loads(lock)["wrapped"].encode(), list[Any]()
        journal = Path(f"{path}-journal")

        def hold(statement: str) -> None:
            if statement == "COMMIT":
                held.append(journal.open("rb"))

        device._store.connection.set_trace_callback(hold)
        if act == "erase":
            device.erase()
        else:
            device.change_passphrase("a longer walk", CHEAP)
            assert wrapped not in path.read_bytes()
    assert held
    for file in held:
        with file:
            assert wrapped not in file.read()
    assert not journal.exists()


def test_after_a_change_of_passphrase_other_programs_go_on(path: Path) -> None:
    with made(path) as device, Device.open(path, PASSPHRASE, noon) as other:
        device.change_passphrase("a longer walk", CHEAP)
        other.pause()
        assert device.sharing.paused
