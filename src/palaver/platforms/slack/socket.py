"""The Socket Mode connection: Bolt acknowledges an envelope once it is stored; the gateway reconnects."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Any

from slack_bolt.adapter.socket_mode.async_internals import send_async_response
from slack_bolt.app.async_app import AsyncApp
from slack_bolt.middleware.async_middleware import AsyncMiddleware
from slack_bolt.request.async_request import AsyncBoltRequest
from slack_bolt.response import BoltResponse
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest

from palaver.platforms.slack.client import SILENT, WebClient
from palaver.platforms.slack.errors import CONNECTING
from palaver.platforms.slack.history import History, Take
from palaver.platforms.slack.parse import Json
from palaver.protocols import PlatformDown, PlatformRefused, parse_or_skip, read_object

PING_SECONDS = 5.0
"""How often the library tests the connection, and so how long it takes to notice that it is gone."""
_CONNECT_SECONDS = 30.0
_SWITCHED_OFF = "Socket Mode is switched off for this Slack app. Switch it on under Socket Mode at api.slack.com/apps."

_REQUEST: Any = SocketModeRequest


class _Connection(SocketModeClient):
    """The library's connection without its reconnecting, which would ignore errors and never give up."""

    def __init__(self, app_token: str, web: WebClient) -> None:
        super().__init__(app_token, logger=SILENT, web_client=web, ping_interval=PING_SECONDS)
        self.frames: asyncio.Queue[str | None] = asyncio.Queue()
        """In order, and None for a lost connection. The library itself would handle them all at once."""

    async def enqueue_message(self, message: str) -> None:
        self.frames.put_nowait(message)

    async def connect_to_new_endpoint(self, force: bool = False) -> None:
        del force
        self.frames.put_nowait(None)


async def serve(web: WebClient, app_token: str, history: History, connected: Callable[[], Awaitable[None]]) -> None:
    """Hand over payloads until Slack wants a new connection. An error, also one in handling them, ends it."""
    app = _bolt(web, history.take)
    with CONNECTING.requests():
        url = (await web.apps_connections_open(app_token=app_token))["url"]
        connection = _Connection(app_token, web)
        try:
            connection.wss_uri = str(url)
            async with asyncio.timeout(_CONNECT_SECONDS):
                await connection.connect()
            while await _handle(await _next(connection, history), connection, app, connected):
                pass
        finally:
            await connection.close()


async def _next(connection: _Connection, history: History) -> str | None:
    """Wait for the next frame, and read the history meanwhile."""
    while history.is_behind and connection.frames.empty():
        with suppress(TimeoutError):
            async with asyncio.timeout(history.pause):
                return await connection.frames.get()
        await history.read_next()
    return await connection.frames.get()


async def _handle(
    text: str | None, connection: _Connection, app: AsyncApp, connected: Callable[[], Awaitable[None]]
) -> bool:
    """Handle a frame; return whether there are more on this connection."""
    if text is None:
        raise PlatformDown("The connection to Slack was lost.")
    frame = parse_or_skip("slack", lambda: read_object(text)) or {}
    match frame.get("type"):
        case "hello":
            await connected()
        case "disconnect" if frame.get("reason") == "link_disabled":
            raise PlatformRefused(_SWITCHED_OFF)
        case "disconnect" if frame.get("reason") in {"warning", "refresh_requested"}:
            return False
        case "disconnect":
            raise PlatformDown("Slack ended the connection.")
        case _ if "envelope_id" in frame:
            await _take_envelope(connection, app, frame)
        case _:
            pass
    return True


async def _take_envelope(connection: _Connection, app: AsyncApp, frame: Json) -> None:
    read = parse_or_skip("slack", lambda: _read(frame))
    if read is None:
        await connection.send_socket_mode_response({"envelope_id": frame["envelope_id"]})
    else:
        await send_async_response(connection, read[0], await app.async_dispatch(read[1]), time.time())


def _read(frame: Json) -> tuple[SocketModeRequest, AsyncBoltRequest]:
    request = _REQUEST.from_dict(dict(frame))
    return request, AsyncBoltRequest(mode="socket_mode", body=request.payload)


class _Store(AsyncMiddleware):
    """Takes every payload. Listeners would come after Bolt has read it, which fails if it is unreadable."""

    def __init__(self, take: Take) -> None:
        self._take = take

    async def async_process(
        self,
        *,
        req: AsyncBoltRequest,
        resp: BoltResponse,
        next: Callable[[], Awaitable[BoltResponse]],  # noqa: A002
    ) -> BoltResponse:
        del resp, next
        await self._take(req.body)
        return BoltResponse(status=HTTPStatus.OK)


def _bolt(web: WebClient, take: Take) -> AsyncApp:
    async def fail(error: Exception) -> None:
        raise error

    # Before Bolt asks Slack who we are.
    app = AsyncApp(client=web, logger=SILENT, before_authorize=_Store(take), request_verification_enabled=False)
    app.error(fail)
    return app
