"""The vault: a passphrase opens a data key, and the data key seals every row of a device's file.

scrypt turns the passphrase into a key that does nothing but wrap the data key (AES-256-GCM), so a passphrase can be
changed without touching a row. Each row is padded to one of a few lengths and sealed (AES-256-GCM, a fresh nonce of 96
bits) with its place in the file as associated data. So a row that is moved, swapped or taken from another file does not
open. The marks of rows, by which the sealed root knows them, are made here too. Secrets come from the system's entropy,
never from `tacit.random`.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt
from pydantic import Field, ValidationError, model_validator

from tacit.errors import DeviceError
from tacit.field.device.sealed_root import RESTORE, damage_error
from tacit.types import Config

KEY_BYTES, NONCE_BYTES, SALT_BYTES, TAG_BYTES = 32, 12, 16, 16
LEAST_BYTES = {"history": 128, "marks": 256, "ledger": 1024}  # of a row before it is sealed; others: LEAST
LEAST = 512
DOUBLED = 2**16  # up to here lengths double from one to the next; then there are eight between two powers of two
END = b"\x80"  # after the content of a padded row
SHORTEST = 8  # characters of a passphrase: below that, stretching it does not help


class ScryptCost(Config):
    """What one try of a passphrase costs: scrypt needs 128 · r · 2^log_n bytes of memory, p times over."""

    log_n: int = Field(17, ge=10, le=20, description="2^17 with r = 8: 128 MB and about half a second")
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
            raise DeviceError("The lock of this device's file is damaged.", RESTORE) from None


class Vault:
    """An open vault. It holds the data key in memory; Python cannot wipe it reliably when it is gone."""

    def __init__(self, data_key: bytes, file_id: str) -> None:
        self.data_key, self.file_id, self._cipher = data_key, file_id, AESGCM(data_key)
        self._mark_key = HKDFExpand(SHA256(), KEY_BYTES, b"tacit/2/marks").derive(data_key)

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
                f"A passphrase of {length} character{'' if length == 1 else 's'} is too short: whoever has the file "
                "can try them all.",
                f"Choose at least {SHORTEST} characters, best several words.",
            )
        salt, nonce = secrets.token_bytes(SALT_BYTES), secrets.token_bytes(NONCE_BYTES)
        cipher = AESGCM(_stretch(passphrase, salt, cost))
        wrapped = nonce + cipher.encrypt(nonce, self.data_key, _bind(self.file_id, cost))
        return Lock(cost=cost, salt=salt.hex(), wrapped=wrapped.hex())

    def seal(self, content: bytes, table: str, row: int | str) -> bytes:
        """Return content that only opens at this place of this file; its length reveals little of the content's."""
        nonce, padded = secrets.token_bytes(NONCE_BYTES), _pad(content, LEAST_BYTES.get(table, LEAST))
        return nonce + self._cipher.encrypt(nonce, padded, self._place(2, table, row))

    def unseal(self, sealed: bytes, table: str, row: int | str) -> bytes:
        """Return what was sealed; anything changed since is a DeviceError."""
        return self._unseal(sealed, 2, table, row).rstrip(b"\0")[: -len(END)]

    def unseal_former(self, sealed: bytes, table: str, row: int | str) -> bytes:
        """Return what a file before format 3 holds, whose rows are not padded."""
        return self._unseal(sealed, 1, table, row)

    def mark(self, sealed: bytes, table: str, row: int | str) -> int:
        """Return the mark by which the root knows a sealed row: of its place, nonce and tag."""
        content = f"{table}/{row}\0".encode() + sealed[:NONCE_BYTES] + sealed[-TAG_BYTES:]
        return self.mark_bytes(content)

    def mark_bytes(self, content: bytes) -> int:
        """Return a mark of bytes that only this vault can make."""
        return int.from_bytes(hashlib.blake2b(content, key=self._mark_key, digest_size=32).digest())

    def _unseal(self, sealed: bytes, version: int, table: str, row: int | str) -> bytes:
        try:
            place = self._place(version, table, row)
            return self._cipher.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], place)
        except (InvalidTag, ValueError, TypeError):
            raise damage_error(table, row) from None

    def _place(self, version: int, table: str, row: int | str) -> bytes:
        return f"tacit/{version}/{self.file_id}/{table}/{row}".encode()


def _pad(content: bytes, least: int) -> bytes:
    needed = len(content) + len(END)
    step = least if needed <= least else 1 << (needed - 1).bit_length()
    if needed > DOUBLED:
        step >>= 4
    return (content + END).ljust(-(-needed // step) * step, b"\0")


def _stretch(passphrase: str, salt: bytes, cost: ScryptCost) -> bytes:
    return Scrypt(salt=salt, length=KEY_BYTES, n=2**cost.log_n, r=cost.r, p=cost.p).derive(passphrase.encode())


def _bind(file_id: str, cost: ScryptCost) -> bytes:
    return f"tacit/1/{file_id}/{cost.log_n}/{cost.r}/{cost.p}".encode()
