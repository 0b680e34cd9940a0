"""Webhook signatures: verify incoming requests and sign what we post."""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum

SECRET_PREFIX = "whsec_"  # noqa: S105 - not a secret
_TOLERANCE_SECONDS = 300
"""How old a signature can be, or how far the clocks can differ."""
_MIN_KEY_BYTES = 24
_MIN_SECRET_CHARACTERS = 16
_BEARER = "bearer "


class Scheme(StrEnum):
    """How callers authenticate."""

    STANDARD = "standard"
    """Standard Webhooks: id, time and body are signed with a base64 key. Svix names the headers svix-*."""
    GITHUB = "github"
    """Only the body is signed, so its hash identifies the delivery."""
    STRIPE = "stripe"
    """Time and body are signed; the id is in the body."""
    TOKEN = "token"  # noqa: S105 - the name of a scheme
    """Nothing is signed: the request carries the secret."""


_WRONG = "The signature is missing or wrong. Sign with the secret of this account."


class SignatureError(Exception):
    """The signature is missing, wrong or expired. The text is for the caller."""


def decode_secret(scheme: Scheme, secret: str) -> bytes:
    """Return the signing key. Raises ValueError for a secret that does not fit the scheme."""
    if scheme is not Scheme.STANDARD:
        if len(secret.strip()) < _MIN_SECRET_CHARACTERS:
            raise ValueError(
                f"a secret of at least {_MIN_SECRET_CHARACTERS} characters; palaver setup webhook makes one"
            )
        return secret.encode()
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(SECRET_PREFIX) or len(key) < _MIN_KEY_BYTES:
        raise ValueError(f"{SECRET_PREFIX} followed by at least {_MIN_KEY_BYTES} random bytes in base64")
    return key


def sign(key: bytes, message_id: str, at: datetime, body: bytes) -> dict[str, str]:
    """Return the Standard Webhooks headers of a request."""
    time = str(int(at.timestamp()))
    signature = _standard_signature(key, message_id, time, body)
    return {"webhook-id": message_id, "webhook-timestamp": time, "webhook-signature": f"v1,{signature}"}


def verify(scheme: Scheme, secret: str, headers: Mapping[str, str], body: bytes, now: datetime) -> str | None:
    """Return the delivery id: None if the scheme has none, empty if it is missing. Raises SignatureError."""
    key = decode_secret(scheme, secret)
    match scheme:
        case Scheme.STANDARD:
            family = "svix" if "svix-id" in headers and "webhook-id" not in headers else "webhook"
            message_id = headers.get(f"{family}-id", "")
            time = headers.get(f"{family}-timestamp", "")
            signatures = _fields(headers.get(f"{family}-signature", ""), " ", "v1,")
            _check_signature(_standard_signature(key, message_id, time, body), signatures)
            _check_time(time, now)
            return message_id
        case Scheme.GITHUB:
            _check_signature(f"sha256={_digest(key, body).hex()}", [headers.get("x-hub-signature-256", "")])
            # The delivery id is not signed: a replayed body could come under another one.
            return f"sha256-{hashlib.sha256(body).hexdigest()}"
        case Scheme.STRIPE:
            header = headers.get("stripe-signature", "")
            time = next(iter(_fields(header, ",", "t=")), "")
            _check_signature(_digest(key, f"{time}.".encode(), body).hex(), _fields(header, ",", "v1="))
            _check_time(time, now)
            return None
        case Scheme.TOKEN:
            header = headers.get("authorization", "")
            is_bearer = header[: len(_BEARER)].lower() == _BEARER
            wrong = "The secret is missing or wrong. Send Authorization: Bearer and the secret of this account."
            _check_signature(secret, [header[len(_BEARER) :].strip() if is_bearer else ""], wrong)
            return headers.get("webhook-id") or headers.get("idempotency-key") or None


def _standard_signature(key: bytes, message_id: str, time: str, body: bytes) -> str:
    return base64.b64encode(_digest(key, f"{message_id}.{time}.".encode(), body)).decode()


def _digest(key: bytes, *content: bytes) -> bytes:
    return hmac.new(key, b"".join(content), hashlib.sha256).digest()


def _fields(header: str, separator: str, tag: str) -> list[str]:
    return [field.strip()[len(tag) :] for field in header.split(separator) if field.strip().startswith(tag)]


def _check_signature(expected: str, found: Iterable[str], wrong: str = _WRONG) -> None:
    # Compare all of them, each in constant time.
    matches = [hmac.compare_digest(expected.encode(), signature.encode("utf-8", "replace")) for signature in found]
    if not any(matches):
        raise SignatureError(wrong)


def _check_time(time: str, now: datetime) -> None:
    is_time = time.isascii() and time.isdecimal() and len(time) <= 15  # noqa: PLR2004 - seconds since 1970
    if not is_time or abs(int(time) - now.timestamp()) > _TOLERANCE_SECONDS:
        raise SignatureError(
            f"The signature is more than {_TOLERANCE_SECONDS // 60} minutes old, or one of the clocks is wrong."
        )
