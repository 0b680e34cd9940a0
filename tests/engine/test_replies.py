"""However long an answer is, a chat gets a bounded number of messages, and learns where the rest is."""

import threading
from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from palaver.agents.echo import EchoAgent
from palaver.engine import texts
from palaver.engine.delivery.replies import Replies
from palaver.engine.retry import Timeouts
from palaver.engine.settings import Agents
from palaver.engine.turns.agent import AgentRun
from palaver.model.errors import BadArgument
from palaver.model.key import ChatSelector, ScopedSetting
from palaver.model.source import Source
from palaver.model.split import CUT, Unit
from palaver.model.transcript import Entry
from palaver.model.turn import Outbound, QuoteMode
from palaver.protocols.adapter import Limits
from palaver.protocols.agent import Event, Final, Request, TextDelta
from palaver.store.conversations.blob_store import BlobStore
from palaver.testkit.adapter import FakeAdapter
from palaver.testkit.platform import FakePlatform, LoopClock
from tests.agents.helpers import asked
from tests.engine.agents import Scripted, Slow, heard
from tests.engine.gateway import running, settings, until

LONG = "nine char\n" * 1100


async def _long_once(request: Request) -> AsyncGenerator[Event]:
    yield Final(text=LONG if heard(request) == "long" else "short")


