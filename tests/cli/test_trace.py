"""`palaver trace` from the outside: the story of a message, without its words, and settling what is unclear."""

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from palaver.cli import shared_options
from palaver.cli.main import main
from palaver.db.transaction import OUTBOX
from palaver.model.turn import Delivery, OutboxState
from palaver.store.opening import open_store
from palaver.store.queue import outbox
from palaver.store.store import Store
from tests.store.world import NOON, World, begin_sends

SECRET = "xylophone"  # noqa: S105 - what somebody said

Trace = Callable[..., str]


@pytest.fixture
def trace(store_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Trace:
    """A store with one answered message whose delivery is unclear; gives what a call prints."""
    monkeypatch.setattr(shared_options, "now", lambda: NOON + timedelta(hours=3))
    asyncio.run(_fill(store_url))

    def call(*args: str, code: int = 0) -> str:
        assert main(["trace", *args, "--store", store_url]) == code
        printed = capsys.readouterr()
        return printed.err if code else printed.out

    return call


async def _fill(url: str) -> None:
    async with await open_store(url) as store:
        world = World(store)
        await world.exchange(f"the {SECRET}", f"what {SECRET}?")
        for _ in range(2):
            (delivery,) = await _claimed(store)
            await store.transact(outbox.mark_unclear(delivery, "w1", NOON, safe=False, error="lost\nwhile sending"))


async def _claimed(store: Store) -> list[Delivery]:
    return await store.transact(begin_sends("w1", NOON))


def test_the_whole_story_without_its_words(trace: Trace) -> None:
    told = trace("in:1")
    assert told.splitlines()[:2] == ["turn 1 in agent:main:telegram:dm:7", "2026-03-01 12:00:00 UTC (3 hours ago)"]
    assert "in:1      received from telegram:7 as message m1 in chat 7" in told
    assert "turn:1    entry 2: assistant" in told
    assert "turn:1    done on attempt 1 by w1" in told
    assert "(2 attempts, marked as a possible duplicate): lost while sending" in told
    assert "check the chat, then run palaver trace out:1024 --delivered or --again" in told
    assert SECRET not in told
    assert SECRET not in trace("in:1", "--json")


def test_words_only_if_asked_for(trace: Trace) -> None:
    assert trace("in:1", "--content").count(SECRET) == 4
    (told,) = json.loads(trace("in:1", "--content", "--json"))["traces"]
    assert told["messages"][0]["text"] == f"the {SECRET}"
    assert told["sends"][0]["text"] == f"what {SECRET}?"


def test_for_machines(trace: Trace) -> None:
    (told,) = json.loads(trace("m1", "--json"))["traces"]
    assert told["messages"][0]["state"] == "done"
    assert told["turn"]["entries"][1] == {"seq": 2, "role": "assistant", "at": "2026-03-01T12:00:00Z"}
    send: dict[str, Any] = told["sends"][0]
    assert (send["number"], send["state"], send["attempts"], send["why"]) == (1024, "unclear", 2, "reply")


@pytest.mark.parametrize(("option", "state"), [("--delivered", OutboxState.DELIVERED), ("--again", OutboxState.DUE)])
def test_a_person_settles_what_is_unclear_once(trace: Trace, option: str, state: OutboxState) -> None:
    told = json.loads(trace("out:1024", option, "--json"))
    assert told["traces"][0]["sends"][0]["state"] == state.value
    assert "nothing to settle" in trace("out:1024", option, code=1)


@pytest.mark.parametrize(
    "args",
    [
        *(("in:1", "--delivered"), ("out:1024", "--delivered", "--again")),
        *((name, "--again") for name in ("out:x", "m1", f"out:{'9' * 20}")),
    ],
)
def test_only_a_send_is_settled_and_in_one_way(trace: Trace, args: tuple[str, ...]) -> None:
    assert "palaver trace out:7168 --delivered" in trace(*args, code=2)
    assert json.loads(trace("out:1024", "--json"))["traces"][0]["sends"][0]["state"] == "unclear"


def test_an_unknown_name_is_refused_with_what_is_known(trace: Trace) -> None:
    assert "There is no message, turn or session 'in:9'" in (told := trace("in:9", code=1))
    assert "Use in:42, turn:7" in told


def test_a_session_tells_all_its_turns(trace: Trace) -> None:
    session = json.loads(trace("in:1", "--json"))["traces"][0]["turn"]["session"]
    assert trace(session) == trace("turn:1")


def test_looking_makes_no_store(tmp_path: Path) -> None:
    assert main(["trace", "in:1", "--store", str(tmp_path / "none.db")]) == 1
    assert list(tmp_path.iterdir()) == []


async def test_it_reads_and_settles_beside_a_gateway(tmp_path: Path) -> None:
    url = str(tmp_path / "palaver.db")
    await _fill(url)
    async with await open_store(url, exclusive=True) as gateway:
        with gateway.listen(OUTBOX) as owed:
            assert await asyncio.to_thread(main, ["trace", "in:1", "--store", url]) == 0
            assert not owed.is_set()
        assert await asyncio.to_thread(main, ["trace", "out:1024", "--again", "--store", url]) == 0
        assert len(await gateway.transact(begin_sends("w1", shared_options.now()))) == 1
