"""Encrypted rooms on a real homeserver: read and written, with keys that survive; told where that cannot be."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import pytest

from palaver.model.attachment import Attachment, NewFile
from palaver.model.label import Label
from palaver.model.redact import redact
from palaver.model.text import one_line
from palaver.platforms.matrix.adapter import MatrixAdapter
from palaver.protocols.adapter import PlatformDown, SendRefused
from palaver.testkit.recorder import TIMEOUT_SECONDS, Recorder, running
from tests.platforms.matrix.fakes import ACCOUNT, FakeMatrix, fake_matrix, present
from tests.platforms.matrix.homeserver import Homeserver, Stage
from tests.platforms.matrix.test_rooms import outbound, said_by

_FILE = NewFile("../secret.txt", b"nobody else reads this", "text/plain")


@pytest.fixture(scope="module")
def stage(home: Homeserver) -> Stage:
    return home.stage(encrypted=True)


@pytest.fixture
async def fake(home: Homeserver, tmp_path: Path) -> AsyncGenerator[FakeMatrix]:
    async with fake_matrix(home, tmp_path, home.stage(encrypted=True)) as fake:
        yield fake


async def kinds(fake: FakeMatrix) -> set[str]:
    """What the homeserver itself can see of it."""
    path = f"/_matrix/client/v3/rooms/{fake.chat_id}/messages?dir=b&limit=100"
    events = fake.home.ask("GET", path, None, fake.stage.human.token)["chunk"]
    return {event["type"] for event in events if "state_key" not in event}


async def is_put_off(adapter: MatrixAdapter, fake: FakeMatrix, text: str) -> None:
    """Because the homeserver is away, not because we are."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            with pytest.raises(PlatformDown) as down:
                await adapter.send(outbound(fake, text), idempotency_key=text)
            if "there is no connection" not in str(down.value):
                return
            await asyncio.sleep(0.02)


async def test_words_and_files_go_both_ways_and_after_a_restart(fake: FakeMatrix, tmp_path: Path) -> None:
    recorder, adapter = Recorder(), fake.adapter()
    async with running(adapter, recorder):
        source = await fake.say("who is there?")
        await recorder.has(1)
        receipt = await said_by(adapter, fake, "it is **me**")
        await adapter.edit(receipt, outbound(fake, "it is **us**"))
        await fake.send_file("read this", [_FILE])
        (file,) = await recorder.has_files(1)
        assert b"".join([piece async for piece in adapter.fetch(file)]) == _FILE.content
    await fake.say("while you were away")
    again = fake.adapter()
    async with running(again, recorder):
        await recorder.has(3)
        (tmp_path / "content").write_bytes(_FILE.content)
        attached = Attachment(Label(_FILE.name), _FILE.media_type, len(_FILE.content), "0" * 64)
        await said_by(again, fake, "here it is")
        sending = replace(outbound(fake, ""), file=attached)
        await again.send_file(sending, tmp_path / "content", idempotency_key="the file")
        assert b"".join([piece async for piece in again.fetch(file)]) == _FILE.content
    assert recorder.received[0].source == source
    assert recorder.texts == ["who is there?", "read this", "while you were away"]
    assert [shown.text for shown in await fake.shown()] == ["it is **us**", "here it is", _FILE.name]
    assert await fake.shown_files() == [_FILE]
    assert await kinds(fake) == {"m.room.encrypted"}


async def test_the_check_shows_the_fingerprint_that_other_clients_show(fake: FakeMatrix) -> None:
    adapter, bot = fake.adapter(), fake.stage.bot
    assert "fingerprint" not in await adapter.check()
    async with running(adapter, Recorder()):
        await fake.is_heard()
        await fake.person.looks()
        shown = await adapter.check()
    client = fake.person.client
    seen = client.device_store[bot.user_id][bot.device_id].ed25519
    whole, _, fingerprint = shown.partition(", fingerprint ")
    assert (whole.endswith(f", device {bot.device_id}"), fingerprint.replace(" ", "")) == (True, seen)
    assert fingerprint in one_line(redact(shown), 300), "what the command line does with it"


