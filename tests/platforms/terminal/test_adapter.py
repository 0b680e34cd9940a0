"""The gateway's end of the terminal."""

import asyncio
import contextlib
import os
import socket
import stat
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from palaver.model.backoff import backoff
from palaver.model.errors import StoreError, StoreUnavailable
from palaver.model.turn import Outbound
from palaver.platforms.terminal.adapter import TerminalAdapter
from palaver.platforms.terminal.client import GatewayFailing
from palaver.platforms.terminal.socket import connect, listen
from palaver.platforms.terminal.wire import MAX_TEXT, Hello, RecapLine, encode
from palaver.protocols.adapter import PlatformDown, SendUnclear, TargetAway
from palaver.protocols.clock import SystemClock
from palaver.testkit.recorder import Recorder, running
from tests.platforms.terminal.people import Person, PlainDesk


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t.sock"


class Open:
    """An adapter at work, its socket open."""

    def __init__(self, path: Path, *recap: RecapLine) -> None:
        self.adapter = TerminalAdapter(path, PlainDesk(recap), SystemClock())
        self.recorder = Recorder()
        self._path = path

    @asynccontextmanager
    async def __call__(self) -> AsyncGenerator[TerminalAdapter]:
        async with running(self.adapter, self.recorder), asyncio.timeout(60):
            async with Person(self._path, "somewhere").present():
                pass
            yield self.adapter


def entries(path: Path) -> list[Path]:
    return list(path.parent.iterdir())


def take_away(path: Path) -> None:
    path.unlink()


def to(chat: str, text: str) -> Outbound:
    return Outbound(platform="terminal", chat_id=chat, text=text)


async def test_the_socket_is_for_its_owner_alone_and_goes_with_the_gateway(path: Path) -> None:
    async with Open(path)():
        assert [stat.S_IMODE(each.stat().st_mode) for each in entries(path)] == [0o600]
    assert entries(path) == []


