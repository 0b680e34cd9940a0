"""Translate errors of Discord into errors of an adapter."""

import zlib
from collections.abc import Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import cast

import aiohttp
import discord

from palaver.protocols import ClientErrors, PlatformBusy, PlatformError, PlatformRefused, answer_error, read_object

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
