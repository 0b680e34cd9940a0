"""What happens is posted, signed, once, in spite of crashes and receivers that fail."""

import asyncio
import logging
import re
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from palaver.agents.echo import EchoAgent
from palaver.engine.settings import Agents
from palaver.model.access import AccessRole, Grant
from palaver.model.key import ScopedSetting
from palaver.model.reset import ResetMode, ResetPolicy
from palaver.platforms.webhook.adapter import WebhookAdapter
from palaver.platforms.webhook.send import Poster
from palaver.protocols.adapter import PlatformRefused
from palaver.protocols.hooks import EventKind, EventSubscription, GatewayEvent
from palaver.testkit.adapter import FakeAdapter
from palaver.testkit.chat import Chat
from palaver.testkit.platform import FakePlatform, LoopClock
from tests.engine.gateway import Bench, MovableClock, NoPauses, running, until
from tests.platforms.webhook.calling import GRANTS, account, call, called
from tests.platforms.webhook.loopback import Endpoint, Said, serving

EVENTS = [kind.value.replace(" ", ".") for kind in EventKind]
TURN = ["session.started", "turn.started", "turn.finished", "message.delivered"]
NOBODY = "http://127.0.0.1:9/"


@pytest.fixture
async def receiver() -> AsyncGenerator[Endpoint]:
    found = Endpoint()
    async with serving(found.answer) as url:
        found.url = url
        yield found


def watching(url: str, name: str = "audit", **options: object) -> WebhookAdapter:
    return account(name, url=url, **{"events": EVENTS, **options})


async def say(here: Bench, text: str = "hello") -> Chat:
    alice = here.world.person("alice")
    chat = here.world.dm(alice)
    await chat.say(alice, text)
    return chat


