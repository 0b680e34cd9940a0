"""DingTalk's signature, what people send, and what its answers mean."""

import hmac
import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from palaver.platforms.dingtalk.adapter import DingTalkAdapter, is_signed, parse, render, sign
from palaver.protocols import (
    Attachment,
    Label,
    Outbound,
    PlatformRefused,
    Quote,
)
from palaver.testkit.recorder import Recorder, running
from tests.engine.gateway import until
from tests.platforms.called import ACCOUNT, serve
from tests.platforms.dingtalk.fakes import (
    ALICE,
    GROUP_CHAT,
    SECRET,
    DingTalk,
    FakeStream,
    call,
    options_of,
    said,
)


def test_the_signature_is_made_as_documented_and_an_hour_old_at_most() -> None:
    """DingTalk documents how to make it, and no example: HMAC-SHA256 of the time, a line break and the secret."""
    made = hmac.digest(b"this is secret", b"1577262236757\nthis is secret", "sha256")
    assert sign("1577262236757", "this is secret") == b64encode(made).decode()
    headers = {"timestamp": "1577262236757", "sign": sign("1577262236757", SECRET)}
    assert is_signed(headers, SECRET, 1577262236757 + 3_599_000)
    for now in (1577262236757 + 3_601_000, 1577262236757 - 3_601_000):
        assert not is_signed(headers, SECRET, now)
    for wrong in (
        {**headers, "timestamp": "1577262236758"},
        {**headers, "timestamp": "9" * 5000},
        {},
        {"timestamp": "x"},
    ):
        assert not is_signed(wrong, SECRET, 1577262236757)


async def test_an_old_call_is_refused() -> None:
    adapter, recorder = DingTalkAdapter(ACCOUNT, options_of()), Recorder()
    message = said("text", {"text": {"content": "hi"}})
    assert (await adapter.handle_callback(call(message, at=1_600_000_000.0), recorder)).status == 401
    assert (await adapter.handle_callback(call(message, "guess"), recorder)).status == 401
    assert not recorder.offered


def test_what_people_send() -> None:
    inbound = parse(said("text", {"text": {"content": " hello"}}, group=GROUP_CHAT), ACCOUNT)
    assert (inbound.text, inbound.mentions_us, inbound.source.chat_id) == ("hello", True, GROUP_CHAT)
    assert inbound.labels.chat == Label("Dev")
    rich = {"content": {"richText": [{"text": "look"}, {"type": "picture", "downloadCode": "c1"}]}}
    inbound = parse(said("richText", rich), ACCOUNT)
    assert (inbound.text, [file.handle for file in inbound.files]) == ("look", ["c1"])
    inbound = parse(said("audio", {"content": {"downloadCode": "c2", "recognition": "hi"}}), ACCOUNT)
    assert (inbound.text, inbound.files[0].handle, inbound.source.chat_id) == ("hi", "c2", ALICE)
    assert parse(said("unknownMsgType", {}), ACCOUNT).text == "[content that cannot be shown here]"
    guest = {**said("text", {"text": {"content": "hi"}}), "senderStaffId": None}
    assert parse(guest, ACCOUNT).source.user_id == "$:LWCP_v1:$alice"


