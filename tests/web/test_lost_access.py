"""A person who loses access reads nothing more, whichever key they hold and however it came about."""

import asyncio
import io
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, redirect_stdout
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from palaver.cli.main import main
from palaver.config.model import Config
from palaver.model.access import Effect, Grant
from palaver.model.source import Source
from palaver.protocols.clock import SystemClock
from palaver.settings.limits import LimitsConfig
from palaver.settings.quotas import GrantConfig
from palaver.store.opening import open_store
from palaver.store.store import Store
from palaver.web.caller import Caller
from palaver.web.event_hub import Hub
from palaver.web.sse import event_chunks
from palaver.web.tokens import Authenticator, issue_token
from tests.engine.gateway import until
from tests.store.world import NOON, OPERATOR, World, dm, group
from tests.web.conftest import Opened
from tests.web.test_api import program

SEVEN = Grant(platform="telegram", user_id="7")
ELSE = Grant(platform="telegram", user_id="8")


@pytest.fixture
def config(tmp_path: Path) -> Config:
    grants = (GrantConfig(platform="web", user_id="ann"), GrantConfig(platform="telegram", user_id="9"))
    limits = LimitsConfig(poll=timedelta(seconds=0.1))  # tests write beside the gateway and do not wake it
    return Config(data_dir=tmp_path, store=str(tmp_path / "palaver.db"), grants=grants, limits=limits)


async def give(store: Store, grant: Grant) -> int:
    return await store.transact(store.grants.add(grant, NOON, by="test"))


async def meet(world: World, *people: str) -> str:
    """Let people talk in one group conversation; return its session."""
    room = replace(group("7"), thread_id="5")
    found = [await spoken(world, f"hello from {user}", replace(room, user_id=user)) for user in people]
    return found[0]


async def spoken(world: World, text: str, source: Source) -> str:
    """Let the gateway that runs on the store answer a message; return its session."""
    number = await world.say(text, source)

    async def is_done() -> bool:
        return not await world.store.read(world.store.inbox.count_waiting()) and await session() is not None

    async def session() -> str | None:
        reply = await world.store.read(world.store.message_status.load_reply(number or 0, OPERATOR))
        return reply.turn.session if reply.turn else None

    await until(is_done)
    return await session() or ""


async def by_api(window: Opened, number: int) -> str:
    async with program(window) as owner:
        answer = await owner.delete(f"/grants/{number}")
        assert [key["kind"] for key in answer.json()["ended"]] == ["link", "login", "token"]
        return answer.text


async def by_a_block(window: Opened, _: int) -> str:
    async with program(window) as owner:
        answer = await owner.post("/grants", json={"to": "telegram:7", "block": True})
        assert answer.status_code == 201, answer.text
        return answer.text


async def on_the_dashboard(window: Opened, number: int) -> str:
    async with window.visit() as owner:
        return (await owner.post(f"/people/grants/{number}/remove", follow_redirects=True)).text


async def on_the_command_line(window: Opened, number: int) -> str:
    with redirect_stdout(io.StringIO()) as said:
        assert await asyncio.to_thread(main, ["grants", "remove", str(number), "--store", window.config.store]) == 0
    return said.getvalue()


