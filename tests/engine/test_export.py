"""/export gives a conversation as a file, or as text where there are no files, to those who may see it."""

from pathlib import Path

from palaver.store.conversations.blob_store import BlobStore
from palaver.testkit.platform import FakePlatform
from tests.engine.gateway import running, until
from tests.engine.test_files import CAT, Wordy


async def test_the_conversation_comes_as_a_file_in_the_wanted_form(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db", shelf=BlobStore(tmp_path / "files")) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "/new Holiday / plans")
        await chat.say(alice, "hello")
        await chat.hears("You said: hello")
        for command in ("/export", "/export html", "/export JSONL Holiday / plans"):
            await chat.say(alice, command)
        await chat.hears("This is “Holiday / plans”.", times=3)
        files = [file for message in chat.shown for file in message.files]
        assert [file.name for file in files] == ["Holiday-plans.md", "Holiday-plans.html", "Holiday-plans.jsonl"]
        assert b"> hello" in files[0].content
        assert files[1].content.startswith(b"<!doctype html>")
        assert files[2].content.startswith(b'{"format":"palaver-sessions"')


async def test_nobody_gets_what_they_cannot_see_nor_a_group_what_is_said_elsewhere(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db", shelf=BlobStore(tmp_path / "files")) as here:
        alice, bob = here.world.person("alice"), here.world.person("bob")
        mine, his = here.world.dm(alice), here.world.dm(bob)
        group = here.world.group("Dev", alice, bob)
        await mine.say(alice, "/new Secret")
        await mine.say(alice, "canary")
        await mine.hears("You said: canary")
        ((session,),) = await here.rows("SELECT id FROM sessions WHERE title = 'Secret'")
        for name in ("Secret", session, session[:8]):
            await his.say(bob, f"/export {name}")
            await group.say(alice, f"/export {name}")
        await his.hears("There is no conversation", times=3)
        await group.hears("There is no conversation", times=3)
        assert not [file for chat in (his, group) for message in chat.shown for file in message.files]


async def test_without_files_it_comes_as_text_and_without_a_conversation_that_is_said(tmp_path: Path) -> None:
    world = FakePlatform()
    async with running(tmp_path / "p.db", world, adapters=[Wordy(world)], shelf=BlobStore(tmp_path / "f")) as here:
        alice = world.person("alice")
        chat = world.dm(alice)
        await chat.say(alice, "/export")
        await chat.hears("There is no conversation")
        await chat.say(alice, "hello there")
        await chat.hears("You said: hello there")
        await chat.say(alice, "/export html")
        await chat.hears("so here it is as text")
        await chat.hears("> hello there")
        await until(lambda: not list((tmp_path / "f").rglob("*.html")))
        assert await here.rows("SELECT count(*) FROM attachments") == [(0,)]


async def test_an_export_says_that_the_contents_of_files_are_not_in_it(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db", shelf=BlobStore(tmp_path / "files")) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "look", files=(CAT,))
        await chat.hears("You said: look")
        await chat.say(alice, "/export jsonl")
        await chat.hears("It names 1 attached file, without the contents.")
