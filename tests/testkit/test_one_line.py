"""A platform like IRC: no history, no message ids, no names besides the nick, one line per message."""

import asyncio
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import pytest

from palaver.model.access import Grant
from palaver.protocols import (
    DM,
    GROUP,
    Inbound,
    Label,
    Labels,
    Limits,
    Outbound,
    Platform,
    PlatformBusy,
    PlatformDown,
    Receiver,
    SendUnclear,
    Source,
    TargetGone,
    Trust,
)
from palaver.testkit.conformance import AdapterConformance
from palaver.testkit.fake_server import Shown
from tests.engine.gateway import running as running_gateway
from tests.engine.gateway import until

LINES = Platform(name="lines", title="Lines", keeps_history=False, has_message_ids=False, has_names=False)
Lines = asyncio.Queue[str | None]


class LineServer:
    """Tells everybody who is there, and nobody else."""

    chat_id, thread_id = "#dev", None
    kind = GROUP

    def __init__(self) -> None:
        self.connections: set[Lines] = set()
        self.is_read = asyncio.Event()
        self.lines: list[str] = []
        self.fault: Exception | None = None
        self.shows = False
        """Whether a line is shown although the send fails."""

    def adapter(self) -> "LineAdapter":
        return LineAdapter(self)

    async def say(self, text: str, *, name: str = "alice", thread_id: str | None = None) -> Source:
        del name, thread_id
        async with asyncio.timeout(60):
            await self.is_read.wait()
        for connection in self.connections:
            connection.put_nowait(text)
        return self.source()

    def source(self) -> Source:
        return Source(platform="lines", account="bot", chat_kind=self.kind, chat_id=self.chat_id, user_id="alice")

    async def shown(self) -> list[Shown]:
        return [Shown(chat_id=self.chat_id, text=text) for text in self.lines]

    async def cut(self) -> None:
        for connection in self.connections:
            connection.put_nowait(None)

    async def limit_rate(self) -> None:
        self.fault = PlatformBusy(0.5)

    async def lose_send(self, *, shown: bool) -> None:
        self.fault, self.shows = SendUnclear("The connection was lost."), shown

    async def close_chat(self) -> None:
        self.fault = TargetGone("The channel is closed.")


class LineAdapter:
    platform = LINES
    account: str | None = "bot"
    limits = Limits(text=80, one_line=True)

    def __init__(self, server: LineServer) -> None:
        self._server = server
        self._receipts = count(1)

    async def run(self, receiver: Receiver) -> None:
        lines = Lines()
        self._server.connections.add(lines)
        self._server.is_read.set()
        try:
            await receiver.connected()
            while (text := await lines.get()) is not None:
                labels = Labels(user=Label("alice"))
                await receiver.receive(
                    Inbound(source=self._server.source(), text=text, at=datetime.now(UTC), labels=labels), Trust()
                )
            raise PlatformDown("The connection was lost.")
        finally:
            self._server.connections.discard(lines)
            self._server.is_read.clear()

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        del idempotency_key
        assert len(outbound.text.splitlines()) == 1
        fault, self._server.fault = self._server.fault, None
        if fault is None or self._server.shows:
            self._server.lines.append(outbound.text)
        self._server.shows = False
        if fault:
            raise fault
        return f"line-{id(self)}-{next(self._receipts)}"


class TestLines(AdapterConformance):
    @pytest.fixture
    def fake(self) -> LineServer:
        return LineServer()


async def test_every_line_of_an_answer_is_a_message_and_messages_without_ids_are_all_answered(tmp_path: Path) -> None:
    server = LineServer()
    server.kind = DM
    async with running_gateway(tmp_path / "p.db", adapters=[server.adapter()], grants=(Grant(),)):
        await server.say("/help")
        for number in (1, 2):
            await server.say("hello")
            await until(lambda number=number: server.lines.count("You said: hello") == number)
    assert len(server.lines) > 10
    assert all(line.strip() for line in server.lines)
