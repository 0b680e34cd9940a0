"""What Feishu's events and callbacks mean, and what its cards look like."""

import json
from typing import Any

import pytest

from palaver.platforms.feishu.adapter import FeishuAdapter, file_kind, render, render_text
from palaver.platforms.feishu.parse import open_event, parse
from palaver.protocols import (
    Attachment,
    Choice,
    HttpRequest,
    Label,
    Outbound,
)
from palaver.protocols.sealed import BadEnvelope
from palaver.testkit.recorder import Recorder
from tests.platforms.called import ACCOUNT, serve
from tests.platforms.feishu.fakes import ALICE, CHAT, UNION, US, Feishu, call, event_of, options_of


def said(kind: str, content: Any, **more: Any) -> Any:
    message = {"message_id": "om_1", "create_time": "1609073151345", "chat_id": CHAT, "chat_type": "p2p"}
    sender = {"sender_id": {"open_id": ALICE, "union_id": UNION}, "sender_type": "user"}
    body = {**message, "message_type": kind, "content": json.dumps(content), **more}
    return parse(event_of("im.message.receive_v1", {"sender": sender, "message": body}), ACCOUNT, US)


def test_the_documented_example_is_decrypted() -> None:
    assert open_event("P37w+VZImNgPEO1RBhJ6RtKl7n6zymIbEG1pReEzghk=", "test key") == "hello world"
    for wrong in ("", "AAAA", "!", "P37w+VZImNgPEO1RBhJ6RtKl7n6zymIbEG1pReEzghk"):
        with pytest.raises(BadEnvelope):
            open_event(wrong, "test key")


async def test_the_question_about_the_address_is_answered_only_if_it_is_encrypted_with_our_key() -> None:
    adapter = FeishuAdapter(ACCOUNT, options_of())
    question = {"challenge": "ajls384kdjx98XX", "token": "v-token", "type": "url_verification"}
    answer = await adapter.handle_callback(call(question), Recorder())
    assert (answer.status, json.loads(answer.body)) == (200, {"challenge": "ajls384kdjx98XX"})
    nested = {**question, "a": {"encrypt": "x"}}
    wrong = [
        call(nested, "guess", seals=False),
        call(question, "another key"),
        call({**question, "token": "guess"}),
        call(question, "guess", seals=False),
        HttpRequest(method="POST", headers={}, body=call(event_of("im.message.receive_v1", {})).body),
    ]
    for request in wrong:
        assert (await adapter.handle_callback(request, Recorder())).status == 401


def test_people_have_an_open_id_and_a_union_id() -> None:
    source = said("text", {"text": "hi"}).inbound.source
    assert (source.user_id, source.user_id_alt, source.participant) == (ALICE, UNION, f"alt:{UNION}")


def test_mentions_become_names_and_ours_is_removed_in_front() -> None:
    mentions = [
        {"key": "@_user_1", "id": {"open_id": US}, "name": "Helper"},
        {"key": "@_user_10", "id": {"open_id": "ou_bob"}, "name": "Bob"},
    ]
    event = said("text", {"text": "@_user_1 ask @_user_10, @_user_1"}, mentions=mentions)
    assert (event.inbound.text, event.inbound.mentions_us) == ("ask @Bob, @Helper", True)
    assert not said("text", {"text": "@_all hi"}).inbound.mentions_us
    bob = [each for each in mentions if each["name"] == "Bob"]
    other = said("text", {"text": "@_user_10 hi"}, mentions=bob).inbound
    assert (other.text, other.mentions_us) == ("@Bob hi", False)


def test_rich_text_stickers_and_files() -> None:
    line = [{"tag": "text", "text": "see "}, {"tag": "a", "text": "it", "href": "https://x.y"}]
    post = said("post", {"title": "T", "content": [line, [{"tag": "img", "image_key": "img_1"}]]}).inbound
    assert post.text == "T\nsee it (https://x.y)"
    assert [file.handle for file in post.files] == ["om_1/image/img_1"]
    assert said("sticker", {"file_key": "x"}).inbound.text == "[sticker]"
    assert said("hongbao", {}).inbound.text == "[content that cannot be shown here]"
    (file,) = said("file", {"file_key": "f", "file_name": "a.pdf"}).inbound.files
    assert (file.name, file.media_type, file.handle) == (Label("a.pdf"), "application/pdf", "om_1/file/f")


def test_a_recalled_message_is_deleted_and_other_events_say_nothing() -> None:
    event = {"message_id": "om_1", "chat_id": CHAT, "recall_time": "1609073151345"}
    found = parse(event_of("im.message.recalled_v1", event), ACCOUNT, US)
    assert found
    assert found.inbound.revision
    assert found.inbound.revision.deleted
    assert parse(event_of("im.chat.updated_v1", {}), ACCOUNT, US) is None


def test_a_card_shows_markdown_and_mentions_nobody() -> None:
    shown = render_text("# Tea\n\n**hot** <at id=all></at> [map](https://example.org) `a<b`\n")
    assert shown == "**Tea**\n\n**hot** &#60;at id=all&#62;&#60;/at&#62; [map](https://example.org) `a<b`"
    outbound = Outbound(
        platform="feishu", chat_id="oc", thread_id="om_r", text="?", choices=(Choice("Yes", "/approve 1"),)
    )
    (_, button) = json.loads(render(outbound))["body"]["elements"]
    assert button["behaviors"] == [{"type": "callback", "value": {"says": "/approve 1", "thread": "om_r"}}]
    assert [file_kind(Attachment(Label(name))) for name in ("a.PDF", "b.docx", "c")] == ["pdf", "doc", "stream"]


async def test_a_press_in_a_direct_chat_is_known_to_be_there() -> None:
    press = {
        "operator": {"open_id": ALICE, "union_id": UNION},
        "action": {"tag": "button", "value": {"says": "/approve 1"}},
        "context": {"open_message_id": "om_1", "open_chat_id": CHAT},
    }
    async with serve(Feishu()) as server:
        recorder = Recorder()
        adapter = FeishuAdapter(ACCOUNT, options_of(server.url))
        events: list[Any] = [press, {**press, "action": {"tag": "button", "value": "x"}}, 7, [], None]
        for event in events:
            request = call(event_of("card.action.trigger", event))
            assert (await adapter.handle_callback(request, recorder)).status == 200
    (inbound,) = recorder.received
    assert (inbound.source.chat_kind, inbound.text, inbound.mentions_us) == ("dm", "/approve 1", True)
    assert inbound.at.year == 2020
