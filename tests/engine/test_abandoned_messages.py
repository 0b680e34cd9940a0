"""What was said before a command belongs to where it was said: it is answered there, or not at all, and people know."""

from pathlib import Path

import pytest

from palaver.model.access import AccessRole, Grant
from palaver.model.key import ScopedSetting
from palaver.model.turn import QuestionMode
from palaver.store.conversations.deletion import delete
from palaver.store.conversations.history import ABANDONED
from palaver.store.queue.commands import unanswered
from palaver.store.status.invariants import violations
from palaver.testkit.chat import Chat
from palaver.testkit.platform import LoopClock
from palaver.testkit.updates import Person
from tests.engine.gateway import OPERATOR, Bench, running, until
from tests.engine.places import between

ADMINS = (Grant(role=AccessRole.ADMIN),)
WAIT = ScopedSetting(default=QuestionMode.WAIT)


async def ask_first(here: Bench, chat: Chat, person: Person, *texts: str) -> None:
    """The agent asks, and nobody answers; what is queued then waits."""
    await chat.say(person, "!approve it")
    await chat.hears("May I")
    for text in texts:
        await chat.say(person, f"/queue {text}")
    await until(lambda: not here.world.unacknowledged())


async def outcomes(here: Bench) -> list[tuple[str, str | None]]:
    rows = await here.rows("SELECT state, reason FROM inbox WHERE turn_no IS NULL AND reason IS NOT NULL ORDER BY no")
    return [(state, reason) for state, reason in rows]


async def test_what_waited_when_a_fresh_conversation_began_is_not_answered_in_it(store_url: str) -> None:
    async with running(store_url, questions=WAIT) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await ask_first(here, chat, alice, "one", "two")
        await chat.say(alice, "/new")
        await chat.hears(unanswered(2))
        await chat.say(alice, "three")
        await chat.hears("You said: three")
        await here.settled()
        assert await outcomes(here) == [("failed", ABANDONED)] * 2
        first, second = await here.rows("SELECT id FROM sessions ORDER BY no")
        assert await here.texts(second[0]) == ["three", "You said: three"]
        assert await here.store.read(violations()) == []
        await here.store.transact(delete(first[0], OPERATOR, LoopClock().now()))
        assert await here.rows("SELECT length(body) FROM inbox WHERE state = 'failed' AND length(body) > 0") == []


@pytest.mark.parametrize("command", ["/back", "/resume First", "/branch", "/retry"])
async def test_no_matter_where_a_command_leads_what_was_said_before_it_stays_behind(
    tmp_path: Path, command: str
) -> None:
    async with running(tmp_path / "p.db", questions=WAIT) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        for text in ("/new First", "/new Second"):
            await chat.say(alice, text)
            await chat.hears(text.partition(" ")[2])
        await ask_first(here, chat, alice, "one")
        await chat.say(alice, command)
        await chat.hears(unanswered(1))
        assert await outcomes(here) == [("failed", ABANDONED)]


async def test_what_waits_stays_in_line_where_a_command_leads_nowhere(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db", questions=WAIT) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await ask_first(here, chat, alice, "one")
        await chat.say(alice, "/title Holidays")
        await chat.hears("Holidays")
        await chat.say(alice, "/stop")
        await chat.hears("You said: one")
        assert await outcomes(here) == []


async def test_someone_who_spoke_from_another_place_gets_a_notice_there(store_url: str) -> None:
    async with between(store_url, grants=ADMINS, questions=WAIT) as two:
        alice = two.fake.person("alice")
        chat, second = two.fake.dm(alice), two.fake.dm(alice)
        await two.ask(chat, alice, "/new Plans")
        await two.ask(second, alice, "/attach Plans")
        await ask_first(two.here, chat, alice)
        await second.say(alice, "/queue from here")
        await until(lambda: not two.fake.unacknowledged())
        await chat.say(alice, "/new")
        await chat.hears(unanswered(1))
        await second.hears(unanswered(1))


async def test_a_place_that_goes_elsewhere_takes_nothing_along_that_it_said_before(store_url: str) -> None:
    async with between(store_url, grants=ADMINS, questions=WAIT) as two:
        alice = two.fake.person("alice")
        chat, second = two.fake.dm(alice), two.fake.dm(alice)
        await two.ask(chat, alice, "/new Plans")
        await ask_first(two.here, second, alice, "one")
        await second.say(alice, "/attach Plans")
        await second.hears(unanswered(1))
        assert await two.ask(second, alice, "two") == "You said: two"
        assert await outcomes(two.here) == [("failed", ABANDONED)]


async def test_what_is_ordered_from_outside_leaves_behind_all_that_waits_and_the_chat_gets_a_notice(
    tmp_path: Path,
) -> None:
    async with running(tmp_path / "p.db", questions=WAIT) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await ask_first(here, chat, alice, "one")
        session = (await here.rows("SELECT id FROM sessions"))[0][0]
        assert unanswered(1) in await here.engine.run_command("/new", session, OPERATOR)
        await chat.hears(unanswered(1))
