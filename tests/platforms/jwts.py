"""Tokens as Microsoft and Google sign their calls with, the public key to check them, and certificates of servers."""

import json
import time
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID
from jwt.algorithms import RSAAlgorithm

__all__ = ["other_key", "pem", "private_key", "public_keys", "self_signed", "signed"]


@cache
def private_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@cache
def other_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def pem() -> str:
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return private_key().private_bytes(encoding, form, serialization.NoEncryption()).decode()


def public_keys(name: str = "k1", **more: Any) -> list[dict[str, Any]]:
    found = json.loads(RSAAlgorithm.to_jwk(private_key().public_key()))
    return [{**found, "kid": name, "use": "sig", **more}]


def signed(claims: dict[str, Any], *, key: Any = None, name: str = "k1", valid: float = 3600.0) -> str:
    now = time.time()
    content = {"nbf": now - 10, "exp": now + valid, **claims}
    return jwt.encode(content, key or private_key(), algorithm="RS256", headers={"kid": name})


def self_signed(host: str) -> bytes:
    """A certificate that is valid today, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return made.public_bytes(encoding) + key.private_bytes(encoding, form, serialization.NoEncryption())
