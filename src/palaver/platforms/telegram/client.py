"""The line to the Bot API: a `Bot` of python-telegram-bot whose errors are told apart as its answers tell them."""

import json
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

from palaver.platforms.telegram.errors import Refusal
from palaver.platforms.telegram.options import TelegramOptions

__all__ = [
    "HEARD",
    "Line",
    "raw_updates",
]

HEARD = (
    "message",
    "edited_message",
    "channel_post",
    "edited_channel_post",
    "callback_query",
)
"""The kinds of updates that we ask for."""
_MOST_AT_ONCE = 100
_SUCCESS = range(200, 300)

# What the library logs when it cannot read an answer is the answer: people's words.
logging.getLogger("telegram").setLevel(logging.CRITICAL + 1)
# The address of every request has the token in it.
for _carrier in ("httpx", "httpcore"):
    logging.getLogger(_carrier).setLevel(logging.WARNING)


class _Request(HTTPXRequest):
    async def do_request(self, *args: Any, **kwargs: Any) -> tuple[int, bytes]:  # noqa: ANN401 - as in its base
        code, payload = await super().do_request(*args, **kwargs)
        if code not in _SUCCESS:
            raise _refusal(code, payload)
        return code, payload

    @staticmethod
    def parse_json_payload(payload: bytes) -> dict[str, Any]:
        found = _object(payload)
        if "result" not in found:
            raise TelegramError("whoever answered is no server of the Bot API")
        return dict(found)


def _refusal(code: int, payload: bytes) -> Refusal:
    found = _object(payload)
    return Refusal(code, str(found.get("description") or f"HTTP {code}"), _mapping(found.get("parameters")))


def _object(payload: bytes) -> Mapping[str, object]:
    try:
        return _mapping(json.loads(payload.decode("utf-8", "replace")))
    except (ValueError, RecursionError):
        return {}


def _mapping(found: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", found) if isinstance(found, dict) else {}


@cache
def _tls() -> ssl.SSLContext:
    """Made once: reading every authority there is takes longer than a call."""
    return httpx.create_ssl_context()


class Line:
    """A bot and its connections, which several use at once. Whoever leaves last closes it."""

    def __init__(self, options: TelegramOptions) -> None:
        self._request = _Request(
            connection_pool_size=64,
            connect_timeout=10.0,
            read_timeout=30.0,
            write_timeout=30.0,
            pool_timeout=10.0,
            media_write_timeout=60.0,
            httpx_kwargs={"verify": _tls()},
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
        """Raises TelegramError."""
        self._users += 1
        try:
            yield self._bot
        finally:
            self._users -= 1
            if not self._users:
                await self.close()

    async def close(self) -> None:
        """Whatever is under way ends at once."""
        await self._request.shutdown()


async def raw_updates(bot: Bot, offset: int, wait: int) -> list[dict[str, Any]]:
    """What is new from `offset` on, which tells Telegram that everything before is safe with us; waits for something.

    They are read one by one: one that cannot be read does not keep others from us.
    """
    asked = {"offset": offset, "limit": _MOST_AT_ONCE, "timeout": wait, "allowed_updates": HEARD}
    # In small letters: as it is usually written, it is the name of the library's own, which reads all or none.
    return await bot.do_api_request("getupdates", asked, read_timeout=wait + 10.0)
