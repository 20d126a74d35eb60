"""What a coordinator holds for devices: a look costs the same however much waits for others."""

from __future__ import annotations

import os
import secrets
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord
from flwr.proto.message_pb2 import ObjectTree
from flwr.server.superlink.linkstate.in_memory_linkstate import InMemoryLinkState
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.supercore.object_store import in_memory_object_store

from helpers.waiting import wait_for_thread
from tacit.field.carriers.body_limit import PARTS_BYTES
from tacit.field.carriers.flower_messages import FIELD, FlowerMessage, unwrap_message, wrap_reply, wrap_request
from tacit.field.carriers.link_state import SteadyLinkState
from tacit.field.coordinator import CoordinatorJournal
from tacit.types import Catalog, Vocabulary
from tacit.wire.federation import Federation


def test_devices_find_what_flower_would_find_whatever_came_and_went() -> None:
    state, rng = SteadyLinkState(), np.random.default_rng(5)
    run = state.start_run()
    nodes = [state.add_node(secrets.token_bytes(97)) for _ in range(5)]
    assert all(state.activate_node(node, 60.0) for node in nodes)
    posted: list[str] = []
    fetched = 0
    for step in range(300):
        node = nodes[rng.integers(5)]
        what = rng.random()
        if what < 0.5:
            wrapped = wrap_request(bytes([step % 7]), node, run)
            assert state.post(wrapped, run)
            posted.append(wrapped.id)
        elif what < 0.7 and posted:
            state.take_back(posted.pop(rng.integers(len(posted))))
        else:
            limit = [None, 1, 2][rng.integers(3)]
            flowers = [message.metadata.message_id for message in _peek(state, node, limit)]
            found = [message.metadata.message_id for message in state.get_message_ins(node, limit)]
            assert found == flowers
            fetched += len(found)
            assert not set(found) & {m.metadata.message_id for m in state.get_message_ins(node, None)}
    assert fetched > 30
    state.take_back(*posted)
    assert not state.message_ins_store
    assert not state._names_of, "nothing is kept of messages that are gone"


def _peek(state: SteadyLinkState, node: int, limit: int | None) -> list[object]:
    """Return what Flower's own search finds, and put it back as it was."""
    found: list[object] = InMemoryLinkState.get_message_ins(state, node, limit)
    for message in found:
        message.metadata.delivered_at = ""  # type: ignore[attr-defined]
    return found


def _whole(state: SteadyLinkState, name: str) -> bool:
    """Say whether all parts of a message are here."""
    tree = state.object_store.get_object_tree(name)
    return all(state.object_store.get(node.object_id) for node in iterate_object_tree(tree))


def test_a_device_that_polls_while_a_message_is_posted_finds_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    state = SteadyLinkState()
    run, node = state.start_run(), state.add_node(secrets.token_bytes(97))
    assert state.activate_node(node, 60.0)
    found: list[tuple[str, bool]] = []
    looked, plain = threading.Event(), state.store_object

    def look() -> None:
        names = [message.metadata.message_id for message in state.get_message_ins(node, None)]
        found.extend((name, _whole(state, name)) for name in names)
        looked.set()

    looking = threading.Thread(target=look, daemon=True)

    def store_late(*about: object) -> bool:
        if not looking.is_alive() and not looked.is_set():
            looking.start()
            looked.wait(0.2)  # a look that need not wait for the parts is over by then
        return bool(plain(*about))

    monkeypatch.setattr(state, "store_object", store_late)
    wrapped = wrap_request(b"model", node, run)
    assert state.post(wrapped, run)
    wait_for_thread(looking)
    assert found == [(wrapped.id, True)]


def asked(state: SteadyLinkState, most_bytes: int = 2**17) -> tuple[int, int, Any]:
    """A run, a node, and a message that the coordinator has sent to it."""
    run, node = state.start_run(), state.add_node(secrets.token_bytes(97))
    assert state.activate_node(node, 60.0)
    assert state.post(wrap_request(b"model", node, run), run, most_bytes)
    return run, node, state.get_message_ins(node, None)[0]


