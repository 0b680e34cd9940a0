"""What the adapter sends: threads, forum posts, replies, buttons, files, commands, and what each refusal means."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from palaver.model.attachment import Attachment
from palaver.model.label import Label
from palaver.model.turn import Choice, Outbound
from palaver.protocols import (
    MenuCommand,
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
from tests.platforms.discord.fakes import GUILD, ROOM, THREAD, FakeServerChannel, adapter_of
from tests.platforms.discord.server import Server, serving
from tests.platforms.discord.world import ALICE, No, World

TO_ROOM = Outbound(platform="discord", account="helper", chat_id=ROOM, scope_id=GUILD, text="hello")
SEND = r"POST /channels/\d+/messages"


@pytest.fixture
async def server() -> AsyncGenerator[Server]:
    async with serving(World()) as server:
        FakeServerChannel(server)
        server.world.dm("700")
        yield server


@pytest.fixture
def world(server: Server) -> World:
    return server.world


async def send(server: Server, outbound: Outbound, key: str = "k", **options: Any) -> str:
    return await adapter_of(server, **options).send(outbound, idempotency_key=key)


# Threads


async def test_the_first_answer_to_a_mention_opens_a_thread_at_it(server: Server, world: World) -> None:
    recorder, adapter = Recorder(), adapter_of(server, auto_thread=True)
    async with running(adapter, recorder):
        await world.begun.wait()
        said = world.says(ROOM, ALICE, "<@900> **plan** the party")
        world.says(ROOM, ALICE, "not for you")
        await recorder.has(2)
        asked, other = recorder.received
        assert (asked.source.chat_id, asked.source.thread_id, other.source.thread_id) == (ROOM, said["id"], None)
        to_thread = replace(TO_ROOM, thread_id=said["id"], reply_to=said["id"])
        await adapter.typing(to_thread)
        assert said["id"] not in world.channels, "typing opens none, and strangers get no answer"
        for text in ("one", "two"):
            receipt = await adapter.send(replace(to_thread, text=text), idempotency_key=text)
        await adapter.edit(receipt, replace(to_thread, text="three"))
        world.says(said["id"], ALICE, "and the cake?")
        await recorder.has(3)
    assert [(each["channel_id"], each["content"]) for each in world.sent] == [
        (said["id"], "one"),
        (said["id"], "three"),
    ]
    assert "message_reference" not in world.sent[0]
    assert world.channels[said["id"]]["name"] == "plan the party"
    inside = recorder.received[2]
    assert (inside.source.chat_id, inside.source.thread_id) == (ROOM, said["id"])
    assert inside.mentions_us, "what is said in a thread of ours is for us"


@pytest.mark.parametrize("why", ["deleted", "forbidden"])
async def test_an_answer_whose_thread_cannot_be_opened_goes_to_the_channel(
    server: Server, world: World, why: str
) -> None:
    said = world.says(ROOM, ALICE, "<@900> hi")
    if why == "deleted":
        world.deletes(said)
    else:
        world.refuses.append((r"POST .*/threads", No(403, 50_013, "Missing Permissions")))
    await send(server, replace(TO_ROOM, thread_id=said["id"]), auto_thread=True)
    assert [each["channel_id"] for each in world.sent] == [ROOM]


@pytest.mark.parametrize(
    "no",
    [No(400, 50_083, "Tried to perform an operation on an archived thread"), No(400, 160_005, "Thread is locked")],
)
async def test_an_answer_to_a_closed_thread_goes_to_the_channel(server: Server, world: World, no: No) -> None:
    world.channels[THREAD]["closed"] = no
    await send(server, replace(TO_ROOM, thread_id=THREAD))
    assert [each["channel_id"] for each in world.sent] == [ROOM]


async def test_a_message_to_a_forum_is_a_post(server: Server, world: World) -> None:
    world.channel("510", GUILD, 15, name="ideas")
    adapter = adapter_of(server)
    post = await adapter.send(replace(TO_ROOM, chat_id="510", text="# A cake\n\nor two"), idempotency_key="1")
    opened = await adapter.open_thread(
        replace(TO_ROOM, chat_id="510", text="tea", opens="Tea " * 60), idempotency_key="2"
    )
    assert world.channels[post]["name"] == "A cake or two"
    assert len(world.channels[opened]["name"]) <= 100
    assert [each["channel_id"] for each in world.sent] == [post, opened]


async def test_a_thread_whose_first_message_fails_is_unclear(server: Server, world: World) -> None:
    world.refuses.append((SEND, No(400, 50_035, "Invalid Form Body")))
    with pytest.raises(SendUnclear, match="was created"):
        await adapter_of(server).open_thread(replace(TO_ROOM, opens="Plans"), idempotency_key="1")


# Messages


async def test_a_message_mentions_people_only_and_shows_no_preview(server: Server, world: World) -> None:
    seen: list[dict[str, Any]] = []
    answer = world.answer

    def record(method: str, path: str, asked: Any, *rest: Any) -> Any:
        seen.append(asked)
        return answer(method, path, asked, *rest)

    world.answer = record  # pyright: ignore[reportAttributeAccessIssue]
    said = world.says(ROOM, ALICE, "hi")
    await send(server, replace(TO_ROOM, text="<@7> and @everyone: https://example.org/a_b", reply_to=said["id"]))
    await send(server, replace(TO_ROOM, chat_id="700", scope_id=None, reply_to="1"), "direct")
    await send(server, replace(TO_ROOM, reply_to="interaction:1"), "pressed")
    first, direct, pressed = [each for each in seen if "content" in each]
    assert first["content"] == "<@7> and @everyone: https://example.org/a_b"
    assert first["allowed_mentions"] == {"parse": ["users"], "replied_user": True}
    assert first["flags"] == 4
    assert first["message_reference"] == {"message_id": said["id"], "fail_if_not_exists": False}
    assert "message_reference" not in direct
    assert "message_reference" not in pressed


async def test_a_repeated_send_is_shown_once(server: Server, world: World) -> None:
    """Discord remembers the key for some minutes."""
    server.loses = True
    with pytest.raises(SendUnclear):
        await send(server, TO_ROOM, "the same")
    assert await send(server, TO_ROOM, "the same") == world.sent[0]["id"]
    await send(server, TO_ROOM, "another")
    assert len(world.sent) == 2


async def test_rate_limits_of_old_messages_are_not_remembered(server: Server) -> None:
    adapter = adapter_of(server)
    async with running(adapter, Recorder()):
        await server.world.begun.wait()
        connection = adapter._open  # pyright: ignore[reportPrivateUsage]
        assert connection
        async with connection.used() as client:
            for number in range(5):
                receipt = await adapter.send(TO_ROOM, idempotency_key=str(number))
                await adapter.edit(receipt, TO_ROOM)
            known = client.http._bucket_hashes  # pyright: ignore[reportPrivateUsage]
            assert len([path for path in known if path.startswith("PATCH")]) == 1


@pytest.mark.parametrize(
    ("no", "error"),
    [
        (No(429, 20_028, "The write action you are performing has hit a rate limit", retry_after=3.5), PlatformBusy),
        (No(401, 0, "401: Unauthorized"), PlatformRefused),
        (No(403, 50_001, "Missing Access"), TargetGone),
        (No(403, 50_013, "Missing Permissions"), TargetGone),
        (No(404, 10_003, "Unknown Channel"), TargetGone),
        (No(403, 50_007, "Cannot send messages to this user"), TargetGone),
        (No(400, 50_035, "Invalid Form Body"), SendRefused),
        (No(403, 200_000, "Message was blocked by automatic moderation"), SendRefused),
        (No(500, 0, "500: Internal Server Error"), SendUnclear),
        (No(502, 0, "502: Bad Gateway"), SendUnclear),
    ],
)
async def test_every_refusal_means_something(server: Server, world: World, no: No, error: type[PlatformError]) -> None:
    world.refuses.append((SEND, no))
    with pytest.raises(PlatformError) as raised:
        await send(server, TO_ROOM)
    assert type(raised.value) is error
    assert len([call for call in world.calls if call[1].endswith("/messages")]) == 1, "the gateway repeats, not we"
    if isinstance(raised.value, PlatformBusy):
        assert raised.value.after == 3.5


async def test_ids_of_others_become_no_paths(server: Server, world: World) -> None:
    for bad in ("../users/@me", "", "5\n", "٥"):
        with pytest.raises(SendRefused):
            await send(server, replace(TO_ROOM, chat_id=bad))
        with pytest.raises(SendRefused):
            await send(server, replace(TO_ROOM, thread_id=bad or "x"))
    assert not [call for call in world.calls if call[0] == "POST"]


async def test_nothing_was_sent_without_a_connection(server: Server) -> None:
    adapter = adapter_of(server, api_url="http://127.0.0.1:1")
    with pytest.raises(PlatformDown):
        await adapter.send(TO_ROOM, idempotency_key="k")


# Buttons and commands


async def test_presses_and_commands_are_confirmed_and_come_once(server: Server, world: World) -> None:
    recorder, adapter = Recorder(), adapter_of(server)
    many = tuple(Choice(f"Choice {number}" * 20, f"/pick {number}") for number in range(7))
    async with running(adapter, recorder):
        await world.begun.wait()
        await adapter.send(replace(TO_ROOM, choices=(*many, Choice("too long", "x" * 101))), idempotency_key="1")
        pressed = world.press(ALICE, world.sent[0], "/pick 6")
        world.command("700", ALICE, "model", "openai:gpt")
        world.command(THREAD, ALICE, "status")
        world.interacts(ROOM, ALICE, 2, {"name": "Report", "type": 3})
        world.emit("INTERACTION_CREATE", pressed)
        await recorder.has(3)
        await until(lambda: len(world.confirmed) == 3)
    assert [len(row["components"]) for row in world.sent[0]["components"]] == [5, 2]
    assert [(each.text, each.source.chat_id, each.source.thread_id) for each in recorder.received[:3]] == [
        ("/pick 6", ROOM, None),
        ("/model openai:gpt", "700", None),
        ("/status", ROOM, THREAD),
    ]
    assert all(each.mentions_us and each.labels.user == Label("alice") for each in recorder.received)
    assert [answer["type"] for _, answer in world.confirmed] == [6, 4, 4]
    assert world.confirmed[1][1]["data"]["flags"] == 64, "only the sender sees it"


async def test_the_menu_has_an_argument_for_each_command(server: Server, world: World) -> None:
    await adapter_of(server).show_menu([MenuCommand(name="new", help="start anew " * 20)])
    (shown,) = world.commands
    assert (shown["name"], len(shown["description"]) <= 100, shown["options"][0]["required"]) == ("new", True, False)


# Files


@pytest.fixture
def picture(tmp_path: Path) -> tuple[Outbound, Path]:
    (content := tmp_path / "x").write_bytes(b"\x89PNG")
    return replace(TO_ROOM, text="**look**", file=Attachment(Label('a "b".png'), "image/png", 4)), content


async def test_a_file_goes_with_its_text_into_its_thread(
    server: Server, world: World, picture: tuple[Outbound, Path]
) -> None:
    outbound, content = picture
    await adapter_of(server).send_file(replace(outbound, thread_id=THREAD), content, idempotency_key="1")
    assert [(each["channel_id"], each["content"]) for each in world.sent] == [(THREAD, "**look**")]
    assert world.uploads == [('a "b".png', b"\x89PNG")]


@pytest.mark.parametrize("no", [No(403, 50_013, "Missing Permissions"), No(413, 40_005, "Request entity too large")])
async def test_a_forbidden_file_does_not_close_the_chat(
    server: Server, world: World, picture: tuple[Outbound, Path], no: No
) -> None:
    world.refuses.append((SEND, no))
    with pytest.raises(SendRefused) as raised:
        await adapter_of(server).send_file(*picture, idempotency_key="1")
    assert not isinstance(raised.value, TargetGone)


async def test_a_file_that_is_gone_is_refused_and_one_that_is_late_asked_for_again(
    server: Server, world: World
) -> None:
    adapter = adapter_of(server)
    about = {"id": "41", "filename": "a", "size": 1, "url": f"{server.url}/cdn/41"}
    said = world.says(ROOM, ALICE, "", attachments=[about])
    late = Attachment(Label("a"), handle=f"{ROOM}/{said['id']}/41")
    gone = [late._replace(handle=handle) for handle in (f"{ROOM}/{said['id']}/42", f"{ROOM}/1/41", "../../x/1", "")]
    for file in (late, *gone):
        with pytest.raises(SendRefused):
            _ = [chunk async for chunk in adapter.fetch(file)]
    world.trouble = No(503, 0, "503: Service Unavailable")
    with pytest.raises(PlatformDown):
        _ = [chunk async for chunk in adapter.fetch(late)]


# The check


async def test_the_check_names_the_bot_or_says_what_to_do(server: Server, world: World) -> None:
    adapter = adapter_of(server)
    assert await adapter.check() == "@helper"
    world.flags = 0
    with pytest.raises(PlatformRefused, match="Message Content Intent"):
        await adapter.check()
    with pytest.raises(PlatformRefused, match="Correct api_url"):
        await adapter_of(server, api_url=f"{server.url}/api/v10/v9").check()
    with pytest.raises(PlatformRefused, match="Reset Token"):
        await adapter_of(server, token="a.b.c").check()  # noqa: S106
