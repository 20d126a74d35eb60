"""Messages as bytes: one canonical form for each, length caps, and everything is checked before use.

    message   magic "TCIT" · version · kind · digest of the federation (32) · round (u32) · length (u32) · body
    welcome   the federation and its catalogue, packed: what a device needs to join
    request   the shared model, for a device to learn from
    model     the shared model, to be kept; no answer is wanted
    update    rows of one device, sorted, so that their order says nothing about how they came about
    secure-request   one message of a secure sum to a device; the first of a round carries the request with it
    secure-reply     a device's answer to it
    amendment        a signed change of the federation: see `wire.amendments`

A message is written in the oldest version that can say what it says, so that older programs read what concerns them.
Version 2 has, in secure requests, the proof of a directory. All numbers are little-endian. Reading a message either
gives back exactly what was written, or is a WireError; what a length field claims is never allocated before the bytes
are there.
"""

from __future__ import annotations

import hashlib
import math
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.errors import ConfigError, DataError, WireError
from tacit.reasons import ReasonCode
from tacit.types import Array, Catalog
from tacit.updates import Message, Release
from tacit.wire.catalogue import catalog_bytes, catalog_from, digest_of, public_catalog, strip_names
from tacit.wire.envelope import (
    AGAIN,
    HEAD_BYTES,
    MODEL,
    MOST_BYTES,
    REQUEST,
    SECURE_REPLY,
    SECURE_REQUEST,
    UPDATE,
    UPGRADE,
    WELCOME,
    seal_message,
    unseal_message,
    version_of,
)
from tacit.wire.federation import Federation

MOST_CATALOG = 2**27  # unpacked
MOST_ARRAYS = 32
MOST_AXES = 3
CLIP_TOLERANCE = 1e-4  # float32 arithmetic of lengths
_DTYPES = {code: np.dtype(name) for code, name in enumerate(("<f4", "<f8", "<i4", "<i8", "<u4", "|u1", "<u8"), start=1)}
_CODES = {dtype: code for code, dtype in _DTYPES.items()}

Numbers: TypeAlias = NDArray[np.int64]
Shared: TypeAlias = Mapping[str, Array]


@dataclass(frozen=True)
class Request:
    """A shared model as it was in a round; `learn` says whether an answer is wanted.

    `counted` is the last round in which an answer of the receiver was added, -1 if none was. What a device learnt for
    an answer that came too late is undone, as if it had never been asked.
    """

    round: int
    shared: Shared
    learn: bool
    counted: int = -1


def write_welcome(federation: Federation, catalog: Catalog) -> bytes:
    """Write what a device needs to join."""
    terms, packed = federation.canonical(), zlib.compress(catalog_bytes(public_catalog(catalog, federation.built)), 9)
    return seal_message(WELCOME, federation.digest, 0, struct.pack("<I", len(terms)) + terms + packed)


def read_welcome(content: bytes) -> tuple[Federation, Catalog]:
    """Read what a device needs to join; the digests must fit. Titles and names come without control characters."""
    federation, catalog = open_welcome(content)
    try:
        return federation, strip_names(catalog)
    except DataError as error:
        raise WireError(error.message, AGAIN) from None


def open_welcome(content: bytes) -> tuple[Federation, Catalog]:
    """Read what a device needs to join, letter for letter: amendments are made to this."""
    _, digest, number, body = unseal_message(content, (WELCOME,))
    reader = _BodyReader(body)
    terms = reader.take(reader.number(2**20, "federation"))
    try:
        federation = Federation.model_validate_json(terms)
    except ValueError as error:
        named = " ".join(str(error).split())[:200]
        raise WireError(f"This version cannot read the federation in the welcome: {named}.", UPGRADE) from None
    if federation.canonical() != terms or federation.digest != digest or number:
        raise WireError("The federation in the welcome does not match its digest.", AGAIN)
    unpacked = inflate(reader.rest())
    if digest_of(unpacked) != federation.catalog:
        raise WireError("The catalogue in the welcome does not match its digest.", AGAIN)
    try:
        return federation.check_method(), catalog_from(unpacked)
    except (DataError, ConfigError) as error:
        raise WireError(error.message, AGAIN) from None


def write_request(federation: Federation, request: Request) -> bytes:
    """Write a shared model, with or without a request for an answer."""
    kind = REQUEST if request.learn else MODEL
    body = struct.pack("<i", request.counted) + pack(request.shared)
    return seal_message(kind, federation.digest, request.round, body)


