"""Yuanbao's frames, what they mean, and a connection that fails."""

import asyncio
import json
from functools import partial

import pytest

from palaver.platforms.yuanbao.adapter import YuanbaoAdapter
from palaver.platforms.yuanbao.wire import Frame, Kind, decode, encode, messages_of, number_of, parse, text_of
from palaver.protocols import Label, Outbound, PlatformDown, PlatformRefused
from palaver.testkit.driver import retry_until_connected
from palaver.testkit.recorder import Recorder, running
from tests.engine.gateway import until
from tests.platforms.called import ACCOUNT, serve
from tests.platforms.yuanbao.fakes import (
    ALICE,
    BOT,
    GROUP_CODE,
    FakeGroup,
    FakeYuanbao,
    Yuanbao,
    mention_part,
    message,
    text_part,
)


def test_the_examples_of_protocol_buffers_are_encoded_and_decoded() -> None:
    """Those of its documentation: 150 in field 1, and `testing` in field 2."""
    assert encode((1, 150)) == bytes.fromhex("089601")
    assert encode((2, "testing")) == bytes.fromhex("120774657374696e67")
    assert decode(bytes.fromhex("089601120774657374696e67")) == {1: [150], 2: [b"testing"]}
    assert number_of(decode(b"\x08" + b"\xff" * 9 + b"\x01"), 1) == -1
    frame = Frame(kind=Kind.PUSH, command="c", id="i", module="m", number=7, needs_ack=True, status=3, data=b"x")
    assert Frame.decode(frame.encode()) == frame
    for broken in (b"\x08", b"\x12\x7fa", b"\x0b", b"\xff" * 20, b"\x00\x01"):
        with pytest.raises(ValueError, match=r"field|number"):
            decode(broken)


def test_what_is_pushed() -> None:
    both = (text_part("ask "), mention_part("u2", "Bob"), text_part(", "), mention_part(BOT, "Helper"))
    push = parse(message(*both, group=GROUP_CODE), ACCOUNT, BOT)
    assert push
    (inbound,) = push.inbounds
    assert (inbound.text, inbound.mentions_us) == ("ask @Bob, @Helper", True)
    assert (inbound.source.chat_id, inbound.labels.chat) == (f"group/{GROUP_CODE}", Label("Dev"))
    quote = {"id": "m7", "sender_id": BOT, "sender_nickname": "Helper", "desc": "tea?"}
    push = parse(message(text_part("yes"), group=GROUP_CODE, quote=quote), ACCOUNT, BOT)
    assert push
    assert push.inbounds[0].quote
    assert (push.inbounds[0].reply_to, push.inbounds[0].quote.is_ours) == ("m7", True)
    push = parse(message(command="Group.CallbackAfterRecallMsg", group=GROUP_CODE, recalled=["a", "b"]), ACCOUNT, BOT)
    assert push
    assert [each.source.message_id for each in push.inbounds] == ["a", "b"]
    assert all(each.revision and each.revision.deleted for each in push.inbounds)
    assert parse(message(text_part("mine"), sender=BOT), ACCOUNT, BOT) is None


def test_a_message_as_json_is_the_same_message() -> None:
    content = {
        "msg_type": "TIMFileElem",
        "msg_content": {"url": "https://x.qq.com/1", "file_name": "a.txt", "file_size": 3},
    }
    found = {
        "callback_command": "Group.CallbackAfterSendMsg",
        "from_account": ALICE,
        "group_code": GROUP_CODE,
        "msg_time": 1_700_000_000,
        "msg_id": "m1",
        "msg_body": [{"msg_type": "TIMTextElem", "msg_content": {"text": "hi"}}, content, 7],
    }
    for data in (json.dumps(found).encode(), encode((1, "x"), (2, "y"), (4, json.dumps(found)))):
        push = parse(data, ACCOUNT, BOT)
        assert push
        (inbound,) = push.inbounds
        assert (inbound.text, inbound.source.chat_id) == ("hi", f"group/{GROUP_CODE}")
        assert [(file.name, file.size) for file in inbound.files] == [(Label("a.txt"), 3)]
    assert parse(b'{"msg_time": "x", "msg_body": []}', ACCOUNT, BOT) is None, "nobody said it"
    for broken in (
        b"{",
        b'{"from_account": "u", "msg_time": -1e99}',
        b'{"from_account": "u", "msg_id": ""}',
        b'{"a": {',
    ):
        with pytest.raises(ValueError, match=r"without an id|Expecting"):
            parse(broken, ACCOUNT, BOT)


