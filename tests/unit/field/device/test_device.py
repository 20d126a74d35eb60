"""A device's file and what a person does with it."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from helpers.hostile_sessions import EASY, N_PEOPLE, HostileCoordinator
from helpers.private_session import CARE
from helpers.refusals import refused
from helpers.small_federation import CATALOG, CHEAP, NAMES, PASSPHRASE, first_shared, founded, made, noon, request
from tacit.errors import BadRowsError, ConsentError, DataError, DeviceError, MethodError, WireError
from tacit.field.device import Device, ScryptCost, Sharing
from tacit.field.device.device_state import DeviceStateCode, read_state
from tacit.field.device.history import HistoryEntry
from tacit.field.device.settings import USUAL_PI
from tacit.field.directory_notices import is_noted_revoked
from tacit.protocols.federated import device_round
from tacit.protocols.notices import Notice, NoticeKind, NoticeList
from tacit.protocols.secure_aggregation.two_stage import RoundContext
from tacit.random import Key
from tacit.reasons import ReasonCode
from tacit.types import Model
from tacit.wire.messages import Request, model_in, read_update, write_request, write_welcome
from tacit.wire.status import CoordinatorStatus


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "me" / "device.db"


def everything(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in path.parent.iterdir())


# --- history --------------------------------------------------------------------------------------------------------


def test_items_are_found_by_id_and_title_and_unknown_ones_named(path: Path) -> None:
    with made(path) as device:
        assert (
            device.history.add(
                [HistoryEntry("Hill Hotel"), HistoryEntry("place-0010-kite"), HistoryEntry("hill hotel")], CATALOG
            )
            == 2
        )
        assert device.history.add([HistoryEntry("place-0010-kite", 5)], CATALOG) == 0
        assert HistoryEntry("place-0010-kite", 5) in device.history.list()
        assert device.history.remove("Kite Shop", CATALOG) == "place-0010-kite"
        with pytest.raises(DataError, match="Did you mean 'Hill Hotel'"):
            device.history.add([HistoryEntry("Hil Hotle")], CATALOG)
        with pytest.raises(DataError, match="not in the history"):
            device.history.remove("Kite Shop", CATALOG)
        assert len(device.history) == 5


def test_a_table_is_imported_and_what_is_not_understood_is_reported(path: Path, tmp_path: Path) -> None:
    table = tmp_path / "seen.csv"
    table.write_text(
        "Name;Date;Rating\nHill Hotel;2024-05-01;4\nEel Hose;2024-05-02;5\nMill Museum;2024-05-03;much\n"
        "Bar Benedetta;2024-05-04;\n",
        encoding="utf-8-sig",
    )
    with made(path) as device:
        done = device.history.import_file(table, CATALOG)
        assert (done.added, done.known_already) == (1, 1)
        assert [(line, "Eel House" in why or "rating" in why) for line, _, why in done.not_understood] == [
            (3, True),
            (4, True),
        ]
        assert HistoryEntry("place-0007-hill", 1_714_521_600, 4.0) in device.history.list()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"),
        (b"when,how\n1,2\n", "no column of items"),
        (b"item,when\na,1,2\n", "3 fields"),
        (b'item\n"open\n', "line"),
        (b"item\n\xff\xfe\n", "UTF-8"),
        (b"title,timestamp\nHill Hotel,yesterday\n", "timestamp"),
    ],
)
def test_a_malformed_table_adds_nothing(path: Path, tmp_path: Path, content: bytes, said: str) -> None:
    table = tmp_path / "seen.csv"
    table.write_bytes(content)
    with made(path) as device:
        with pytest.raises(DataError, match=said):
            device.history.import_file(table, CATALOG)
        assert len(device.history) == 4


def test_damaged_rows_are_named_and_nothing_is_added_unless_they_are_to_be_left_out(path: Path, tmp_path: Path) -> None:
    table = tmp_path / "seen.csv"
    table.write_text(
        "title,date\nHill Hotel,2024-13-01\nMill Museum,2024-05-03\nKite Shop,2024-05-04,x\nIris Inn,12\n\n"
        "Eel House,\n",
        encoding="utf-8",
    )
    with made(path) as device:
        before = device.readable()
        with pytest.raises(BadRowsError) as caught:
            device.history.import_file(table, CATALOG)
        assert [line for line, _, _ in caught.value.rows] == [2, 4, 5]
        assert caught.value.good == 2
        assert "line 2: the timestamp '2024-13-01' cannot be read" in str(caught.value)
        assert "like '2024-05-03'" in str(caught.value)
        assert "line 4: 3 fields, but the first line has 2" in str(caught.value)
        assert "--skip-bad" in caught.value.hint
        assert device.readable() == before
        done = device.history.import_file(table, CATALOG, skip_bad=True)
        assert [line for line, _, _ in done.not_understood] == [2, 4, 5]
        assert done.added + done.known_already == 2


# --- a round --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["fpl", "fed-gmf"])
def test_it_learns_what_a_cohort_of_one_learns_in_a_simulation(path: Path, method: str) -> None:
    federation, key = founded(method), Key(7).child("learn")
    with made(path, federation, seed=7, lane=3) as device:
        device.share(Sharing(pi=0.6, coin="row", masked_only=False))
        clients = device.history.clients(3, CATALOG)
        private = federation.built.init(clients, CATALOG, key.child("init")).private
        shared = first_shared(federation)
        shapes = federation.built.shapes(shared)
        way = federation.path(Sharing(pi=0.6, coin="row").stage(3, CATALOG))
        for number in range(3):
            content = device.release(device.learn(request(federation, number, shared)))
            given = device_round(way, Model(shared, private), clients, key, number)
            private = given.private
            read = read_update(federation, number, content, shapes)
            assert given.message is not None
            for name, (_, ids, numbers) in given.message.tables.items():
                order = np.lexsort((*numbers.T[::-1], ids))
                assert np.array_equal(read.tables[name][1], ids[order])
                assert np.array_equal(read.tables[name][2], numbers[order])
            stored = device.membership.last_private() if device.membership else {}
            assert stored is not None
            for name, array in private.items():
                assert np.array_equal(stored[name], array)


def test_by_default_an_item_that_is_kept_back_is_so_in_every_round(path: Path) -> None:
    """Once for each item, by a key of the device: opened again it keeps the same ones back."""
    federation, told = founded(), set[object]()
    made(path, federation, seed=7, lane=3).close()
    for first in (0, 20):
        with Device.open(path, PASSPHRASE, noon) as device:
            assert (device.sharing.pi, device.sharing.coin) == (USUAL_PI, "once")
            device.history.add([HistoryEntry(CATALOG.item_ids[item]) for item in range(12)], CATALOG)
            for number in range(first, first + 20):
                device.release(device.learn(request(federation, number)))
            told |= {item for release in device.ledger.list() for item in release.positives}
            mine, stage = device.history.clients(3, CATALOG).items, device.sharing.stage(3, CATALOG, Key(7))
    kept_back = {CATALOG.item_ids[int(item)] for item in mine[stage.kept_back(3, mine)]}
    assert kept_back
    assert told == {CATALOG.item_ids[int(item)] for item in mine} - kept_back


def test_what_did_not_count_is_undone(path: Path, tmp_path: Path) -> None:
    federation = founded()
    with made(path, seed=7, lane=2) as device, made(tmp_path / "other.db", seed=7, lane=2) as other:
        for number in (0, 1, 2):  # the answer to round 1 comes too late
            counted = 0 if number == 2 else number - 1
            device.release(device.learn(request(federation, number, counted=counted)))
        lost = [other.learn(request(federation, number, counted=0 if number else -1)) for number in (0, 2)]
        assert device.release(3) == other.release(lost[-1])
        device.receive(request(federation, 3, learn=False, counted=2))
        assert device.membership is not None
        private, learnt = device.membership.private(), device.membership.last_private()
        assert private is not None
        assert learnt is not None
        assert np.array_equal(private["p"], learnt["p"])


def test_two_devices_never_draw_alike(tmp_path: Path) -> None:
    sent = []
    for name in ("a", "b"):
        with made(tmp_path / name / "device.db") as device:
            sent.append(device.release(device.learn(request(founded(), 0))))
    assert sent[0] != sent[1], "root keys come from the system's entropy"


def test_a_round_is_answered_once_and_always_alike(path: Path) -> None:
    federation = founded()
    with made(path) as device:
        first = device.learn(request(federation, 4))
        content = device.release(first)
        device.answers.mark_not_sent(first, "no network")
    with Device.open(path, PASSPHRASE, noon) as device:
        device.history.add([HistoryEntry("Hill Hotel")], CATALOG)
        assert device.learn(request(federation, 4)) == first
        assert device.release(first) == content
        device.answers.mark_sent(first)
        (entry,) = device.ledger.list()
        assert (entry.state, entry.attempts, entry.bytes) == ("sent", 2, len(content))
        other = {name: array + 1 for name, array in first_shared(federation).items() if name == "items"}
        with refused(WireError, ReasonCode.ROUND_ANSWERED, round=4, earlier=4):
            device.learn(request(federation, 4, {**first_shared(federation), **other}))
        with refused(WireError, ReasonCode.ROUND_ANSWERED, round=3, earlier=4):
            device.learn(request(federation, 3))
        assert len(device.ledger.list()) == 1
        assert device.learn(request(federation, 5)) == first + 1
        with pytest.raises(DeviceError, match="not the message"):
            device.release(first)


def test_the_ledger_says_what_the_message_holds(path: Path) -> None:
    federation = founded()
    with made(path) as device:
        device.share(Sharing(pi=1.0, masked_only=False))
        entry = device.learn(request(federation, 0))
        content = device.release(entry)
        (release,) = device.ledger.list()
        shapes = {"items": first_shared(federation)["items"].shape}
        ids = read_update(federation, 0, content, shapes).tables["items"][1]
        mentioned = sorted(str(CATALOG.item_ids[int(item)]) for item in ids)
        assert sorted(map(str, release.positives + release.negatives)) == mentioned
        mine = {entry.item for entry in device.history.list()}
        assert set(release.positives) <= mine
        assert not set(release.negatives) & mine
        assert (release.to, release.round, release.masked) == ("the small field (127.0.0.1)", 0, False)
        assert release.when == "2026-03-01T12:00:00+00:00"


def test_the_ledger_cannot_be_changed(path: Path) -> None:
    with made(path) as device:
        for number in range(3):
            device.learn(request(founded(), number))
        connection = device._store.connection
        for verb in ("DELETE FROM ledger", "UPDATE ledger SET sealed = x''", "DELETE FROM marks"):
            device.release(device.learn(request(founded(), 2)))
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                connection.execute(verb)
        connection.execute("DROP TRIGGER ledger_kept")
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute("DELETE FROM ledger WHERE row = 2")
        with pytest.raises(DeviceError, match="ledger as a whole"):
            device.ledger.list()


def test_a_model_of_another_catalogue_version_or_form_is_refused_and_changes_nothing(path: Path) -> None:
    federation = founded()
    shared = first_shared(federation)
    with made(path) as device:
        before = device.readable()
        wrong = [
            request(founded(factors=5), 0),
            request(federation, 0, {**shared, "items": shared["items"][:-1]}),
            request(federation, 0, {**shared, "items": shared["items"].astype(np.float64)}),
            write_request(federation, Request(0, {**shared, "local_steps": np.array(10**9)}, True)),
            write_request(federation, Request(0, {"things": shared["items"]}, True)),
            write_request(federation, Request(0, {}, True)),
            request(federation, 0)[:-1],
            b"",
        ]
        for content in wrong:
            with pytest.raises(WireError):
                device.learn(content)
            with pytest.raises(WireError):
                device.receive(content)
        with refused(WireError, ReasonCode.NOT_A_REQUEST):
            device.learn(request(federation, 0, learn=False))
        assert device.readable() == before
        assert device.suggests_alone, "no model was kept"


def test_before_the_first_model_it_suggests_from_its_own_history(path: Path) -> None:
    """Of the items 1, 2, 5 and 9 three are culture and one is outdoors; hidden and known ones are not suggested."""
    with made(path) as device:
        device.preferences.hide(CATALOG.item_ids[13])
        found = device.recommend(4)
        assert device.suggests_alone
        assert [device.catalog.categories.of(CATALOG.item_ids.place(one.item))[0] for one in found] == ["outdoors"] * 3
        assert found == device.recommend(4)
        for entry in device.history.list():
            device.history.remove(entry.item, CATALOG)
        device.preferences.choose_interests(["food"])
        assert {device.catalog.categories.of(CATALOG.item_ids.place(one.item))[0] for one in device.recommend(4)} == {
            "food"
        }
    plain = replace(CATALOG, categories=None)
    with Device.create(path.parent / "plain.db", PASSPHRASE, cost=CHEAP) as device:
        device.join(write_welcome(founded(catalog=plain), plain), "127.0.0.1", accepts={ReasonCode.NO_GUARANTEE})
        device.history.add([HistoryEntry(plain.item_ids[1])], plain)
        assert not device.suggests_alone
        with pytest.raises(MethodError, match="no model"):
            device.recommend()


@pytest.mark.parametrize("has_categories", [True, False])
def test_before_the_first_model_the_popularity_of_the_catalogue_orders_what_is_suggested(
    path: Path, has_categories: bool
) -> None:
    """Items 4 and 8 are of the one category that the user has; 15 and 14 are the most popular of all."""
    popularity = np.arange(CATALOG.n_items, dtype=np.float64)
    catalog = replace(CATALOG, popularity=popularity, categories=CATALOG.categories if has_categories else None)
    with Device.create(path, PASSPHRASE, cost=CHEAP) as device:
        device.join(write_welcome(founded(catalog=catalog), catalog), "127.0.0.1", accepts={ReasonCode.NO_GUARANTEE})

        def suggested() -> list[int | None]:
            return [CATALOG.item_ids.place(one.item) for one in device.recommend(5)]

        assert device.suggests_alone
        assert suggested() == [15, 14, 13, 12, 11], "without a history"
        device.history.add([HistoryEntry(CATALOG.item_ids[item]) for item in (0, 12)], catalog)
        device.preferences.hide(CATALOG.item_ids[14])
        assert suggested() == ([8, 4, 15, 13, 11] if has_categories else [15, 13, 11, 10, 9])
        device.change(lambda before: before.model_copy(update={"masked_only": False}))
        device.learn(request(founded(catalog=catalog), 0))
        assert not device.suggests_alone, "there is a model"


def test_it_recommends_offline_what_is_neither_known_nor_hidden(path: Path) -> None:
    with made(path) as device:
        device.receive(request(founded(), 9, learn=False))
        titles = [found.title for found in device.recommend(20)]
        assert len(titles) == len(NAMES) - 4
        assert not {"Bar Benedetta", "Cinema Corallo"} & set(titles)
        device.preferences.hide(titles[0])
        assert [found.title for found in device.recommend(3)] == titles[1:4]
        assert device.ledger.list() == []


# --- the user's settings--------------------------------------------------------------------------------------------


def test_pausing_and_leaving_stop_the_next_message(path: Path) -> None:
    federation = founded()
    with made(path) as device, Device.open(path, PASSPHRASE) as page_device:
        entry = device.learn(request(federation, 0))
        page_device.pause()
        for act in (lambda: device.release(entry), lambda: device.learn(request(federation, 1))):
            with refused(ConsentError, ReasonCode.PAUSED):
                act()
        page_device.resume()
        assert device.release(entry)
        entry = device.learn(request(federation, 1))
        page_device.leave()
        for act in (lambda: device.release(entry), lambda: device.learn(request(federation, 2))):
            with refused(ConsentError, ReasonCode.LEFT_FEDERATION):
                act()
        assert [release.state for release in page_device.ledger.list()] == ["releasing", "prepared"]
        page_device.join(write_welcome(founded("fed-gmf"), CATALOG), accepts={ReasonCode.NO_GUARANTEE})
        with refused(ConsentError, ReasonCode.LEFT_FEDERATION):
            device.learn(request(federation, 3))


def test_settings_must_name_what_exists_and_a_member_leaves_before_joining(path: Path) -> None:
    with made(path) as device:
        for wrong in (Sharing(never_items=("place-x",)), Sharing(never_categories=("cultur",))):
            with pytest.raises(Exception, match="no "):
                device.share(wrong)
        assert device.sharing == Sharing(masked_only=False)
        with refused(ConsentError, ReasonCode.ALREADY_A_MEMBER):
            device.join(write_welcome(founded(), CATALOG))
        device.leave()
        with refused(ConsentError, ReasonCode.NOT_A_MEMBER):
            device.recommend()


def test_the_usual_cost_of_a_passphrase_is_what_the_page_says() -> None:
    assert 128 * ScryptCost().r * 2 ** ScryptCost().log_n == 2**27


def test_a_device_that_stays_with_a_batch_that_ended_says_that_its_part_is_done(path: Path) -> None:
    federation = founded()
    with made(path, federation) as device:
        policy = EASY.model_copy(update={"most_cohorts": 1})
        device.change(lambda before: before.model_copy(update={"device_policy": policy}))
        opening = request(federation, 0)
        here = RoundContext(federation.digest.hex(), 0, model_in(opening), bytes(32))
        shapes = federation.built.shapes(first_shared(federation))
        session = HostileCoordinator(federation, device)
        session.hold(0, opening, [here.adding_all(shapes, federation.ring, N_PEOPLE, CARE)])
        device.keep_connection({"address": "127.0.0.1:9", "key": "", "roots": ""})
        device.participation.take_lock()
        device.participation.note_link("connected", status=CoordinatorStatus("pause", 13, 13, 60))
        assert read_state(device).code == DeviceStateCode.BETWEEN
        gone = Notice(NoticeKind.REVOKED, session.peers[0].identity.public)
        assert not is_noted_revoked(device, NoticeList((gone,)))
        assert read_state(device).code == DeviceStateCode.PART_DONE