def test_a_reply_says_what_it_answers() -> None:
    replied: dict[str, Any] = {
        "msgType": "text",
        "msgId": "msg7",
        "senderId": "$:LWCP_v1:$bob",
        "createdAt": 1_700_000_000_000,
    }
    replied["content"] = {"text": "green tea?"}
    text = {"content": "yes", "isReplyMsg": True, "repliedMsg": replied}
    inbound = parse(said("text", {"text": text, "originalMsgId": "msg7"}), ACCOUNT)
    assert (inbound.text, inbound.reply_to, inbound.quote) == ("yes", "msg7", Quote(text="green tea?"))
    rich = {"richText": [{"msgType": "text", "content": "green "}, {"msgType": "text", "content": "tea?"}]}
    ours = {**replied, "msgType": "richText", "content": rich, "senderId": "$:LWCP_v1:$bot"}
    content = {"downloadCode": "c2", "recognition": "yes", "isReplyMsg": True, "repliedMsg": ours}
    inbound = parse(said("audio", {"content": content, "originalProcessQueryKey": "key3"}), ACCOUNT)
    assert (inbound.reply_to, inbound.quote) == ("key3", Quote(text="green tea?", is_ours=True))
    picture = {**replied, "msgType": "picture", "content": {"downloadCode": "c3"}}
    inbound = parse(said("text", {"text": {**text, "repliedMsg": picture}}), ACCOUNT)
    assert (inbound.reply_to, inbound.quote) == ("msg7", None)
    # DingTalk's own connector meets all of these.
    for quoted, shown in (
        ({"msgType": "text", "content": '{"text": "green tea?"}'}, "green tea?"),
        ({"msgType": "text", "content": "green tea?"}, "green tea?"),
        ({"msgType": "audio", "content": {"downloadCode": "c4", "recognition": "tea"}}, "tea"),
        ({"msgType": "file", "content": {"fileName": "tea.pdf", "downloadCode": "c5"}}, "tea.pdf"),
        ({"msgType": "chatRecord", "content": {"summary": "Ann: tea?", "title": "Chat"}}, "Ann: tea?"),
    ):
        inbound = parse(said("text", {"text": {**text, "repliedMsg": {**replied, **quoted}}}), ACCOUNT)
        assert inbound.quote == Quote(text=shown)
    packed = json.dumps({"downloadCode": "c2", "recognition": "yes", "repliedMsg": replied})
    inbound = parse(said("audio", {"content": packed}), ACCOUNT)
    assert (inbound.text, inbound.files[0].handle, inbound.reply_to) == ("yes", "c2", "msg7")


def test_markdown_is_used_only_if_there_is_something_to_format() -> None:
    assert render("2 < 3\nok") == ("sampleText", json.dumps({"content": "2 < 3\nok"}))
    key, parameters = render("# Tea\n\n**hot**")
    assert (key, json.loads(parameters)) == ("sampleMarkdown", {"title": "Tea hot", "text": "**Tea**  \n  \n**hot**"})


async def test_the_stream_answers_pings_and_connects_again_when_asked() -> None:
    async with serve(DingTalk()) as server:
        fake, recorder = FakeStream(server), Recorder()
        adapter = fake.adapter()
        async with running(adapter, recorder):
            await until(lambda: bool(server.lines))
            await server.send_frame("SYSTEM", "ping", {"opaque": "0dv1"})
            await fake.say("hello")
            await recorder.has(1)
            await until(lambda: not server.frames)
            first = server.lines[0]
            await server.send_frame("SYSTEM", "disconnect", {})
            await until(lambda: bool(server.lines) and server.lines[0] is not first)
        assert json.loads(server.heard[0]["data"]) == {"opaque": "0dv1"}
        assert recorder.texts == ["hello"]
        assert isinstance(adapter, DingTalkAdapter)
        assert (await adapter.handle_callback(call(said("text", {})), recorder)).status == 401, "nobody should call it"
        server.trouble = server.wrong
        with pytest.raises(PlatformRefused, match="Client Secret"):
            await adapter.run(recorder)


async def test_a_picture_is_followed_by_its_text(tmp_path: Path) -> None:
    async with serve(DingTalk()) as server:
        adapter = DingTalkAdapter(ACCOUNT, options_of(server.url))
        (tmp_path / "x").write_bytes(b"\x89PNG")
        picture = Outbound(
            platform="dingtalk", chat_id=ALICE, text="look", file=Attachment(Label("a.png"), "image/png", 4)
        )
        await adapter.send_file(picture, tmp_path / "x", idempotency_key="2")
        assert [each.raw["msgKey"] for each in server.sent] == ["sampleImageMsg", "sampleText"]
