"""A provider on loopback that follows a script: real HTTP, streamed in small pieces, with every way to go wrong.

It speaks as OpenAI does (`/v1/chat/completions`) and as Anthropic does (`/v1/messages`); others from a recording.
"""

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Generator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

__all__ = ["Call", "Hangs", "Page", "Provider", "Recorded", "Refuses", "Says", "provided", "providing"]

_PIECE = 5


@dataclass(frozen=True, slots=True)
class Call:
    name: str
    arguments: str = "{}"
    id: str = "call_1"


@dataclass(frozen=True, kw_only=True, slots=True)
class Says:
    """An answer, streamed in pieces."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    thinking: str = ""
    signature: str = ""
    input_tokens: int = 10
    output_tokens: int = 5
    cached_tokens: int = 0
    stop: str | None = None
    """Why it ended, where it is not what follows from the rest."""
    cut_after: int | None = None
    """The connection is lost after so many pieces."""
    stops_after: int | None = None
    """It ends without a word after so many pieces, as if that were all."""
    waits_for: asyncio.Event | None = None
    """It says nothing before this is set."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Refuses:
    status: int
    message: str = "no"
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Page:
    """Something that is no answer at all."""

    content: str = "<html>Welcome to the hotel network</html>"
    content_type: str = "text/html"


