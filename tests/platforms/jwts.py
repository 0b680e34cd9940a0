"""Tokens as Microsoft and Google sign their calls with, and the public key to check them."""

import json
import time
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

__all__ = ["other_key", "pem", "private_key", "public_keys", "signed"]


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
