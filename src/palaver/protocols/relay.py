"""The relay's wire format: a connector holds accounts on platforms and serves gateways over a WebSocket.

Both sides prove that they know the key of the enrolment, without sending it. From then on each frame carries a code
over its content and its number in the connection: a forged, repeated, missing or reordered frame ends the connection.
docs/relay.md describes the frames.
"""

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from palaver.model.errors import BadArgument, PalaverError
from palaver.model.label import read_label, write_label
from palaver.model.source import MAIN
from palaver.model.split import Unit
from palaver.model.turn import Inbound, Outbound
from palaver.protocols.adapter import (
    ChatMoved,
    Limits,
    PlatformBusy,
    PlatformDown,
    PlatformError,
    PlatformRefused,
    SendRefused,
    SendUnclear,
    TargetAway,
    TargetGone,
)
from palaver.protocols.checks import is_loopback
from palaver.protocols.incoming import is_secret, read_object

__all__ = [
    "CHUNK_BYTES",
    "KEY_PREFIX",
    "MAX_FRAME_BYTES",
    "RELAY_OPTION",
    "UNKNOWN_LIMITS",
    "VERSION",
    "Channel",
    "Enrolment",
    "Forged",
    "Frame",
    "RelayedAccount",
    "check_relay_url",
    "digest",
    "is_proof",
    "new_nonce",
    "new_secret",
    "proof",
    "read_bytes",
    "read_enrolment",
    "read_error",
    "read_frame",
    "read_inbound",
    "read_outbound",
    "write_bytes",
    "write_error",
    "write_inbound",
    "write_limits",
    "write_outbound",
]

VERSION = 1
MAX_FRAME_BYTES = 4 << 20
CHUNK_BYTES = 1 << 18
"""How much of a file travels in one frame."""
KEY_PREFIX = "palr_"
_SECRET_BYTES = 32
_CODE_LENGTH = 64  # a SHA-256 in hexadecimal

RELAY_OPTION = "relay_file"
"""The option that says that a connector holds an account."""

Frame = dict[str, Any]


class Forged(PalaverError):
    """A frame is not from the peer, or not the next one."""


# Keys


def new_secret() -> str:
    return KEY_PREFIX + secrets.token_urlsafe(_SECRET_BYTES)


def new_nonce() -> str:
    return secrets.token_hex(16)


def digest(secret: str) -> str:
    """Return what the connector stores of a key, and what both sides compute with. It is as secret as the key."""
    return hashlib.sha256(secret.encode()).hexdigest()


