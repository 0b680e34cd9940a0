"""Commands, said in a chat."""

from pathlib import Path

from palaver.model.access import AccessRole, Grant
from tests.engine.gateway import running

ADMINS = (Grant(platform="fake", role=AccessRole.ADMIN),)


async def test_an_admin_makes_a_chat_the_home_channel(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db", grants=ADMINS) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "/sethome")
        await chat.hears("home channel")
        (home,) = await here.store.read(here.store.accounts.list_configured_homes())
        assert (home.platform, home.chat) == ("fake", chat.id)


async def test_a_member_does_not(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db") as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "/sethome")
        await chat.hears("admin role")
        assert await here.store.read(here.store.accounts.list_configured_homes()) == []
