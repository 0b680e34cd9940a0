"""The adapter passes the suite over a server that speaks Feishu's documented API."""

from collections.abc import AsyncGenerator

import pytest

from palaver.platforms.feishu.adapter import FeishuAdapter
from palaver.platforms.feishu.stream import Frame, Parts
from palaver.protocols import HttpRequest, PlatformRefused, parse_or_skip
from palaver.testkit.driver import run_adapter
from palaver.testkit.fake_server import FakeServer
from palaver.testkit.recorder import Recorder
from tests.platforms.called import CalledConformance, ExpiringTokens, No, UntypedFiles, serve
from tests.platforms.feishu.fakes import FakeFeishu, FakeGroup, FakeStream, Feishu


class TestAlone(ExpiringTokens):
    @pytest.fixture
    async def fake(self) -> AsyncGenerator[FakeServer]:
        async with serve(Feishu()) as server:
            yield FakeFeishu(server)


class TestInAGroup(ExpiringTokens):
    @pytest.fixture
    async def fake(self) -> AsyncGenerator[FakeServer]:
        async with serve(Feishu()) as server:
            yield FakeGroup(server)


class TestOverALongConnection(UntypedFiles):
    hostile = CalledConformance.hostile

    @pytest.fixture
    async def fake(self) -> AsyncGenerator[FakeServer]:
        async with serve(Feishu()) as server:
            yield FakeStream(server)

    async def test_events_come_in_parts_and_nobody_can_call(self, fake: FakeServer) -> None:
        assert isinstance(fake, FakeStream)
        fake.server.parts = 3
        async with run_adapter(fake) as (adapter, recorder):
            await fake.say("hello there")
            await recorder.has(1)
            assert isinstance(adapter, FeishuAdapter)
            call = HttpRequest(method="POST", headers={}, body=b'{"type": "url_verification", "challenge": "x"}')
            assert (await adapter.handle_callback(call, Recorder())).status == 401
        assert recorder.texts == ["hello there"]
        assert fake.server.pings == 1

    async def test_a_refused_connection_is_explained(self, fake: FakeServer) -> None:
        assert isinstance(fake, FakeStream)
        adapter = fake.adapter()
        fake.server.forbids = No({"code": 514, "msg": "no such app"})
        with pytest.raises(PlatformRefused, match="long connection"):
            await adapter.run(Recorder())

    def test_impossible_frames_are_skipped(self) -> None:
        whole = Frame(method=1, headers={"sum": "2", "seq": "7", "message_id": "m"}, payload=b"x")
        assert Frame.decode(whole.encode()) == whole
        assert parse_or_skip("feishu", lambda: Parts().add(whole)) is None
        for raw in (b"\xff", b"\x08", b"\x42\x05ab"):
            assert parse_or_skip("feishu", lambda raw=raw: Frame.decode(raw)) is None
