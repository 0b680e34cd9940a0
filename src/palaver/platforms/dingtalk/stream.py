"""DingTalk's stream: a WebSocket that we open, so that DingTalk needs no address of ours."""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import quote

from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from palaver.protocols import ClientErrors, PlatformDown, parse_or_skip, proxy_of, value

_TOPIC = "/v1.0/im/bot/messages/get"
_MAX_FRAME_BYTES = 1 << 20
_JSON = "application/json"
_LINE = ClientErrors(title="DingTalk", raised=(OSError, WebSocketException))
SUBSCRIPTIONS = [{"type": "CALLBACK", "topic": _TOPIC}]


@value
class Frame:
    kind: str
    topic: str
    id: str
    data: str

    @classmethod
    def decode(cls, raw: str | bytes) -> "Frame":
        found = json.loads(raw)
        headers = found["headers"]
        return cls(
            kind=str(found["type"]), topic=str(headers["topic"]), id=str(headers["messageId"]), data=found["data"]
        )

    def answer(self, data: str) -> str:
        headers = {"contentType": _JSON, "messageId": self.id}
        return json.dumps({"code": 200, "headers": headers, "message": "OK", "data": data})


async def listen(
    place: Mapping[str, Any], connected: Callable[[], Awaitable[None]], take: Callable[[str], Awaitable[None]]
) -> None:
    """Hand over messages until the connection is lost. Each is acknowledged when `take` has returned."""
    with _LINE.requests():
        url = f"{place['endpoint']}?ticket={quote(str(place['ticket']), safe='')}"
        async with connect(url, max_size=_MAX_FRAME_BYTES, proxy=proxy_of(url)) as line:
            await connected()
            async for raw in line:
                frame = parse_or_skip("dingtalk", lambda raw=raw: Frame.decode(raw))
                if frame is None:
                    continue
                if frame.kind == "SYSTEM" and frame.topic == "disconnect":
                    break
                if frame.topic == _TOPIC:
                    await take(frame.data)
                # A ping wants its data back, a message an answer without content.
                await line.send(frame.answer(frame.data if frame.kind == "SYSTEM" else '{"response": null}'))
    raise PlatformDown("DingTalk closed the connection.")
