"""Invitations: one line of text with which a device enrols itself. The word in it works once, and not for ever."""

from __future__ import annotations

import base64
import binascii
import json
import ssl
import time
from collections.abc import Iterable
from dataclasses import dataclass

import httpx
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tacit.errors import ConsentError, FieldError
from tacit.field.device import Device
from tacit.field.device.membership import Membership
from tacit.reasons import ReasonCode

PREFIX = "tacit1:"
ENROL = "/v1/tacit/enrol"
SECONDS = 30.0  # for each sign of life
WHOLE_SECONDS = 300.0  # for a whole welcome, once it begins
MOST_BYTES = 2**27


@dataclass(frozen=True)
class Invitation:
    """Where the coordinator is, how to know that it is the right one, and the word that enrols."""

    address: str
    word: str
    roots: str  # certificate of its authority, PEM; empty: the machine's own roots

    def line(self) -> str:
        """Write it as one line."""
        about = json.dumps({"a": self.address, "w": self.word, "r": self.roots}).encode()
        return PREFIX + base64.urlsafe_b64encode(about).decode().rstrip("=")

    @classmethod
    def parse(cls, line: str) -> Invitation:
        """Read it from one line."""
        text = "".join(line.split())
        try:
            if not text.startswith(PREFIX):
                raise ValueError
            body = text.removeprefix(PREFIX)
            about = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
            address, word, roots = about["a"], about["w"], about["r"]
            if not all(isinstance(part, str) for part in (address, word, roots)) or not address or not word:
                raise ValueError
        except (ValueError, KeyError, TypeError, binascii.Error):
            raise FieldError(
                "This is not an invitation, or a part of it is missing.", "Copy the whole line, from 'tacit1:' on."
            ) from None
        return cls(address, word, roots)


def accept(device: Device, invitation: Invitation) -> Membership:
    """Enrol a device and make it a member. It may be tried again with the same invitation, also after a crash."""
    return device.join(enrol(invitation, *public_keys(device, invitation)), invitation.address)


def public_keys(device: Device, invitation: Invitation) -> tuple[bytes, bytes, bytes]:
    """Return the public keys that a device shows to a coordinator; its own for that line is made and kept first.

    The third is the proof that the identity, the second, is its own.

    A member is refused here: an invitation that it cannot accept must not replace the connection to its federation.
    """
    if device.membership is not None:
        raise ConsentError.because(ReasonCode.ALREADY_A_MEMBER)
    line = device.connection
    if line.get("address") != invitation.address or "key" not in line:
        private = ec.generate_private_key(ec.SECP384R1())
        pem = private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        line = {"address": invitation.address, "roots": invitation.roots, "key": pem.decode()}
        device.keep_connection(line)
    key = serialization.load_pem_private_key(line["key"].encode(), None)
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return public, device.identity, device.prove_identity(invitation.word, public)


def enrol(invitation: Invitation, public: bytes, identity: bytes, proof: bytes) -> bytes:
    """Show the invitation to the coordinator, which may take a while; return what it welcomes with."""
    try:
        context = ssl.create_default_context(cadata=invitation.roots or None)
    except (ssl.SSLError, TypeError, ValueError):  # not a certificate, or not even text of the right kind
        raise FieldError("The certificate in the invitation is damaged.", "Ask for another invitation.") from None
    keys = {"key": public, "identity": identity, "proof": proof}
    asked = {"word": invitation.word} | {name: base64.b64encode(key).decode() for name, key in keys.items()}
    try:
        with (
            httpx.Client(verify=context, timeout=SECONDS) as client,
            client.stream("POST", f"https://{invitation.address}{ENROL}", json=asked) as response,
        ):
            if response.status_code == 403:
                raise FieldError("The invitation was used already, or has expired.", "Ask for another one.")
            if response.status_code != 200:
                raise FieldError(
                    f"{invitation.address} refused the invitation (HTTP {response.status_code}).", "Ask the operator."
                )
            return _whole(response.iter_bytes(), time.monotonic() + WHOLE_SECONDS)
    except (httpx.InvalidURL, UnicodeError):
        raise FieldError(
            f"The address in the invitation is damaged: {invitation.address!r}.", "Ask for another invitation."
        ) from None
    except httpx.HTTPError as error:
        raise FieldError(
            f"{invitation.address} cannot be reached, or has another certificate than the invitation says: {error}.",
            "Check the network and the address; the invitation stays valid.",
        ) from None


def _whole(parts: Iterable[bytes], until: float) -> bytes:
    """Put a welcome together; one that has no end, or comes drop by drop, is given up."""
    content = bytearray()
    for part in parts:
        content += part
        if len(content) > MOST_BYTES:
            raise FieldError("The answer of the coordinator is too large.", "Ask the operator.")
        if time.monotonic() > until:
            raise FieldError("The coordinator answers too slowly.", "Try again; the invitation stays valid.")
    return bytes(content)