def proof(key_digest: str, *facts: str) -> str:
    """Prove knowledge of a key to the peer who chose one of the facts."""
    return hmac.new(key_digest.encode(), "\n".join(facts).encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def is_proof(given: object, key_digest: str, *facts: str) -> bool:
    return isinstance(given, str) and is_secret(given, proof(key_digest, *facts))


class Channel:
    """Seals what one side sends and opens what the other sent, in order."""

    def __init__(self, key_digest: str, nonces: tuple[str, str], *, is_connector: bool) -> None:
        keys = proof(key_digest, "to the gateway", *nonces), proof(key_digest, "to the connector", *nonces)
        self._out, self._in = keys if is_connector else keys[::-1]
        self._sent = self._opened = 0

    def seal(self, frame: Mapping[str, Any]) -> str:
        text = json.dumps(frame, separators=(",", ":"))
        self._sent += 1
        return proof(self._out, str(self._sent - 1), text) + text

    def open(self, sealed: str | bytes) -> Frame:
        """Return the frame. Raise Forged if it is not the next one of the peer."""
        found = sealed if isinstance(sealed, str) else ""
        code, text = found[:_CODE_LENGTH], found[_CODE_LENGTH:]
        if not is_proof(code, self._in, str(self._opened), text):
            raise Forged("A frame is forged, repeated or out of order.")
        self._opened += 1
        return read_frame(text)


def read_frame(text: str | bytes) -> Frame:
    try:
        return read_object(text)
    except ValueError:
        raise Forged("A frame is no JSON object.") from None


# Messages


_FROM_A_PERSON = frozenset(
    {"source", "text", "at", "labels", "mentions_us", "reply_to", "quote", "burst", "files", "revision", "reaction"}
)
"""What an adapter fills in. The rest of an inbound message is the gateway's own."""


def write_inbound(inbound: Inbound) -> Frame:
    found: Frame = msgspec.to_builtins(inbound, enc_hook=write_label)
    return {name: value for name, value in found.items() if name in _FROM_A_PERSON}


def read_inbound(frame: Mapping[str, Any], platform: str, account: str | None) -> Inbound:
    """Return a message as one that reached this account: the connector can name no other, nor a profile."""
    given = {name: value for name, value in frame.items() if name in _FROM_A_PERSON}
    inbound = msgspec.convert(given, Inbound, dec_hook=read_label)
    return replace(inbound, source=replace(inbound.source, platform=platform, account=account, profile=MAIN))


def write_outbound(outbound: Outbound) -> Frame:
    """Leave out what only the gateway can do once it is delivered."""
    return msgspec.to_builtins(replace(outbound, mirror=None, handoff=None, avoids=None), enc_hook=write_label)


def read_outbound(frame: Mapping[str, Any], platform: str, account: str | None) -> Outbound:
    outbound = msgspec.convert(dict(frame), Outbound, dec_hook=read_label)
    return replace(outbound, platform=platform, account=account, mirror=None, handoff=None, is_news=False, avoids=None)


def write_bytes(content: bytes) -> str:
    return base64.b64encode(content).decode()


def read_bytes(text: object) -> bytes:
    return base64.b64decode(str(text), validate=True)


# Errors, subclasses first. A name of the wire means the same in every version.

_ERRORS: Mapping[str, type[PlatformError]] = {
    "refused": PlatformRefused,
    "down": PlatformDown,
    "gone": TargetGone,
    "not-sent": SendRefused,
    "unclear": SendUnclear,
}


def write_error(error: PlatformError) -> Frame:
    match error:
        case TargetAway():
            return {"kind": "away", "after": error.after}
        case PlatformBusy():
            return {"kind": "busy", "after": error.after}
        case ChatMoved():
            return {"kind": "moved", "new": error.new}
        case _:
            kind = next((name for name, each in _ERRORS.items() if isinstance(error, each)), "unclear")
            return {"kind": kind, "text": str(error)}


def read_error(frame: Mapping[str, Any]) -> PlatformError:
    match frame:
        case {"kind": "away", "after": int() | float() as after}:
            return TargetAway(float(after))
        case {"kind": "busy", "after": int() | float() as after}:
            return PlatformBusy(float(after))
        case {"kind": "moved", "new": str() as new}:
            return ChatMoved(new)
        case _:
            return _ERRORS.get(str(frame.get("kind")), SendUnclear)(str(frame.get("text") or "The connector failed."))


# What a gateway keeps of its enrolment


class RelayedAccount(BaseModel):
    """What the connector says about an account."""

    model_config = ConfigDict(extra="ignore")

    limits: dict[str, Any] = Field(default_factory=dict)
    capabilities: tuple[str, ...] = ()

    def parse_limits(self) -> Limits:
        """Every send has an idempotency key in the connector's outbox, so it can be repeated."""
        limits = msgspec.convert(self.limits, Limits)
        return replace(limits, repeats_safely=True)


def write_limits(limits: Limits) -> Frame:
    return msgspec.to_builtins(limits)


UNKNOWN_LIMITS = Limits(text=1000, unit=Unit.UTF8, repeats_safely=True)


class Enrolment(BaseModel):
    """The file that `palaver relay join` writes: readable by its owner only."""

    model_config = ConfigDict(extra="forbid")

    url: str
    tenant: str
    keys: tuple[str, ...]
    """The newest first. There are two while the key is being changed."""
    accounts: dict[str, RelayedAccount] = Field(default_factory=dict)


def read_enrolment(file: Path) -> Enrolment:
    return Enrolment.model_validate_json(file.read_bytes())


def check_relay_url(url: str) -> str:
    """Return the URL of a connector. Without TLS it must be on this machine: joining sends the digest of the key."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        is_local = is_loopback(host)
    except ValueError:
        parts, host, is_local = urlsplit(""), "", False
    if host and (parts.scheme == "wss" or (parts.scheme == "ws" and is_local)):
        return url.rstrip("/")
    raise BadArgument(
        "The address of a connector cannot be",
        found=url,
        allowed="wss:// and a name; ws:// only for this machine",
        example="wss://relay.example.org",
    )
