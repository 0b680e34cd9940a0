"""A summary is written once, though nobody heard that it was; what is done to a conversation afterwards still works."""

from datetime import timedelta
from pathlib import Path

import pytest

from palaver.engine import texts
from palaver.model.errors import StoreError, StoreUnavailable
from palaver.model.transcript import Role
from palaver.store.status.invariants import violations
from tests.engine.agents import Condensing, noted
from tests.engine.gateway import running
from tests.engine.test_compaction import LONG, audit, ready, talk
from tests.engine.trouble import trouble

WRITTEN = "INSERT INTO operations"
UNHEARD = StoreUnavailable("it is not known whether it happened")


async def test_a_summary_that_was_asked_for_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path / "p.db", agent=ready(Condensing())) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await talk(chat, alice, "one", "two", "three")
        happened = trouble(monkeypatch, here.store, "transact", WRITTEN, UNHEARD, done=True)
        await chat.say(alice, "/compress")
        await chat.hears(texts.compacted(2))
        await here.settled()
        assert happened()
        assert [entry.role for entry in await audit(here)].count(Role.SUMMARY) == 1
        assert len([message for message in chat.shown if "ummarised" in message.text]) == 1


async def test_a_turn_that_needed_room_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path / "p.db") as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        for topic in ("one", "two", "three"):
            await chat.say(alice, f"{topic} {LONG}")
            await chat.hears(f"You said: {topic}")
        happened = trouble(monkeypatch, here.store, "transact", WRITTEN, UNHEARD, done=True)
        await chat.say(alice, "!overflow and now?")
        await chat.hears("You said: and now?")
        assert happened()
        assert [entry.role for entry in await audit(here)].count(Role.SUMMARY) == 1


async def test_a_summary_that_the_store_refuses_is_tried_again_after_the_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = timedelta(seconds=0.3)
    async with running(tmp_path / "p.db", agent=ready(Condensing()), lease=lease) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await talk(chat, alice, "one", "two", "three")
        happened = trouble(monkeypatch, here.store, "transact", WRITTEN, StoreError("disk full"))
        await chat.say(alice, "/compress")
        await chat.hears(texts.compacted(2))
        assert happened()
        await talk(chat, alice, "four")


async def test_what_is_taken_back_after_a_summary_comes_back_in_its_order(store_url: str) -> None:
    agent = ready(Condensing())
    async with running(store_url, agent=agent) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await talk(chat, alice, "one", "two", "three", "four")
        whole = await here.entries()
        await chat.say(alice, "/compress")
        await chat.hears(texts.compacted(4))
        await here.settled()
        summarised = await here.entries()
        await chat.say(alice, "/undo 2")
        await chat.hears("/redo")
        assert [entry.role for entry in await here.entries()] == [Role.SUMMARY]
        await chat.say(alice, "/back")
        await chat.hears("Undid the last undo.")
        assert await here.entries() == summarised
        await chat.say(alice, "/back")
        await chat.hears("Undid the last compaction.")
        assert await here.entries() == whole
        await talk(chat, alice, "five")
        assert "SUMMARY" not in noted(agent.requests[-1])
        assert await here.store.read(violations()) == []
