"""Check and make QQ's signatures: Ed25519, with a key made of the bot's secret."""

import re
from collections.abc import Mapping
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_SEED_BYTES = 32
_STAMP, _TOKEN = re.compile(r"[0-9]{1,20}"), re.compile(r"[0-9A-Za-z_-]{1,128}")


class Signer:
    def __init__(self, secret: str) -> None:
        seed = secret.encode()
        self._key = Ed25519PrivateKey.from_private_bytes((seed * (_SEED_BYTES // len(seed) + 1))[:_SEED_BYTES])

    @property
    def public_key(self) -> bytes:
        return self._key.public_key().public_bytes_raw()

    def sign(self, timestamp: str, text: str) -> str:
        return self._key.sign(f"{timestamp}{text}".encode("utf-8", "replace")).hex()

    def answer(self, question: Mapping[str, Any]) -> dict[str, str]:
        """Answer the question that QQ asks, unsigned, when somebody enters the address.

        It must not sign what could be a callback, which is a JSON object: raise ValueError for anything but a token.
        """
        token, at = str(question["plain_token"]), str(question["event_ts"])
        if not (_STAMP.fullmatch(at) and _TOKEN.fullmatch(token)):
            raise ValueError("not a token")
        return {"plain_token": token, "signature": self.sign(at, token)}

    def is_signed(self, signature: str, timestamp: str, body: bytes) -> bool:
        try:
            self._key.public_key().verify(bytes.fromhex(signature), timestamp.encode("utf-8", "replace") + body)
        except (InvalidSignature, ValueError):
            return False
        return True
