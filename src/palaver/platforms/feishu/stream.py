"""Feishu's long connection: a WebSocket that we open, so that Feishu needs no address of ours."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from palaver.protocols import (
    ClientErrors,
    PlatformDown,
    PlatformRefused,
    one_line,
    parse_or_skip,
    proxy_of,
    run_together,
    value,
)
from palaver.protocols.protobuf import decode, encode, encode_field, messages_of, number_of, text_of
from palaver.protocols.recent import remember

_CONTROL = 0
_DATA = 1
_MAX_FRAME_BYTES = 4 << 20
_MAX_PARTS = 100
_MAX_WAITING = 100
_PING_SECONDS = 120.0
_BUSY = frozenset({1, 1000040343})
_NO_STREAM = "Feishu gives no long connection. Check App ID and App Secret; only custom apps can have one."
_DONE = b'{"code": 200}'
_LINE = ClientErrors(title="Feishu", raised=(OSError, WebSocketException))


@value
class Frame:
    method: int
    service: int = 0
    number: int = 0
    log: int = 0
    headers: Mapping[str, str]
    payload: bytes = b""

    @classmethod
    def decode(cls, raw: bytes) -> "Frame":
        found = decode(raw)
        payload = found.get(8, [b""])[-1]
        return cls(
            number=number_of(found, 1),
            log=number_of(found, 2),
            service=number_of(found, 3),
            method=number_of(found, 4),
            headers={text_of(each, 1): text_of(each, 2) for each in messages_of(found, 5)},
            payload=payload if isinstance(payload, bytes) else b"",
        )

    def encode(self) -> bytes:
        required = ((1, self.number), (2, self.log), (3, self.service), (4, self.method))
        headers = [(5, encode_field(1, key) + encode_field(2, text)) for key, text in self.headers.items()]
        return b"".join(encode_field(*each) for each in required) + encode(*headers, (8, self.payload))


class Parts:
    """Puts together what comes in several frames."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[int, bytes]] = {}

    def add(self, frame: Frame) -> bytes | None:
        """Return the whole payload; None if a part is missing."""
        count = int(frame.headers.get("sum") or 1)
        number = int(frame.headers.get("seq") or 0)
        if count <= 1:
            return frame.payload
        if count > _MAX_PARTS or not 0 <= number < count:
            raise ValueError("an impossible part")
        name = frame.headers["message_id"]
        parts = self._waiting.get(name, {})
        parts[number] = frame.payload
        remember(self._waiting, name, parts, _MAX_WAITING)
        if len(parts) < count:
            return None
        del self._waiting[name]
        return b"".join(parts[each] for each in range(count))


async def listen(
    url: str, ping_seconds: float, connected: Callable[[], Awaitable[None]], take: Callable[[bytes], Awaitable[None]]
) -> None:
    """Hand over events until the connection is lost. Each is acknowledged when `take` has returned."""
    service = int((parse_qs(urlsplit(url).query).get("service_id") or ["0"])[0])
    with _LINE.requests():
        async with connect(url, max_size=_MAX_FRAME_BYTES, proxy=proxy_of(url)) as line:
            await connected()
            await run_together(_read(line, take), _ping(line, service, ping_seconds))
    raise PlatformDown("Feishu closed the connection.")


async def _read(line: ClientConnection, take: Callable[[bytes], Awaitable[None]]) -> None:
    parts = Parts()
    async for raw in line:
        frame = parse_or_skip("feishu", lambda raw=raw: Frame.decode(_binary(raw)))
        if frame is not None and frame.method == _DATA:
            await _take(frame, parts, line, take)


async def _take(frame: Frame, parts: Parts, line: ClientConnection, take: Callable[[bytes], Awaitable[None]]) -> None:
    payload = parse_or_skip("feishu", lambda: parts.add(frame))
    if payload is not None:
        await take(payload)
        done = Frame(
            method=_DATA,
            service=frame.service,
            number=frame.number,
            log=frame.log,
            headers={**frame.headers, "biz_rt": "0"},
            payload=_DONE,
        )
        await line.send(done.encode())


async def _ping(line: ClientConnection, service: int, seconds: float) -> None:
    while True:
        await line.send(Frame(method=_CONTROL, service=service, headers={"type": "ping"}).encode())
        await asyncio.sleep(seconds)


def _binary(raw: str | bytes) -> bytes:
    return raw if isinstance(raw, bytes) else raw.encode()


def read_place(found: Mapping[str, Any]) -> tuple[str, float]:
    """Return where to connect, and after how many seconds Feishu wants a ping."""
    code = found["code"]
    if code in _BUSY:
        raise PlatformDown("Feishu is busy.")
    if code:
        raise PlatformRefused(f"{_NO_STREAM} ({one_line(str(found.get('msg') or code), 200)})")
    data: Mapping[str, Any] = found["data"]
    settings: Mapping[str, Any] = data.get("ClientConfig") or {}
    return str(data["URL"]), max(float(settings.get("PingInterval") or _PING_SECONDS), 1.0)
