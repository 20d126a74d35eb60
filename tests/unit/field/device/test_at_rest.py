"""The device at rest: what its file shows, what damages it, and what becomes of copies."""

from __future__ import annotations

import json
import resource
import signal
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.small_federation import CATALOG, CHEAP, NAMES, PASSPHRASE, founded, made, request
from tacit.errors import DeviceError
from tacit.field.device import Device, Sharing, file_format, store
from tacit.field.device.history import HistoryEntry
from tacit.field.device.vault import Lock, Vault


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "me" / "device.db"


def everything(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in path.parent.iterdir())


def test_nothing_about_the_user_is_readable_in_the_file(path: Path) -> None:
    with made(path) as device:
        device.share(Sharing(pi=1.0, never_items=("place-0005-fig",), never_categories=("culture",), masked_only=False))
        entry = device.learn(request(founded(), 0))
        content = device.release(entry)
        device.preferences.hide("Pine Park")
        private = device.membership.last_private() if device.membership else None
        while_open = everything(path)
    assert private is not None
    at_rest = everything(path)
    secrets = [word.encode() for name in NAMES for word in name.split()]
    secrets += [str(label).encode() for label in CATALOG.item_ids.labels]
    secrets += [b"culture", b"the small field", b"three small boats", private["p"].tobytes()[:8], content[60:80]]
    for stored in (at_rest, while_open):
        for secret in secrets:
            assert secret not in stored, secret


def test_removed_rows_are_overwritten_and_files_are_for_their_owner_alone(path: Path) -> None:
    with made(path) as device:
        sealed = [row[0] for row in device._store.connection.execute("SELECT sealed FROM history")]
        for item in device.history.list():
            device.history.remove(item.item, CATALOG)
    assert not any(row in everything(path) for row in sealed)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_wrong_passphrase_opens_nothing_and_changes_nothing(path: Path) -> None:
    made(path).close()
    before = path.read_bytes()
    for wrong in ("three small boat", "", PASSPHRASE.upper()):
        with pytest.raises(DeviceError, match="passphrase is wrong"):
            Device.open(path, wrong)
    assert path.read_bytes() == before


@pytest.mark.fuzz
def test_a_hundred_wrong_passphrases_open_nothing_and_the_right_one_still_does(path: Path) -> None:
    made(path).close()
    before = path.read_bytes()
    for guess in range(100):
        with pytest.raises(DeviceError, match="passphrase is wrong"):
            Device.open(path, f"a guess {guess}")
    assert path.read_bytes() == before
    Device.open(path, PASSPHRASE).close()


def test_a_passphrase_can_be_changed(path: Path) -> None:
    with made(path) as device:
        device.change_passphrase("a longer walk", CHEAP)
        with pytest.raises(DeviceError, match="passphrase is empty"):
            device.change_passphrase("", CHEAP)
        with pytest.raises(DeviceError, match=r"of 7 characters is too short.* at least 8"):
            device.change_passphrase(" cuckoo1 ", CHEAP)
    with pytest.raises(DeviceError, match="wrong"):
        Device.open(path, PASSPHRASE)
    with Device.open(path, "a longer walk") as device:
        assert len(device.history) == 4


def test_a_short_passphrase_makes_no_device_but_opens_one_that_was_made_with_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DeviceError, match=r"of 1 character is too short"):
        Device.create(path, "x", cost=CHEAP)
    assert not path.exists()
    monkeypatch.setattr("tacit.field.device.vault.SHORTEST", 1)
    Device.create(path, "x", cost=CHEAP).close()
    monkeypatch.undo()
    with Device.open(path, "x") as device:
        device.change_passphrase("a longer walk", CHEAP)
    Device.open(path, "a longer walk").close()


def test_a_row_opens_only_in_its_place(path: Path) -> None:
    with made(path) as device:
        connection = device._store.connection
        rows = connection.execute("SELECT row, sealed FROM history ORDER BY row").fetchall()
        connection.execute("UPDATE history SET sealed = ? WHERE row = ?", (rows[1][1], rows[0][0]))
        with pytest.raises(DeviceError, match="damaged"):
            device.history.list()


def test_a_vault_of_another_file_does_not_open_the_rows() -> None:
    one, other = Vault.create("a"), Vault.create("a")
    assert one.unseal(one.seal(b"x", "history", 1), "history", 1) == b"x"
    for vault, table, row in ((other, "history", 1), (one, "ledger", 1), (one, "history", 2)):
        with pytest.raises(DeviceError, match="damaged"):
            vault.unseal(one.seal(b"x", "history", 1), table, row)


def test_a_lock_that_asks_for_absurd_memory_is_refused() -> None:
    lock = Vault.create("a").lock(PASSPHRASE, CHEAP).model_dump()
    for cost in ({"log_n": 40}, {"log_n": 20, "r": 16}, {"log_n": 1}):
        with pytest.raises(DeviceError, match="lock"):
            Lock.parse(json.dumps({**lock, "cost": {**lock["cost"], **cost}}))


@pytest.mark.parametrize("at", [0, 20, 70])
def test_a_damaged_head_is_refused_by_name(path: Path, at: int) -> None:
    made(path).close()
    _flip(path, at, 300)
    with pytest.raises(DeviceError, match=r"damaged|not a device's file|newer"):
        Device.open(path, PASSPHRASE)


