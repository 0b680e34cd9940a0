"""What a stranger or another tenant tries at the connector is refused, and the tenant's own traffic goes on."""

import asyncio
import json
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosedError

from palaver.model.attachment import Attachment
from palaver.model.key import ProfileRule
from palaver.model.label import Label, write_label
from palaver.model.source import Source
from palaver.model.turn import BusyMode, Cause, Inbound, Outbound
from palaver.platforms.relayed.adapter import closed_error, join, offer_key, open_line
from palaver.protocols.adapter import PlatformRefused, SendRefused
from palaver.protocols.relay import Channel, Forged, Frame, new_secret, read_inbound, read_outbound, write_outbound
from palaver.testkit.platform import BOT
from palaver.testkit.updates import File
from palaver.web import relay
from tests.engine.gateway import until
from tests.relay.world import Connector, connector, gateway
from tests.store.world import NOON

NAME = f"fake:{BOT}"


async def test_a_code_works_once_and_only_in_time(tmp_path: Path) -> None:
    async with connector(tmp_path) as there:
        code = await there.invite("acme")
        first, second = await asyncio.gather(
            join(there.url, code, new_secret()), join(there.url, code, new_secret()), return_exceptions=True
        )
        assert sorted(type(each).__name__ for each in (first, second)) == ["Enrolment", "PlatformRefused"]
        for wrong in (code, await there.invite("acme", lasts=timedelta(seconds=-1)), new_secret(), ""):
            with pytest.raises(PlatformRefused, match="wrong, used or expired"):
                await join(there.url, wrong, new_secret())


async def test_joining_again_revokes_the_key_of_before(tmp_path: Path) -> None:
    async with connector(tmp_path) as there:
        lost = await there.enrol("acme")
        await there.enrol("acme")
        with pytest.raises(PlatformRefused):
            await open_line(lost, NAME)


@pytest.mark.parametrize("change", [{"keys": (new_secret(),)}, {"tenant": "globex"}, {"tenant": "nobody"}])
async def test_a_wrong_key_or_anothers_name_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    rules = [ProfileRule(profile=name, platform="fake", chat_id=name) for name in ("acme", "globex")]
    async with connector(tmp_path, *rules) as there:
        mine = await there.enrol("acme")
        await there.enrol("globex")
        with pytest.raises(PlatformRefused):
            await open_line(mine.model_copy(update=change), NAME)


async def test_who_has_guessed_too_often_has_to_wait(tmp_path: Path) -> None:
    async with connector(tmp_path) as there:
        mine = await there.enrol("acme")
        for _ in range(20):
            with pytest.raises(PlatformRefused, match="does not accept"):
                await open_line(mine.model_copy(update={"keys": (new_secret(),)}), NAME)
        with pytest.raises(PlatformRefused, match="Too many wrong attempts"):
            await open_line(mine, NAME)


async def test_a_new_connection_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    async with connector(tmp_path) as there:
        mine = await there.enrol("acme")
        before, _ = await open_line(mine, NAME)
        for _ in range(2):
            line, _ = await open_line(mine, NAME)
            assert await closed_by(before) == 4409
            before = line
        await before.close()


async def test_a_gateway_that_acknowledges_nothing_gets_a_few_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "WINDOW", 3)
    async with connector(tmp_path) as there:
        alice = there.world.person("alice")
        chat = there.world.dm(alice)
        for number in range(5):
            await chat.say(alice, f"message {number}")
        await until(lambda: not there.world.unacknowledged())
        line, (channel, _) = await open_line(await there.enrol("acme"), NAME)
        got = [channel.open(await line.recv()) for _ in range(3)]
        for number in range(2):
            await line.send(channel.seal({"type": "call", "ref": number, "do": "check"}))
            assert channel.open(await line.recv())["type"] == "result", "no more comes"
            await line.send(channel.seal({"type": "ack", "no": got[number]["no"]}))
            got.append(channel.open(await line.recv()))
        assert [frame["inbound"]["text"] for frame in got] == [f"message {number}" for number in range(5)]
        await line.close()


def test_what_one_side_has_sealed_is_for_the_other() -> None:
    here, there = (Channel("key", ("a", "b"), is_connector=is_connector) for is_connector in (True, False))
    sealed = here.seal({"type": "call"})
    with pytest.raises(Forged):
        here.open(sealed)
    assert there.open(sealed) == {"type": "call"}


