"""Search in a chat: OR, NOT and titles."""

from tests.commands.talk import talking


async def test_search_takes_or_not_and_titles(store_url: str) -> None:
    async with talking(store_url) as alice:
        await alice.say("cats purr")
        await alice.say("dogs bark at cats")
        await alice.ask("/new Holiday by the sea")
        await alice.say("what now?")

        async def found(words: str) -> list[str]:
            lines = (await alice.ask(f"/search {words} --role user")).splitlines()
            return [line.split(": ", 1)[1] for line in lines if ", user: " in line]

        assert await found("purr OR bark") == ["dogs bark at cats", "cats purr"]
        assert await found("cats -dogs") == await found("cats NOT dogs") == ["cats purr"]
        assert ", title: Holiday by the sea" in await alice.ask("/search holiday")
        assert "no word to search for" in await alice.ask("/search -dogs")
