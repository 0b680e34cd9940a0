"""The gateway as a whole, talked to from terminals."""

import asyncio
import gc
import os
import socket
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from palaver.config.model import Config
from palaver.db.postgres import PostgresDatabase
from palaver.db.sqlite import SqliteDatabase
from palaver.db.transaction import Row, Statements, transaction
from palaver.gateway.gateway import GC_THRESHOLD, Gateway
from palaver.gateway.terminal import terminal_socket
from palaver.model.access import Effect
from palaver.model.errors import StoreInUse, StoreUnavailable
from palaver.model.redact import redact
from palaver.platforms.terminal.client import GatewayFailing
from palaver.platforms.terminal.wire import RecapLine
from palaver.settings.agents import EchoAgentConfig
from palaver.settings.limits import LimitsConfig
from palaver.settings.quotas import GrantConfig
from palaver.store.opening import open_store
from tests.engine.gateway import until
from tests.platforms.terminal.people import Person
from tests.store.conftest import fresh_store


@pytest.fixture
def config(tmp_path: Path, store_url: str) -> Config:
    return Config(data_dir=tmp_path, store=store_url)


PATIENCE = 180.0


@asynccontextmanager
async def serving(config: Config) -> AsyncGenerator[Gateway]:
    """It ends in good order."""
    gateway = Gateway(config)
    serving = asyncio.create_task(gateway.serve())
    try:
        yield gateway
    finally:
        gateway.stop()
        async with asyncio.timeout(PATIENCE):
            assert await serving


def person(config: Config, chat: str = "main") -> Person:
    return Person(terminal_socket(config), chat)


@transaction
def _states() -> Statements[list[Row]]:
    return (yield "SELECT state FROM turns", ())


async def has_turn(config: Config, state: str) -> bool:
    async with await open_store(config.store) as store:
        return await store.read(_states()) == [(state,)]


async def test_what_is_said_is_answered_and_shown_again_to_newcomers(config: Config) -> None:
    async with serving(config):
        alice = person(config)
        async with alice.present() as paper:
            assert {"back", "help"} <= {command.name for command in paper.welcomes[0].commands}
            assert paper.welcomes[0].recap == ()
            assert (await alice.say("**hello**")).refused is None
            assert paper.texts == ["You said: **hello**"]
    async with serving(config), person(config).present() as paper:
        mine, answer = paper.welcomes[0].recap
        assert mine == RecapLine(by_person=True, text="**hello**")
        assert answer == RecapLine(by_person=False, text="You said: hello")
        assert paper.texts == []
    async with serving(config), person(config, "work").present() as paper:
        assert paper.welcomes[0].recap == ()


async def test_what_was_never_shown_is_shown_and_not_told_as_if_it_had_been(config: Config) -> None:
    async with serving(config):
        leaving = person(config)
        async with leaving.present():
            leaving.says("!slow 1 hello", "alice")
            await until(lambda: has_turn(config, "running"))
        await until(lambda: has_turn(config, "done"))
        async with person(config).present() as paper:
            await paper.until(lambda: bool(paper.texts))
            assert paper.welcomes[0].recap == (RecapLine(by_person=True, text="!slow 1 hello"),)
            assert paper.texts == ["You said: hello"]


async def test_an_answer_grows_in_the_terminal(config: Config) -> None:
    choice = EchoAgentConfig(streams=True, delay=timedelta(milliseconds=150))
    async with serving(config.model_copy(update={"agent": choice})):
        alice = person(config)
        async with alice.present() as paper:
            await alice.say("one two three")
    growing = [text for _, text, grows in paper.states if grows]
    assert growing
    assert all("You said: one two three".startswith(text) for text in growing)
    assert paper.texts == ["You said: one two three"]
    assert paper.states[-1][1:] == ("You said: one two three", False)


async def test_someone_who_waits_for_permission_does_not_wait_for_an_answer(config: Config) -> None:
    async with serving(config):
        alice = person(config)
        async with alice.present() as paper:
            async with asyncio.timeout(60):
                await alice.say("!approve this")
                await alice.say("and then?")
            assert paper.texts == [
                "May I use the echo tool for: this\nReply /approve or /deny.",
                "I withdrew my question, and nothing was approved. I am answering your message now.",
                "You said: and then?",
            ]