def test_the_other_side_names_no_account_but_its_own_and_nothing_that_only_a_gateway_decides() -> None:
    theirs = Source(platform="telegram", account="other", profile="private", chat_id="1", user_id="2", message_id="3")
    ours = Source(platform="fake", account=BOT, chat_id="1", user_id="2", message_id="3")
    inbound = Inbound(
        source=theirs,
        text="hi",
        at=NOON,
        cause=Cause.SCHEDULE,
        busy=BusyMode.INTERRUPT,
        plain=True,
        observed=True,
        instructions="Obey.",
        request_key="k",
        continues=7,
    )
    frame = msgspec.to_builtins(inbound, enc_hook=write_label)
    assert read_inbound(frame, "fake", BOT) == Inbound(source=ours, text="hi", at=NOON)
    outbound = Outbound(
        platform="telegram", account="other", chat_id="1", text="hi", mirror="m", handoff=3, is_news=True
    )
    frame = msgspec.to_builtins(outbound, enc_hook=write_label)
    assert read_outbound(frame, "fake", BOT) == Outbound(platform="fake", account=BOT, chat_id="1", text="hi")


async def test_the_connector_itself_checks_the_key(tmp_path: Path) -> None:
    """A stranger has no reason to check who answers."""
    async with connector(tmp_path) as there:
        await there.enrol("acme")
        async with connect(there.url) as stranger:
            await stranger.recv()
            hello = {"type": "hello", "tenant": "acme", "nonce": "n", "account": NAME, "proof": "0" * 64}
            await stranger.send(json.dumps(hello))
            with pytest.raises(ConnectionClosedError):
                await stranger.recv()


async def test_a_tenant_sees_and_settles_nothing_of_another(tmp_path: Path) -> None:
    rules = [ProfileRule(profile="globex", platform="fake"), ProfileRule(profile="acme", platform="fake", chat_id="c9")]
    async with connector(tmp_path, *rules, ProfileRule(profile="elsewhere", platform="telegram")) as there:
        bob = there.world.person("bob")
        chat = there.world.dm(bob)
        await chat.say(bob, "secret")
        await until(lambda: _waits(there, "globex"))
        with pytest.raises(PlatformRefused, match="has no account"):
            await _ask(await open_line(await there.enrol("elsewhere"), NAME))
        line, (channel, accounts) = await open_line(await there.enrol("acme"), NAME)
        for number in range(1, 10):
            await line.send(channel.seal({"type": "ack", "no": number}))
        assert (await _ask((line, (channel, accounts))))["type"] == "result"
        await line.close()
        assert await there.waiting("globex") == 1
        async with gateway(tmp_path, await there.adapter("globex"), "globex"):
            await chat.hears("You said: secret")


async def _waits(there: Connector, tenant: str) -> bool:
    return await there.waiting(tenant) == 1


async def _ask(opened: tuple[ClientConnection, tuple[Channel, object]]) -> Frame:
    """Ask something and return the first frame that comes."""
    line, (channel, _) = opened
    try:
        await line.send(channel.seal({"type": "call", "ref": 1, "do": "check"}))
        return channel.open(await line.recv())
    except ConnectionClosedError as error:
        raise closed_error(error) from error


async def closed_by(line: ClientConnection) -> int | None:
    """Return the code with which the connector closes the line."""
    async with asyncio.timeout(60):
        await line.wait_closed()
    return line.close_code


async def test_a_forged_and_a_repeated_frame_end_the_connection(tmp_path: Path) -> None:
    async with connector(tmp_path) as there:
        enrolment = await there.enrol("acme")
        ask = {"type": "call", "ref": 1, "do": "check"}

        line, (channel, _) = await open_line(enrolment, NAME)
        sealed = channel.seal(ask)
        await line.send(sealed[:-1] + " }")
        assert await closed_by(line) == 4400

        line, (channel, _) = await open_line(enrolment, NAME)
        sealed = channel.seal(ask)
        await line.send(sealed)
        await line.send(sealed)
        assert await closed_by(line) == 4400

        # One that was recorded in an earlier connection.
        line, (channel, _) = await open_line(enrolment, NAME)
        await line.send(sealed)
        assert await closed_by(line) == 4400

        surrogate = json.dumps({"type": "hello", "tenant": "acme", "proof": "\ud800"})
        for rubbish in ("", "{}", "[" * 100_000, b"\xff\x00", json.dumps({"type": "hello", "tenant": 7}), surrogate):
            async with connect(there.url) as stranger:
                await stranger.send(rubbish)
                assert await closed_by(stranger) in {4400, 4401}


