"""Signatures: whether a call is from who it says, and how we sign what we post."""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterator, Mapping
from datetime import datetime
from enum import StrEnum

__all__ = [
    "PREFIX",
    "Scheme",
    "Unsigned",
    "key_of",
    "signed",
    "verified",
]

PREFIX = "whsec_"
_TOLERANCE = 300
"""Seconds that a call may have been on its way, or the clocks apart."""
_SHORTEST_KEY = 24
_SHORTEST_SECRET = 16
_BEARER = "bearer "


class Scheme(StrEnum):
    """How whoever calls shows that it is them."""

    STANDARD = "standard"
    """Standard Webhooks: id, time and body signed with a key in base64."""
    GITHUB = "github"
    """The body is signed, and nothing else: by it a delivery is known again."""
    STRIPE = "stripe"
    """Time and body are signed; the id is in the body."""
    TOKEN = "token"  # noqa: S105 - the name of a scheme
    """Nothing is signed: the secret itself comes along."""


class Unsigned(Exception):
    """The call does not show that it comes from who may call."""


def key_of(scheme: Scheme, secret: str) -> bytes:
    """The bytes that sign. Raises ValueError for a secret that the scheme cannot have."""
    if scheme is not Scheme.STANDARD:
        if len(secret.strip()) < _SHORTEST_SECRET:
            raise ValueError(f"a secret has at least {_SHORTEST_SECRET} characters; palaver setup webhook makes one")
        return secret.encode()
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(PREFIX) or len(key) < _SHORTEST_KEY:
        raise ValueError(f"with this scheme a secret is {PREFIX} and at least {_SHORTEST_KEY} random bytes in base64")
    return key


def signed(key: bytes, message: str, at: datetime, body: bytes) -> dict[str, str]:
    """The headers of a call of ours, as Standard Webhooks has them."""
    time = str(int(at.timestamp()))
    signature = base64.b64encode(_digest(key, f"{message}.{time}.".encode(), body)).decode()
    return {"webhook-id": message, "webhook-timestamp": time, "webhook-signature": f"v1,{signature}"}


def verified(scheme: Scheme, secret: str, headers: Mapping[str, str], body: bytes, now: datetime) -> str | None:
    """The id of the delivery, where the scheme brings one; empty where it should and does not. Raises Unsigned."""
    key = key_of(scheme, secret)
    match scheme:
        case Scheme.STANDARD:
            message, time = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
            digest = base64.b64encode(_digest(key, f"{message}.{time}.".encode(), body)).decode()
            _demand(digest, _tagged(headers.get("webhook-signature", ""), " ", "v1,"))
            _demand_fresh(time, now)
            return message
        case Scheme.GITHUB:
            _demand(f"sha256={_digest(key, body).hex()}", [headers.get("x-hub-signature-256", "")])
            # What names a delivery is not signed, so whoever caught one could send it again under another name.
            return f"sha256-{hashlib.sha256(body).hexdigest()}"
        case Scheme.STRIPE:
            header = headers.get("stripe-signature", "")
            time = next(_tagged(header, ",", "t="), "")
            _demand(_digest(key, f"{time}.".encode(), body).hex(), _tagged(header, ",", "v1="))
            _demand_fresh(time, now)
            return None
        case Scheme.TOKEN:
            shown = headers.get("authorization", "")
            is_bearer = shown[: len(_BEARER)].lower() == _BEARER
            _demand(secret, [shown[len(_BEARER) :].strip() if is_bearer else ""])
            return headers.get("webhook-id") or headers.get("idempotency-key") or None


def _digest(key: bytes, *content: bytes) -> bytes:
    return hmac.new(key, b"".join(content), hashlib.sha256).digest()


def _tagged(header: str, separator: str, tag: str) -> Iterator[str]:
    return (each.strip()[len(tag) :] for each in header.split(separator) if each.strip().startswith(tag))


def _demand(right: str, shown: Iterator[str] | list[str]) -> None:
    # All are looked at, each for the same time, so that no answer tells how far one was right.
    found = [hmac.compare_digest(right.encode(), each.encode("utf-8", "replace")) for each in shown]
    if not any(found):
        raise Unsigned("The signature is missing or wrong: is it made with the secret of this account?")


def _demand_fresh(time: str, now: datetime) -> None:
    is_time = time.isascii() and time.isdecimal() and len(time) <= 15  # noqa: PLR2004 - seconds since 1970
    if not is_time or abs(int(time) - now.timestamp()) > _TOLERANCE:
        raise Unsigned(f"The call was signed more than {_TOLERANCE // 60} minutes ago, or by a clock that is wrong.")
