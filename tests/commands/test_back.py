"""`/back` gives the same view, byte for byte, no matter what was done to a conversation; twice done, twice undone."""

from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from itertools import product
from pathlib import Path

import pytest

from palaver.db.transaction import Row
from palaver.model.compaction import plan_compaction
from palaver.model.key import ScopedSetting
from palaver.model.reset import ResetMode, ResetPolicy
from palaver.model.revision import RevisionPolicy
from tests.commands.talk import Talk, talking
from tests.engine.gateway import Bench, MovableClock, until

IDLE = ScopedSetting(default=ResetPolicy(mode=ResetMode.IDLE, idle_minutes=60))
Deed = Callable[[Talk, MovableClock], Awaitable[None]]


async def _new(alice: Talk, _clock: MovableClock) -> None:
    await alice.ask("/new Another")


async def _new_and_said(alice: Talk, _clock: MovableClock) -> None:
    await alice.ask("/new")
    await alice.say("in between")


async def _idle(alice: Talk, clock: MovableClock) -> None:
    clock.later(hours=2)
    await alice.say("after a while")
    await alice.here.settled()


async def _resume(alice: Talk, _clock: MovableClock) -> None:
    assert "“Earlier”" in await alice.ask("/resume Earlier")


async def _carry_here(alice: Talk, _clock: MovableClock) -> None:
    other = alice.elsewhere()
    await other.ask("/new Elsewhere")
    await other.say("over there")
    assert "Resumed" in await alice.ask("/resume Elsewhere")


async def _undo(alice: Talk, _clock: MovableClock) -> None:
    await alice.ask("/undo")


async def _undo_all(alice: Talk, _clock: MovableClock) -> None:
    await alice.ask("/undo 999999999")


async def _branch(alice: Talk, _clock: MovableClock) -> None:
    await alice.ask("/branch")


async def _branch_at(alice: Talk, _clock: MovableClock) -> None:
    await alice.ask("/branch Beside --at 2")
    await alice.say("another way")


async def _retry(alice: Talk, _clock: MovableClock) -> None:
    before = len(alice.agent.requests)
    await alice.chat.say(alice.who, "/retry")
    await alice.chat.hears("Answering again", times=_heard(alice, "Answering again") + 1)
    await alice.here.settled()
    assert len(alice.agent.requests) == before + 1


def _heard(alice: Talk, text: str) -> int:
    return len([message for message in alice.chat.shown if text in message.text])


async def _compact(alice: Talk, clock: MovableClock) -> None:
    session, store = await alice.session(), alice.here.store
    plan = plan_compaction(await alice.here.entries(session.id), keep_exchanges=1)
    assert plan
    await store.transact(store.transcript.compact(session.key, plan, "short", clock.now(), by="test"))


DEEDS: dict[str, Deed] = {
    "new": _new,
    "new and said": _new_and_said,
    "idle": _idle,
    "resume": _resume,
    "carry here": _carry_here,
    "undo": _undo,
    "undo all": _undo_all,
    "branch": _branch,
    "branch at": _branch_at,
    "retry": _retry,
    "compaction": _compact,
}


async def _prepared(alice: Talk) -> None:
    await alice.ask("/new Earlier")
    await alice.say("long ago")
    await alice.ask("/new Now")
    for text in ("one, and a good deal more than is needed", "two, which is not short either", "three"):
        await alice.say(text)
    await alice.here.settled()


async def _stands(alice: Talk) -> tuple[str, bytes]:
    """Which session it is, and what the agent would be shown of it."""
    return (await alice.session()).id, repr(await alice.view()).encode()


@pytest.mark.parametrize("deed", DEEDS.values(), ids=DEEDS.keys())
async def test_back_gives_what_was(store_url: str, deed: Deed) -> None:
    clock = MovableClock()
    async with talking(store_url, clock=clock, resets=IDLE) as alice:
        await _prepared(alice)
        before = await _stands(alice)
        await deed(alice, clock)
        assert await _stands(alice) != before
        assert "Undid the last" in await alice.ask("/back")
        assert await _stands(alice) == before


_KEEPS_WORDS = ("resume", "undo", "branch", "branch at", "retry", "compaction", "new and said", "idle")


@pytest.mark.parametrize(("first", "second"), list(product(_KEEPS_WORDS, ("new", "undo", "branch", "retry", "resume"))))
async def test_back_and_back_again(tmp_path_factory: pytest.TempPathFactory, first: str, second: str) -> None:
    clock = MovableClock()
    async with talking(tmp_path_factory.mktemp("back") / "p.db", clock=clock, resets=IDLE) as alice:
        await _prepared(alice)
        stood: list[tuple[str, bytes]] = []
        for name in (first, second):
            stood.append(await _stands(alice))
            clock.later(seconds=1)
            await DEEDS[name](alice, clock)
            await alice.here.settled()
        if await _stands(alice) == stood[1]:  # Resumed where one is already, nothing was done.
            stood.pop()
        for before in reversed(stood):
            clock.later(seconds=1)
            assert "Undid the last" in await alice.ask("/back")
            assert await _stands(alice) == before


# Others

QUICK = timedelta(milliseconds=50)


async def _kept(alice: Talk, clock: MovableClock) -> None:
    """Do everything that is taken back above, and what stays: attach and detach, jobs, edits, ratings."""
    await _prepared(alice)
    for name, deed in DEEDS.items():
        if name != "idle":
            await deed(alice, clock)
            await alice.ask("/back")
    await alice.ask("/new Plans")
    await alice.say("what next?")
    second = alice.elsewhere()
    assert "now continues" in await second.ask("/attach Plans")
    assert "its own conversation" in await second.ask("/detach")
    await second.ask("/attach Plans")
    await alice.ask("/jobs add every 2h greet me")
    await alice.ask("/jobs pause greet me")
    said = await alice.chat.say(alice.who, "misspelt")
    shown = await alice.chat.hears("answer to: misspelt")
    await alice.chat.edit(alice.who, said, "spelt")
    await alice.chat.react(alice.who, shown, "👍")
    gone = await alice.chat.say(alice.who, "not meant")
    await alice.chat.hears("answer to: not meant")
    await alice.chat.delete(alice.who, gone)
    await alice.here.settled()

    async def all_are_finalised() -> bool:
        return not await alice.here.rows("SELECT 1 FROM sessions WHERE ended IS NOT NULL AND finalised IS NULL")

    await until(all_are_finalised)


async def _rows_by_table(here: Bench) -> dict[str, Counter[Row]]:
    tables = await here.rows("SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE '%VIRTUAL%'")
    moving = {"accounts", "journal", "meta", "sqlite_sequence", "usage"}  # sums are added up later
    return {
        name: Counter(tuple(row) for row in await here.rows(f"SELECT * FROM {name}"))  # noqa: S608 - our own
        for (name,) in tables
        if name not in moving
    }


async def test_what_somebody_does_leaves_all_rows_of_others_as_they_were(tmp_path: Path) -> None:
    clock, alike = MovableClock(), ScopedSetting(default=RevisionPolicy.NOTE)
    async with talking(tmp_path / "p.db", clock=clock, revisions=alike, sweep_every=QUICK) as alice:
        here, ben = alice.here, alice.beside("ben")
        await _kept(ben, clock)
        before = await _rows_by_table(here)
        await _kept(alice, clock)
        await alice.ask("/forget --yes")
        after = await _rows_by_table(here)
        assert {table: gone for table, rows in before.items() if (gone := rows - after[table])} == {}
