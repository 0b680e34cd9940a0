"""Agents over HTTP: what they may answer, and anything that goes wrong on the way."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from palaver.agents import http
from palaver.agents.external import ExternalAgent
from palaver.agents.http import HttpTransport
from palaver.model.transcript import ToolCall
from palaver.protocols.agent import Event, Failure, FailureKind, Final, TextDelta, ToolCalled, ToolReturned
from tests.agents.helpers import Tools, asked, events
from tests.engine.gateway import until

LINES, EVENTS, JSON = "application/x-ndjson", "text/event-stream; charset=utf-8", "application/json"


@dataclass
class Server:
    """Gives the scripted answers one after the other, the last again and again, and remembers what it was asked."""

    answers: list[bytes | Callable[[asyncio.StreamWriter], Awaitable[None]]]
    url: str = ""
    open: int = 0
    heads: list[str] = field(default_factory=list[str])
    bodies: list[dict[str, object]] = field(default_factory=list[dict[str, object]])

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(int(line[15:]) for line in head.lower().splitlines() if line.startswith("content-length:"))
        self.heads.append(head)
        self.bodies.append(json.loads(await reader.readexactly(length)))
        answer = self.answers.pop(0) if self.answers[1:] else self.answers[0]
        if isinstance(answer, bytes):
            writer.write(answer)
        else:
            await answer(writer)
        writer.close()
        self.open -= 1


def response(kind: str, body: str, status: str = "200 OK", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body.encode())}", *headers]
    return "\r\n".join([*lines, "Connection: close", "", body]).encode()


def lines(*said: object) -> str:
    return "".join(json.dumps(each) + "\n" for each in said)


@asynccontextmanager
async def serving(*answers: bytes | Callable[[asyncio.StreamWriter], Awaitable[None]]) -> AsyncGenerator[Server]:
    served = Server(list(answers))
    async with await asyncio.start_server(served.serve, "127.0.0.1", 0) as server:
        served.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/agent"
        yield served
        await until(lambda: not served.open)


async def heard(*answers: bytes | Callable[[asyncio.StreamWriter], Awaitable[None]], timeout: float = 5) -> list[Event]:  # noqa: ASYNC109
    async with serving(*answers) as server:
        return await events(ExternalAgent(HttpTransport(url=server.url, timeout=timeout)), asked("hi"))


FINAL = {"type": "final", "text": "Hello é."}


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (LINES, "\n" + lines({"type": "delta", "text": "Hel"}, FINAL)),
        (LINES, lines({"type": "delta", "text": "Hel"}) + json.dumps(FINAL, ensure_ascii=False)),
        (
            EVENTS,
            f": hi\n\nid: 1\ndata: {json.dumps({'type': 'delta', 'text': 'Hel'})}\n\ndata:{json.dumps(FINAL)}\r\n\r\n",
        ),
    ],
)
async def test_an_answer_that_grows(kind: str, body: str) -> None:
    assert await heard(response(kind, body)) == [TextDelta("Hel"), Final(text="Hello é.")]


async def test_an_answer_as_a_whole() -> None:
    assert await heard(response(JSON, json.dumps(FINAL, indent=2))) == [Final(text="Hello é.")]


async def test_what_it_gets_asked_and_by_whom() -> None:
    async with serving(response(JSON, json.dumps(FINAL))) as server:
        endpoint = HttpTransport(url=server.url, headers={"Authorization": "Bearer sesame"})
        await events(ExternalAgent(endpoint), asked("hi"))
    assert server.heads[0].startswith("POST /agent ")
    assert "authorization: bearer sesame" in server.heads[0].lower()
    assert "sesame" not in repr(endpoint)
    assert server.url not in repr(endpoint)
    assert server.bodies[0]["messages"] == [{"role": "user", "text": "hi"}]
    assert server.bodies[0]["protocol"] == 1


async def test_what_it_asks_for_comes_with_the_next_request() -> None:
    call = {"id": "c", "name": "look", "arguments": "{}"}
    first = lines({"type": "use", "call": call}, {"type": "meanwhile"})
    async with serving(response(LINES, first), response(LINES, lines(FINAL))) as server:
        happened = await events(ExternalAgent(HttpTransport(url=server.url)), asked("hi", tools=Tools()))
    assert happened == [
        ToolCalled(calls=(ToolCall("c", "look"),)),
        ToolReturned(call="c", text="look found {}"),
        Final(text="Hello é."),
    ]
    assert server.bodies[1] == server.bodies[0] | {
        "replies": [
            {"type": "result", "call": "c", "text": "look found {}", "id": ""},
            {"type": "meanwhile", "texts": ["and more"], "id": ""},
        ]
    }


async def test_it_cannot_ask_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_MAX_POSTS", 3)
    (only,) = await heard(response(LINES, lines({"type": "meanwhile"})))
    assert only == Failure(kind=FailureKind.FATAL, detail="it asked for a reply 3 times in one turn")


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("429 Too Many Requests", FailureKind.TRANSIENT),
        ("408 Request Timeout", FailureKind.TRANSIENT),
        ("500 Internal Server Error", FailureKind.TRANSIENT),
        ("503 Service Unavailable", FailureKind.TRANSIENT),
        ("413 Content Too Large", FailureKind.OVERFLOW),
        ("400 Bad Request", FailureKind.FATAL),
        ("401 Unauthorized", FailureKind.FATAL),
        ("204 No Content", FailureKind.FATAL),
        ("302 Found", FailureKind.FATAL),
    ],
)
async def test_statuses(status: str, kind: FailureKind) -> None:
    answer = response(JSON, json.dumps({"secret": "words"}), status, "Location: http://127.0.0.1:1/", "Retry-After: 7")
    (only,) = await heard(answer)
    assert isinstance(only, Failure)
    assert only.kind is kind
    assert (only.detail, only.after) == (f"the server answered with status {status[:3]}", 7.0)


@pytest.mark.parametrize(
    ("text", "seconds"), [("", None), ("soon", None), ("99999999", 3600.0), ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0)]
)
async def test_how_long_to_wait(text: str, seconds: float | None) -> None:
    (only,) = await heard(response(JSON, "", "503 Service Unavailable", f"Retry-After: {text}"))
    assert isinstance(only, Failure)
    assert only.after == seconds


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        (
            response("text/html", "<p>secret</p>"),
            FailureKind.FATAL,
            "neither JSON lines, nor server-sent events, nor JSON",
        ),
        (response(LINES, "secret\n"), FailureKind.FATAL, "a line of 6 bytes is not a JSON object"),
        (response(JSON, "[]"), FailureKind.FATAL, "violates the protocol"),
        (response(LINES, lines({"type": "delta", "text": "Hel"})), FailureKind.TRANSIENT, "before it was complete"),
        (b"secret\r\n\r\n", FailureKind.TRANSIENT, "RemoteProtocolError"),
        (response(LINES, lines(FINAL))[:-9], FailureKind.TRANSIENT, "RemoteProtocolError"),
        (b"", FailureKind.TRANSIENT, "RemoteProtocolError"),
    ],
)
async def test_answers_that_are_none(body: bytes, kind: FailureKind, words: str) -> None:
    last = (await heard(body))[-1]
    assert isinstance(last, Failure)
    assert last.kind is kind
    assert words in last.detail
    assert "secret" not in last.detail


async def test_one_that_says_nothing_is_not_waited_for() -> None:
    async def hang(writer: asyncio.StreamWriter) -> None:
        writer.write(response(LINES, "")[:-4])
        await asyncio.sleep(0.3)

    (only,) = await heard(hang, timeout=0.1)
    assert only == Failure(kind=FailureKind.TRANSIENT, detail="the server could not be reached: ReadTimeout")


async def test_nobody_is_there() -> None:
    (only,) = await events(ExternalAgent(HttpTransport(url="http://127.0.0.1:1/")), asked("hi"))
    assert only == Failure(kind=FailureKind.UNREACHABLE, detail="the server could not be reached: ConnectError")


async def test_a_line_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_LINE_BYTES", 1000)
    (only,) = await heard(response(LINES, "x" * 100_000))
    assert only == Failure(kind=FailureKind.FATAL, detail="a line is longer than 1000 bytes")


async def test_left_in_the_middle_it_hangs_up_at_once() -> None:
    gone = asyncio.Event()

    async def go_on(writer: asyncio.StreamWriter) -> None:
        writer.write(response(LINES, lines({"type": "delta", "text": "x"}) * 1000)[:1000])
        try:
            while True:
                await writer.drain()
                await asyncio.sleep(0.01)
                writer.write(b" ")
        except ConnectionError:
            gone.set()

    async with serving(go_on) as server:
        stream = ExternalAgent(HttpTransport(url=server.url)).answer(asked("hi"))
        assert await anext(stream) == TextDelta("x")
        async with asyncio.timeout(60):
            await stream.aclose()
            await gone.wait()
