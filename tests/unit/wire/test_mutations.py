"""Every decoder of what comes from outside: bent bytes are refused by name, or read as exactly what they say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from helpers.mutations import bend
from tacit.errors import DataError, FieldError, MessageError, TacitError, WireError
from tacit.field.invitations import Invitation
from tacit.protocols.directory import DirectoryCheckpoint, DirectoryGrowth, DirectoryProof
from tacit.protocols.notices import Notice, NoticeKind, NoticeList, key_change
from tacit.protocols.secure_aggregation import Identity
from tacit.random import Key
from tacit.types import Catalog, Labels, Vocabulary
from tacit.updates import Message, Release
from tacit.wire import amendments, messages
from tacit.wire.catalogue import catalog_bytes, catalog_from
from tacit.wire.federation import Federation
from tacit.wire.status import CoordinatorStatus
from tacit.wire.versions import OWN, VersionRanges

AUTHORITY, WITNESS = Identity(bytes(range(32))), Identity(bytes(range(1, 33)))
LABELS = Labels(np.arange(13), np.zeros(12, np.int32), ["a"])
CATALOG = Catalog(Vocabulary(np.arange(12) * 3), [f"thing {i}" for i in range(12)], LABELS)
LATER = Catalog(Vocabulary(np.arange(12) * 3), [f"thing {i}!" for i in range(12)], LABELS)
FOUNDED = Federation.create(
    "0" * 32, "f", "fpl", {"factors": 3, "local_steps": 4}, CATALOG, authority=AUTHORITY.public.hex()
)
SHARED = FOUNDED.download(FOUNDED.first_model(CATALOG, Key(1)))
SHAPES = {"items": (12, 4)}
CHECKPOINT = DirectoryCheckpoint.sign(WITNESS, bytes(16), 5, bytes(32), 1_700_000_000)
PROOF = DirectoryProof(CHECKPOINT, CHECKPOINT, (bytes(32),), ((3, (bytes(32),)),), (0, 1), (bytes(32), bytes(32)))


def rows() -> Message:
    numbers = np.random.default_rng(0).integers(-(2**20), 2**20, (3, 4))
    nothing = np.zeros(1, np.int64)
    table = np.array([0, 3]), np.array([1, 4, 7], np.int32), numbers
    return Message(np.array([0]), {"items": table}, Release(nothing, nothing, nothing))


@dataclass(frozen=True)
class Decoder:
    """What reads some bytes, how it refuses, and how what it read is written, if there is one way only."""

    content: bytes
    read: Callable[[bytes], Any]
    refusal: type[TacitError] | None  # none: it returns a value for what it cannot read
    write: Callable[[Any], bytes] | None = None


def text(read: Callable[[str], Any]) -> Callable[[bytes], Any]:
    return lambda content: read(content.decode("latin-1"))


ADDED = messages.SecureRequest(3, 0, b"content", b"request", b"directory", b"notices")
NOTICES = NoticeList((Notice(NoticeKind.REVOKED, bytes(32)), key_change(AUTHORITY, WITNESS, bytes(16))), CHECKPOINT)
DECODERS = {
    "welcome": Decoder(messages.write_welcome(FOUNDED, CATALOG), messages.read_welcome, WireError),
    "request": Decoder(
        messages.write_request(FOUNDED, messages.Request(3, SHARED, True)),
        lambda content: messages.read_request(FOUNDED, content),
        WireError,
        lambda found: messages.write_request(FOUNDED, found),
    ),
    "update": Decoder(
        messages.write_update(FOUNDED, 3, rows()),
        lambda content: messages.read_update(FOUNDED, 3, content, SHAPES),
        WireError,
        lambda found: messages.write_update(FOUNDED, 3, found),
    ),
    "secure request": Decoder(
        messages.write_secure_request(FOUNDED, ADDED),
        lambda content: messages.read_secure_request(FOUNDED, content),
        WireError,
        lambda found: messages.write_secure_request(FOUNDED, found),
    ),
    "secure reply": Decoder(
        messages.write_secure_reply(FOUNDED, 3, b"answer"),
        lambda content: messages.read_secure_reply(FOUNDED, 3, content),
        WireError,
        lambda found: messages.write_secure_reply(FOUNDED, 3, found),
    ),
    "arrays": Decoder(messages.pack(SHARED), messages.unpack, WireError, messages.pack),
    "amendment": Decoder(
        amendments.write_amendment(FOUNDED, CATALOG, LATER, AUTHORITY)[0],
        lambda content: amendments.read_amendment(content, FOUNDED, CATALOG),
        WireError,
    ),
    "chain": Decoder(
        amendments.write_chain([b"one", b"two"]), amendments.read_chain, WireError, amendments.write_chain
    ),
    "catalogue": Decoder(catalog_bytes(CATALOG), catalog_from, DataError),
    "checkpoint": Decoder(CHECKPOINT.encode(), DirectoryCheckpoint.decode, MessageError, DirectoryCheckpoint.encode),
    "directory": Decoder(PROOF.encode(), DirectoryProof.decode, MessageError, DirectoryProof.encode),
    "notices": Decoder(NOTICES.encode(), NoticeList.decode, MessageError, NoticeList.encode),
    "growth": Decoder(
        DirectoryGrowth(5, bytes(32), (bytes(32),)).encode(),
        DirectoryGrowth.decode,
        MessageError,
        DirectoryGrowth.encode,
    ),
    "invitation": Decoder(
        Invitation("127.0.0.1:8443", "word", "roots", WITNESS.public.hex()).line().encode(),
        text(Invitation.parse),
        FieldError,
    ),
    "status": Decoder(CoordinatorStatus("pause", 1, 2, 3).write().encode(), text(CoordinatorStatus.read), None),
    "versions": Decoder(OWN.write().encode(), text(VersionRanges.read), None),
}


def check_mutations(name: str, times: int, seed: int) -> None:
    decoder, generator = DECODERS[name], np.random.default_rng([seed, sorted(DECODERS).index(name)])
    decoder.read(decoder.content)
    for _ in range(times):
        content = bend(decoder.content, generator)
        if decoder.refusal is None:
            decoder.read(content)
            continue
        try:
            found = decoder.read(content)
        except decoder.refusal:  # any other error fails the test
            continue
        if decoder.write is not None:
            assert decoder.write(found) == content, f"{content!r} is read, and written otherwise"


@pytest.mark.parametrize("name", DECODERS)
def test_bent_bytes_are_refused_by_name(name: str) -> None:
    check_mutations(name, 300, 0)


@pytest.mark.fuzz
@pytest.mark.parametrize("name", DECODERS)
def test_a_million_bent_messages_of_every_kind(name: str) -> None:
    check_mutations(name, 1_000_000, 1)


def test_amended_and_welcomed_are_only_the_terms_that_were_signed() -> None:
    """Bent bytes that are accepted say the same: another compression, say."""
    generator = np.random.default_rng(5)
    for name, expected in (("welcome", FOUNDED.digest), ("amendment", None)):
        decoder = DECODERS[name]
        right = decoder.read(decoder.content)
        for _ in range(300):
            try:
                found = decoder.read(bend(decoder.content, generator))
            except TacitError:
                continue
            terms = found[0] if expected is not None else found.federation
            assert terms.digest == (expected if expected is not None else right.federation.digest)
