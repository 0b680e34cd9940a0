"""A whole gateway in rooms of a real homeserver: a conversation goes on through a restart and a new room."""

import asyncio
from pathlib import Path

from palaver.model.access import AccessRole, Grant
from palaver.model.addressing import AddressingRules, AnswerMode
from palaver.model.key import ChatSelector, ScopedSetting
from palaver.protocols.clock import SystemClock
from palaver.testkit.recorder import TIMEOUT_SECONDS
from tests.engine.agents import Slow, noted
from tests.engine.gateway import running
from tests.platforms.matrix.fakes import FakeMatrix, fake_matrix
from tests.platforms.matrix.homeserver import Homeserver

_EVERYBODY = (Grant(platform="matrix", role=AccessRole.MEMBER),)


async def shows(fake: FakeMatrix, *texts: str) -> None:
    """In the room, once each."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while [shown.text for shown in await fake.shown()] != list(texts):  # noqa: ASYNC110 - it has to be looked for
            await asyncio.sleep(0.05)


async def test_a_conversation_goes_on_through_a_restart(home: Homeserver, tmp_path: Path) -> None:
    async with fake_matrix(home, tmp_path) as fake:
        place = tmp_path / "store.db"
        async with running(place, adapters=[fake.adapter()], clock=SystemClock(), grants=_EVERYBODY):
            await fake.is_heard()
            await fake.say("nobody is meant")
            await fake.mention("one")
            await shows(fake, "You said: one")
        await fake.mention("two")
        async with running(place, adapters=[fake.adapter()], clock=SystemClock(), grants=_EVERYBODY) as bench:
            await shows(fake, "You said: one", "You said: two")
            sessions = await bench.rows("SELECT count(*) FROM sessions")
    assert sessions[0][0] == 1


async def hears(fake: FakeMatrix, room_id: str, text: str) -> str:
    """The id of the first message of ours there that has this in it."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            for each in await fake.person.sees(room_id):
                if each["sender"] == fake.options.user_id and text in each["content"].get("body", ""):
                    return str(each["event_id"])
            await asyncio.sleep(0.05)


async def test_in_groups_the_bot_answers_those_who_speak_to_it_and_overhears_what_it_can(
    home: Homeserver, tmp_path: Path
) -> None:
    agent = Slow()
    agent.go.set()
    async with fake_matrix(home, tmp_path) as fake:
        person, usual, bot = fake.person, fake.chat_id, fake.stage.bot
        free, quiet = [await person.makes_room(bot.user_id) for _ in range(2)]
        for room_id in (free, quiet):
            home.join(room_id, bot)
        attention = ScopedSetting(
            default=AddressingRules(wake_words=frozenset({"computer"})),
            chats={
                ChatSelector("matrix", free): AddressingRules(answers=AnswerMode.EVERYTHING),
                ChatSelector("matrix", quiet): AddressingRules(observes=True),
            },
        )
        adapters, clock = [fake.adapter()], SystemClock()
        place = tmp_path / "store.db"
        async with running(
            place, adapters=adapters, clock=clock, agent=agent, attention=attention, grants=_EVERYBODY
        ) as here:
            await fake.is_heard()
            for chatter in ("hello all", "@somebody:else.org look", "Computer, by wake word"):
                await person.says(usual, chatter)
            await fake.mention("by name")
            await person.says(free, "to anybody")
            await person.says(quiet, "between us")
            await hears(fake, usual, "by wake word")
            await fake.answer(await hears(fake, usual, "by name"), "by reply")
            await person.says(quiet, f"{bot.user_id}: what was it")
            await hears(fake, usual, "by reply")
            await hears(fake, free, "to anybody")
            await hears(fake, quiet, "what was it")
            await here.settled()
            assert await here.rows("SELECT count(*) FROM inbox") == [(6,)]
    (asked,) = [each for each in map(noted, agent.requests) if "what was it" in each]
    assert "between us" in asked
