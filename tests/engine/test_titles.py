"""A new conversation is named by its agent, beside the answers; anyone who names it by hand is right."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from palaver.commands.trace_steps import trace_steps
from palaver.model.session import Principal
from palaver.model.turn import Usage
from palaver.protocols.agent import Excerpt, GeneratedText
from palaver.store.people import usage
from palaver.store.status.trace import find_traces
from palaver.testkit.chat import Chat
from palaver.testkit.platform import LoopClock
from palaver.testkit.updates import Person
from tests.engine.agents import Condensing
from tests.engine.gateway import Bench, running, until


class Naming(Condensing):
    """Gives titles as the test has written them down."""

    titles: tuple[str | None, ...] = ("Holiday plans",)
    asked: int = 0
    waits: asyncio.Event | None = None

    async def title(self, passage: Excerpt) -> GeneratedText:
        self.passages.append(passage)
        self.asked += 1
        if self.waits:
            await self.waits.wait()
        title = self.titles[min(self.asked, len(self.titles)) - 1]
        if title is None:
            raise ValueError("the words of somebody")
        return GeneratedText(text=title, usage=Usage(input_tokens=10, output_tokens=1, cost_micros=100))


async def talk(chat: Chat, person: Person, *topics: str) -> None:
    for topic in topics:
        await chat.say(person, topic)
        await chat.hears(f"answer to: {topic}")


async def titles(here: Bench) -> list[str | None]:
    return [row[0] for row in await here.rows("SELECT title FROM sessions ORDER BY no")]


async def test_the_first_exchange_gives_a_title_that_nobody_else_has(store_url: str) -> None:
    agent = Naming()
    async with running(store_url, agent=agent) as here:
        alice, bob = here.world.person("alice"), here.world.person("bob")
        chat, other = here.world.dm(alice), here.world.dm(bob)
        await talk(chat, alice, "where to go?")
        assert [message.text for message in agent.passages[0].messages][-1] == "answer to: where to go?"
        await until(lambda: _are(here, "Holiday plans"))
        for table, used in (("sessions", (11, 2)), ("turns", (1, 1))):
            found = await here.rows(f"SELECT input_tokens, output_tokens FROM {table}")  # noqa: S608
            assert found == [used], "an answer costs what it costs, whatever else is made of it"
        spent = await here.store.read(usage.total(datetime(2000, 1, 1, tzinfo=UTC), ["fake:p1"]))
        assert (spent.input_tokens, spent.output_tokens) == (11, 2)
        (told,) = await here.store.read(find_traces("turn:1", Principal.operator()))
        steps = [step.sentence for step in trace_steps(told, LoopClock().now())]
        assert "generated a title, which used 10 tokens in, 1 out, cost 0.0001" in steps
        await chat.say(alice, "/new")
        await talk(chat, alice, "and again?")
        await until(lambda: _are(here, "Holiday plans", "Holiday plans #2"))
        await talk(other, bob, "me too")
        await until(lambda: _are(here, "Holiday plans", "Holiday plans #2", "Holiday plans"))


async def _are(here: Bench, *wanted: str | None) -> bool:
    return await titles(here) == list(wanted)


async def test_a_glimpse_is_enough_for_a_title(tmp_path: Path) -> None:
    agent = Naming()
    async with running(f"{tmp_path}/store.db", agent=agent) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "why? " * 20_000)
        await until(lambda: _are(here, "Holiday plans"))
        assert sum(len(message.text) for message in agent.passages[0].messages) < 5_000


async def test_one_that_was_given_by_hand_stays(tmp_path: Path) -> None:
    agent = Naming()
    agent.waits = asyncio.Event()
    async with running(tmp_path / "p.db", agent=agent) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "/new My own")
        await talk(chat, alice, "one")
        assert not agent.asked
        await chat.say(alice, "/new")
        await talk(chat, alice, "two")
        await until(lambda: agent.asked == 1)
        session = (await here.rows("SELECT id FROM sessions ORDER BY no DESC LIMIT 1"))[0][0]
        await here.store.transact(here.store.titles.suggest_title(session, "By hand"))
        agent.waits.set()
        await until(lambda: _is_counted(here))
        assert await titles(here) == ["My own", "By hand"]


async def _is_counted(here: Bench) -> bool:
    return (await here.rows("SELECT input_tokens FROM sessions ORDER BY no DESC LIMIT 1")) == [(11,)]


async def test_nobody_waits_for_a_title(tmp_path: Path) -> None:
    agent = Naming()
    agent.waits = asyncio.Event()
    async with running(tmp_path / "p.db", agent=agent) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await talk(chat, alice, "one", "two", "three")
        assert await titles(here) == [None]


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ((None, None, "**Third** [time](https://a.b) lucky"), "Third time lucky"),
        ((None, None, None, "too late"), None),
        (("", "\u200b\u202e", " \n"), None),
        (("Plans\n\u202e\u200bfor\x00 May " + "x" * 1_000_000,), "Plans for May " + "x" * 85 + "…"),
    ],
)
async def test_what_is_no_title_harms_nothing(tmp_path: Path, given: tuple[str | None, ...], taken: str | None) -> None:
    agent = Naming()
    agent.titles = given
    async with running(tmp_path / "p.db", agent=agent) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await talk(chat, alice, "one", "two", "three", "four")
        await until(lambda: _are(here, taken))
        assert agent.asked <= 3


async def test_shutting_down_waits_a_moment_for_a_title_and_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Naming()
    agent.waits = asyncio.Event()
    async with running(tmp_path / "p.db", agent=agent) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await talk(chat, alice, "one")
        draining = asyncio.create_task(here.engine.drain())
        asyncio.get_running_loop().call_later(0.05, agent.waits.set)
        await draining
        assert await titles(here) == ["Holiday plans"]
    monkeypatch.setattr("palaver.engine.turns.summaries.TITLE_DRAIN_SECONDS", 0.05)
    agent.waits.clear()
    async with running(tmp_path / "q.db", agent=agent) as here:
        bob = here.world.person("bob")
        await talk(here.world.dm(bob), bob, "one")
        await here.engine.drain()
        assert await titles(here) == [None]


async def test_titles_can_be_switched_off(tmp_path: Path) -> None:
    agent = Naming()
    async with running(tmp_path / "p.db", agent=agent, titles=False) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await talk(chat, alice, "one", "two")
        assert not agent.asked


async def test_a_title_goes_with_what_it_was_made_from(store_url: str) -> None:
    """And comes back with it, unless there is another by then; one that somebody gave stays."""
    agent = Naming()
    agent.titles = ("Holiday plans", "Dinner", "Tea")
    async with running(store_url, agent=agent) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await talk(chat, alice, "where to go?")
        await until(lambda: _are(here, "Holiday plans"))
        await chat.say(alice, "/undo")
        await until(lambda: _are(here, None))
        await chat.say(alice, "/sessions")
        await chat.say(alice, "/search holiday")
        assert "Holiday" not in (await chat.hears("othing")).text
        await chat.say(alice, "/redo")
        await until(lambda: _are(here, "Holiday plans"))
        await talk(chat, alice, "and then?")
        await chat.say(alice, "/undo")
        await chat.hears("Undid")
        assert await titles(here) == ["Holiday plans"], "it was made before that"
        await chat.say(alice, "/undo")
        await until(lambda: _are(here, None))
        await talk(chat, alice, "what to cook?")
        await until(lambda: _are(here, "Dinner"))
        await chat.say(alice, "/undo")
        await until(lambda: _are(here, None))
        await chat.say(alice, "/title My own")
        await until(lambda: _are(here, "My own"))
        await chat.say(alice, "/redo")
        await talk(chat, alice, "go on")
        await chat.say(alice, "/undo 9")
        await chat.hears("Undid")
        assert await titles(here) == ["My own"]


async def test_a_title_that_comes_after_an_undo_is_not_taken(tmp_path: Path) -> None:
    agent = Naming()
    agent.waits = asyncio.Event()
    async with running(tmp_path / "p.db", agent=agent) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await talk(chat, alice, "one")
        await until(lambda: agent.asked == 1)
        await chat.say(alice, "/undo")
        await chat.hears("Undid")
        agent.waits.set()
        await until(lambda: _is_counted(here))
        assert await titles(here) == [None]
