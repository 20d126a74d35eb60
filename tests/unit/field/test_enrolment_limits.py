"""How often an address may try to enrol, and with which keys."""

from __future__ import annotations

from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from tacit.field.carriers.enrolment_limits import BURST, MOST_ADDRESSES, EnrolmentLimit, is_device_key


def test_an_address_tries_again_and_again_and_others_do_not_wait_for_it() -> None:
    now = 0.0
    limit = EnrolmentLimit(lambda: now)
    assert [limit.allows("a") for _ in range(int(BURST) + 5)] == [True] * int(BURST) + [False] * 5
    assert limit.allows("b")
    now = 2.0
    assert [limit.allows("a") for _ in range(3)] == [True, True, False]
    for number in range(2 * MOST_ADDRESSES):
        limit.allows(str(number))
    assert len(limit._left) == MOST_ADDRESSES


def written(key: Any) -> bytes:
    return bytes(key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo))


def test_only_keys_as_devices_make_them_are_keys() -> None:
    right = written(ec.generate_private_key(ec.SECP384R1()).public_key())
    assert is_device_key(right)
    others = ec.generate_private_key(ec.SECP256R1()).public_key(), ed25519.Ed25519PrivateKey.generate().public_key()
    wrong = [written(key) for key in others]
    for key in (
        b"",
        b"\0",
        b"\0" * 900,
        right + b"\n",
        right[:-20],
        right.replace(b"\n", b"\r\n"),
        b"x" + right,
        *wrong,
    ):
        assert not is_device_key(key)