@dataclass(frozen=True, slots=True)
class Hangs:
    """It takes the request and says nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recorded:
    """A response as a provider gave it, in the form of its own interface."""

    status: int = 200
    body: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    events: tuple[str, ...] = ()
    """The lines of a stream, instead of a body."""
    is_cut: bool = False
    """The connection is lost at the end of them."""


Step = Says | Refuses | Page | Hangs | Recorded


@dataclass
class Provider:
    script: list[Step] = field(default_factory=list[Step])
    """What it does next; when nothing is left it says how often it was asked."""
    requests: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    bodies: list[bytes] = field(default_factory=list[bytes])
    keys: list[str] = field(default_factory=list[str])
    heads: list[str] = field(default_factory=list[str])
    models: tuple[str, ...] = ()
    """What it lists; without any, the script says what it answers when it is asked for a list."""
    port: int = 0
    _over: asyncio.Event = field(default_factory=asyncio.Event)
    _open: set[asyncio.StreamWriter] = field(default_factory=set[asyncio.StreamWriter])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def openai(self) -> str:
        return f"{self.url}/v1"

    def then(self, *steps: Step) -> None:
        self.script += steps

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while await self._exchange(reader, writer):
                pass
        self._open.discard(writer)
        writer.close()

    def end(self) -> None:
        """Anyone who is still connected, or waits for an answer, is let go."""
        self._over.set()
        for writer in self._open:
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
        self.heads.append("\n".join(head))
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.bodies.append(body)
        self.requests.append(json.loads(body or b"{}"))
        self.keys.append(headers.get("authorization") or headers.get("x-api-key", ""))
        if head[0].startswith("GET ") and self.models:
            listed = {"object": "list", "data": [{"id": each, "object": "model"} for each in self.models]}
            return await self._do(Recorded(body=json.dumps(listed)), writer, anthropic=False)
        step = self.script.pop(0) if self.script else Says(text=f"answer {len(self.requests)}")
        return await self._do(step, writer, "/messages" in head[0])

    async def _do(self, step: Step, writer: asyncio.StreamWriter, anthropic: bool) -> bool:
        match step:
            case Hangs():
                await self._over.wait()
                return False
            case Refuses():
                error = {"type": step.code or "error", "code": step.code, "message": step.message}
                content = json.dumps({"type": "error", "error": error})
                return await _whole(writer, step.status, content, {"content-type": "application/json", **step.headers})
            case Page():
                return await _whole(writer, 200, step.content, {"content-type": step.content_type})
            case Recorded(events=()):
                return await _whole(
                    writer, step.status, step.body, {"content-type": "application/json", **step.headers}
                )
            case Recorded():
                return await _chunked(writer, step.events, cut_after=len(step.events) if step.is_cut else None)
            case Says():
                if step.waits_for:
                    await step.waits_for.wait()
                return await _stream(writer, step, _anthropic(step) if anthropic else _openai(step))


async def _whole(writer: asyncio.StreamWriter, status: int, content: str, headers: Mapping[str, str]) -> bool:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    writer.write(f"HTTP/1.1 {status} -\r\ncontent-length: {len(content)}\r\n{lines}\r\n{content}".encode())
    await writer.drain()
    return True


async def _stream(writer: asyncio.StreamWriter, step: Says, pieces: Iterable[str]) -> bool:
    shown = pieces if step.stops_after is None else islice(pieces, step.stops_after)
    return await _chunked(writer, shown, cut_after=step.cut_after)


async def _chunked(writer: asyncio.StreamWriter, pieces: Iterable[str], *, cut_after: int | None) -> bool:
    writer.write(b"HTTP/1.1 200 -\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    for count, piece in enumerate(pieces):
        if count == cut_after:
            return False
        content = piece.encode()
        writer.write(f"{len(content):x}\r\n".encode() + content + b"\r\n")
    if cut_after is not None:
        await writer.drain()
        return False
    writer.write(b"0\r\n\r\n")
    await writer.drain()
    return True


def _cut(text: str) -> Iterator[str]:
    for start in range(0, len(text), _PIECE):
        yield text[start : start + _PIECE]


def _openai(step: Says) -> Iterator[str]:
    common = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "scripted"}

    def chunk(delta: Mapping[str, object], stop: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": stop}
        return f"data: {json.dumps({**common, 'choices': [choice]})}\n\n"

    yield chunk({"role": "assistant", "content": ""})
    for piece in _cut(step.thinking):
        yield chunk({"reasoning_content": piece})
    for piece in _cut(step.text):
        yield chunk({"content": piece})
    for index, call in enumerate(step.calls):
        named = {"index": index, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
        yield chunk({"tool_calls": [named]})
        for piece in _cut(call.arguments):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, step.stop or ("tool_calls" if step.calls else "stop"))
    total = step.input_tokens + step.output_tokens
    usage = {
        "prompt_tokens": step.input_tokens,
        "completion_tokens": step.output_tokens,
        "total_tokens": total,
        "prompt_tokens_details": {"cached_tokens": step.cached_tokens},
    }
    yield f"data: {json.dumps({**common, 'choices': [], 'usage': usage})}\n\n"
    yield "data: [DONE]\n\n"


def _anthropic(step: Says) -> Iterator[str]:
    def event(kind: str, **said: object) -> str:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **said})}\n\n"

    message: dict[str, object] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "scripted",
        "content": [],
    }
    fresh = step.input_tokens - step.cached_tokens
    started = {"input_tokens": fresh, "cache_read_input_tokens": step.cached_tokens, "output_tokens": 1}
    yield event("message_start", message={**message, "stop_reason": None, "stop_sequence": None, "usage": started})
    for index, (block, deltas) in enumerate(_blocks(step)):
        yield event("content_block_start", index=index, content_block=block)
        for delta in deltas:
            yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
    stop = step.stop or ("tool_use" if step.calls else "end_turn")
    usage = {"output_tokens": step.output_tokens}
    yield event("message_delta", delta={"stop_reason": stop, "stop_sequence": None}, usage=usage)
    yield event("message_stop")


def _blocks(step: Says) -> Iterator[tuple[dict[str, object], list[dict[str, str]]]]:
    if step.thinking:
        thought = [{"type": "thinking_delta", "thinking": piece} for piece in _cut(step.thinking)]
        signed = {"type": "signature_delta", "signature": step.signature}
        yield {"type": "thinking", "thinking": "", "signature": ""}, [*thought, signed]
    if step.text:
        yield {"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in _cut(step.text)]
    for call in step.calls:
        arguments = [{"type": "input_json_delta", "partial_json": piece} for piece in _cut(call.arguments)]
        yield {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}, arguments


@contextmanager
def provided(*script: Step, models: tuple[str, ...] = (), port: int = 0) -> Generator[Provider]:
    """Beside a test that has the loop of its thread for itself, or none."""
    ready, over, found = threading.Event(), asyncio.Event(), list[Provider]()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with providing(*script, models=models, port=port) as served:
            found.append(served)
            ready.set()
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    ready.wait()
    try:
        yield found[0]
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()


@asynccontextmanager
async def providing(*script: Step, models: tuple[str, ...] = (), port: int = 0) -> AsyncGenerator[Provider]:
    provider = Provider(list(script), models=models)
    server = await asyncio.start_server(provider.serve, "127.0.0.1", port)
    provider.port = server.sockets[0].getsockname()[1]
    try:
        yield provider
    finally:
        server.close()
        provider.end()
        await asyncio.sleep(0)
