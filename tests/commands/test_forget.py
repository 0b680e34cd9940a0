"""`/forget`: said what would go, then asked for once, answered once, and done though the gateway is killed."""

from datetime import timedelta

from palaver.model.key import GroupScope, Scope, ScopedSetting
from tests.engine.gateway import Bench, running, until

QUICK = timedelta(milliseconds=50)
SHARED = ScopedSetting(default=Scope(group=GroupScope.SHARED))


async def _is_over(here: Bench) -> bool:
    return await here.rows("SELECT count(*) FROM erasures WHERE ended IS NOT NULL") == [(1,)]


async def test_a_person_forgets_themselves(store_url: str) -> None:
    async with running(store_url, sweep_every=QUICK, scopes=SHARED) as here:
        alice, bob = here.world.person("alice"), here.world.person("bob")
        chat, room = here.world.dm(alice), here.world.group("room", alice, bob)
        await chat.say(alice, "xylographer")
        await room.say(alice, "xylographer to all")
        await room.say(bob, "marzipan")
        await here.settled()
        await chat.say(alice, "/forget")
        told = await chat.hears("This permanently deletes everything about")
        assert "1 conversation that nobody else joined" in told.text
        assert "in 1 conversation with others" in told.text
        assert "/forget --yes" in told.text
        assert await here.rows("SELECT * FROM erasures") == []
        await chat.say(alice, "/forget --yes")
        await chat.hears("Everything stored about you is being deleted")
        await until(lambda: _is_over(here))
        texts = [text for name in await here.rows("SELECT id FROM sessions") for text in await here.texts(name[0])]
        assert [text for text in texts if "mar" in text or "xyl" in text] == ["marzipan", "You said: marzipan"]
        assert await here.rows("SELECT count(*) FROM inbox WHERE length(body) > 0") == [(1,)]
        assert await here.rows("SELECT subject, actor FROM erasures") == [(None, "the person")]
        assert sum("being deleted, including this" in message.text for message in chat.shown) == 1


async def test_it_is_done_as_soon_as_its_answer_has_arrived(store_url: str) -> None:
    """Long before anything else is swept up."""
    async with running(store_url, sweep_every=timedelta(hours=1)) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "xylographer")
        await here.settled()
        await chat.say(alice, "/forget --yes")
        await chat.hears("Everything stored about you is being deleted")
        await until(lambda: _is_over(here))
        assert await here.rows("SELECT count(*) FROM entries") == [(0,)]


async def test_it_is_gone_on_with_after_a_crash(store_url: str) -> None:
    async with running(store_url) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "xylographer")
        await here.settled()
        await chat.say(alice, "/forget --yes")
        await chat.hears("Everything stored about you is being deleted")
        await here.settled()
    async with running(store_url, sweep_every=QUICK) as here:
        await until(lambda: _is_over(here))
        assert await here.rows("SELECT count(*) FROM entries") == [(0,)]


async def test_not_where_others_read(store_url: str) -> None:
    async with running(store_url) as here:
        alice, bob = here.world.person("alice"), here.world.person("bob")
        room = here.world.group("room", alice, bob)
        for text in ("/forget", "/forget --yes"):
            await room.say(alice, text)
        await room.hears("/forget works only in a direct chat.", times=2)
        assert await here.rows("SELECT * FROM erasures") == []
