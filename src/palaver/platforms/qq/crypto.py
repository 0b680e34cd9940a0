"""Check and make QQ's signatures: Ed25519, with a key made of the bot's secret."""

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_SEED_BYTES = 32


class Signer:
    def __init__(self, secret: str) -> None:
        seed = secret.encode()
        self._key = Ed25519PrivateKey.from_private_bytes((seed * (_SEED_BYTES // len(seed) + 1))[:_SEED_BYTES])

    def sign(self, timestamp: str, text: str) -> str:
        return self._key.sign(f"{timestamp}{text}".encode("utf-8", "replace")).hex()

    def is_signed(self, signature: str, timestamp: str, body: bytes) -> bool:
        try:
            self._key.public_key().verify(bytes.fromhex(signature), timestamp.encode("utf-8", "replace") + body)
        except (InvalidSignature, ValueError):
            return False
        return True
