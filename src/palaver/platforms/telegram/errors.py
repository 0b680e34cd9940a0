"""Translate errors of the Bot API into errors of an adapter."""

import re
from collections.abc import Mapping
from dataclasses import replace
from http import HTTPStatus

import httpx
from telegram.error import TelegramError

from palaver.platforms.telegram.files import TOO_LARGE_TO_FETCH
from palaver.protocols import (
    ChatMoved,
    ClientErrors,
    PlatformBusy,
    PlatformDown,
    PlatformError,
    PlatformRefused,
    SendRefused,
    answer_error,
)

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
