"""Encrypted rooms on a real homeserver: read and written, with keys that survive; told where that cannot be."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import pytest

from palaver.model.attachment import Attachment, NewFile
from palaver.model.label import Label
from palaver.platforms.matrix.adapter import MatrixAdapter
from palaver.protocols.adapter import PlatformDown, SendRefused
from palaver.testkit.notebook import PATIENCE, Notebook, running
from tests.platforms.matrix.homeserver import Homeserver, Stage
from tests.platforms.matrix.rigs import ACCOUNT, MatrixRig, present, rigged
from tests.platforms.matrix.test_rooms import outbound, said_by

_FILE = NewFile("../secret.txt", b"nobody else reads this", "text/plain")


@pytest.fixture(scope="module")
def stage(home: Homeserver) -> Stage:
    return home.stage(encrypted=True)


@pytest.fixture
async def rig(home: Homeserver, tmp_path: Path) -> AsyncGenerator[MatrixRig]:
    async with rigged(home, tmp_path, home.stage(encrypted=True)) as rig:
        yield rig


async def kinds(rig: MatrixRig) -> set[str]:
    """What the homeserver itself can see of it."""
    path = f"/_matrix/client/v3/rooms/{rig.chat_id}/messages?dir=b&limit=100"
    events = rig.home.ask("GET", path, None, rig.stage.human.token)["chunk"]
    return {event["type"] for event in events if "state_key" not in event}


async def is_put_off(adapter: MatrixAdapter, rig: MatrixRig, text: str) -> None:
    """Because the homeserver is away, not because we are."""
    async with asyncio.timeout(PATIENCE):
        while True:
            with pytest.raises(PlatformDown) as down:
                await adapter.send(outbound(rig, text), idempotency_key=text)
            if "there is no connection" not in str(down.value):
                return
            await asyncio.sleep(0.02)


async def test_words_and_files_go_both_ways_and_after_a_restart(rig: MatrixRig, tmp_path: Path) -> None:
    notebook, adapter = Notebook(), rig.adapter()
    async with running(adapter, notebook):
        source = await rig.say("who is there?")
        await notebook.has(1)
        receipt = await said_by(adapter, rig, "it is **me**")
        await adapter.edit(receipt, outbound(rig, "it is **us**"))
        await rig.say_with("read this", [_FILE])
        (file,) = await notebook.has_files(1)
        assert b"".join([piece async for piece in adapter.fetch(file)]) == _FILE.content
    await rig.say("while you were away")
    again = rig.adapter()
    async with running(again, notebook):
        await notebook.has(3)
        (tmp_path / "content").write_bytes(_FILE.content)
        attached = Attachment(Label(_FILE.name), _FILE.media_type, len(_FILE.content), "0" * 64)
        await said_by(again, rig, "here it is")
        sending = replace(outbound(rig, ""), file=attached)
        await again.send_file(sending, tmp_path / "content", idempotency_key="the file")
        assert b"".join([piece async for piece in again.fetch(file)]) == _FILE.content
    assert notebook.received[0].source == source
    assert notebook.texts == ["who is there?", "read this", "while you were away"]
    assert [shown.text for shown in await rig.shown()] == ["it is **us**", "here it is", _FILE.name]
    assert await rig.shown_files() == [_FILE]
    assert await kinds(rig) == {"m.room.encrypted"}


@pytest.mark.parametrize("step", ["/joined_members", "/keys/query", "/keys/claim", "/sendToDevice/m.room.encrypted"])
async def test_what_is_said_waits_until_everybody_has_its_key(rig: MatrixRig, step: str) -> None:
    """While the homeserver is away it is neither lost nor said so that nobody can read it."""
    adapter, notebook = rig.adapter(), Notebook()
    rig.proxy.refused = step
    async with running(adapter, notebook):
        await rig.is_heard()
        await rig.person.looks()
        for _ in range(2):
            await is_put_off(adapter, rig, "can you read this?")
        rig.proxy.refused = None
        await said_by(adapter, rig, "can you read this?")
    assert [shown.text for shown in await rig.shown()] == ["can you read this?"]


async def test_keys_that_nobody_can_use_keep_the_answer_from_nobody_else(rig: MatrixRig, tmp_path: Path) -> None:
    """Whoever is in the room may give out what is none, and sign it."""
    eve, adapter = rig.home.register("eve"), rig.adapter()
    async with present(rig.home, eve, tmp_path / "eve") as other:
        await other.gives_out_broken_keys()
        await rig.person.client.room_invite(rig.chat_id, eve.user_id)
        rig.home.join(rig.chat_id, eve)
        async with running(adapter, Notebook()):
            await rig.is_heard()
            await rig.person.looks()
            await said_by(adapter, rig, "can you read this?")
    assert [shown.text for shown in await rig.shown()] == ["can you read this?"]


async def test_who_cannot_be_read_is_told_so_once_where_they_are_alone_with_us(rig: MatrixRig) -> None:
    """In a group nobody is: that would be an answer to whoever wants one."""
    notebook, client, group = Notebook(), rig.person.client, rig.chat_id
    async with running(rig.adapter(), notebook):
        await rig.is_heard()
        direct = await rig.person.makes_room(rig.options.user_id, encrypted=True, direct=True)
        await rig.proxy.answered("/join/")
        await rig.person.looks()
        assert client.olm
        # The keys of what is said are given to nobody.
        for room_id in (group, direct, direct):
            if room_id not in client.olm.outbound_group_sessions:
                client.olm.create_outbound_group_session(room_id)
            client.olm.outbound_group_sessions[room_id].shared = True
            await client.room_send(room_id, "m.room.message", {"msgtype": "m.text", "body": "hi"})
        await rig.proxy.answered("/send/")
        assert not notebook.received
        client.invalidate_outbound_session(direct)
        await rig.person.says(direct, "last")
        await notebook.has(1)
    assert not await rig.shown()
    events = [each for each in await rig.person.sees(direct) if each["sender"] == rig.options.user_id]
    told = [each["content"]["body"] for each in events if "body" in each["content"]]
    assert ["cannot read this message" in each for each in told] == [True]
    assert notebook.texts == ["last"]


@pytest.mark.parametrize("is_anew", [False, True])
async def test_a_message_whose_key_comes_later_is_read_then(rig: MatrixRig, is_anew: bool) -> None:
    """Also where the connection is made anew meanwhile, as it is when something cannot be kept."""
    notebook, client = Notebook(), rig.person.client
    async with running(rig.adapter(), notebook):
        await rig.is_heard()
        await rig.person.looks()
        assert client.olm
        client.invalidate_outbound_session(rig.chat_id)
        await client.keys_claim({**client.get_missing_sessions(rig.chat_id)})
        us = [rig.options.user_id]
        shares = [*client.olm.share_group_session_parallel(rig.chat_id, us, ignore_unverified_devices=True)]
        client.olm.outbound_group_sessions[rig.chat_id].shared = True
        await client.room_send(rig.chat_id, "m.room.message", {"msgtype": "m.text", "body": "early"})
        await rig.proxy.answered("/sendToDevice/m.room_key_request")
        assert not notebook.received
        if is_anew:
            notebook.refusals = 1
            client.invalidate_outbound_session(rig.chat_id)
            await rig.person.says(rig.chat_id, "late")
            await notebook.has(1)
            notebook.refusals = 1
        path = "/_matrix/client/v3/sendToDevice/m.room.encrypted/late"
        for _, messages in shares:
            rig.home.ask("PUT", path, messages, rig.stage.human.token)
        await notebook.has(2 if is_anew else 1)
    assert notebook.texts == (["late", "early"] if is_anew else ["early"])


async def test_without_keys_an_encrypted_room_is_told_so_and_nothing_goes_there_in_plain(
    home: Homeserver, stage: Stage, tmp_path: Path
) -> None:
    notebook = Notebook()
    async with rigged(home, tmp_path, stage) as rig:
        adapter = MatrixAdapter.make(ACCOUNT, rig.options.model_copy(update={"keys": None}))
        async with running(adapter, notebook):
            await rig.proxy.answered("/sync")
            for text in ("one", "two"):
                await rig.person.says(rig.chat_id, text)
            await rig.proxy.answered("/send/m.room.message")
            with pytest.raises(SendRefused):
                await said_by(adapter, rig, "a secret")
        assert ["not set up to read" in shown.text for shown in await rig.shown()] == [True]
    assert not notebook.received


async def test_neither_content_that_breaks_the_reader_nor_a_forged_file_does_harm(rig: MatrixRig) -> None:
    adapter, notebook = rig.adapter(), Notebook()
    async with running(adapter, notebook):
        await rig.say("before")
        await rig.person.sends(rig.chat_id, {"no": "type"})
        await rig.person.sends(rig.chat_id, {"msgtype": "m.image", "body": "x", "file": {"url": 3}})
        await rig.say_with("after", [_FILE])
        (file,) = await notebook.has_files(1)
        other_hash = (file.handle or "").replace('"sha256":"', '"sha256":"AAAA')
        for handle in (other_hash, "{}", "mxc://palaver.test/nothing"):
            with pytest.raises(SendRefused):
                [piece async for piece in adapter.fetch(file._replace(handle=handle))]
    assert notebook.texts == ["before", "x", "after"]


async def test_what_is_encrypted_poses_neither_as_a_redaction_nor_as_a_change_of_the_room(rig: MatrixRig) -> None:
    """The homeserver cannot see in it whether its sender may."""
    adapter, notebook, bot = rig.adapter(), Notebook(), rig.options.user_id
    elsewhere = rig.home.ask("POST", "/_matrix/client/v3/createRoom", {"preset": "public_chat"}, rig.stage.human.token)[
        "room_id"
    ]
    async with running(adapter, notebook):
        said = await rig.say("before")
        deleting = {"type": "m.room.redaction", "redacts": said.message_id, "content": {"redacts": said.message_id}}
        await rig.person.encrypts(rig.chat_id, deleting)
        forged = {**deleting, "content": "none", "event_id": "$forged", "sender": bot, "origin_server_ts": 1}
        await rig.person.encrypts(rig.chat_id, forged)
        await rig.say("between")
        await notebook.has(2)
        for kind, key, content in (
            ("m.room.tombstone", "", {"body": "gone", "replacement_room": elsewhere}),
            ("m.room.name", "", {"name": "Forged"}),
            ("m.room.member", bot, {"membership": "join"}),
        ):
            await rig.person.encrypts(rig.chat_id, {"type": kind, "state_key": key, "content": content})
        content = {"msgtype": "m.text", "body": "after"}
        await rig.person.encrypts(rig.chat_id, {"type": "m.room.message", "state_key": "", "content": content})
        await notebook.has(3)
    assert notebook.texts == ["before", "between", "after"]
    assert not notebook.changes
    assert notebook.received[-1].labels.chat == Label("Dev")
    assert not any("/join/" in each for each in rig.proxy.asked)
