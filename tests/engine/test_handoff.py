"""A conversation that is handed off to the home channel of another platform, and back."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from palaver.db.transaction import Transaction
from palaver.engine.delivery.worker import DeliveryWorker
from palaver.model.access import AccessRole, Effect, Grant
from palaver.model.source import Source
from palaver.model.turn import Outbound
from palaver.platforms.terminal.adapter import TerminalAdapter
from palaver.protocols.agent import Event, Final, Request
from palaver.protocols.clock import SystemClock
from palaver.store.people import grants
from palaver.testkit.adapter import FakeAdapter
from palaver.testkit.faults import Faults, SendFault
from palaver.testkit.platform import FakePlatform, LoopClock
from tests.engine.agents import Scripted, heard, noted
from tests.engine.gateway import NoPauses, running
from tests.engine.places import Two, between
from tests.platforms.terminal.people import Person, PlainDesk

ADMINS = (Grant(role=AccessRole.ADMIN),)


async def _recall(request: Request) -> AsyncGenerator[Event]:
    """Says everything that it was shown."""
    yield Final(text=f"answer to: {heard(request)}; I know: {noted(request)}")


async def thread_of(two: Two) -> str:
    rows = await two.here.rows("SELECT receipt FROM outbox WHERE cause_kind = 'handoff'")
    return rows[0][0]


async def test_to_a_new_thread_of_the_home_and_back(store_url: str) -> None:
    async with between(store_url, grants=ADMINS, agent=Scripted(_recall)) as two:
        alice, owner = two.fake.person("alice"), two.other.person("owner")
        chat, home = two.fake.dm(alice), two.other.group("Home", owner)
        await two.set_home(direct := two.other.dm(owner), owner)
        block = Grant(effect=Effect.BLOCK, platform="other", user_id=owner.id)
        number = await two.here.store.transact(grants.add(block, datetime.now(UTC), by="operator"))
        assert "There is no home channel on" in await two.ask(chat, alice, "/handoff other --yes")
        assert [each.text for each in direct.shown if "continues here" in each.text] == []
        await two.here.store.transact(grants.remove(number, datetime.now(UTC), by="operator"))
        await two.set_home(home, owner)
        await two.ask(chat, alice, "/new Plans")
        await two.ask(chat, alice, "the plan is blue")
        asked = "If you move this conversation to the home channel of other, everybody who writes there can read all"
        assert asked in await two.ask(chat, alice, "/handoff other")
        assert await two.here.rows("SELECT 1 FROM operations WHERE kind = 'handoff'") == []
        told = await two.ask(chat, alice, "/handoff other --yes")
        assert "home channel of other, where everybody who writes there can read all of it." in told
        opening = await home.hears("“Plans” continues here")
        await chat.hears("continues in the home channel of other")
        assert opening.thread == await thread_of(two)
        answered = await two.ask(home, owner, "which colour", thread=opening.thread)
        assert "the plan is blue" in answered
        assert "moved this conversation from fake to other" in answered
        assert home.shown[-1].thread == opening.thread
        assert "blue" not in await two.ask(chat, alice, "which colour")
        assert "Undid the last handoff" in await two.ask(chat, alice, "/back")
        await home.hears("was moved back")
        assert "the plan is blue" in await two.ask(chat, alice, "which colour")
        assert "blue" not in await two.ask(home, owner, "and now", thread=opening.thread)


async def test_sent_back_from_the_new_place(store_url: str) -> None:
    async with between(store_url, grants=ADMINS, agent=Scripted(_recall)) as two:
        alice, owner = two.fake.person("alice"), two.other.person("owner")
        chat, home = two.fake.dm(alice), two.other.dm(owner)
        await two.set_home(home, owner)
        await two.ask(home, owner, "at home")
        await two.ask(chat, alice, "the plan is blue")
        reader = f'other:{owner.id} ("owner") can read all of it'
        assert reader in await two.ask(chat, alice, "/handoff other"), "the direct chat of another person"
        assert reader in await two.ask(chat, alice, "/handoff other --yes")
        await home.hears("continues here")
        await chat.hears("continues in the home channel")
        assert "blue" in await two.ask(home, owner, "which colour")
        await two.ask(home, owner, "/back")
        await chat.hears("you handed off is back")
        assert "blue" in await two.ask(chat, alice, "which colour")
        assert "blue" not in await two.ask(home, owner, "which colour")
        assert "at home" in await two.ask(home, owner, "again")
        assert "There is nothing to undo." in await two.ask(chat, alice, "/back")


async def test_from_an_attached_place_nothing_is_handed_off(tmp_path: Path) -> None:
    """It would come back where it is at home, and the people there would not know where it went."""
    async with between(str(tmp_path / "p.db"), grants=ADMINS) as two:
        alice, ally = two.fake.person("alice"), two.other.person("ally")
        chat, second, home = two.fake.dm(alice), two.fake.dm(alice), two.other.dm(ally)
        await two.set_home(home, ally)
        await two.ask(chat, alice, "/new Plans")
        await two.ask(second, alice, "/attach Plans")
        assert "only from its own chat" in await two.ask(second, alice, "/handoff other --yes")
        assert await two.here.rows("SELECT 1 FROM operations WHERE kind = 'handoff'") == []


async def test_a_missing_home_is_said_with_what_to_do(store_url: str) -> None:
    async with between(store_url, grants=ADMINS) as two:
        alice = two.fake.person("alice")
        chat = two.fake.dm(alice)
        await two.ask(chat, alice, "hello")
        told = await two.ask(chat, alice, "/handoff other --yes")
        assert "no home channel" in told
        assert "/sethome" in told
        assert "You said: still here" in await two.ask(chat, alice, "still here")
        assert len(await two.here.rows("SELECT 1 FROM sessions")) == 1


async def test_a_member_hands_nothing_to_where_others_read(store_url: str) -> None:
    grants = (Grant(platform="fake", role=AccessRole.MEMBER), Grant(platform="other", role=AccessRole.ADMIN))
    async with between(store_url, grants=grants) as two:
        alice, owner = two.fake.person("alice"), two.other.person("owner")
        chat, home = two.fake.dm(alice), two.other.group("Home", owner)
        await two.set_home(home, owner)
        await two.ask(chat, alice, "the canary")
        assert "admin role" in await two.ask(chat, alice, "/handoff other --yes")
        assert len(home.shown) == 1


async def test_a_member_hands_their_own_to_their_own_chat(store_url: str) -> None:
    async with between(store_url) as two:
        alice = two.fake.person("alice")
        chat, home = two.fake.dm(alice), two.fake.dm(alice)
        address = Source(platform="fake", account="bot", chat_id=home.id, user_id=alice.id)
        store = two.here.store
        await store.transact(store.accounts.set_home("main", address, LoopClock().now(), by="owner"))
        await two.ask(chat, alice, "mine")
        await two.ask(chat, alice, "/handoff fake --yes")
        await home.hears("continues here")
        await chat.hears("continues in the home channel")
        await two.ask(home, alice, "still mine")
        assert "still mine" in await two.here.texts(await two.session_of("mine"))


async def test_called_back_before_it_arrived(store_url: str) -> None:
    other = FakePlatform(faults=Faults(busy_for=0.05))
    async with between(store_url, other=other, grants=ADMINS) as two:
        alice, owner = two.fake.person("alice"), other.person("owner")
        chat, home = two.fake.dm(alice), other.group("Home", owner)
        await two.set_home(home, owner)
        await two.ask(chat, alice, "one")
        home.away = True
        await two.ask(chat, alice, "/handoff other --yes")
        await two.ask(chat, alice, "/back")
        assert "two" in await two.ask(chat, alice, "two")
        home.away = False
        await home.hears("was moved back")
        assert "two" in await two.here.texts(await two.session_of("one"))


@pytest.mark.parametrize("mishap", [SendFault.GONE, SendFault.LOST_AFTER])
async def test_what_cannot_be_handed_off_stays(store_url: str, mishap: SendFault) -> None:
    """A thread that may have been opened is not opened again."""
    async with between(store_url, grants=ADMINS, chance=NoPauses()) as two:
        alice, owner = two.fake.person("alice"), two.other.person("owner")
        chat, home = two.fake.dm(alice), two.other.group("Home", owner)
        await two.set_home(home, owner)
        await two.ask(chat, alice, "one")
        two.other.injector.script.append(mishap)
        await chat.say(alice, "/handoff other --yes")
        await chat.hears("could not be handed off to other. It continues here")
        await two.ask(chat, alice, "two")
        assert "two" in await two.here.texts(await two.session_of("one"))
        assert len([message for message in home.shown if "continues here" in message.text]) <= 1


async def test_a_chat_without_threads_gets_it_as_it_is(store_url: str) -> None:
    async with between(store_url, grants=ADMINS) as two:
        alice, owner = two.fake.person("alice"), two.other.person("owner")
        chat, home = two.fake.dm(alice), two.other.group("Home", owner)
        home.has_threads = False
        await two.set_home(home, owner)
        await two.ask(chat, alice, "one")
        await two.ask(chat, alice, "/handoff other --yes")
        assert (await home.hears("continues here")).thread is None
        await chat.hears("continues in the home channel")
        await two.ask(home, owner, "two")
        assert "two" in await two.here.texts(await two.session_of("one"))


async def test_a_handoff_that_a_crash_cut_off_arrives_once(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed between the send and the step that records it: here sending twice shows once."""
    fake, other = FakePlatform(), FakePlatform(repeats_safely=True)
    stuck = asyncio.Event()

    arrival = DeliveryWorker._arrival  # pyright: ignore[reportPrivateUsage]

    async def never(self: DeliveryWorker, announced: Outbound, receipt: str, now: datetime) -> Transaction[None] | None:
        if announced.handoff is not None:
            stuck.set()
            await asyncio.Event().wait()
        return await arrival(self, announced, receipt, now)

    alice, owner = fake.person("alice"), other.person("owner")
    chat, home = fake.dm(alice), other.group("Home", owner)
    async with between(store_url, fake, other, grants=ADMINS, safe=True) as two:
        await two.set_home(home, owner)
        await two.ask(chat, alice, "one")
        monkeypatch.setattr(DeliveryWorker, "_arrival", never)
        await two.ask(chat, alice, "/handoff other --yes")
        await stuck.wait()
    monkeypatch.setattr(DeliveryWorker, "_arrival", arrival)
    async with between(store_url, fake, other, grants=ADMINS, safe=True, worker="w2") as two:
        await chat.hears("continues in the home channel of other")
        assert len([message for message in home.shown if "continues here" in message.text]) == 1
        await two.ask(home, owner, "two", thread=await thread_of(two))
        assert "two" in await two.here.texts(await two.session_of("one"))


