"""Read request bodies within limits: of size, of time, and of the memory that all of them take together."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Hashable, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from palaver.model.attachment import TooLarge
from palaver.model.errors import PalaverError
from palaver.settings.limits import LimitsConfig

MAX_PLAIN_BYTES = 1_000_000
"""Size limit of a body without files."""
MAX_CALLBACK_BYTES = 4_000_000
"""The same for what platforms send; WhatsApp's calls have up to 3 MB."""
STRANGER_SECONDS = 30.0
"""How long a body can take to arrive if nobody has logged in to send it."""
_SMALL_BYTES = 64_000
"""This much of each body needs no share of the memory, so that short messages always have room."""
_WINDOW_SECONDS = 20.0
_WINDOW_BYTES = 64_000
"""A body brings at least this much in each window, or ends in it."""
_MAX_JSON_VALUES = 1_000_000

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
"""As ASGI has it. Written out, since Starlette is an extra and the gateway imports this module without it."""


def max_body_bytes(limits: LimitsConfig) -> int:
    """Return the size of the largest message with its files, in base64."""
    return MAX_PLAIN_BYTES + limits.files_per_message * limits.file_size * 4 // 3


class ServerBusy(PalaverError):
    """Other requests hold all the memory set aside for bodies."""


class BodyTooSlow(PalaverError):
    """The body did not arrive in time."""


@dataclass(kw_only=True)
class BodyReader:
    """Bodies hold memory while they are received and worked with: so many of the largest size, in total and each.

    A caller can hold as much as stays free. Alone that is half of the total; the more others hold, the less, so that
    few callers never leave nothing for the next.
    """

    total: int = 2
    per_caller: int = 1
    with_files: bool = True
    """Whether the largest body is one with files."""
    plain_bytes: int = MAX_PLAIN_BYTES
    """Size limit of a body without files."""
    _held: Counter[Hashable] = field(default_factory=Counter[Hashable])

    @property
    def held(self) -> int:
        return self._held.total()

    @asynccontextmanager
    async def read(
        self, pieces: AsyncIterable[bytes], limits: LimitsConfig, caller: Hashable, *, with_files: bool
    ) -> AsyncGenerator[bytearray]:
        """Yield the whole body. It counts towards the limits until the block ends, so do not wait inside it."""
        limit = max_body_bytes(limits) if with_files else self.plain_bytes
        content, held = bytearray(), 0
        try:
            async for piece in pieces:
                content += piece
                if len(content) > limit:
                    raise TooLarge(f"The body is larger than {limit} bytes.")
                more = max(0, len(content) - _SMALL_BYTES) - held
                held += more
                self._hold(caller, more, limits)
            # Every JSON value but the first follows one of these, so this bounds the memory that decoding takes.
            if sum(map(content.count, (b",", b"[", b"{"))) > _MAX_JSON_VALUES:
                raise TooLarge(f"The body has more than {_MAX_JSON_VALUES:,} commas and brackets.")
            yield content
        finally:
            self._held[caller] -= held
            if not self._held[caller]:
                del self._held[caller]
            content.clear()

    def _hold(self, caller: Hashable, more: int, limits: LimitsConfig) -> None:
        if not more:
            return
        largest = max_body_bytes(limits) if self.with_files else self.plain_bytes
        self._held[caller] += more
        if self._held[caller] > self.per_caller * largest:
            raise ServerBusy("You are sending too much at once. Try again later.")
        if self._held[caller] > self.total * largest - self.held:
            raise ServerBusy("The server is busy. Try again later.")


async def read_at_most(pieces: AsyncIterable[bytes], limit: int) -> bytes:
    """Read a small body. Raises TooLarge."""
    body = bytearray()
    async for piece in pieces:
        body += piece
        if len(body) > limit:
            raise TooLarge(f"The form is larger than {limit} bytes.")
    return bytes(body)


def replay_body(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that delivers the body once more to the next reader."""
    pending: list[MutableMapping[str, Any]] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> MutableMapping[str, Any]:
        return pending.pop() if pending else await receive()

    return replay


@dataclass
class TimedBody:
    """A `receive` that raises BodyTooSlow if the body takes too long or comes too slowly.

    Only time spent waiting for the client counts. A body that came fast at first earns no time to be slow later.
    """

    _receive: Receive
    _seconds: float
    """How much time is left."""
    _window_seconds: float = field(default_factory=lambda: _WINDOW_SECONDS)
    _window_bytes: int = 0
    _is_complete: bool = False

    async def receive(self) -> MutableMapping[str, Any]:
        if self._is_complete:
            return await self._receive()
        now = asyncio.get_running_loop().time
        start = now()
        try:
            async with asyncio.timeout(min(self._seconds, self._window_seconds)):
                message = await self._receive()
        except TimeoutError:
            raise BodyTooSlow("The body did not arrive in time.") from None
        waited = now() - start
        self._seconds -= waited
        self._window_seconds -= waited
        self._window_bytes += len(message.get("body", b""))
        if self._window_bytes >= _WINDOW_BYTES:
            self._window_bytes, self._window_seconds = 0, _WINDOW_SECONDS
        self._is_complete = not message.get("more_body", False)
        return message
