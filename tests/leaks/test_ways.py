"""Ways to the words of others that were once open, or that a walk seldom finds."""

from collections.abc import AsyncGenerator

from palaver.model.access import AccessRole, Grant
from palaver.model.key import GroupScope, Scope, ScopedSetting
from palaver.protocols.agent import Event, Final, Request
from tests.engine.agents import Scripted, noted
from tests.engine.places import between
from tests.engine.test_links import FOR_THE_OWNER, linked, people
from tests.store.ready import store_url_on_each

__all__ = ["store_url_on_each"]

SHARED = ScopedSetting(default=Scope(group=GroupScope.SHARED))
ADMINS = (Grant(role=AccessRole.ADMIN),)


async def _tell(request: Request) -> AsyncGenerator[Event]:
    yield Final(text=f"I know: {noted(request)}")


def gossip() -> Scripted:
    return Scripted(_tell)


async def test_a_group_is_not_told_the_title_before_it_is_let_in(store_url: str) -> None:
    async with between(store_url) as two:
        alice = two.fake.person("alice")
        chat, group = two.fake.dm(alice), two.fake.group("Dev", alice)
        await two.ask(chat, alice, "/new A secret title")
        await two.ask(chat, alice, "hello")
        session = await two.session_of("hello")
        question = await two.ask(group, alice, f"/attach {session}")
        assert "--yes" in question
        assert "secret" not in question


async def test_words_of_others_do_not_go_on_to_another_group_in_a_branch(store_url: str) -> None:
    async with between(store_url, scopes=SHARED, agent=gossip()) as two:
        alice, bob, cy = (two.fake.person(name) for name in ("alice", "bob", "cy"))
        chat = two.fake.dm(alice)
        theirs, others = two.fake.group("Dev", alice, bob), two.fake.group("Others", alice, cy)
        await two.ask(theirs, bob, "/new Plans")
        await two.ask(theirs, bob, "a canary")
        await two.ask(theirs, alice, "hello")
        assert "a branch of" in await two.ask(chat, alice, "/resume Plans")
        session = (await two.here.rows("SELECT id FROM sessions ORDER BY no DESC LIMIT 1"))[0][0]
        assert "admin" in await two.ask(others, alice, f"/attach {session} --yes")
        assert "canary" not in await two.ask(others, cy, "what is there?")
        assert "canary" in await two.ask(chat, alice, "what is there?")
        assert "canary" not in await two.ask(two.fake.dm(bob), bob, "/sessions")
        assert await two.ask(two.fake.dm(bob), bob, f"/resume {session}") != ""
        assert "canary" not in await two.ask(two.fake.dm(bob), bob, "what is there?")


async def test_what_was_taken_back_before_is_not_brought_back_by_an_attached_group(store_url: str) -> None:
    async with between(store_url, scopes=SHARED, agent=gossip()) as two:
        alice, cy = two.fake.person("alice"), two.fake.person("cy")
        chat, group = two.fake.dm(alice), two.fake.group("Others", alice, cy)
        await two.ask(chat, alice, "/new Plans")
        await two.ask(chat, alice, "hello")
        await two.ask(chat, alice, "a canary")
        await two.ask(chat, alice, "/undo")
        await two.ask(group, alice, "/attach Plans --yes")
        await two.ask(group, cy, "what is there?")
        assert "canary" not in await two.ask(group, cy, "/redo")
        assert "canary" not in await two.ask(group, cy, "/back")
        assert "canary" not in await two.ask(group, cy, "what is there?")


async def test_what_was_taken_back_before_is_not_brought_back_after_a_handoff(store_url: str) -> None:
    async with between(store_url, grants=ADMINS, agent=gossip()) as two:
        alice, owner, eve = two.fake.person("alice"), two.other.person("owner"), two.other.person("eve")
        chat, home = two.fake.dm(alice), two.other.group("Home", owner, eve)
        await two.set_home(home, owner)
        await two.ask(chat, alice, "hello")
        await two.ask(chat, alice, "a canary")
        await two.ask(chat, alice, "/undo")
        await two.ask(chat, alice, "/handoff other --yes")
        opening = await home.hears("continues here")
        await chat.hears("continues in the home channel")
        await two.ask(home, eve, "what is there?", thread=opening.thread)
        assert "canary" not in await two.ask(home, eve, "/redo", thread=opening.thread)
        assert "canary" not in await two.ask(home, eve, "what is there?", thread=opening.thread)


async def test_what_was_said_as_the_owner_is_not_the_owners_when_the_link_is_gone(store_url: str) -> None:
    owner = Grant(platform="fake", user_id="p1", role=AccessRole.OWNER)
    async with between(store_url, scopes=FOR_THE_OWNER, grants=(owner, Grant()), agent=gossip()) as two:
        one, alice, other, bob = people(two)
        await linked(two, one, alice, other, bob)
        await two.ask(other, bob, "a canary")
        await two.ask(other, bob, "/unlink")
        assert "canary" not in await two.ask(one, alice, "to myself")
        assert "canary" not in await two.ask(one, alice, "/search canary")
        assert "myself" not in await two.ask(other, bob, "what is there?")
        assert "Nothing" in await two.ask(other, bob, "/search myself")
        assert "canary" in await two.ask(other, bob, "/search canary")


async def test_the_owner_goes_on_when_a_link_is_gone_of_somebody_who_said_nothing(store_url: str) -> None:
    owner = Grant(platform="fake", user_id="p1", role=AccessRole.OWNER)
    async with between(store_url, scopes=FOR_THE_OWNER, grants=(owner, Grant()), agent=gossip()) as two:
        one, alice, other, bob = people(two)
        await two.ask(one, alice, "to myself")
        await linked(two, one, alice, other, bob)
        await two.ask(one, alice, "/unlink")
        assert "to myself" in await two.ask(one, alice, "what is there?")


async def test_nobody_is_named_alone_where_another_took_part_whose_words_are_summarised(store_url: str) -> None:
    agent = gossip()
    async with between(store_url, scopes=SHARED, agent=agent) as two:
        alice, bob = two.fake.person("alice"), two.fake.person("bob")
        chat, group = two.fake.dm(alice), two.fake.group("Dev", alice, bob)
        await two.ask(chat, alice, "/new Plans")
        await two.ask(chat, alice, "hello")
        alone = agent.requests[-1].section
        await two.ask(group, alice, "/attach Plans --yes")
        await two.ask(chat, alice, "before anybody else")
        let_in = agent.requests[-1].section
        await two.ask(group, bob, "me too")
        await two.ask(chat, alice, "/compress")
        await two.ask(group, alice, "/detach")
        await two.ask(chat, alice, "between us")
        assert agent.requests[-1].section == let_in != alone
        assert "alice" in agent.requests[-1].messages[-1].text


async def test_what_is_said_in_private_does_not_go_to_the_group_on_the_way_back(store_url: str) -> None:
    async with between(store_url, agent=gossip()) as two:
        alice = two.fake.person("alice")
        chat, group = two.fake.dm(alice), two.fake.group("Dev", alice, two.fake.person("bob"))
        await two.ask(group, alice, "/new Plans")
        await two.ask(group, alice, "hello")
        await two.ask(chat, alice, "/resume Plans")
        assert "hello" in await two.ask(chat, alice, "a canary")
        await two.ask(chat, alice, "/back")
        assert "canary" not in await two.ask(group, alice, "/sessions")
        assert "canary" not in await two.ask(group, alice, "/resume Plans")
        assert "canary" not in await two.ask(group, alice, "what is there?")