@pytest.mark.parametrize("table", ["places", "history", "ledger", "marks"])
def test_a_damaged_row_is_refused_by_name(path: Path, table: str) -> None:
    with made(path) as device:
        device.release(device.learn(request(founded(), 0)))
        # keys are opened when they are needed only, so one of the fixed places is named: any draw would be a coin toss
        which = "WHERE name = 'sharing'" if table == "places" else "LIMIT 1"
        (sealed,) = device._store.connection.execute(f"SELECT sealed FROM {table} {which}").fetchone()
    _flip(path, path.read_bytes().index(sealed[:40]) + 20, 1)

    def read_all() -> None:
        with Device.open(path, PASSPHRASE) as device:
            device.readable()
            device.recommend()

    with pytest.raises(DeviceError, match="damaged"):
        read_all()


def _flip(path: Path, at: int, n: int) -> None:
    content = bytearray(path.read_bytes())
    content[at : at + n] = bytes(255 - byte for byte in content[at : at + n])
    path.write_bytes(content)


def test_a_cut_file_a_foreign_file_and_a_missing_one(path: Path, tmp_path: Path) -> None:
    made(path).close()
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(DeviceError):
        Device.open(path, PASSPHRASE).history.list()
    with pytest.raises(DeviceError, match="tacit device init"):
        Device.open(tmp_path / "none.db", PASSPHRASE)
    other = tmp_path / "other.db"
    sqlite3.connect(other).execute("CREATE TABLE notes (x)").connection.close()
    with pytest.raises(DeviceError, match="not a device's file"):
        Device.open(other, PASSPHRASE)


def test_a_newer_file_is_refused_and_left_alone(path: Path) -> None:
    made(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("INSERT INTO versions VALUES (?)", (store.FILE.version + 1,))
    connection.close()
    before = path.read_bytes()
    with pytest.raises(DeviceError, match="newer version"):
        Device.open(path, PASSPHRASE)
    assert path.read_bytes() == before


def test_an_older_file_is_brought_up_to_date(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(path).close()
    more = (*file_format.MIGRATIONS, "CREATE TABLE later (x);")
    monkeypatch.setattr(store, "FILE", replace(store.FILE, migrations=more))
    with Device.open(path, PASSPHRASE) as device:
        assert len(device.history) == 4
        device._store.connection.execute("SELECT * FROM later")
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT max(version) FROM versions").fetchone() == (len(more),)
    connection.close()


def test_a_device_is_never_made_over_another(path: Path) -> None:
    made(path).close()
    with pytest.raises(DeviceError, match="already"):
        Device.create(path, "another boat", cost=CHEAP)
    with Device.open(path, PASSPHRASE) as device:
        assert len(device.history) == 4


def test_a_full_disk_loses_nothing(path: Path) -> None:
    with made(path) as device:
        before, handler = device.history.list(), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 4096, hard))
        try:
            with pytest.raises(DeviceError, match="Free some space"):
                device.history.add([HistoryEntry(f"thing {i}") for i in range(5000)], None)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            signal.signal(signal.SIGXFSZ, handler)
        assert device.history.list() == before
        device.history.add([HistoryEntry("place-0000-kiosk")], CATALOG)
        assert len(device.history) == len(before) + 1


def test_a_readable_copy_says_what_things_are_called(path: Path) -> None:
    with made(path) as device:
        device.learn(request(founded(), 0))
        device.preferences.hide("Hill Hotel")
        device.share(device.sharing.model_copy(update={"never_items": ("place-0010-kite",)}))
        told = device.readable()
        assert all(row["title"] == CATALOG.called(row["item"]) != row["item"] for row in told["history"])
        mentioned = {label for entry in told["ledger"] for label in (*entry["positives"], *entry["negatives"])}
        assert mentioned <= set(told["titles"])
        assert told["titles"]["place-0007-hill"] == "Hill Hotel"
        assert told["titles"]["place-0010-kite"] == "Kite Shop"
        device.leave()
        left = device.readable()
        assert left["titles"] == {}
        assert [row["item"] for row in left["history"]] == [row["item"] for row in told["history"]]


def test_a_copy_is_the_device_and_erasing_leaves_nothing(path: Path, tmp_path: Path) -> None:
    with made(path) as device:
        device.learn(request(founded(), 0))
        device.backup(tmp_path / "copy")
        with pytest.raises(DeviceError, match="exists"):
            device.backup(tmp_path / "copy")
        readable = device.readable()
        device.export_readable(tmp_path / "mine.json")
        device.erase()
    assert not list(path.parent.iterdir())
    with pytest.raises(DeviceError, match="wrong"):
        Device.restore(tmp_path / "copy", path, "x")
    with Device.restore(tmp_path / "copy", path, PASSPHRASE) as device:
        assert readable == json.loads((tmp_path / "mine.json").read_text())
        readable["sharing"]["masked_only"] = True  # a sum may have been joined since
        assert device.readable() == readable
        assert readable["ledger"]
        with pytest.raises(DeviceError, match="already"):
            Device.restore(tmp_path / "copy", path, PASSPHRASE)
