"""What a stranger or another tenant tries at the connector is refused, and the tenant's own traffic goes on."""

import asyncio
import json
from datetime import timedelta
from pathlib import Path

import pytest
from websockets.asyncio.client import ClientConnection, connect

from palaver.model.attachment import Attachment
from palaver.model.key import ProfileRule
from palaver.model.label import Label
from palaver.model.turn import Outbound
from palaver.platforms.relayed.adapter import join, offer_key, open_line
from palaver.protocols.adapter import PlatformRefused, SendRefused
from palaver.protocols.relay import new_secret, write_outbound
from palaver.testkit.platform import BOT
from palaver.testkit.updates import File
from tests.relay.world import connector, gateway

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

        for rubbish in ("", "{}", "[" * 100_000, b"\xff\x00", json.dumps({"type": "hello", "tenant": 7})):
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