def push(state: SteadyLinkState, run: int, message: FlowerMessage, tree: Any = None) -> tuple[list[str], str]:
    """Push the head of a message as a device does; return which parts are asked for, and the session."""
    session = state.start_session(run)
    return state.store_message_and_object_tree(message.head, tree or message.tree, session)[1], session


def send(state: SteadyLinkState, run: int, message: FlowerMessage) -> bool:
    names, session = push(state, run, message)
    return bool(names) and all(state.store_object(run, session, name, message.objects[name]) for name in names)


def kept(state: SteadyLinkState) -> tuple[int, ...]:
    messages = len(state.message_ins_store), len(state.message_res_store), len(state._object_push_sessions)
    noted = state._came, state._most_bytes, state._most_from, state._asked_by, state._overlong
    return *messages, len(state.object_store.store), *map(len, noted)


EMPTY = (0,) * 9


def test_a_device_stores_answers_and_nothing_else() -> None:
    """Whatever else a member sends would stay for ever."""
    state = SteadyLinkState()
    run, node, message = asked(state)
    before = kept(state)
    for _ in range(3):
        assert not send(state, run, wrap_request(b"to itself", node, run))
    assert kept(state) == before
    assert send(state, run, wrap_reply(b"answer", message))
    before = kept(state)
    for at in range(3):
        assert not send(state, run, wrap_reply(b"another answer %d" % at, message))
    assert kept(state) == before
    state.take_back(message.metadata.message_id)
    assert kept(state) == EMPTY
    assert not send(state, run, wrap_reply(b"too late", message))
    assert kept(state) == EMPTY, "an answer that comes too late leaves nothing behind"


def test_a_tree_whose_parts_name_the_same_parts_again_and_again_is_refused() -> None:
    """Flower would walk 2^40 parts, in the thread that holds rounds."""
    state = SteadyLinkState()
    run, _, message = asked(state)
    names = [f"{at:064x}" for at in range(41)]
    levels = [ObjectTree(object_id=one, children=[ObjectTree(object_id=below)] * 2) for below, one in pairwise(names)]
    answer, before = wrap_reply(b"answer", message), kept(state)
    assert push(state, run, answer, ObjectTree(object_id=answer.id, children=levels))[0] == []
    assert kept(state) == before
    assert push(state, run, answer, ObjectTree(object_id="no name"))[0] == []


@pytest.mark.parametrize("most_bytes", [200, 2**17])
def test_an_answer_may_not_be_larger_than_an_honest_one(most_bytes: int) -> None:
    """A member could store 256 MB for each message, however short an honest answer to it is."""
    state = SteadyLinkState()
    run, node, message = asked(state, most_bytes)
    waiting = kept(state)
    assert state.most_from(node) == most_bytes + PARTS_BYTES
    assert not send(state, run, wrap_reply(bytes(most_bytes + PARTS_BYTES), message))
    assert sum(map(len, state.object_store.store)) < PARTS_BYTES
    assert kept(state)[:-1] == waiting[:-1], "nothing of it is kept"
    assert state.is_overlong(message.metadata.message_id)
    assert not send(state, run, wrap_reply(b"another answer", message)), "a lie is not taken back"
    state.take_back(message.metadata.message_id)
    assert (kept(state), state.most_from(node)) == (EMPTY, PARTS_BYTES)


def test_an_answer_of_an_honest_size_is_stored() -> None:
    state = SteadyLinkState()
    run, _, message = asked(state)
    assert send(state, run, wrap_reply(bytes(2**17), message))
    answer = state.answer_to(message.metadata.message_id)
    assert answer is not None
    assert _whole(state, answer)


def test_who_guesses_the_name_of_a_part_does_not_end_the_answer_of_another() -> None:
    """What some answers hold can be guessed, such as that there is nothing to say; earlier programs name no session."""
    state = SteadyLinkState()
    run, _, message = asked(state, 200)
    answer = wrap_reply(b"nothing", message)
    names, session = push(state, run, answer)
    for name in names:
        assert not any(state.store_object(run, "", name, bytes(PARTS_BYTES)) for _ in range(3))
    assert not state.is_overlong(message.metadata.message_id)
    assert all(state.store_object(run, session, name, answer.objects[name]) for name in names)


