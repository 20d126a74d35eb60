"""Our messages inside Flower's: the only code for Flower that both sides share.

Each Flower message has one record that holds our bytes; Flower does not interpret them.
"""

from __future__ import annotations

import logging
import secrets
from functools import lru_cache
from typing import Any

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.app.metadata import Metadata
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

from tacit.errors import WireError
from tacit.wire.envelope import MOST_BYTES

logging.getLogger("flwr").setLevel(logging.CRITICAL)  # it would log who came and went, by public key

RECORD, FIELD, KIND = "tacit", "message", "query"
MOST_OBJECTS = 8  # a message, its records, one record
SERVER = 1  # the node id of every SuperLink
WRITTEN, KEPT = 2e9, 1e11  # when every message was written, and for how many seconds it holds: no clock is asked


class FlowerMessage:
    """A Flower message ready to be carried: its head, its tree of objects, and their contents."""

    def __init__(self, message: Any) -> None:
        with no_object_id_recompute():
            message.metadata.__dict__["_message_id"] = message.object_id
            self.id: str = message.object_id
            self.tree = get_object_tree(message)
            self.objects: dict[str, bytes] = {
                name: item.deflate() for name, item in get_all_nested_objects(message).items()
            }
        self.head = Message(RecordDict(), metadata=message.metadata)


def wrap_request(content: bytes, node: int, run: int) -> FlowerMessage:
    """Wrap what the coordinator sends to a node."""
    metadata = Metadata(
        run_id=run,
        message_id="",
        src_node_id=SERVER,
        dst_node_id=node,
        reply_to_message_id="",
        group_id=secrets.token_hex(8),  # no two messages are the same
        created_at=WRITTEN,
        ttl=KEPT,
        message_type=KIND,
    )
    metadata.delivered_at = ""
    return FlowerMessage(Message(_record(content), metadata=metadata))


def wrap_reply(content: bytes, to: Any) -> FlowerMessage:
    """Wrap what a device answers, with the time of the request: the device's own clock may be anywhere."""
    asked = to.metadata
    metadata = Metadata(
        run_id=asked.run_id,
        message_id="",
        src_node_id=asked.dst_node_id,
        dst_node_id=asked.src_node_id,
        reply_to_message_id=asked.message_id,
        group_id=asked.group_id,
        created_at=asked.created_at,
        ttl=asked.ttl,
        message_type=asked.message_type,
    )
    metadata.delivered_at = ""
    return FlowerMessage(Message(_record(content), metadata=metadata))


class _FrozenRecord(ConfigRecord):  # type: ignore[misc]  # Flower has no types that are checked
    """A record that stays as it is: it is written and hashed once, however many messages hold it."""

    __qualname__ = "ConfigRecord"  # what Flower writes in front of the bytes

    def deflate(self) -> bytes:
        """Return its bytes, made at the first time."""
        written: bytes | None = self.__dict__.get("_written")
        if written is None:
            written = self.__dict__["_written"] = super().deflate()
        return written

    @property
    def is_dirty(self) -> bool:
        """Never: nothing changes it."""
        return False


@lru_cache(maxsize=1)
def _frozen_record(content: bytes) -> Any:
    """Return the record of a content; a round sends many devices the same one."""
    return _FrozenRecord({FIELD: content})


def _record(content: bytes) -> Any:
    return RecordDict({RECORD: _frozen_record(content)})


def names_in(tree: Any) -> list[str]:
    """Return the objects of a tree; a message of ours has few."""
    names = [node.object_id for node in iterate_object_tree(tree)]
    if len(names) > MOST_OBJECTS:
        raise WireError(
            f"A parcel of {len(names)} objects is not from Tacit.", "It was dropped, and nothing was changed."
        )
    return names


def unwrap_message(root: str, contents: dict[str, bytes]) -> bytes:
    """Return our bytes from the objects of a Flower message; anything else in it is a WireError."""
    if sum(len(content) for content in contents.values()) > MOST_BYTES:
        raise WireError("A parcel is too large.", "It was dropped, and nothing was changed.")
    try:
        content = inflate_object_from_contents(root, dict(contents)).content[RECORD][FIELD]
    except Exception as error:  # whatever Flower finds wrong with unknown bytes
        raise WireError(
            f"A parcel cannot be opened ({type(error).__name__}).", "It was dropped, and nothing was changed."
        ) from None
    if not isinstance(content, bytes):
        raise WireError("A parcel has no message.", "It was dropped, and nothing was changed.")
    return content
