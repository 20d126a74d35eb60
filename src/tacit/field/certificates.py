"""Certificates for coordinators that have none: an authority of their own, and a server's certificate from it.

Devices trust this authority alone, so that dates protect little here. They must not keep out a device whose clock is
wrong by a year: certificates began long ago, and last two years longer than a coordinator should run without a restart.
"""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tacit.errors import FieldError

AUTHORITY_DAYS, SERVER_DAYS, RENEW_DAYS = 3650, 1095, 730
BEGINNING = datetime(2020, 1, 1, tzinfo=UTC)  # of the validity of every certificate


@dataclass(frozen=True)
class Certificates:
    """Files of a server: its certificate, its key, and what devices must trust."""

    certificate: Path
    key: Path
    roots: str  # PEM; empty: the machine's own roots


def make_certificates(folder: Path, host: str, now: datetime | None = None) -> Certificates:
    """Return an authority and a certificate for `host`, made or renewed where that is due."""
    moment = now or datetime.now(UTC)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    authority, authority_key = folder / "authority.pem", folder / "authority.key"
    certificate, key = folder / "server.pem", folder / "server.key"
    if not authority.exists():
        signer = ec.generate_private_key(ec.SECP256R1())
        name = _x509_name("Tacit federation")
        _write(authority_key, _private(signer))
        _write(authority, _sign(name, name, signer, signer, moment, AUTHORITY_DAYS, None))
    if not certificate.exists() or _is_due(certificate, host, moment):
        signer = serialization.load_pem_private_key(authority_key.read_bytes(), None)  # type: ignore[assignment]
        issuer = x509.load_pem_x509_certificate(authority.read_bytes()).subject
        own = ec.generate_private_key(ec.SECP256R1())
        _write(key, _private(own))
        _write(certificate, _sign(_x509_name(host), issuer, own, signer, moment, SERVER_DAYS, host))
    return Certificates(certificate, key, authority.read_text())


def load_certificates(certificate: Path, key: Path, roots: Path | None, now: datetime | None = None) -> Certificates:
    """Take an operator's own certificate; one that has expired is refused."""
    moment = now or datetime.now(UTC)
    try:
        found = x509.load_pem_x509_certificate(certificate.read_bytes())
        trusted = "" if roots is None else roots.read_text()
        key.read_bytes()
    except (OSError, ValueError) as error:
        raise FieldError(f"The certificate '{certificate}' cannot be read: {error}.", "Give PEM files.") from None
    if not found.not_valid_before_utc <= moment <= found.not_valid_after_utc:
        raise FieldError(
            f"The certificate '{certificate}' is valid only from {found.not_valid_before_utc:%Y-%m-%d} to "
            f"{found.not_valid_after_utc:%Y-%m-%d}.",
            "Renew it, or correct this machine's clock.",
        )
    return Certificates(certificate, key, trusted)


def _is_due(certificate: Path, host: str, now: datetime) -> bool:
    found = x509.load_pem_x509_certificate(certificate.read_bytes())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return found.not_valid_after_utc - now < timedelta(days=RENEW_DAYS) or _alternative(host) not in names


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _x509_name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:60])])


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _sign(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    now: datetime,
    days: int,
    host: str | None,
) -> bytes:
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(BEGINNING)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=host is None, path_length=0 if host is None else None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .add_extension(_usage(host is None), critical=True)
    )
    if host is not None:
        builder = builder.add_extension(x509.SubjectAlternativeName([_alternative(host)]), critical=False)
    return builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _usage(is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _write(path: Path, content: bytes) -> None:
    with os.fdopen(os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "wb") as file:
        file.write(content)
