"""The Socket Mode connection: an envelope is acknowledged once it is stored; the gateway reconnects."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import cast

from slack_sdk.socket_mode.aiohttp import SocketModeClient

from palaver.platforms.slack.client import SILENT, WebClient
from palaver.platforms.slack.errors import CONNECTING
from palaver.platforms.slack.history import History, Take
from palaver.platforms.slack.parse import Json
from palaver.protocols import PlatformDown, PlatformRefused, parse_or_skip, read_object

PING_SECONDS = 5.0
"""How often the library tests the connection, and so how long it takes to notice that it is gone."""
_CONNECT_SECONDS = 30.0
_SWITCHED_OFF = "Socket Mode is switched off for this Slack app. Switch it on under Socket Mode at api.slack.com/apps."


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
    with CONNECTING.requests():
        url = (await web.apps_connections_open(app_token=app_token))["url"]
        connection = _Connection(app_token, web)
        try:
            connection.wss_uri = str(url)
            async with asyncio.timeout(_CONNECT_SECONDS):
                await connection.connect()
            while await _handle(await _next(connection, history), connection, history.take, connected):
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
    text: str | None, connection: _Connection, take: Take, connected: Callable[[], Awaitable[None]]
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
            await _take_envelope(connection, take, frame)
        case _:
            pass
    return True


async def _take_envelope(connection: _Connection, take: Take, frame: Json) -> None:
    payload = frame.get("payload")
    if isinstance(payload, dict):
        await take(cast("Json", payload))
    await connection.send_socket_mode_response({"envelope_id": frame["envelope_id"]})
