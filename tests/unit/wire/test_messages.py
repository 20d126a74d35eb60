"""Messages: what is written is read back, in one form only; anything else is refused by name and quickly."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import ConfigError, DataError, WireError
from tacit.methods.base import build_federated, names
from tacit.random import Key
from tacit.reasons import ReasonCode, RoundReason
from tacit.types import Catalog, Labels, Vocabulary
from tacit.updates import Message, Release, Ring
from tacit.wire import envelope, messages
from tacit.wire.catalogue import canonical, catalog_bytes, catalog_from, digest_of
from tacit.wire.federation import Federation

CATALOG = Catalog(Vocabulary(np.arange(30) * 3), [f"thing {i}" for i in range(30)])
FPL = Federation.create("0" * 32, "f", "fpl", {"factors": 3, "local_steps": 4}, CATALOG)
NARROW = Federation.create("0" * 32, "f", "fpl", {"factors": 3, "local_steps": 4}, CATALOG, ring=Ring(bits=32))
SHAPES = {"items": (30, 4)}
SHARED = FPL.first_model(CATALOG, Key(1))
SENT = FPL.download(SHARED)
REQUEST = messages.write_request(FPL, messages.Request(3, SENT, True))
WELCOME = messages.write_welcome(FPL, CATALOG)
DIGEST = "3fce87cbc5862a46fe59f19c76ec0d607eadbdb53557ef3f3e71b4397c6195c9"


def outgoing(ids: list[int], seed: int = 0, largest: int = 2**24) -> Message:
    numbers = np.random.default_rng(seed).integers(-largest, largest + 1, (len(ids), 4))
    nothing = np.zeros(1, np.int64)
    rows = np.array([0, len(ids)]), np.array(ids, np.int32), numbers
    return Message(np.array([5]), {"items": rows}, Release(nothing, nothing, nothing))


UPDATE = messages.write_update(FPL, 3, outgoing([4, 1, 1, 29]))


MESSAGES = (  # readers of whole messages, and how to write what they have read
    (messages.read_welcome, lambda found: messages.write_welcome(*found)),
    (lambda content: messages.read_request(FPL, content), lambda found: messages.write_request(FPL, found)),
    (lambda content: messages.read_update(FPL, 3, content, SHAPES), lambda found: messages.write_update(FPL, 3, found)),
)
READERS = (*MESSAGES, (messages.unpack, messages.pack))


def assert_refused(content: bytes, readers: Sequence[tuple[Any, Any]] = READERS) -> None:
    for read, _ in readers:
        with pytest.raises(WireError):
            read(content)


def assert_refused_or_canonical(content: bytes) -> None:
    """Every reader refuses it with a WireError, or reads what is written as exactly these bytes."""
    for read, write in READERS:
        try:
            found = read(content)
        except WireError:
            continue
        if read is messages.read_welcome:  # a catalogue can be compressed in more than one way
            assert read(write(found))[0] == found[0]
        else:
            assert write(found) == content, "two ways to write one message"


@pytest.mark.slow
@pytest.mark.parametrize("federation", [FPL, NARROW], ids=["64 bits", "32 bits"])
@given(ids=st.lists(st.integers(0, 29), max_size=40), seed=st.integers(0, 2**32 - 1))
def test_an_update_comes_back_and_its_order_reveals_nothing(federation: Federation, ids: list[int], seed: int) -> None:
    message = outgoing(ids, seed)
    content = messages.write_update(federation, 3, message)
    ptr, rows, numbers = message.tables["items"]
    shuffled = np.random.default_rng(seed + 1).permutation(len(ids))
    other = replace(message, tables={"items": (ptr, rows[shuffled], numbers[shuffled])})
    assert messages.write_update(federation, 3, other) == content
    read = messages.read_update(federation, 3, content, SHAPES, client=8)
    assert read.clients.tolist() == [8]
    sums = np.zeros((2, 30, 4), np.int64)
    for total, found in zip(sums, (message, read), strict=True):
        np.add.at(total, found.tables["items"][1], found.tables["items"][2])
    assert np.array_equal(*sums)
    assert messages.write_update(federation, 3, read) == content
    row = 4 + 4 * federation.ring.bits // 8
    assert len(content) == envelope.HEAD_BYTES + 1 + 6 + 8 + row * len(ids), "rows cost what the ledger says"


def test_a_model_and_a_welcome_come_back() -> None:
    read = messages.read_request(FPL, REQUEST)
    assert (read.round, read.learn, read.counted) == (3, True, -1)
    for counted in (-2, 3):
        with pytest.raises(WireError, match="counted"):
            messages.read_request(FPL, messages.write_request(FPL, messages.Request(3, SENT, True, counted)))
    assert read.shared.keys() == SENT.keys()
    for name, array in SENT.items():
        assert np.array_equal(read.shared[name], array)
        assert read.shared[name].dtype == array.dtype
    categories = Labels(np.array([0, 1, 3]), np.array([1, 0, 1], np.int32), ["a", "é"])
    for catalog in (CATALOG, Catalog(Vocabulary(np.array(["x", "ÿ"], dtype=object)), None, categories)):
        federation = Federation.create("1" * 32, "name", "fed-gmf", {}, catalog)
        welcomed, known = messages.read_welcome(messages.write_welcome(federation, catalog))
        assert welcomed == federation
        assert known.item_ids.labels.tolist() == catalog.item_ids.labels.tolist()
        assert known.titles == catalog.titles
        if catalog.categories is not None:
            assert known.categories is not None
            assert [known.categories.of(i) for i in range(2)] == [["é"], ["a", "é"]]


def test_what_was_cut_lengthened_or_changed_in_one_byte_is_refused_or_still_canonical() -> None:
    for content in (UPDATE, REQUEST, WELCOME):
        for cut in range(len(content)):
            assert_refused(content[:cut])
        assert_refused(content + b"\0")
        for at in range(len(content)):
            for bit in (1, 128):
                changed = bytearray(content)
                changed[at] ^= bit
                assert_refused_or_canonical(bytes(changed))


@given(st.binary(max_size=400))
@settings(max_examples=300)
def test_noise_is_refused_or_still_canonical(content: bytes) -> None:
    assert_refused(content, MESSAGES)
    for head in (UPDATE, REQUEST, WELCOME):
        assert_refused_or_canonical(head[: envelope.HEAD_BYTES - 4] + struct.pack("<I", len(content)) + content)


@given(st.sampled_from([UPDATE, REQUEST, WELCOME]), st.data())
@settings(max_examples=300)
def test_splices_are_refused_or_still_canonical(content: bytes, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(content)))
    end = data.draw(st.integers(start, len(content)))
    middle = data.draw(st.one_of(st.binary(max_size=12), st.just(b"\xff\xff\xff\xff"), st.just(b"\0\0\0\x7f")))
    assert_refused_or_canonical(content[:start] + middle + content[end:])


def refused(content: bytes, said: str) -> None:
    with pytest.raises(WireError, match=said):
        messages.read_update(FPL, 3, content, SHAPES)


def test_each_thing_that_is_wrong_is_named() -> None:
    with pytest.raises(WireError) as late:
        messages.read_update(FPL, 3, messages.write_update(FPL, 2, outgoing([1])), SHAPES)
    assert late.value.reason == RoundReason(ReasonCode.LATE_ANSWER, {"earlier": 2, "round": 3})
    refused(messages.write_update(NARROW, 3, outgoing([1])), "another federation")
    refused(messages.write_update(FPL, 3, outgoing([30])), "between 0 and 29")
    refused(messages.write_update(FPL, 3, outgoing([3], largest=2**40)), "number outside the ring")
    refused(REQUEST, "Expected a update, but this is a request")
    refused(b"GET / HTTP/1.1\r\n" * 9, "not a message of Tacit")
    refused(UPDATE[:4] + b"\x02" + UPDATE[5:], "version 2")
    other = outgoing([1])
    refused(messages.write_update(FPL, 3, replace(other, tables={"layers": other.tables["items"]})), "table 'layers'")
    refused(messages.write_update(FPL, 3, replace(other, tables={})), "once each")
    with pytest.raises(WireError, match="not finite"):
        messages.read_request(
            FPL, messages.write_request(FPL, messages.Request(0, {"items": np.array([np.nan])}, True))
        )
    assert envelope.message_kind(UPDATE) == "update"


def test_a_false_length_allocates_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    body = b"\x01\x05items\x01\x02" + struct.pack("<II", 2**31 - 1, 2**31 - 1)
    with pytest.raises(WireError, match="early"):
        messages.unpack(body)
    monkeypatch.setattr(messages, "MOST_CATALOG", 2**20)
    bomb = zlib.compress(b"0" * (2**20 + 1), 9)
    terms = FPL.canonical()
    with pytest.raises(WireError, match="too large or cut"):
        messages.read_welcome(
            envelope.seal_message(envelope.WELCOME, FPL.digest, 0, struct.pack("<I", len(terms)) + terms + bomb)
        )


def test_a_welcome_that_contradicts_itself_is_refused() -> None:
    other = Federation.create("0" * 32, "f", "fpl", {"factors": 3, "local_steps": 4}, CATALOG.take(np.arange(29)))
    with pytest.raises(WireError, match="catalogue in the welcome does not match its digest"):
        messages.read_welcome(messages.write_welcome(other, CATALOG))
    for terms in (b"{}", b"[", canonical({**FPL.model_dump(mode="json"), "code": "x"})):
        body = struct.pack("<I", len(terms)) + terms
        with pytest.raises(WireError, match="cannot read the federation"):
            messages.read_welcome(envelope.seal_message(envelope.WELCOME, FPL.digest, 0, body))
    for name, options in (
        ("ease", {}),
        ("fpl", {"local_steps": "x"}),
        ("fpl", {"pi": 0.5, "local_steps": 1}),
        ("no", {}),
    ):
        wrong = Federation(**{**FPL.model_dump(), "method": name, "options": options})
        terms, packed = wrong.canonical(), zlib.compress(catalog_bytes(CATALOG), 9)
        body = struct.pack("<I", len(terms)) + terms + packed
        with pytest.raises(WireError):
            messages.read_welcome(envelope.seal_message(envelope.WELCOME, wrong.digest, 0, body))


def test_a_federation_is_founded_only_on_what_can_run_there() -> None:
    for method, options, said in (
        ("ease", {}, "not federated"),
        ("fpl", {"pi": 0.5}, "users decide"),
        ("fed-svd", {"warm_start": "/tmp"}, "no folder"),
        ("fpl", {"rounds": 7}, r"method\.rounds has no effect"),
        ("fcf", {"steps_per_epoch": 5}, r"method\.steps_per_epoch has no effect"),
        ("fed-gmf", {"clients_per_round": 20}, r"method\.clients_per_round has no effect"),
        ("fed-ease", {"epochs": 2}, r"method\.epochs has no effect"),
        ("kgflex", {"share": 0.1}, r"method\.share has no effect"),
    ):
        with pytest.raises(ConfigError, match=said):
            Federation.create("0" * 32, "f", method, options, CATALOG)
    for name in names("federated"):
        founded = Federation.create("0" * 32, "f", name, {}, CATALOG)
        assert founded.options.keys().isdisjoint(build_federated(name).spec.schedule_options), "not even defaults"
    free = Federation.create("0" * 32, "f", "fpl", {}, CATALOG)
    with pytest.raises(ConfigError, match=r"method\.local_steps"):
        free.first_model(CATALOG, Key(0))


def test_a_catalogue_without_popularity_keeps_its_digest_and_one_with_it_has_one_form() -> None:
    """The digest is what federations that were founded before have in their terms."""
    assert digest_of(catalog_bytes(CATALOG)) == DIGEST
    figures = np.linspace(0, 2.5, 30)
    content = catalog_bytes(replace(CATALOG, popularity=figures))
    assert np.array_equal(catalog_from(content).popularity, figures)
    whole = catalog_bytes(replace(CATALOG, popularity=np.zeros(30)))
    for wrong in (b"-1.0", b"NaN", b"1e999", b'"much"', b"null", b"0", b"[0.0]"):
        with pytest.raises(DataError):
            catalog_from(whole.replace(b'"popularity":[0.0', b'"popularity":[' + wrong))
    with pytest.raises(DataError):
        catalog_from(whole.replace(b'"popularity":[0.0,', b'"popularity":['))


@pytest.mark.parametrize("shape", [(0, 2**31 - 1, 2**31 - 1), (2**31 - 1, 2**31 - 1, 0), (2**31 - 1, 2**31 - 1, 2)])
def test_axes_that_no_array_can_have_are_refused(shape: tuple[int, ...]) -> None:
    """An array without elements needs no bytes, however long its other axes are."""
    name = b"items"
    with pytest.raises(WireError):
        messages.unpack(struct.pack("<BB5sBB3I", 1, len(name), name, 1, 3, *shape))
