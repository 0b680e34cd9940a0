"""`palaver trace` from the outside: the story of a message, without its words, and settling what is unclear."""

import asyncio
import json
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from palaver.cli import shared_options
from palaver.cli.main import main
from palaver.db.transaction import OUTBOX
from palaver.model.turn import Delivery, Outbound, OutboxState
from palaver.store.opening import open_store
from palaver.store.queue import outbox
from palaver.store.store import Store
from tests.store.world import NOON, World, begin_sends, cause

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
    told = re.sub("-[0-9a-f]{6}", "", shown := trace("in:1"))
    assert told.splitlines()[:2] == ["turn 1 in agent:main:telegram:dm:7", "2026-03-01 12:00:00 UTC (3 hours ago)"]
    assert "received from telegram:7 as message m1, DM with name of 7" in told
    assert "entry 2: assistant" in told
    assert "done on attempt 1 by w1" in told
    assert "(2 attempts, marked as a possible duplicate): lost while sending" in told
    assert "check the chat, then run palaver trace out:1.0 --delivered or --again" in told
    for name in re.findall(r"(?:in|out):[0-9.]+-[0-9a-f]{6}", shown):
        assert trace(name) == shown
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
    assert "palaver trace out:7.0 --delivered" in trace(*args, code=2)
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


# Many at once


@pytest.fixture
def many(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Three unclear sends in two chats, and one that was given up."""
    url = str(tmp_path / "palaver.db")
    asyncio.run(_fill_many(url))

    def run(*args: str, code: int = 0) -> str:
        assert main(["trace", *args, "--store", url]) == code
        told = capsys.readouterr()
        return told.out + told.err

    return run


async def _fill_many(url: str) -> None:
    async with await open_store(url) as store:
        for day, (chat, text) in enumerate([("7", "a"), ("7", "b"), ("8", "c"), ("9", "d")]):
            at = NOON - timedelta(days=10 - day)
            notice = Outbound(platform="telegram", account="bot", chat_id=chat, text=text)
            await store.transact(outbox.enqueue(notice, cause(text), at))
            (sent,) = await store.transact(begin_sends("w1", at))
            state = OutboxState.DEAD if chat == "9" else OutboxState.UNCLEAR
            await store.transact(outbox.settle_send(sent, "w1", state, error=f"lost {text}"))


def test_many_sends_are_listed_by_state_chat_and_time(many: Callable[..., str]) -> None:
    assert [name in many("--state", "unclear") for name in ("out:0.1-", "out:0.2-", "out:0.3-", "out:0.4-")] == [
        *(True, True, True, False)
    ]
    for args, found in (
        (("--chat", "telegram:7"), "2 sends may or may not have arrived"),
        (("--chat", "telegram:bot:8"), "1 send may or may not have arrived"),
        (("--chat", "telegram:other:8"), "0 sends"),
        (("--chat", "signal:7"), "0 sends"),
        (("--since", "2026-02-20"), "2 sends"),
        (("--until", "2026-02-20"), "1 send "),
        (("--limit", "1"), "3 sends"),
    ):
        assert found in many("--state", "unclear", *args), args
    assert "1 send given up" in many("--state", "dead")


def test_many_sends_are_sent_again_after_a_dry_run_says_how_many(many: Callable[..., str]) -> None:
    chosen = "--state", "unclear", "--chat", "telegram:7"
    assert "2 sends would be sent again" in many(*chosen, "--again", "--dry-run")
    assert "2 sends sent again" in many(*chosen, "--again")
    assert "0 sends" in many(*chosen)
    told = json.loads(many("--state", "unclear", "--delivered", "--json"))
    assert (told["found"], told["settled"]) == (1, 1)
    assert "1 send sent again" in many("--state", "dead", "--again")
    assert "due" in many("out:-4")


@pytest.mark.parametrize(
    ("args", "hint"),
    [
        ((), "Name one message"),
        (("out:-1", "--state", "unclear"), "Name one message"),
        (("out:-1", "--dry-run"), "Name one message"),
        (("--state", "lost"), "unclear or dead"),
        (("--state", "unclear", "--chat", "7"), "platform:chat"),
        (("--state", "unclear", "--again", "--delivered"), "Choose one outcome"),
        (("--state", "dead", "--delivered"), "--again"),
        (("--state", "unclear", "--since", "soon"), "--since cannot be"),
    ],
)
def test_a_choice_of_sends_that_means_nothing_is_refused(
    many: Callable[..., str], args: tuple[str, ...], hint: str
) -> None:
    assert hint in many(*args, code=2)
