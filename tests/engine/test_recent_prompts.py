"""What is kept of recent prompts: bounded in size and in time, and never what decides what a request says."""

import re
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from palaver.db.transaction import Row
from palaver.engine.turns import agent as prompts_of
from palaver.engine.turns.agent import RECENT_PROMPT_LIFETIME, RecentPrompts
from palaver.model.prompt import Naming
from palaver.model.transcript import Entry, Role
from palaver.model.view import ViewedStart, ViewStyle
from palaver.platforms.plugins import PLATFORMS
from palaver.protocols.agent import Event, Final, Request
from palaver.store.conversations import transcript
from palaver.store.conversations.transcript import NOTHING_LOADED, LoadedEntries
from palaver.store.records import entries_of
from tests.engine.agents import Scripted, noted
from tests.engine.gateway import running, until

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
START = ViewedStart(style=ViewStyle(naming=Naming(platform=PLATFORMS["telegram"])))


def _keep(prompts: RecentPrompts, session: str, size: int, now: datetime = NOON) -> None:
    prompt = prompts.take(session)
    prompt.start = replace(START, size=size)
    prompts.keep(session, prompt, now)


def _kept(prompts: RecentPrompts) -> list[str]:
    return [session for session in "abc" if prompts.take(session).start]


def test_the_conversations_that_spoke_last_are_kept_within_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompts_of, "RECENT_PROMPTS_SIZE", 100)
    prompts = RecentPrompts()
    for session in "abca":  # a grows, and is used last
        _keep(prompts, session, 40)
    assert _kept(prompts) == ["a", "c"]
    _keep(prompts, "b", 101)
    assert _kept(prompts) == []
    for session in "abc":
        _keep(prompts, session, 30)
    assert _kept(prompts) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "loaded",
    [
        LoadedEntries(rows=[], entries=[], size=1_000),
        LoadedEntries(rows=[], entries=[Entry(seq=1, role=Role.USER, at=NOON, text="x" * 1_000)]),
    ],
)
def test_rows_and_entries_after_the_start_count(monkeypatch: pytest.MonkeyPatch, loaded: LoadedEntries) -> None:
    prompts = RecentPrompts()
    for key in "ab":
        prompt = prompts.take(key)
        empty = prompt.measure()
        prompt.loaded = loaded
        assert prompt.measure() >= empty + 1_000
        monkeypatch.setattr(prompts_of, "RECENT_PROMPTS_SIZE", prompt.measure() * 3 // 2)  # for one, not for two
        prompts.keep(key, prompt, NOON)
    assert prompts.loaded("a") is NOTHING_LOADED
    assert prompts.loaded("b") is loaded


def test_no_text_stays_in_memory_for_long() -> None:
    prompts, later = RecentPrompts(), NOON + RECENT_PROMPT_LIFETIME / 2
    _keep(prompts, "a", 40)
    _keep(prompts, "b", 40, later)
    prompts.forget_old(later + RECENT_PROMPT_LIFETIME / 2)
    assert _kept(prompts) == ["b"]
    _keep(prompts, "c", 40, later)
    prompts.forget_old(later - timedelta(days=1))  # the clock was set back
    assert _kept(prompts) == []


async def test_a_turn_decodes_only_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = list[int]()

    def counting(rows: Sequence[Row]) -> list[Entry]:
        decoded.append(len(rows))
        return entries_of(rows)

    monkeypatch.setattr(transcript, "entries_of", counting)
    async with running(tmp_path / "p.db", titles=False) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        for number in range(1, 5):
            await chat.say(alice, "hello")
            await until(lambda number=number: len(chat.shown) >= number)
            await here.settled()
    assert decoded[1:] == [2, 2, 2]  # an answer and a message


async def test_what_is_undone_or_returns_is_so_in_the_next_prompt(tmp_path: Path) -> None:
    async def script(_: Request) -> AsyncGenerator[Event]:
        yield Final(text=f"answer {len(agent.requests)}")

    agent = Scripted(script)
    async with running(tmp_path / "p.db", agent=agent, titles=False) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        shown = list[str]()
        for number, text in enumerate(("one", "two", "/undo", "three", "/back", "four", "/new", "five"), 1):
            await chat.say(alice, text)
            await until(lambda number=number: len(chat.shown) >= number)
            await here.settled()
            if not text.startswith("/"):
                shown.append(
                    " ".join(re.findall(r"\b(?:one|two|three|four|five|answer \d)\b", noted(agent.requests[-1])))
                )
    assert shown == [
        "one",
        "one answer 1 two",
        "one answer 1 three",
        "one answer 1 two answer 2 three answer 3 four",
        "five",
    ]