@pytest.mark.parametrize("step", ["/joined_members", "/keys/query", "/keys/claim", "/sendToDevice/m.room.encrypted"])
async def test_what_is_said_waits_until_everybody_has_its_key(fake: FakeMatrix, step: str) -> None:
    """While the homeserver is away it is neither lost nor said so that nobody can read it."""
    adapter, recorder = fake.adapter(), Recorder()
    fake.proxy.refused = step
    async with running(adapter, recorder):
        await fake.is_heard()
        await fake.person.looks()
        for _ in range(2):
            await is_put_off(adapter, fake, "can you read this?")
        fake.proxy.refused = None
        await said_by(adapter, fake, "can you read this?")
    assert [shown.text for shown in await fake.shown()] == ["can you read this?"]


async def test_keys_that_nobody_can_use_keep_the_answer_from_nobody_else(fake: FakeMatrix, tmp_path: Path) -> None:
    """Anyone who is in the room may give out what is none, and sign it."""
    eve, adapter = fake.home.register("eve"), fake.adapter()
    async with present(fake.home, eve, tmp_path / "eve") as other:
        await other.gives_out_broken_keys()
        await fake.person.client.room_invite(fake.chat_id, eve.user_id)
        fake.home.join(fake.chat_id, eve)
        async with running(adapter, Recorder()):
            await fake.is_heard()
            await fake.person.looks()
            await said_by(adapter, fake, "can you read this?")
    assert [shown.text for shown in await fake.shown()] == ["can you read this?"]


async def test_a_sender_who_cannot_be_read_gets_one_notice_in_a_direct_chat(fake: FakeMatrix) -> None:
    """In a group nobody is: that would be an answer to anyone who wants one."""
    recorder, client, group = Recorder(), fake.person.client, fake.chat_id
    async with running(fake.adapter(), recorder):
        await fake.is_heard()
        direct = await fake.person.makes_room(fake.options.user_id, encrypted=True, direct=True)
        await fake.proxy.answered("/join/")
        await fake.person.looks()
        assert client.olm
        # The keys of what is said are given to nobody.
        for room_id in (group, direct, direct):
            if room_id not in client.olm.outbound_group_sessions:
                client.olm.create_outbound_group_session(room_id)
            client.olm.outbound_group_sessions[room_id].shared = True
            await client.room_send(room_id, "m.room.message", {"msgtype": "m.text", "body": "hi"})
        await fake.proxy.answered("/send/")
        assert not recorder.received
        client.invalidate_outbound_session(direct)
        await fake.person.says(direct, "last")
        await recorder.has(1)
    assert not await fake.shown()
    events = [each for each in await fake.person.sees(direct) if each["sender"] == fake.options.user_id]
    told = [each["content"]["body"] for each in events if "body" in each["content"]]
    assert ["cannot read this message" in each for each in told] == [True]
    assert recorder.texts == ["last"]


@pytest.mark.parametrize("is_anew", [False, True])
async def test_a_message_whose_key_comes_later_is_read_then(fake: FakeMatrix, is_anew: bool) -> None:
    """Also where the connection is made anew meanwhile, as it is when something cannot be kept."""
    recorder, client = Recorder(), fake.person.client
    async with running(fake.adapter(), recorder):
        await fake.is_heard()
        await fake.person.looks()
        assert client.olm
        client.invalidate_outbound_session(fake.chat_id)
        await client.keys_claim({**client.get_missing_sessions(fake.chat_id)})
        us = [fake.options.user_id]
        shares = [*client.olm.share_group_session_parallel(fake.chat_id, us, ignore_unverified_devices=True)]
        client.olm.outbound_group_sessions[fake.chat_id].shared = True
        await client.room_send(fake.chat_id, "m.room.message", {"msgtype": "m.text", "body": "early"})
        await fake.proxy.answered("/sendToDevice/m.room_key_request")
        assert not recorder.received
        if is_anew:
            recorder.failures = 1
            client.invalidate_outbound_session(fake.chat_id)
            await fake.person.says(fake.chat_id, "late")
            await recorder.has(1)
            recorder.failures = 1
        path = "/_matrix/client/v3/sendToDevice/m.room.encrypted/late"
        for _, messages in shares:
            fake.home.ask("PUT", path, messages, fake.stage.human.token)
        await recorder.has(2 if is_anew else 1)
    assert recorder.texts == (["late", "early"] if is_anew else ["early"])


