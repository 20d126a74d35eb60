"""What a device signs when it enrols: a coordinator then knows that the identity is the device's own."""

from __future__ import annotations

import hashlib


def enrolment_statement(word: str, key: bytes) -> bytes:
    """Return what the identity key signs: the invitation's word, and the key that the carrier will know the device by.

    >>> enrolment_statement("word", b"key") == enrolment_statement("wor", b"dkey")
    False
    """
    return b"tacit enrolment" + hashlib.sha256(word.encode()).digest() + hashlib.sha256(key).digest()


def hand_over_statement(old: bytes, new: bytes) -> bytes:
    """Return what the identity key signs when a device changes the key that the carrier knows it by.

    >>> hand_over_statement(b"a", b"b") == hand_over_statement(b"b", b"a")
    False
    """
    return b"tacit hand-over" + hashlib.sha256(old).digest() + hashlib.sha256(new).digest()
