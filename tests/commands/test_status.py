"""What is going on in a conversation, in full."""

from zoneinfo import ZoneInfo

from palaver.model.key import GroupScope, Scope, ScopedSetting
from tests.commands.talk import talking

SHARED = ScopedSetting(default=Scope(group=GroupScope.SHARED))


async def test_status_says_how_the_conversation_stands(store_url: str) -> None:
    async with talking(store_url, zones=ScopedSetting(default=ZoneInfo("Asia/Tokyo"))) as alice:
        await alice.ask("/new Trip")
        await alice.say("one")
        first = await alice.session()
        await alice.ask("/branch")
        head, *facts = (await alice.ask("/status")).splitlines()
        assert head.startswith(f"Trip #2 ({(await alice.session()).id}): idle; ")
        assert facts[0].startswith("started 20")
        assert facts[0].endswith("JST")
        assert facts[1] == f"a branch of {first.id}"


async def test_looking_changes_nothing(store_url: str) -> None:
    async with talking(store_url, scopes=SHARED) as alice:
        group = alice.here.world.group("friends")
        await alice.within(group).say("one")
        before = await alice.here.rows("SELECT last_active, last_human, next_seq FROM sessions")
        bob = alice.beside("bob", group)
        assert "You have no open conversation here." in await bob.ask("/status")
        assert "everybody here" in await alice.within(group).ask("/status")
        assert await alice.here.rows("SELECT last_active, last_human, next_seq FROM sessions") == before
        assert len(await alice.here.rows("SELECT 1 FROM participants")) == 1
