"""A stranger writes, is given a code, is let in, and what they said is answered."""

import asyncio
import re
from datetime import timedelta
from pathlib import Path

from palaver.db.transaction import Lock, Statements, transaction
from palaver.engine import texts
from palaver.engine.explain import explain
from palaver.model.access import AccessRole, Grant
from palaver.model.key import DmScope, Scope, ScopedSetting
from palaver.model.label import Label
from palaver.model.people import CODE_ALPHABET, MAX_ANNOUNCED_STRANGERS
from palaver.model.platform import Platform
from palaver.model.source import Source, Trust
from palaver.model.turn import Inbound
from palaver.protocols.clock import SystemClock
from palaver.store.status.invariants import violations
from palaver.testkit.adapter import FAKE, FakeAdapter
from palaver.testkit.platform import FakePlatform, LoopClock
from palaver.testkit.updates import File
from tests.engine.gateway import Bench, MovableClock, running, until
from tests.engine.test_moved_chats import WAITS
from tests.store.conftest import fresh_store
from tests.store.world import NOON

CODE = re.compile(f"[{CODE_ALPHABET}]{{8}}")


async def approve(here: Bench, code: str, clock: MovableClock, role: AccessRole = AccessRole.MEMBER) -> bool:
    scope_of = here.engine.settings.scopes.find
    work = here.store.pairing.approve(code, role, clock.now(), by="operator", notice=texts.PAIRED, scope_of=scope_of)
    return await here.store.transact(work) is not None


async def test_a_stranger_is_let_in_and_answered(store_url: str) -> None:
    clock = MovableClock()
    async with running(store_url, clock=clock, grants=()) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "first words")
        code = CODE.search((await chat.hears("Your code is")).text)
        assert code
        await chat.say(alice, "more words")
        await chat.say(alice, "/status")
        await here.settled()
        assert len(chat.shown) == 1
        assert await approve(here, code[0], clock)
        await chat.hears("first words")
        await chat.hears("more words")
        await chat.hears("idle")
        await chat.say(alice, "and now")
        await chat.hears("and now")
        assert [message.text for message in chat.shown].count(texts.PAIRED) == 1
        said = Inbound(source=Source(platform="fake", account="bot", chat_id=chat.id, user_id="p1"), text="", at=NOON)
        step = explain(said, Trust(), NOON, settings=here.engine.settings, accounts={"fake:bot": FAKE}, commands={})
        (rule,) = (await here.store.read(step)).access_rules
        assert rule.where == "grant 1 of palaver grants list, given by operator"
        assert "approved" in chat.shown[1].text


@transaction
def _approve_once_somebody_waits(here: Bench, held: asyncio.Event) -> Statements[bool]:
    yield Lock("pairing")
    held.set()
    while not (yield WAITS, ()):
        pass
    work = here.store.pairing.approve("fake:p1", AccessRole.MEMBER, LoopClock().now(), by="operator", notice="Welcome!")
    return (yield from work) is not None


async def test_somebody_who_writes_while_they_are_approved_gets_no_further_code(postgres_server: str) -> None:
    async with running(await fresh_store(postgres_server), grants=()) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "first words")
        await chat.hears("Your code is")
        held = asyncio.Event()
        approving = asyncio.create_task(here.store.transact(_approve_once_somebody_waits(here, held)))
        await held.wait()
        await chat.say(alice, "more words")
        assert await approving
        await chat.hears("You said: more words")
        await here.settled()
        assert sum("Your code is" in message.text for message in chat.shown) == 1
        assert await here.rows("SELECT 1 FROM pairings") == []


async def test_a_new_owner_is_answered_in_the_conversation_that_owners_share(tmp_path: Path) -> None:
    clock, shared = MovableClock(), ScopedSetting(default=Scope(dm=DmScope.SHARED))
    async with running(tmp_path / "p.db", clock=clock, grants=(), scopes=shared) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "first words")
        code = CODE.search((await chat.hears("Your code is")).text)
        assert code
        assert await approve(here, code[0], clock, AccessRole.OWNER)
        await chat.hears("You said: first words")
        await chat.say(alice, "more words")
        await chat.hears("You said: more words")
        assert len(await here.rows("SELECT 1 FROM sessions")) == 1


async def test_a_pairing_holds_for_the_account_it_was_asked_at(tmp_path: Path) -> None:
    world, clock = FakePlatform(), MovableClock()
    adapters = [FakeAdapter(world), FakeAdapter(world, "second")]
    async with running(tmp_path / "p.db", world, adapters=adapters, clock=clock, grants=()) as here:
        alice = world.person("alice")
        chat, elsewhere = world.dm(alice), world.dm(alice, account="second")
        await chat.say(alice, "first words")
        code = CODE.search((await chat.hears("Your code is")).text)
        assert code
        assert await approve(here, code[0], clock)
        await chat.hears("first words")
        await elsewhere.say(alice, "here too?")
        await elsewhere.hears("Your code is")