def read_request(federation: Federation, content: bytes) -> Request:
    """Read a shared model of this federation; whether its arrays are the expected ones is for the federation to say."""
    kind, digest, number, body = unseal_message(content, (REQUEST, MODEL))
    _same(digest, federation)
    (counted,) = struct.unpack("<i", _BodyReader(body).take(4))
    if not -1 <= counted < number + (kind == MODEL):
        raise WireError(f"Round {counted} cannot have been counted before round {number}.", AGAIN)
    return Request(number, unpack(body[4:]), kind == REQUEST, counted)


def model_in(content: bytes) -> bytes:
    """Return the hash of the model in a request: of its arrays, for whomever it was written."""
    _, _, _, body = unseal_message(content, (REQUEST, MODEL))
    return hashlib.sha256(body[4:]).digest()


def write_update(federation: Federation, number: int, message: Message) -> bytes:
    """Write what one device may send, its rows in the order of their numbers."""
    assert len(message.clients) == 1, "a device holds one client"
    width = np.dtype(f"<i{federation.ring.bits // 8}")
    parts = [struct.pack("<B", len(message.tables))]
    for name in sorted(message.tables):
        _, ids, numbers = message.tables[name]
        if name in federation.built.spec.client_tables:
            ids = np.zeros_like(ids)  # its own row, whatever number the coordinator has given it
        order = np.lexsort((*numbers.T[::-1], ids))
        parts += [_encode_name(name), struct.pack("<II", *numbers.shape)]
        parts += [ids[order].astype("<u4").tobytes(), numbers[order].astype(width).tobytes()]
    return seal_message(UPDATE, federation.digest, number, b"".join(parts))


def most_update_bytes(
    federation: Federation, shapes: Mapping[str, tuple[int, ...]], rows: Mapping[str, int] | None
) -> int:
    """Return how many bytes an update has at most, if a device sends so many rows of each table at most."""
    if rows is None:
        return MOST_BYTES
    size, n_bytes = federation.ring.bits // 8, HEAD_BYTES + 1
    for name, shape in shapes.items():
        n_bytes += len(_encode_name(name)) + 8 + rows[name] * (4 + size * shape[1])
    return min(n_bytes, MOST_BYTES)


def refuse_longer(content: bytes, most_bytes: int) -> None:
    """Refuse an answer that is longer than any honest one to its message."""
    if len(content) > most_bytes:
        raise WireError(f"An answer has {len(content):,} bytes; an honest one has {most_bytes:,} at most.", AGAIN)


def read_update(
    federation: Federation, number: int, content: bytes, shapes: Mapping[str, tuple[int, ...]], client: int = 0
) -> Message:
    """Read one device's rows for round `number`; tables, widths, ids, values and lengths must be possible ones.

    Where a method sends each row once at most, so must the device, and no row or answer is longer than the clip.
    `client` is its number, and its row in client tables.
    """
    _, digest, named, body = unseal_message(content, (UPDATE,))
    _same(digest, federation)
    if named != number:
        raise WireError.because(ReasonCode.LATE_ANSWER, earlier=named, round=number)
    reader = _BodyReader(body)
    names: list[str] = []
    tables: dict[str, tuple[Numbers, NDArray[np.int32], Numbers]] = {}
    for _ in range(reader.byte()):
        name = reader.name()
        if name not in shapes:
            raise WireError(f"An update has a table '{name}', which the model does not have.", AGAIN)
        names.append(name)
        if name in federation.built.spec.client_tables:
            ptr, ids, numbers = _rows(reader, name, (1, *shapes[name][1:]), federation)
            tables[name] = ptr, ids + np.int32(client), numbers
        else:
            tables[name] = _rows(reader, name, shapes[name], federation)
    reader.end()
    if names != sorted(shapes):
        raise WireError(f"An update must have {sorted(shapes)}, once each and in this order, not {names}.", AGAIN)
    _check_lengths(federation, [numbers for _, _, numbers in tables.values()])
    nothing = np.zeros(1, np.int64)
    release = Release(nothing, nothing, np.array([len(content)]))  # a receiver knows sizes, not what was positive
    return Message(np.array([client]), tables, release)


@dataclass(frozen=True)
class SecureRequest:
    """A message of a secure sum to a device: in which phase, what, and with the first one the request itself."""

    round: int
    phase: int
    content: bytes
    request: bytes = b""
    directory: bytes = b""  # with the first one of a stage, where a witness is named: that the cohort is in it
    notices: bytes = b""  # with the same: who was revoked, and who has another key


