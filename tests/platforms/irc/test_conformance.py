"""The adapter passes the suite over a real ngIRCd, with another client as the person."""

from collections.abc import AsyncGenerator

import pytest

from palaver.testkit.conformance import AdapterConformance
from palaver.testkit.driver import run_adapter
from palaver.testkit.fake_server import FakeServer
from tests.platforms.irc.fakes import FakeChannel, FakeIrc, person


class _Conformance(AdapterConformance):
    # Markdown is rendered, and IRC has no escapes.
    hostile = tuple(text for text in AdapterConformance.hostile if not text.startswith("*bold*"))


class TestAlone(_Conformance):
    @pytest.fixture
    async def fake(self, irc_port: int) -> AsyncGenerator[FakeServer]:
        async with person(irc_port, "alice") as alice:
            yield FakeIrc(irc_port, alice)

    async def test_after_a_cut_connection_it_goes_on(self, fake: FakeServer) -> None:
        async with run_adapter(fake) as (_, recorder):
            await fake.say("before")
            await recorder.has(1)
            await fake.cut()
            await fake.say("after")
            await recorder.has(2)
        assert recorder.texts == ["before", "after"]


class TestInAChannel(_Conformance):
    @pytest.fixture
    async def fake(self, irc_port: int, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[FakeServer]:
        # A channel that it was removed from is gone once it cannot join it again.
        monkeypatch.setattr("palaver.platforms.irc.connection._REJOIN_SECONDS", 0.01)
        async with person(irc_port, "alice") as alice:
            fake = FakeChannel(irc_port, alice)
            await alice.do(f"JOIN {fake.chat_id}")
            yield fake

    async def test_a_nick_in_front_addresses_us(self, fake: FakeServer) -> None:
        assert isinstance(fake, FakeChannel)
        async with run_adapter(fake) as (_, recorder):
            await fake.say("hello all")
            await fake.mention("what time is it?")
            await fake.say(f"\x02ask\x02 {fake.bot}, not {fake.bot}2")
            await fake.alice.do(f"NOTICE {fake.chat_id} :{fake.bot}: never answered")
            await fake.say("\x01ACTION waves\x01")
            await recorder.has(4)
        assert recorder.texts == ["hello all", "what time is it?", f"ask {fake.bot}, not {fake.bot}2", "* waves"]
        assert [inbound.mentions_us for inbound in recorder.received] == [False, True, True, False]
