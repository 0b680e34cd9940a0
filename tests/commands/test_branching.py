"""/branch as a reply: from the message that is answered, also where it grew, was summarised, or came from a branch."""

import pytest

from palaver.agents.echo import EchoAgent
from palaver.model.transcript import Role
from palaver.protocols.adapter import Limits
from palaver.testkit.chat import Chat
from palaver.testkit.updates import Person
from tests.engine.agents import Condensing
from tests.engine.gateway import Bench, running

LONG = "word " * 50
NOT_PART = "not part of this conversation"


async def _talk(here: Bench, chat: Chat, person: Person, *texts: str) -> None:
    for text in texts:
        await chat.say(person, text)
        await here.settled()


async def _said(here: Bench) -> list[str]:
    """What people have said in the newest session, each by its first word."""
    return [entry.text.split()[0] for entry in await here.entries() if entry.role is Role.USER]


async def test_an_answer_that_grew_is_branched_from_also_out_of_a_branch(store_url: str) -> None:
    agent, limits = EchoAgent(streams=True, delay=0.001), Limits(draft_interval=0.0)
    async with running(store_url, agent=agent, limits=limits) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await _talk(here, chat, alice, "one two three four", "two", "three")
        first, second, _ = chat.shown
        await chat.say(alice, "/branch Second", reply_to=second.id)
        await chat.hears("This is “Second”")
        assert await _said(here) == ["one", "two"]
        await chat.say(alice, "/branch First", reply_to=first.id)
        await chat.hears("This is “First”, a branch of “Second”")
        assert (await here.texts())[-2:] == ["one two three four", first.text]
        assert await _said(here) == ["one"]


async def test_what_was_summarised_is_branched_from_word_for_word(store_url: str) -> None:
    agent = Condensing()
    agent.go.set()
    async with running(store_url, agent=agent) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await _talk(here, chat, alice, *(f"{topic} {LONG}" for topic in ("one", "two", "three", "four")), "/compress")
        await chat.hears("Summarised")
        await chat.say(alice, "/branch", reply_to=chat.said[0].id)
        await chat.hears("a branch of")
        assert await _said(here) == ["one"]
        assert Role.SUMMARY not in {entry.role for entry in await here.entries()}


@pytest.mark.parametrize("number", ["999", "1\x00", "' OR 1=1", "x" * 10_000, "\ud83d"])
async def test_what_is_no_message_of_the_conversation_changes_nothing(store_url: str, number: str) -> None:
    async with running(store_url) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await _talk(here, chat, alice, "one")
        await chat.say(alice, "/branch", reply_to=number)
        await chat.hears(NOT_PART)
        assert await here.rows("SELECT count(*) FROM sessions") == [(1,)]


async def test_the_number_counts_more_than_the_reply(store_url: str) -> None:
    async with running(store_url) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await _talk(here, chat, alice, "one", "two", "three")
        await chat.say(alice, "/branch --at 1", reply_to=chat.said[0].id)
        await chat.hears("a branch of")
        assert await _said(here) == ["one", "two"]
