"""Files before a model, over the wire formats of three providers: what it sees, and what it learns of the rest."""

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from palaver.agents.model.agent import ModelAgent
from palaver.agents.model.options import ModelOptions
from palaver.model.attachment import Attachment, describe_attachment
from palaver.model.label import Label, marker
from palaver.model.transcript import Role, ToolCall
from palaver.model.view import Message
from palaver.protocols.agent import Failure, FailureKind, Final
from tests.agents.fake_provider import Call, Provider, Refuses, Says, Step, providing
from tests.agents.model_helpers import KEY, Box, asked, events, request
from tests.agents.test_model_memory import PNG, picture, read_file


@dataclass
class Google(Provider):
    """Speaks as Google does."""

    async def _do(self, step: Step, writer: asyncio.StreamWriter, anthropic: bool) -> bool:  # noqa: ARG002
        assert isinstance(step, Says)
        pieces = "".join(_google(step)).encode()
        writer.write(b"HTTP/1.1 200 -\r\ncontent-type: text/event-stream\r\n")
        writer.write(f"content-length: {len(pieces)}\r\n\r\n".encode() + pieces)
        await writer.drain()
        return True


def _google(step: Says) -> Iterator[str]:
    parts: list[dict[str, object]] = [{"text": step.text}] if step.text else []
    for call in step.calls:
        parts.append({"functionCall": {"id": call.id, "name": call.name, "args": json.loads(call.arguments)}})  # noqa: PERF401
    usage = {
        "promptTokenCount": step.input_tokens,
        "candidatesTokenCount": step.output_tokens,
        "cachedContentTokenCount": step.cached_tokens,
        "totalTokenCount": step.input_tokens + step.output_tokens,
    }
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
    yield f"data: {json.dumps({'candidates': [candidate], 'usageMetadata': usage, 'modelVersion': 'scripted'})}\r\n\r\n"


@asynccontextmanager
async def provided(model: str, *script: Step) -> AsyncGenerator[tuple[ModelAgent, Provider]]:
    async with providing(*script) as provider, _google_beside(provider) as google:
        used, url = (google, google.url) if model.startswith("google") else (provider, provider.url)
        url = provider.openai if model.startswith("openai") else url
        agent = ModelAgent.of(ModelOptions(model=model, key=KEY, base_url=url))
        try:
            yield agent, used
        finally:
            await agent.close()


@asynccontextmanager
async def _google_beside(provider: Provider) -> AsyncGenerator[Google]:
    google = Google(provider.script)
    server = await asyncio.start_server(google.serve, "127.0.0.1", 0)
    google.port = server.sockets[0].getsockname()[1]
    try:
        yield google
    finally:
        server.close()
        google.end()


MODELS = ("openai:scripted", "anthropic:claude-scripted", "google:gemini-scripted")
SHOWN = base64.b64encode(PNG)


@pytest.mark.parametrize("model", MODELS)
async def test_a_picture_of_a_person_and_one_of_a_tool_are_shown(model: str) -> None:
    async def look(_: ToolCall) -> str:
        return f"Here it is.\n{picture(2)}"

    calls = Says(calls=(Call("look"),)), Says(text="I see.")
    async with provided(model, *calls) as (agent, provider):
        asks = request(f"what is this {picture(1)}", read_file=read_file, toolbox=Box(does=look))
        happened = await events(agent, asks)
    assert isinstance(happened[-1], Final)
    assert [body.count(SHOWN) for body in provider.bodies] == [1, 2]
    assert b"not shown to you" not in provider.bodies[1]


async def test_what_a_model_cannot_see_is_named_with_the_reason() -> None:
    heic = marker(describe_attachment(Attachment(Label("x.heic"), "image/heic", 9, "1" * 64)))
    book = marker(describe_attachment(Attachment(Label("b.pdf"), "application/pdf", 9, "2" * 64)))
    async with asked() as (agent, provider):
        profile = agent.clients.default.model.profile
        profile["supports_image_input"] = profile["supports_document_input"] = False
        before = Message(Role.USER, f"look {picture(1)} {heic} {book}"), Message(Role.ASSISTANT, "ok")
        await events(agent, request("and now?", *before, read_file=read_file))
        await events(agent, request("and now?", *before, read_file=read_file))
    seen = provider.requests[0]["messages"][1]["content"]
    assert seen.endswith(
        '\n⟦"a, b.png" is not shown to you: this model cannot see images⟧'
        '\n⟦"x.heic" is not shown to you: models do not take image/heic⟧'
        '\n⟦"b.pdf" is not shown to you: this model cannot read PDF files⟧'
    )
    assert provider.bodies[0] == provider.bodies[1]
    assert SHOWN not in provider.bodies[0]


async def test_llama_cpp_rejects_images_with_a_status_that_means_something_else() -> None:
    """In one turn: another one would fail likewise, since the image stays in the conversation."""
    words = "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj"
    async with asked(Refuses(status=500, message=words), Says(text="fine")) as (agent, provider):
        happened = await events(agent, request(f"what is this {picture(1)}", read_file=read_file))
    assert isinstance(happened[-1], Final)
    assert [body.count(SHOWN) for body in provider.bodies] == [1, 0]
    assert "this model cannot see images" in provider.requests[1]["messages"][-1]["content"]
    async with asked(Refuses(status=500, message="out of memory")) as (agent, provider):
        (only,) = await events(agent, request(f"what is this {picture(1)}", read_file=read_file))
    assert isinstance(only, Failure)
    assert only.kind is FailureKind.TRANSIENT
    assert len(provider.bodies) == 1
