"""What a SuperLink knows of devices and messages, kept by a steady clock.

Flower ends a run whose application sent no heartbeat for a minute; by the wall clock it forgets messages and takes
devices for absent. A coordinator that pauses between rounds, a suspended machine and a clock that is set would end a
federation that way. Here the application is this program, so that its run ends with it. Messages stay until they are
taken back. A monotonic clock decides whether a device is there.

What a device may store has bounds: one answer of a few parts to each message that wants one, with no more bytes than an
honest answer to that message can have, and nothing else. Flower would keep any number of messages for ever, and would
walk a tree whose parts name the same parts again and again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from itertools import islice
from typing import Any

from flwr.common.constant import HEARTBEAT_INTERVAL_INF, HEARTBEAT_PATIENCE, NOOP_ACCOUNT_NAME, NOOP_FLWR_AID
from flwr.server.superlink.linkstate.in_memory_linkstate import InMemoryLinkState
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME, NOOP_FEDERATION_ID, NodeStatus, TaskType
from flwr.supercore.inflatable.inflatable_object import get_object_id, iterate_object_tree
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.superlink.config_loader import get_federation_manager

from tacit.field.carriers.body_limit import PARTS_BYTES
from tacit.field.carriers.flower_messages import MOST_OBJECTS
from tacit.wire.envelope import MOST_BYTES

DELIVERED = "delivered"  # Flower writes a time here, and only ever asks whether there is one


class SteadyLinkState(InMemoryLinkState):  # type: ignore[misc]  # Flower has no types that are checked
    """Flower's state in memory, without the wall clock."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(get_federation_manager(), ObjectStoreFactory(FLWR_IN_MEMORY_DB_NAME).store())
        self.clock = clock
        self._online_until: dict[int, float] = {}
        self._patience: dict[int, float] = {}  # seconds without a heartbeat after which a node is away
        self.activations: Counter[int] = Counter()  # how often each node has begun a session
        self._names_of: dict[int, dict[str, None]] = {}  # node -> its messages, in the order in which they came
        self._is_posting = False  # the coordinator is, in the thread that has the lock
        self._came: Counter[str] = Counter()  # bytes of each answer that is being sent
        self._most_bytes: dict[str, int] = {}  # message -> bytes of an answer to it, at most; 0: it wants none
        self._most_from: dict[int, int] = {}  # node -> the same, of the largest answer that it may send now
        self._asked_by: dict[str, str] = {}  # session in which an answer is sent -> the message that it answers
        self._overlong: set[str] = set()  # messages whose answer was too large

    def state(self) -> SteadyLinkState:
        """Return itself, where Flower asks a factory."""
        return self

    # --- the run ------------------------------------------------------------------------------------------------------

    def start_run(self) -> int:
        """Make the one run that all messages belong to; return its number."""
        run = int(self.create_run("", "", "", {}, NOOP_FEDERATION_ID, None, NOOP_FLWR_AID, str(TaskType.SERVER_APP)))
        task = self.get_run_info(run_ids=[run])[0].primary_task_id
        self.claim_task(task)
        self.activate_task(task)
        return run

    def _cleanup_expired_task_tokens_locked(self) -> None:
        """Let no run end by the clock."""

    # --- nodes --------------------------------------------------------------------------------------------------------

    def add_node(self, key: bytes) -> int:
        """Let a device connect; return the number of its node."""
        return int(self.create_node(NOOP_FLWR_AID, NOOP_ACCOUNT_NAME, key, 0))

    def remove_node(self, node: int) -> None:
        """Let a device connect no more."""
        with self.lock:
            self._online_until.pop(node, None)
            if node in self.nodes:
                self.nodes[node].status = NodeStatus.UNREGISTERED

    def activate_node(self, node_id: int, heartbeat_interval: float) -> bool:
        """Begin a session of a node; one that is believed to be there has come back before it was missed."""
        self.activations[node_id] += 1
        return self.acknowledge_node_heartbeat(node_id, heartbeat_interval)

    def deactivate_node(self, node_id: int) -> bool:
        """End a session of a node."""
        self._online_until.pop(node_id, None)
        return bool(super().deactivate_node(node_id))

    def acknowledge_node_heartbeat(self, node_id: int, heartbeat_interval: float) -> bool:
        """Note a heartbeat."""
        if not super().acknowledge_node_heartbeat(node_id, HEARTBEAT_INTERVAL_INF):
            return False
        self._patience[node_id] = HEARTBEAT_PATIENCE * heartbeat_interval
        self._online_until[node_id] = self.clock() + self._patience[node_id]
        return True

    def get_message_ins(self, node_id: int, limit: int | None, *, run_id: int | None = None) -> list[Any]:
        """Return the messages of a node that it has not fetched yet; polling counts as a heartbeat.

        Flower goes through the messages of all nodes. Here a poll costs the same however many wait for others.
        """
        if node_id in self._online_until:
            self._online_until[node_id] = self.clock() + self._patience[node_id]
        found: list[Any] = []
        with self.lock:
            for name in self._names_of.get(node_id, ()):
                message = self.message_ins_store[name]
                if message.metadata.delivered_at == "" and run_id in (None, message.metadata.run_id):
                    found.append(message)
                if limit is not None and len(found) >= limit:
                    break
            for message in found:
                message.metadata.delivered_at = DELIVERED
        return found

    def online(self) -> set[int]:
        """Return the nodes that sent a heartbeat lately."""
        now = self.clock()
        return {node for node, until in list(self._online_until.items()) if until > now}

    # --- messages -----------------------------------------------------------------------------------------------------

    def _check_stored_messages(self, message_ids: set[str], run_id: int | None = None) -> None:
        """Let no message end by the clock."""

    def store_message_ins(self, message: Any) -> str | None:
        """Store a message, and note whose it is."""
        with self.lock:
            stored: str | None = super().store_message_ins(message)
            if stored is not None:
                self._names_of.setdefault(message.metadata.dst_node_id, {})[stored] = None
        return stored

    def store_message_and_object_tree(self, message: Any, object_tree: Any, session_id: str) -> tuple[bool, list[str]]:
        """Store a message of the coordinator, or a device's answer to one; what is refused leaves nothing behind."""
        with self.lock:
            asked, names = str(message.metadata.reply_to_message_id), iterate_object_tree(object_tree)
            is_wanted = asked not in self._overlong and self._most_bytes.get(asked, 0) > 0
            try:
                if self._is_posting or (is_wanted and len(list(islice(names, MOST_OBJECTS + 1))) <= MOST_OBJECTS):
                    stored, missing = super().store_message_and_object_tree(message, object_tree, session_id)
                else:
                    stored, missing = False, []
            except ValueError:  # names that are none
                stored, missing = False, []
            if stored and not self._is_posting:
                self._asked_by[session_id] = asked
        if not stored:
            self._cleanup_push_session(session_id, cleanup_messages=False)
        return stored, missing

    def store_object(self, run_id: int, session_id: str, object_id: str, object_content: bytes) -> bool:
        """Store a part of a message, unless its parts are larger together than any honest answer.

        A part without a session may come from any sender who can guess its name. Only the right one counts.
        """
        if not session_id and get_object_id(object_content) != object_id:
            return False
        with self._lock_object_push_sessions:
            pending = self._object_push_sessions
            name = session_id or next(
                (one for one, held in pending.items() if object_id in held.pending_object_ids), ""
            )
            if name not in pending:
                return False
            self._came[name] += len(object_content)
            asked = self._asked_by.get(name, "")
            most = self._most_bytes.get(asked, 0) if asked else MOST_BYTES
            if self._came[name] <= most + PARTS_BYTES:
                return bool(super().store_object(run_id, name, object_id, object_content))
            if asked in self._most_bytes:  # it was not taken back meanwhile
                self._overlong.add(asked)
        self._cleanup_push_session(name, cleanup_messages=True)  # takes the other lock first
        return False

    def _cleanup_push_session(self, session_id: str, *, cleanup_messages: bool) -> None:
        """Forget who sends an answer, and what of it came."""
        self._came.pop(session_id, None)
        self._asked_by.pop(session_id, None)
        super()._cleanup_push_session(session_id, cleanup_messages=cleanup_messages)

    def most_from(self, node: int) -> int:
        """Return how many bytes a request of a node may have now; no lock is taken, because every request asks."""
        return self._most_from.get(node, 0) + PARTS_BYTES

    def refuse_answers(self, node: int) -> None:
        """Give up the answer that a node is sending: more of it came than an honest one can have.

        A node that is sending none is late with an earlier one, which was taken back: that is no lie.
        """
        with self.lock, self._lock_object_push_sessions:
            own = self._names_of.get(node, {})
            sending = {session: asked for session, asked in list(self._asked_by.items()) if asked in own}
            self._overlong.update(sending.values())
            for session in sending:
                self._cleanup_push_session(session, cleanup_messages=True)

    def is_overlong(self, message: str) -> bool:
        """Say whether an answer to a message was too large, and was refused."""
        return message in self._overlong

    def delete_messages(self, message_ins_ids: set[str]) -> None:
        """Delete messages and their answers, also from the notes of whose they are."""
        with self.lock:
            for name in message_ins_ids:
                message = self.message_ins_store.get(name)
                if message is None:
                    continue
                node = message.metadata.dst_node_id
                names = self._names_of.get(node, {})
                names.pop(name, None)
                if not names:
                    self._names_of.pop(node, None)
                self._most_bytes.pop(name, None)
                self._overlong.discard(name)
                self._note_most(node)
            super().delete_messages(message_ins_ids)

    def _note_most(self, node: int) -> None:
        """Note the largest answer that a node may send now."""
        most = max((self._most_bytes.get(name, 0) for name in self._names_of.get(node, ())), default=0)
        if most:
            self._most_from[node] = most
        else:
            self._most_from.pop(node, None)

    def is_waiting(self, message: str) -> bool:
        """Say whether a message is still here."""
        return message in self.message_ins_store

    def is_unread(self, message: str) -> bool:
        """Say whether a message is still here, and its device has not confirmed that it has it."""
        return self.is_waiting(message) and self.object_store.get(message) is not None

    def answer_to(self, message: str) -> str | None:
        """Return the name of the answer that has come to a message, if one has; parts of it may be missing."""
        with self.lock:  # the list of its parts is stored after its name
            found: str | None = self.message_ins_id_to_message_res_id.get(message)
        return found

    def take_back(self, *messages: str) -> None:
        """Delete messages and their answers, with everything that they consist of."""
        with self.lock:
            names = {name for name in messages if name}
            answers = {self.message_ins_id_to_message_res_id.get(name, "") for name in names}
            self.delete_messages(names)
        for name in {*names, *answers} - {""}:
            self._cleanup_push_session(self._object_push_session_by_root.get(name, ""), cleanup_messages=False)
            self.object_store.delete(name)

    def post(self, message: Any, run: int, most_bytes: int = 0) -> bool:
        """Store a message where its device fetches it; say whether there is such a device.

        An answer to it has `most_bytes` at most; it wants none if that is 0.

        Flower stores the head first. All locks are held, in the order in which Flower takes them, until the parts are
        stored: a device that polls meanwhile would find a head without parts, and confirm it. Messages share their
        content, so another device that confirms its own would delete parts of this one.
        """
        with self.lock, self._lock_object_push_sessions, self.object_store.lock_store:
            session, self._is_posting = self.start_session(run), True
            try:
                stored, missing = self.store_message_and_object_tree(message.head, message.tree, session)
            finally:
                self._is_posting = False
            if stored:
                self._most_bytes[message.id] = most_bytes
                self._note_most(message.head.metadata.dst_node_id)
            for name in missing:
                self.store_object(run, session, name, message.objects[name])
            self._cleanup_push_session(session, cleanup_messages=False)
        return bool(stored)
