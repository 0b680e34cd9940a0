"""Verify our device with emoji: a person's client asks, our log shows the emoji, the person compares and confirms.

We speak only what the specification calls current (`m.sas.v1` with a request before it), and trust nobody for it: the
person's confirmation is what counts, and their client keeps it. nio's own implementation agrees with no other client.
"""

import hashlib
import logging
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hmac import compare_digest
from typing import Any
from uuid import uuid4

import msgspec
import vodozemac
from nio.api import Api
from nio.crypto import OlmDevice
from nio.crypto.sas import Sas as NioSas

from palaver.platforms.matrix.client import API, Client
from palaver.protocols import Clock

log = logging.getLogger(__name__)

_TYPE = "m.key.verification."
_METHOD = "m.sas.v1"
_AGREEMENT = "curve25519-hkdf-sha256"
_HASH = "sha256"
_MAC = "hkdf-hmac-sha256.v2"
_EMOJI = "emoji"
_MAX_AGE_MS = 600_000
_MAX_AHEAD_MS = 300_000
"""How far a client's clock can be ahead of ours."""


class _Content(msgspec.Struct, frozen=True):
    transaction_id: str
    from_device: str = ""
    methods: tuple[str, ...] = ()
    timestamp: int = 0
    method: str = ""
    key_agreement_protocols: tuple[str, ...] = ()
    hashes: tuple[str, ...] = ()
    message_authentication_codes: tuple[str, ...] = ()
    short_authentication_string: tuple[str, ...] = ()
    key: str = ""
    mac: Mapping[str, str] = {}
    keys: str = ""

    @property
    def is_supported_start(self) -> bool:
        return (
            self.method == _METHOD
            and _AGREEMENT in self.key_agreement_protocols
            and _HASH in self.hashes
            and _MAC in self.message_authentication_codes
            and _EMOJI in self.short_authentication_string
        )


class _Event(msgspec.Struct, frozen=True):
    type: str
    sender: str
    content: _Content


@dataclass(kw_only=True, slots=True)
class _Exchange:
    """One verification, begun by a person's device."""

    device: OlmDevice
    transaction: str
    ours: vodozemac.Sas = field(default_factory=vodozemac.Sas)
    is_accepted: bool = False
    shared: vodozemac.EstablishedSas | None = None
    """The shared secret, once both keys are exchanged: from then on there are emoji."""