def test_a_message_that_wants_no_answer_gets_none() -> None:
    """A model that is given out waits until its device polls: what a member stores with it would wait as long."""
    state = SteadyLinkState()
    run, _, message = asked(state, 0)
    before = kept(state)
    assert not send(state, run, wrap_reply(b"answer", message))
    assert kept(state) == before


def test_only_an_answer_that_is_being_sent_can_be_given_up() -> None:
    """A late answer, to a message that was taken back, may be larger than what the next one allows: that is no lie."""
    state = SteadyLinkState()
    run, node, first = asked(state)
    answer = wrap_reply(bytes(2**17), first)
    push(state, run, answer)
    state.take_back(first.metadata.message_id)
    assert state.post(wrap_request(b"shares", node, run), run, 200)
    (second,) = state.get_message_ins(node, None)
    state.refuse_answers(node)
    assert not state.is_overlong(second.metadata.message_id)
    push(state, run, wrap_reply(b"answer", second))
    state.refuse_answers(node)
    assert state.is_overlong(second.metadata.message_id)
    assert state._object_push_sessions == {}


def test_an_answer_that_was_not_finished_is_forgotten_with_its_message() -> None:
    state = SteadyLinkState()
    run, _, message = asked(state)
    answer = wrap_reply(b"answer", message)
    names, session = push(state, run, answer)
    assert state.store_object(run, "", names[0], answer.objects[names[0]]), "earlier programs do not name a session"
    state.take_back(message.metadata.message_id)
    assert kept(state) == EMPTY
    assert not state.store_object(run, session, names[1], answer.objects[names[1]])
    assert kept(state) == EMPTY


def test_a_message_shares_its_content_with_one_that_is_confirmed_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    state = SteadyLinkState()
    run, nodes = state.start_run(), [state.add_node(secrets.token_bytes(97)) for _ in range(2)]
    assert all(state.activate_node(node, 60.0) for node in nodes)
    first, second = (wrap_request(b"model", node, run) for node in nodes)
    assert state.post(first, run)
    confirming = threading.Thread(target=state.object_store.delete, args=(first.id,), daemon=True)

    def register_slowly(name: str) -> bool:  # Flower asks this of each part of a message before it registers it
        if name == second.id:
            confirming.start()
            confirming.join(0.2)  # a confirmation that need not wait for the second message is over by then
        return True

    monkeypatch.setattr(in_memory_object_store, "is_valid_sha256_hash", register_slowly)
    assert state.post(second, run)
    wait_for_thread(confirming)
    assert _whole(state, second.id)


def test_one_content_for_many_devices_is_written_once_and_as_flower_writes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    plain = ConfigRecord.deflate

    def counted(record: ConfigRecord) -> bytes:
        written.append(1)
        return bytes(plain(record))

    monkeypatch.setattr(ConfigRecord, "deflate", counted)
    content = secrets.token_bytes(1000)
    wrapped = [wrap_request(content, node, 1) for node in range(2, 7)]
    assert len(written) == 1
    assert len({wrapped.id for wrapped in wrapped}) == 5, "no two messages are the same"
    assert plain(ConfigRecord({FIELD: content})) in wrapped[0].objects.values()
    assert [unwrap_message(wrapped.id, wrapped.objects) for wrapped in wrapped] == [content] * 5


def test_a_journal_shows_that_it_was_written_but_not_within_the_last_moment(tmp_path: Path) -> None:
    catalog = Catalog(Vocabulary(np.arange(4)))
    federation = Federation.create("ef" * 16, "test", "fpl", {"factors": 2}, catalog)
    journal = CoordinatorJournal.create(tmp_path / "journal.db", federation, catalog, seed=1)
    assert journal.change_mark() is None, "it was written just now, and may be again within the file system's clock"
    os.utime(journal.path, (time.time() - 60, time.time() - 60))
    mark = journal.change_mark()
    assert mark is not None
    assert journal.change_mark() == mark
    other = journal.again()
    other.invitations.make(int(time.time()) + 60)
    other.close()
    assert journal.change_mark() is None
    os.utime(journal.path, (time.time() - 30, time.time() - 30))
    assert journal.change_mark() not in (None, mark)
    journal.close()
