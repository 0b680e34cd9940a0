"""Events: told as they happen, none left out and none twice after a cut, to nobody who may not know."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import cast

import httpx
import pytest

from palaver.config.model import Config
from palaver.db.transaction import Statements, Transaction, transaction
from palaver.engine.hooks import PartialAnswer
from palaver.gateway.terminal import terminal_socket
from palaver.model.errors import StoreUnavailable
from palaver.model.session import Principal, Session
from palaver.protocols.clock import SystemClock
from palaver.protocols.hooks import EventKind, GatewayEvent
from palaver.settings.agents import EchoAgentConfig
from palaver.settings.quotas import GrantConfig
from palaver.store.conversations.transcript import write_journal
from palaver.store.people.api_tokens import ALL_RIGHTS, Credential, CredentialKind
from palaver.store.status import journal_feed
from palaver.store.status.journal_feed import START, JournalPage
from palaver.store.store import Store
from palaver.web import event_hub, sse
from palaver.web.caller import Caller
from palaver.web.event_hub import Hub
from palaver.web.feeds import Event, Feed, Reader
from palaver.web.tokens import issue_token
from tests.engine.gateway import until
from tests.platforms.terminal.people import Person
from tests.store.conftest import fresh_store
from tests.store.world import NOON, World, dm
from tests.web.conftest import Opened, opened


class Ear:
    """Reads one stream."""

    def __init__(self, lines: AsyncIterator[str]) -> None:
        self._lines = lines
        self.position = ""

    async def next(self) -> tuple[str, dict[str, object]]:
        name, body = "", dict[str, object]()
        async for line in self._lines:
            field, _, value = line.partition(": ")
            match field:
                case "id":
                    self.position = value
                case "event":
                    name = value
                case "data":
                    body = json.loads(value)
                case "" if name:
                    return name, body
                case _:
                    pass
        raise EOFError

    async def entries(self, count: int) -> list[object]:
        """What is told of transcripts."""
        found: list[object] = []
        async with asyncio.timeout(60):
            while len(found) < count:
                name, body = await self.next()
                if name == "entries":
                    found.append((body["session"], body["kind"], body["first"], body["last"]))
        return found


@asynccontextmanager
async def listening(client: httpx.AsyncClient, position: str | None = None) -> AsyncGenerator[Ear]:
    # A browser that comes back asks for the same address again; what it has read since counts.
    headers = {"last-event-id": position} if position else {}
    params = {"after": "0.0/00000000.0"} if position else {}
    async with client.stream("GET", "/events", headers=headers, params=params, timeout=60) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        ear = Ear(answer.aiter_lines())
        assert (await ear.next())[0] == "ready"
        yield ear


async def test_a_client_that_was_cut_off_gets_the_rest_and_nothing_twice(
    window: Opened, client: httpx.AsyncClient
) -> None:
    alice = Person(terminal_socket(window.config), "main")
    async with alice.present():
        async with listening(client) as ear:
            await alice.say("one")
            told = await ear.entries(2)
            position = ear.position
        await alice.say("two")
        async with listening(client, position) as ear:
            await alice.say("three")
            told += await ear.entries(4)
    news = await window.store.read(journal_feed.read_changes(START, Principal.operator(), 100))
    assert told == [(each.session, each.kind, each.first, each.last) for each in news.changes]


async def test_a_position_survives_a_restart(config: Config) -> None:
    async with opened(config) as window, window.visit() as client, listening(client) as ear:
        position = ear.position
    async with opened(config) as window:
        alice = Person(terminal_socket(window.config), "main")
        async with alice.present(), window.visit() as client:
            await alice.say("hello")
            async with listening(client, position) as ear:
                assert await ear.next() == ("changed", {"topics": list(event_hub.TOPICS)}), "hints of before are gone"
                assert len(await ear.entries(2)) == 2


@pytest.mark.parametrize("position", ["x", "1.1", "1.1/zz\nevent: evil", "999999.999999/00000000.0"])
async def test_a_position_that_is_none_is_survived(client: httpx.AsyncClient, position: str) -> None:
    async with client.stream("GET", "/events", params={"after": position}) as answer:
        name, _ = await Ear(answer.aiter_lines()).next()
    assert name in {"reset", "ready"}


async def test_nobody_learns_of_what_they_cannot_see(config: Config) -> None:
    grants = tuple(GrantConfig(platform="web", user_id=name) for name in ("alice", "bob"))
    slow = EchoAgentConfig(streams=True, delay=timedelta(milliseconds=30))
    async with (
        opened(config.model_copy(update={"grants": grants, "agent": slow})) as window,
        window.visit("web:alice") as alice,
        window.visit("web:bob") as bob,
        listening(alice) as hers,
        listening(bob) as his,
    ):
        await alice.post("/chat/main", data={"text": "a secret of seven words, told slowly here", "id": "1"})
        kinds: set[str] = set()
        async with asyncio.timeout(60):
            while not {"entries", "chat", "draft"} <= kinds:
                kinds.add((await hers.next())[0])
        await bob.post("/chat/main", data={"text": "mine", "id": "1"})
        told: list[tuple[str, dict[str, object]]] = []
        async with asyncio.timeout(60):
            while not any(body.get("text") == "You said: mine" and body.get("grows") is False for _, body in told):
                told.append(await his.next())
    assert "secret" not in json.dumps(told)
    assert {body["session"] for name, body in told if name == "entries"} != set()
    assert len({body["session"] for name, body in told if name in {"entries", "draft"}}) == 1


async def test_a_login_that_is_taken_back_ends_its_streams(
    window: Opened, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_hub, "HEARTBEAT_SECONDS", 0.05)
    async with listening(client) as ear:
        async with window.visit() as other:
            del other
        (login, *_) = await window.store.read(
            window.store.api_tokens.list_valid(CredentialKind.LOGIN, SystemClock().now())
        )
        await window.store.transact(window.store.api_tokens.revoke(login.number))
        async with asyncio.timeout(60):
            with pytest.raises(EOFError):
                await ear.entries(1)


async def test_a_token_that_is_taken_back_ends_its_streams_also_where_much_goes_on(
    window: Opened, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, key = await issue_token(window.store, SystemClock().now(), name="x")
    shown = {"authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(timeout=60, base_url=window.url, headers=shown) as program, listening(program) as ear:
        await window.store.transact(window.store.api_tokens.revoke(key.number))
        monkeypatch.setattr(sse, "HEARTBEAT_SECONDS", 0)
        await client.post("/chat/main", data={"text": "secret", "id": "1"})
        with pytest.raises(EOFError):
            await _hear_no_secret(ear)


async def _hear_no_secret(ear: Ear) -> None:
    """Listen to the end. Something of before can still come."""
    async with asyncio.timeout(60):
        while True:
            assert "secret" not in str(await ear.next())


async def test_an_event_at_one_gateway_reaches_browsers_at_another(tmp_path: Path, postgres_server: str) -> None:
    url = await fresh_store(postgres_server)
    one, two = (Config(data_dir=tmp_path / name, store=url) for name in ("one", "two"))
    async with (
        opened(one) as here,
        opened(two) as there,
        there.visit() as client,
        here.visit() as talker,
        listening(client) as ear,
    ):
        await talker.post("/chat/main", data={"text": "hello", "id": "1"})
        assert len(await ear.entries(2)) == 2


# The hub by itself


def owner() -> Caller:
    key = Credential(number=1, kind=CredentialKind.LOGIN, name="", rights=ALL_RIGHTS, created=NOON, last_used=NOON)
    return Caller(key=key)


@asynccontextmanager
async def humming(store: Store, *, alone: bool = True) -> AsyncGenerator[Hub]:
    hub = Hub(store, alone=alone)
    serving = asyncio.create_task(hub.serve())
    try:
        yield hub
    finally:
        hub.close()
        serving.cancel()
        await asyncio.wait({serving})


async def told(hub: Hub, count: int, position: str | None = None) -> list[Event]:
    found: list[Event] = []
    async with asyncio.timeout(60):
        async for event in hub.events(owner(), position):
            found += [event] if event and event.name == "entries" else []
            if len(found) == count:
                break
    return found


async def test_a_thousand_streams_learn_of_every_entry_once(store: Store) -> None:
    world, count = World(store), 1000
    async with humming(store) as hub:
        readers = [asyncio.create_task(told(hub, 6)) for _ in range(count)]
        while hub.streams < count:  # noqa: ASYNC110 - they come one by one
            await asyncio.sleep(0.01)
        for name in ("1", "2", "3"):
            await world.exchange("hello", source=dm(name))
        found = [[event.journal for event in each] for each in await asyncio.gather(*readers)]
        assert hub.streams == 0
    assert all(each == found[0] for each in found)
    assert len(set(found[0])) == 6


@transaction
def noted(count: int) -> Statements[None]:
    for number in range(count):
        yield from write_journal("hide", 1, number, number)


async def test_a_slow_reader_is_let_go_and_told_the_rest_when_it_comes_back(store: Store) -> None:
    await World(store).exchange("hello")
    async with humming(store) as hub:
        slow = hub.events(owner(), None)
        first = await anext(slow)
        assert first
        quick = asyncio.create_task(told(hub, 300))
        while hub.streams < 2:  # noqa: ASYNC110 - it takes a moment
            await asyncio.sleep(0.01)
        await store.transact(noted(300))
        assert len(await quick) == 300
        assert [event async for event in slow] == []
        back = await told(hub, 300, first.id)
    assert [event.body["first"] for event in back] == list(range(300))


async def test_of_what_grows_only_the_last_state_waits(store: Store) -> None:
    session = (await World(store).exchange("hello")).turn.session
    async with humming(store) as hub:
        stream = hub.events(owner(), None)
        await anext(stream)
        for length in range(1000):
            hub.grow(PartialAnswer(session=session, turn=7, text="x" * length))
        async with asyncio.timeout(60):
            grown = [event async for event in _until_long(stream)]
    assert len(grown) < 10


async def test_answers_that_grow_at_once_are_kept_apart(store: Store) -> None:
    world, reader = World(store), Reader("0.0")
    for turn, text in ((7, "first"), (7, "first words"), (8, "second")):
        reader.push(Event(name="draft", body={"text": text}, merges=f"draft {turn}"))
    assert [event.body["text"] for event in await reader.take() or ()] == ["first words", "second"]
    one, two = [(await world.exchange("hello", source=dm(name))).turn.session for name in ("1", "2")]
    async with humming(store) as hub:
        shown = hub.events(owner(), None, one)
        await anext(shown)
        for text in ("first", "first words"):
            hub.grow(PartialAnswer(session=two, turn=8, text="second"))
            hub.grow(PartialAnswer(session=one, turn=7, text=text))
            grown = await next_named(shown, "growth", "draft")
            assert (grown.name, grown.body["session"]) == ("growth", one)


async def test_an_answer_grows_on_after_the_store_was_away(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    session = (await World(store).exchange("hello")).turn.session
    find, outages = store.sessions.get_visible, [1]

    def fail_once(name: str, principal: Principal) -> Transaction[Session]:
        if outages:
            outages.pop()
            raise StoreUnavailable("The store is away.")
        return find(name, principal)

    async with humming(store) as hub:
        stream = hub.events(owner(), None)
        await anext(stream)
        monkeypatch.setattr(store.sessions, "get_visible", fail_once)
        hub.grow(PartialAnswer(session=session, turn=7, text="first"))
        await until(lambda: not outages)
        hub.grow(PartialAnswer(session=session, turn=7, text="first words"))
        assert (await next_named(stream, "draft")).body["text"] == "first words"


async def next_named(stream: AsyncIterator[Event | None], *names: str) -> Event:
    async with asyncio.timeout(60):
        async for event in stream:
            if event and event.name in names:
                return event
    raise AssertionError(names)


async def test_a_caller_who_was_cut_off_learns_that_there_is_more_in_their_chat_and_nobody_else_does(
    store: Store,
) -> None:
    alice = Caller(key=replace(owner().key, identity="web:alice"))
    async with humming(store) as hub:
        before = await hub.position()
        hub.push("web:owner", Event(name="chat", body={"text": "sent meanwhile"}))
        mine = await next_named(hub.events(owner(), before), "changed")
        assert mine.body == {"topics": ["chat"]}
        for position, caller in ((mine.id, owner()), (before, alice)):
            stream = hub.events(caller, position)
            await anext(stream)
            hub.push(caller.identity, Event(name="chat", merges="grows"))
            assert (await next_named(stream, "chat", "changed")).name == "chat"
        assert await hub.position() == mine.id, "what only grows is nothing to come back for"


# A gateway that begins to listen to PostgreSQL hints at everything.
@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
async def test_a_page_loaded_between_push_and_commit_is_loaded_again(store: Store) -> None:
    async with humming(store) as hub:
        hub.push("web:owner", Event(name="chat", body={"text": "hi"}))
        stream = hub.events(owner(), await hub.position())
        await anext(stream)
        others = hub.events(Caller(key=replace(owner().key, identity="web:alice")), None)
        await anext(others)
        delivered = GatewayEvent(kind=EventKind.MESSAGE_DELIVERED, at=NOON, delivery=1, platform="web", chat="owner/1")
        await hub.notice(delivered)
        async with asyncio.timeout(60):
            await until_hinted(stream, "chat")
            hub.push("web:alice", Event(name="chat", body={"text": "yours"}))
            assert (await next_named(others, "changed", "chat")).body == {"text": "yours"}, "their chat is not hers"


async def test_a_hint_that_comes_while_the_past_is_reported_is_not_lost_by_a_cut(store: Store) -> None:
    world = World(store)
    async with humming(store) as hub:
        before = await hub.position()
        await world.exchange("hello")
        stream, other = hub.events(owner(), before), hub.events(owner(), None)
        await anext(other)
        await next_named(stream, "entries")
        hub.hint("people")
        while "people" not in json.dumps((await next_named(other, "changed")).body):
            pass
        cut = await next_named(stream, "entries")
        again = await next_named(hub.events(owner(), cut.id), "changed")
        assert "people" in json.dumps(again.body)


async def until_hinted(stream: AsyncIterator[Event | None], topic: str) -> list[Event]:
    """Read up to the first hint that names this topic: hints that come together are merged."""
    seen: list[Event] = []
    while not seen or topic not in cast("list[str]", seen[-1].body.get("topics", [])):
        seen.append(await next_named(stream, "changed", "chat"))
    return seen


def names_in(events: list[Event]) -> Counter[str]:
    """Count topics and chat messages. A gateway that begins to listen hints at all topics at once: leave that out."""
    hints = [cast("list[str]", event.body.get("topics", ["a message"])) for event in events]
    return Counter(topic for topics in hints if len(topics) < len(event_hub.TOPICS) for topic in topics)


async def test_a_hint_goes_to_every_gateway_and_comes_to_each_once(store: Store) -> None:
    async with humming(store, alone=False) as here, humming(store, alone=False) as there:
        streams = [hub.events(owner(), None) for hub in (here, there)]
        for stream in streams:
            await anext(stream)
        here.hint("people")
        seen = [await until_hinted(stream, "people") for stream in streams]
        here.push("web:owner", Event(name="chat"))
        for stream, events in zip(streams, seen, strict=True):
            events.extend(await until_hinted(stream, "chat"))
        here.hint("turns")
        for stream, events in zip(streams, seen, strict=True):
            events.extend(await until_hinted(stream, "turns"))
    mine, theirs = map(names_in, seen)
    assert mine == theirs + Counter(["a message"]), "only the gateway that sends it has the message itself"
    assert set(theirs) <= {"people", "chat", "turns"}
    assert set(theirs.values()) == {1}


async def test_a_transaction_that_takes_long_is_looked_for_less_and_less(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    async def held(_feed: Feed, position: str) -> JournalPage:
        return JournalPage(changes=(), position=position, is_complete=False)

    async def paused(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 8:
            raise asyncio.CancelledError

    monkeypatch.setattr(Feed, "read_journal", held)
    monkeypatch.setattr(asyncio, "sleep", paused)
    with pytest.raises(asyncio.CancelledError):
        await Feed(store, owner(), START, lambda: "").run()
    assert pauses == [0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0]


async def _until_long(stream: AsyncIterator[Event | None]) -> AsyncGenerator[Event]:
    async for event in stream:
        if event and event.name == "draft":
            yield event
            if event.body["text"] == "x" * 999:
                return


async def test_a_position_from_before_a_restore_is_not_waited_for(window: Opened, client: httpx.AsyncClient) -> None:
    alice = Person(terminal_socket(window.config), "main")
    position = {"last-event-id": "0.999999/00000000.0"}
    async with alice.present(), client.stream("GET", "/events", headers=position, timeout=60) as answer:
        ear = Ear(answer.aiter_lines())
        name, _ = await ear.next()
        await alice.say("one")
        assert len(await ear.entries(2)) == 2
        assert name == "reset"
