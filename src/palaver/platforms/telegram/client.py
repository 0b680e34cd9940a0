"""Telegram's client library: options, errors, and how updates are fetched."""

import hashlib
import hmac
import logging
import re
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from enum import StrEnum
from functools import cache
from http import HTTPStatus
from typing import Annotated, Any, Self, cast

import httpx
from pydantic import AfterValidator, Field, SecretStr, model_validator
from telegram import Bot
from telegram.error import TelegramError
from telegram.request import HTTPXRequest

from palaver.platforms.telegram.parse import TOO_LARGE_TO_FETCH
from palaver.protocols import (
    ChatMoved,
    ClientErrors,
    PlatformBusy,
    PlatformDown,
    PlatformError,
    PlatformRefused,
    SendRefused,
    announce_httpx,
    answer_error,
    check_secret,
    check_url,
    read_object,
)
from palaver.protocols.options import AccountOptions

_TOKEN = check_secret(
    "[0-9]{1,20}:[A-Za-z0-9_-]{1,100}",
    "a token from @BotFather: digits, a colon and letters, like 123456:ABC-DEF1234",
)
_SECRET = check_secret("[A-Za-z0-9_-]{1,256}", "1 to 256 characters from A-Z a-z 0-9 _ -, like kitchen-door-42")
Url = Annotated[str, AfterValidator(check_url("a URL, like https://bot.example.org"))]


class Mode(StrEnum):
    POLL = "poll"
    WEBHOOK = "webhook"


class TelegramOptions(AccountOptions):
    token: Annotated[SecretStr, AfterValidator(_TOKEN)] = Field(description="The token from @BotFather.")
    mode: Mode = Field(
        default=Mode.POLL, description="`poll` asks Telegram for updates; `webhook` has Telegram call you."
    )
    public_url: Url | None = Field(default=None, description="For `webhook`: your public URL.")
    secret: Annotated[SecretStr, AfterValidator(_SECRET)] | None = Field(
        default=None, description="For `webhook`: the shared secret; by default derived from the token."
    )
    api_url: Url = Field(default="https://api.telegram.org", description="URL of the Bot API server.")

    @model_validator(mode="after")
    def _check_public_url(self) -> Self:
        if self.mode is Mode.WEBHOOK and not self.public_url:
            raise ValueError("public_url with mode webhook, like https://bot.example.org, or mode poll")
        return self

    @property
    def bot_id(self) -> int:
        return int(self.token.get_secret_value().partition(":")[0])

    @property
    def shared_secret(self) -> str:
        """The secret in Telegram's requests; the same in every worker."""
        if self.secret:
            return self.secret.get_secret_value()
        return hmac.new(self.token.get_secret_value().encode(), b"palaver webhook", hashlib.sha256).hexdigest()


_WRONG_TOKEN = "Telegram does not know this token. Get the right one from @BotFather (/mybots, API Token)."  # noqa: S105
_WRONG_ADDRESS = "There is no Bot API at this address. Correct api_url, or remove it to use Telegram's own."
_TWO_READERS = (
    "Another gateway or a webhook already receives this bot's messages. Stop it, or make a second bot with @BotFather."
)
# Nothing was sent before these errors.
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError, httpx.UnsupportedProtocol)
# Not a closed or deleted topic: its chat still accepts the answer.
_GONE = (
    "chat not found",
    "user not found",
    "peer_id_invalid",
    "group chat was deactivated",
    "chat_write_forbidden",
    "not enough rights to send",
    "have no rights to send a message",
    "need administrator rights in the channel chat",
    "user is deactivated",
)
_MEDIA_FORBIDDEN = re.compile(r"not enough rights to send (?!text messages)|chat_send_(?!plain_)[a-z]+_forbidden")
"""A group can forbid pictures, for example, and accept text."""


class ApiError(TelegramError):
    """An error answer of the Bot API. The words are Telegram's and can quote the message."""

    def __init__(self, code: int, words: str, parameters: Mapping[str, object]) -> None:
        super().__init__(words)
        self.code = code
        self.words = words
        self._parameters = parameters

    @property
    def after(self) -> float | None:
        found = self._parameters.get("retry_after")
        return float(found) if isinstance(found, int | float) else None

    @property
    def moved_to(self) -> str | None:
        found = self._parameters.get("migrate_to_chat_id")
        return str(found) if isinstance(found, int) else None

    def says(self, *phrases: str) -> bool:
        return any(phrase in self.words.lower() for phrase in phrases)


def _explain(error: TelegramError, *, sending: bool) -> PlatformError | None:
    if not isinstance(error, ApiError):
        return None
    if error.moved_to:
        return ChatMoved(error.moved_to)
    match error.code:
        case HTTPStatus.TOO_MANY_REQUESTS:
            return PlatformBusy(error.after or 1.0)
        case HTTPStatus.NOT_FOUND:
            return PlatformRefused(_WRONG_ADDRESS)
        case HTTPStatus.CONFLICT:
            return PlatformDown(_TWO_READERS)
        case code:
            is_gone = (code == HTTPStatus.FORBIDDEN or error.says(*_GONE)) and not _MEDIA_FORBIDDEN.search(
                error.words.lower()
            )
            return answer_error(
                "Telegram",
                code,
                sending=sending,
                words=error.words,
                fix=_WRONG_TOKEN,
                gone=(code,) if is_gone else (),
            )


API = ClientErrors(title="Telegram", raised=(TelegramError,), unsent=_NOT_SENT, explain=_explain)


def _explain_download(error: TelegramError, *, sending: bool) -> PlatformError | None:
    """File addresses expire, so 404 says nothing about the token."""
    if isinstance(error, ApiError) and error.says("file is too big"):
        return SendRefused(TOO_LARGE_TO_FETCH)
    if isinstance(error, ApiError) and error.code == HTTPStatus.NOT_FOUND:
        return SendRefused("Telegram no longer has the file.")
    return _explain(error, sending=sending)


DOWNLOADS = replace(API, explain=_explain_download)


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
