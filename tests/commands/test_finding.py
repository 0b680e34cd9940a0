"""Conversations found again: by list, name and words, and only by those who may see them."""

from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from palaver.commands import sessions
from palaver.model.access import AccessRole, Grant
from palaver.model.key import GroupScope, Scope, ScopedSetting
from palaver.store.archive.collector import collect_all
from palaver.store.archive.exporter import ExportFormat, write_archive
from palaver.store.archive.importer import import_sessions
from palaver.store.people.grants import ChangeKind
from tests.commands.talk import OPERATOR, talking
from tests.engine.gateway import MovableClock

SHARED = ScopedSetting(default=Scope(group=GroupScope.SHARED))
PER_USER = ScopedSetting(default=Scope(group=GroupScope.PER_USER))
OWNERS = (Grant(platform="fake", role=AccessRole.OWNER),)
ADMINS = (Grant(platform="fake", role=AccessRole.ADMIN),)


async def test_sessions_lists_what_has_a_title_and_what_has_none(store_url: str) -> None:
    clock = MovableClock()
    async with talking(store_url, clock=clock) as alice:
        assert "no conversations yet" in await alice.ask("/sessions")
        await alice.say("before\nwork")
        clock.later(minutes=5)
        await alice.ask("/new Plans")
        await alice.say("about plans")
        first, second, end = (await alice.ask("/sessions")).splitlines()
        assert first.startswith("1. Plans (20")
        assert first.endswith("UTC, here): “about plans”")
        assert second.startswith("2. untitled (20")
        assert second.endswith("UTC): “before work”")
        assert end == "/resume 2 continues number 2."


async def test_resume_lists_the_titled_ones_under_the_same_numbers(store_url: str) -> None:
    async with talking(store_url) as alice:
        await alice.ask("/new Plans")
        await alice.say("about plans")
        await alice.ask("/new")
        await alice.say("something else")
        listed = (await alice.ask("/resume")).splitlines()
        assert [line.split(" (")[0] for line in listed] == ["2. Plans", "/resume 2 continues number 2."]
        assert "Resumed “Plans”" in await alice.ask("/resume 2")


async def test_a_list_that_goes_on_says_so(store_url: str) -> None:
    async with talking(store_url) as alice:
        await alice.say("the first")
        for number in range(1, 13):
            await alice.ask(f"/new Number {number}")
        first, second = (await alice.ask("/sessions")).splitlines(), (await alice.ask("/sessions 2")).splitlines()
        assert [line.split(".")[0] for line in first[:10]] == [str(number) for number in range(1, 11)]
        assert first[-1] == "There are more. Send /sessions 2 to list them."
        assert [line.split(" (")[0] for line in second] == [
            "11. Number 2",
            "12. Number 1",
            "13. untitled",
            "/resume 11 continues number 11.",
        ]
        assert (await alice.ask("/sessions 3")) == "There is no page 3: there are 13 conversations."
        assert (await alice.ask("/sessions 99")) == "There is no page 99: there are 13 conversations."
        titled = (await alice.ask("/resume")).splitlines()
        assert (len(titled), titled[-1]) == (12, "There are more. Send /sessions 2 to list them.")


async def test_a_page_beyond_the_numbered_conversations_is_not_another_page(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "_MAX_NUMBERED", 10)
    monkeypatch.setattr(sessions, "_MAX_PAGES", 1)
    async with talking(store_url) as alice:
        for number in range(11):
            await alice.ask(f"/new Number {number}")
        assert "1. Number 10" in await alice.ask("/sessions 1")
        beyond = await alice.ask("/sessions 2")
    assert beyond == "There is no page 2: the newest 10 conversations are listed. /search finds older ones."


async def test_the_pages_of_a_list_are_one_list_and_an_older_list_does_not_count(store_url: str) -> None:
    async with talking(store_url) as alice:
        for number in range(1, 14):
            await alice.ask(f"/new Number {number}")
        await alice.ask("/sessions")
        assert "12. Number 2" in await alice.ask("/sessions 2")
        await alice.ask("/new Number 14")
        assert "3. Number 12" in await alice.ask("/resume")
        assert "There is no conversation '12'" in await alice.ask("/resume 12"), "not that of the older list"
        await alice.ask("/sessions")
        third = (await alice.ask("/sessions")).splitlines()[2].removeprefix("3. ").split(" (")[0]
        await alice.ask("/sessions 2")
        await alice.ask("/new Number 15")
        assert f"Resumed “{third}”" in await alice.ask("/resume 3"), "it was on the first page"


