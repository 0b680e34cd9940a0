"""Thumbs up and down: on an answer they are feedback, on a question they approve or deny, by those who can."""

from collections.abc import AsyncGenerator
from dataclasses import replace

from palaver.db.transaction import Statements, transaction
from palaver.model.access import AccessRole, Grant
from palaver.model.feedback import Rating, rating_of
from palaver.model.key import GroupScope, Scope, ScopedSetting
from palaver.model.source import GROUP, Source, Trust
from palaver.model.transcript import Role
from palaver.model.turn import Inbound, Reaction
from palaver.protocols.agent import Event, Final, Request
from palaver.store.conversations import deletion
from palaver.store.records import outbound_body, outbound_of
from palaver.store.status.invariants import violations
from palaver.testkit.adapter import FakeAdapter
from palaver.testkit.faults import Faults
from palaver.testkit.platform import FakePlatform
from palaver.testkit.updates import Update
from tests.engine.agents import Scripted
from tests.engine.gateway import OPERATOR, Bench, MovableClock, running, until

SHARED = ScopedSetting(default=Scope(group=GroupScope.SHARED))


async def _ratings(here: Bench) -> list[tuple[str, int]]:
    found = await here.rows("SELECT f.identity, f.rating FROM feedback f JOIN turns t ON t.no = f.turn_no ORDER BY 1")
    return [(identity, rating) for identity, rating in found]


async def test_thumbs_on_an_answer_are_kept_with_its_turn_and_taken_back(store_url: str) -> None:
    world = FakePlatform(faults=Faults(duplicate=0.5))
    async with running(store_url, world, scopes=SHARED) as here:
        alice, bob, eve = (world.person(name) for name in ("alice", "bob", "eve"))
        group = world.group("Dev", alice, bob, eve)
        said = await group.say(alice, "hello")
        answer = await group.hears("You said: hello")
        for person, emoji, removed, rated in (
            (alice, "❤️", False, []),
            (alice, "👍🏽", False, [("fake:p1", 1)]),
            (bob, "👎", False, [("fake:p1", 1), ("fake:p2", -1)]),
            (alice, "👎", False, [("fake:p1", -1), ("fake:p2", -1)]),
            (alice, "👍", True, [("fake:p1", -1), ("fake:p2", -1)]),
            (alice, "👎", True, [("fake:p1", 0), ("fake:p2", -1)]),
        ):
            await group.react(person, answer, emoji, removed=removed)
            await here.settled()
            assert await _ratings(here) == rated
        await group.react(bob, said, "👍")
        await here.settled()
        assert len(await _ratings(here)) == 2
        assert len(group.shown) == 1, "nothing is answered"
        session = (await here.rows("SELECT id FROM sessions"))[0][0]
        turn = (await here.rows("SELECT no FROM turns"))[0][0]
        (kept,) = await here.store.read(here.store.feedback.list_feedback([turn]))
        assert (kept.identity, kept.rating) == ("fake:p2", Rating.DOWN)
        await here.store.transact(deletion.delete(session, OPERATOR, MovableClock().now()))
        assert await _ratings(here) == []
        assert not await here.store.read(violations())


async def test_reactions_of_strangers_are_nothing(store_url: str) -> None:
    world = FakePlatform()
    alice, eve = world.person("alice"), world.person("eve")
    grants = (Grant(platform="fake", user_id=alice.id, role=AccessRole.MEMBER),)
    async with running(store_url, world, scopes=SHARED, grants=grants) as here:
        group = world.group("Dev", alice, eve)
        await group.say(alice, "hello")
        await group.react(eve, await group.hears("You said"), "👍")
        await here.settled()
        assert await _ratings(here) == []
        assert await here.rows("SELECT 1 FROM inbox WHERE identity = ?", f"fake:{eve.id}") == []


async def test_a_reaction_decides_about_a_question_for_those_who_can(store_url: str) -> None:
    world = FakePlatform(faults=Faults(duplicate=0.5))
    async with running(store_url, world, scopes=SHARED) as here:
        alice, bob = world.person("alice"), world.person("bob")
        group = world.group("Dev", alice, bob)
        for emoji, rest in (("👍", "feed the cat"), ("👎", "feed the dog")):
            await group.say(alice, f"!approve {rest}")
            question = await group.hears(rest)
            if emoji == "👍":  # somebody else's request
                await group.react(bob, question, "👍")
                await group.hears("admin role")
            await group.react(alice, question, emoji, removed=True)
            await here.settled()
            assert (await here.rows("SELECT count(*) FROM turns WHERE state = 'parked'"))[0][0] == 1
            await group.react(alice, question, emoji)

            async def is_over() -> bool:
                return not await here.rows("SELECT 1 FROM turns WHERE state <> 'done'")

            await until(is_over)
            await here.settled()
            await group.react(alice, question, emoji)  # it asks nothing any more
            await here.settled()
        results = [entry.text for entry in await here.entries() if entry.role is Role.TOOL]
        assert (results[0], "feed the dog" in results[1]) == ("feed the cat", False)
        assert await _ratings(here) == []
        commands = await here.rows("SELECT count(*) FROM inbox WHERE request_key LIKE 'reaction %'")
        assert commands == [(3,)]


