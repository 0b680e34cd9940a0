"""What was said to a turn counts also after its gateway has died."""

from pathlib import Path

from tests.crash.siege import town_of
from tests.crash.square import fake_square


async def test_a_turn_that_was_asked_to_stop_stops_after_a_crash(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/palaver.db"
    async with fake_square(seed=1) as square, town_of(url, square, workers=1, chats=0, seed=1) as town:
        alice = square.world.person("alice")
        chat = square.world.dm(alice)
        dying = await town.start(step="after run_command")
        await chat.say(alice, "!hang")
        await town.until_logged("turn.started")
        await chat.say(alice, "/stop")
        assert await dying.dies(within=180)
        await town.start()
        await chat.say(alice, "are you there?")
        await chat.hears("are you there?", within=60)