async def test_a_number_means_the_list_that_was_last_shown_here(store_url: str) -> None:
    async with talking(store_url) as alice:
        for title in ("First", "Second", "Third"):
            await alice.ask(f"/new {title}")
            await alice.say(f"about {title}")
        listed = (await alice.ask("/sessions")).splitlines()
        assert [line.split(" (")[0] for line in listed[:3]] == ["1. Third", "2. Second", "3. First"]
        elsewhere = alice.elsewhere()
        await elsewhere.ask("/new Fourth")  # shifts every number
        await elsewhere.say("about the fourth")
        assert "There is no conversation '2'" in await elsewhere.ask("/resume 2")  # no list was shown there
        assert "Resumed “Second”" in await alice.ask("/resume 2")
        assert "Resumed “First”" in await alice.ask("/resume 3")
        listed = (await alice.ask("/resume")).splitlines()
        assert listed[0].startswith("1. First")
        assert "You are already in “First”" in await alice.ask("/resume 1")


async def test_a_title_in_quotation_marks_is_found(store_url: str) -> None:
    async with talking(store_url) as alice:
        for title in ("Plans", "“Odd” one"):
            await alice.ask(f"/new {title}")
            await alice.say("words")
        for text in ('"Plans"', "“Plans”", "„Plans“", "'Plans'", "«Plans»", "“Odd” one", '"“Odd” one"'):
            await alice.ask("/new")
            assert "Resumed “" in await alice.ask(f"/resume {text}")
        assert "There is no conversation" in await alice.ask('/resume "Planets"')


async def test_long_titles_that_begin_alike_are_two_lineages(store_url: str) -> None:
    same = "The same eighty characters at the beginning of two titles which differ behind them: "
    async with talking(store_url) as alice:
        for end in ("spring", "autumn", "spring"):
            await alice.ask(f"/new {same}{end}")
            await alice.say(f"about {end}")
        assert f"{same}autumn"[:79] in await alice.ask(f"/resume {same}autumn")
        assert (await alice.session()).title == f"{same}autumn"
        await alice.ask(f"/resume {same}spring")
        assert (await alice.session()).title == f"{same}spring #2"


@pytest.mark.parametrize("by", ["id", "prefix", "title", "number"])
async def test_a_conversation_is_gone_on_with_on_another_chat(store_url: str, by: str) -> None:
    async with talking(store_url) as alice:
        await alice.ask("/new Plans")
        await alice.say("about plans")
        session = await alice.session()
        names = {"id": session.id, "prefix": session.id[:24], "title": "Plans", "number": "1"}
        other = alice.elsewhere()
        if by == "number":
            await other.ask("/sessions")
        assert "Resumed “Plans”" in await other.ask(f"/resume {names[by]}")
        await other.say("go on")
        assert {"about plans", "go on"} <= set(await other.texts())
        assert "Undid the last" in await other.ask("/back")
        assert (await alice.session()).id == session.id


async def test_what_one_person_brings_from_another_installation_is_theirs_to_go_on_with(tmp_path: Path) -> None:
    """The id of its direct chat does not name its person, and nobody has spoken there here."""
    async with talking(tmp_path / "there.db") as alice:
        await alice.ask("/new Plans")
        await alice.say("about plans")
        records = collect_all(alice.here.store.database, OPERATOR)
        archive = b"".join([part async for part in write_archive(records, ExportFormat.JSONL)])
    async with talking(tmp_path / "here.db") as alice:
        lines = archive.splitlines(keepends=True)
        (imported,) = [each async for each in import_sessions(alice.here.store.database, lines)]
        assert "imported as ended and apart" in imported.notes[0]
        for _ in range(2):
            assert "Resumed “Plans”" in await alice.ask("/resume Plans")
            await alice.say("go on")
            assert {"about plans", "go on"} <= set(await alice.texts())
            assert "Undid the last" in await alice.ask("/back")


@pytest.mark.parametrize("text", ["/resume nonsense", "/resume 7", "/resume 99999999999999999999", "/resume ²"])
async def test_what_is_not_there_is_said_to_be_not_there(store_url: str, text: str) -> None:
    async with talking(store_url) as alice:
        await alice.ask("/new Plans")
        assert "There is no conversation" in await alice.ask(text)


