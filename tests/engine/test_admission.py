"""Who is let in, who is refused with a reason, and under which name people are known."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.db.transaction import Transaction
from palaver.model import access
from palaver.model.access import AccessRole, Effect, Grant, decide_access
from palaver.model.key import ScopedSetting
from palaver.model.source import Source, Trust, canonical_id, canonical_source
from palaver.model.transcript import Quote
from palaver.model.turn import Inbound
from palaver.store.opening import open_store
from palaver.store.people.grants import GrantCache, GrantTable
from palaver.store.store import Store
from palaver.testkit.platform import FakePlatform
from tests.engine.agents import Slow, noted
from tests.engine.gateway import Bench, MovableClock, running, until
from tests.engine.mouth import Mouth
from tests.strategies import THOROUGH, close_sources, trusts

T = TypeVar("T")

_platforms, _names = st.sampled_from(("telegram", "discord")), st.sampled_from(("42", "a", "user", "b"))


async def inbox(here: Bench) -> list[tuple[str, str | None]]:
    return [(row[0], row[1]) for row in await here.rows("SELECT state, reason FROM inbox ORDER BY no")]


async def test_a_stranger_is_refused_with_a_reason_and_hears_nothing(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db", grants=(), pairing=ScopedSetting(default=False)) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "let me in")
        await chat.say(alice, "/status")
        await here.settled()
        assert chat.shown == []
        assert await inbox(here) == [("refused", "no grant matches and pairing is off")] * 2


async def test_no_key_of_a_provider_is_stored_wherever_it_stands_in_a_message(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db") as here:
        key = "sk-" + 12 * "Ab3"
        source = Source(platform="fake", chat_id="c", user_id="alice", message_id="1")
        said = Inbound(source=source, text=f"use {key}", at=datetime.now(UTC))
        said = replace(said, instructions=f"call with {key}", quote=Quote(text=f"it is {key}"))
        await here.engine.receiver("fake", None).receive(said, Trust())
        [(body,)] = await here.rows("SELECT body FROM inbox")
        assert body.count(b"[redacted: openai key]") == 3
        assert key.encode() not in body


async def test_a_bot_is_refused_unless_a_grant_names_bots(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db") as here:
        robot = here.world.person("robot", is_bot=True)
        chat = here.world.dm(robot)
        await chat.say(robot, "beep")
        await here.settled()
        assert await inbox(here) == [("refused", "the sender is a bot and no grant covers bots")]


async def test_a_message_is_decided_without_a_look_at_everybody_elses_grants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, clock, looked = FakePlatform(), MovableClock(), list[str]()
    adapter = Mouth(world, clock)
    many = (Grant(platform="fake", user_id=f"other{number}") for number in range(500))
    grants = (Grant(platform="fake", user_id="phone", role=AccessRole.MEMBER), *many)
    matches = Grant.matches

    def look(grant: Grant, *facts: Any) -> bool:
        looked.append("grant")
        return matches(grant, *facts)

    def follow(identity: str, aliases: Mapping[str, str]) -> str:
        looked.append("alias")
        return canonical_id(identity, aliases)

    async with running(tmp_path / "p.db", world, adapters=[adapter], clock=clock, grants=grants) as here:
        await (await adapter.receiver()).link_alias("phone", "p1")
        chat = world.dm(world.person("alice"))
        await adapter.say(chat, "one")
        await chat.hears("You said: one")
        await here.settled()
        monkeypatch.setattr(Grant, "matches", look)
        monkeypatch.setattr(access, "canonical_id", follow)
        await adapter.say(chat, "two")
        await chat.hears("You said: two")
    assert looked.count("grant") == 1, "the turn does not decide again what is unchanged"
    assert looked.count("alias") < 10


@THOROUGH
@given(
    close_sources,
    trusts,
    st.lists(st.builds(Grant, platform=_platforms, user_id=_names, chat_id=_names, effect=st.sampled_from(Effect))),
    st.dictionaries(_names, _names, max_size=3),
)
def test_grants_that_are_kept_for_a_platform_decide_as_all_of_them_do(
    source: Source, trust: Trust, grants: list[Grant], aliases: dict[str, str]
) -> None:
    plain, half = canonical_source(source, aliases), len(grants) // 2
    table = GrantTable(grants=dict(enumerate(grants[half:])))
    kept = GrantCache().index(source.platform, grants[:half], table, aliases).candidates(plain, None)
    all_of_them = [
        replace(grant, user_id=canonical_id(grant.user_id or "", aliases))
        if grant.platform == source.platform
        else grant
        for grant in grants
    ]
    assert decide_access(plain, trust, kept) == decide_access(plain, trust, all_of_them)


async def test_a_grant_given_while_the_gateway_runs_holds_at_once_and_so_does_its_end(store_url: str) -> None:
    clock = MovableClock()
    async with running(store_url, clock=clock, grants=()) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "before")
        await here.settled()
        grant = Grant(platform="fake", role=AccessRole.MEMBER, user_id=alice.id)
        number = await here.store.transact(here.store.grants.add(grant, clock.now(), by="owner"))
        await until(lambda: _is_answered(here, "now", alice.id))
        await here.store.transact(here.store.grants.remove(number, clock.now(), by="owner"))
        await until(lambda: _is_refused(here, alice.id))


async def test_what_another_process_grants_holds_from_the_next_message_on(store_url: str) -> None:
    clock = MovableClock()
    async with running(store_url, clock=clock, grants=()) as here, await open_store(store_url) as command:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "before")
        await here.settled()
        grant = Grant(platform="fake", role=AccessRole.MEMBER, user_id=alice.id)
        number = await command.transact(command.grants.add(grant, clock.now(), by="operator"))
        await chat.say(alice, "let in")
        await chat.hears("let in")
        await command.transact(command.grants.remove(number, clock.now(), by="operator"))
        await chat.say(alice, "kept out")
        await here.settled()
        assert [state for state, _ in await inbox(here)] == ["refused", "in-turn", "refused"]


async def _is_answered(here: Bench, text: str, user: str) -> bool:
    chat = next(iter(here.world.chats.values()))
    await chat.say(next(person for person in chat.people if person.id == user), text)
    await here.settled()
    return bool(chat.shown)


async def _is_refused(here: Bench, user: str) -> bool:
    chat = next(iter(here.world.chats.values()))
    await chat.say(next(person for person in chat.people if person.id == user), "and now")
    await here.settled()
    return (await inbox(here))[-1][0] == "refused"


async def test_a_slow_look_at_the_grants_does_not_bring_back_one_that_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, clock, go = FakePlatform(), MovableClock(), asyncio.Event()
    mouth = Mouth(world, clock)
    chat = world.dm(world.person("alice"))
    async with running(tmp_path / "p.db", world, adapters=[mouth], clock=clock, grants=()) as here:
        grant = Grant(platform="fake", role=AccessRole.MEMBER)
        number = await here.store.transact(here.store.grants.add(grant, clock.now(), by="owner"))
        await mouth.receiver()

        async def slow(store: Store, work: Transaction[T]) -> T:
            found = await store.database.read(work)
            await go.wait()
            return found

        monkeypatch.setattr(Store, "read", slow)
        first = asyncio.create_task(mouth.say(chat, "one"))
        await asyncio.sleep(0.05)
        monkeypatch.undo()
        await here.store.transact(here.store.grants.remove(number, clock.now(), by="owner"))
        second = asyncio.create_task(mouth.say(chat, "two"))
        await asyncio.sleep(0.05)
        go.set()
        await asyncio.gather(first, second)
        await mouth.say(chat, "three")
        assert (await inbox(here))[-1][0] == "refused"


async def test_what_was_decided_under_older_grants_is_decided_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, clock, go = FakePlatform(), MovableClock(), asyncio.Event()
    mouth = Mouth(world, clock)
    one, two = world.dm(world.person("alice")), world.dm(world.person("bob"))
    async with running(tmp_path / "p.db", world, adapters=[mouth], clock=clock, grants=()) as here:
        grant = Grant(platform="fake", role=AccessRole.MEMBER)
        number = await here.store.transact(here.store.grants.add(grant, clock.now(), by="owner"))
        await mouth.say(one, "before")
        await here.settled()
        await here.store.transact(here.store.grants.remove(number, clock.now(), by="owner"))

        async def slow(store: Store, work: Transaction[T]) -> T:
            monkeypatch.undo()
            await go.wait()
            return await store.database.transact(work)

        monkeypatch.setattr(Store, "transact", slow)
        late = asyncio.create_task(mouth.say(one, "decided before"))
        await asyncio.sleep(0)
        await mouth.say(two, "learns of it")
        go.set()
        await late
        assert [state for state, _ in await inbox(here)] == ["in-turn", "refused", "refused"]


async def test_a_block_wins(tmp_path: Path) -> None:
    world = FakePlatform()
    alice = world.person("alice")
    grants = (
        Grant(platform="fake", role=AccessRole.OWNER),
        Grant(platform="fake", effect=Effect.BLOCK, user_id=alice.id),
    )
    async with running(tmp_path / "p.db", world, grants=grants) as here:
        chat = world.dm(alice)
        await chat.say(alice, "hello")
        await here.settled()
        assert await inbox(here) == [("refused", "a grant blocks this sender")]


async def test_what_is_overheard_is_written_down_and_not_answered(store_url: str) -> None:
    agent, clock, world = Slow(), MovableClock(), FakePlatform()
    agent.go.set()
    mouth = Mouth(world, clock)
    async with running(store_url, world, agent=agent, clock=clock, adapters=[mouth]) as here:
        group = world.group("friends")
        await mouth.say(group, "chatter", observed=True)
        await mouth.say(group, "/new", observed=True)
        await here.settled()
        assert group.shown == []
        assert agent.requests == []
        await mouth.say(group, "what did they say?")
        await group.hears("what did they say?")
        assert "overheard" in noted(agent.requests[0])
        assert "chatter" in noted(agent.requests[0])


async def test_one_person_with_two_ids_has_one_conversation(tmp_path: Path) -> None:
    agent, clock, world = Slow(), MovableClock(), FakePlatform()
    agent.go.set()
    mouth = Mouth(world, clock)
    async with running(tmp_path / "p.db", world, agent=agent, clock=clock, adapters=[mouth]) as here:
        await here.store.transact(here.store.aliases.learn("fake", "old-id", "new-id", MovableClock().now()))
        group = world.group("friends")
        await mouth.say(group, "one", user="old-id")
        await mouth.say(group, "two", user="new-id")
        await group.hears("two")
        assert len({request.session for request in agent.requests}) == 1
        assert len(await here.rows("SELECT DISTINCT identity FROM participants")) == 1


async def test_a_nick_is_never_taken_for_an_account_of_that_name(tmp_path: Path) -> None:
    """KEY-5: neither in grants, nor in keys, nor in what they can read."""
    world, clock = FakePlatform(), MovableClock()
    mouth = Mouth(world, clock)
    grants = (Grant(platform="fake", user_id="alt:alice", role=AccessRole.OWNER), Grant(platform="fake"))
    async with running(tmp_path / "p.db", world, adapters=[mouth], clock=clock, grants=grants) as here:
        chat, receiver = world.group("Dev"), await mouth.receiver()
        place = Source(platform="fake", account="bot", chat_kind="group", chat_id=chat.id, user_id="alice")
        account = replace(place, user_id="guest42", user_id_alt="alice")
        for number, (source, text) in enumerate(
            [(account, "my plan"), (account, "/whoami"), (place, "/whoami"), (place, "/search plan")]
        ):
            said = Inbound(source=replace(source, message_id=str(number)), text=text, at=clock.now(), mentions_us=True)
            await receiver.receive(said, Trust())
            await here.settled()
        answers = [message.text for message in chat.shown]
        assert "You are fake:alt:alice here, with the owner role" in answers[1]
        assert "You are fake:alice here, with the member role" in answers[2]
        assert "my plan" not in answers[3]
        keys = await here.rows("SELECT DISTINCT key FROM inbox ORDER BY key")
        assert [row[0].partition(":user:")[2] for row in keys] == ["alice:account:bot", "alt%3Aalice:account:bot"]
