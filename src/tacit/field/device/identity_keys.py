"""The identity keys of a device: what it signs with them, and how another key takes the place of one."""

from __future__ import annotations

from collections.abc import Mapping

from tacit.field.device.device_file import DeviceFile
from tacit.field.device.masked_rounds import MaskedRounds
from tacit.protocols.notices import Notice, key_change
from tacit.protocols.secure_aggregation import Identity
from tacit.wire.enrolment import enrolment_statement, hand_over_statement


class IdentityKeys:
    """The identity of a device, in its present federation."""

    def __init__(self, file: DeviceFile, masked: MaskedRounds) -> None:
        self._file, self._masked = file, masked

    def prove(self, word: str, key: bytes) -> bytes:
        """Return the signature that shows a coordinator, at enrolment, that the identity is this device's own."""
        return self._masked.identity.sign(enrolment_statement(word, key))

    def sign_change(self, new: Identity) -> Notice:
        """Return the notice by which another key signs for this device's identity."""
        return key_change(self._masked.identity, new, bytes.fromhex(self._file.federation_id))

    def draw_next(self) -> Identity:
        """Draw another key for the same identity; it holds once the coordinator has taken it."""
        return self._masked.identity.renew()

    def adopt(self, new: Identity, line: Mapping[str, str]) -> None:
        """Sign with another key from now on, and keep the connection without what was asked for."""
        with self._file.store.transaction():
            self._masked.adopt_key(new)
            self._file.store.put_json("line", dict(line))

    def sign_hand_over(self, old: bytes, new: bytes) -> bytes:
        """Return the signature by which a coordinator lets this device have a new key in place of its old one."""
        return self._masked.identity.sign(hand_over_statement(old, new))
