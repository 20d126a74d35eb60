"""The vault: a passphrase opens a data key, and the data key seals every row of a device's file.

scrypt turns the passphrase into a key that does nothing but wrap the data key (AES-256-GCM), so a passphrase can be
changed without touching a row. Each row is sealed (AES-256-GCM, a fresh nonce of 96 bits) with its place in the file as
associated data: a row that is moved, swapped or taken from another file does not open. Secrets come from the system's
entropy, never from `tacit.random`.
"""

from __future__ import annotations

import secrets
from typing import Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt
from pydantic import Field, ValidationError, model_validator

from tacit.errors import DeviceError
from tacit.types import Config

KEY_BYTES, NONCE_BYTES, SALT_BYTES = 32, 12, 16
SHORTEST = 8  # characters of a passphrase: below that, stretching it does not help


class ScryptCost(Config):
    """What one try of a passphrase costs: scrypt needs 128 · r · 2^log_n bytes of memory, p times over."""

    log_n: int = Field(16, ge=10, le=20, description="2^16 with r = 8: 64 MB and about a fifth of a second")
    r: int = Field(8, ge=1, le=16)
    p: int = Field(1, ge=1, le=4)

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if 128 * self.r * 2**self.log_n > 2**30:
            raise ValueError("a passphrase must not need more than 1 GB of memory")
        return self


class Lock(Config):
    """What stands in the clear in a device's file: how its data key is wrapped."""

    cost: ScryptCost
    salt: str = Field(pattern=r"^[0-9a-f]{32}$")
    wrapped: str = Field(pattern=r"^[0-9a-f]{120}$")

    @classmethod
    def parse(cls, text: str) -> Lock:
        """Read it back; a lock that cannot be is a damaged file."""
        try:
            return cls.model_validate_json(text)
        except ValidationError:
            raise DeviceError(
                "The lock of this device's file is damaged.", "Restore a copy: tacit device import."
            ) from None


class Vault:
    """An open vault. It holds the data key in memory; Python cannot wipe it reliably when it is gone."""

    def __init__(self, data_key: bytes, file_id: str) -> None:
        self._data_key, self._file_id, self._cipher = data_key, file_id, AESGCM(data_key)

    @classmethod
    def create(cls, file_id: str) -> Vault:
        """Draw a new data key."""
        return cls(secrets.token_bytes(KEY_BYTES), file_id)

    @classmethod
    def open(cls, lock: Lock, passphrase: str, file_id: str) -> Vault:
        """Open with a passphrase; a wrong one is a DeviceError."""
        wrapped, salt = bytes.fromhex(lock.wrapped), bytes.fromhex(lock.salt)
        try:
            cipher = AESGCM(_stretch(passphrase, salt, lock.cost))
            return cls(cipher.decrypt(wrapped[:NONCE_BYTES], wrapped[NONCE_BYTES:], _bind(file_id, lock.cost)), file_id)
        except InvalidTag:
            raise DeviceError(
                "The passphrase is wrong.", "Try again; nothing was changed. The file cannot be opened without it."
            ) from None

    def lock(self, passphrase: str, cost: ScryptCost) -> Lock:
        """Wrap the data key with a passphrase. Short ones are refused only here: old files open as they did."""
        if not passphrase:
            raise DeviceError("The passphrase is empty.", "Choose one of several words.")
        length = len(passphrase.strip())
        if length < SHORTEST:
            raise DeviceError(
                f"A passphrase of {length} character{'' if length == 1 else 's'} is too short: somebody with the file "
                "can try them all.",
                f"Choose at least {SHORTEST} characters, best several words.",
            )
        salt, nonce = secrets.token_bytes(SALT_BYTES), secrets.token_bytes(NONCE_BYTES)
        cipher = AESGCM(_stretch(passphrase, salt, cost))
        wrapped = nonce + cipher.encrypt(nonce, self._data_key, _bind(self._file_id, cost))
        return Lock(cost=cost, salt=salt.hex(), wrapped=wrapped.hex())

    def seal(self, content: bytes, table: str, row: int | str) -> bytes:
        """Return content that only opens at this place of this file."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, content, self._place(table, row))

    def unseal(self, sealed: bytes, table: str, row: int | str) -> bytes:
        """Return what was sealed; anything changed since is a DeviceError."""
        try:
            return self._cipher.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], self._place(table, row))
        except (InvalidTag, ValueError, TypeError):
            raise DeviceError(
                f"A row of this device's file is damaged ({table} {row}).", "Restore a copy: tacit device import."
            ) from None

    def _place(self, table: str, row: int | str) -> bytes:
        return f"tacit/1/{self._file_id}/{table}/{row}".encode()


def _stretch(passphrase: str, salt: bytes, cost: ScryptCost) -> bytes:
    return Scrypt(salt=salt, length=KEY_BYTES, n=2**cost.log_n, r=cost.r, p=cost.p).derive(passphrase.encode())


def _bind(file_id: str, cost: ScryptCost) -> bytes:
    return f"tacit/1/{file_id}/{cost.log_n}/{cost.r}/{cost.p}".encode()