def write_secure_request(federation: Federation, request: SecureRequest) -> bytes:
    """Write one message of a secure sum to a device: in version 1 unless it shows something of the directory."""
    head = struct.pack("<BI", request.phase, len(request.request)) + request.request
    if not request.directory and not request.notices:
        return seal_message(SECURE_REQUEST, federation.digest, request.round, head + request.content)
    shown = b"".join(struct.pack("<I", len(part)) + part for part in (request.directory, request.notices))
    return seal_message(SECURE_REQUEST, federation.digest, request.round, head + shown + request.content, 2)


def read_secure_request(federation: Federation, content: bytes) -> SecureRequest:
    """Read one message of a secure sum to a device; the sum's own machine judges what is in it."""
    _, digest, number, body = unseal_message(content, (SECURE_REQUEST,))
    _same(digest, federation)
    reader = _BodyReader(body)
    phase = reader.byte()
    request = reader.take(reader.number(MOST_BYTES, "request"))
    if version_of(content) < 2:
        return SecureRequest(number, phase, reader.rest(), request)
    directory = reader.take(reader.number(MOST_BYTES, "directory"))
    notices = reader.take(reader.number(MOST_BYTES, "list of notices"))
    if not directory and not notices:
        raise WireError("A message of version 2 has no directory, and could be of version 1.", AGAIN)
    return SecureRequest(number, phase, reader.rest(), request, directory, notices)


def write_secure_reply(federation: Federation, number: int, content: bytes) -> bytes:
    """Write a device's answer to a message of a secure sum."""
    return seal_message(SECURE_REPLY, federation.digest, number, content)


def read_secure_reply(federation: Federation, number: int, content: bytes) -> bytes:
    """Read a device's answer to a message of a secure sum of round `number`."""
    _, digest, named, body = unseal_message(content, (SECURE_REPLY,))
    _same(digest, federation)
    if named != number:
        raise WireError.because(ReasonCode.LATE_ANSWER, earlier=named, round=number)
    return body


def _rows(
    reader: _BodyReader, name: str, shape: tuple[int, ...], federation: Federation
) -> tuple[Numbers, NDArray[np.int32], Numbers]:
    ring, step = federation.ring, 0 if federation.built.spec.rows_repeat else 1
    n_rows, width = reader.number(2**31 - 1, "row count"), reader.number(2**31 - 1, "row width")
    if width != shape[1]:
        raise WireError(f"Rows of '{name}' are {shape[1]} wide, not {width}.", AGAIN)
    ids = np.frombuffer(reader.take(4 * n_rows), "<u4")
    size = ring.bits // 8
    numbers = np.frombuffer(reader.take(size * n_rows * width), f"<i{size}").reshape(n_rows, width).astype(np.int64)
    if n_rows and (int(ids.max()) >= shape[0] or (np.diff(ids.astype(np.int64)) < step).any()):
        once = ", each once" if step else ""
        raise WireError(f"Rows of '{name}' must lie in order between 0 and {shape[0] - 1}{once}.", AGAIN)
    most = int(ring.largest * float(ring.scale))
    if n_rows and (int(numbers.max()) > most or int(numbers.min()) < -most):
        raise WireError(f"A row of '{name}' has a number outside the ring.", AGAIN)
    if (np.lexsort((*numbers.T[::-1], ids)) != np.arange(n_rows)).any():
        raise WireError(f"Rows of '{name}' are not in canonical order.", AGAIN)
    return np.array([0, n_rows], np.int64), ids.astype(np.int32), numbers


def _check_lengths(federation: Federation, tables: list[Numbers]) -> None:
    """Refuse rows, or all rows together, that are longer than the clip allows; rounding to the grid is allowed for."""
    clip, scale = federation.clip, float(federation.ring.scale)
    if clip is None:
        return
    squares = [np.square(numbers / scale).sum(axis=1) for numbers in tables]
    width, cells = max(numbers.shape[1] for numbers in tables), sum(numbers.size for numbers in tables)
    for most, found, n_rounded in (
        (clip.row, max((float(rows.max(initial=0.0)) for rows in squares), default=0.0), width),
        (clip.person, sum(float(rows.sum()) for rows in squares), cells),
    ):
        if most is not None and found**0.5 > most * (1 + CLIP_TOLERANCE) + 0.5 * n_rounded**0.5 / scale:
            raise WireError("An update is longer than the members agreed on (clip).", AGAIN)


def pack(arrays: Shared) -> bytes:
    """Write arrays by name, in one way only."""
    return b"".join(pack_parts(arrays))


def pack_parts(arrays: Shared) -> list[bytes | memoryview]:
    """Return what `pack` writes in parts, so that large arrays are copied once, where they are joined."""
    parts: list[bytes | memoryview] = [struct.pack("<B", len(arrays))]
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        head, dtype = _array_head(name, array.dtype, array.shape)
        parts += [head, np.ascontiguousarray(array, dtype).data]
    return parts