async def test_an_answer_that_is_far_too_long_is_cut_and_stands_whole_in_the_transcript(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db", agent=Scripted(_long_once), limits=Limits(text=32)) as here:
        alice, bob = here.world.person("alice"), here.world.person("bob")
        chat, other = here.world.dm(alice), here.world.dm(bob)
        await chat.say(alice, "long")
        await until(lambda: len(chat.shown) == 64)
        assert LONG in await here.texts()
        await other.say(bob, "hello")
        await other.hears("short")
        await here.settled()
        shown = "".join(message.text for message in chat.shown)
        assert len(chat.shown) == 64
        assert "".join(shown.split()).endswith("".join(CUT.split()))


async def _gap(_request: Request) -> AsyncGenerator[Event]:
    yield Final(text=f"before{' ' * 10_000}after")


async def test_an_answer_with_a_far_too_long_gap_says_that_it_is_cut(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db", agent=Scripted(_gap), limits=Limits(text=32)) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "hello")
        await here.settled()
        shown = "".join(message.text for message in chat.shown)
        assert "".join(shown.split()) == "before" + "".join(CUT.split())


class Unfiled(FakeAdapter):
    send_file = None  # pyright: ignore[reportAssignmentType]


@pytest.mark.parametrize(("kind", "messages"), [(FakeAdapter, 2), (Unfiled, 64)])
async def test_where_a_chat_takes_files_a_very_long_answer_is_one_behind_its_beginning(
    tmp_path: Path, kind: type[FakeAdapter], messages: int
) -> None:
    world, shelf = FakePlatform(), BlobStore(tmp_path / "files")
    adapter = kind(world, limits=Limits(text=150))
    async with running(tmp_path / "p.db", world, agent=Scripted(_long_once), adapters=[adapter], shelf=shelf) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "long")
        await until(lambda: len(chat.shown) >= messages)
        await here.settled()
        assert LONG in await here.texts()
        files = [(file.name, file.content.decode()) for message in chat.shown for file in message.files]
        assert files == ([("answer.md", LONG)] if kind is FakeAdapter else [])
        assert chat.shown[0].text.startswith("nine char\nnine char")
        assert (texts.GOES_ON_IN_FILE in "".join(message.text for message in chat.shown)) == bool(files)


HUGE = "Grüße, nine char\n" * 70_000


async def _huge(_request: Request) -> AsyncGenerator[Event]:
    yield Final(text=HUGE, reasoning=HUGE)


@pytest.mark.parametrize("file_size", [None, 2_000_000, 500])
async def test_an_answer_beyond_all_measure_is_a_file_in_the_transcript_too(
    tmp_path: Path, file_size: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is also split where nobody has to wait for that."""
    threads, answer = list[threading.Thread](), Replies.to

    def to(self: Replies, source: Source, text: str, **options: Any) -> list[Outbound]:
        if len(text) > 100:
            threads.append(threading.current_thread())
        return answer(self, source, text, **options)

    monkeypatch.setattr(Replies, "to", to)
    world, shelf = FakePlatform(), BlobStore(tmp_path / "files") if file_size else None
    url, limit = tmp_path / "p.db", file_size or 1
    async with running(url, world, agent=Scripted(_huge), shelf=shelf, file_size=limit) as here:
        alice = world.person("alice")
        chat = world.dm(alice)
        await chat.say(alice, "hello")
        await here.settled()
        answer_entry = (await here.entries())[-1]
        files = [file.content.decode() for message in chat.shown for file in message.files]
    assert threading.main_thread() not in threads
    assert answer_entry.text.startswith(HUGE[:1_000_000])
    assert answer_entry.text.endswith(texts.CONTINUED_IN_FILE if file_size else texts.NOT_KEPT)
    assert len(answer_entry.text) + len(answer_entry.reasoning) < 2_001_000
    assert [file.name.plain() for file in answer_entry.files] == ["answer.md"] * bool(file_size)
    assert len(files) == bool(file_size)
    for content in files:
        assert len(content.encode()) <= limit
        kept = content if limit > len(HUGE) else content.removesuffix(f"\n{texts.NOT_KEPT}\n")
        assert HUGE.startswith(kept)
        assert (kept == HUGE) == (limit > len(HUGE))


async def _word_by_word(_request: Request) -> AsyncGenerator[Event]:
    for _ in range(20_000):
        yield TextDelta("words ")
    yield Final(text="words " * 20_000)


async def test_a_long_answer_that_grows_is_shown_ever_less_often() -> None:
    shown: list[int] = []

    async def write(_entry: Entry) -> None: ...

    run = AgentRun(
        agent=Scripted(_word_by_word),
        write=write,
        show=lambda text: shown.append(len(text)),
        work=lambda _names: None,
        now=LoopClock().now,
        timeouts=Timeouts(),
        quiet_limit=timedelta(minutes=1),
    )
    await run.ask(asked("hello"))
    assert run.text == "words " * 20_000
    assert shown[:50] == [6 * count for count in range(1, 51)]
    assert len(shown) < 1_000
    assert shown[-1] > 0.98 * len(run.text)


@pytest.mark.parametrize("room", [1, 30, 4000])
def test_no_matter_where_it_goes_it_never_takes_more_messages_than_allowed(room: int) -> None:
    replies = Replies({"fake:bot": FakeAdapter(FakePlatform(), "bot", limits=Limits(text=room, repeats_safely=True))})
    there = Source(platform="fake", account="bot", chat_id="7")
    assert len(replies.to(there, "word " * 100_000)) == 64
    assert len(replies.to(there, "w" * 64)) <= 64


@pytest.mark.parametrize("unit", Unit)
def test_parts_are_as_long_as_the_platform_counts(unit: Unit) -> None:
    limits = Limits(text=100, unit=unit)
    replies = Replies({"fake:bot": FakeAdapter(FakePlatform(), "bot", limits=limits)})
    parts = replies.to(Source(platform="fake", account="bot", chat_id="7"), "\U0001f600" * 1000)
    longest = max(unit.measure(f"{part.text}\n{texts.MAY_BE_DUPLICATE}") for part in parts)
    assert 100 - unit.widest < longest <= 100


async def test_a_turn_ends_even_if_it_cannot_be_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world, agent = FakePlatform(), Slow()
    alice = world.person("alice")
    chat = world.dm(alice)
    async with running(tmp_path / "p.db", world, agent=agent):
        await chat.say(alice, "hello")
        await until(lambda: bool(agent.requests))

    def refuse(self: Replies, source: Source, text: str, **_: object) -> list[Outbound]:  # noqa: ARG001
        raise BadArgument("too small a limit", found="0", allowed="1 or more", example="4096")

    monkeypatch.setattr(Replies, "to", refuse)
    async with running(tmp_path / "p.db", world, agent=agent, worker="w2", attempts=1) as here:
        await here.settled()
        assert await here.rows("SELECT state FROM turns") == [("failed",)]


async def test_a_chat_can_do_without_replies_and_the_setting_can_change(tmp_path: Path) -> None:
    world = FakePlatform()
    alice = world.person("alice")
    quiet, other = world.dm(alice), world.group("Dev", alice)
    selector = ChatSelector(platform="fake", chat_id=quiet.id)
    quotes = ScopedSetting(default=QuoteMode.GROUPS, chats={selector: QuoteMode.NEVER})
    async with running(tmp_path / "p.db", world, quotes=quotes) as here:
        for chat in (quiet, other):
            await chat.say(alice, "hello")
            await chat.hears("hello")
        here.engine.reload(settings(quotes=ScopedSetting(default=QuoteMode.ALWAYS)), Agents(EchoAgent()))
        await quiet.say(alice, "again")
        await quiet.hears("again")
    assert [each.reply_to for each in quiet.shown] == [None, quiet.said[1].id]
    assert [each.reply_to for each in other.shown] == [other.said[0].id]
