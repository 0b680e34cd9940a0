"""Capabilities: what some adapters can do beyond receiving and sending. An adapter has one by having its methods."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

from typing_extensions import TypeIs

from palaver.model.attachment import Attachment
from palaver.model.target import Place
from palaver.model.turn import Outbound
from palaver.model.value import value
from palaver.protocols.adapter import Receiver
from palaver.protocols.hooks import EventSubscription
from palaver.protocols.voice import VoiceFormat

T = TypeVar("T")


def supports(thing: object, capability: type[T]) -> TypeIs[T]:
    """Return whether an adapter or agent has the methods of a capability. Cached by class."""
    return _supports(type(thing), capability)


@lru_cache(512)
def _supports(kind: type, capability: type) -> bool:
    return issubclass(kind, capability)


@runtime_checkable
class Typing(Protocol):
    """Can show that somebody is writing. The text says what the agent is doing; most platforms cannot show that."""

    async def typing(self, outbound: Outbound) -> None: ...


@runtime_checkable
class Editing(Protocol):
    """Can change a sent message. Editing twice to the same text does no harm."""

    async def edit(self, receipt: str, outbound: Outbound) -> None:
        """Raise SendRefused if the message can no longer be changed."""
        ...


@runtime_checkable
class Drafting(Protocol):
    """Can mark a message as unfinished. Such adapters have `Editing`, too."""

    async def draft(self, receipt: str | None, outbound: Outbound) -> str:
        """Start an unfinished message, or update the one with this receipt; return its receipt. `edit` finishes it."""
        ...


@runtime_checkable
class Threading(Protocol):
    """Can start a thread."""

    async def open_thread(self, outbound: Outbound, *, idempotency_key: str) -> str:
        """Start a thread called `outbound.opens` with this message in it, and return the thread's id.

        Raise SendRefused if the chat has no threads, otherwise what `send` raises. If the platform repeats safely,
        return the same thread under the same key.
        """
        ...


@runtime_checkable
class Downloading(Protocol):
    """Receives files. A message names them; the gateway downloads each once, later."""

    def fetch(self, file: Attachment) -> AsyncIterator[bytes]:
        """Yield the content of the file with this `handle`, in chunks.

        Raise PlatformDown or PlatformBusy to be asked again, and SendRefused if the file cannot be had.
        """
        ...


@runtime_checkable
class VoiceMessages(Protocol):
    """Sends recordings of one format as voice messages. Such adapters have `Uploading`, too."""

    def voice_format(self) -> VoiceFormat: ...


@runtime_checkable
class Uploading(Protocol):
    """Sends files."""

    async def send_file(self, outbound: Outbound, content: Path, *, idempotency_key: str) -> str:
        """Send `outbound.file`, with the text if there is one, like `send`. Its name is untrusted: not a path."""
        ...


@runtime_checkable
class Checking(Protocol):
    """Can test its configuration without serving the account."""

    async def check(self) -> str:
        """Ask the platform who we are and return it: `@helper_bot`. Raise PlatformError with what to do.

        The gateway also calls it before it repeats a send that may have arrived, so do not cache the result.
        """
        ...


@value
class MenuCommand:
    name: str
    help: str


@runtime_checkable
class CommandMenu(Protocol):
    """Can show people a list of commands."""

    async def show_menu(self, commands: Sequence[MenuCommand]) -> None:
        """Replace the list. Called after each connection; leave out what the platform cannot show."""
        ...


@value
class HttpRequest:
    """A request to the address of an account, `/in/<platform>/<account>/<path>`."""

    method: str
    path: str = ""
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Names are in lower case."""
    body: bytes = b""


@value
class HttpResponse:
    status: int = 200
    body: bytes = b""
    media_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def of_json(cls, body: Mapping[str, object], status: int = 200) -> "HttpResponse":
        return cls(status=status, body=json.dumps(body).encode(), media_type="application/json")


@runtime_checkable
class HttpCallbacks(Protocol):
    """Receives messages as HTTP requests. Authenticate each one: anybody can send it."""

    @property
    def takes_callbacks(self) -> bool:
        """Whether this account takes requests; another account of the platform may not."""
        ...

    async def handle_callback(self, request: HttpRequest, receiver: Receiver) -> HttpResponse:
        """Respond once the content is stored. Any worker can be called, not only the one that serves the account."""
        ...


@runtime_checkable
class Forwarding(Protocol):
    """Can send its answers to other chats."""

    def forwards_to(self) -> Sequence[Place]:
        """Return the chats that get the answers; empty to answer where the message came from."""
        ...


@runtime_checkable
class EventSubscriber(Protocol):
    """Sends gateway events to somebody."""

    def subscription(self) -> EventSubscription:
        """Return which events to send, each as a message with `is_news` whose text is the event as JSON."""
        ...


_announced: ContextVar[Callable[[], Awaitable[None]] | None] = ContextVar("announced", default=None)


@contextmanager
def announced(leaves: Callable[[], Awaitable[None]]) -> Generator[None]:
    """Await `leaves` before each request of this task that is announced.

    If it raises, the request is not made, and the block raises that, whatever a client library makes of it.
    """
    refusals: list[Exception] = []

    async def leave() -> None:
        try:
            await leaves()
        except Exception as refusal:
            refusals.append(refusal)
            raise

    with _announcing(leave):
        try:
            yield
        except Exception as error:
            if refusals and error is not refusals[0]:
                raise refusals[0] from error
            raise


@contextmanager
def unannounced() -> Generator[None]:
    """Announce no request: none of them shows a message."""
    with _announcing(None):
        yield


@contextmanager
def _announcing(leaves: Callable[[], Awaitable[None]] | None) -> Generator[None]:
    outside = _announced.get()
    _announced.set(leaves)
    try:
        yield
    finally:
        _announced.set(outside)  # not with a token: a generator can be closed in another context


async def request_leaves() -> None:
    """Announce that a request is about to be written to an open connection."""
    if leaves := _announced.get():
        await leaves()


async def announce_httpx(event: str, _: Mapping[str, Any]) -> None:
    """Announce requests of httpx and httpx2: as their extension `trace`."""
    if event.endswith(".send_request_headers.started"):
        await request_leaves()


async def announce_aiohttp(_: object, __: object, leaving: Any) -> None:  # noqa: ANN401 - aiohttp is an extra
    """Announce requests of aiohttp: as `on_request_headers_sent` of a `TraceConfig`, which comes before they are."""
    if leaving.method != "GET":
        await request_leaves()