async def test_a_turn_is_reported_signed_and_without_content(
    tmp_path: Path, receiver: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    world = FakePlatform()
    async with running(
        tmp_path / "p.db", world, adapters=[FakeAdapter(world), watching(f"{receiver.url}/s3cret")], grants=GRANTS
    ) as here:
        await say(here)
        await until(lambda: sorted(receiver.types) == sorted(TURN))
        told = {payload["type"]: payload for payload in receiver.payloads}
        (session,) = await here.rows("SELECT id, key FROM sessions")
        assert told["turn.finished"]["data"] == {"key": session[1], "session": session[0], "turn": "turn:1"}
        data = told["message.delivered"]["data"]
        assert re.fullmatch("out:1[.]0-[0-9a-f]{6}", data.pop("delivery"))
        assert data == {"turn": "turn:1"}
        assert b"hello" not in b"".join(post.body for post in receiver.posts)
        await here.settled()
        await until(lambda: EventKind.MESSAGE_DELIVERED in [happening.kind for happening in here.happened])
        assert len(receiver.posts) == len(TURN), "that an event was delivered is no event"
    assert "s3cret" not in caplog.text


async def test_content_goes_along_where_it_is_asked_for(tmp_path: Path, receiver: Endpoint) -> None:
    world = FakePlatform()
    adapter = watching(receiver.url, events=["message.delivered"], content=True)
    async with running(tmp_path / "p.db", world, adapters=[FakeAdapter(world), adapter], grants=GRANTS) as here:
        await say(here)
        await until(lambda: len(receiver.taken) == 1)
        assert receiver.payloads[0]["data"]["text"] == "You said: hello"


async def test_what_is_not_taken_is_posted_again_under_the_same_id(tmp_path: Path, receiver: Endpoint) -> None:
    receiver.plans += [Said(500), Said(302, headers={"location": "/elsewhere"}), "lost", "taken", Said(404)]
    world = FakePlatform()
    adapter = watching(receiver.url, events=["turn.finished"])
    async with running(
        tmp_path / "p.db", world, adapters=[FakeAdapter(world), adapter], grants=GRANTS, chance=NoPauses()
    ) as here:
        await say(here)
        await here.settled()
        assert receiver.types == ["turn.finished"]
        assert len(receiver.posts) == 6
        assert len({(post.path, post.headers["webhook-id"], post.body) for post in receiver.posts}) == 1


async def test_a_receiver_that_is_not_there_delays_nobody(tmp_path: Path, receiver: Endpoint) -> None:
    world = FakePlatform()
    adapters = [FakeAdapter(world), watching(NOBODY, "dead"), watching(receiver.url)]
    async with running(tmp_path / "p.db", world, adapters=adapters, grants=GRANTS) as here:
        chat = await say(here)
        await chat.hears("You said: hello")
        await until(lambda: len(receiver.taken) == len(TURN))
        rows = await here.rows("SELECT count(*) FROM outbox WHERE account = 'webhook:dead' AND state <> 'delivered'")
        assert rows == [(len(TURN),)]


async def test_what_was_owed_before_a_crash_is_posted_after_it(tmp_path: Path, receiver: Endpoint) -> None:
    world = FakePlatform()
    async with running(
        tmp_path / "p.db", world, adapters=[FakeAdapter(world), watching(NOBODY)], grants=GRANTS
    ) as here:
        await (await say(here)).hears("You said: hello")
        await until(lambda: EventKind.MESSAGE_DELIVERED in [happening.kind for happening in here.happened])
    async with running(
        tmp_path / "p.db",
        world,
        adapters=[FakeAdapter(world), watching(receiver.url)],
        grants=GRANTS,
        clock=_later(),
    ):
        await until(lambda: sorted(receiver.types) == sorted(TURN))


def _later() -> MovableClock:
    clock = MovableClock()
    clock.later(minutes=10)
    return clock


async def test_a_receiver_that_is_gone_is_switched_off_until_it_is_tried_again_and_the_owner_told(
    tmp_path: Path, receiver: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.otherwise = Said(410)
    world = FakePlatform()
    adapter = watching(receiver.url, events=["turn.finished"])
    owner = (Grant(platform="fake", role=AccessRole.OWNER),)
    async with running(tmp_path / "p.db", world, adapters=[FakeAdapter(world), adapter], grants=owner) as here:
        alice = here.world.person("alice")
        home = here.world.dm(alice)
        await home.say(alice, "/sethome")
        await here.settled()
        for text in ("one", "two", "three"):
            await home.say(alice, text)
            await here.settled()
        await home.hears("webhook:audit")
        assert len(receiver.posts) == 1
        assert await here.rows("SELECT count(*) FROM outbox WHERE account = 'webhook:audit' AND state = 'dead'") == [
            (3,)
        ]
        assert await here.rows("SELECT count(*) FROM gone_chats") == [(0,)]
        await until(lambda: _is(here, "refused"))
        receiver.otherwise = Said(204)
        here.engine.reload(here.engine.settings, Agents(EchoAgent()))

        async def is_told_again() -> bool:
            await home.say(alice, "four")
            await here.settled()
            return "turn.finished" in receiver.types

        await until(is_told_again)
        await until(lambda: _is(here, "connected"))
    assert [getattr(each, "account", "") for each in caplog.records if getattr(each, "action", "") == "chat.gone"] == [
        "webhook:audit"
    ]


async def _is(here: Bench, state: str) -> bool:
    found = await here.store.read(here.store.accounts.list_health(LoopClock().now()))
    return state in [each.state for each in found if each.platform == "webhook"]


async def test_someone_who_says_gone_to_several_at_once_is_gone_once(receiver: Endpoint) -> None:
    receiver.otherwise = Said(410)
    postman, ready = Poster(receiver.url, None), asyncio.Event()

    async def connected() -> None:
        ready.set()

    at_work = asyncio.create_task(postman.serve(connected))
    await ready.wait()
    posts = (postman.post(b"{}", f"msg_{number}", datetime.now(UTC)) for number in range(3))
    said = await asyncio.gather(*posts, return_exceptions=True)
    with pytest.raises(PlatformRefused):
        await at_work
    assert sorted(type(error).__name__ for error in said) == ["SendRefused", "SendRefused", "TargetGone"]


def test_an_event_that_is_refused_holds_up_those_of_its_own_session_alone() -> None:
    events = [
        GatewayEvent(kind=kind, at=datetime.now(UTC), session=f"s{number}", turn=1)
        for number in range(20)
        for kind in (EventKind.TURN_STARTED, EventKind.TURN_FINISHED)
    ]
    subscription = EventSubscription(platform="webhook", account="audit", kinds=frozenset(EventKind))
    messages = [message for event in events if (message := subscription.message(event))]
    assert len({message.chat_id for message in messages}) == 20


async def test_commands_and_the_end_of_time_are_reported(tmp_path: Path, receiver: Endpoint) -> None:
    world, clock = FakePlatform(), MovableClock()
    idle = ScopedSetting(default=ResetPolicy(mode=ResetMode.IDLE, idle_minutes=60))
    adapter = watching(receiver.url, events=["session.reset", "session.ended", "session.finalised"])
    async with running(
        tmp_path / "p.db",
        world,
        adapters=[FakeAdapter(world), adapter],
        grants=GRANTS,
        clock=clock,
        resets=idle,
        sweep_every=timedelta(seconds=0.02),
    ) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "hello")
        await chat.hears("You said: hello")
        await chat.say(alice, "/new")
        await until(lambda: sorted(receiver.types) == ["session.ended", "session.finalised", "session.reset"])
        clock.later(hours=2)
        await until(lambda: len(receiver.taken) == 5)
        reasons = [each["data"]["reason"] for each in receiver.payloads if each["type"] == "session.ended"]
        assert reasons == ["reset", "idle"]


async def test_an_account_is_a_place_that_answers_can_go_to(tmp_path: Path, receiver: Endpoint) -> None:
    ci, crm = account(deliver="webhook:crm"), account("crm", url=receiver.url)
    async with running(tmp_path / "p.db", adapters=[ci, crm], grants=GRANTS) as here:
        assert (await called(here, ci, call({"build": "failed"}))).status == 202
        await until(lambda: len(receiver.taken) == 1)
        assert receiver.payloads == [{"type": "message", "data": {"text": "You said: Build failed", "account": "crm"}}]


async def test_notices_about_a_person_go_with_them(tmp_path: Path, receiver: Endpoint) -> None:
    world = FakePlatform()
    adapter = watching(receiver.url, content=True)
    async with running(tmp_path / "p.db", world, adapters=[FakeAdapter(world), adapter], grants=GRANTS) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "hello")
        await until(lambda: len(receiver.taken) == len(TURN))
        await here.settled()
        now = datetime.now(UTC)
        number = await here.store.transact(here.store.erasures.request(f"fake:{alice.id}", now, by="owner"))
        await here.store.erasures.run(number, now)
        assert not await here.rows("SELECT cause_id FROM outbox WHERE account = 'webhook:audit'")
