"""Invitations: one line of text with which a device enrols itself. The word in it works once, and not for ever."""

from __future__ import annotations

import base64
from collections.abc import Collection
from dataclasses import dataclass

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tacit.errors import ConsentError, FieldError
from tacit.field.coordinator_requests import (
    CoordinatorRequests,
    DamagedAddressError,
    DamagedCertificateError,
    NoAnswerError,
)
from tacit.field.device import Device
from tacit.field.device.membership import Membership
from tacit.languages.sentences import Sentence
from tacit.protocols.directory import read_key, write_key
from tacit.reasons import ReasonCode
from tacit.wire.amendments import PATH as AMENDMENTS
from tacit.wire.lines import read_line, write_line
from tacit.wire.versions import HEADER as VERSIONS
from tacit.wire.versions import OWN, VersionRanges, refuse_other_versions

PREFIX = "tacit1:"
ENROL = "/v1/tacit/enrol"


@dataclass(frozen=True)
class Invitation:
    """Where the coordinator is, how to know that it is the right one, and the word that enrols."""

    address: str
    word: str
    roots: str  # certificate of its authority, PEM; empty: the machine's own roots
    witness: str = ""  # public key of the witness of its directory; empty: there is none

    def line(self) -> str:
        """Write it as one line."""
        named = {"k": self.witness} if self.witness else {}
        return write_line(PREFIX, {"a": self.address, "w": self.word, "r": self.roots, **named})

    @classmethod
    def parse(cls, line: str) -> Invitation:
        """Read it from one line."""
        try:
            about = read_line(PREFIX, line)
            address, word, roots, witness = about["a"], about["w"], about["r"], about.get("k", "")
            if not all(isinstance(part, str) for part in (address, word, roots, witness)) or not address or not word:
                raise ValueError
            witness = write_key(read_key(witness)) if witness else ""
        except (ValueError, KeyError):
            raise FieldError(
                "This is not an invitation, or a part of it is missing.", "Copy the whole line, from 'tacit1:' on."
            ) from None
        return cls(address, word, roots, witness)


def accept(device: Device, invitation: Invitation, accepts: Collection[ReasonCode] = ()) -> Membership:
    """Enrol a device and make it a member: see `DeviceTerms.join`.

    It may be tried again with the same invitation, after a crash or once the user accepts what was refused.
    """
    try:
        welcome = enrol(invitation, *public_keys(device, invitation))
    except InvitationError:
        device.terms.forget_enrolment()
        raise
    return device.join(welcome, invitation.address, invitation.witness, accepts)


class InvitationError(FieldError):
    """An invitation that will never work: nothing of it is stored."""


def public_keys(device: Device, invitation: Invitation) -> tuple[bytes, bytes, bytes]:
    """Return the public keys that a device shows to a coordinator; the key of the connection is stored first.

    The third is the proof that the identity, the second, is its own.

    A member is refused here: an invitation that it cannot accept must not replace the connection to its federation.
    """
    if device.membership is not None:
        raise ConsentError.because(ReasonCode.ALREADY_A_MEMBER)
    line = device.terms.enrolment
    if (line.get("address"), line.get("roots")) != (invitation.address, invitation.roots) or "key" not in line:
        line = {"address": invitation.address, "roots": invitation.roots, "key": draw_key()}
        device.terms.keep_enrolment(line)
    public = public_half(line["key"])
    return public, device.identity, device.keys.prove(invitation.word, public)


def draw_key() -> str:
    """Return a new key for the connection to a coordinator, PEM."""
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return ec.generate_private_key(ec.SECP384R1()).private_bytes(*form).decode()


def public_half(pem: str) -> bytes:
    """Return the public half of a key as the coordinator knows it."""
    key = serialization.load_pem_private_key(pem.encode(), None)
    return key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def enrol(invitation: Invitation, public: bytes, identity: bytes, proof: bytes) -> bytes:
    """Show the invitation to the coordinator, which may take a while; return its welcome message."""
    keys = {"key": public, "identity": identity, "proof": proof}
    asked = {"word": invitation.word} | {name: base64.b64encode(key).decode() for name, key in keys.items()}
    address = invitation.address
    try:
        with CoordinatorRequests(address, invitation.roots) as requests:
            answer = requests.post(ENROL, asked, {VERSIONS: OWN.write()})
    except DamagedCertificateError:
        raise InvitationError("The certificate in the invitation is damaged.", "Ask for another invitation.") from None
    except DamagedAddressError:
        raise InvitationError(
            Sentence("The address in the invitation is damaged: {address!r}.", address=address),
            "Ask for another invitation.",
        ) from None
    except NoAnswerError as error:
        raise FieldError(
            Sentence(
                "{address} cannot be reached, or has another certificate than the invitation says: {error}.",
                address=address,
                error=error.why,
            ),
            "Check the network and the address; the invitation stays valid.",
        ) from None
    refuse_other_versions(address, VersionRanges.read(answer.headers.get(VERSIONS, "")))
    if answer.status == 403:
        raise InvitationError("The invitation was used already, or has expired.", "Ask for another one.")
    if answer.status in (429, 503):
        raise FieldError(
            Sentence("{address} has too many devices to enrol at once.", address=address),
            "Try again in a minute; the invitation stays valid.",
        )
    if answer.status != 200:
        raise FieldError(
            Sentence("{address} refused the invitation (HTTP {status}).", address=address, status=answer.status),
            "Ask the operator.",
        )
    return answer.content


def fetch_amendments(address: str, roots: bytes | None, digest: bytes) -> bytes:
    """Ask the coordinator what has changed since the terms of a digest; nothing if it does not know them."""
    try:
        with CoordinatorRequests(address, (roots or b"").decode()) as requests:
            answer = requests.get(f"{AMENDMENTS}/{digest.hex()}")
    except NoAnswerError as error:
        raise _no_answer_error(address, error.why) from None
    if answer.status not in (200, 404):
        raise _no_answer_error(address, f"HTTP {answer.status}")
    return answer.content


def _no_answer_error(address: str, why: str) -> FieldError:
    return FieldError(
        Sentence("{address} does not say what has changed: {error}.", address=address, error=why),
        "It will be tried again.",
    )
