"""The gateway: sessions that are resumed or lost, what was written meanwhile, and what the adapter cannot read."""

import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from palaver.platforms.discord import listen
from palaver.protocols import PlatformBusy, PlatformDown, PlatformRefused, StoreUnavailable, Trust
from palaver.testkit.recorder import Recorder, running
from tests.engine.gateway import until
from tests.platforms.discord.fakes import GUILD, ROOM, THREAD, FakeServerChannel, adapter_of
from tests.platforms.discord.server import Server, serving
from tests.platforms.discord.world import ALICE, BOT, BOT_ROLE, No, Session, World

IDENTIFY, RESUME = 2, 6


@pytest.fixture
async def server() -> AsyncGenerator[Server]:
    async with serving(World()) as server:
        FakeServerChannel(server)
        server.world.dm("700")
        yield server


@pytest.fixture
def world(server: Server) -> World:
    return server.world


async def meet(server: Server, recorder: Recorder, *, text: str = "before", **options: Any) -> None:
    """The bot is there, hears something in the channel and in private, and goes."""
    async with running(adapter_of(server, **options), recorder):
        await server.world.begun.wait()
        server.world.says(ROOM, ALICE, text)
        server.world.says("700", ALICE, f"{text}, in private")
        await recorder.has(2)


# Sessions


async def test_a_stopped_gateway_resumes_where_it_was(server: Server, world: World) -> None:
    recorder = Recorder()
    await meet(server, recorder)
    assert server.closed == [4000], "Discord forgets a session that is closed with 1000"
    said = world.says(THREAD, ALICE, "meanwhile")
    world.edits(said, "meanwhile!")
    async with running(adapter_of(server), recorder):
        await recorder.has_changes(1)
    assert (server.ops().count(IDENTIFY), server.ops().count(RESUME)) == (1, 1)
    meanwhile = recorder.received[2]
    assert (meanwhile.source.chat_id, meanwhile.source.thread_id) == (ROOM, THREAD), (
        "a resumed session lists no threads"
    )
    assert (meanwhile.labels.chat and meanwhile.labels.chat.plain()) == "dev"
    assert [change.text for change in recorder.changes] == ["meanwhile!"]


async def test_a_session_whose_address_is_gone_is_given_up(server: Server, world: World) -> None:
    recorder = Recorder()
    await meet(server, recorder)
    position = json.loads(await recorder.load_position() or "")
    await recorder.save_position(json.dumps({**position, "url": "ws://127.0.0.1:1/gateway"}))
    world.says("700", ALICE, "meanwhile")
    async with running(adapter_of(server), recorder):
        await recorder.has(3)
    assert (server.ops().count(IDENTIFY), server.ops().count(RESUME)) == (2, 0)


@pytest.mark.parametrize("short", [0.0, 5.0], ids=["at once", "after a pause"])
@pytest.mark.parametrize("op", [7, 9])
async def test_discord_asks_to_reconnect(
    server: Server, world: World, op: int, short: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listen, "_SHORT_SECONDS", short)
    recorder = Recorder()
    async with running(adapter_of(server), recorder):
        await world.begun.wait()
        world.says(ROOM, ALICE, "one")
        await recorder.has(1)
        await server.tell(op, True)
        world.says(ROOM, ALICE, "two")
        await recorder.has(2)
        await until(lambda: RESUME in server.ops())
        world.says(ROOM, ALICE, "three")
        await recorder.has(3)
    assert recorder.texts == ["one", "two", "three"]
    assert server.ops().count(IDENTIFY) == 1
    logins = [call for call in world.calls if call[1] == "/users/@me"]
    assert len(logins) == (2 if short else 1), "the same connection goes on, or the gateway makes another"


