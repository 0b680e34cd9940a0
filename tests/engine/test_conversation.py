"""From a message to its answer, through the front door."""

from pathlib import Path

from tests.engine.gateway import running


async def test_what_is_said_is_answered(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db") as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "hello")
        heard = await chat.hears("hello")
        assert heard.reply_to == chat.said[0].id