class Verifications:
    def __init__(
        self,
        client: Client,
        fingerprint: str,
        clock: Clock,
        account: str,
        may_verify: Callable[[str], Awaitable[bool]],
    ) -> None:
        self._client = client
        self._fingerprint = fingerprint
        self._clock = clock
        self._account = account
        self._may_verify = may_verify
        self._received: list[Mapping[str, Any]] = []
        self._exchanges: dict[str, _Exchange] = {}
        """By user id: each person has one at a time."""
        client.add_to_device_callback(self._on_event, None)  # pyright: ignore[reportArgumentType] - None is for any event

    def _on_event(self, event: Any) -> None:  # noqa: ANN401 - nio has no common type
        if str(event.source.get("type", "")).startswith(_TYPE):
            self._received.append(event.source)

    async def answer(self) -> None:
        """Answer what the last sync brought."""
        received = self._received
        self._received = []
        for source in received:
            # Untrusted input: ignore what we cannot read, encode or use as a key.
            with suppress(msgspec.ValidationError, ValueError):
                await self._answer(msgspec.convert(source, _Event), source["content"])

    async def _answer(self, event: _Event, source: dict[str, Any]) -> None:
        """Ignore what does not fit the state: it changes nothing."""
        content = event.content
        step = event.type.removeprefix(_TYPE)
        if step == "request":
            await self._on_request(event.sender, content)
            return
        exchange = self._exchanges.get(event.sender)
        if exchange is None or exchange.transaction != content.transaction_id:
            return
        if step == "cancel":
            self._log(exchange, "a client cancelled the verification of our device")
            del self._exchanges[event.sender]
        elif step == "start" and not exchange.is_accepted and content.from_device == exchange.device.id:
            await self._on_start(exchange, content, source)
        elif step == "key" and exchange.is_accepted and exchange.shared is None:
            await self._on_key(exchange, content)
        elif step == "mac" and exchange.shared is not None:
            await self._on_mac(exchange, exchange.shared, content)

    async def _on_request(self, user_id: str, content: _Content) -> None:
        """Agree if the request is recent and its sender may verify us. Strangers get no answer."""
        age_ms = int(self._clock.now().timestamp() * 1000) - content.timestamp
        if not (-_MAX_AHEAD_MS < age_ms < _MAX_AGE_MS and _METHOD in content.methods):
            return
        if user_id != self._client.user_id and not await self._may_verify(user_id):
            extra = {"action": "matrix.verification", "account": self._account}
            log.info("somebody who may not do so wants to verify our device; see the option verifiers", extra=extra)
            return
        device = await self._find_device(user_id, content.from_device)
        if device is None:
            return
        if earlier := self._exchanges.get(user_id):
            if earlier.transaction == content.transaction_id:
                return
            await self._cancel(earlier, "m.user", "A newer request replaces this one.")
        exchange = _Exchange(device=device, transaction=content.transaction_id)
        self._exchanges[user_id] = exchange
        await self._send(exchange, "ready", from_device=self._client.device_id, methods=[_METHOD])

    async def _find_device(self, user_id: str, device_id: str) -> OlmDevice | None:
        """Return a device with its keys; ask the homeserver for them if we do not know it yet."""
        if device_id not in self._client.device_store[user_id]:
            self._client.users_for_key_query.add(user_id)
            with API.requests():
                await self._client.keys_query()
        return self._client.device_store[user_id].get(device_id)

    async def _on_start(self, exchange: _Exchange, content: _Content, source: dict[str, Any]) -> None:
        if not content.is_supported_start:
            await self._cancel(exchange, "m.unknown_method", "This client verifies with emoji only.")
            return
        exchange.is_accepted = True
        # The commitment to our key comes before we know theirs, so that nobody can choose keys that fit the emoji.
        committed = exchange.ours.public_key.to_base64() + Api.to_canonical_json(source)
        await self._send(
            exchange,
            "accept",
            method=_METHOD,
            key_agreement_protocol=_AGREEMENT,
            hash=_HASH,
            message_authentication_code=_MAC,
            short_authentication_string=[_EMOJI],
            commitment=b64encode(hashlib.sha256(committed.encode()).digest()).decode().rstrip("="),
        )

    async def _on_key(self, exchange: _Exchange, content: _Content) -> None:
        our_key = exchange.ours.public_key.to_base64()
        device = exchange.device
        exchange.shared = exchange.ours.diffie_hellman(vodozemac.Curve25519PublicKey.from_base64(content.key))
        await self._send(exchange, "key", key=our_key)
        person = f"{device.user_id}|{device.device_id}|{content.key}"
        us = f"{self._client.user_id}|{self._client.device_id}|{our_key}"
        made = exchange.shared.bytes(f"MATRIX_KEY_VERIFICATION_SAS|{person}|{us}|{exchange.transaction}")
        emoji = ", ".join(" ".join(NioSas.emoji[index]) for index in made.emoji_indices)
        self._log(exchange, f"compare these emoji with those of the client that verifies our device: {emoji}")

    async def _on_mac(self, exchange: _Exchange, shared: vodozemac.EstablishedSas, content: _Content) -> None:
        """The person has confirmed the emoji: confirm our key to them."""
        device = exchange.device
        our_id = self._client.device_id or ""
        person = device.user_id + device.id
        us = self._client.user_id + our_id
        theirs = f"MATRIX_KEY_VERIFICATION_MAC{person}{us}{exchange.transaction}"
        key_id = f"ed25519:{device.id}"
        right_keys = shared.calculate_mac(",".join(sorted(content.mac)), f"{theirs}KEY_IDS")
        right_mac = shared.calculate_mac(device.ed25519, theirs + key_id)
        if not (_is_same(content.keys, right_keys) and _is_same(content.mac.get(key_id, ""), right_mac)):
            await self._cancel(exchange, "m.key_mismatch", "The keys do not match.")
            return
        ours = f"MATRIX_KEY_VERIFICATION_MAC{us}{person}{exchange.transaction}"
        key_id = f"ed25519:{our_id}"
        mac = {key_id: shared.calculate_mac(self._fingerprint, ours + key_id)}
        await self._send(exchange, "mac", mac=mac, keys=shared.calculate_mac(key_id, f"{ours}KEY_IDS"))
        await self._send(exchange, "done")
        self._log(exchange, "a client has verified our device")
        del self._exchanges[device.user_id]

    async def _cancel(self, exchange: _Exchange, code: str, reason: str) -> None:
        self._log(exchange, f"the verification of our device failed: {reason}")
        del self._exchanges[exchange.device.user_id]
        await self._send(exchange, "cancel", code=code, reason=reason)

    async def _send(self, exchange: _Exchange, step: str, **content: object) -> None:
        device = exchange.device
        messages = {device.user_id: {device.id: {"transaction_id": exchange.transaction, **content}}}
        await self._client.ask("PUT", "sendToDevice", _TYPE + step, uuid4().hex, body={"messages": messages})

    def _log(self, exchange: _Exchange, sentence: str) -> None:
        device = exchange.device
        extra = {"action": "matrix.verification", "account": self._account}
        log.info("device %s of %s: %s", device.id, device.user_id, sentence, extra=extra)


def _is_same(found: str, right: str) -> bool:
    return compare_digest(found.encode(), right.encode())
