"""What enrolling can cost a coordinator: how often unknown senders may try, and with which keys."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

ENROL, WITNESS, HAND_OVER = "/v1/tacit/enrol", "/v1/tacit/witness", "/v1/tacit/hand-over"
NEW_IDENTITY_KEY = "/v1/tacit/new-identity-key"
AT_ONCE = 8  # enrolments that are checked at the same time
BURST, PER_SECOND = 60.0, 1.0  # tries of one address: so many at once, then so many a second
MOST_ADDRESSES = 10_000


class EnrolmentLimit:
    """How often each address may try to enrol a device; addresses are kept in memory only, and not for long."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # address -> tries left, and when

    def allows(self, address: str) -> bool:
        """Count one try of an address; say whether it may."""
        now = self._clock()
        left, since = self._left.pop(address, (BURST, now))
        left = min(BURST, left + (now - since) * PER_SECOND)
        is_allowed = left >= 1
        self._left[address] = (left - 1 if is_allowed else left, now)
        while len(self._left) > MOST_ADDRESSES:
            self._left.popitem(last=False)
        return is_allowed


def is_device_key(key: bytes) -> bool:
    """Say whether some bytes are a public key as devices make it, written as they write it."""
    try:
        public = serialization.load_pem_public_key(key)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return False
    if not isinstance(public, ec.EllipticCurvePublicKey) or not isinstance(public.curve, ec.SECP384R1):
        return False
    form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    return public.public_bytes(*form) == key
