"""The adapter beyond the suite: what Telegram refuses, how it is called, what it shows."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import ClientSession

from palaver.model.attachment import Attachment
from palaver.model.label import Label
from palaver.model.turn import Choice, Outbound, QuoteMode
from palaver.protocols.adapter import (
    ChatMoved,
    PlatformBusy,
    PlatformDown,
    PlatformError,
    PlatformRefused,
    SendRefused,
    SendUnclear,
    TargetGone,
)
from palaver.protocols.capabilities import HttpRequest, HttpResponse, MenuCommand
from palaver.testkit.recorder import Recorder, running
from tests.engine.gateway import until
from tests.platforms.telegram.fakes import ALICE, WEBHOOK, FakeForum, adapter_of
from tests.platforms.telegram.server import Server, serving
from tests.platforms.telegram.world import TOKEN, No, World


@pytest.fixture
async def server() -> AsyncGenerator[Server]:
    async with serving(World()) as server:
        server.world.chat(7)
        server.world.chat(-5, "group", title="Dev")
        yield server


def to(chat: int, text: str, **more: object) -> Outbound:
    return replace(Outbound(platform="telegram", account="helper", chat_id=str(chat), text=text), **more)  # pyright: ignore[reportArgumentType]


async def test_asking_for_news_in_vain_says_that_there_is_none(server: Server) -> None:
    """As by the real one: otherwise every quiet moment of a test would be a failure."""
    async with ClientSession() as client:
        answer = await client.post(f"{server.url}/bot{TOKEN}/getUpdates", data={"timeout": "0.01"})
        assert await answer.json() == {"ok": True, "result": []}


# What Telegram refuses


@pytest.mark.parametrize(
    ("no", "error"),
    [
        (No(429, "Too Many Requests: retry after 35", retry_after=35), PlatformBusy),
        (No(429, "Too Many Requests"), PlatformBusy),
        (No(400, "Bad Request: chat not found"), TargetGone),
        (No(400, "Bad Request: PEER_ID_INVALID"), TargetGone),
        (No(400, "Bad Request: not enough rights to send text messages to the chat"), TargetGone),
        (No(400, "Bad Request: not enough rights to send photos to the chat"), SendRefused),
        (No(403, "Forbidden: CHAT_SEND_DOCS_FORBIDDEN"), SendRefused),
        (No(403, "Forbidden: CHAT_SEND_PLAIN_FORBIDDEN"), TargetGone),
        (No(403, "Forbidden: bot was blocked by the user"), TargetGone),
        (No(403, "Forbidden: bot is not a member of the channel chat"), TargetGone),
        (No(400, "Bad Request: message thread not found"), SendRefused),
        (No(400, "Bad Request: message is too long"), SendRefused),
        (No(400, "Bad Request: group chat was upgraded to a supergroup chat", migrate_to_chat_id=-1001), ChatMoved),
        (No(401, "Unauthorized"), PlatformRefused),
        (No(502, "Bad Gateway"), SendUnclear),
        (No(500, "Internal Server Error"), SendUnclear),
    ],
    ids=lambda each: each.words if isinstance(each, No) else "",
)
async def test_what_telegram_refuses_is_distinguished(server: Server, no: No, error: type[PlatformError]) -> None:
    server.world.refuses["sendmessage"] = [no]
    with pytest.raises(PlatformError) as raised:
        await adapter_of(server).send(to(7, "hi"), idempotency_key="1")
    assert type(raised.value) is error
    if isinstance(raised.value, PlatformBusy):
        assert raised.value.after == no.parameters.get("retry_after", 1)
    if isinstance(raised.value, ChatMoved):
        assert raised.value.new == "-1001"


async def test_where_there_is_no_connection_nothing_was_sent(server: Server, unused_port: int) -> None:
    adapter = adapter_of(server, api_url=f"http://127.0.0.1:{unused_port}")
    for doing in (adapter.send(to(7, "hi"), idempotency_key="1"), adapter.run(Recorder())):
        with pytest.raises(PlatformDown, match="no connection") as raised:
            await doing
        assert TOKEN not in str(raised.value)


@pytest.fixture
async def unused_port() -> int:
    closed = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = closed.sockets[0].getsockname()[1]
    closed.close()
    return port


async def test_a_wrong_token_is_reported_with_what_to_do(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    wrong = adapter_of(server, token=TOKEN[:-1])
    for doing in (wrong.run(Recorder()), wrong.check()):
        with pytest.raises(PlatformRefused, match="BotFather") as raised:
            await doing
        assert TOKEN[:-1] not in str(raised.value)
    ours = [record for record in caplog.records if not record.name.startswith("aiohttp")]  # what the server logs
    assert not [record for record in ours if TOKEN[:-1] in record.getMessage()]


async def test_a_server_that_is_no_bot_api_is_reported(server: Server) -> None:
    with pytest.raises(PlatformRefused, match="api_url"):
        await adapter_of(server, api_url=f"{server.url}/elsewhere").check()


@pytest.mark.parametrize("body", [b"<html>Log in to this network</html>", b"[]", b"{}", b""])
async def test_another_server_in_its_place_is_no_telegram(body: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as portal:
        server = Server(World())
        server.url = f"http://127.0.0.1:{portal.sockets[0].getsockname()[1]}"
        with pytest.raises(PlatformDown):
            await adapter_of(server).check()


@pytest.mark.parametrize(
    "words", ["terminated by other getUpdates request", "can't use getUpdates method while webhook is active"]
)
async def test_two_readers_have_to_be_one(server: Server, words: str) -> None:
    server.world.refuses["getupdates"] = [No(409, f"Conflict: {words}")]
    with pytest.raises(PlatformDown, match="already receives"):
        await adapter_of(server).run(Recorder())


async def test_a_later_request_takes_over_from_an_earlier_one(server: Server) -> None:
    first, recorder = asyncio.create_task(adapter_of(server).run(Recorder())), Recorder()
    await until(lambda: bool(server.world.asked("getupdates")))
    async with running(adapter_of(server), recorder):
        with pytest.raises(PlatformDown, match="already receives"):
            await first
        await FakeForum(server).say("hi")
        await recorder.has(1)


async def test_marks_that_telegram_does_not_take_are_left_out(server: Server) -> None:
    server.world.refuses["sendmessage"] = [No(400, "Bad Request: can't parse entities: who knows why")]
    await adapter_of(server).send(to(7, "**bold**"), idempotency_key="1")
    assert [(each["text"], each["entities"]) for each in server.world.sent] == [("**bold**", [])]


async def test_a_send_under_way_outlives_the_connection_for_updates(server: Server) -> None:
    adapter = adapter_of(server)
    serving = asyncio.create_task(adapter.run(Recorder()))
    await until(lambda: bool(server.world.asked("getupdates")))
    server.goes_on.clear()
    sending = asyncio.create_task(adapter.send(to(7, "hi"), idempotency_key="1"))
    await until(lambda: server.sends == 1)
    server.world.refuses["getupdates"] = [No(502, "Bad Gateway")]
    await FakeForum(server).say("the next question for updates fails")
    with pytest.raises(PlatformDown):
        await serving
    server.goes_on.set()
    assert await sending == str(server.world.sent[0]["message_id"])


async def test_someone_who_stops_us_does_not_wait_for_sends(server: Server) -> None:
    adapter = adapter_of(server)
    server.goes_on.clear()
    async with running(adapter, Recorder()):
        await until(lambda: bool(server.world.asked("getupdates")))
        sending = asyncio.create_task(adapter.send(to(7, "hi"), idempotency_key="1"))
        await until(lambda: server.sends == 1)
    with pytest.raises(SendUnclear):
        await sending


async def test_a_worker_that_does_not_serve_the_account_asks_for_no_more_than_is_needed(server: Server) -> None:
    adapter = adapter_of(server)
    receipt = await adapter.send(to(7, "hi"), idempotency_key="1")
    await adapter.edit(receipt, to(7, "hello"))
    await adapter.typing(to(7, ""))
    assert [method for method, _ in server.world.calls] == ["sendmessage", "editmessagetext", "sendchataction"]


# Messages in


async def test_what_cannot_be_read_keeps_nothing_from_us(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    fake, recorder = FakeForum(server), Recorder()
    server.world.push({"text": "no chat, no date, no number"})
    await fake.say("after it")
    async with running(fake.adapter(), recorder):
        await recorder.has(1)
        await until(lambda: not server.world.updates)
    assert recorder.texts == ["after it"]
    assert "no chat" not in caplog.text


async def test_a_server_that_does_not_wait_is_not_asked_without_a_pause(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palaver.platforms.telegram.adapter._LEAST_POLL_SECONDS", 0.05)
    server.waits = False
    began = asyncio.get_running_loop().time()
    async with running(adapter_of(server), Recorder()):
        await until(lambda: server.methods.count("getUpdates") >= 5)
    assert asyncio.get_running_loop().time() - began >= 4 * 0.05


async def test_methods_are_called_as_they_are_documented(server: Server) -> None:
    fake, recorder = FakeForum(server), Recorder()
    adapter = fake.adapter()
    async with running(adapter, recorder):
        await fake.say("hello")
        await recorder.has(1)
        await adapter.send(to(7, "hi"), idempotency_key="1")
        await adapter.typing(to(7, ""))
    assert {"getMe", "deleteWebhook", "getUpdates", "sendMessage", "sendChatAction"} <= set(server.methods)
    assert not [method for method in server.methods if method.islower()]


async def test_asking_confirms_what_is_safe_and_takes_the_webhook_away(server: Server) -> None:
    fake, recorder = FakeForum(server), Recorder()
    server.world.webhook = {"url": "https://elsewhere.example.org"}
    async with running(fake.adapter(), recorder):
        await fake.say("one")
        await recorder.has(1)
        await until(lambda: not server.world.updates)
    assert server.world.asked("getupdates")[0]["allowed_updates"] == [
        "message",
        "edited_message",
        "channel_post",
        "edited_channel_post",
        "callback_query",
        "message_reaction",
    ]


async def test_a_button_is_confirmed_and_taken_off_where_one_person_is(server: Server) -> None:
    adapter, recorder = adapter_of(server), Recorder()
    async with running(adapter, recorder):
        for chat in (7, -5):
            await adapter.send(to(chat, "May I?", choices=(Choice("Yes", "/approve 1"),)), idempotency_key="1")
            server.world.press(ALICE, server.world.sent[-1], "/approve 1")
        await until(lambda: len(server.world.asked("answercallbackquery")) == 2)
        await recorder.has(2)
    private, group = server.world.sent
    assert private["reply_markup"] is None
    assert group["reply_markup"], "others may press it, who may do no more than look"


async def test_a_button_whose_time_is_over_is_heard_all_the_same(server: Server) -> None:
    adapter, recorder = adapter_of(server), Recorder()
    server.world.refuses["answercallbackquery"] = [No(400, "Bad Request: query is too old")]
    async with running(adapter, recorder):
        await adapter.send(to(7, "May I?"), idempotency_key="1")
        server.world.press(ALICE, server.world.sent[-1], "/approve 1")
        await recorder.has(1)
        await until(lambda: not server.world.updates)


@pytest.mark.parametrize(
    ("handle", "words"), [("nothing", "invalid file_id"), ("large", "larger than 20 MB"), ("lost", "no longer")]
)
async def test_a_file_that_is_not_to_be_had_says_why(server: Server, handle: str, words: str) -> None:
    server.world.files |= {"large": b"x" * 20_000_001, "lost": b""}
    original = server.world.answer

    def answer(method: str, asked: dict[str, object]) -> object:
        found = original(method, asked)
        if asked.get("file_id") == "lost":
            del server.world.files["lost"]
        return found

    server.world.answer = answer
    with pytest.raises(SendRefused, match=words):
        await anext(aiter(adapter_of(server).fetch(Attachment(Label("x"), handle=handle))))


# Being called


def call(server: Server, **changed: object) -> HttpRequest:
    hook = server.world.webhook
    usual = {"method": "POST", "headers": {"x-telegram-bot-api-secret-token": hook.get("secret", "")}, "body": b"{}"}
    return HttpRequest(**{**usual, **changed})  # pyright: ignore[reportArgumentType]


async def test_only_senders_who_know_the_secret_are_heard(server: Server) -> None:
    adapter, recorder = adapter_of(server, **WEBHOOK), Recorder()
    message = server.world.says(server.world.chats[7], ALICE, "hi")
    body = json.dumps({"update_id": 1, "message": message}).encode()
    async with running(adapter, recorder):
        await until(lambda: bool(server.world.webhook["url"]))
        secret = server.world.webhook["secret"]
        assert server.world.webhook["url"] == "https://bot.example.org/in/telegram/helper"
        for headers in ({}, {"x-telegram-bot-api-secret-token": "ü"}, {"x-telegram-bot-api-secret-token": secret[:-1]}):
            assert (await adapter.handle_callback(call(server, headers=headers, body=body), recorder)).status == 401
        for wrong in (b"", b"[]", b"\xff", b"[" * 100_000):
            assert (await adapter.handle_callback(call(server, body=wrong), recorder)).status == 400
        assert not recorder.offered
        assert (await adapter.handle_callback(call(server, body=body), recorder)).status == 200
    assert recorder.texts == ["hi"]
    assert TOKEN not in secret


async def test_messages_of_a_topic_have_its_name_once_it_was_reported(server: Server) -> None:
    adapter, recorder = adapter_of(server, **WEBHOOK), Recorder()
    forum = {"id": -1001, "type": "supergroup", "title": "F", "is_forum": True}
    usual = {"date": 1, "chat": forum, "from": ALICE, "message_thread_id": 77, "is_topic_message": True}
    root = {**usual, "message_id": 77, "forum_topic_created": {"name": "Boats", "icon_color": 1}}
    messages = [
        {**usual, "message_id": 78, "text": "unknown", "reply_to_message": {**usual, "message_id": 70, "text": "x"}},
        {**usual, "message_id": 79, "text": "first", "reply_to_message": root},
        {**usual, "message_id": 80, "text": "reply", "reply_to_message": {**usual, "message_id": 79, "text": "x"}},
        {**usual, "message_id": 81, "forum_topic_edited": {"name": "Ships"}},
        {**usual, "message_id": 82, "text": "renamed", "reply_to_message": root},
        {**usual, "message_id": 83, "message_thread_id": 90, "text": "elsewhere"},
    ]
    async with running(adapter, recorder):
        await until(lambda: bool(server.world.webhook["url"]))
        for number, message in enumerate(messages):
            body = json.dumps({"update_id": number, "message": message}).encode()
            assert (await adapter.handle_callback(call(server, body=body), recorder)).status == 200
    topics = [each.labels.topic and each.labels.topic.plain() for each in recorder.received]
    assert list(zip(recorder.texts, topics, strict=True)) == [
        ("unknown", None),
        ("first", "Boats"),
        ("reply", "Boats"),
        ("renamed", "Ships"),
        ("elsewhere", None),
    ]
    later = adapter_of(server, **WEBHOOK)  # after a restart
    async with running(later, recorder):
        for number, message in enumerate((messages[0], messages[1]), 100):
            body = json.dumps({"update_id": number, "message": {**message, "message_id": number}}).encode()
            assert (await later.handle_callback(call(server, body=body), recorder)).status == 200
    assert [each.labels.topic and each.labels.topic.plain() for each in recorder.received[-2:]] == ["Ships", "Ships"]


async def test_any_worker_can_be_called_and_says_so_when_it_cannot_tell_who_it_is(server: Server) -> None:
    serves, other = adapter_of(server, **WEBHOOK), adapter_of(server, **WEBHOOK)
    message = server.world.says(server.world.chats[-5], ALICE, "/new@helper_bot")
    body = json.dumps({"update_id": 1, "message": message}).encode()
    recorder = Recorder()
    async with running(serves, recorder):
        await until(lambda: bool(server.world.webhook["url"]))
        server.world.refuses["getme"] = [No(502, "Bad Gateway")]
        with pytest.raises(PlatformDown):
            await other.handle_callback(call(server, body=body), recorder)
        for _ in range(2):
            assert (await other.handle_callback(call(server, body=body), recorder)).status == 200
    assert recorder.texts == ["/new"]
    assert len(server.world.asked("getme")) == 3, "who we are is asked for once"


async def test_who_asks_is_not_to_be_called(server: Server) -> None:
    adapter = adapter_of(server)
    assert not adapter.takes_callbacks
    assert (await adapter.handle_callback(call(server), Recorder())).status == 401
    assert adapter_of(server, **WEBHOOK).takes_callbacks


async def test_an_address_that_telegram_does_not_call_is_reported(server: Server) -> None:
    local = adapter_of(server, mode="webhook", public_url="http://localhost:1")
    with pytest.raises(PlatformRefused, match="HTTPS"):
        await local.run(Recorder())


@pytest.mark.parametrize("now", ["", "https://elsewhere.example.org"])
async def test_a_webhook_that_fails_or_was_taken_away_is_noticed(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, now: str
) -> None:
    monkeypatch.setattr("palaver.platforms.telegram.adapter._WEBHOOK_CHECK_SECONDS", 0.01)
    serving = asyncio.create_task(adapter_of(server, **WEBHOOK).run(Recorder()))
    await until(lambda: bool(server.world.webhook["url"]))
    server.world.webhook |= {"last_error_date": 1_700_000_000, "last_error_message": "long ago"}
    await until(lambda: len(server.world.asked("getwebhookinfo")) > 1)
    server.world.webhook |= {"last_error_date": 4_000_000_000, "last_error_message": "Connection\nrefused"}
    await until(lambda: "Connection refused" in caplog.text)
    assert "long ago" not in caplog.text
    server.world.webhook = {"url": now}
    with pytest.raises(PlatformDown, match="webhook"):
        await serving


class Counting(Recorder):
    connections = 0

    async def connected(self) -> None:
        self.connections += 1


async def test_an_account_that_telegram_cannot_call_is_down_until_it_can(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palaver.platforms.telegram.adapter._WEBHOOK_CHECK_SECONDS", 0.01)
    adapter, before, recorder = adapter_of(server, **WEBHOOK), Counting(), Counting()

    async def hear(call: HttpRequest) -> HttpResponse:
        return await adapter.handle_callback(call, recorder)

    server.world.push(server.world.says(server.world.chats[7], ALICE, "hi"))
    for _ in range(2):
        with pytest.raises(PlatformDown, match="could not reach our webhook: Connection refused"):
            await adapter.run(before)
    assert before.connections == 1, "once it was hoped for"
    async with running(adapter, recorder):
        looks = len(server.world.asked("getwebhookinfo"))
        server.calls_us = hear
        await recorder.has(1)
        await until(lambda: recorder.connections == 1)
    assert len(server.world.asked("getwebhookinfo")) > looks


# Messages out


async def test_what_is_answered_is_shown_where_several_people_talk(server: Server) -> None:
    adapter = adapter_of(server)
    for chat, reply_to in ((-5, "12"), (-5, "callback:12"), (7, "12")):
        await adapter.send(to(chat, "yes", reply_to=reply_to), idempotency_key="1")
    replies = [asked.get("reply_parameters") for asked in server.world.asked("sendmessage")]
    assert replies == [{"message_id": 12, "allow_sending_without_reply": True}, None, None]
    for chat, quotes in ((7, QuoteMode.ALWAYS), (-5, QuoteMode.NEVER)):
        await adapter.send(to(chat, "yes", reply_to="12", quotes=quotes), idempotency_key="2")
    replies = [asked.get("reply_parameters") for asked in server.world.asked("sendmessage")][3:]
    assert replies == [{"message_id": 12, "allow_sending_without_reply": True}, None]


async def test_the_general_topic_takes_no_number(server: Server) -> None:
    forum = server.world.chat(-1001, "supergroup", title="F", topics={77})
    adapter = adapter_of(server)
    for thread in ("1", None, "77"):
        await adapter.send(to(forum.id, "x", thread_id=thread), idempotency_key="1")
    await adapter.typing(to(forum.id, "", thread_id="77"))
    assert [each.get("message_thread_id") for each in server.world.sent] == [None, None, 77]
    assert server.world.asked("sendchataction")[0]["message_thread_id"] == 77
    with pytest.raises(SendRefused, match="topic"):
        await adapter.send(to(forum.id, "x", thread_id="$event"), idempotency_key="1")


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "deleted"])
async def test_an_answer_for_a_topic_that_takes_none_goes_to_its_chat(
    server: Server, tmp_path: Path, is_closed: bool
) -> None:
    forum = server.world.chat(-1001, "supergroup", title="F", topics={77, 78})
    asked = server.world.says(forum, ALICE, "why?", topic=77)["message_id"]
    (forum.closed.add if is_closed else forum.topics.discard)(77)
    answer = to(forum.id, "because", thread_id="77", reply_to=str(asked), choices=(Choice("Yes", "/approve 1"),))
    (path := tmp_path / "0").write_bytes(PICTURE)
    file = Attachment(Label("a.png"), "image/png", len(PICTURE), "0" * 64)
    adapter = adapter_of(server)
    await adapter.send(answer, idempotency_key="1")
    await adapter.send_file(replace(answer, file=file), path, idempotency_key="2")
    assert [(each["chat"]["id"], "message_thread_id" in each) for each in server.world.sent] == [(-1001, False)] * 2
    (button,) = server.world.sent[0]["reply_markup"]["inline_keyboard"][0]
    assert button["callback_data"] == "/approve 1\n77", "what is answered is still what was asked in the topic"
    assert [kind for kind, _, _ in server.world.uploads] == ["photo"]


async def test_growing_answers_leave_half_of_what_a_chat_takes_to_others(server: Server) -> None:
    """A group takes 20 messages and edits a minute, a private chat one a second."""
    limits = adapter_of(server).limits
    assert 60 / (limits.group_draft_interval or 0) <= 20 / 2
    assert 60 / limits.draft_interval <= 60 / 2


async def test_telegram_looks_at_no_address_that_an_answer_names(server: Server) -> None:
    adapter = adapter_of(server)
    receipt = await adapter.send(to(7, "see https://example.org/?secret"), idempotency_key="1")
    await adapter.edit(receipt, to(7, "see https://example.org/?secrets"))
    calls = (*server.world.asked("sendmessage"), *server.world.asked("editmessagetext"))
    assert [asked.get("link_preview_options") for asked in calls] == [{"is_disabled": True}] * 2


async def test_a_choice_that_is_too_long_for_a_button_has_none(server: Server) -> None:
    choices = (Choice("Yes", "/approve 1"), Choice("No", "ü" * 33))
    await adapter_of(server).send(to(7, "May I?", choices=choices), idempotency_key="1")
    (row,) = server.world.sent[0]["reply_markup"]["inline_keyboard"]
    long = [Choice(label * 20, f"/answer 7-1 #{label}") for label in "12"]
    await adapter_of(server).send(to(7, "Which?", choices=tuple(long)), idempotency_key="2")
    assert [len(each) for each in server.world.sent[1]["reply_markup"]["inline_keyboard"]] == [1, 1]
    assert row == [{"text": "Yes", "callback_data": "/approve 1"}]


async def test_a_topic_is_not_begun_twice_because_its_first_message_was_refused(server: Server) -> None:
    forum = server.world.chat(-1001, "supergroup", title="F", topics={77})
    adapter = adapter_of(server)
    server.world.refuses["sendmessage"] = [No(429, "Too Many Requests: retry after 5", retry_after=5)]
    with pytest.raises(SendUnclear):
        await adapter.open_thread(to(forum.id, "x", opens="Plans"), idempotency_key="1")
    with pytest.raises(SendRefused, match="not a forum"):
        await adapter.open_thread(to(-5, "x", opens="Plans"), idempotency_key="1")


PICTURE = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"


@pytest.mark.parametrize(
    ("media_type", "content", "kind"),
    [
        ("image/png", PICTURE, "photo"),
        ("image/png", b"no picture", "document"),
        ("image/png", PICTURE + bytes(10_000_000), "document"),
        ("image/gif", b"GIF8", "animation"),
        ("audio/ogg", b"OggS", "voice"),
        ("audio/mpeg", b"ID3", "audio"),
        ("video/mp4", b"....ftyp", "video"),
        ("text/html", b"<p>", "document"),
    ],
)
async def test_a_file_is_shown_as_what_it_is(
    server: Server, tmp_path: Path, media_type: str, content: bytes, kind: str
) -> None:
    (path := tmp_path / "0").write_bytes(content)
    file = Attachment(Label('a"b\n.x'), media_type, len(content), "0" * 64)
    receipt = await adapter_of(server).send_file(to(7, "*look*", file=file), path, idempotency_key="1")
    assert [(each[0], each[1], each[2] == content) for each in server.world.uploads] == [(kind, "a'b .x", True)]
    assert (server.world.sent[0]["caption"], receipt) == ("look", str(server.world.sent[0]["message_id"]))


@pytest.mark.parametrize(
    "no", [No(403, "Forbidden: bot was blocked by the user"), No(400, "Bad Request: chat not found")]
)
async def test_a_file_for_a_chat_that_is_gone_is_not_tried_as_a_document(
    server: Server, tmp_path: Path, no: No
) -> None:
    (path := tmp_path / "0").write_bytes(PICTURE)
    server.world.chats[7].is_gone = no
    file = Attachment(Label("a.png"), "image/png", 1, "0" * 64)
    with pytest.raises(TargetGone):
        await adapter_of(server).send_file(to(7, "", file=file), path, idempotency_key="1")
    assert not server.world.asked("senddocument")


async def test_a_file_that_is_larger_than_bots_can_send_is_refused_before_it_is_sent(
    server: Server, tmp_path: Path
) -> None:
    with (path := tmp_path / "0").open("wb") as content:
        content.truncate(50_000_001)
    file = Attachment(Label("a"), "text/plain", 50_000_001, "0" * 64)
    with pytest.raises(SendRefused, match="50 MB"):
        await adapter_of(server).send_file(to(7, "", file=file), path, idempotency_key="1")


async def test_the_menu_fits(server: Server) -> None:
    lines = [
        MenuCommand(name="new", help=" a\nb "),
        MenuCommand(name="no-dash", help="x"),
        MenuCommand(name="bare", help=""),
    ]
    many = [MenuCommand(name=f"c{number}", help="h" * 300) for number in range(200)]
    await adapter_of(server).show_menu((*lines, *many))
    shown = server.world.commands
    assert shown[:2] == [{"command": "new", "description": "a b"}, {"command": "bare", "description": "bare"}]
    assert len(shown) == 100
    assert max(len(each["description"]) for each in shown) == 256


async def test_who_we_are(server: Server) -> None:
    assert await adapter_of(server).check() == "@Helper_Bot"


async def test_a_server_that_fails_leaves_it_open(server: Server) -> None:
    adapter = adapter_of(server)
    receipt = await adapter.send(to(7, "old"), idempotency_key="1")
    server.world.refuses["editmessagetext"] = [No(504, "Gateway Timeout")]
    with pytest.raises(SendUnclear):
        await adapter.edit(receipt, to(7, "new"))
