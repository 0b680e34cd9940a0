"""In a group the agent answers anyone who speaks to it, overhears what it may, and keeps nothing else."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from palaver.model.addressing import AddressingRules, AnswerMode
from palaver.model.key import ChatSelector, ScopedSetting
from palaver.model.platform import Ability, Platform
from palaver.model.source import GROUP, Source, Trust
from palaver.model.transcript import Role
from palaver.model.turn import Inbound
from palaver.protocols.agent import Request
from palaver.store.conversations.blob_store import BlobStore
from palaver.store.queue.welcome import FIRST_CONTACT_NOTE
from palaver.testkit.adapter import FakeAdapter
from palaver.testkit.platform import BOT, FakePlatform
from palaver.testkit.updates import File
from tests.engine.agents import Slow, noted
from tests.engine.gateway import Bench, MovableClock, running, until
from tests.store.conftest import fresh_store

MENTIONING = Platform(name="fake", title="Fake platform", abilities=frozenset({Ability.THREADS}), has_mentions=True)


async def inbox(here: Bench) -> int:
    return (await here.rows("SELECT count(*) FROM inbox"))[0][0]


def adapter(world: FakePlatform) -> FakeAdapter:
    return FakeAdapter(world, platform=MENTIONING)


async def test_in_a_group_only_who_addresses_the_agent_is_answered(store_url: str) -> None:
    world = FakePlatform()
    calls = ScopedSetting(default=AddressingRules(wake_words=frozenset({"computer"})))
    async with running(store_url, world, adapters=[adapter(world)], attention=calls) as here:
        alice = world.person("alice")
        group = world.group("friends", alice)
        for chatter in ("hello all", "/nonsense", "/status@other_bot", "computers are nice"):
            await group.say(alice, chatter)
        await here.settled()
        assert (group.shown, await inbox(here)) == ([], 0)
        await group.say(alice, "first", mentions=(BOT,))
        answer = await group.hears("first")
        await group.say(alice, "second", reply_to=answer.id)
        await group.hears("second")
        await group.say(alice, "Computer, third")
        await group.hears("third")
        await group.say(alice, "/status")
        await group.hears("idle")
        await group.say(alice, "between us", reply_to="1")
        await here.settled()
        assert await inbox(here) == 4
        chat = world.dm(alice)
        await chat.say(alice, "in private")
        await chat.hears("in private")


async def test_where_clients_keep_the_slash_another_sign_begins_a_command(store_url: str) -> None:
    world = FakePlatform()
    keeping = Platform(name="fake", title="Fake platform", has_mentions=True, keeps_slash=True)
    async with running(store_url, world, adapters=[FakeAdapter(world, platform=keeping)]) as here:
        alice = world.person("alice")
        chat, group = world.dm(alice), world.group("friends", alice)
        await chat.say(alice, " !Title Plans")
        await chat.hears("No conversation is open here")
        await chat.say(alice, "!help")
        listed = await chat.hears("Send !help and a command name for details.")
        assert not re.search(r"(?<!\w)/[a-z]", listed.text)
        await chat.say(alice, "!help !new")
        await chat.hears("Example: !new")
        await chat.say(alice, "!nothing of ours")
        await chat.hears("!nothing of ours")
        await group.say(alice, "!status")
        await group.hears("You have no open conversation here")
        await group.say(alice, "!important")
        await here.settled()
        assert len(group.shown) == 1


async def test_a_chat_can_be_free_and_a_kind_observed(store_url: str) -> None:
    world, agent = FakePlatform(), Slow()
    agent.go.set()
    alice = world.person("alice")
    free, quiet = world.group("free", alice), world.group("quiet", alice)
    attention = ScopedSetting(
        default=AddressingRules(),
        chats={ChatSelector("fake", free.id): AddressingRules(answers=AnswerMode.EVERYTHING)},
        kinds={GROUP: AddressingRules(observes=True)},
    )
    async with running(store_url, world, agent=agent, adapters=[adapter(world)], attention=attention) as here:
        await free.say(alice, "anybody")
        await free.hears("anybody")
        await quiet.say(alice, "between us")
        await here.settled()
        assert quiet.shown == []
        await quiet.say(alice, "what was it", mentions=(BOT,))
        await quiet.hears("what was it")
        assert "between us" in noted(agent.requests[-1])


PICTURE = File(name="cat.png", media_type="image/png", content=b"cat")
OBSERVING = ScopedSetting(default=AddressingRules(observes=True))


def overheard(request: Request) -> list[str]:
    """What stands between the markers of overheard talk in a request, in order."""
    return re.findall(r"overheard, not said to you, from [^⟧]*⟧ (.*?)\s*⟦end of overheard", noted(request), re.DOTALL)


async def test_what_is_overheard_belongs_to_the_chat_and_not_to_who_said_it(store_url: str) -> None:
    world, agent = FakePlatform(), Slow()
    agent.go.set()
    async with running(store_url, world, agent=agent, adapters=[adapter(world)], attention=OBSERVING) as here:
        store = here.store
        alice, bob, carol = world.person("alice"), world.person("bob"), world.person("carol")
        group, other = world.group("friends", alice, bob, carol), world.group("others", alice)
        await group.say(bob, "the xylophone is sold")
        await group.say(carol, "to whom")
        await group.say(alice, "first question", mentions=(BOT,))
        await group.hears("first question")
        assert overheard(agent.requests[-1]) == ["the xylophone is sold", "to whom"]
        assert noted(agent.requests[-1]).count(FIRST_CONTACT_NOTE) == 1
        await group.say(bob, "to the zoo")
        await group.say(bob, "question of bob", mentions=(BOT,))
        await group.hears("question of bob")
        assert overheard(agent.requests[-1]) == (heard := ["the xylophone is sold", "to whom", "to the zoo"])
        assert noted(agent.requests[-1]).count(FIRST_CONTACT_NOTE) == 1
        before = agent.requests[0].messages
        await group.say(alice, "second question", mentions=(BOT,))
        await group.hears("second question")
        assert overheard(agent.requests[-1]) == heard
        assert agent.requests[-1].messages[: len(before)] == before
        # Not in another chat.
        await other.say(alice, "third question", mentions=(BOT,))
        await other.hears("third question")
        assert overheard(agent.requests[-1]) == []
        # It is in a conversation of those who said it, and of nobody else.
        await here.settled()
        rows = await here.rows(
            "SELECT s.key, p.identity FROM sessions s JOIN participants p ON p.session_no = s.no"
            " WHERE EXISTS (SELECT 1 FROM entries e WHERE e.observed = 1 AND e.id / 16777216 = s.no) ORDER BY 2"
        )
        assert [tuple(row) for row in rows] == [
            (f"agent:main:fake:group:{group.id}:account:bot", f"fake:{each.id}") for each in (bob, carol)
        ]
        # Those who are forgotten take along what was overheard of them.
        number = await store.transact(store.erasures.request(f"fake:{bob.id}", datetime.now(UTC), by="operator"))
        assert number
        await store.erasures.resume_all(datetime.now(UTC))
        await group.say(alice, "fourth question", mentions=(BOT,))
        await group.hears("fourth question")
        assert overheard(agent.requests[-1]) == ["to whom"]


async def test_an_overheard_album_belongs_to_the_chat_too(store_url: str, tmp_path: Path) -> None:
    world, agent, shelf = FakePlatform(), Slow(), BlobStore(tmp_path / "files")
    agent.go.set()
    options: dict[str, Any] = {"shelf": shelf, "burst_window": timedelta(milliseconds=100), "attention": OBSERVING}
    async with running(store_url, world, agent=agent, adapters=[adapter(world)], **options) as here:
        alice, bob = world.person("alice"), world.person("bob")
        group = world.group("friends", alice, bob)
        for part in range(2):
            await group.say(bob, f"part {part}", files=(PICTURE,), album="a")
        await here.settled()
        await group.say(alice, "question", mentions=(BOT,))
        await group.hears("question")
        assert [text.partition("\n")[0] for text in overheard(agent.requests[-1])] == ["part 0", "part 1"]


async def test_an_overheard_album_belongs_to_its_own_chat_where_the_conversation_is_of_another(
    store_url: str, tmp_path: Path
) -> None:
    world, shelf = FakePlatform(), BlobStore(tmp_path / "files")
    options: dict[str, Any] = {"shelf": shelf, "burst_window": timedelta(milliseconds=100), "attention": OBSERVING}
    async with running(store_url, world, adapters=[adapter(world)], **options) as here:
        alice = world.person("alice")
        home, away = world.group("home", alice), world.group("away", alice)
        await home.say(alice, "/new Plans")
        await home.hears("Plans")
        await away.say(alice, "/attach Plans --yes")
        await away.hears("now continues")
        await away.say(alice, "overheard away", files=(PICTURE,), album="a")
        await here.settled()
        rows = await here.rows(
            "SELECT s.key FROM entries e JOIN sessions s ON s.no = e.id / 16777216 WHERE e.observed = 1"
        )
        assert [tuple(row) for row in rows] == [(f"agent:main:fake:group:{away.id}:account:bot",)]


@pytest.mark.parametrize("named", [0, 1])
async def test_someone_who_names_the_agent_with_one_picture_of_an_album_shows_it_all_of_them(
    store_url: str, tmp_path: Path, named: int
) -> None:
    world, agent, shelf = FakePlatform(), Slow(), BlobStore(tmp_path / "files")
    agent.go.set()
    options: dict[str, Any] = {"shelf": shelf, "burst_window": timedelta(milliseconds=200)}
    async with running(store_url, world, agent=agent, adapters=[adapter(world)], **options) as here:
        alice = world.person("alice")
        group = world.group("friends", alice)
        for part in range(2):
            mentions = (BOT,) if part == named else ()
            await group.say(alice, f"part {part}", files=(PICTURE,), album="a", mentions=mentions)
        await group.hears("part 0")
        await here.settled()
        entries = [entry for entry in await here.entries() if entry.role is Role.USER]
        assert [(entry.text, entry.observed, len(entry.files)) for entry in entries] == [
            ("part 0", False, 1),
            ("part 1", False, 1),
        ]
        # One that comes late, after a restart say, is of the same album.
        await group.say(alice, "part 2", files=(PICTURE,), album="a")
        await group.hears("part 2")
        assert len(agent.requests) == 2


class StandingClock(MovableClock):
    """Time passes only when the test says so: both parts arrive within the burst, however long that takes."""

    def __init__(self) -> None:
        super().__init__()
        self._began = super().now()

    def now(self) -> datetime:
        return self._began + self._ahead


@pytest.mark.parametrize("named", [0, 1])
async def test_two_workers_can_hear_of_one_album(postgres_server: str, named: int) -> None:
    url, worlds, clock = await fresh_store(postgres_server), (FakePlatform(), FakePlatform()), StandingClock()
    gateways = [
        running(url, world, adapters=[adapter(world)], worker=name, alone=False, clock=clock)
        for name, world in zip(("w1", "w2"), worlds, strict=True)
    ]
    async with gateways[0] as here, gateways[1] as there:
        for number, bench in enumerate((here, there)):
            source = Source(platform="fake", chat_kind=GROUP, chat_id="g", user_id="alice", message_id=str(number))
            said = Inbound(
                source=source, text=f"part {number}", at=datetime.now(UTC), burst="a", mentions_us=number == named
            )
            await bench.engine.receiver("fake", None).receive(said, Trust())
        clock.later(minutes=1)
        await until(lambda: _has_turned(here))
        entries = [entry for entry in await here.entries() if entry.role is Role.USER]
        assert [(entry.text, entry.observed) for entry in entries] == [("part 0", False), ("part 1", False)]


async def _has_turned(here: Bench) -> bool:
    return await here.rows("SELECT count(*) FROM turns") == [(1,)]


async def test_of_an_album_for_others_nothing_is_fetched_or_kept(store_url: str, tmp_path: Path) -> None:
    world, shelf = FakePlatform(), BlobStore(tmp_path / "files")
    options: dict[str, Any] = {"shelf": shelf, "burst_window": timedelta(0)}
    async with running(store_url, world, adapters=[adapter(world)], **options) as here:
        alice, bob = world.person("alice"), world.person("bob")
        group = world.group("friends", alice, bob)
        said = await group.say(alice, "xylophone", files=(PICTURE,), album="a")
        await group.say(bob, "not alice's", mentions=(BOT,), album="a")
        await group.hears("not alice's")
        await here.settled()
        rows = await here.rows("SELECT state, length(body) FROM inbox ORDER BY no")
        assert (rows[0], len(await here.rows("SELECT 1 FROM sessions"))) == (("done", 0), 1)
        assert not [each for each in (tmp_path / "files").rglob("*") if each.is_file()]
        # What is changed in it later is none of our business either.
        await group.edit(alice, said, "xylophones")
        await here.settled()
        assert len(await here.rows("SELECT 1 FROM inbox")) == 2


async def test_an_album_of_a_stranger_is_not_refused_but_passed_over(store_url: str) -> None:
    world = FakePlatform()
    async with running(store_url, world, adapters=[adapter(world)], grants=()) as here:
        alice = world.person("alice")
        await world.group("friends", alice).say(alice, "xylophone", files=(PICTURE,), album="a")
        await here.settled()
        assert await inbox(here) == 0


async def test_nobody_is_introduced_by_what_they_say_to_others(tmp_path: Path) -> None:
    """In a thread all share the conversation in which talk is overheard."""
    world, agent = FakePlatform(), Slow()
    agent.go.set()
    async with running(tmp_path / "p.db", world, agent=agent, adapters=[adapter(world)], attention=OBSERVING):
        alice, bob = world.person("alice"), world.person("bob")
        group = world.group("friends", alice, bob)
        await group.say(bob, "anybody here", thread="5")
        await group.say(alice, "first question", thread="5", mentions=(BOT,))
        await group.hears("first question")
        assert noted(agent.requests[-1]).count(FIRST_CONTACT_NOTE) == 1


async def test_what_strangers_say_to_others_is_not_kept(store_url: str) -> None:
    world = FakePlatform()
    hears = ScopedSetting(default=AddressingRules(observes=True))
    async with running(store_url, world, adapters=[adapter(world)], attention=hears, grants=()) as here:
        alice = world.person("alice")
        group = world.group("friends", alice)
        await group.say(alice, "xylophone")
        await here.settled()
        rows = await here.rows("SELECT state, body FROM inbox")
        assert [state for state, _ in rows] == ["refused"]
        assert b"xylophone" not in rows[0][1]