async def test_what_was_written_while_the_session_was_lost_is_read_from_the_history(
    server: Server, world: World
) -> None:
    recorder = Recorder()
    await meet(server, recorder)
    world.sessions.clear()
    wanted = [f"message {number}" for number in range(230)]
    for text in wanted:
        world.says(ROOM, ALICE, text)
    world.says(ROOM, BOT, "our own")
    edited = world.says(THREAD, ALICE, "in the thread")
    world.edits(edited, "in the thread, edited")
    world.says("700", ALICE, "hello?")
    world.guild("600")
    world.channel("601", "600", name="secret", last_message_id=world.new_id())
    world.gone.add("601")
    async with running(adapter_of(server), recorder):
        await recorder.has(2 + len(wanted) + 2)
        await until(lambda: server.ops().count(IDENTIFY) == 2)
        world.says(ROOM, ALICE, "live")
        await until(lambda: "live" in recorder.texts)
    heard = recorder.texts[2:]
    assert [text for text in heard if text.startswith("message")] == wanted
    assert sorted(set(heard) - set(wanted)) == ["hello?", "in the thread, edited", "live"]
    assert [each.text for each in recorder.changes] == ["in the thread, edited"]
    direct = next(each for each in recorder.received if each.text == "hello?")
    assert (direct.source.chat_kind, direct.source.scope_id) == ("dm", None)


async def test_a_bot_without_servers_reads_the_history_of_every_direct_chat(world: World, server: Server) -> None:
    world.guilds.clear()
    recorder = Recorder()
    for channel in ("701", "702", "703"):
        world.dm(channel)
    async with running(adapter_of(server), recorder):
        await world.begun.wait()
        for channel in ("701", "702", "703"):
            world.says(channel, ALICE, f"in {channel}")
        await recorder.has(3)
    world.sessions.clear()
    for channel in ("703", "702", "701"):
        world.says(channel, ALICE, f"again in {channel}")
    # The overlap alone must not find them.
    for messages in world.messages.values():
        for each in messages[1:]:
            each["id"] = str(int(each["id"]) + (60_000 << 22) * int(each["channel_id"][-1]))
    async with running(adapter_of(server), recorder):
        await recorder.has(6)
    assert sorted(recorder.texts[3:]) == ["again in 701", "again in 702", "again in 703"]


async def test_a_message_that_was_overtaken_is_found_in_the_history(server: Server, world: World) -> None:
    """Its id is smaller than one that we have stored, in another channel."""
    recorder = Recorder()
    async with running(adapter_of(server), recorder):
        await world.begun.wait()
        (session,) = world.sessions.values()
        world.sessions.clear()
        world.says(THREAD, ALICE, "overtaken")
        world.sessions[session.id] = session
        world.says(ROOM, ALICE, "newest")
        await recorder.has(1)
    world.sessions.clear()
    async with running(adapter_of(server), recorder):
        await recorder.has(2)
    assert recorder.texts == ["newest", "overtaken"]


async def test_a_crash_while_the_history_is_read_leaves_no_gap(server: Server, world: World) -> None:
    world.guild("600")
    world.channel("601", "600", name="other")
    recorder = Recorder()
    await meet(server, recorder)
    world.sessions.clear()
    for channel in (ROOM, "601"):
        world.says(channel, ALICE, f"in {channel}")
    # The message of the second server cannot be stored, and the gateway dies right then.
    store, adapter = recorder.receive, adapter_of(server)

    async def receive(inbound: Any, trust: Trust) -> None:
        recorder.failures = 1 if inbound.text == "in 601" else 0
        await store(inbound, trust)

    recorder.receive = receive  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(PlatformDown, match="ended the session"):
        await adapter.run(recorder)
    with pytest.raises(StoreUnavailable):
        await adapter.run(recorder)
    recorder.receive, recorder.failures = store, 0  # pyright: ignore[reportAttributeAccessIssue]
    world.sessions.clear()
    async with running(adapter_of(server), recorder):
        await recorder.has(4)
    assert sorted(recorder.texts[2:]) == ["in 501", "in 601"]