async def test_reactions_at_once_to_messages_of_one_number_in_two_chats_are_two(store_url: str) -> None:
    world = FakePlatform()
    async with running(store_url, world, scopes=SHARED) as here:
        alice = world.person("alice")
        groups = [world.group(name, alice) for name in ("Dev", "Ops")]
        for group in groups:
            await group.say(alice, "!approve feed the cat")
        questions = [await group.hears("feed the cat") for group in groups]
        assert questions[0].id == questions[1].id
        await here.settled()  # a reaction counts once its question's receipt is stored
        at, thumb = world.clock.now(), Reaction(emoji="👍")
        for group, question in zip(groups, questions, strict=True):
            source = Source(platform="fake", account="bot", chat_id=group.id, chat_kind=GROUP, user_id=alice.id)
            said = Inbound(source=source, text="", at=at, reply_to=question.id, reaction=thumb)
            await here.engine.receive(said, Trust())
        await here.settled()
        commands = await here.rows("SELECT count(*) FROM inbox WHERE request_key LIKE 'reaction %'")
        assert commands == [(2,)]


class _IdsOnly(FakeAdapter):
    """A platform that tells only the id of the message that somebody replies to."""

    def _inbound(self, update: Update) -> Inbound:
        return replace(super()._inbound(update), quote=None)


async def test_what_a_reply_quotes_is_found_where_the_platform_tells_only_its_id(store_url: str) -> None:
    async def tell(request: Request) -> AsyncGenerator[Event]:
        yield Final(text=f"Heard {request.messages[-1].text}")

    world, agent = FakePlatform(), Scripted(tell)
    async with running(store_url, world, adapters=[_IdsOnly(world)], agent=agent, scopes=SHARED):
        alice, bob = world.person("alice"), world.person("bob")
        group, other = world.group("Dev", alice, bob), world.group("Others", alice)
        said = await group.say(bob, "the red one")
        answer = await group.hears("the red one")
        for chat, to, thread, shown in (
            (group, said.id, None, '⟦in reply to "bob": "the red one"⟧'),
            (group, said.id, "5", '⟦in reply to "bob": "the red one"⟧'),
            (group, said.id, said.id, ""),  # what opened a thread is no news in it
            (group, answer.id, None, '⟦in reply to you: "Heard'),
            (group, "999", None, ""),
            (other, said.id, None, ""),
        ):
            before = len(chat.shown)
            await chat.say(alice, "why?", reply_to=to, thread=thread)
            await until(lambda chat=chat, before=before: len(chat.shown) > before)
            heard = agent.requests[-1].messages[-1].text
            assert (shown in heard, "in reply to" in heard) == (True, bool(shown)), heard


async def test_a_reply_to_an_answer_that_is_damaged_or_emptied_is_answered(store_url: str) -> None:
    async def tell(request: Request) -> AsyncGenerator[Event]:
        yield Final(text=request.messages[-1].text)

    world, agent = FakePlatform(), Scripted(tell)
    async with running(store_url, world, adapters=[_IdsOnly(world)], agent=agent) as here:
        chat = world.dm(alice := world.person("alice"))
        await chat.say(alice, "one")
        first = await chat.hears("one")
        await here.settled()
        (kept,) = await here.rows("SELECT body FROM outbox")
        for body, said in ((b"{damaged", "two"), (outbound_body(outbound_of(kept[0]).without_content()), "three")):
            await here.store.transact(_set_body(body))
            await chat.say(alice, said, reply_to=first.id)
            await chat.hears(said)
            await here.settled()
            assert "in reply to" not in agent.requests[-1].messages[-1].text


@transaction
def _set_body(body: bytes) -> Statements[None]:
    yield "UPDATE outbox SET body = ? WHERE id = (SELECT min(id) FROM outbox)", (body,)


def test_every_form_of_thumbs() -> None:
    for text in (
        "👍",
        "👍🏿",
        "👍️",
        "+1",
        ":thumbsup:",
        "+1::skin-tone-3",
        "thumbsup_medium_light_skin_tone",
        "THUMBSUP",
    ):
        assert rating_of(text) is Rating.UP, text
    for text in ("👎", "👎🏻", "-1", ":-1:", "thumbsdown", "ThumbsDown", "-1_dark_skin_tone"):
        assert rating_of(text) is Rating.DOWN, text
    assert rating_of("") is Rating.NONE
    for text in ("❤️", "1", "+2", "thumbs", "👏", "joy"):
        assert rating_of(text) is None, text
