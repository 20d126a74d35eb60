"""Certificates for the connections of a network: only who knows the network's secret can make one.

The authority follows from the secret, so members need no exchange to trust each other's routers. It proves that the
other side is a member, not which one: messages are signed and sealed by their own keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.x509.oid import NameOID

_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551  # of P-256
_BEGIN = datetime(2020, 1, 1, tzinfo=UTC)
DAYS = 3650


@dataclass(frozen=True)
class NetworkCertificates:
    """PEM texts: what to trust, and a certificate of this member with its key."""

    roots: bytes
    certificate: bytes
    key: bytes

    @classmethod
    def make(cls, secret: bytes, network: bytes, now: datetime | None = None) -> NetworkCertificates:
        """Return the authority of a network, and a fresh certificate from it."""
        moment = now or datetime.now(UTC)
        drawn = HKDF(hashes.SHA256(), 48, network, b"tacit/peer/1/authority").derive(secret)
        signer = ec.derive_private_key(1 + int.from_bytes(drawn, "big") % (_ORDER - 1), ec.SECP256R1())
        name = _name(f"Tacit network {network.hex()[:16]}")
        own = ec.generate_private_key(ec.SECP256R1())
        authority = _certify(name, name, signer, 1, _BEGIN, 40 * 365)
        authority = authority.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        leaf = _certify(_name("peer"), name, own, x509.random_serial_number(), moment - timedelta(days=1), DAYS)
        leaf = leaf.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        leaf = leaf.add_extension(x509.SubjectAlternativeName([x509.DNSName("peer.tacit")]), critical=False)
        return cls(
            authority.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM),
            leaf.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM),
            own.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            ),
        )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _certify(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, serial: int, begin: datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(begin)
        .not_valid_after(begin + timedelta(days=days))
    )