async def test_a_bot_that_started_too_often_waits_before_discord_takes_its_token(server: Server, world: World) -> None:
    world.starts = 20
    with pytest.raises(PlatformBusy) as busy:
        await adapter_of(server).run(Recorder())
    assert busy.value.after == 14_400
    assert IDENTIFY not in server.ops()


async def test_a_heartbeat_says_what_came_last(server: Server, world: World) -> None:
    server.heartbeat_ms = 20
    recorder = Recorder()
    async with running(adapter_of(server), recorder):
        await world.begun.wait()
        world.says(ROOM, ALICE, "hi")
        await recorder.has(1)
        number = len(next(iter(world.sessions.values())).events)
        await until(lambda: [frame["d"] for frame in server.frames if frame["op"] == 1].count(number) >= 2)


@pytest.mark.parametrize(
    ("code", "error", "words"),
    [
        (4004, PlatformRefused, "Reset Token"),
        (4014, PlatformRefused, "Message Content Intent"),
        (4011, PlatformRefused, "more servers"),
        (4000, PlatformDown, "closes the connection"),
    ],
)
async def test_a_refused_connection_says_what_to_do(
    server: Server, code: int, error: type[PlatformDown], words: str
) -> None:
    server.refuses_gateway = code
    with pytest.raises(error, match=words):
        await adapter_of(server).run(Recorder())


async def test_a_gateway_that_is_not_discords_is_reported(server: Server, world: World) -> None:
    begin = world.begin

    def garbled() -> Session:
        session = begin()
        del session.events[0]["d"]["session_id"]
        return session

    world.begin = garbled  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(PlatformDown, match="unreadable: KeyError"):
        await adapter_of(server).run(Recorder())


async def test_a_server_that_is_away_delays_nobody(server: Server, world: World) -> None:
    """It says so now, and lists its channels when it is back."""
    recorder = Recorder()
    await meet(server, recorder)
    world.sessions.clear()
    world.guilds["600"] = {"id": "600", "unavailable": True, "roles": []}
    async with running(adapter_of(server), recorder):
        await until(lambda: bool(world.sessions))
        world.says(ROOM, ALICE, "here")
        await recorder.has(3)
        world.emit("GUILD_DELETE", {"id": "600"})
        world.says(ROOM, ALICE, "still here")
        await recorder.has(4)
    world.says(ROOM, ALICE, "meanwhile")
    async with running(adapter_of(server), recorder):
        await recorder.has(5)
    assert server.ops().count(RESUME) == 2, "once to find the session lost, once to resume it"


async def test_a_channel_that_was_forgotten_among_many_threads_is_asked_for(
    server: Server, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listen, "_MAX_CHANNELS", 3)
    recorder = Recorder()
    async with running(adapter_of(server), recorder):
        await world.begun.wait()
        for number in range(3):
            world.emit("THREAD_CREATE", world.channel(world.new_id(), GUILD, 11, name=f"{number}", parent_id=ROOM))
        world.says(THREAD, ALICE, "hi")
        await recorder.has(1)
    (heard,) = recorder.received
    assert (heard.source.chat_id, heard.source.thread_id) == (ROOM, THREAD)
    assert [call for call in world.calls if call == ("GET", f"/channels/{THREAD}")]


# Trust and roles


async def test_a_server_role_is_seen_live_and_in_the_history_and_never_in_private(server: Server, world: World) -> None:
    world.members[GUILD, "7"] = ["31", "32"]
    recorder = Recorder()
    await meet(server, recorder, roles=["32"])
    world.sessions.clear()
    world.says(ROOM, ALICE, "later")
    world.says(ROOM, {**ALICE, "id": "8"}, "a stranger")
    async with running(adapter_of(server, roles=["32"]), recorder):
        await recorder.has(4)
        world.command(ROOM, ALICE, "status")
        await recorder.has(5)
    granted = {each.text: trust.has_role_grant for each, trust in zip(recorder.received, recorder.trusts, strict=True)}
    assert granted == {
        "before": True,
        "before, in private": False,
        "later": True,
        "a stranger": False,
        "/status": True,
    }


