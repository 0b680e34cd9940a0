"""The adapter with Slack at its other end: connections that end, refusals, files, names and buttons."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from palaver.platforms.slack import adapter as slack_adapter
from palaver.platforms.slack.adapter import SlackAdapter
from palaver.protocols import (
    Attachment,
    Choice,
    Label,
    Outbound,
    PlatformBusy,
    PlatformDown,
    PlatformError,
    PlatformRefused,
    SendRefused,
    SendUnclear,
    TargetGone,
)
from palaver.testkit.recorder import Recorder, running
from tests.engine.gateway import until
from tests.platforms.slack.fakes import ALICE, FakeSlack, adapter_of
from tests.platforms.slack.server import Server
from tests.platforms.slack.world import APP_TOKEN, BOT_TOKEN, BOT_USER, TEAM, No, World

ANSWER = Outbound(platform="slack", account="helper", chat_id="C0DEV", text="hello")


@pytest.fixture
def world(server: Server) -> World:
    FakeSlack(server)
    return server.world


@asynccontextmanager
async def connected(server: Server, **options: Any) -> AsyncGenerator[tuple[SlackAdapter, Recorder]]:
    adapter, recorder = adapter_of(server, **options), Recorder()
    links = server.links
    async with running(adapter, recorder):
        await until(lambda: server.links > links)
        yield adapter, recorder


async def ended(server: Server, **options: Any) -> PlatformError:
    """Run until Slack ends it."""
    with pytest.raises(PlatformError) as raised:
        async with asyncio.timeout(60):
            await adapter_of(server, **options).run(Recorder())
    return raised.value


# Connections


async def test_slack_can_ask_for_a_new_connection_at_any_time(server: Server, world: World) -> None:
    async with connected(server) as (_, recorder):
        for number, reason in enumerate(("warning", "refresh_requested", "too_many_websockets"), 1):
            world.says("C0DEV", ALICE, f"number {number}")
            await recorder.has(number)
            await server.say({"type": "disconnect", "reason": reason, "debug_info": {"host": "applink-1"}})
            await until(lambda links=number + 1: server.links >= links)
        world.says("C0DEV", ALICE, "last")
        await recorder.has(4)
        assert server.links == 4
    assert recorder.texts == ["number 1", "number 2", "number 3", "last"]


async def test_an_envelope_that_was_not_acknowledged_comes_again_as_the_same_message(
    server: Server, world: World
) -> None:
    async with connected(server) as (_, recorder):
        recorder.failures = 1
        world.says("C0DEV", ALICE, "keep me")
        await recorder.has(1)
        await until(lambda: not world.envelopes)
    first, *again = recorder.offered
    assert again
    assert all(each == first for each in again)
    (acknowledged,) = server.acknowledged
    assert acknowledged["envelope_id"]


# What was missed


async def test_what_was_written_while_nobody_was_connected_is_read_from_the_history(
    server: Server, world: World
) -> None:
    """Slack gives an event up after some minutes, so it does not come again."""
    root = world.messages["C0DEV"][0]["ts"]
    world.channel("D0ALICE", "im")
    world.channel("G0OPS", "group", "ops")
    adapter, recorder = adapter_of(server), Recorder()
    async with running(adapter, recorder):
        await until(lambda: server.links == 1)
        said = world.says("C0DEV", ALICE, "before")
        await recorder.has(1)
        await until(lambda: not world.envelopes)
    for number in range(5):
        world.says("C0DEV", ALICE, f"missed {number}")
    thread = world.says("C0DEV", ALICE, f"<@{BOT_USER}> in a thread", thread=root)
    world.says("D0ALICE", ALICE, "in private")
    world.says("G0OPS", ALICE, "in a private channel")
    world.edit("C0DEV", said, "before, edited")
    world.envelopes.clear()
    async with running(adapter, recorder):
        await recorder.has(9)
        await until(lambda: float(recorder.position or 0) > float(thread["ts"]))
        world.says("C0DEV", ALICE, "after")
        await recorder.has(10)
        await until(lambda: not world.envelopes)
    found = {each.text: each for each in recorder.received}
    missed = [text for text in recorder.texts if text.startswith("missed")]
    assert missed == [f"missed {number}" for number in range(5)]
    assert recorder.texts[-1] == "after"
    assert [each.text for each in recorder.changes] == ["before, edited"]
    assert (found["in a thread"].source.thread_id, found["in a thread"].mentions_us) == (root, True)
    assert found["in private"].source.chat_kind == "dm"
    assert {each.source.scope_id for each in recorder.received} == {TEAM}
    assert "plans" not in recorder.texts, "it was there before the app"


async def test_a_new_message_comes_after_what_was_missed_in_its_chat(server: Server, world: World) -> None:
    for number in range(20):
        world.channel(f"C{number}")
    adapter, recorder = adapter_of(server), Recorder()
    async with running(adapter, recorder):
        world.says("C0DEV", ALICE, "before")
        await recorder.has(1)
        await until(lambda: not world.envelopes)
    world.says("C19", ALICE, "missed")
    world.envelopes.clear()
    async with running(adapter, recorder):
        await until(lambda: bool(world.asked("users.conversations")))
        world.says("C19", ALICE, "new")
        await recorder.has(3)
    assert recorder.texts == ["before", "missed", "new"]


async def test_a_crash_while_the_history_is_read_leaves_no_gap(server: Server, world: World) -> None:
    world.channel("D0ALICE", "im")
    adapter, recorder = adapter_of(server), Recorder()
    async with running(adapter, recorder):
        world.says("C0DEV", ALICE, "before")
        await recorder.has(1)
        await until(lambda: not world.envelopes)
    stored = recorder.position
    world.says("C0DEV", ALICE, "missed")
    world.says("D0ALICE", ALICE, "private")
    world.envelopes.clear()
    world.refuses["conversations.history"] += [No("ratelimited", 429, retry_after=3600)]
    async with running(adapter, recorder):
        await until(lambda: bool(world.asked("conversations.history")))
        world.command("D0ALICE", ALICE, "status")
        await recorder.has(2)
    assert recorder.position == stored, "not everything was read"
    async with running(adapter_of(server), recorder):
        await recorder.has(4)


async def test_an_app_that_cannot_read_a_history_hears_what_is_new(server: Server, world: World) -> None:
    world.refuses["users.conversations"] += [No("missing_scope", needed="im:read")]
    world.refuses["conversations.replies"] += [No("not_allowed_token_type")]
    adapter, recorder = adapter_of(server), Recorder()
    await recorder.save_position("1.000000")
    async with running(adapter, recorder):
        world.says("C0DEV", ALICE, "one", thread=world.messages["C0DEV"][0]["ts"])
        await recorder.has(1)
        await until(lambda: recorder.position != "1.000000")
    async with running(adapter, recorder):
        await until(lambda: bool(world.asked("conversations.replies")))
        world.says("C0DEV", ALICE, "two")
        await recorder.has(2)
    world.refuses["users.conversations"] += [No("token_revoked")]
    with pytest.raises(PlatformRefused, match="bot token"):
        async with asyncio.timeout(60):
            await adapter.run(recorder)


# Refusals


async def test_socket_mode_that_is_switched_off_needs_a_person(server: Server, world: World) -> None:
    task = asyncio.create_task(ended(server))
    await until(lambda: server.links == 1)
    await server.say({"type": "disconnect", "reason": "link_disabled"})
    assert "Switch it on" in str(await task)
    assert not world.envelopes


async def test_frames_that_cannot_be_read_are_acknowledged_and_block_nothing(server: Server, world: World) -> None:
    async with connected(server) as (_, recorder):
        frames: list[Any] = [
            "not json",
            "[1]",
            "{",
            "[" * 10_000,
            {"type": "surprise"},
            {"type": "events_api", "envelope_id": "bad-1", "payload": 5},
            {"type": "events_api", "envelope_id": "bad-2", "payload": None},
            {"type": "events_api", "envelope_id": "bad-3"},
            {"type": "events_api", "envelope_id": "bad-4", "payload": {"event": {"type": "message", "ts": []}}},
            {"type": "events_api", "envelope_id": "bad-5", "payload": {"event": [1]}},
            {"type": "interactive", "envelope_id": "bad-6", "payload": {"type": "block_actions", "actions": []}},
            {"type": "slash_commands", "envelope_id": "bad-7", "payload": {"command": None}},
        ]
        for frame in frames:
            await server.say(frame)
        world.says("C0DEV", ALICE, "after")
        await recorder.has(1)
        await until(lambda: not world.envelopes)
        assert server.links == 1
    assert [each["envelope_id"] for each in server.acknowledged[:-1]] == [f"bad-{n}" for n in range(1, 8)]


async def test_tokens_that_slack_rejects_are_named(server: Server, world: World) -> None:
    assert "bot token" in str(await ended(server, bot_token="xoxb-wrong"))  # noqa: S106
    assert "app-level token" in str(await ended(server, app_token="xapp-wrong"))  # noqa: S106
    world.refuses["apps.connections.open"].append(No("missing_scope", needed="connections:write"))
    assert "connections:write" in str(await ended(server))
    world.refuses["apps.connections.open"].append(No("ratelimited", 429, retry_after=30))
    assert type(await ended(server)) is PlatformDown
    world.refuses["auth.test"].append(No("", 503))
    assert type(await ended(server)) is PlatformDown


async def test_a_connection_that_cannot_be_made_is_given_up(
    server: Server, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slack_adapter, "_CONNECT_SECONDS", 0.05)
    monkeypatch.setattr(server, "open", lambda: {"url": f"{world.url}/link?ticket=used"})
    assert "no connection" in str(await ended(server))


async def test_a_check_names_the_app_and_tries_both_tokens(server: Server, world: World) -> None:
    assert await adapter_of(server).check() == "@helper in Example"
    for options, words in (({"bot_token": "xoxb-no"}, "bot token"), ({"app_token": "xapp-no"}, "app-level token")):
        with pytest.raises(PlatformRefused, match=words):
            await adapter_of(server, **options).check()
    asked = len(world.asked("apps.connections.open"))
    async with connected(server) as (adapter, _):
        await adapter.check()
    assert len(world.asked("apps.connections.open")) == asked + 1, "while it runs, it asks only who it is"


async def test_nothing_of_a_message_or_token_is_logged(
    server: Server, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    async with connected(server) as (adapter, recorder):
        world.says("C0DEV", ALICE, "a secret word")
        await recorder.has(1)
        world.refuses["chat.postMessage"].append(No("", 500))
        with suppress(SendUnclear):
            await adapter.send(replace(ANSWER, text="a secret word"), idempotency_key="1")
        server.cut()
        await until(lambda: server.links == 2)
    ours = [record.getMessage() for record in caplog.records if not record.name.startswith("aiohttp.access")]
    assert not any(word in line for line in ours for word in ("secret word", BOT_TOKEN, APP_TOKEN, "ticket="))


# Names, chats and buttons


async def test_a_reaction_of_another_app_is_a_bots(server: Server, world: World) -> None:
    async with connected(server) as (adapter, recorder):
        world.users["U0APP"] = {**world.users[ALICE], "id": "U0APP", "is_bot": True}
        await adapter.send(Outbound(platform="slack", chat_id="C0DEV", text="May I?"), idempotency_key="k")
        for user in ("U0APP", ALICE, "U0APP"):
            world.react("C0DEV", user, world.sent()[-1], "-1")
        await recorder.has(3)
        assert [trust.is_bot for trust in recorder.trusts] == [True, False, True]
        assert len(world.asked("users.info")) == 4, "twice for each: the name, and what it is"
        world.users["U0NEW"] = {**world.users["U0APP"], "id": "U0NEW"}
        world.refuses["users.info"].append(No("", 502))
        world.react("C0DEV", "U0NEW", world.sent()[-1], "+1")
        await recorder.has(4)
    assert recorder.trusts[-1].is_bot, "it can be one, as long as Slack does not tell"


async def test_names_are_looked_up_once_and_kept_up_to_date(server: Server, world: World) -> None:
    async with connected(server) as (_, recorder):
        for text in ("one", "two"):
            world.says("C0DEV", ALICE, text)
        await recorder.has(2)
        world.channels["C0DEV"]["name"] = "ops"
        world.event({"type": "channel_rename", "channel": {"id": "C0DEV", "name": "ops", "created": 1}})
        world.rename(ALICE, "Alice B.")
        world.says("C0DEV", ALICE, "three")
        await recorder.has(3)
    names = [(each.labels.chat, each.labels.user) for each in recorder.received]
    assert names == [(Label("dev"), Label("alice"))] * 2 + [(Label("ops"), Label("Alice B."))]
    assert (len(world.asked("users.info")), len(world.asked("conversations.info"))) == (1, 1)


async def test_a_message_comes_without_names_if_slack_does_not_tell_them(server: Server, world: World) -> None:
    world.refuses["users.info"] += [No("ratelimited", 429, retry_after=9), No("", 502)]
    world.refuses["conversations.info"] += [No("missing_scope", needed="channels:read"), No("internal_error")]
    async with connected(server) as (_, recorder):
        for text in ("one", "two", "three"):
            world.says("C0DEV", ALICE, text)
        await recorder.has(3)
    assert [each.labels.user for each in recorder.received] == [None, None, Label("alice")]
    assert [each.labels.chat for each in recorder.received] == [None] * 3
    assert len(world.asked("conversations.info")) == 1, "without the scope, asking again would not help"


async def test_our_own_messages_and_edits_do_not_come_back(server: Server, world: World) -> None:
    async with connected(server) as (adapter, recorder):
        receipt = await adapter.send(ANSWER, idempotency_key="1")
        await adapter.edit(receipt, replace(ANSWER, text="hello again"))
        world.says("C0DEV", ALICE, "hi")
        await recorder.has(1)
        await until(lambda: not world.envelopes)
    assert [each.text for each in recorder.offered] == ["hi"]


async def test_a_button_and_a_command_in_a_group_belong_to_the_group(server: Server, world: World) -> None:
    world.channel("G0GROUP", "mpim", "mpdm-alice--bob-1")
    question = replace(ANSWER, chat_id="G0GROUP", choices=(Choice("Yes", "/approve 1"),))
    async with connected(server) as (adapter, recorder):
        await adapter.send(question, idempotency_key="1")
        world.press("G0GROUP", ALICE, world.sent()[-1], "/approve 1")
        world.command("G0GROUP", ALICE, "status")
        world.says("G0GROUP", ALICE, "hi")
        await recorder.has(3)
    assert recorder.texts == ["/approve 1", "/status", "hi"]
    assert {(each.source.chat_kind, each.source.scope_id) for each in recorder.received} == {("group", TEAM)}
    assert world.sent()[-1]["blocks"], "somebody else may have to press"


async def test_in_a_direct_chat_a_pressed_button_disappears(server: Server, world: World) -> None:
    world.channel("D0ALICE", "im")
    question = replace(ANSWER, chat_id="D0ALICE", text="a **b** & c?", choices=(Choice("Yes", "/approve 1"),))
    async with connected(server) as (adapter, recorder):
        await adapter.send(question, idempotency_key="1")
        world.press("D0ALICE", ALICE, world.sent()[-1], "/approve 1")
        await recorder.has(1)
        await until(lambda: bool(world.asked("chat.update")))
    (sent,) = world.sent()
    assert sent["text"] == "a *b* &amp; c?"
    assert [block["type"] for block in sent["blocks"]] == ["section"]
    assert recorder.received[0].source.chat_kind == "dm"


async def test_by_option_a_message_is_answered_in_its_own_thread(server: Server, world: World) -> None:
    async with connected(server, reply_in_thread=True) as (adapter, recorder):
        said = world.says("C0DEV", ALICE, f"<@{BOT_USER}> hi")
        await recorder.has(1)
        thread = recorder.received[0].source.thread_id
        assert thread == said["ts"]
        await adapter.typing(replace(ANSWER, thread_id=thread, text=""))
        await adapter.send(replace(ANSWER, thread_id=thread), idempotency_key="1")
    assert world.sent()[-1]["thread_ts"] == said["ts"]
    (status,) = world.statuses
    assert (status["channel_id"], status["thread_ts"]) == ("C0DEV", said["ts"])


async def test_by_option_people_go_on_in_a_thread_that_the_app_began(server: Server, world: World) -> None:
    async with connected(server, reply_in_thread=True) as (_, recorder):
        ours, other = world.says("C0DEV", ALICE, f"<@{BOT_USER}> hi"), world.messages["C0DEV"][0]["ts"]
        for text in ("and", "so on"):
            world.says("C0DEV", ALICE, text, thread=ours["ts"])
        await recorder.has(3)
        world.refuses["conversations.history"] += [No("missing_scope", needed="channels:history")]
        world.says("C0DEV", ALICE, "unknown", thread=world.says("C0DEV", ALICE, f"<@{BOT_USER}> ho")["ts"])
        world.says("C0DEV", ALICE, "not for you", thread=other)
        await recorder.has(6)
    assert [each.mentions_us for each in recorder.received] == [True, True, True, True, False, False]
    assert len(world.asked("conversations.history")) == 3, "each thread is asked for once"
    async with connected(server) as (_, recorder):
        world.says("C0DEV", ALICE, "without the option", thread=ours["ts"])
        await recorder.has(1)
    assert not recorder.received[0].mentions_us


# Sends


async def test_what_slack_answers_to_a_send_decides_what_happens_next(server: Server, world: World) -> None:
    async with connected(server) as (adapter, _):
        for no, error in (
            (No("ratelimited", 429, retry_after=30), PlatformBusy),
            (No("rate_limited"), PlatformBusy),
            (No("", 429), PlatformBusy),
            (No("not_in_channel"), TargetGone),
            (No("is_archived"), TargetGone),
            (No("msg_too_long"), SendRefused),
            (No("missing_scope", needed="chat:write"), SendRefused),
            (No("token_revoked"), PlatformRefused),
            (No("internal_error"), SendUnclear),
            (No("", 500), SendUnclear),
            (No("", 503), SendUnclear),
            (No("", 200), SendUnclear),
        ):
            world.refuses["chat.postMessage"].append(no)
            with pytest.raises(error) as raised:
                await adapter.send(ANSWER, idempotency_key="1")
            assert type(raised.value) is error, no.code or no.status
        assert len(world.asked("chat.postMessage")) == 12, "the library repeats nothing"
        await adapter.send(ANSWER, idempotency_key="1")
    assert world.sent()[-1]["text"] == "hello"
    assert not any(world.asked("chat.postMessage")[-1][preview] for preview in ("unfurl_links", "unfurl_media"))


async def test_a_rate_limit_says_how_long(server: Server, world: World) -> None:
    world.refuses["chat.postMessage"].append(No("ratelimited", 429, retry_after=30))
    with pytest.raises(PlatformBusy) as busy:
        await adapter_of(server).send(ANSWER, idempotency_key="1")
    assert busy.value.after == 30


async def test_nothing_was_sent_if_there_is_no_slack() -> None:
    server = Server(World())
    server.url = "http://127.0.0.1:9"
    with pytest.raises(PlatformDown):
        await adapter_of(server).send(ANSWER, idempotency_key="1")


# Files


async def fetched(adapter: SlackAdapter, handle: str) -> bytes:
    return b"".join([piece async for piece in adapter.fetch(Attachment(Label("a"), handle=handle))])


async def test_only_slack_gets_the_token_for_a_file(server: Server, world: World) -> None:
    adapter = adapter_of(server)
    for url, error in (
        ("http://files.example/F1", SendRefused),
        ("http://127.0.0.1.example/F1", SendRefused),
        (server.url.replace("127.0.0.1", "evil127.0.0.1"), SendRefused),
        (server.url.replace("http:", "https:"), SendRefused),
        ("", SendRefused),
        (f"{server.url}/files/missing", SendRefused),
    ):
        world.files["F1"] = {"id": "F1", "url_private_download": url}
        with pytest.raises(error):
            await fetched(adapter, "F1")
    with pytest.raises(SendRefused):
        await fetched(adapter, "F2")
    world.files["F1"] = {"id": "F1", "url_private": f"{server.url}/files/F1"}
    world.contents["F1"] = b"x" * 200_000
    assert await fetched(adapter, "F1") == world.contents["F1"]
    server.hides_files = True
    with pytest.raises(SendRefused, match="files:read"):
        await fetched(adapter, "F1")


async def test_a_file_comes_with_its_text_in_its_thread(server: Server, world: World, tmp_path: Path) -> None:
    (content := tmp_path / "x").write_bytes(b"abc")
    thread = world.messages["C0DEV"][0]["ts"]
    file = Attachment(Label("a.txt"), "text/plain", 3)
    outbound = replace(ANSWER, text="**see** <this>", thread_id=thread, file=file)
    await adapter_of(server).send_file(outbound, content, idempotency_key="1")
    sent = world.messages["C0DEV"][-1]
    assert (sent["text"], sent["thread_ts"]) == ("*see* &lt;this&gt;", thread)
    assert [(each["name"], world.contents[each["id"]]) for each in sent["files"]] == [("a.txt", b"abc")]


async def test_a_lost_upload_was_not_shown_but_a_lost_end_may_have_been(
    server: Server, world: World, tmp_path: Path
) -> None:
    (content := tmp_path / "x").write_bytes(b"abc")
    outbound = replace(ANSWER, text="", file=Attachment(Label("a.txt"), "text/plain", 3))

    async def send() -> str:
        return await adapter_of(server).send_file(outbound, content, idempotency_key="1")

    await _raises(PlatformDown, send, lambda: world.refuses["files.getUploadURLExternal"].append(No("", 502)))
    await _raises(SendUnclear, send, lambda: setattr(server, "loses", True))
    assert len(world.messages["C0DEV"]) == 2


async def _raises(error: type[Exception], act: Callable[[], Awaitable[object]], first: Callable[[], object]) -> None:
    first()
    with pytest.raises(error):
        await act()
