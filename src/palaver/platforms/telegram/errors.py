"""Translate errors of the Bot API into errors of an adapter."""

import re
from collections.abc import Mapping
from http import HTTPStatus

import httpx
from telegram.error import TelegramError

from palaver.protocols import (
    ChatMoved,
    PlatformBusy,
    PlatformDown,
    PlatformError,
    PlatformRefused,
    SendRefused,
    SendUnclear,
    TargetGone,
)

_WRONG_TOKEN = "Telegram does not know this token. Get the right one from @BotFather (/mybots, API Token)."  # noqa: S105
_WRONG_ADDRESS = "There is no Bot API at this address. Correct api_url, or remove it to use Telegram's own."
_TWO_READERS = (
    "Another gateway or a webhook already receives this bot's messages. Stop it, or make a second bot with @BotFather."
)
# Nothing was sent before these errors.
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError, httpx.UnsupportedProtocol)
_CLIENT_ERRORS = range(400, 500)
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


def connection_error(error: TelegramError) -> PlatformError:
    """Translate an error of a request that is safe to repeat."""
    if isinstance(error, ApiError):
        return _refused(error) or PlatformDown(f"Telegram answered {error.code}.")
    return PlatformDown(f"There is no connection to Telegram: {_cause(error)}")


def send_error(error: TelegramError) -> PlatformError:
    """Translate an error of a send: it may have arrived, unless Telegram refused it or nothing was sent."""
    if isinstance(error, ApiError):
        return _refused(error) or SendUnclear(f"Telegram answered {error.code}.")
    if isinstance(error.__cause__, _NOT_SENT):
        return PlatformDown(f"There is no connection to Telegram: {_cause(error)}")
    return SendUnclear(f"The connection was lost while sending: {_cause(error)}")


def _refused(refusal: ApiError) -> PlatformError | None:
    """Return None for a server error: the message may have been sent."""
    if refusal.moved_to:
        return ChatMoved(refusal.moved_to)
    match refusal.code:
        case 429:
            return PlatformBusy(refusal.after or 1.0)
        case 401:
            return PlatformRefused(_WRONG_TOKEN)
        case 404:
            return PlatformRefused(_WRONG_ADDRESS)
        case 409:
            return PlatformDown(_TWO_READERS)
        case code:
            return _send_refused(refusal) if code in _CLIENT_ERRORS else None


def _send_refused(refusal: ApiError) -> SendRefused:
    words = f"Telegram rejects it: {refusal.words[:200]}"
    is_gone = refusal.code == HTTPStatus.FORBIDDEN or refusal.says(*_GONE)
    return TargetGone(words) if is_gone and not _MEDIA_FORBIDDEN.search(refusal.words.lower()) else SendRefused(words)


def _cause(error: TelegramError) -> str:
    """Return only the type: the text can contain the URL, and with it the token."""
    return type(error.__cause__ or error).__name__