async def test_what_a_dead_gateway_left_behind_is_replaced(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    assert entries(path) == [path]
    async with running(Open(path).adapter, Recorder()), Person(path).present():
        pass


async def test_a_living_gateway_keeps_its_socket(path: Path) -> None:
    async with Open(path)():
        with pytest.raises(PlatformDown, match="Another gateway"):
            listen(path)
        async with Person(path).present():
            pass


async def test_a_path_too_long_for_a_socket_works_too(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["a-very-long-name"] * 10) / "t.sock"
    assert len(os.fsencode(deep)) > 108
    async with Open(deep)() as adapter, Person(deep).present() as paper:
        await adapter.send(to("main", "hi"), idempotency_key="1")
        assert paper.texts == ["hi"]


async def test_the_welcome_brings_commands_and_what_was_said_before(path: Path) -> None:
    said = RecapLine(by_person=True, text="before")
    async with Open(path, said)(), Person(path).present() as paper:
        (welcome,) = paper.welcomes
    assert [command.name for command in welcome.commands] == ["new"]
    assert welcome.recap == (said,)


async def test_where_nobody_is_the_message_waits(path: Path) -> None:
    async with Open(path)() as adapter, Person(path, "work").present():
        for doing in (adapter.send(to("main", "hi"), idempotency_key="1"), adapter.edit("1", to("main", "hi"))):
            with pytest.raises(TargetAway):
                await doing


async def test_before_the_socket_is_open_there_is_no_connection(path: Path) -> None:
    with pytest.raises(PlatformDown):
        await Open(path).adapter.send(to("main", "hi"), idempotency_key="1")


async def test_all_terminals_of_a_chat_see_the_same_and_no_other_does(path: Path) -> None:
    one, two, elsewhere = Person(path), Person(path), Person(path, "work")
    async with Open(path)() as adapter, one.present() as a, two.present() as b, elsewhere.present() as c:
        await one.say("hello")
        await b.until(lambda: b.others == ["hello"])
        await adapter.send(to("main", "hi"), idempotency_key="1")
        await asyncio.gather(a.until(lambda: a.texts == ["hi"]), b.until(lambda: b.texts == ["hi"]))
        assert (a.others, c.others, c.texts) == ([], [], [])


async def test_one_that_is_alone_gets_its_own_answers_and_what_nobody_else_waits_for(path: Path) -> None:
    one, two, watcher = Person(path, alone=True), Person(path, alone=True), Person(path)
    async with Open(path)() as adapter, one.present() as a, two.present() as b, watcher.present() as c:
        mine = one.says("mine", "alice")
        await c.until(lambda: c.others == ["mine"])
        await adapter.send(replace(to("main", "for one"), reply_to=mine), idempotency_key="1")
        await adapter.send(replace(to("main", "for whoever left"), reply_to="earlier"), idempotency_key="2")
        await asyncio.gather(*(each.until(lambda each=each: "for whoever left" in each.texts) for each in (a, b, c)))
    assert (a.texts, b.texts, c.texts) == (
        ["for one", "for whoever left"],
        ["for whoever left"],
        ["for one", "for whoever left"],
    )


async def test_a_socket_that_was_taken_away_is_missed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palaver.platforms.terminal.socket._CHECK_SECONDS", 0.01)
    serving = asyncio.create_task(Open(path).adapter.run(Recorder()))
    async with asyncio.timeout(60):
        async with Person(path).present():
            take_away(path)
            with pytest.raises(PlatformDown, match="Somebody removed"):
                await serving


@pytest.mark.parametrize(
    "failing", [(PlainDesk, "recap"), (Recorder, "chat_returned"), (Recorder, "receive")], ids=lambda each: each[1]
)
@pytest.mark.parametrize(("error", "passes"), [(StoreUnavailable("full"), True), (StoreError("damaged"), False)])
async def test_a_gateway_that_fails_again_and_again_is_given_up(
    path: Path, monkeypatch: pytest.MonkeyPatch, failing: tuple[type, str], error: StoreError, *, passes: bool
) -> None:
    """Also one that still welcomes everybody, and fails with what they say."""

    async def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(*failing, fail)
    monkeypatch.setattr("palaver.platforms.terminal.client._FIRST_RETRY_SECONDS", 0.001)
    person = Person(path)
    async with running(Open(path).adapter, Recorder()), asyncio.timeout(60):
        person.say("hello")
        with pytest.raises(GatewayFailing, match=str(error)) as given_up:
            await person.run()
    assert given_up.value.passes is passes
    assert person.paper.losses < 6


async def test_one_that_loses_the_gateway_again_and_again_tries_ever_less_often(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise ValueError("it does not say why")

    pauses: list[float] = []

    def pause(attempt: int, **options: float) -> float:
        pauses.append(backoff(attempt, **options))
        return 0.0

    monkeypatch.setattr(Recorder, "receive", fail)
    monkeypatch.setattr("palaver.platforms.terminal.client.backoff", pause)
    person = Person(path)
    async with running(Open(path).adapter, Recorder()):
        person.say("hello")
        talking = asyncio.create_task(person.run())
        await person.paper.until(lambda: len(pauses) >= 9)
        talking.cancel()
    assert pauses[:9] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 3.2, 3.2]


async def test_an_answer_grows_and_a_late_reader_sees_it_whole(path: Path) -> None:
    async with Open(path)() as adapter, Person(path).present() as early:
        receipt = await adapter.draft(None, to("main", "one"))
        assert await adapter.draft(receipt, to("main", "one two")) == receipt
        async with Person(path).present() as late:
            await adapter.edit(receipt, to("main", "one two three"))
            await late.until(lambda: late.texts == ["one two three"])
    assert early.states == [
        (receipt, "one", True),
        (receipt, "one two", True),
        (receipt, "one two three", False),
    ]


async def test_a_terminal_that_outlived_the_gateway_still_knows_its_messages(path: Path) -> None:
    async with Open(path)() as adapter:
        person = Person(path)
        running = asyncio.create_task(person.run())
        await person.paper.until(lambda: bool(person.paper.welcomes))
        receipt = await adapter.draft(None, to("main", "half"))
    async with Open(path)() as adapter:
        await person.paper.until(lambda: len(person.paper.welcomes) == 2)
        await adapter.edit(receipt, to("main", "half and whole"))
    running.cancel()
    await asyncio.wait({running})
    assert person.paper.texts == ["half and whole"]
    assert person.paper.losses


async def test_typing_is_reported(path: Path) -> None:
    async with Open(path)() as adapter, Person(path).present() as paper:
        await adapter.typing(to("main", ""))
        await paper.until(lambda: paper.typings == 1)
        await adapter.typing(to("main", "Using `search` (3 s)"))
        await paper.until(lambda: paper.doing == ["", "Using `search` (3 s)"])


async def test_one_that_confirms_nothing_holds_up_nobody_else(path: Path) -> None:
    async with Open(path)() as adapter:
        reader, writer = await connect(path)
        writer.write(encode(Hello(chat="main")))
        await reader.readline()
        sending = asyncio.create_task(adapter.send(to("main", "hi"), idempotency_key="1"))
        await reader.readline()
        async with Person(path).present():
            await adapter.send(to("main", "there"), idempotency_key="2")
        assert not sending.done()
        writer.close()
        with pytest.raises(SendUnclear):
            await sending


async def test_one_that_stops_reading_is_let_go(path: Path) -> None:
    async with Open(path)() as adapter:
        reader, writer = await connect(path)
        writer.write(encode(Hello(chat="main")))
        await reader.readline()
        writer.transport.pause_reading()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        sends = (adapter.send(to("main", "x" * MAX_TEXT), idempotency_key=str(number)) for number in range(100))
        ends = await asyncio.gather(*sends, return_exceptions=True)
        assert all(isinstance(end, SendUnclear) for end in ends)
        writer.close()


@pytest.mark.parametrize(
    "line",
    [b"\n", b"{}\n", b'{"do": "say"}\n', b'{"do": "hello", "chat": ""}\n', b"\xff\xfe\n", b"[" * 100_000 + b"\n"],
)
async def test_nonsense_ends_its_own_connection_only(path: Path, line: bytes) -> None:
    async with Open(path)(), Person(path).present() as paper:
        for before in (b"", encode(Hello(chat="main"))):
            reader, writer = await connect(path)
            writer.write(before + line)
            with contextlib.suppress(ConnectionError):
                await reader.read()
            writer.close()
        assert not paper.losses
