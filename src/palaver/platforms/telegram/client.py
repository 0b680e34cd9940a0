"""The connection to the Bot API: a `Bot` of python-telegram-bot that raises `ApiError` for every error answer."""

import logging
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, cast

import httpx
from telegram import Bot
from telegram.error import TelegramError
from telegram.request import HTTPXRequest

from palaver.platforms.telegram.errors import ApiError
from palaver.platforms.telegram.options import TelegramOptions
from palaver.protocols import announce_httpx, read_object

UPDATE_KINDS = (
    "message",
    "edited_message",
    "channel_post",
    "edited_channel_post",
    "callback_query",
    "message_reaction",
)
_MAX_UPDATES = 100
_SUCCESS = range(200, 300)

# The library logs answers that it cannot read, and with them messages.
logging.getLogger("telegram").setLevel(logging.CRITICAL + 1)
# Every URL contains the token.
for _library in ("httpx", "httpcore"):
    logging.getLogger(_library).setLevel(logging.WARNING)


class _Request(HTTPXRequest):
    async def do_request(self, *args: Any, **kwargs: Any) -> tuple[int, bytes]:  # noqa: ANN401 - as in its base
        code, payload = await super().do_request(*args, **kwargs)
        if code not in _SUCCESS:
            raise _api_error(code, payload)
        return code, payload

    @staticmethod
    def parse_json_payload(payload: bytes) -> dict[str, Any]:
        found = _object(payload)
        if "result" not in found:
            raise TelegramError("The answer is not from a Bot API server.")
        return dict(found)


def _api_error(code: int, payload: bytes) -> ApiError:
    found = _object(payload)
    return ApiError(code, str(found.get("description") or f"HTTP {code}"), _mapping(found.get("parameters")))


def _object(payload: bytes) -> Mapping[str, object]:
    try:
        return read_object(payload.decode("utf-8", "replace"))
    except ValueError:
        return {}


def _mapping(found: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", found) if isinstance(found, dict) else {}


async def _trace(request: httpx.Request) -> None:
    request.extensions["trace"] = announce_httpx


@cache
def _tls() -> ssl.SSLContext:
    """Cached: loading the certificates takes longer than a request."""
    return httpx.create_ssl_context()


class BotConnection:
    """A bot and its connection pool; the last user closes it."""

    def __init__(self, options: TelegramOptions) -> None:
        self._request = _Request(
            connection_pool_size=64,
            connect_timeout=10.0,
            read_timeout=30.0,
            write_timeout=30.0,
            pool_timeout=10.0,
            media_write_timeout=60.0,
            httpx_kwargs={"verify": _tls(), "event_hooks": {"request": [_trace]}},
        )
        self._bot = Bot(
            options.token.get_secret_value(),
            base_url=f"{options.api_url}/bot",
            base_file_url=f"{options.api_url}/file/bot",
            request=self._request,
            get_updates_request=self._request,
        )
        self._users = 0

    @asynccontextmanager
    async def used(self) -> AsyncGenerator[Bot]:
        self._users += 1
        try:
            yield self._bot
        finally:
            self._users -= 1
            if not self._users:
                await self.close()

    async def close(self) -> None:
        """Close at once, even with requests in progress."""
        await self._request.shutdown()


async def fetch_updates(bot: Bot, offset: int, wait: int) -> list[dict[str, Any]]:
    """Wait for updates from `offset` on; this confirms all earlier ones.

    They are returned unparsed, so that an unreadable one does not block the others.
    """
    query = {"offset": offset, "limit": _MAX_UPDATES, "timeout": wait, "allowed_updates": UPDATE_KINDS}
    # Sent as getUpdates. Under that name the library wants its own method used, which parses all or none.
    return await bot.do_api_request("get_Updates", query, read_timeout=wait + 10.0)
