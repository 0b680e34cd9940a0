"""The pigeon passes the suite of every adapter, and says what is wrong with its ring."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from loft import NAME, RING, Loft
from pigeon_post.adapter import PigeonAdapter
from pigeon_post.options import Options
from pydantic import SecretStr

from palaver.protocols import Adapter, PlatformDown, PlatformRefused, Source
from palaver.testkit.conformance import AdapterConformance
from palaver.testkit.fake_server import FakeServer, Shown
from palaver.testkit.recorder import Recorder, running


def pigeon(loft: Loft, ring: str = RING) -> PigeonAdapter:
    return PigeonAdapter.make("greta", Options(port=loft.port, ring=SecretStr(ring)))


class FakeLoft:
    chat_id = "tower"
    thread_id = None

    def __init__(self, loft: Loft) -> None:
        self._loft = loft

    def adapter(self) -> Adapter:
        return pigeon(self._loft)

    async def say(self, text: str, *, name: str = "alice", thread_id: str | None = None) -> Source:
        assert thread_id is None
        number = self._loft.write(text, name)
        return Source(platform="pigeon", account="greta", chat_id="tower", user_id="ann", message_id=str(number))

    async def shown(self) -> Sequence[Shown]:
        return [Shown(chat_id=each["roost"], text=each["text"]) for each in self._loft.flown.values()]

    async def cut(self) -> None:
        self._loft.cut()

    async def limit_rate(self) -> None:
        self._loft.is_tired = True

    async def lose_send(self, *, shown: bool) -> None:
        self._loft.hangs_up = shown

    async def close_chat(self) -> None:
        self._loft.roosts.clear()


@pytest.fixture
async def loft() -> AsyncIterator[Loft]:
    async with Loft().opened() as opened:
        yield opened


class TestPigeon(AdapterConformance):
    @pytest.fixture
    def fake(self, loft: Loft) -> FakeServer:
        return FakeLoft(loft)


@pytest.mark.parametrize("wrong", [{"roost": None}, {"from": 7}, {"at": "soon"}, {"at": 1e30}, {"text": None}, None])
async def test_a_letter_that_nobody_can_read_does_not_keep_the_next_one(
    loft: Loft, wrong: dict[str, object] | None
) -> None:
    recorder = Recorder()
    right = {"roost": "tower", "from": "ann", "called": "Ann", "at": 0, "text": "hi"}
    loft.bring({} if wrong is None else {**right, **wrong})
    loft.write("hello", "Ann")
    async with running(pigeon(loft), recorder):
        await recorder.has(1)
        async with asyncio.timeout(5):
            while loft.letters:  # noqa: ASYNC110 - nobody would set an event
                await asyncio.sleep(0.005)
    assert recorder.texts == ["hello"]


async def test_it_says_who_it_is(loft: Loft) -> None:
    assert await pigeon(loft).check() == NAME


async def test_a_wrong_ring_is_told_with_what_to_do(loft: Loft) -> None:
    with pytest.raises(PlatformRefused, match="Ask its keeper") as refused:
        await pigeon(loft, "nobody's").check()
    assert "nobody's" not in str(refused.value)


async def test_a_loft_that_is_not_there() -> None:
    with pytest.raises(PlatformDown, match="Is the loft open"):
        await PigeonAdapter.make("greta", Options(port=1, ring=SecretStr(RING))).check()