async def test_bots_and_webhooks_are_no_people(server: Server, world: World) -> None:
    recorder = Recorder()
    async with running(adapter_of(server), recorder):
        await world.begun.wait()
        world.says(ROOM, {**ALICE, "id": "55", "bot": True}, "beep")
        world.says(ROOM, {**ALICE, "id": "56"}, "news", webhook_id="56")
        await recorder.has(2)
    assert recorder.trusts == [Trust(is_bot=True)] * 2


async def test_who_reacts_is_known_like_who_writes(server: Server, world: World) -> None:
    world.members[GUILD, "7"] = ["32"]
    recorder = Recorder()
    async with running(adapter_of(server, roles=["32"]), recorder):
        await world.begun.wait()
        said = world.says(ROOM, ALICE, "hello")
        world.react(ALICE, said, "👍")
        world.react(ALICE, said, "👍", removed=True)
        world.react({**ALICE, "id": "55", "bot": True}, said, "👎")
        await until(lambda: len(recorder.trusts) == 4)
    granted = Trust(has_role_grant=True)
    assert recorder.trusts == [granted, granted, granted, Trust(is_bot=True)]


async def test_our_own_role_is_our_name(server: Server, world: World) -> None:
    recorder = Recorder()
    await meet(server, recorder)
    async with running(adapter_of(server), recorder):
        world.says(ROOM, ALICE, f"<@&{BOT_ROLE}> what time is it?")
        world.says(ROOM, ALICE, "<@&77> what time is it?")
        await recorder.has(4)
    assert [(each.text, each.mentions_us) for each in recorder.received[2:]] == [
        ("what time is it?", True),
        ("<@&77> what time is it?", False),
    ]


# What cannot be read


async def test_unreadable_events_are_skipped_and_block_nothing(server: Server, world: World) -> None:
    recorder = Recorder()
    hostile: list[dict[str, Any]] = [
        {},
        {"channel_id": ROOM},
        {"id": "x", "channel_id": ROOM, "guild_id": GUILD, "author": None, "content": 7},
        {"id": "x", "channel_id": "700", "author": {"id": "1"}, "content": "odd", "timestamp": "2026-05-01T00:00:00Z"},
        {"id": "1", "type": 3, "channel_id": "700", "data": {"custom_id": "x"}, "user": {"id": "1"}},
        {"id": "1", "channel_id": [], "guild_id": {}, "author": {"id": "1"}, "content": "", "timestamp": "never"},
        {"id": "2", "channel_id": "../users", "guild_id": "../..", "mention_roles": [1], "author": {"id": "1"}},
        {"id": 9 << 4000, "channel_id": ROOM, "author": {"id": "1"}, "content": "", "timestamp": 5},
    ]
    async with running(adapter_of(server), recorder):
        await world.begun.wait()
        for payload in hostile:
            for name in ("MESSAGE_CREATE", "MESSAGE_UPDATE", "MESSAGE_DELETE_BULK", "INTERACTION_CREATE"):
                world.emit(name, payload)
        for name in ("GUILD_CREATE", "CHANNEL_UPDATE", "THREAD_CREATE", "SOMETHING_NEW"):
            world.emit(name, {"id": "1", "channels": [7], "roles": [7], "a": 1})
        world.says(ROOM, ALICE, "after")
        await recorder.has(2)
    assert recorder.texts == ["x", "after"], "a press that cannot be confirmed is a press"
    assert server.ops().count(IDENTIFY) == 1


async def test_a_rate_limit_while_the_history_is_read_is_waited_for(server: Server, world: World) -> None:
    recorder = Recorder()
    await meet(server, recorder)
    world.sessions.clear()
    world.says(ROOM, ALICE, "meanwhile")
    world.refuses.append((r"GET /channels/\d+/messages", No(429, 0, "You are being rate limited.", retry_after=0.01)))
    async with running(adapter_of(server), recorder):
        await recorder.has(3)
    assert server.ops().count(IDENTIFY) == 2
