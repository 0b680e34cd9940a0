"""Commands, said in a chat."""

from pathlib import Path

from palaver.domain.access import AccessRole, Grant
from tests.engine.gateway import running

ADMINS = (Grant(platform="fake", role=AccessRole.ADMIN),)


async def test_earlier_conversations_are_listed_and_gone_on_with(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db") as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "/resume")
        await chat.hears("no earlier conversations")
        for title in ("Plans", "Recipes"):
            await chat.say(alice, f"/new {title}")
            await chat.say(alice, f"about {title}")
            await chat.hears(f"You said: about {title}")
        await chat.say(alice, "/resume")
        listed = await chat.hears("/resume 1 goes on")
        assert [line.split(" (")[0] for line in listed.text.splitlines()[:2]] == ["1. Recipes", "2. Plans"]
        await chat.say(alice, "/resume 2")
        await chat.hears("This is Plans again")
        await chat.say(alice, "/resume Recipes")
        await chat.hears("This is Recipes again")
        await chat.say(alice, "/resume nonsense")
        await chat.hears("there is no session")
        await here.settled()


async def test_only_ones_own_conversations_are_listed_and_found(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db") as here:
        alice, bob = here.world.person("alice"), here.world.person("bob")
        mine, other = here.world.dm(alice), here.world.dm(bob)
        await mine.say(alice, "/new Secret")
        await mine.hears("Secret")
        await other.say(bob, "/resume")
        await other.hears("no earlier conversations")
        await other.say(bob, "/resume Secret")
        await other.hears("there is no session")


async def test_an_admin_makes_a_chat_the_home_channel(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db", grants=ADMINS) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "/sethome")
        await chat.hears("home channel")
        (home,) = await here.store.read(here.store.places.all_homes())
        assert (home.platform, home.chat) == ("fake", chat.id)


async def test_a_member_does_not(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db") as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "/sethome")
        await chat.hears("role admin")
        assert await here.store.read(here.store.places.all_homes()) == []