@lru_cache(256)
def _array_head(name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> tuple[bytes, np.dtype[Any]]:
    """Return what stands before the numbers of an array, and their type in a message."""
    little, n_axes = dtype.newbyteorder("<"), len(shape)
    if little not in _CODES or n_axes > MOST_AXES:
        raise WireError(f"'{name}' of type {dtype} with {n_axes} axes cannot be sent.", "")
    return _encode_name(name) + struct.pack(f"<BB{n_axes}I", _CODES[little], n_axes, *shape), little


def unpack(content: bytes | memoryview) -> dict[str, Array]:
    """Read what `pack` wrote; each number must be finite."""
    found = decode_arrays(content)
    for name, array in found.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise WireError(f"'{name}' has a number that is not finite.", "Learning at the sender has diverged.")
    return found


def decode_arrays(content: bytes | memoryview) -> dict[str, Array]:
    """Read what `pack` wrote; the numbers may be anything."""
    reader = _BodyReader(content)
    found: dict[str, Array] = {}
    n_arrays, last = reader.byte(), ""
    if n_arrays > MOST_ARRAYS:
        raise WireError(f"A model of {n_arrays} arrays has too many.", AGAIN)
    for _ in range(n_arrays):
        name = reader.name()
        if name <= last:
            raise WireError(f"Arrays must come in order, each once; '{name}' follows '{last}'.", AGAIN)
        code, n_axes = reader.byte(), reader.byte()
        if code not in _DTYPES or n_axes > MOST_AXES:
            raise WireError(f"'{name}' has an unknown type ({code}) or too many axes ({n_axes}).", UPGRADE)
        shape, dtype = reader.numbers(n_axes, 2**31 - 1, "axis"), _DTYPES[code]
        numbers = reader.view(dtype.itemsize * math.prod(shape))
        try:
            found[name] = np.frombuffer(numbers, dtype).reshape(shape).copy()  # writable, as in a simulation
        except ValueError:  # no elements, and axes that numpy cannot have
            raise WireError(f"'{name}' has axes that are too long.", AGAIN) from None
        last = name
    reader.end()
    return found


def _same(digest: bytes, federation: Federation) -> None:
    if digest != federation.digest:
        raise WireError(
            f"This message belongs to another federation, method or catalogue than '{federation.title}'.",
            "The sender has changed the terms: join again with a new invitation.",
        )


def _encode_name(name: str) -> bytes:
    text = name.encode("ascii")
    return struct.pack("<B", len(text)) + text


@lru_cache(256)
def _decode_name(text: bytes) -> str:
    if not text.isascii() or not text.decode("ascii").replace("_", "a").isalnum():
        raise WireError(f"{text!r} is not the name of an array.", AGAIN)
    return text.decode("ascii")


def inflate(content: bytes) -> bytes:
    """Unpack a catalogue, or a change of one."""
    unpacker = zlib.decompressobj()
    try:
        result = unpacker.decompress(content, MOST_CATALOG)
    except zlib.error:
        raise WireError("The catalogue cannot be unpacked.", AGAIN) from None
    if not unpacker.eof or unpacker.unused_data:
        raise WireError("The catalogue is too large or cut short.", AGAIN)
    return result


class _BodyReader:
    """Takes bytes from the front and never past the end."""

    def __init__(self, content: bytes | memoryview) -> None:
        self._content, self._at, self._end = memoryview(content), 0, len(content)

    def view(self, n: int) -> memoryview:
        begin, end = self._at, self._at + n
        if end > self._end:
            raise WireError(f"A message ends {end - self._end:,} bytes early.", AGAIN)
        self._at = end
        return self._content[begin:end]

    def take(self, n: int) -> bytes:
        return bytes(self.view(n))

    def byte(self) -> int:
        return self.view(1)[0]

    def number(self, most: int, what: str) -> int:
        return self.numbers(1, most, what)[0]

    def numbers(self, n: int, most: int, what: str) -> tuple[int, ...]:
        found: tuple[int, ...] = struct.unpack(f"<{n}I", self.view(4 * n))
        for each in found:
            if each > most:
                raise WireError(f"A {what} of {each:,} is too large.", AGAIN)
        return found

    def name(self) -> str:
        return _decode_name(self.take(self.byte()))

    def rest(self) -> bytes:
        return self.take(self._end - self._at)

    def end(self) -> None:
        if self._at != self._end:
            raise WireError(f"A message has {self._end - self._at:,} bytes too many.", AGAIN)