async def test_without_keys_an_encrypted_room_gets_a_notice_and_nothing_goes_there_in_plain(
    home: Homeserver, stage: Stage, tmp_path: Path
) -> None:
    recorder = Recorder()
    async with fake_matrix(home, tmp_path, stage) as fake:
        adapter = MatrixAdapter(ACCOUNT, fake.options.model_copy(update={"keys": None}))
        async with running(adapter, recorder):
            await fake.proxy.answered("/sync")
            for text in ("one", "two"):
                await fake.person.says(fake.chat_id, text)
            await fake.proxy.answered("/send/m.room.message")
            with pytest.raises(SendRefused):
                await said_by(adapter, fake, "a secret")
        assert ["not set up to read" in shown.text for shown in await fake.shown()] == [True]
    assert not recorder.received


async def test_neither_content_that_breaks_the_reader_nor_a_forged_file_does_harm(fake: FakeMatrix) -> None:
    adapter, recorder = fake.adapter(), Recorder()
    async with running(adapter, recorder):
        await fake.say("before")
        await fake.person.sends(fake.chat_id, {"no": "type"})
        await fake.person.sends(fake.chat_id, {"msgtype": "m.image", "body": "x", "file": {"url": 3}})
        # The homeserver would let none of these through, if it could see them.
        for odd in ({"info": "\ud800"}, {"file": {"url": "\ud800"}}, {"url": "mxc://a/b", "info": {"size": 10**40}}):
            content = {"msgtype": "m.image", "body": "y", **odd}
            await fake.person.encrypts(fake.chat_id, {"type": "m.room.message", "content": content})
        await fake.send_file("after", [_FILE])
        (file,) = await recorder.has_files(1)
        other_hash = (file.handle or "").replace('"sha256":"', '"sha256":"AAAA')
        for handle in (other_hash, "{}", "mxc://palaver.test/nothing"):
            with pytest.raises(SendRefused):
                [piece async for piece in adapter.fetch(file._replace(handle=handle))]
    assert recorder.texts == ["before", "x", "y", "after"]


async def test_what_is_encrypted_poses_neither_as_a_redaction_nor_as_a_change_of_the_room(fake: FakeMatrix) -> None:
    """The homeserver cannot see in it whether its sender may."""
    adapter, recorder, bot = fake.adapter(), Recorder(), fake.options.user_id
    elsewhere = fake.home.ask(
        "POST", "/_matrix/client/v3/createRoom", {"preset": "public_chat"}, fake.stage.human.token
    )["room_id"]
    async with running(adapter, recorder):
        said = await fake.say("before")
        deleting = {"type": "m.room.redaction", "redacts": said.message_id, "content": {"redacts": said.message_id}}
        await fake.person.encrypts(fake.chat_id, deleting)
        forged = {**deleting, "content": "none", "event_id": "$forged", "sender": bot, "origin_server_ts": 1}
        await fake.person.encrypts(fake.chat_id, forged)
        await fake.say("between")
        await recorder.has(2)
        for kind, key, content in (
            ("m.room.tombstone", "", {"body": "gone", "replacement_room": elsewhere}),
            ("m.room.name", "", {"name": "Forged"}),
            ("m.room.member", bot, {"membership": "join"}),
        ):
            await fake.person.encrypts(fake.chat_id, {"type": kind, "state_key": key, "content": content})
        content = {"msgtype": "m.text", "body": "after"}
        await fake.person.encrypts(fake.chat_id, {"type": "m.room.message", "state_key": "", "content": content})
        await recorder.has(3)
    assert recorder.texts == ["before", "between", "after"]
    assert not recorder.changes
    assert recorder.received[-1].labels.chat == Label("Dev")
    assert not any("/join/" in each for each in fake.proxy.asked)
