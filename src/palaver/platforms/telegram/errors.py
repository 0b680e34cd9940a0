"""What goes wrong with the Bot API, in the words of an adapter."""

import re
from collections.abc import Mapping
from http import HTTPStatus

import httpx
from telegram.error import TelegramError

from palaver.protocols.adapter import (
    ChatMoved,
    PlatformBusy,
    PlatformDown,
    PlatformError,
    PlatformRefused,
    SendRefused,
    SendUnclear,
    TargetGone,
)

__all__ = ["Refusal", "lost", "unsent"]

_WRONG_TOKEN = "Telegram does not know this token. Ask @BotFather for the right one (/mybots, API Token), and set it."  # noqa: S105
_WRONG_ADDRESS = "There is no Bot API at this address. Mend api_url, or leave it out for Telegram's own."
_TWO_READERS = (
    "Somebody else reads the messages of this bot: another gateway, or a webhook. A bot has one reader: "
    "stop the other, or make a second bot with @BotFather."
)
# Requests that came to nothing before a byte was sent.
_NOT_BEGUN = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError, httpx.UnsupportedProtocol)
_CLIENT_ERRORS = range(400, 500)
# A topic that is closed or deleted is not among them: the chat it was in is still there, and takes the answer.
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
_ONE_KIND = re.compile(r"not enough rights to send (?!text messages)|chat_send_(?!plain_)[a-z]+_forbidden")
"""A group may forbid pictures, say, and take words."""


class Refusal(TelegramError):
    """The Bot API has answered, and the answer is no. Its words are Telegram's; they may quote what was sent."""

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

    def says(self, *words: str) -> bool:
        return any(each in self.words.lower() for each in words)


def lost(error: TelegramError) -> PlatformError:
    """What an error means where nothing is sent that people see: it may be asked again."""
    if isinstance(error, Refusal):
        return _refused(error) or PlatformDown(f"Telegram has trouble: {error.code}")
    return PlatformDown(f"there is no connection to Telegram: {_cause(error)}")


def unsent(error: TelegramError) -> PlatformError:
    """What an error means while something is sent: it may have arrived unless Telegram, or the network, says no."""
    if isinstance(error, Refusal):
        return _refused(error) or SendUnclear(f"Telegram has trouble: {error.code}")
    if isinstance(error.__cause__, _NOT_BEGUN):
        return PlatformDown(f"there is no connection to Telegram: {_cause(error)}")
    return SendUnclear(f"the connection was lost while sending: {_cause(error)}")


def _refused(refusal: Refusal) -> PlatformError | None:
    """None where the server failed, and nobody knows what it has done."""
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
            return _turned_away(refusal) if code in _CLIENT_ERRORS else None


def _turned_away(refusal: Refusal) -> SendRefused:
    words = f"Telegram refused it: {refusal.words[:200]}"
    is_gone = refusal.code == HTTPStatus.FORBIDDEN or refusal.says(*_GONE)
    return TargetGone(words) if is_gone and not _ONE_KIND.search(refusal.words.lower()) else SendRefused(words)


def _cause(error: TelegramError) -> str:
    """The words of an error of the network may have the address in them, and with it the token."""
    return type(error.__cause__ or error).__name__
