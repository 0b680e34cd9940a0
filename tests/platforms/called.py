"""What the platforms that call us have in common in tests: a server on the loopback, and a chat on it."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, ClassVar, TypeVar

import pytest
from aiohttp import BodyPartReader, web

from palaver.protocols import (
    Adapter,
    Checking,
    Downloading,
    HttpCallbacks,
    HttpRequest,
    HttpResponse,
    NewFile,
    PlatformRefused,
    Receiver,
    Source,
)
from palaver.testkit.conformance import AdapterConformance
from palaver.testkit.driver import run_adapter, send, skip_unless_possible
from palaver.testkit.fake_server import FakeServer, NotPossible, Refusal, Shown, WithFiles
from palaver.testkit.recorder import Recorder, running

__all__ = [
    "ACCOUNT",
    "CalledChat",
    "CalledConformance",
    "ExpiringTokens",
    "Json",
    "Loopback",
    "No",
    "Sent",
    "UntypedFiles",
    "forget_names",
    "reached",
    "read_form",
    "serve",
]

ACCOUNT = "helper"
_AGAIN_SECONDS = 0.01
"""Until a callback that was not acknowledged comes again."""
_FILES = (NewFile("notes.txt", "grüße\n".encode(), "text/plain"), NewFile("a.png", b"\x89PNG\r\n\x1a\n\0", "image/png"))
Json = dict[str, Any]
T = TypeVar("T", bound="Loopback")


class No(Exception):
    """An error answer."""

    def __init__(self, answer: object, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(str(answer))
        self.answer, self.status, self.headers = answer, status, headers


@dataclass
class Sent:
    """A message of ours as the platform has it."""

    chat: str
    text: str
    id: str
    raw: Any
    thread: str | None = None
    file: NewFile | None = None


@dataclass
class Loopback:
    """A server of a platform. Subclasses answer its API in `api`, and call `show` for what people see."""

    busy: ClassVar[No]
    """How the platform asks us to wait."""
    closed: ClassVar[No]
    """How it says that a chat is gone."""
    wrong: ClassVar[No]
    """How it says that the credentials are wrong."""
    url: str = ""
    sent: list[Sent] = field(default_factory=list[Sent])
    files: dict[str, NewFile] = field(default_factory=dict[str, NewFile])
    refuses: list[No] = field(default_factory=list[No])
    """The errors of the next sends."""
    gone: set[str] = field(default_factory=set[str])
    loses: bool | None = None
    """During the next send the connection is lost, after (True) or before it is shown."""
    tokens: int = 0
    """How many access tokens it has given; only the last one is valid."""
    trouble: No | None = None
    """What every request for a token is answered with."""
    is_down: bool = False
    calls_us: Callable[[HttpRequest], Awaitable[HttpResponse]] | None = None
    queue: list[HttpRequest] = field(default_factory=list[HttpRequest])
    """Callbacks that are not acknowledged yet."""
    name: str = "alice"
    """The sender's name, for a platform that is asked for it while it calls."""
    names: list[str] = field(default_factory=list[str])
    """Those of the callbacks in the queue."""
    responses: list[HttpResponse] = field(default_factory=list[HttpResponse])
    news: asyncio.Event = field(default_factory=asyncio.Event)
    numbers: "count[int]" = field(default_factory=lambda: count(1))

    async def api(self, method: str, path: str, request: web.Request) -> object:
        raise NotImplementedError

    # What the subclasses use

    def new_token(self) -> str:
        if self.trouble:
            raise self.trouble
        self.tokens += 1
        return self.token

    @property
    def token(self) -> str:
        return f"token-{self.tokens}"

    async def show(self, request: web.Request, sent: Sent) -> None:
        """Show a message, unless the server is told to fail."""
        loses, self.loses = self.loses, None
        if loses is False:
            await _lose(request)
        if self.refuses:
            raise self.refuses.pop(0)
        if sent.chat in self.gone:
            raise self.closed
        self.sent.append(sent)
        if loses:
            await _lose(request)

    def keep(self, file: NewFile) -> str:
        handle = f"file-{next(self.numbers)}"
        self.files[handle] = file
        return handle

    # Calling us

    def push(self, request: HttpRequest, name: str = "alice") -> None:
        self.queue.append(request)
        self.names.append(name)
        self.news.set()

    async def call(self) -> None:
        """One after the other, each again and again until it is acknowledged."""
        while True:
            self.news.clear()
            while self.queue:
                if not await self._is_acknowledged(self.queue[0]):
                    await asyncio.sleep(_AGAIN_SECONDS)
            await self.news.wait()

    async def _is_acknowledged(self, request: HttpRequest) -> bool:
        self.name = self.names[0]
        try:
            reply = self.calls_us and await self.calls_us(request)
        except Exception:  # noqa: BLE001 - no matter what is wrong there, it is called again
            return False
        if not reply or reply.status != 200:
            return False
        del self.queue[0], self.names[0]
        self.responses.append(reply)
        return True

    # Being called

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if self.is_down:
            return web.Response(status=503)
        try:
            found = await self.api(request.method, request.path, request)
        except No as no:
            return web.json_response(no.answer, status=no.status, headers=no.headers)
        if isinstance(found, NewFile):
            return web.Response(body=found.content, content_type=found.media_type)
        return found if isinstance(found, web.StreamResponse) else web.json_response(found)


