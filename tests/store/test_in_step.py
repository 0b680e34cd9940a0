"""Conversations side by side, where they run in step, leave what they leave one after the other."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from palaver.db.sqlite import SqliteDatabase
from palaver.db.transaction import Row, Statements, Transaction, keyed, transaction
from palaver.model.key import SessionKey
from palaver.model.label import Label
from palaver.model.session import Principal
from palaver.model.source import Labels, Source
from palaver.model.turn import Inbound, Outbound, OutboxState, Turn, outbound_to
from palaver.store.conversations import attach
from palaver.store.opening import open_store
from palaver.store.queue import inbox, outbox, turns
from palaver.store.results import Begun
from palaver.store.status.invariants import violations
from palaver.store.store import Store
from tests.store.scenario import Picture, take_picture
from tests.store.world import (
    LEASE,
    NEVER,
    NOON,
    SHORT_MESSAGES,
    World,
    answer,
    begin_sends,
    dm,
    group,
    key_of,
    only_begun,
)

PEOPLE, CHATS, ROUNDS, STAGES = 8, 3, 2, 4
Together = Callable[[Sequence[Awaitable[object]]], Awaitable[object]]


class Conversation:
    """One person in one chat; the same person is in several, and meets the gateway in all of them at once."""

    _turn: Turn | None = None

    def __init__(self, store: Store, source: Source) -> None:
        self._store, self._source, self._key = store, source, key_of(source)
        self.is_first_contact = False

    def stage(self, number: int) -> Awaitable[object]:
        return (self._say, self._begin, self._settle, self._deliver)[number % STAGES](number // STAGES)

    async def _say(self, round_: int) -> None:
        source = Source(**{**self._source.to_json(), "message_id": f"{self._key.text} {round_}"})
        inbound = Inbound(source=source, text=f"hello {round_}", at=NOON, labels=Labels(user=Label("somebody")))
        for _ in range(2):  # the platform delivers it twice
            await self._run(inbox.accept(inbound, self._key, NOON))

    async def _begin(self, _: int) -> None:
        work = turns.begin(self._key, "w1", NOON, LEASE, NEVER, SHORT_MESSAGES)
        begun = only_begun(await self._store.transact(keyed(self._key.text, work)))
        assert begun
        self._turn = begun.turn
        self.is_first_contact |= begun.opened.is_first_contact

    async def _settle(self, round_: int) -> None:
        assert self._turn
        await self._store.transact(turns.append_to_turn(self._turn, [answer(f"thinking {round_}")]))
        reply = Outbound(platform="telegram", chat_id=self._source.chat_id or "", text=f"yes {round_}")
        await self._store.transact(turns.settle(self._turn, [answer(f"yes {round_}")], [reply], NOON))

    async def _deliver(self, _: int) -> None:
        for each in await self._store.transact(begin_sends("w1", NOON)):
            settle = outbox.settle_send(each, "w1", OutboxState.DELIVERED, receipt="r")
            await self._store.transact(keyed(f"send {each.number}", settle))

    async def _run(self, work: Transaction[object]) -> None:
        await self._store.transact(keyed(self._key.text, work))


async def talk(store: Store, together: Together) -> tuple[Picture, Counter[str]]:
    """Everybody says something in three chats. While one begins a turn, another settles one and a third delivers."""
    sources = [place for user in map(str, range(PEOPLE)) for place in (dm(user), group(user), group(user, "-200"))]
    talks = [Conversation(store, source) for source in sources]
    for number in range(ROUNDS * STAGES + STAGES):
        steps = ((talk, number - place // CHATS % STAGES) for place, talk in enumerate(talks))
        await together([talk.stage(stage) for talk, stage in steps if 0 <= stage < ROUNDS * STAGES])
    while left := await store.transact(begin_sends("w1", NOON)):
        for each in left:
            await store.transact(outbox.settle_send(each, "w1", OutboxState.DELIVERED, receipt="r"))
    assert await store.read(violations()) == []
    met = Counter(source.user_id or "" for source, talk in zip(sources, talks, strict=True) if talk.is_first_contact)
    picture = {**await store.read(take_picture()), "people": await store.read(people())}
    # Which chat of a person is the first, and has one more entry, is open if all of them begin at once.
    picture["sessions"] = sorted((row[1:] for row in picture["sessions"]), key=repr)
    return picture, met


@transaction
def people() -> Statements[list[Row]]:
    rows = yield "SELECT i.identity, p.name FROM people p JOIN identities i ON i.person = p.id ORDER BY 1", ()
    return [tuple(row) for row in rows]


async def one_by_one(steps: Sequence[Awaitable[object]]) -> None:
    for step in steps:
        await step


async def all_at_once(steps: Sequence[Awaitable[object]]) -> None:
    await asyncio.gather(*steps)


async def test_a_turn_sees_a_message_from_an_attached_place_whole_or_not_at_all(store_url: str) -> None:
    """Its place has another key, so both can be in one batch."""
    desk, phone = dm("desk"), dm("phone")
    async with await open_store(store_url) as store:
        session = (await World(store).exchange("at the desk", source=desk)).turn.session
        owner = Principal(identities=frozenset({"telegram:desk", "telegram:phone"}))
        await store.transact(attach_to(session, key_of(phone), owner))
        for number in range(10):
            inbound = Inbound(source=replace(phone, message_id=f"m{number}"), text="on the way", at=NOON)
            accept = inbox.accept(inbound, key_of(phone), NOON)
            begin = turns.begin(key_of(desk), "w1", NOON, LEASE, NEVER)
            works = [keyed(key_of(phone).text, accept), keyed(key_of(desk).text, begin)]
            found = await asyncio.gather(*map(store.transact, works if number % 2 else works[::-1]))
            begun = next((each for each in found if isinstance(each, Begun)), None)
            begun = begun or only_begun(await store.transact(turns.begin(key_of(desk), "w1", NOON, LEASE, NEVER)))
            assert begun
            await store.transact(turns.settle(begun.turn, [answer("yes")], [], NOON))


@transaction
def attach_to(session: str, place: SessionKey, principal: Principal) -> Statements[None]:
    found = yield from attach.find_attachable(session, place, principal)
    yield from attach.attach(place, found, NOON, by="me", farewell=outbound_to(dm("phone"), "parted"))


async def test_side_by_side_as_one_by_one(store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("nothing fails, so nothing runs again one by one")

    async with await open_store(str(tmp_path / "one by one.db")) as store:
        expected = await talk(store, one_by_one)
    monkeypatch.setattr(SqliteDatabase, "_retry_with_savepoints", refuse)
    async with await open_store(store_url) as store:
        found = await talk(store, all_at_once)
    assert found == expected
    assert found[1] == dict.fromkeys(map(str, range(PEOPLE)), 1)