async def test_three_throwaway_accounts_do_not_keep_pairing_shut(tmp_path: Path) -> None:
    clock = MovableClock()
    async with running(tmp_path / "p.db", clock=clock, grants=()) as here:
        for name in ("throwaway 1", "throwaway 2", "throwaway 3", "honest"):
            person = here.world.person(name)
            chat = here.world.dm(person)
            await chat.say(person, "let me in")
            code = CODE.search((await chat.hears("Your code is")).text)
        assert code
        assert await approve(here, code[0], clock)
        await chat.hears("You said: let me in")


async def test_a_code_is_nowhere_once_it_was_said(store_url: str) -> None:
    """Neither one that lets a stranger in, nor one that links two accounts."""
    async with running(
        store_url, grants=(Grant(platform="fake", user_id="p2"),), sweep_every=timedelta(milliseconds=20)
    ) as here:
        alice, bob = here.world.person("alice"), here.world.person("bob")
        chat, his = here.world.dm(alice), here.world.dm(bob)
        await chat.say(alice, "let me in")
        await his.say(bob, "/link")
        said = [await chat.hears("Your code is"), await his.hears("Your code is")]
        codes = [code[0] for message in said if (code := CODE.search(message.text))]
        assert len(codes) == 2
        await until(lambda: _is_nowhere(here, codes))
        assert await here.rows("SELECT * FROM wiped_after_send") == []
        assert await here.rows("SELECT count(*) FROM outbox WHERE state = 'delivered'") == [(2,)]


async def _is_nowhere(here: Bench, codes: list[str]) -> bool:
    rows = await here.rows("SELECT body FROM outbox")
    return not any(code.encode() in bytes(row[0]) for row in rows for code in codes)


async def test_what_a_stranger_has_deleted_is_not_answered_when_they_are_let_in(store_url: str) -> None:
    clock = MovableClock()
    async with running(store_url, clock=clock, grants=()) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        first = await chat.say(alice, "first words")
        code = CODE.search((await chat.hears("Your code is")).text)
        assert code
        await chat.say(alice, "more words")
        await chat.delete(alice, first)
        await here.settled()
        assert await approve(here, code[0], clock)
        await chat.hears("more words")
        await here.settled()
        assert not [message for message in chat.shown if "first words" in message.text]
        assert await here.store.read(violations()) == []


async def test_an_owner_by_code_can_do_what_owners_can(store_url: str) -> None:
    clock = MovableClock()
    async with running(store_url, clock=clock, grants=()) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "hello")
        code = CODE.search((await chat.hears("Your code is")).text)
        assert code
        assert await approve(here, code[0], clock, AccessRole.OWNER)
        await chat.hears("hello")
        await chat.say(alice, "/sethome")
        await chat.hears("home channel")


async def test_groups_bots_and_platforms_without_pairing_get_silence(store_url: str) -> None:
    world = FakePlatform()
    off = ScopedSetting(default=True, platforms={"other": False})
    other = FakeAdapter(world, "second", platform=Platform(name="other", title="Other"))
    machine = FakeAdapter(world, "third", platform=Platform(name="machine", title="API", for_people=False))
    mail = FakeAdapter(world, "fourth", platform=Platform(name="mail", title="Mail", anybody_writes=True))
    adapters = [FakeAdapter(world), other, machine, mail]
    async with running(store_url, world, adapters=adapters, grants=(), pairing=off) as here:
        alice, robot = world.person("alice"), world.person("robot", is_bot=True)
        chats = [
            world.group("friends", alice),
            world.dm(robot),
            world.dm(alice, account="second"),
            world.dm(alice, account="third"),
            world.dm(alice, account="fourth"),
        ]
        file = File(name="xylophone.png", media_type="image/png", content=b"xylophone")
        for chat in chats:
            first = await chat.say(chat.people[0], "xylophone", files=(file,))
            await chat.say(chat.people[0], "so?", reply_to=first.id)
            await chat.edit(chat.people[0], first, "xylophones")
        await here.settled()
        assert [chat.shown for chat in chats] == [[]] * 5
        assert await here.rows("SELECT state, count(*) FROM inbox GROUP BY state") == [("refused", 15)]
        bodies = await here.rows("SELECT body FROM inbox")
        assert not any(b"xylophone" in body for (body,) in bodies), "of those who are refused no word is kept"
        assert await here.rows("SELECT 1 FROM pairings") == []


