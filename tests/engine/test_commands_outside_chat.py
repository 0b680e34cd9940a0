"""Commands from beside the chat do the same as those that are said in it, and nobody comes to take part by them."""

from pathlib import Path

import pytest

from palaver.model.access import AccessRole, Effect, Grant
from palaver.model.errors import BadArgument, NotAllowed, NotFound, SessionBusy, UnknownCommand
from palaver.model.session import Principal
from palaver.protocols.hooks import EventKind
from palaver.testkit.chat import Chat
from tests.engine.agents import Slow
from tests.engine.gateway import OPERATOR, Bench, running, until
from tests.store.world import NOON

GUEST = AccessRole.GUEST
GRANTS = (Grant(platform="fake", role=GUEST),)


async def sessions(here: Bench) -> list[str]:
    return [row[0] for row in await here.rows("SELECT id FROM sessions ORDER BY no")]


async def test_the_owner_undoes_branches_and_goes_back_in_a_conversation_of_somebody_else(store_url: str) -> None:
    async with running(store_url) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        for text in ("one", "two"):
            await chat.say(alice, text)
            await chat.hears(f"You said: {text}")
        await here.settled()
        (session,) = await sessions(here)
        assert "Undid “two”" in await here.engine.run_command("/undo", session, OPERATOR)
        assert (await here.texts(session))[-2:] == ["one", "You said: one"]
        assert "Restored" in await here.engine.run_command("/redo", session, OPERATOR)
        assert "a branch of" in await here.engine.run_command("/branch Idea", session, OPERATOR)
        child = (await sessions(here))[1]
        with pytest.raises(NotFound, match="open conversation"):
            await here.engine.run_command("/undo", session, OPERATOR)
        assert [each.kind for each in here.happened][-2:] == [EventKind.SESSION_ENDED, EventKind.SESSION_STARTED]
        await here.engine.run_command("/back", child, OPERATOR)
        await chat.say(alice, "three")
        await chat.hears("You said: three")
        assert (await here.texts(session))[-1] == "You said: three"
        # Nobody but her takes part in either, and no word of it went into the chat.
        assert len({row[0] for row in await here.rows("SELECT identity FROM participants")}) == 1
        assert not any("Undid" in each.text for each in chat.shown)


async def _that_asks(here: Bench) -> tuple[str, Chat]:
    """A session whose turn waits for permission, and its chat."""
    alice = here.world.person("alice")
    chat = here.world.dm(alice)
    await chat.say(alice, "!approve it")
    await chat.hears("Reply /approve")
    (session,) = await sessions(here)
    return session, chat


async def test_only_those_who_see_a_session_and_have_the_role_command_there(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db") as here:
        session, chat = await _that_asks(here)
        mallory = Principal(identities=frozenset({"fake:mallory"}), speaks_as="fake:mallory")
        with pytest.raises(NotFound):
            await here.engine.run_command("/approve", session, mallory)
        with pytest.raises(UnknownCommand):
            await here.engine.run_command("approve", session, OPERATOR)
        assert await here.engine.run_command("/approve", session, OPERATOR) == "Approved."
        await chat.hears("You said: it")


async def test_each_retry_is_answered_and_gives_nobody_the_rights_of_its_sender(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db") as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "one")
        for times in (1, 2):
            await here.settled()
            current = (await sessions(here))[-1]
            assert "Answering again" in await here.engine.run_command("/retry", current, OPERATOR)
            await here.settled()
            said = await here.rows("SELECT turn_no FROM inbox WHERE retried_in > 0 AND turn_no > 0 ORDER BY no")
            assert len({turn for (turn,) in said}) == times
        (trace,) = await here.store.read(here.store.trace.find_traces(f"turn:{said[-1][0]}", OPERATOR))
        assert [arrival.role for arrival in trace.messages] == [GUEST]


async def test_nobody_leaves_a_conversation_in_the_middle_of_a_turn(store_url: str) -> None:
    agent = Slow()
    async with running(store_url, agent=agent) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        for text in ("/new", "/new", "one"):
            await chat.say(alice, text)
        await until(lambda: bool(agent.requests))
        session = (await sessions(here))[-1]
        for command in ("/retry", "/new", "/branch Idea", "/back", "/undo"):
            with pytest.raises(
                SessionBusy, match=r"Try again when session .* has answered: it is in the middle of a turn"
            ):
                await here.engine.run_command(command, session, OPERATOR)
        assert "One" in await here.engine.run_command("/title One", session, OPERATOR)
        agent.go.set()
        await chat.hears("answer to: one")
        await here.settled()
        assert len(agent.requests) == 1
        assert "Answering again" in await here.engine.run_command("/retry", session, OPERATOR)
        await until(lambda: len(agent.requests) == 2)


async def test_a_conversation_that_asks_for_permission_can_be_left(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db") as here:
        session, _ = await _that_asks(here)
        assert "Started a new conversation." in await here.engine.run_command("/new", session, OPERATOR)
        assert await here.rows("SELECT state FROM turns") == [("failed",)]


@pytest.mark.parametrize(("name", "is_let_in"), [("member", True), ("guest", False), ("blocked", False)])
async def test_a_command_from_beside_takes_the_role_that_it_takes_in_the_chat(
    tmp_path: Path, name: str, *, is_let_in: bool
) -> None:
    async with running(tmp_path / "p.db", grants=GRANTS) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "one")
        await here.settled()
        (session,) = await sessions(here)
        (row,) = await here.rows("SELECT identity FROM participants")
        identity = str(row[0])
        user = identity.partition(":")[2]
        changed = {
            "member": Grant(platform="fake", user_id=user, role=AccessRole.MEMBER),
            "guest": Grant(platform="fake", user_id="somebody else", role=AccessRole.MEMBER),
            "blocked": Grant(platform="fake", user_id=user, effect=Effect.BLOCK),
        }[name]
        await here.store.transact(here.store.grants.add(changed, NOON, by="test"))
        principal = await here.store.read(here.store.people.principal_of(identity))
        if is_let_in:
            assert "Undid" in await here.engine.run_command("/undo", session, principal)
        else:
            with pytest.raises(NotAllowed):
                await here.engine.run_command("/undo", session, principal)


@pytest.mark.parametrize("text", ["/queue later", "/steer left", "/link", "/compress", "/export", "/forget --yes"])
async def test_what_only_somebody_in_the_chat_can_say_is_refused_in_words(tmp_path: Path, text: str) -> None:
    async with running(tmp_path / "p.db") as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "one")
        await here.settled()
        (session,) = await sessions(here)
        with pytest.raises(BadArgument, match="works only in the chat itself"):
            await here.engine.run_command(text, session, OPERATOR)
        assert await here.rows("SELECT 1 FROM link_offers") == []
