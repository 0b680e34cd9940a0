"""Check DingTalk's signature. It covers the time of a call, not its content."""

import hashlib
import hmac
from base64 import b64encode
from collections.abc import Mapping

from palaver.protocols import is_secret

_MAX_AGE_MS = 3_600_000


def sign(timestamp: str, secret: str) -> str:
    text = f"{timestamp}\n{secret}".encode("utf-8", "replace")
    return b64encode(hmac.new(secret.encode(), text, hashlib.sha256).digest()).decode()


def is_signed(headers: Mapping[str, str], secret: str, now_ms: int) -> bool:
    """Return whether the call was signed within the last hour."""
    timestamp = headers.get("timestamp", "")
    if not (timestamp.isascii() and timestamp.isdecimal()) or abs(now_ms - int(timestamp[:20])) > _MAX_AGE_MS:
        return False
    return is_secret(headers.get("sign", ""), sign(timestamp, secret))
