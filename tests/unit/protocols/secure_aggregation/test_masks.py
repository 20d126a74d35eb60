"""Key streams, and what they make of a vector."""

from __future__ import annotations

import secrets

import numpy as np
import pytest
from scipy.stats import kstest

from helpers.noise import uniform_p
from helpers.secure_session import PHASES, Party
from tacit.protocols.secure_aggregation.encoding import rows_layout
from tacit.protocols.secure_aggregation.local_session import _answer
from tacit.protocols.secure_aggregation.masks import PIECE, Vector, bytes_of, mask
from tacit.updates import Ring

SIZES = (PIECE // 8 + 3, PIECE // 4 + 5, PIECE // 2 + 7)  # more than a piece of each width


def test_the_stream_is_aes_256_in_counter_mode() -> None:
    vector = Vector((4, 0, 0))
    mask(vector, [bytes(32)], [])
    # AES-256 of the blocks 0 and 1 under the zero key: published test vectors
    assert vector.tobytes().hex() == "dc95c078a2408989ad48a21492842087530f8afbc74536b9a963b4f1c4cb738b"


def test_masks_cancel_and_sums_wrap() -> None:
    keys = [secrets.token_bytes(32) for _ in range(3)]
    vector = Vector(SIZES)
    for part in vector.parts:
        part[:] = np.arange(len(part)).astype(part.dtype) - part.dtype.type(5)
    before = vector.tobytes()
    mask(vector, keys[:2], keys[2:])
    assert vector.tobytes() != before
    mask(vector, keys[2:], keys[:2])
    assert vector.tobytes() == before


def test_a_stream_does_not_depend_on_how_the_vector_is_cut() -> None:
    key = secrets.token_bytes(32)
    wide, narrow = Vector((PIECE // 8 + 8, 0, 0)), Vector((0, PIECE // 4 + 16, 0))
    mask(wide, [key], [])
    mask(narrow, [key], [])
    assert wide.tobytes() == narrow.tobytes()


def test_masked_vectors_look_uniform_whatever_is_in_them() -> None:
    words = 10**6
    for filled in (0, 1, 2**31):
        vector = Vector((0, words, 0))
        vector.parts[1][:] = filled
        mask(vector, [secrets.token_bytes(32) for _ in range(2)], [secrets.token_bytes(32)])
        assert uniform_p(vector.parts[1]) > 1e-5


def test_a_masked_vector_is_independent_of_its_input() -> None:
    size = 200_000
    inputs = np.random.default_rng(1).integers(0, 2**32, size, dtype=np.uint32)
    vector = Vector((0, size, 0), inputs.tobytes())
    mask(vector, [secrets.token_bytes(32)], [])
    together = np.corrcoef(inputs.astype(float), vector.parts[1].astype(float))[0, 1]
    assert abs(together) * np.sqrt(size) < 5


@pytest.mark.parametrize("sizes", [(0, 0, 0), (1, 2, 3), (0, 1, 1)])
def test_vectors_travel_as_their_bytes(sizes: tuple[int, int, int]) -> None:
    data = secrets.token_bytes(bytes_of(sizes))
    assert Vector(sizes, data).tobytes() == data


def test_a_canary_is_in_no_byte_that_leaves_a_device() -> None:
    """Numbers that can be told among others stand in one person's vector, in each width; nothing sent holds them."""
    layout = rows_layout({"items": (40, 3), "layers": (1, 4)}, Ring(bits=32), 4)
    canary = {8: b"\xc0\xffee\xc0\xde\x11\x22", 4: b"\xca\xfe\xf0\x0d"}
    party = Party.of(4, layout=layout)
    said = []
    for phase in PHASES:
        for person in range(4):
            vector = Vector(layout.sizes)
            for part in vector.parts[:2]:
                part[:] = np.frombuffer(canary[part.itemsize], part.dtype)[0] if person == 1 else 0
            said.append(_answer(party.devices[person], phase, party.inbox[person], lambda vector=vector: vector))
            party.server.receive(said[-1])
        party.inbox = party.server.advance()
    assert all(word not in message for message in said for word in canary.values())
    assert all(word in party.server.total.tobytes() for word in canary.values()), (
        "the sum is one device's vector: others sent zeros"
    )


@pytest.mark.fuzz
@pytest.mark.parametrize("filled", [0, 1, 2**31])
def test_ten_million_masked_words_look_uniform(filled: int) -> None:
    vector = Vector((0, 10**7, 0))
    vector.parts[1][:] = filled
    mask(vector, [secrets.token_bytes(32)], [secrets.token_bytes(32)])
    assert uniform_p(vector.parts[1]) > 1e-4
    assert kstest(vector.parts[1] / 2.0**32, "uniform").pvalue > 1e-4
