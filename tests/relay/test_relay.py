"""Messages and answers cross the relay once each, even if one side stops in between."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from palaver.engine.relay import RelayedMessage, RelayLink
from palaver.engine.texts import MAY_BE_DUPLICATE
from palaver.model.attachment import Attachment, NewFile
from palaver.model.errors import StoreUnavailable
from palaver.model.key import ProfileRule
from palaver.model.turn import Outbound
from palaver.platforms.relayed.adapter import DownloadingPart
from palaver.protocols.adapter import (
    PlatformDown,
    PlatformError,
    PlatformRefused,
    SendRefused,
    SendUnclear,
    TargetGone,
)
from palaver.protocols.agent import Event, Final, Request
from palaver.protocols.relay import read_error, read_outbound, write_bytes, write_error, write_outbound
from palaver.store.damage.checks import find_damage
from palaver.testkit.driver import retry_until_connected
from palaver.testkit.faults import SendFault
from palaver.testkit.platform import BOT, FakePlatform
from palaver.testkit.recorder import Recorder, running
from palaver.testkit.updates import File
from palaver.web.relay import MAX_FILES
from tests.engine.agents import Scripted, noted
from tests.engine.gateway import Bench, until
from tests.relay.world import Connector, connector, gateway

MARK = f"\n{MAY_BE_DUPLICATE}"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(600_000)


async def handed_over(there: Connector, tenant: str = "acme") -> None:
    async def is_done() -> bool:
        return await there.waiting(tenant) == 0

    await until(is_done)


async def test_the_gateway_answers_and_the_connector_keeps_no_content(tmp_path: Path) -> None:
    async with connector(tmp_path) as there, gateway(tmp_path, await there.adapter("acme")) as here:
        alice = there.world.person("alice")
        chat = there.world.dm(alice)
        await chat.say(alice, "hello")
        await chat.hears("You said: hello")
        await handed_over(there)
        found = await there.here.rows("SELECT state, reason, length(body) FROM inbox")
        assert found == [("done", "relayed to acme", 0)]
        assert await there.here.rows("SELECT count(*) FROM sessions") == [(0,)]
        assert (await here.texts())[-2:] == ["hello", "You said: hello"]


async def test_what_comes_while_the_gateway_is_away_waits_and_keeps_its_order(tmp_path: Path) -> None:
    async with connector(tmp_path) as there:
        adapter = await there.adapter("acme")
        alice = there.world.person("alice")
        chat = there.world.dm(alice)
        for number in range(5):
            await chat.say(alice, f"message {number}")
        await until(lambda: not there.world.unacknowledged())
        assert await there.waiting("acme") == 5
        assert [check.found async for check in find_damage(there.here.store) if not check.ok] == []
        async with gateway(tmp_path, adapter) as here:
            await chat.hears("You said: message 4")
            said = [text for text in await here.texts() if text.startswith("message")]
            assert said == [f"message {number}" for number in range(5)]


async def test_a_key_that_somebody_pastes_is_not_kept_until_the_gateway_is_back(tmp_path: Path) -> None:
    async with connector(tmp_path) as there:
        await there.adapter("acme")
        alice, key = there.world.person("alice"), "sk-" + 12 * "Ab3"
        await there.world.dm(alice).say(alice, f"use {key}")
        await until(lambda: not there.world.unacknowledged())
        [(body,)] = await there.here.rows("SELECT body FROM inbox")
        assert b"use [redacted: openai key]" in body
        assert key.encode() not in body


class Holding(FakePlatform):
    """Lets two sends through, then holds one: before the message is shown, or before the receipt is back."""

    holds_at: str | None = None
    sent = 0

    async def send(self, account: str, outbound: Outbound, key: str) -> str:
        self.sent += 1
        await self._pass("showing")
        receipt = await super().send(account, outbound, key)
        await self._pass("receipt")
        return receipt

    async def _pass(self, moment: str) -> None:
        if self.holds_at == moment and self.sent > 2:
            self.holds_at = None
            await asyncio.Event().wait()


async def test_nothing_is_lost_or_doubled_while_both_sides_are_dropped_in_turn(tmp_path: Path) -> None:
    """Only an answer that was on its way when the connector was dropped comes again, with a mark."""
    world, answers = Holding(), [f"You said: {number}" for number in range(24)]
    alice = world.person("alice")
    chat = world.dm(alice)

    def heard() -> list[str]:
        return list(dict.fromkeys(message.text.removesuffix(MARK) for message in chat.shown))

    async with connector(tmp_path, world=world) as there:
        enrolment, port = await there.enrol("acme"), there.port
    for round_ in range(6):
        moment = ("showing", "receipt", None)[round_ % 3]
        world.holds_at, world.sent = moment, 0
        async with connector(tmp_path, world=world, port=port) as there:
            for number in range(4):
                await chat.say(alice, f"{round_ * 4 + number}")
            async with gateway(tmp_path, there.make(enrolment), crash_limit=100, acknowledges=False):
                await until(lambda: world.sent > 2 and world.holds_at is None)
    async with (
        connector(tmp_path, world=world, port=port) as there,
        gateway(tmp_path, there.make(enrolment), crash_limit=100, acknowledges=False) as here,
    ):
        await until(lambda: len(heard()) == len(answers))
        await here.settled()
        await there.here.settled()
        unclear = [times for (times,) in await there.here.rows("SELECT times_unclear FROM outbox ORDER BY id DESC")]
    assert heard() == answers, "nothing is lost"
    shown = [message.text for message in chat.shown]
    assert max(map(shown.count, answers)) == 1, "nothing comes twice without a mark"
    assert [shown.count(f"{answer}{MARK}") for answer in answers] == unclear, "each mark is true"
    assert sum(unclear) >= 4


async def test_a_send_is_settled_while_messages_before_its_result_are_being_stored(tmp_path: Path) -> None:
    async with connector(tmp_path) as there:
        adapter, recorder = await there.adapter("acme"), Recorder()
        alice = there.world.person("alice")
        chat = there.world.dm(alice)
        async with running(adapter, recorder):
            recorder.writes.clear()
            await chat.say(alice, "one")
            await chat.say(alice, "two")
            await recorder.was_offered(1)
            source = recorder.offered[0].source
            answer = Outbound(platform="fake", chat_id=source.chat or "", text="hi")
            assert await adapter.send(answer, idempotency_key="k")
            assert await there.waiting("acme") == 2, "nothing is acknowledged before it is stored"
            recorder.writes.set()
            await recorder.has(2)
            await handed_over(there)


async def test_files_cross_in_both_directions(tmp_path: Path) -> None:
    async def copies(request: Request) -> AsyncGenerator[Event]:
        name = noted(request).rpartition("file ")[2].partition(":")[0]
        content = await request.read_file(name)
        yield Final(text="here it is", files=(NewFile("copy.png", content, "image/png"),))

    async with (
        connector(tmp_path) as there,
        gateway(tmp_path, await there.adapter("acme"), agent=Scripted(copies)) as here,
    ):
        alice = there.world.person("alice")
        chat = there.world.dm(alice)
        await chat.say(alice, "look", files=(File(name="cat.png", media_type="image/png", content=PNG),))
        await chat.hears("here it is")
        await here.settled()
        await there.here.settled()
        assert [file.content for message in chat.shown for file in message.files] == [PNG]


async def test_the_connector_closes_files_that_the_gateway_stops_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    still_open: set[int] = set()

    async def fetch_endlessly(_: RelayLink, __: Attachment) -> AsyncGenerator[bytes]:
        number = max(still_open, default=0) + 1
        still_open.add(number)
        try:
            while True:
                yield b"more"
        finally:
            still_open.remove(number)

    monkeypatch.setattr(RelayLink, "fetch", fetch_endlessly)
    async with connector(tmp_path) as there:
        adapter, recorder = await there.adapter("acme"), Recorder()
        assert isinstance(adapter, DownloadingPart)
        async with running(adapter, recorder):
            alice = there.world.person("alice")
            await there.world.dm(alice).say(alice, "look", files=(File(name="a", media_type="a/b", content=b"x"),))
            (file,) = await recorder.has_files(1)
            for _ in range(MAX_FILES + 5):
                async with aclosing(adapter.fetch(file)) as chunks:
                    assert await anext(chunks) == b"more"
            assert len(still_open) == MAX_FILES
        await until(lambda: not still_open)


async def test_a_file_that_is_too_large_for_the_connector_is_refused(tmp_path: Path) -> None:
    async with connector(tmp_path, file_size=1000) as there:
        adapter = await there.adapter("acme")
        async with running(adapter, Recorder()):
            number = await retry_until_connected(lambda: adapter.call("upload", {}))
            part = {"file": number, "data": write_bytes(bytes(2000))}
            for _ in range(3):
                with suppress(SendRefused):
                    await adapter.call("write", part)
            with pytest.raises(SendRefused, match="1000"):
                await adapter.call("uploaded", {"file": number})


@pytest.mark.parametrize("kind", [PlatformDown, PlatformRefused, TargetGone, SendRefused, SendUnclear])
def test_an_adapters_own_error_crosses_as_what_it_is(kind: type[PlatformError]) -> None:
    own = type("Own", (kind,), {})
    assert type(read_error(write_error(own("no")))) is kind


def test_where_a_notice_of_the_gateway_goes_next_is_no_matter_of_the_connector() -> None:
    """Neither side gives it on: else the connector's owner gets a refused notice of the gateway."""
    notice = Outbound(platform="fake", chat_id="1", text="hi", avoids=(("fake:bot", "", "2"),))
    frame = write_outbound(notice)
    assert frame["avoids"] is None
    assert read_outbound(frame | {"avoids": []}, "fake", None) == replace(notice, avoids=None)


