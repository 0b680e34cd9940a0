"""An OpenAI-compatible server with two models: the small one on a real llama.cpp, and one that sees.

The small model answers as it does, and calls the tools that the play names (see `calls`). The one that sees is a
stand-in: it says how many bytes of an image arrived, and keeps them.
"""

import asyncio
import base64
import json
import re
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import cast

from aiohttp import ClientSession, web

from tests.demonstration.calls import FORMS, Json

__all__ = ["SEES", "SMALL", "ModelServer", "serving_models"]

SMALL, SEES = "smollm2-135m", "stand-in-that-sees"
_MARKS = re.compile("⟦(?:[A-Z][a-z]+day |file )[^⟧]*⟧[ \\n]*")
"""When a message was sent, and the ids of files. The small model would repeat them instead of an answer."""
_TAKEN = ("messages", "stream", "stream_options", "temperature", "max_tokens", "max_completion_tokens")
"""What of a request llama.cpp gets. The model's template has no place for tools."""


@dataclass(kw_only=True)
class ModelServer:
    llama: str
    session: ClientSession
    url: str = ""
    calls: list[str] = field(default_factory=list[str])
    """The tools that the small model calls next, in order."""
    asked: list[Json] = field(default_factory=list[Json])
    """Every request, as Palaver sent it."""
    written: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Each forced call: the tool, and what the model wrote."""
    refused: list[str] = field(default_factory=list[str])
    """What llama.cpp said where it did not answer."""
    answers: list[str] = field(default_factory=list[str])
    """What the models said in words of their own."""
    images: list[bytes] = field(default_factory=list[bytes])
    _ids: "count[int]" = field(default_factory=lambda: count(1))

    async def complete(self, request: web.Request) -> web.StreamResponse:
        asked: Json = await request.json()
        self.asked.append(asked)
        if asked["model"] == SEES:
            self.answers.append(self._see(asked))
            return await _stream(request, {"content": self.answers[-1]}, "stop")
        if self.calls:
            return await _stream(request, {"tool_calls": [await self._call(asked)]}, "tool_calls")
        return await self._answer(request, asked)

    async def _answer(self, request: web.Request, asked: Json) -> web.StreamResponse:
        given = {name: asked[name] for name in _TAKEN if name in asked}
        given["messages"] = [_without_marks(message) for message in given["messages"]]
        async with self.session.post(f"{self.llama}/v1/chat/completions", json=given) as answer:
            if answer.status != web.HTTPOk.status_code:
                self.refused.append(await answer.text())
                return web.Response(status=answer.status, text=self.refused[-1], content_type="application/json")
            response = web.StreamResponse(headers={"content-type": "text/event-stream"})
            await response.prepare(request)
            text = ""
            async for line in answer.content:
                text += _text(line)
                await response.write(line)
            self.answers.append(text.strip())
            return response

    async def _call(self, asked: Json) -> Json:
        name = self.calls.pop(0)
        form, said = FORMS[name], asked["messages"]
        given = {"prompt": form.prompt(said), "grammar": form.grammar(said), "temperature": 0, "max_tokens": 60}
        async with self.session.post(f"{self.llama}/v1/completions", json=given) as answer:
            answer.raise_for_status()
            written = (await answer.json())["choices"][0]["text"]
        self.written.append((name, written))
        function = {"name": name, "arguments": form.arguments(written)}
        return {"index": 0, "id": f"call_{next(self._ids)}", "type": "function", "function": function}

    def _see(self, asked: Json) -> str:
        parts = [
            part for message in asked["messages"] if isinstance(message["content"], list) for part in message["content"]
        ]
        images = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
        self.images += [base64.b64decode(image.partition(",")[2]) for image in images]
        return f"Images that I got: {len(images)}. The last has {len(self.images[-1])} bytes."


def _without_marks(message: Json) -> Json:
    content = message["content"]
    return {**message, "content": _MARKS.sub("", content)} if isinstance(content, str) else message


def _text(line: bytes) -> str:
    """Return the words in one line of a stream."""
    if not line.startswith(b"data: {"):
        return ""
    choices: list[Json] = json.loads(line.removeprefix(b"data: ")).get("choices") or []
    return "".join(choice["delta"].get("content") or "" for choice in choices)


async def _stream(request: web.Request, delta: Json, reason: str) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    about = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    first = {"index": 0, "delta": {"role": "assistant", **delta}, "finish_reason": None}
    last = {"index": 0, "delta": cast("Json", {}), "finish_reason": reason}
    for choice in (first, last):
        await response.write(f"data: {json.dumps({**about, 'choices': [choice]})}\n\n".encode())
    await response.write(b"data: [DONE]\n\n")
    return response


@asynccontextmanager
async def serving_models() -> AsyncGenerator[ModelServer]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.demonstration.llama"),
        cwd=Path(__file__).parents[2],
        stdin=pipe,
        stdout=pipe,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdin
    assert process.stdout
    try:
        address = (await process.stdout.readline()).decode().strip()
        assert address, "The local model did not start."
        async with ClientSession() as session, _listening(ModelServer(llama=address, session=session)) as server:
            yield server
    finally:
        process.stdin.close()
        await process.wait()


@asynccontextmanager
async def _listening(server: ModelServer) -> AsyncGenerator[ModelServer]:
    app = web.Application(client_max_size=1 << 26)
    app.router.add_post("/v1/chat/completions", server.complete)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield server
    finally:
        await runner.cleanup()
