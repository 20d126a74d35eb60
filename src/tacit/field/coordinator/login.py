"""Enrolment by an existing login: the operator's login server signs a token, which stands in place of an invitation.

    token   login.PAYLOAD.SIGNATURE, both in base64 without padding
    payload {"e": expires, unix seconds, "f": the federation's id, "s": a pseudonym of the account}, keys in this order
    signature  Ed25519 over "tacit login" and the payload's bytes

The coordinator learns the pseudonym and no account: it counts how many devices each pseudonym has enrolled. Who makes
pseudonyms decides what they say; `make_pseudonym` makes them of the account under a key of the login server.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import time
from pathlib import Path

from pydantic import Field

from tacit.errors import FieldError, ForgedError
from tacit.protocols.secure_aggregation.identity import KEY_BYTES, Identity, verify
from tacit.types import Config
from tacit.wire.lines import decode_text, encode_text

PREFIX, LABEL, STATEMENT = "login.", "login:", b"tacit login"
MOST_TOKEN = 2000  # characters
PSEUDONYM = re.compile(r"[0-9a-zA-Z_-]{8,128}")


class LoginRules(Config):
    """Whose tokens enrol devices, and how many for one account."""

    key: str = Field(
        pattern=r"^[0-9a-f]{64}$", description="public key of the login server: tacit federation login-key"
    )
    devices: int = Field(2, ge=1, le=1000, description="devices that one account may enrol, revoked ones included")


def make_pseudonym(secret: bytes, federation: str, account: str) -> str:
    """Return the pseudonym of an account in a federation; it cannot be traced back without the secret."""
    return hmac.new(secret, f"{federation}\0{account}".encode(), hashlib.sha256).hexdigest()[:32]


def sign_token(key: Identity, federation: str, pseudonym: str, expires: int) -> str:
    """Return a token that enrols a device of an account."""
    payload = json.dumps({"e": expires, "f": federation, "s": pseudonym}, separators=(",", ":")).encode()
    parts = (payload, key.sign(STATEMENT + payload))
    return PREFIX + ".".join(encode_text(part) for part in parts)


def read_token(token: str, rules: LoginRules, federation: str, now: int) -> str | None:
    """Return the pseudonym of a token; none if it is forged, expired, or for another federation."""
    parts = token.removeprefix(PREFIX).split(".")
    if not token.startswith(PREFIX) or len(token) > MOST_TOKEN or len(parts) != 2:
        return None
    try:
        payload, signature = (decode_text(part) for part in parts)
        verify(bytes.fromhex(rules.key), STATEMENT + payload, signature, 0)
        about = json.loads(payload)
        expires, subject = about["e"], about["s"]
        is_right = about["f"] == federation and type(expires) is int and expires > now
        return subject if is_right and isinstance(subject, str) and PSEUDONYM.fullmatch(subject) else None
    except (ValueError, KeyError, TypeError, RecursionError, ForgedError):
        return None


def make_login_key(path: Path) -> str:
    """Write a new secret key of a login server into a file that only its owner can read; return its public half."""
    key = Identity.fresh()
    try:
        path.touch(0o600, exist_ok=False)
        path.write_text(key.secret.hex() + "\n")
    except OSError as error:
        raise FieldError(f"'{path}' cannot be written: {error.strerror}.", "Choose another file.") from None
    return key.public.hex()


def read_login_key(path: Path) -> Identity:
    """Read what `make_login_key` wrote."""
    try:
        secret = bytes.fromhex(path.read_text().strip())
        if len(secret) != KEY_BYTES:
            raise ValueError(f"it has {len(secret)} bytes instead of {KEY_BYTES}")
        return Identity(secret)
    except (OSError, ValueError) as error:
        raise FieldError(
            f"'{path}' is no key of a login server: {error}.", "Make one: tacit federation login-key."
        ) from None


def sign_account(key: Identity, federation: str, account: str, days: float) -> str:
    """Return a token for an account, whose pseudonym is made under the login server's own key."""
    secret = hashlib.sha256(b"tacit pseudonyms" + key.secret).digest()
    return sign_token(key, federation, make_pseudonym(secret, federation, account), int(time.time() + days * 86_400))