async def _lose(request: web.Request) -> None:
    """A handler whose connection is gone is cancelled."""
    assert request.transport
    request.transport.abort()
    await asyncio.Event().wait()


async def read_form(request: web.Request) -> dict[str, Any]:
    """Return the fields of a form; a file as its name and content."""
    fields: dict[str, Any] = {}
    async for part in await request.multipart():
        assert isinstance(part, BodyPartReader)
        content = bytes(await part.read(decode=True))
        fields[part.name or ""] = (part.filename, content) if part.filename is not None else content.decode()
    return fields


@asynccontextmanager
async def serve(server: T) -> AsyncGenerator[T]:
    app = web.Application(client_max_size=60_000_000)
    app.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.0, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    calling = asyncio.create_task(server.call())
    try:
        yield server
    finally:
        calling.cancel()
        await asyncio.wait({calling})
        await runner.cleanup()


def reached(adapter: Adapter, server: Loopback) -> Adapter:
    """Return the adapter reached at its address while it runs, without the pace that real chats ask for."""
    setattr(adapter, "limits", replace(adapter.limits, interval=0.0))  # noqa: B010 - of this one
    if not isinstance(adapter, HttpCallbacks):
        return adapter
    run, handle = adapter.run, adapter.handle_callback

    async def run_and_listen(receiver: Receiver) -> None:
        async def hear(call: HttpRequest) -> HttpResponse:
            return await handle(call, receiver)

        server.calls_us = hear
        try:
            await run(receiver)
        finally:
            server.calls_us = None

    setattr(adapter, "run", run_and_listen)  # noqa: B010
    return adapter


def forget_names(adapter: Adapter, attribute: str) -> None:
    """Look up a name for each message: in the suite, somebody changes theirs all the time."""
    setattr(getattr(adapter, attribute), "_seconds", 0.0)  # noqa: B010


class CalledChat:
    """A chat with one person. Subclasses make the callbacks."""

    platform: ClassVar[str]
    chat_id: str
    thread_id: str | None = None
    kind: str = "dm"
    person: ClassVar[str]
    fix: ClassVar[str]
    """Words of what it says about wrong credentials."""
    refused_as: ClassVar[Sequence[Refusal]] = ()
    foreign: ClassVar[Sequence[str | None]] = ()
    """Handles of files that are not on the platform's servers."""
    signs_content: ClassVar[bool] = True
    """Whether the signature of a callback covers its content."""

    def __init__(self, server: Any) -> None:
        self.server = server

    async def takes_documents(self) -> None:
        """Raise NotPossible if it takes nothing but pictures."""

    def adapter(self) -> Adapter:
        raise NotImplementedError

    async def say(self, text: str, *, name: str = "alice", thread_id: str | None = None) -> Source:
        raise NotImplementedError

    def source(self, message_id: str, **more: Any) -> Source:
        ids = {"chat_kind": self.kind, "chat_id": self.chat_id, "user_id": self.person, **more}
        return Source(platform=self.platform, account=ACCOUNT, message_id=message_id, **ids)

    def refusals(self) -> Sequence[Refusal]:
        return self.refused_as

    async def refuse(self, refusal: Refusal) -> None:
        self.server.refuses.append(refusal.answer)

    def foreign_files(self) -> Sequence[str | None]:
        """Return them, and answer nobody: what is refused here was refused by the adapter."""
        self.server.is_down = True
        return self.foreign

    async def say_nonsense(self) -> None:
        raise NotPossible("its nonsense is in tests of its own")

    async def shown(self) -> Sequence[Shown]:
        return [
            Shown(chat_id=each.chat, text=each.text, thread_id=each.thread)
            for each in self.server.sent
            if each.file is None
        ]

    async def shown_files(self) -> Sequence[NewFile]:
        return [each.file for each in self.server.sent if each.file]

    async def cut(self) -> None:
        raise NotPossible("the platform calls: there is no connection that could be cut")

    async def limit_rate(self) -> None:
        self.server.refuses.append(self.server.busy)

    async def lose_send(self, *, shown: bool) -> None:
        self.server.loses = shown

    async def close_chat(self) -> None:
        self.server.gone.add(self.chat_id)


