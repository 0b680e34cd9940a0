"""Taken back, brought back, answered again, called something."""

from palaver.model.key import GroupScope, Scope, ScopedSetting
from palaver.model.transcript import Role
from tests.commands.talk import talking
from tests.engine.agents import Condensing

SHARED = ScopedSetting(default=Scope(group=GroupScope.SHARED))


async def test_undo_says_what_it_took_back_and_redo_returns_it(store_url: str) -> None:
    async with talking(store_url) as alice:
        for text in ("one", "two", "three"):
            await alice.say(text)
        before = await alice.view()
        assert await alice.ask("/undo") == "Undid “three” and everything after it. /redo brings it back."
        assert "three" not in await alice.texts()
        assert await alice.ask("/redo") == "Restored “three” and everything after it."
        assert await alice.view() == before
        assert await alice.ask("/redo") == "There is nothing to redo."


async def test_undo_takes_as_many_as_there_are(store_url: str) -> None:
    async with talking(store_url) as alice:
        assert await alice.ask("/undo") == "There is nothing to undo here."
        await alice.say("one")
        await alice.say("two")
        assert "Nothing to undo" in await alice.ask("/undo 0")
        told = await alice.ask("/undo 99999999999999999999")
        assert told.startswith("Undid 2 messages from “one” on, and everything after them. That was everything.")
        assert await alice.ask("/undo") == "There is nothing to undo here."
        assert "whole number" in await alice.ask("/undo -1")
        await alice.ask("/back")
        assert [text for text in await alice.texts() if text in {"one", "two"}] == ["one", "two"]


async def test_undo_gives_the_whole_text_back_to_edit(store_url: str) -> None:
    long = "Dear all,\n\n" + "please read this carefully. " * 10 + "\n```\ncode\n```\nBye"
    async with talking(store_url) as alice:
        for text in ("one", long, "three"):
            await alice.chat.say(alice.who, text)
            await alice.here.settled()
        told = await alice.ask("/undo 2")
        head, _, text = told.partition(" To edit and send again:\n\n")
        assert head.startswith("Undid 2 messages from “Dear all, please")
        assert head.endswith("/redo brings it back.")
        assert text == long


async def test_undo_past_a_summary_takes_the_summary_back_first(store_url: str) -> None:
    async with talking(store_url, agent=Condensing()) as alice:
        for text in ("one", "two", "three", "four"):
            await alice.say(f"{text} {'some words ' * 20}end")
        await alice.chat.say(alice.who, "/compress")
        await alice.chat.hears("Summarised 4 earlier messages.")
        await alice.here.settled()
        before = len(await alice.texts())
        told = await alice.ask("/undo 3")
        assert "Undid 3 messages from “two some" in told
        assert "The summary of earlier messages is undone too." in told
        assert "That was everything" not in told
        shown = "\n".join(await alice.texts())
        assert ("one some" in shown, "two some" in shown, "SUMMARY" in shown) == (True, False, False)
        assert "Restored" in await alice.ask("/redo")
        shown = "\n".join(await alice.texts())
        assert (len(await alice.texts()), "SUMMARY" in shown) == (before, True)
        assert "That was everything" in await alice.ask("/undo 9")
        assert not any("some words" in text for text in await alice.texts())


async def test_undo_past_the_summary_of_a_branch_hides_the_summary(store_url: str) -> None:
    async with talking(store_url, agent=Condensing()) as alice:
        for text in ("one", "two", "three"):
            await alice.say(f"{text} {'some words ' * 20}end")
        await alice.chat.say(alice.who, "/compress")
        await alice.chat.hears("Summarised 2 earlier messages.")
        await alice.here.settled()
        await alice.ask("/branch")
        assert any("SUMMARY" in text for text in await alice.texts())
        assert "That was everything" in await alice.ask("/undo 3")
        assert await alice.texts() == []
        await alice.ask("/redo")
        assert any("SUMMARY" in text for text in await alice.texts())


async def test_retry_answers_the_last_message_again_on_a_sibling(store_url: str) -> None:
    async with talking(store_url) as alice:
        await alice.say("one")
        await alice.say("two")
        first, before = await alice.session(), await alice.view()
        await alice.chat.say(alice.who, "/retry")
        await alice.chat.hears("Answering again: “two”. /back returns to the previous answer.")
        await alice.chat.hears("answer to: two", times=2)
        sibling = await alice.session()
        assert (sibling.id != first.id, sibling.parent) == (True, first.id)
        assert await alice.view() == before
        request = alice.agent.requests[-1]
        assert [message.text for message in request.messages if message.role is Role.USER][-1].endswith("⟧ two")
        assert (await alice.chat.hears("answer to: two", times=2)).reply_to == alice.chat.said[1].id
        assert "Undid the last" in await alice.ask("/back")
        assert ((await alice.session()).id, await alice.view()) == (first.id, before)


