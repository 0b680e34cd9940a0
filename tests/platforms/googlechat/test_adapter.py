"""Whose calls are accepted, and what events and answers mean."""

from typing import Any

import pytest
from pydantic import ValidationError

from palaver.platforms.googlechat.adapter import GoogleChatAdapter, parse, render_text
from palaver.protocols import (
    Inbound,
    Label,
    Outbound,
    PlatformRefused,
    Quote,
    TargetGone,
)
from palaver.testkit.recorder import Recorder
from tests.platforms.called import ACCOUNT, serve
from tests.platforms.googlechat.fakes import FakeRoom, GoogleChat, call, options_of, token_of
from tests.platforms.jwts import other_key, signed
from tests.platforms.mutants import check_parsed, mutants

QUOTED: dict[str, Any] = {
    "name": "spaces/room/messages/0",
    "lastUpdateTime": "2026-05-01T10:00:00Z",
    "quoteType": "REPLY",
    "quotedMessageSnapshot": {"sender": "Bob", "text": "tea?"},
}
TO = Outbound(platform="googlechat", chat_id="spaces/dm", text="hi")


async def test_only_calls_of_google_for_this_project_are_accepted() -> None:
    async with serve(GoogleChat()) as server:
        adapter, recorder = GoogleChatAdapter(ACCOUNT, options_of(server.url)), Recorder()
        event = FakeRoom(server).event("MESSAGE", {"name": "spaces/room/messages/1", "text": "hi"})
        forged = signed({"iss": "chat@system.gserviceaccount.com", "aud": "1234567890"}, key=other_key())
        for token in (token_of(aud="99"), token_of(iss="x@y.example"), f"Bearer {forged}", ""):
            assert (await adapter.handle_callback(call(event, token), recorder)).status == 401
        assert not recorder.offered
        reply = await adapter.handle_callback(call(event), recorder)
        assert (reply.status, reply.body, reply.media_type) == (200, b"{}", "application/json")
        added = {"type": "ADDED_TO_SPACE", "space": {"name": "spaces/room"}}
        assert (await adapter.handle_callback(call(added), recorder)).status == 200
        assert recorder.texts == ["hi"]


async def test_the_question_that_adds_us_to_a_space_is_read() -> None:
    """Who adds an app by mentioning it causes one event, with the message in it."""
    async with serve(GoogleChat()) as server:
        adapter, recorder = GoogleChatAdapter(ACCOUNT, options_of(server.url)), Recorder()
        message = {"name": "spaces/room/messages/1", "text": "@Helper tea?", "argumentText": " tea?"}
        added = FakeRoom(server).event("ADDED_TO_SPACE", message)
        assert (await adapter.handle_callback(call(added), recorder)).status == 200
    assert [(each.text, each.mentions_us) for each in recorder.received] == [("tea?", True)]


def test_an_event_with_anything_in_it_is_read_or_skipped() -> None:
    def read(event: Any) -> list[Inbound]:
        found = parse(event, ACCOUNT)
        return [found.inbound] if found else []

    fake = FakeRoom(GoogleChat())
    file = {"contentName": "a", "contentType": "text/plain", "attachmentDataRef": {"resourceName": "r"}}
    message: dict[str, Any] = {
        "name": "spaces/room/messages/1",
        "text": "@Helper hi",
        "argumentText": " hi",
        "attachment": [file],
    }
    message["quotedMessageMetadata"] = QUOTED
    pressed = {"parameters": [{"key": "says", "value": "/approve 1"}]}
    for event in (fake.event("MESSAGE", message), fake.event("CARD_CLICKED", message, action=pressed)):
        for wrong in mutants(event):
            check_parsed("googlechat", lambda wrong=wrong: read(wrong))
        assert read(event)[0].text in {"hi", "/approve 1"}
    (quiet,) = read(
        {**fake.event("MESSAGE", message), "space": {**fake.space, "spaceThreadingState": "UNTHREADED_MESSAGES"}}
    )
    assert quiet.source.thread_id is None


def test_what_a_message_quotes() -> None:
    fake = FakeRoom(GoogleChat())

    def read(quoted: dict[str, Any], text: str = "yes") -> Inbound:
        found = parse(
            fake.event("MESSAGE", {"name": "spaces/room/messages/1", "text": text, "quotedMessageMetadata": quoted}),
            ACCOUNT,
        )
        assert found
        return found.inbound

    inbound = read(QUOTED)
    assert (inbound.text, inbound.reply_to) == ("yes", QUOTED["name"])
    assert inbound.quote == Quote(text="tea?", name=Label("Bob"))
    by_id = read({**QUOTED, "quotedMessageSnapshot": {"sender": "users/8", "text": "tea?"}})
    assert by_id.quote == Quote(text="tea?", author="googlechat:users%2F8")
    assert read({"name": QUOTED["name"], "lastUpdateTime": "2026-05-01T10:00:00Z"}).quote is None
    forwarded = read({**QUOTED, "quoteType": "FORWARD", "quotedMessageSnapshot": {"text": "/new"}}, text="")
    assert (forwarded.text, forwarded.quote, forwarded.reply_to) == ("[forwarded]\n/new", None, None)


async def test_a_quote_of_our_answer_is_ours() -> None:
    async with serve(GoogleChat()) as server:
        fake, recorder = FakeRoom(server), Recorder()
        adapter = GoogleChatAdapter(ACCOUNT, options_of(server.url))
        receipt = await adapter.send(TO, idempotency_key="1")
        for name in (receipt, "spaces/dm/messages/x"):
            message = {"name": f"spaces/room/messages/{name[-3:]}", "text": "yes"}
            quoted = {"quotedMessageMetadata": {**QUOTED, "name": name}}
            await adapter.handle_callback(call(fake.event("MESSAGE", {**message, **quoted})), recorder)
    assert [each.quote and each.quote.is_ours for each in recorder.received] == [True, False]


def test_what_google_chat_shows() -> None:
    assert render_text("**hot** [tea](https://example.org) ~~x~~") == "*hot* <https://example.org|tea> ~x~"
    assert render_text("<users/all> a < b") == "‹users/all> a < b"


def test_a_project_number_needs_no_quotes() -> None:
    assert options_of("https://x.example", project_number=12).project_number == "12"


async def test_a_key_that_is_none_is_explained() -> None:
    with pytest.raises(ValidationError, match="JSON file"):
        options_of("https://x.example", service_account="{}")
    key = '{"client_email": "a", "private_key": "none", "private_key_id": "k"}'
    adapter = GoogleChatAdapter(ACCOUNT, options_of("https://x.example", service_account=key))
    with pytest.raises(PlatformRefused, match="service account"):
        await adapter.check()


@pytest.mark.parametrize("chat", ["spaces/../x", "spaces/dm/members", "users/1", ""])
async def test_what_is_no_space_is_gone(chat: str) -> None:
    async with serve(GoogleChat()) as server:
        adapter = GoogleChatAdapter(ACCOUNT, options_of(server.url))
        with pytest.raises(TargetGone, match="is called spaces/"):
            await adapter.send(Outbound(platform="googlechat", chat_id=chat, text="x"), idempotency_key="x")