async def test_handed_off_twice_it_goes_once(store_url: str) -> None:
    async with between(store_url, grants=ADMINS) as two:
        alice, owner = two.fake.person("alice"), two.other.person("owner")
        chat, home = two.fake.dm(alice), two.other.group("Home", owner)
        await two.set_home(home, owner)
        await two.ask(chat, alice, "one")
        for _ in range(2):
            await chat.say(alice, "/handoff other --yes")
        await chat.hears("no conversation to hand off")
        await chat.hears("continues in the home channel")
        await two.here.settled()
        assert len([message for message in home.shown if "continues here" in message.text]) == 1


async def test_from_the_terminal_to_a_platform_and_back(tmp_path: Path) -> None:
    """The terminal of `palaver chat` over its socket, the engine between."""
    path, world = tmp_path / "t.sock", FakePlatform()
    terminal = TerminalAdapter(path, PlainDesk(), SystemClock())
    owner = world.person("owner")
    home = world.group("Home", owner)
    grants = (Grant(platform="terminal", role=AccessRole.OWNER), Grant(platform="fake", role=AccessRole.ADMIN))
    both = [terminal, FakeAdapter(world)]
    async with running(tmp_path / "p.db", world, adapters=both, grants=grants, agent=Scripted(_recall)) as here:
        await home.say(owner, "/sethome")
        await home.hears("home channel")
        person = Person(path)
        async with person.present() as paper:
            for said, heard_back in (
                ("the plan is blue", "answer to: the plan is blue"),
                ("/handoff fake --yes", "continues in the home channel of fake"),
            ):
                person.say(said)
                await paper.until(lambda words=heard_back: words in "\n".join(paper.texts))
            opening = await home.hears("handed off from terminal")
            await home.say(owner, "which colour", thread=opening.thread)
            answer = await home.hears("answer to: which colour")
            assert "the plan is blue" in answer.text
            assert answer.thread == opening.thread
            person.say("/back")
            await paper.until(lambda: "Undid the last handoff" in "\n".join(paper.texts))
            await home.hears("moved back to where it came from")
            person.say("and now")
            await paper.until(lambda: "answer to: and now" in paper.texts[-1])
            assert "which colour" in paper.texts[-1]
        await here.settled()