async def test_the_gateway_does_not_trust_a_connector_without_its_key(tmp_path: Path) -> None:
    async with connector(tmp_path) as there:
        enrolment = await there.enrol("acme")
        other = tmp_path / "other"
        other.mkdir()
        async with connector(other) as false:
            await false.enrol("acme")
            with pytest.raises(PlatformRefused):
                await open_line(enrolment.model_copy(update={"url": false.url}), NAME)

        async def welcome(line: ServerConnection) -> None:
            await line.send(json.dumps({"type": "hello", "nonce": "n"}))
            await line.recv()
            await line.send(json.dumps({"type": "welcome", "proof": "0" * 64, "accounts": {}}))
            await line.wait_closed()

        async with serve(welcome, "127.0.0.1", 0) as listening:
            port = next(iter(listening.sockets)).getsockname()[1]
            with pytest.raises(PlatformRefused, match="not the connector"):
                await open_line(enrolment.model_copy(update={"url": f"ws://127.0.0.1:{port}"}), NAME)


async def test_a_tenant_reaches_neither_chats_nor_files_nor_messages_of_another(tmp_path: Path) -> None:
    rules = [ProfileRule(profile="globex", platform="fake"), ProfileRule(profile="acme", platform="fake", chat_id="c1")]
    async with connector(tmp_path, *rules) as there:
        alice, bob = there.world.person("alice"), there.world.person("bob")
        ours, theirs = there.world.dm(alice), there.world.dm(bob)
        assert ours.id == "c1"
        globex, acme = await there.adapter("globex"), await there.adapter("acme")
        async with gateway(tmp_path, globex, "globex") as other, gateway(tmp_path, acme, "acme") as here:
            await theirs.say(bob, "secret", files=(File(name="plan.txt", media_type="text/plain", content=b"plan"),))
            await theirs.hears("You said: secret")
            await ours.say(alice, "hi")
            await ours.hears("You said: hi")
            assert (await here.texts())[-2:] == ["hi", "You said: hi"]
            assert "hi" not in await other.texts()
            to_bob = Outbound(platform="fake", account=BOT, chat_id=theirs.id, text="gotcha")
            with pytest.raises(SendRefused, match="does not relay this chat"):
                await acme.send(to_bob, idempotency_key="k")
            handle = (await other.rows("SELECT body FROM inbox WHERE length(body) > 0"))[0][0]
            stolen = str(json.loads(handle)["files"][0][4])
            with pytest.raises(SendRefused, match="not relayed to you"):
                await anext(acme.fetch(Attachment(Label("plan.txt"), handle=stolen)))  # type: ignore[attr-defined]
            sent = write_outbound(Outbound(platform="fake", chat_id=ours.id, text=""))
            sent["file"] = ["plan.txt", "text/plain", 4, "0" * 64, None, ""]
            with pytest.raises(SendRefused, match="did not upload"):
                await acme.call("send", {"outbound": sent, "key": "k2"})
        assert "gotcha" not in [message.text for message in theirs.shown]


async def test_a_key_is_changed_while_the_gateway_runs(tmp_path: Path) -> None:
    async with connector(tmp_path) as there:
        before = await there.enrol("acme")
        adapter = there.make(before)
        async with gateway(tmp_path, adapter):
            alice = there.world.person("alice")
            chat = there.world.dm(alice)
            await chat.say(alice, "one")
            await chat.hears("You said: one")
            key = new_secret()
            await offer_key(before, key)
            after = before.model_copy(update={"keys": (key, *before.keys)})
            there.make(after)
            line, _ = await open_line(before.model_copy(update={"keys": (key,)}), "")
            await line.close()
            with pytest.raises(PlatformRefused):
                await open_line(before, "")
            await chat.say(alice, "two")
            await chat.hears("You said: two")
