"""The adapter for a personal number. A bridge holds the connection to WhatsApp; see docs/whatsapp-bridge.md."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from functools import partial
from http import HTTPStatus
from itertools import count
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote as escape

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from palaver.platforms.whatsapp import PLATFORM
from palaver.platforms.whatsapp.frames import Frame, aliases_of, canonical_form, error_of, parse_frame
from palaver.platforms.whatsapp.options import WhatsAppOptions
from palaver.platforms.whatsapp.render import MAX_FILE_BYTES, MAX_TEXT, render_text
from palaver.protocols import (
    Attachment,
    Limits,
    Outbound,
    PlatformDown,
    PlatformRefused,
    Receiver,
    SendUnclear,
    Trust,
    Unit,
    VoiceFormat,
    file_to_send,
    parse_or_skip,
    proxy_of,
    read_ahead,
    read_object,
    rest,
)
from palaver.protocols.pending import PendingAnswers

_WRONG_SECRET = "The bridge does not accept the secret. Set bridge_secret to the one that the bridge was started with."  # noqa: S105
_UNLINKED = (
    "The bridge is not linked to a number. Start it, open WhatsApp on your phone, Linked devices, and scan its code."
)
_NOT_OPEN = "The bridge has no connection to WhatsApp."
_GROUP = "@g.us"
_RESULT_SECONDS = 30.0
_MAX_FRAME_BYTES = 1 << 20


class BridgeAdapter:
    platform = PLATFORM
    # 96 characters are reserved for what the gateway adds.
    limits = Limits(text=MAX_TEXT - 96, unit=Unit.UTF16, interval=1.0, repeats_safely=True)

    def __init__(self, account: str, options: WhatsAppOptions) -> None:
        self.account = account
        self._options = options
        self._url = options.bridge_url or ""
        self._headers = {"authorization": f"Bearer {options.bridge_secret.get_secret_value()}"}
        self._api = rest.RestApi("the bridge", self._url, headers=self._headers, fix=_WRONG_SECRET)
        self._line: ClientConnection | None = None
        """While the bridge is connected to WhatsApp."""
        self._ours: frozenset[str] = frozenset()
        self._refs = count(1)
        self._results = PendingAnswers[str, Frame]()

    async def check(self) -> str:
        found = await self._api.call("GET", "/status")
        _check_state(found)
        return f"{found.get('name') or ''} {' '.join(sorted(_ids(found)))}".strip()

    # Incoming

    async def run(self, receiver: Receiver) -> None:
        url = f"ws{self._url.removeprefix('http')}/v1"
        try:
            async with (
                self._api.opened(),
                connect(url, additional_headers=self._headers, max_size=_MAX_FRAME_BYTES, proxy=proxy_of(url)) as line,
            ):
                await read_ahead(self._read(line), partial(self._take, line=line, receiver=receiver))
        except InvalidStatus as error:
            if error.response.status_code == HTTPStatus.UNAUTHORIZED:
                raise PlatformRefused(_WRONG_SECRET) from error
            raise PlatformDown(f"The bridge answered {error.response.status_code}.") from error
        except (WebSocketException, OSError) as error:
            raise PlatformDown(f"There is no connection to the bridge: {type(error).__name__}.") from error
        finally:
            self._line = None
            self._results.fail("The connection to the bridge was lost while sending.")
        raise PlatformDown("The bridge closed the connection.")

    async def _read(self, line: ClientConnection) -> AsyncIterator[Frame]:
        """Yield frames, but settle results at once: a send does not wait until the messages before it are stored."""
        async for text in line:
            frame = parse_or_skip(self.platform.name, lambda text=text: read_object(text)) or {}
            if frame.get("type") == "result":
                self._results.settle(str(frame.get("ref")), frame)
            else:
                yield frame

    async def _take(self, frame: Frame, line: ClientConnection, receiver: Receiver) -> None:
        match frame.get("type"):
            case "state":
                await self._change_state(frame, line, receiver)
            case "message" | "change" | "reaction":
                await self._receive(frame, line, receiver)
            case "alias":
                await self._link(frame, receiver)
            case _:
                pass  # A newer bridge can say more than we know.

    async def _change_state(self, frame: Frame, line: ClientConnection, receiver: Receiver) -> None:
        _check_state(frame)
        self._ours = frozenset(map(canonical_form, _ids(frame)))
        self._line = line
        await receiver.connected()

    async def _receive(self, frame: Frame, line: ClientConnection, receiver: Receiver) -> None:
        """Store it, then acknowledge it: the bridge sends again what was not acknowledged."""
        message = parse_or_skip(self.platform.name, lambda: parse_frame(frame, self.account, self._ours))
        if message is not None:
            for alias, canonical in message.aliases:
                await receiver.link_alias(alias, canonical)
            await receiver.receive(message.inbound, Trust())
        await _write(line, {"type": "ack", "seq": frame.get("seq")})
        if message is not None and self._options.read_receipts and frame["type"] == "message":
            source = message.inbound.source
            read = {"type": "read", "chat": source.chat_id, "from": source.user_id, "id": source.message_id}
            await _write(line, read)

    async def _link(self, frame: Frame, receiver: Receiver) -> None:
        forms = parse_or_skip(self.platform.name, lambda: [str(each) for each in frame["ids"]])
        for alias, canonical in aliases_of(*(forms or ())):
            await receiver.link_alias(alias, canonical)

    def fetch(self, file: Attachment) -> AsyncIterator[bytes]:
        return self._api.download(f"/files/{escape(file.handle or '', safe='')}")

    # Outgoing

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        return await self._send(outbound, {"text": render_text(outbound.text)}, idempotency_key)

    async def send_file(self, outbound: Outbound, content: Path, *, idempotency_key: str) -> str:
        file = file_to_send(outbound, content, MAX_FILE_BYTES)
        body = await asyncio.to_thread(content.read_bytes)
        uploaded = await self._api.call("POST", "/files", content=body, headers={"content-type": file.media_type})
        sent = {"handle": str(uploaded["handle"]), "name": file.name.plain() or "file", "type": file.media_type}
        caption = render_text(outbound.text) if outbound.text else ""
        return await self._send(outbound, {"text": caption, "file": sent}, idempotency_key)

    def voice_format(self) -> VoiceFormat:
        return VoiceFormat.OPUS

    async def typing(self, outbound: Outbound) -> None:
        if self._line is not None:
            await _write(self._line, {"type": "typing", "to": outbound.chat_id})

    async def _send(self, outbound: Outbound, content: Mapping[str, Any], key: str) -> str:
        line = self._line
        if line is None:
            raise PlatformDown(_NOT_OPEN)
        quoted = outbound.quoted(in_group=outbound.chat_id.endswith(_GROUP))
        reply = {"reply_to": quoted} if quoted else {}
        result = await self._ask(line, {"type": "send", "key": key, "to": outbound.chat_id, **content, **reply})
        if error := error_of(result):
            raise error
        return str(result["id"])

    async def _ask(self, line: ClientConnection, frame: Frame) -> Frame:
        """Send a frame and return its result. If the connection is lost before, nobody knows whether it was sent."""
        ref = str(next(self._refs))
        try:
            with self._results.expect(ref) as result:
                async with asyncio.timeout(_RESULT_SECONDS):
                    await line.send(json.dumps({**frame, "ref": ref}))
                    return await result
        except (ConnectionClosed, TimeoutError) as error:
            raise SendUnclear(f"The bridge did not answer: {type(error).__name__}.") from error


async def _write(line: ClientConnection, frame: Frame) -> None:
    await line.send(json.dumps(frame))


def _ids(state: Frame) -> list[str]:
    found: object = state.get("ids")
    return [str(each) for each in cast("list[object]", found)] if isinstance(found, list) else []


def _check_state(state: Frame) -> None:
    match state.get("state"):
        case "open":
            return
        case "unlinked":
            raise PlatformRefused(_UNLINKED)
        case _:
            raise PlatformDown(_NOT_OPEN)
