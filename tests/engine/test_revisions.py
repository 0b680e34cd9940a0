"""Messages that people change or delete later: by the policy of the chat, never twice, and never without a way back."""

from dataclasses import replace
from pathlib import Path

import pytest

from palaver.model.key import ScopedSetting
from palaver.model.revision import RevisionPolicy
from palaver.model.session import Principal
from palaver.testkit.chat import Chat
from palaver.testkit.faults import Faults
from palaver.testkit.platform import BOT, FakePlatform
from palaver.testkit.updates import Message, Person
from tests.engine.agents import Slow, noted
from tests.engine.gateway import Bench, running, until

RERUN = ScopedSetting(default=RevisionPolicy.RERUN)
OPERATOR = Principal.operator()


def ready() -> Slow:
    agent = Slow()
    agent.go.set()
    return agent


def place(here: Bench) -> tuple[Person, Chat]:
    alice = here.world.person("alice")
    return alice, here.world.dm(alice)


async def spoken(here: Bench) -> list[str]:
    """What people and the agent have said, as it is shown."""
    return [entry.text for entry in await here.entries() if entry.role in {"user", "assistant"}]


async def test_a_change_after_the_answer_is_reported_with_the_next_turn_and_makes_none_of_its_own(
    tmp_path: Path,
) -> None:
    agent = ready()
    async with running(tmp_path / "p.db", agent=agent) as here:
        alice, chat = place(here)
        said = await chat.say(alice, "meet at three")
        await chat.hears("answer to: meet at three")
        await chat.edit(alice, said, 'meet at "four"')
        await chat.say(alice, "agreed?")
        await chat.hears("answer to: agreed?")
        assert len(agent.requests) == 2
        assert 'instead of "meet at three" it now says "meet at \\"four\\""' in noted(agent.requests[1])


async def test_what_was_deleted_is_neither_shown_nor_found_but_stays_in_the_audit(tmp_path: Path) -> None:
    agent = ready()
    async with running(tmp_path / "p.db", agent=agent) as here:
        alice, chat = place(here)
        said = await chat.say(alice, "the canary sings")
        await chat.hears("answer to: the canary")
        await chat.delete(alice, said)
        await chat.say(alice, "hello")
        await chat.hears("answer to: hello")
        shown = [message.text for message in agent.requests[1].messages if message.role == "user"]
        assert "canary" not in "".join(shown)
        assert "the user deleted an earlier message" in "".join(shown)
        found = await here.store.search.find("sings", OPERATOR)
        assert "the canary sings" not in [hit.entry.text for hit in found if hit.entry]
        (session,) = (await here.rows("SELECT id FROM sessions"))[0]
        audit = await here.store.read(here.store.transcript.load_all(session, OPERATOR))
        assert "the canary sings" in [entry.text for entry in audit]
        await chat.say(alice, "/back")
        await chat.hears("Undid the last edit or deletion of a message.")
        assert "the canary sings" in await here.texts()


async def test_a_deletion_takes_the_notes_of_earlier_edits_along(tmp_path: Path) -> None:
    agent = ready()
    async with running(tmp_path / "p.db", agent=agent) as here:
        alice, chat = place(here)
        said = await chat.say(alice, "the canary sings")
        await chat.hears("answer to: the canary")
        said = await chat.edit(alice, said, "the canary hums")
        await chat.delete(alice, said)
        await chat.say(alice, "hello")
        await chat.hears("answer to: hello")
        shown = [message.text for message in agent.requests[1].messages if message.role == "user"]
        assert "canary" not in "".join(shown)
        assert "the user deleted an earlier message" in "".join(shown)
        await chat.say(alice, "/back")
        await chat.hears("Undid the last edit or deletion of a message.")
        assert "canary hums" in "".join(await here.texts())


async def test_where_it_is_to_be_answered_anew_the_conversation_goes_back_and_back_returns(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db", revisions=RERUN) as here:
        alice, chat = place(here)
        await chat.say(alice, "one")
        said = await chat.say(alice, "two")
        await chat.say(alice, "three")
        await chat.hears("You said: three")
        before = await here.entries()
        await chat.edit(alice, said, "zwei")
        shown = await chat.hears("You said: zwei")
        assert shown.reply_to == said.id
        await here.settled()
        assert await spoken(here) == ["one", "You said: one", "zwei", "You said: zwei"]
        await chat.say(alice, "/back")
        await chat.hears("Undid the last edit or deletion of a message.")
        assert await here.entries() == before


async def test_a_deletion_that_takes_something_along_is_said(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db", revisions=RERUN) as here:
        alice, chat = place(here)
        said = await chat.say(alice, "one")
        await chat.hears("You said: one")
        await chat.delete(alice, said)
        await chat.hears("You deleted a message, so I removed it and everything after it from this conversation.")
        assert await spoken(here) == []


async def test_a_deletion_before_its_message_deletes_it_where_only_what_names_the_bot_is_answered(
    tmp_path: Path,
) -> None:
    async with running(tmp_path / "p.db") as here:
        alice = here.world.person("alice")
        group = here.world.group("Dev", alice)
        said = Message(id="m1", author=alice.id, text="forget it", at=here.world.clock.now(), mentions=(BOT,))
        group.report(group, alice, replace(said, deleted=True, changed=said.at))
        group.report(group, alice, said)
        await group.say(alice, "hello", mentions=(BOT,))
        await group.hears("You said: hello")
        assert [message.text for message in group.shown] == ["You said: hello"]
        reason = "it was deleted before it arrived"
        assert await here.rows("SELECT version FROM inbox WHERE reason = ?", reason) == [("",)]


async def test_a_change_during_the_turn_comes_after_it(tmp_path: Path) -> None:
    agent = Slow()
    async with running(tmp_path / "p.db", agent=agent, revisions=RERUN) as here:
        alice, chat = place(here)
        said = await chat.say(alice, "one")
        await until(lambda: bool(agent.requests))
        await chat.edit(alice, said, "eins")
        agent.go.set()
        await chat.hears("answer to: eins")
        assert await spoken(here) == ["eins", "answer to: eins"]


async def test_a_change_gives_no_command(tmp_path: Path) -> None:
    agent = ready()
    async with running(tmp_path / "p.db", agent=agent, revisions=RERUN) as here:
        alice, chat = place(here)
        said = await chat.say(alice, "hello")
        await chat.hears("answer to: hello")
        command = await chat.say(alice, "/new")
        await chat.hears("Started a new conversation")
        await chat.edit(alice, said, "/new")
        await chat.edit(alice, command, "/new once more")
        await here.settled()
        assert len(await here.rows("SELECT 1 FROM sessions")) == 2
        assert await here.rows("SELECT count(*) FROM inbox WHERE version <> '' AND state = 'done'") == [(2,)]


@pytest.mark.parametrize("seed", range(4))
async def test_through_repetitions_and_reordering_the_last_words_count(tmp_path: Path, seed: int) -> None:
    world = FakePlatform(faults=Faults(duplicate=0.5, reorder=0.5, delay=0.01), seed=seed)
    async with running(tmp_path / "p.db", world, revisions=RERUN) as here:
        alice, chat = place(here)
        said = await chat.say(alice, "zero")
        for word in ("one", "two", "three"):
            said = await chat.edit(alice, said, word)
        await chat.hears("You said: three")
        await here.settled()
        assert await spoken(here) == ["three", "You said: three"]
