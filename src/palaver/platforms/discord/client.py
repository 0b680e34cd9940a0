"""The connection to Discord: discord.py for the gateway protocol, rate limits and requests; payloads stay as sent."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any

import aiohttp
import discord
from discord.gateway import DiscordWebSocket
from discord.http import Route

from palaver.platforms.discord.errors import ApiError
from palaver.platforms.discord.options import DiscordOptions
from palaver.protocols import announce_aiohttp

_INTENTS = discord.Intents(guilds=True, guild_messages=True, dm_messages=True, message_content=True, reactions=True)
_RESUMABLE = 4000
"""Discord forgets a session that is closed with 1000 or 1001."""
_CLOSE_SECONDS = 2.0

# The library logs requests and events, and with them messages.
logging.getLogger("discord").setLevel(logging.CRITICAL + 1)


async def _raise_error(_: aiohttp.ClientSession, __: SimpleNamespace, ended: aiohttp.TraceRequestEndParams) -> None:
    """Raise every error answer at once: the library would wait and repeat the request, but the gateway does that."""
    answer = ended.response
    if answer.status >= HTTPStatus.BAD_REQUEST:
        raise ApiError(answer.status, await answer.read(), answer.headers.get("Retry-After", ""))


class Client(discord.Client):
    """A client without a cache: it collects events as text, for us to parse."""

    def __init__(self, options: DiscordOptions) -> None:
        trace = aiohttp.TraceConfig()
        trace.on_request_headers_sent.append(announce_aiohttp)
        trace.on_request_end.append(_raise_error)
        super().__init__(intents=_INTENTS, max_messages=None, enable_debug_events=True, http_trace=trace)
        self._connection.parsers.clear()
        self._options = options
        self._send = self.http.request
        self.http.request = self._request
        self.own_id = ""
        self.events = deque[str]()
        """Received and not handled yet."""

    def dispatch(self, event: str, /, *args: Any, **_: Any) -> None:  # noqa: ANN401 - as in its base
        if event == "socket_raw_receive":
            self.events.append(args[0])

    async def _request(self, route: Route, **request: Any) -> Any:  # noqa: ANN401 - as in the library
        route.url = self._options.api_url + route.url.removeprefix(Route.BASE)
        return await self._send(route, **request)

    async def call(self, method: str, path: str, request: Mapping[str, Any] | None = None, **ids: str) -> Any:  # noqa: ANN401 - JSON
        """Call the API. Keep ids out of the path: the library remembers the rate limit of every path."""
        return await self.http.request(Route(method, path, **ids), **(request or {}))

    async def log_in(self) -> None:
        self.own_id = str((await self.http.static_login(self._options.token.get_secret_value()))["id"])

    async def open_gateway(self, **session: Any) -> DiscordWebSocket:  # noqa: ANN401 - as from_client
        """Start or resume a session. Its heartbeat is a thread: end it even if we are cancelled while we connect."""
        opened: list[DiscordWebSocket] = []

        class Socket(DiscordWebSocket):
            def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
                super().__init__(*args, **kwargs)
                opened.append(self)

        self.events.clear()
        try:
            return await Socket.from_client(self, **session)
        except BaseException:
            for socket in opened:
                await close_gateway(socket)
            raise


async def close_gateway(socket: DiscordWebSocket) -> None:
    """Close it so that the session can be resumed."""
    with suppress(TimeoutError, aiohttp.ClientError, OSError):
        async with asyncio.timeout(_CLOSE_SECONDS):
            await socket.close(_RESUMABLE)


class Connection:
    """A client and its HTTP session; the last user closes it."""

    def __init__(self, options: DiscordOptions) -> None:
        self._client = Client(options)
        self._users = 0

    @asynccontextmanager
    async def used(self) -> AsyncGenerator[Client]:
        self._users += 1
        try:
            if self._users == 1:
                await self._client.__aenter__()
                await self._client.log_in()
            yield self._client
        finally:
            self._users -= 1
            if not self._users:
                await self._client.close()
