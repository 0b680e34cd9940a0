"""The owner is one person from the start, at the terminal and in the web window."""

import asyncio

from palaver.config.model import Config
from palaver.db.transaction import Statements, transaction
from palaver.gateway.terminal import terminal_socket
from palaver.protocols.clock import SystemClock
from palaver.store.opening import open_store
from tests.platforms.terminal.people import Person
from tests.web.conftest import Opened, opened

TERMINAL, WEB = "terminal:owner", "web:owner"


async def say(window: Opened, text: str, message: str) -> None:
    """Say something in the web chat, and wait until it is answered."""
    async with window.visit() as client:
        assert (await client.post("/chat/main", data={"text": text, "id": message})).status_code == 200
        async with asyncio.timeout(60):
            while f"You said: {text}" not in (await client.get("/chat/main")).text:  # noqa: ASYNC110 - as people do
                await asyncio.sleep(0.02)


async def ask(config: Config, *texts: str) -> list[str]:
    """Say something at a terminal; return everything that was shown."""
    owner = Person(terminal_socket(config))
    async with owner.present() as paper:
        for text in texts:
            await owner.say(text)
    return paper.texts


async def test_what_was_said_in_the_window_is_listed_and_resumed_at_the_terminal(config: Config) -> None:
    async with opened(config) as window:
        await say(window, "plant the tulips", "1")
        listed, resumed, answer, person = await ask(config, "/sessions", "/resume 1", "and the crocuses", "/whoami")
        assert "plant the tulips" in listed
        assert resumed.startswith("Resumed ")
        assert answer == "You said: and the crocuses"
        assert TERMINAL in person
        assert WEB in person
        async with window.visit() as client:
            await client.post("/chat/main", data={"text": "/sessions", "id": "2"})
            async with asyncio.timeout(60):
                while "and the crocuses" not in (await client.get("/chat/main")).text:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)


async def test_a_store_that_knows_them_apart_has_one_owner_and_an_unlink_stays(config: Config) -> None:
    now = SystemClock().now()
    async with await open_store(config.store) as store:
        for identity in (WEB, TERMINAL):
            await store.transact(store.people.person_of(identity, now))
    async with opened(config) as window:
        principal = await window.store.read(window.store.people.principal_of(WEB))
        assert principal.identities == {WEB, TERMINAL}
        assert "These are different people now" in (await ask(config, "/unlink"))[-1]
    async with opened(config) as window:
        principal = await window.store.read(window.store.people.principal_of(WEB))
        assert principal.identities == {WEB}


async def test_a_scope_per_person_continues_the_conversation_used_last(config: Config) -> None:
    async with opened(config) as window:
        await say(window, "plant the tulips", "1")
        await ask(config, "/unlink")
    async with await open_store(config.store) as store:
        await store.transact(_forget_links())
    config = Config.model_validate({**config.model_dump(), "scope": {"dm": "per-person"}})
    async with opened(config):
        assert "You are already in" in (await ask(config, "/sessions", "/resume 1"))[1]


@transaction
def _forget_links() -> Statements[None]:
    """Make it a store of before."""
    yield "DELETE FROM links", ()