async def test_edits_deletions_moves_and_groups_cross(tmp_path: Path) -> None:
    async with connector(tmp_path) as there, gateway(tmp_path, await there.adapter("acme")) as here:
        alice, bob = there.world.person("alice"), there.world.person("bob")
        group = there.world.group("Dev", alice, bob)
        said = await group.say(alice, "one", mentions=(BOT,))
        await group.hears("You said: one")
        await group.edit(alice, said, "one more")
        await until(lambda: _edited(here))
        await group.move()
        await group.say(bob, "two", mentions=(BOT,))
        await group.hears("You said: two")
        (first,), _ = await here.rows("SELECT key FROM sessions ORDER BY no")
        assert f":{group.id}:" in first


async def _edited(here: Bench) -> bool:
    return bool(await here.rows("SELECT 1 FROM inbox WHERE version <> ''"))


async def test_messages_go_on_after_the_store_of_the_connector_was_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, outages = RelayLink.list_waiting, [1]

    async def fail_once(link: RelayLink, *, after: int, limit: int) -> list[RelayedMessage]:
        if outages:
            outages.pop()
            raise StoreUnavailable("The store is away.")
        return await read(link, after=after, limit=limit)

    async with connector(tmp_path) as there, gateway(tmp_path, await there.adapter("acme")):
        alice = there.world.person("alice")
        chat = there.world.dm(alice)
        await chat.say(alice, "one")
        await chat.hears("You said: one")
        await handed_over(there)
        monkeypatch.setattr(RelayLink, "list_waiting", fail_once)
        await chat.say(alice, "two")
        await chat.hears("You said: two")
    assert not outages


