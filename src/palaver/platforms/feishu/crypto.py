"""Open Feishu's callbacks: encrypted with the Encrypt Key, and signed with it."""

import hashlib
from collections.abc import Mapping
from typing import Any, cast

from palaver.protocols import is_secret, read_object
from palaver.protocols.sealed import decode, decrypt

_BLOCK = 16


def open_event(encrypted: str, key: str) -> str:
    """Decrypt with the hash of the key; the first block is the initialisation vector."""
    sealed = decode(encrypted)
    return decrypt(
        hashlib.sha256(key.encode()).digest(), sealed[:_BLOCK].ljust(_BLOCK, b"\0"), sealed[_BLOCK:]
    ).decode()


def is_signed(headers: Mapping[str, str], body: bytes, key: str) -> bool:
    stamp = f"{headers.get('x-lark-request-timestamp', '')}{headers.get('x-lark-request-nonce', '')}{key}"
    expected = hashlib.sha256(stamp.encode("utf-8", "replace") + body).hexdigest()
    return is_secret(headers.get("x-lark-signature", ""), expected)


def read_event(body: bytes, key: str) -> tuple[Mapping[str, Any], bool]:
    """Return the event in a callback, and whether it was encrypted. Raise ValueError if there is none."""
    found = read_object(body)
    return (read_object(open_event(str(found["encrypt"]), key)), True) if "encrypt" in found else (found, False)


def token_of(event: Mapping[str, Any]) -> str:
    """Return the verification token: at the top of a question, in the header of an event."""
    header: object = event.get("header")
    return str(
        event.get("token") or (cast("Mapping[str, Any]", header).get("token") if isinstance(header, dict) else "")
    )