async def test_retry_again_and_again_keeps_the_message_once(store_url: str) -> None:
    async with talking(store_url) as alice:
        await alice.say("one")
        for times in (2, 3):
            await alice.chat.say(alice.who, "/retry")
            await alice.chat.hears("answer to: one", times=times)
            await alice.here.settled()
            assert (await alice.texts()).count("one") == 1


async def test_retry_where_nothing_was_said(store_url: str) -> None:
    async with talking(store_url) as alice:
        assert await alice.ask("/retry") == "There is no message to answer again here."
        await alice.ask("/new")
        assert await alice.ask("/retry") == "There is no message to answer again here."


async def test_retry_of_what_somebody_else_said_stays_their_word_without_ones_own_rights(store_url: str) -> None:
    async with talking(store_url, scopes=SHARED) as alice:
        group = alice.here.world.group("friends")
        here, bob = alice.within(group), alice.beside("bob", group)
        await bob.say("mine")
        await group.say(here.who, "/retry")
        await group.hears("answer to: mine", times=2)
        entry = next(each for each in await here.here.entries((await here.session()).id) if each.text == "mine")
        assert entry.sender
        assert entry.sender.name
        assert (entry.sender.id, entry.sender.name.plain()) == (bob.who.id, "bob")
        rows = await alice.here.rows("SELECT body FROM inbox WHERE retried_in > 0")
        assert b'"role":1' in bytes(rows[0][0]).replace(b" ", b"")


async def test_retry_carried_elsewhere_is_answered_where_it_is_asked(store_url: str) -> None:
    async with talking(store_url) as alice:
        await alice.ask("/new Trip")
        await alice.say("one")
        other = alice.elsewhere()
        assert "Trip" in await other.ask("/resume Trip")
        await other.chat.say(other.who, "/retry")
        await other.chat.hears("answer to: one")
        assert len([message for message in alice.chat.shown if "answer to" in message.text]) == 1


async def test_a_branch_continues_alone(store_url: str) -> None:
    async with talking(store_url) as alice:
        assert "No conversation is open" in await alice.ask("/branch")
        await alice.ask("/new Trip")
        await alice.say("one")
        await alice.say("two")
        before = await alice.texts()
        assert "This is “Trip #2”, a branch of “Trip”" in await alice.ask("/branch")
        assert await alice.texts() == before
        await alice.say("three")
        assert "This is “By sea”, a branch of “Trip #2”" in await alice.ask("/branch By sea --at 2")
        assert "two" not in await alice.texts()
        assert "one" in await alice.texts()
        assert "Undid the last branch" in await alice.ask("/back")
        assert (await alice.session()).title == "Trip #2"
        assert "three" in await alice.texts()
        assert "Undid the last branch" in await alice.ask("/back")
        assert (await alice.session()).title == "Trip"
        assert await alice.texts() == before
        await alice.ask("/branch From nothing --at 999")
        assert await alice.texts() == []


async def test_a_conversation_is_called_something(store_url: str) -> None:
    async with talking(store_url) as alice:
        assert "No conversation is open" in await alice.ask("/title")
        await alice.say("hello")
        await alice.ask("/title \u202eTrip\n to\u200b Rome")
        assert (
            await alice.ask("/title")
            == "This conversation is called “Trip to Rome”. /title Holiday plans gives it another title."
        )
        told = await alice.ask("/title Rome")
        assert told == "This conversation is now called “Rome”. It was called “Trip to Rome” before."
        await alice.ask("/new Rome")
        await alice.say("hello")
        assert "“Rome #2”" in await alice.ask("/title")
        assert "visible characters" in await alice.ask("/title \u200b")


async def test_someone_who_speaks_in_a_group_can_act_on_its_conversation(store_url: str) -> None:
    async with talking(store_url, scopes=SHARED) as alice:
        group = alice.here.world.group("friends")
        here, bob = alice.within(group), alice.beside("bob", group)
        await here.say("one")
        assert "“Plans”" in await bob.ask("/title Plans")
        assert "“one”" in await bob.ask("/undo")
        assert "Undid the last" in await bob.ask("/back")
        assert "a branch of “Plans”" in await bob.ask("/branch")
        assert "Undid the last branch" in await here.ask("/back")
        assert (await here.session()).title == "Plans"
