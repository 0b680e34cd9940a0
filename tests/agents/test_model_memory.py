"""What a model is shown again: its own reasoning, and the files of people."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from palaver.agents.model.agent import ModelAgent
from palaver.agents.model.errors import RejectedBlobs
from palaver.agents.model.options import ModelOptions
from palaver.model.attachment import Attachment, describe_attachment
from palaver.model.label import Label, marker
from palaver.model.session import ModelOverride
from palaver.model.transcript import Role
from palaver.model.view import Message
from palaver.protocols.agent import Failure, FailureKind, Final, Request, ToolCalled
from tests.agents.fake_provider import Call, Provider, Refuses, Says, Step, providing
from tests.agents.model_helpers import KEY, Box, asked, events, request


@asynccontextmanager
async def thinking(*script: Step) -> AsyncGenerator[tuple[ModelAgent, Provider]]:
    async with providing(*script) as provider:
        model = "anthropic:claude-scripted"
        agent = ModelAgent.of(
            ModelOptions(model=model, key=KEY, base_url=provider.url, models=("anthropic:claude-other",))
        )
        try:
            yield agent, provider
        finally:
            await agent.close()


SIGNED = Says(
    thinking="The sky is up.", signature="c2lnbmVk+/==", text="Let me look.", calls=(Call("look", '{"at":"sky"}'),)
)


def assistant(called: ToolCalled | Final) -> Message:
    calls = called.calls if isinstance(called, ToolCalled) else ()
    return Message(Role.ASSISTANT, called.text, calls, "", called.reasoning, (called.blob,))


async def test_reasoning_comes_back_with_its_signature_also_in_later_turns() -> None:
    last = Says(thinking="So it is.", signature="YWdhaW4=", text="It is blue.")
    async with thinking(SIGNED, last) as (agent, provider):
        happened = await events(agent, request("look up", toolbox=Box()))
        called = next(event for event in happened if isinstance(event, ToolCalled))
        final = happened[-1]
        assert isinstance(final, Final)
        assert (called.reasoning, final.reasoning) == ("The sky is up.", "So it is.")
        asked_then = provider.requests[1]["messages"]
        assert asked_then[1]["content"][0] == {
            "type": "thinking",
            "thinking": "The sky is up.",
            "signature": "c2lnbmVk+/==",
        }
        result = Message(Role.TOOL, 'look {"at":"sky"}', (), "call_1")
        await events(agent, request("why", Message(Role.USER, "look up"), assistant(called), result, assistant(final)))
        later = provider.requests[2]["messages"]
    assert [_uncached(each) for each in later[:3]] == [_uncached(each) for each in asked_then]
    assert later[3]["content"][0] == {"type": "thinking", "thinking": "So it is.", "signature": "YWdhaW4="}


def _uncached(message: Mapping[str, Any]) -> Any:
    """Where the provider may cache up to moves on; it is no part of what the model is shown."""
    content = message["content"]
    if isinstance(content, str):
        return message
    return {
        **message,
        "content": [{name: block[name] for name in block if name != "cache_control"} for block in content],
    }


async def test_another_model_is_shown_text_and_calls() -> None:
    async with thinking(SIGNED) as (agent, provider):
        happened = await events(agent, request("look up", toolbox=Box()))
        called = next(event for event in happened if isinstance(event, ToolCalled))
        result = Message(Role.TOOL, "blue", (), "call_1")
        override = ModelOverride(model="claude-other", provider="anthropic")
        before = (Message(Role.USER, "look up"), assistant(called), result)
        await events(agent, request("why", *before, override=override))
    sent = provider.requests[-1]
    assert sent["model"] == "claude-other"
    assert [block["type"] for block in sent["messages"][1]["content"]] == ["text", "tool_use"]


@pytest.mark.parametrize("blob", [b"", b"\xff\x00", b"[]", b"[1]", b'[{"kind":"response","parts":[]}]', b"{" * 5000])
async def test_a_blob_that_cannot_be_read_ends_no_conversation(blob: bytes) -> None:
    said = Message(Role.ASSISTANT, "Hello.", (), "", "", (blob,))
    async with asked() as (agent, provider):
        happened = await events(agent, request("and?", Message(Role.USER, "hi"), said))
    assert isinstance(happened[-1], Final)
    assert provider.requests[0]["messages"][2] == {"role": "assistant", "content": "Hello."}


async def test_a_blob_that_says_something_else_than_the_transcript_does_not_count() -> None:
    async with thinking(SIGNED) as (agent, provider):
        happened = await events(agent, request("look up", toolbox=Box()))
        called = next(event for event in happened if isinstance(event, ToolCalled))
        changed = assistant(called)._replace(text="Something else.", calls=())
        await events(agent, request("why", Message(Role.USER, "look up"), changed))
    assert [block.get("text") for block in provider.requests[-1]["messages"][1]["content"]] == ["Something else."]


@pytest.mark.parametrize(("status", "files"), [(400, 0), (404, 0), (400, 1)])
async def test_reasoning_that_the_provider_does_not_take_back_is_left_out_from_then_on(status: int, files: int) -> None:
    refused = Refuses(status=status, message="Invalid `signature` in `thinking` block")
    again = Says(thinking="So it is.", signature="YWdhaW4=", text="Still blue.")
    async with thinking(SIGNED, Says(text="Blue."), *[refused] * (1 + files), again) as (agent, provider):
        happened = await events(agent, request("look up", toolbox=Box()))
        called = next(event for event in happened if isinstance(event, ToolCalled))
        before = Message(Role.USER, "look up"), assistant(called), Message(Role.TOOL, "blue", (), "call_1")
        asked_for = f"why {picture(1)}" if files else "why"
        final = (await events(agent, request(asked_for, *before, read_file=read_file)))[-1]
        assert isinstance(final, Final)
        assert final.text == "Still blue."
        assert len(provider.requests) == 4 + files
        *_, last = await events(agent, request("sure", *before, Message(Role.USER, "why"), assistant(final)))
        assert isinstance(last, Final)
        assert len(provider.requests) == 5 + files
    shown = [each["content"] for each in provider.requests[-1]["messages"] if each["role"] == "assistant"]
    assert [[block["type"] for block in blocks] for blocks in shown] == [["text", "tool_use"], ["thinking", "text"]]


async def test_what_is_refused_either_way_is_a_failure_and_nothing_is_learned_from_it() -> None:
    refused = Refuses(status=400, message="not with me")
    async with thinking(SIGNED, Says(text="Blue."), refused, refused) as (agent, provider):
        happened = await events(agent, request("look up", toolbox=Box()))
        called = next(event for event in happened if isinstance(event, ToolCalled))
        before = Message(Role.USER, "look up"), assistant(called), Message(Role.TOOL, "blue", (), "call_1")
        last = (await events(agent, request("why", *before)))[-1]
        assert isinstance(last, Failure)
        assert last.kind is FailureKind.REJECTED
        await events(agent, request("why not", *before))
    assert provider.requests[-1]["messages"][1]["content"][0]["type"] == "thinking"


def test_refusals_are_forgotten_before_they_are_too_many() -> None:
    said = [Message(Role.ASSISTANT, "a", blobs=(b"%d" % number,)) for number in range(5_000)]
    refusals = RejectedBlobs()
    refusals.add(said)
    left = [bool(message.blobs) for message in refusals.without(said)]
    assert left == [True] * 904 + [False] * 4_096


async def test_plain_words_need_no_blob() -> None:
    async with asked(Says(text="One.")) as (agent, _):
        final = (await events(agent, request()))[-1]
    assert final == Final(text="One.", blob=b"")


# Files

PNG = b"\x89PNG\r\n\x1a\n" + b"x" * 20


def picture(number: int, media_type: str = "image/png") -> str:
    file = Attachment(name=Label("a, b.png"), media_type=media_type, size=28, sha256=f"{number:064x}"[::-1])
    return marker(describe_attachment(file))


async def read_file(_name: str) -> bytes:
    return PNG


async def test_pictures_are_shown_to_the_model() -> None:
    async with asked() as (agent, provider):
        await events(agent, request(f"what is this {picture(1)}", read_file=read_file))
    text, image = provider.requests[0]["messages"][-1]["content"]
    assert text["text"].startswith("what is this")
    assert image["image_url"]["url"].startswith("data:image/png;base64,")


async def test_a_model_that_refuses_pictures_gets_the_words() -> None:
    async with asked(Refuses(status=400, message="images are not supported")) as (agent, provider):
        happened = await events(agent, request(f"what is this {picture(1)}", read_file=read_file))
    assert isinstance(happened[-1], Final)
    assert isinstance(provider.requests[1]["messages"][-1]["content"], str)


async def test_only_so_many_pictures_are_shown_and_they_change_rarely() -> None:
    async with asked() as (agent, provider):
        for count in range(1, 14):
            before = [
                message
                for number in range(1, count)
                for message in (Message(Role.USER, picture(number)), Message(Role.ASSISTANT, "ok"))
            ]
            await events(agent, request(picture(count), *before, read_file=read_file))
    shown = [
        [isinstance(each["content"], list) for each in sent["messages"] if each["role"] == "user"]
        for sent in provider.requests
    ]
    assert [sum(each) for each in shown] == [1, 2, 3, 4, 5, 6, 7, 8, 5, 6, 7, 8, 5]
    assert all(each[-1] for each in shown)


@pytest.mark.parametrize(
    ("content", "why"),
    [(None, "it is no longer stored"), (b"x" * 6_000_000, "it is larger than 5 MB")],
    ids=["gone", "too large"],
)
async def test_a_picture_that_cannot_be_shown_is_described(content: bytes | None, why: str) -> None:
    async def read(name: str) -> bytes:
        return (
            content
            if content is not None
            else await Request(session="", turn=0, attempt=0, section="", messages=()).read_file(name)
        )

    async with asked() as (agent, provider):
        await events(agent, request(picture(1), read_file=read))
    described = f'{picture(1)}\n⟦"a, b.png" is not shown to you: {why}⟧'
    assert provider.requests[0]["messages"][-1]["content"] == described