class UntypedFiles(AdapterConformance):
    """The suite, for platforms that tell less about files."""

    async def test_files_are_announced_with_their_message_and_fetched_later(self, fake: FakeServer) -> None:
        """These platforms do not tell the type of a file, and not always its name."""
        if not isinstance(fake, WithFiles):
            await super().test_files_are_announced_with_their_message_and_fetched_later(fake)
            return
        async with run_adapter(fake) as (adapter, recorder):
            assert isinstance(adapter, Downloading)
            source = await fake.say_with("look", _FILES)
            files = await recorder.has_files(len(_FILES))
            contents = [b"".join([piece async for piece in adapter.fetch(file)]) for file in files]
        assert recorder.received[0].source == source
        assert [text for text in recorder.texts if text] == ["look"], "the text comes once"
        assert contents == [file.content for file in _FILES]


class CalledConformance(UntypedFiles):
    """The suite, for platforms that call us and render Markdown."""

    hostile = tuple(text for text in AdapterConformance.hostile if not text.startswith("*bold*") and "\r" not in text)

    async def test_a_file_is_shown_once_with_a_receipt_of_its_own(self, fake: FakeServer) -> None:
        assert isinstance(fake, CalledChat)
        await skip_unless_possible(fake.takes_documents())
        await super().test_a_file_is_shown_once_with_a_receipt_of_its_own(fake)

    async def test_a_forged_call_is_refused_and_a_replayed_one_has_the_same_id(self, fake: FakeServer) -> None:
        assert isinstance(fake, CalledChat)
        adapter, recorder = fake.adapter(), Recorder()
        assert isinstance(adapter, HttpCallbacks)
        await fake.say("hello")
        real: HttpRequest = fake.server.queue.pop()
        bodies = (
            real.body[:-3],
            b"",
            b"\xff\xfe",
            b"[" * 100_000,
            b"{}",
            b"null",
            b'{"encrypt": "AAAA"}',
            b"<xml>",
            b"x" * 999_999,
        )
        forged = [replace(real, body=body) for body in bodies]
        forged += [replace(real, headers={}, query={}), replace(real, headers={"x": "é"}, query={"nonce": "\udc80"})]
        for call in forged:
            reply = await adapter.handle_callback(call, recorder)
            assert reply.status in {400, 401, 403} or not fake.signs_content, call
        assert not recorder.offered
        for _ in range(2):
            assert (await adapter.handle_callback(real, recorder)).status == 200
        assert len(recorder.received) == 2
        assert len({inbound.source for inbound in recorder.received}) == 1

    async def test_wrong_credentials_are_explained(self, fake: FakeServer) -> None:
        assert isinstance(fake, CalledChat)
        fake.server.trouble = fake.server.wrong
        adapter = fake.adapter()
        assert isinstance(adapter, Checking)
        with pytest.raises(PlatformRefused, match=fake.fix):
            await adapter.check()
        fake.server.trouble = None
        assert await adapter.check()


class ExpiringTokens(CalledConformance):
    """The suite, for platforms whose tokens expire."""

    async def test_an_expired_token_is_replaced_and_nothing_is_sent_twice(self, fake: FakeServer) -> None:
        assert isinstance(fake, CalledChat)
        async with run_adapter(fake) as (adapter, _):
            await send(adapter, fake, "one")
            fake.server.tokens += 1
            await send(adapter, fake, "two")
        assert [shown.text for shown in await fake.shown()] == ["one", "two"]

    async def test_a_file_is_fetched_with_another_token_if_the_first_has_expired(self, fake: FakeServer) -> None:
        assert isinstance(fake, CalledChat)
        adapter = fake.adapter()
        assert isinstance(fake, WithFiles)
        assert isinstance(adapter, Downloading)
        recorder = Recorder()
        async with running(adapter, recorder):
            await fake.say_with("look", _FILES[1:])
            (file,) = await recorder.has_files(1)
            fake.server.tokens += 1
            assert b"".join([chunk async for chunk in adapter.fetch(file)]) == _FILES[1].content