async def test_a_bot_is_not_relayed(tmp_path: Path) -> None:
    async with connector(tmp_path) as there, gateway(tmp_path, await there.adapter("acme")) as here:
        robot = there.world.person("robot", is_bot=True)
        await there.world.dm(robot).say(robot, "hello, fellow robot")
        await until(lambda: not there.world.unacknowledged())
        states = await there.here.rows("SELECT state, reason FROM inbox")
        assert states == [("refused", "it is from a bot, and trust marks are not relayed")]
        assert await here.rows("SELECT 1 FROM inbox") == []


async def test_the_connector_answers_what_no_tenant_gets(tmp_path: Path) -> None:
    async with connector(tmp_path, ProfileRule(profile="acme", platform="fake", chat_id="elsewhere")) as there:
        alice = there.world.person("alice")
        chat = there.world.dm(alice)
        await chat.say(alice, "hi")
        await chat.hears("You said: hi")
        assert await there.waiting("acme") == 0


async def test_a_refused_send_fails_at_the_gateway(tmp_path: Path) -> None:
    async with connector(tmp_path) as there, gateway(tmp_path, await there.adapter("acme")) as here:
        alice = there.world.person("alice")
        chat = there.world.dm(alice)
        there.world.injector.script.extend([SendFault.REFUSED, SendFault.REFUSED])
        await chat.say(alice, "hi")
        await until(lambda: _dead(here))


async def _dead(here: Bench) -> bool:
    return await here.rows("SELECT state FROM outbox") == [("dead",)]