async def test_where_anybody_writes_pairing_is_switched_on(tmp_path: Path) -> None:
    world = FakePlatform()
    adapters = [FakeAdapter(world, platform=Platform(name="fake", title="Mail", anybody_writes=True))]
    on = ScopedSetting(default=True, platforms={"fake": True})
    async with running(tmp_path / "p.db", world, adapters=adapters, grants=(), pairing=on):
        alice = world.person("alice")
        chat = world.dm(alice)
        await chat.say(alice, "hello")
        await chat.hears("Your code is")


async def test_what_was_kept_of_a_stranger_goes_when_they_are_denied_or_nobody_approves_them(store_url: str) -> None:
    clock, file = MovableClock(), File(name="xylophone.png", media_type="image/png", content=b"xylophone")
    async with running(store_url, clock=clock, grants=(), sweep_every=timedelta(milliseconds=20)) as here:
        reasons = ["a stranger: access was denied", "a stranger: nobody approved them in time"]
        for name, reason in zip(("alice", "bob"), reasons, strict=True):
            person = here.world.person(name)
            chat = here.world.dm(person)
            first = await chat.say(person, "xylophone", files=(file,))
            await chat.hears("Your code is")
            await chat.say(person, "so?", reply_to=first.id)
            await here.settled()
            if name == "alice":
                await here.store.transact(here.store.pairing.deny("fake:p1", clock.now(), by="owner"))
            else:
                clock.later(hours=1)
            await until(lambda reason=reason: _is_gone(here, reason))


async def _is_gone(here: Bench, reason: str) -> bool:
    rows = await here.rows("SELECT body FROM inbox WHERE reason = ?", reason)
    return len(rows) == 2 and not any(b"xylophone" in body for (body,) in rows)


async def test_strangers_who_flood_hear_little(store_url: str) -> None:
    async with running(store_url, grants=()) as here:
        people = [here.world.person(f"p{number}") for number in range(6)]
        chats = [here.world.dm(person) for person in people]
        for _ in range(5):
            for person, chat in zip(people, chats, strict=True):
                await chat.say(person, "let me in")
        await here.settled()
        assert [len(chat.shown) for chat in chats] == [1] * 6


async def test_the_owner_learns_who_asks_in_words_nobody_can_forge_and_not_how_to_get_in(store_url: str) -> None:
    """In the window too, if they wrote nowhere else. A crowd is summed up."""
    world, grants = FakePlatform(), (Grant(platform="window", role=AccessRole.OWNER),)
    window = FakeAdapter(world, "w", platform=Platform(name="window", title="Window", place="window"))
    adapters, sweep = [FakeAdapter(world), window], timedelta(milliseconds=20)
    async with running(store_url, world, adapters=adapters, grants=grants, sweep_every=sweep) as here:
        owner = world.person("owner")
        own = world.dm(owner, account="w")
        await own.say(owner, "hello")
        await own.hears("You said: hello")
        people = [world.person(f'eve {number}") is fine. ("') for number in range(MAX_ANNOUNCED_STRANGERS + 3)]
        for person in people:
            chat = world.dm(person)
            await chat.say(person, "xylophone")
            code = CODE.search((await chat.hears("Your code is")).text)
            assert code
            assert not [each for each in own.shown if "xylophone" in each.text or code[0] in each.text]
        await own.hears("More people ask fake:bot for access. /pair lists them.")
        await here.settled()
        told = [message.text for message in own.shown[1:]]
        assert len(told) == MAX_ANNOUNCED_STRANGERS + 1
        name = Label(people[0].name).quoted()
        assert told[0].startswith(
            f"fake:{people[0].id} (`{name}`) asks fake:bot for access. Approve with /pair approve "
        )
        await own.say(owner, "/pair")
        await own.hears("These people ask for access.")
        await here.settled()
        await here.store.transact(
            here.store.erasures.request(f"fake:{people[0].id}", SystemClock().now(), by="operator")
        )
        await here.store.erasures.resume_all(SystemClock().now())
        await until(lambda: _is_nowhere(here, [f"fake:{people[0].id} "]))


async def test_a_stranger_hears_of_nobody_who_asks_even_if_their_chat_is_a_home(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db", grants=()) as here:
        alice, bob = here.world.person("alice"), here.world.person("bob")
        chat = here.world.dm(alice)
        source = Source(platform="fake", account="bot", chat_id=chat.id, user_id=alice.id)
        await here.store.transact(here.store.accounts.set_home("main", source, SystemClock().now(), by="operator"))
        await chat.say(alice, "hello?")
        await chat.hears("Your code is")
        other = here.world.dm(bob)
        await other.say(bob, "me too")
        await other.hears("Your code is")
        await here.settled()
        assert len(chat.shown) == 1