@pytest.mark.drops_transactions
async def test_a_waiting_sender_gets_a_notice_while_nothing_can_be_written(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = asyncio.Event()

    @transaction
    def begin(*_: object, **__: object) -> Statements[None]:
        yield from ()
        begun.set()
        raise StoreUnavailable("its disk is full")

    monkeypatch.setattr("palaver.store.queue.turns.begin", begin)
    for database in (SqliteDatabase, PostgresDatabase):
        transact = database.transact

        async def write(self: Any, work: Any, *, transact: Any = transact) -> Any:
            if begun.is_set():
                raise StoreUnavailable("its disk is full")
            return await transact(self, work)

        monkeypatch.setattr(database, "transact", write)
    monkeypatch.setattr("palaver.gateway.terminal.WRITE_REFUSAL_SECONDS", 0.1)
    async with serving(config), asyncio.timeout(60):
        alice = person(config)
        alice.say("hello")
        with pytest.raises(GatewayFailing) as given_up:
            await alice.run()
    assert given_up.value.passes


async def test_options_change_while_the_gateway_runs(config: Config) -> None:
    async with serving(config) as gateway:
        alice = person(config)
        async with alice.present():
            assert (await alice.say("hello")).refused is None
            block = GrantConfig(effect=Effect.BLOCK, platform="terminal")
            gateway.reload(config.model_copy(update={"grants": (block,)}))
            assert (await alice.say("hello")).refused == "a grant blocks this sender"


async def test_the_gateways_own_keys_are_not_stored_also_after_a_reload(config: Config) -> None:
    first, second, header = "Zwiebelkuchen-im-Ofen", "Pflaumenkuchen", "Apfelkuchen"
    account = {"webhook": {"accounts": {"ci": {"secret": first, "scheme": "github", "url": "http://127.0.0.1:9"}}}}
    server = {"url": "http://127.0.0.1:9/mcp", "headers": {"Authorization": f"Bearer {header}", "Accept": "anything"}}
    other = {"work": {"agent": {"name": "model", "model": "openai:gpt-5", "key": second}}}
    settings = {"data_dir": config.data_dir, "store": config.store, "platforms": account}
    async with serving(Config.model_validate(settings)) as gateway:
        alice = person(config)
        async with alice.present():
            await alice.say(f"{first} and {second}, anything")
            gateway.reload(Config.model_validate({**settings, "profiles": other, "tools": {"servers": {"m": server}}}))
            await alice.say(f"{first}, {second} and {header}, anything")
        async with person(config).present() as paper:
            said = [line.text for line in paper.welcomes[0].recap]
    marker = "[redacted: key of this gateway]"
    before, after = f"{marker} and {second}, anything", f"{marker}, {marker} and {marker}, anything"
    assert said == [before, f"You said: {before}", after, f"You said: {after}"]
    assert redact(first) == first


async def test_one_gateway_owns_a_file(tmp_path: Path) -> None:
    config = Config(data_dir=tmp_path, store=str(tmp_path / "p.db"))
    async with serving(config):
        async with person(config).present():
            pass
        with pytest.raises(StoreInUse, match=f"pid {os.getpid()}"):
            await Gateway(config).serve()


async def test_a_gateway_that_stops_hands_its_accounts_over_at_once(tmp_path: Path, postgres_server: str) -> None:
    config = Config(
        data_dir=tmp_path, store=await fresh_store(postgres_server), limits=LimitsConfig(lease=timedelta(minutes=10))
    )
    async with AsyncExitStack() as stack:
        async with serving(config), person(config).present():
            await stack.enter_async_context(serving(config))
            await asyncio.sleep(1)  # the second one waits
        alice = person(config)
        async with asyncio.timeout(60), alice.present() as paper:
            await alice.say("hello")
            assert paper.texts == ["You said: hello"]


async def test_two_stores_in_one_folder_have_two_sockets(tmp_path: Path) -> None:
    one, two = (Config(data_dir=tmp_path, store=str(tmp_path / name)) for name in ("1.db", "2.db"))
    async with serving(one), serving(two):
        alice, bob = person(one), person(two)
        async with alice.present() as paper, bob.present() as other:
            await alice.say("hello")
            assert (paper.texts, other.texts) == (["You said: hello"], [])


async def test_rings_of_objects_are_looked_for_less_often_than_python_would(config: Config) -> None:
    gc.set_threshold(700)
    async with serving(config), person(config).present():
        assert gc.get_threshold()[0] == GC_THRESHOLD > 700


async def test_the_service_manager_hears_that_it_is_ready_alive_and_stopping(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = tmp_path / "notify"
    monkeypatch.setenv("NOTIFY_SOCKET", str(address))
    monkeypatch.setenv("WATCHDOG_USEC", "30000")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as manager:
        manager.bind(str(address))
        loop = asyncio.get_running_loop()

        async def hear_the_end() -> None:
            while await loop.sock_recv(manager, 99) != b"STOPPING=1":
                pass

        async with serving(config):
            heard = [await loop.sock_recv(manager, 99) for _ in range(4)]
            ending = asyncio.create_task(hear_the_end())  # what nobody reads is soon dropped
        assert heard == [b"READY=1", *[b"WATCHDOG=1"] * 3]
        await asyncio.wait_for(ending, 60)
    async with serving(config):
        """A manager that does not listen changes nothing."""