async def test_somebody_met_in_a_group_gets_a_private_message_through_it_and_can_be_mentioned() -> None:
    async with serve(Yuanbao()) as server:
        fake, recorder = FakeGroup(server), Recorder()
        adapter = fake.adapter()
        async with running(adapter, recorder):
            await fake.say("hi")
            await recorder.has(1)
            for chat in (ALICE, fake.chat_id):
                text = f"psst <@{ALICE}> <@nobody>"
                answer = Outbound(platform="yuanbao", chat_id=chat, text=text, reply_to="m1")
                await retry_until_connected(partial(adapter.send, answer, idempotency_key=chat))
        private, public = server.sent
        assert (private.chat, text_of(private.raw, 6)) == (ALICE, GROUP_CODE)
        assert text_of(public.raw, 7) == "m1", "in a group it quotes what it answers"
        assert public.text == "psst @alice <@nobody>"
        assert len(messages_of(public.raw, 6)) == 3


async def test_a_send_is_settled_while_messages_before_its_result_are_being_stored() -> None:
    async with serve(Yuanbao()) as server:
        fake, recorder = FakeYuanbao(server), Recorder()
        adapter = fake.adapter()
        async with running(adapter, recorder):
            recorder.writes.clear()
            await fake.say("one")
            await fake.say("two")
            await recorder.was_offered(1)
            answer = Outbound(platform="yuanbao", chat_id=ALICE, text="hi")
            async with asyncio.timeout(60):
                assert await retry_until_connected(partial(adapter.send, answer, idempotency_key="k"))
            assert len(server.pushes) == 2, "nothing is acknowledged before it is stored"
            recorder.writes.set()
            await recorder.has(2)
            await until(lambda: not server.pushes)


async def test_an_expired_token_is_replaced_with_the_next_connection() -> None:
    async with serve(Yuanbao()) as server:
        adapter, recorder = FakeYuanbao(server).adapter(), Recorder()
        async with running(adapter, recorder):
            await until(lambda: bool(server.lines))
        server.tokens += 1
        async with running(adapter, recorder):
            await until(lambda: bool(server.lines))
        assert server.tokens == 3


async def test_a_server_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palaver.platforms.yuanbao.adapter._RESULT_SECONDS", 0.01)
    async with serve(Yuanbao(is_silent=True)) as server:
        with pytest.raises(PlatformDown, match="TimeoutError"):
            await asyncio.wait_for(FakeYuanbao(server).adapter().run(Recorder()), 60)


async def test_what_is_refused_says_what_to_do() -> None:
    async with serve(Yuanbao()) as server:
        adapter = FakeYuanbao(server).adapter()
        assert isinstance(adapter, YuanbaoAdapter)
        assert await adapter.check() == BOT
        server.bind_code = 40100
        with pytest.raises(PlatformRefused, match="App Secret"):
            await adapter.run(Recorder())
        server.bind_code = 50400
        with pytest.raises(PlatformDown, match="50400"):
            await adapter.run(Recorder())
        server.bind_code, server.trouble = 0, Yuanbao.wrong
        with pytest.raises(PlatformRefused, match="App Secret"):
            await adapter.check()
        server.trouble = None
        serving = asyncio.create_task(adapter.run(Recorder()))
        await until(lambda: bool(server.lines))
        await server.push(Frame(kind=Kind.PUSH, command="kickout", id="k", module="conn_access"))
        with pytest.raises(PlatformRefused, match="somewhere else"):
            await serving
        with pytest.raises(PlatformDown):
            await adapter.send(Outbound(platform="yuanbao", chat_id=ALICE, text="hi"), idempotency_key="1")
        for server.signed in ([], {"bot_id": BOT}, {"bot_id": BOT, "token": None}):
            with pytest.raises(PlatformDown, match="no access token"):
                await adapter.check()