@pytest.mark.parametrize("lose", [by_api, by_a_block, on_the_dashboard, on_the_command_line])
async def test_logins_and_tokens_end_with_the_access_of_their_person(
    window: Opened, lose: Callable[[Opened, int], Awaitable[str]]
) -> None:
    store, world = window.store, World(window.store, now=SystemClock().now())
    number = await give(store, SEVEN)
    await give(store, ELSE)
    session = await meet(world, "7", "8")
    path, link = f"/sessions/{session}/entries", await window.link("telegram:7")
    async with program(window, "telegram:7") as seven, program(window, "telegram:8") as eight:
        async with window.visit("telegram:7") as browser, stream(seven) as news, asyncio.timeout(60):
            assert (await seven.get(path)).status_code == (await browser.get(f"/sessions/{session}")).status_code == 200
            assert await anext(news)
            said = await lose(window, number)
            assert "test" in said, "the token is named"
            await meet(world, "8")
            async for line in news:
                assert "entries" not in line, "nothing new is told after access was lost"
            assert (await seven.get(path)).status_code == 401
            assert (await browser.get(f"/sessions/{session}")).status_code == 303, "the login has ended"
        assert "hello from 8" in (await eight.get(path)).text
        await give(store, SEVEN)
        assert (await seven.get(path)).status_code == 401, "who is let in again needs a new key"
    async with httpx.AsyncClient(timeout=60, base_url=window.url) as late:
        assert (await late.post("/login", data={"code": link.partition("#")[2]})).status_code == 401


@asynccontextmanager
async def stream(client: httpx.AsyncClient) -> AsyncGenerator[AsyncGenerator[str]]:
    async with client.stream("GET", "/events", timeout=60) as answer:
        assert answer.status_code == 200

        async def lines() -> AsyncGenerator[str]:
            async for line in answer.aiter_lines():
                yield line

        yield lines()


async def test_a_key_without_access_says_why_and_works_once_access_is_given(window: Opened) -> None:
    async with program(window, "telegram:7") as seven:
        refused = await seven.get("/sessions")
        assert (refused.status_code, "palaver grants add telegram:7" in refused.text) == (403, True)
        number = await give(window.store, SEVEN)
        assert (await seven.get("/sessions")).status_code == 200
        # What the configuration grants counts as well: nobody's key ends for a grant that they do not need.
        async with program(window, "telegram:9") as nine:
            more = await give(window.store, Grant(platform="telegram", user_id="9"))
            async with program(window) as owner:
                assert "ended" not in (await owner.delete(f"/grants/{more}")).json()
                assert (await nine.get("/sessions")).status_code == 200
                assert len((await owner.delete(f"/grants/{number}")).json()["ended"]) == 1


async def test_a_key_reads_only_the_chats_that_its_person_has_access_to_now(window: Opened) -> None:
    store, world = window.store, World(window.store, now=SystemClock().now())
    for person in (SEVEN, ELSE):
        await give(store, person)
    session = await meet(world, "7", "8")
    alone = await spoken(world, "mine", dm("7"))
    async with program(window, "telegram:7") as seven:
        for grant, readable in (
            (Grant(effect=Effect.BLOCK, platform="telegram", chat_id="-100", user_id="7"), {alone}),
            (Grant(effect=Effect.BLOCK, platform="telegram", chat_id="-200", user_id="7"), {alone, session}),
        ):
            number = await give(store, grant)
            listed = (await seven.get("/sessions")).json()["sessions"]
            assert {each["id"] for each in listed} == readable
            found = (await seven.get("/search", params={"q": "hello"})).json()["hits"]
            assert bool(found) == (session in readable)
            assert (await seven.get(f"/sessions/{session}")).status_code == (200 if session in readable else 404)
            await store.transact(store.grants.remove(number, NOON, by="test"))


async def test_open_streams_end_at_every_gateway(store_url: str) -> None:
    """The change comes from another gateway."""
    async with await open_store(store_url) as store:
        await give(store, ELSE)
        number = await give(store, SEVEN)
        now = SystemClock().now()
        auth = Authenticator(store=store, clock=SystemClock())
        _, key = await issue_token(store, now, name="t", identity="telegram:7")
        hub = Hub(store, alone=False)
        serving = asyncio.create_task(hub.serve())
        try:
            async with asyncio.timeout(60), aclosing(event_chunks(Caller(key=key), hub, auth, None, None)) as chunks:
                await anext(chunks)
                await store.transact(store.grants.remove(number, now, by="test"))
                async for chunk in chunks:
                    assert b"entries" not in chunk
        finally:
            serving.cancel()
