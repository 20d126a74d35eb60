"""What a device signs when it enrols: a coordinator then knows that the identity is the device's own."""

from __future__ import annotations

import hashlib


def enrolment_statement(word: str, key: bytes) -> bytes:
    """Return what the identity key signs: the invitation's word, and the key that the carrier will know the device by.

    >>> enrolment_statement("word", b"key") == enrolment_statement("wor", b"dkey")
    False
    """
    return b"tacit enrolment" + hashlib.sha256(word.encode()).digest() + hashlib.sha256(key).digest()
