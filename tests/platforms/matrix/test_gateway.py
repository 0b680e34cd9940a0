"""A whole gateway in rooms of a real homeserver: a conversation goes on through a restart and a new room."""

import asyncio
from pathlib import Path

from palaver.model.access import AccessRole, Grant
from palaver.model.addressing import AddressingRules, AnswerMode
from palaver.model.scoped_setting import ChatSelector, ScopedSetting
from palaver.protocols.clock import SystemClock
from palaver.testkit.notebook import PATIENCE
from tests.engine.agents import Slow, noted
from tests.engine.gateway import running
from tests.platforms.matrix.homeserver import Homeserver
from tests.platforms.matrix.rigs import MatrixRig, rigged

_EVERYBODY = (Grant(platform="matrix", role=AccessRole.MEMBER),)


async def shows(rig: MatrixRig, *texts: str) -> None:
    """In the room, once each."""
    async with asyncio.timeout(PATIENCE):
        while [shown.text for shown in await rig.shown()] != list(texts):  # noqa: ASYNC110 - it has to be looked for
            await asyncio.sleep(0.05)


async def test_a_conversation_goes_on_through_a_restart_and_in_the_room_that_replaces_its_own(
    home: Homeserver, tmp_path: Path
) -> None:
    async with rigged(home, tmp_path) as rig:
        place, first = tmp_path / "store.db", rig.chat_id
        async with running(place, adapters=[rig.adapter()], clock=SystemClock(), grants=_EVERYBODY):
            await rig.is_heard()
            await rig.say("nobody is meant")
            await rig.mention("one")
            await shows(rig, "You said: one")
        await rig.mention("two")
        async with running(place, adapters=[rig.adapter()], clock=SystemClock(), grants=_EVERYBODY) as bench:
            await shows(rig, "You said: one", "You said: two")
            await rig.move_chat()
            await rig.proxy.answered("/m.room.tombstone")
            await rig.mention("three")
            await shows(rig, "You said: three")
            sessions = await bench.rows("SELECT count(*) FROM sessions")
    assert sessions[0][0] == 1
    assert first != rig.chat_id


async def hears(rig: MatrixRig, room_id: str, text: str) -> str:
    """The id of the first message of ours there that has this in it."""
    async with asyncio.timeout(PATIENCE):
        while True:
            for each in await rig.person.sees(room_id):
                if each["sender"] == rig.options.user_id and text in each["content"].get("body", ""):
                    return str(each["event_id"])
            await asyncio.sleep(0.05)


async def test_in_groups_the_bot_answers_whoever_speaks_to_it_and_overhears_what_it_may(
    home: Homeserver, tmp_path: Path
) -> None:
    agent = Slow()
    agent.go.set()
    async with rigged(home, tmp_path) as rig:
        person, usual, bot = rig.person, rig.chat_id, rig.stage.bot
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
        adapters, clock = [rig.adapter()], SystemClock()
        place = tmp_path / "store.db"
        async with running(
            place, adapters=adapters, clock=clock, agent=agent, attention=attention, grants=_EVERYBODY
        ) as here:
            await rig.is_heard()
            for chatter in ("hello all", "@somebody:else.org look", "Computer, by wake word"):
                await person.says(usual, chatter)
            await rig.mention("by name")
            await person.says(free, "to anybody")
            await person.says(quiet, "between us")
            await hears(rig, usual, "by wake word")
            await rig.answer(await hears(rig, usual, "by name"), "by reply")
            await person.says(quiet, f"{bot.user_id}: what was it")
            await hears(rig, usual, "by reply")
            await hears(rig, free, "to anybody")
            await hears(rig, quiet, "what was it")
            await here.settled()
            assert await here.rows("SELECT count(*) FROM inbox") == [(6,)]
    (asked,) = [each for each in map(noted, agent.requests) if "what was it" in each]
    assert "between us" in asked
