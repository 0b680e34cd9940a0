"""Discord's client library: options, errors, and one connection."""

import asyncio
import logging
import re
import zlib
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from http import HTTPStatus
from types import SimpleNamespace
from typing import Annotated, Any, cast

import aiohttp
import discord
from discord.gateway import DiscordWebSocket
from discord.http import HTTPClient, Route
from pydantic import AfterValidator, Field, SecretStr, field_validator

from palaver.protocols import (
    ClientErrors,
    PlatformBusy,
    PlatformError,
    PlatformRefused,
    announce_aiohttp,
    answer_error,
    check_secret,
    check_url,
    read_object,
)
from palaver.protocols.options import AccountOptions

_TOKEN = check_secret(
    r"[A-Za-z0-9_-]{1,100}(\.[A-Za-z0-9_-]{1,100}){2}",
    "the bot's token: three parts with dots between them, from the page Bot",
)
_ROLE = re.compile(r"[1-9][0-9]{0,19}")


class DiscordOptions(AccountOptions):
    token: Annotated[SecretStr, AfterValidator(_TOKEN)] = Field(
        description="The token from the page Bot of your application."
    )
    roles: tuple[str, ...] = Field(
        default=(),
        description="Ids of server roles. People with one of them meet grants with the basis `platform-role`.",
    )
    auto_thread: bool = Field(
        default=False, description="Answer each mention in a channel in a new thread at that message."
    )
    api_url: Annotated[str, AfterValidator(check_url("a URL, like https://discord.com/api/v10"))] = Field(
        default="https://discord.com/api/v10", description="URL of the API."
    )

    @field_validator("roles", mode="before")
    @classmethod
    def _check_roles(cls, roles: object) -> object:
        """YAML reads an id as a number."""
        found = [str(role) for role in roles] if isinstance(roles, list | tuple) else []  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        if not isinstance(roles, list | tuple) or not all(_ROLE.fullmatch(role) for role in found):
            raise ValueError('a list of role ids, like ["41771983423143936"]')
        return found


_WRONG_TOKEN = (
    "Discord does not know this token. Press Reset Token on the page Bot of your application at "  # noqa: S105
    "discord.com/developers/applications, and use the new one."
)
NO_CONTENT = (
    "The bot cannot read messages. Turn on Message Content Intent on the page Bot of your application at "
    "discord.com/developers/applications."
)
_WRONG_ADDRESS = "There is no API of Discord at this address. Correct api_url, or remove it to use Discord's own."
_REFUSED = {
    4004: _WRONG_TOKEN,
    4011: "The bot is in more servers than one connection can serve. Remove it from some.",
    4014: NO_CONTENT,
}
"""By the codes with which Discord closes a connection for good."""
UNKNOWN_CHANNEL = 10_003
CANNOT_SEND_IN_FORUM = 40_058
MISSING_PERMISSIONS = 50_013
THREAD_CLOSED = frozenset({UNKNOWN_CHANNEL, 50_083, 160_005})
"""It is deleted, archived or locked."""
THREAD_EXISTS = 160_004
_GONE = frozenset({UNKNOWN_CHANNEL, 10_004, 50_001, 50_007, MISSING_PERMISSIONS, 50_278})
"""Unknown channel or server, no access, a person who takes no direct messages, no permission, no common server."""


class ApiError(Exception):
    """An error answer of the API: its HTTP status and Discord's own code. The words can quote the message."""

    def __init__(self, status: int, body: bytes, retry_after: str = "") -> None:
        found = _object(body)
        self.status = status
        self.code = found.get("code", 0)
        self.words = str(found.get("message") or f"HTTP {status}")
        self._after = found.get("retry_after") or retry_after
        super().__init__(self.words)

    @property
    def after(self) -> float | None:
        try:
            return float(cast("str | float", self._after))
        except (TypeError, ValueError):
            return None


