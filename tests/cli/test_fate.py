"""`palaver fate` from the outside: the story of a message, without its words, and settling what is unclear."""

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from palaver.cli import shared_options
from palaver.cli.main import main
from palaver.db.database import OUTBOX
from palaver.model.lifecycle import OutboxState
from palaver.model.turn import Delivery
from palaver.store.opening import open_store
from palaver.store.queue import outbox
from palaver.store.store import Store
from tests.store.world import LEASE, NOON, World

SECRET = "xylophone"  # noqa: S105 - what somebody said

Fate = Callable[..., str]


@pytest.fixture
def fate(store_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Fate:
    """A store with one answered message whose delivery is unclear; gives what a call prints."""
    monkeypatch.setattr(shared_options, "now", lambda: NOON + timedelta(hours=3))
    asyncio.run(_fill(store_url))

    def call(*args: str, code: int = 0) -> str:
        assert main(["fate", *args, "--store", store_url]) == code
        printed = capsys.readouterr()
        return printed.err if code else printed.out

    return call


async def _fill(url: str) -> None:
    async with await open_store(url) as store:
        world = World(store)
        await world.exchange(f"the {SECRET}", f"what {SECRET}?")
        for _ in range(2):
            (delivery,) = await _claimed(store)
            await store.transact(outbox.unclear(delivery, "w1", NOON, safe=False, error="lost\nwhile sending"))


async def _claimed(store: Store) -> list[Delivery]:
    return await store.transact(outbox.claim("w1", NOON, LEASE))


def test_the_whole_story_without_its_words(fate: Fate) -> None:
    told = fate("in:1")
    assert told.splitlines()[:2] == ["turn 1 in agent:main:telegram:dm:7", "2026-03-01 12:00:00 UTC (3 hours ago)"]
    assert "in:1      received from telegram:7 as message m1 in chat 7" in told
    assert "turn:1    entry 2: assistant" in told
    assert "turn:1    done at attempt 1 by w1" in told
    assert "(2 attempts, marked as a possible duplicate): lost while sending" in told
    assert "look, then: palaver fate out:1024 --delivered, or --again" in told
    assert SECRET not in told
    assert SECRET not in fate("in:1", "--json")


def test_words_only_if_asked_for(fate: Fate) -> None:
    assert fate("in:1", "--content").count(SECRET) == 4
    (told,) = json.loads(fate("in:1", "--content", "--json"))["fates"]
    assert told["messages"][0]["text"] == f"the {SECRET}"
    assert told["sends"][0]["text"] == f"what {SECRET}?"


def test_for_machines(fate: Fate) -> None:
    (told,) = json.loads(fate("m1", "--json"))["fates"]
    assert told["messages"][0]["state"] == "done"
    assert told["turn"]["entries"][1] == {"seq": 2, "role": "assistant", "at": "2026-03-01T12:00:00Z"}
    send: dict[str, Any] = told["sends"][0]
    assert (send["number"], send["state"], send["attempts"], send["why"]) == (1024, "unclear", 2, "reply")


@pytest.mark.parametrize(("option", "state"), [("--delivered", OutboxState.DELIVERED), ("--again", OutboxState.DUE)])
def test_a_person_settles_what_is_unclear_once(fate: Fate, option: str, state: OutboxState) -> None:
    told = json.loads(fate("out:1024", option, "--json"))
    assert told["fates"][0]["sends"][0]["state"] == state.value
    assert "nothing to settle" in fate("out:1024", option, code=1)


@pytest.mark.parametrize(
    "args", [("in:1", "--delivered"), ("out:1024", "--delivered", "--again"), ("out:x", "--again"), ("m1", "--again")]
)
def test_only_a_send_is_settled_and_in_one_way(fate: Fate, args: tuple[str, ...]) -> None:
    assert "palaver fate out:7168 --delivered" in fate(*args, code=2)
    assert json.loads(fate("out:1024", "--json"))["fates"][0]["sends"][0]["state"] == "unclear"


def test_an_unknown_name_is_told_what_is_known(fate: Fate) -> None:
    assert "there is no message, turn or session 'in:9'" in (told := fate("in:9", code=1))
    assert "allowed: in:42, turn:7" in told


def test_a_session_tells_all_its_turns(fate: Fate) -> None:
    session = json.loads(fate("in:1", "--json"))["fates"][0]["turn"]["session"]
    assert fate(session) == fate("turn:1")


def test_looking_makes_no_store(tmp_path: Path) -> None:
    assert main(["fate", "in:1", "--store", str(tmp_path / "none.db")]) == 1
    assert list(tmp_path.iterdir()) == []


async def test_it_reads_and_settles_beside_a_gateway(tmp_path: Path) -> None:
    url = str(tmp_path / "palaver.db")
    await _fill(url)
    async with await open_store(url, exclusive=True) as gateway:
        with gateway.listen(OUTBOX) as owed:
            assert await asyncio.to_thread(main, ["fate", "in:1", "--store", url]) == 0
            assert not owed.is_set()
        assert await asyncio.to_thread(main, ["fate", "out:1024", "--again", "--store", url]) == 0
        assert len(await gateway.transact(outbox.claim("w1", shared_options.now(), LEASE))) == 1