async def test_search_finds_words_with_where_and_when(store_url: str) -> None:
    async with talking(store_url) as alice:
        await alice.ask("/new Plans")
        await alice.say("a trip to Rügen with 二字")
        plans = await alice.session()
        head, *lines = (await alice.ask("/search rugen")).splitlines()
        assert head == "Found 2 results:"
        assert all(line.startswith("Plans, 20") for line in lines[:2])
        assert "user: a trip to Rügen with 二字" in lines[1]
        assert len(lines) == 2
        await alice.ask("/new")
        assert (await alice.ask("/search rugen")).endswith(
            f"/resume {plans.id} continues the first other conversation."
        )
        await alice.ask("/back")
        assert "Found 2 results" in await alice.ask("/search 二")
        assert await alice.ask("/search nothing") == "Nothing found."
        assert "no word to search for" in await alice.ask("/search !?")
        assert "needs <words>" in await alice.ask("/search")
        await alice.ask("/undo")
        assert await alice.ask("/search rugen") == "Nothing found."


async def test_search_tells_when_there_is_more(store_url: str) -> None:
    async with talking(store_url) as alice:
        for number in range(6):
            await alice.say(f"again {number}")
        assert (await alice.ask("/search again")).startswith("The first 10 results:")


async def test_nobody_finds_what_others_have_said(store_url: str) -> None:
    async with talking(store_url) as alice:
        await alice.ask("/new Secret")
        await alice.say("canary")
        session = await alice.session()
        bob = alice.beside("bob")
        for text in ("/sessions", "/resume", "/search canary", "/resume 1", "/resume Secret", f"/resume {session.id}"):
            told = await bob.ask(text)
            assert "canary" not in told.replace(text, "")
            assert "“" not in told
        assert "owner role" in await bob.ask("/resume --all Secret")
        assert "owner role" in await bob.ask("/sessions --all")


async def test_the_owner_goes_on_from_anybodys_conversation_without_taking_it_away(store_url: str) -> None:
    async with talking(store_url, grants=OWNERS) as alice:
        await alice.ask("/new Plans")
        await alice.say("about plans")
        session = await alice.session()
        owner = alice.beside("owner")
        assert "no conversations" in await owner.ask("/sessions")
        assert "Plans" in await owner.ask("/sessions --all")
        assert "a branch of “Plans”" in await owner.ask("/resume Plans --all")
        await owner.say("an owner was here")
        assert (await alice.session()).id == session.id
        assert await alice.ask("/search owner") == "Nothing found."
        log = await alice.here.store.read(alice.here.store.grants.list_changes(9))
        assert [(each.kind, dict(each.details)) for each in log] == [
            (ChangeKind.READ_ALL, {"command": "/sessions"}),
            (ChangeKind.READ_ALL, {"command": "/resume", "session": session.id}),
        ]


async def test_an_admin_does_not_read_everybodys_conversations(tmp_path: Path) -> None:
    async with talking(str(tmp_path / "p.db"), grants=ADMINS) as admin:
        for text in ("/sessions --all", "/resume --all"):
            assert "owner role" in await admin.ask(text)
        assert await admin.here.store.read(admin.here.store.grants.list_changes(9)) == []


@pytest.mark.parametrize("scopes", [SHARED, PER_USER])
async def test_in_a_group_nothing_private_is_read_out(store_url: str, scopes: ScopedSetting[Scope]) -> None:
    async with talking(store_url, scopes=scopes, grants=OWNERS) as alice:
        await alice.ask("/new Private")
        await alice.say("canary")
        private = await alice.session()
        here = alice.within(alice.here.world.group("friends"))
        await here.ask("/new Ours")
        await here.say("in the group")
        for text in ("/sessions", "/resume", "/search canary"):
            told = await here.ask(text)
            assert "Private" not in told
            assert "canary" not in told.replace(text, "")
        assert "Ours" in await here.ask("/sessions")
        assert "in the group" in await here.ask("/search group")
        for name in ("Private", private.id, private.id[:24]):
            assert "There is no conversation" in await here.ask(f"/resume {name}")
        assert "direct chat" in await here.ask("/resume --all Private")


async def test_what_a_group_shares_stays_with_it(store_url: str) -> None:
    async with talking(store_url, scopes=SHARED) as alice:
        group = alice.here.world.group("friends")
        here, bob = alice.within(group), alice.beside("bob", group)
        await here.ask("/new Ours")
        await here.say("one")
        await bob.say("two")
        ours = await here.session()
        assert "which stays with the others" in await alice.ask("/resume Ours")
        await alice.say("canary")
        assert "two" in await alice.texts()
        assert (await here.session()).id == ours.id
        alone = bob.elsewhere()
        assert await alone.ask("/search canary") == "Nothing found."
        assert "two" in await alone.ask("/search two")


async def test_times_are_those_of_the_chat(store_url: str) -> None:
    async with talking(store_url, zones=ScopedSetting(default=ZoneInfo("Asia/Tokyo"))) as alice:
        await alice.say("hello")
        assert "JST" in await alice.ask("/sessions")