def _object(body: bytes) -> Mapping[str, object]:
    try:
        return read_object(body.decode("utf-8", "replace"))
    except ValueError:
        return {}


def _explain(error: Exception, *, sending: bool, gone: frozenset[int] = _GONE) -> PlatformError | None:
    if isinstance(error, discord.ConnectionClosed):
        words = _REFUSED.get(error.code)
        return PlatformRefused(words) if words else None
    if not isinstance(error, ApiError):
        return None
    if error.status == HTTPStatus.TOO_MANY_REQUESTS:
        return PlatformBusy(error.after or 1.0)
    if error.status == HTTPStatus.NOT_FOUND and not error.code:
        return PlatformRefused(_WRONG_ADDRESS)
    return answer_error(
        "Discord",
        error.status,
        sending=sending,
        words=error.words,
        fix=_WRONG_TOKEN,
        gone=(error.status,) if error.code in gone else (),
    )


API = ClientErrors(
    title="Discord",
    raised=(ApiError, aiohttp.ClientError, OSError, TimeoutError, discord.DiscordException, zlib.error),
    unsent=(aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError),
    explain=_explain,
)


def _explain_upload(error: Exception, *, sending: bool) -> PlatformError | None:
    """A channel can forbid files and accept text."""
    return _explain(error, sending=sending, gone=_GONE - {MISSING_PERMISSIONS})


UPLOADS = replace(API, explain=_explain_upload)


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


class _Http(HTTPClient):
    """Sends every request to the address of the options."""

    def __init__(self, loop: asyncio.AbstractEventLoop, options: DiscordOptions, trace: aiohttp.TraceConfig) -> None:
        super().__init__(loop, http_trace=trace)
        self._api_url = options.api_url

    async def request(self, route: Route, **request: Any) -> Any:  # noqa: ANN401 - as in its base
        route.url = self._api_url + route.url.removeprefix(Route.BASE)
        return await super().request(route, **request)


_opened: ContextVar[list[DiscordWebSocket]] = ContextVar("opened")
"""The connections of one call of `open_gateway`."""


class _Socket(DiscordWebSocket):
    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - as in its base
        super().__init__(*args, **kwargs)
        _opened.get().append(self)


class Client(discord.Client):
    """A client without a cache: it collects events as text, for us to parse."""

    def __init__(self, options: DiscordOptions) -> None:
        trace = aiohttp.TraceConfig()
        trace.on_request_headers_sent.append(announce_aiohttp)
        trace.on_request_end.append(_raise_error)
        super().__init__(intents=_INTENTS, max_messages=None, enable_debug_events=True)
        self.http = _Http(self.loop, options, trace)
        self._connection.parsers.clear()
        self._options = options
        self.own_id = ""
        self.events = deque[str]()
        """Received and not handled yet."""

    def dispatch(self, event: str, /, *args: Any, **_: Any) -> None:  # noqa: ANN401 - as in its base
        if event == "socket_raw_receive":
            self.events.append(args[0])

    async def call(self, method: str, path: str, request: Mapping[str, Any] | None = None, **ids: str) -> Any:  # noqa: ANN401 - JSON
        """Call the API. Keep ids out of the path: the library remembers the rate limit of every path."""
        return await self.http.request(Route(method, path, **ids), **(request or {}))

    async def log_in(self) -> None:
        self.own_id = str((await self.http.static_login(self._options.token.get_secret_value()))["id"])

    async def open_gateway(self, **session: Any) -> DiscordWebSocket:  # noqa: ANN401 - as from_client
        """Start or resume a session. Its heartbeat is a thread: end it even if we are cancelled while we connect."""
        opened: list[DiscordWebSocket] = []
        outside = _opened.set(opened)
        self.events.clear()
        try:
            return await _Socket.from_client(self, **session)
        except BaseException:
            for socket in opened:
                await close_gateway(socket)
            raise
        finally:
            _opened.reset(outside)


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
