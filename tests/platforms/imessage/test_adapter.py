"""The adapter beyond the suite: how it reads without gaps, how it is called, what BlueBubbles refuses."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from palaver.platforms.imessage import adapter as adapter_module
from palaver.platforms.imessage import reader as reader_module
from palaver.platforms.imessage.adapter import IMessageAdapter, file_name
from palaver.platforms.imessage.reader import Position
from palaver.protocols import (
    Attachment,
    HttpRequest,
    Inbound,
    Label,
    Outbound,
    PlatformDown,
    PlatformError,
    PlatformRefused,
    SendRefused,
    SendUnclear,
    StoreUnavailable,
    TargetGone,
    Trust,
)
from palaver.testkit.recorder import Recorder, running
from tests.engine.gateway import until
from tests.platforms.imessage.fakes import ACCOUNT, PUBLIC_URL, FakeAsking, FakeCalled, options_of
from tests.platforms.imessage.server import Server, serving
from tests.platforms.imessage.world import ANN, DM_GUID, GROUP_GUID, Json, Mac, No

DAY_MS = 24 * 3600 * 1000


@pytest.fixture
async def server() -> AsyncGenerator[Server]:
    async with serving(Mac()) as server:
        yield server


@pytest.fixture
def mac(server: Server) -> Mac:
    return server.mac


@pytest.fixture
def fake(server: Server) -> FakeAsking:
    return FakeAsking(server)


def to(chat: str, text: str, **more: Any) -> Outbound:
    return replace(Outbound(platform="imessage", account=ACCOUNT, chat_id=chat, text=text), **more)


# Reading


async def test_what_came_before_the_first_connection_is_not_answered(mac: Mac, fake: FakeAsking) -> None:
    mac.add(DM_GUID, "long ago")
    recorder = Recorder()
    async with running(fake.adapter(), recorder):
        await fake.say("now")
        await recorder.has(1)
    async with running(fake.adapter(), recorder):
        await fake.say("then")
        await recorder.has(2)
    assert recorder.texts == ["now", "then"]


async def test_a_message_that_the_mac_gets_late_is_read_although_it_is_older(mac: Mac, fake: FakeAsking) -> None:
    recorder = Recorder()
    async with running(fake.adapter(), recorder):
        await fake.say("first")
        later = mac.add(DM_GUID, "much later", dateCreated=mac.now() + DAY_MS // 2)
        await recorder.has(2)
        # It was sent hours before the newest one, and the Mac was offline.
        mac.add(DM_GUID, "late", dateCreated=later["dateCreated"] - DAY_MS // 4)
        await recorder.has(3)
        # Nobody answers a year of messages that the Mac copies from iCloud.
        mac.add(DM_GUID, "last year", dateCreated=later["dateCreated"] - 365 * DAY_MS)
        await fake.say("and on", dateCreated=mac.now() + DAY_MS)
        await recorder.has(4)
    assert recorder.texts == ["first", "much later", "late", "and on"]


async def test_a_message_from_the_future_hides_nothing(mac: Mac, fake: FakeAsking) -> None:
    recorder = Recorder()
    async with running(fake.adapter(), recorder):
        await fake.server.is_asked.wait()
        mac.start_clock(datetime.now(UTC) + timedelta(seconds=1))
        await fake.say("future", dateCreated=mac.now() + 4000 * DAY_MS)
        await recorder.has(1)
        await fake.say("now")
        await recorder.has(2)
    async with running(fake.adapter(), recorder):
        await fake.say("and on")
        await recorder.has(3)
    assert recorder.texts == ["future", "now", "and on"]


async def test_a_message_whose_chat_is_written_later_is_read_then(mac: Mac, fake: FakeAsking) -> None:
    recorder = Recorder()
    async with running(fake.adapter(), recorder):
        await fake.say("one")
        await recorder.has(1)
        two = mac.add(DM_GUID, "two", chats=[])
        await fake.say("three")
        await recorder.has(2)
        two["chats"] = [mac.chat(DM_GUID)]
        await recorder.has(3)
    assert set(recorder.texts) == {"one", "two", "three"}


async def test_edits_and_deletions_while_nobody_read_are_found(mac: Mac, fake: FakeAsking) -> None:
    recorder = Recorder()
    async with running(fake.adapter(), recorder):
        said = [await fake.say(text) for text in ("one", "two")]
        await recorder.has(2)
    await fake.edit(said[0], "one!")
    await fake.delete(said[1])
    mac.add(DM_GUID, "three", dateCreated=mac.now() + DAY_MS)
    async with running(fake.adapter(), recorder):
        await recorder.has(3)
        await recorder.has_changes(2)
    assert [(each.text, bool(each.revision and each.revision.deleted)) for each in recorder.changes] == [
        ("one!", False),
        ("", True),
    ]
    assert recorder.texts == ["one", "two", "three"]


async def test_a_long_absence_is_read_page_by_page(mac: Mac, fake: FakeAsking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "_PAGE", 3)
    recorder = Recorder()
    async with running(fake.adapter(), recorder):
        await fake.say("0")
        await recorder.has(1)
    for number in range(1, 8):
        mac.add(DM_GUID, f"{number}")
    async with running(fake.adapter(), recorder):
        await recorder.has(8)
    assert recorder.texts == [f"{number}" for number in range(8)]


async def test_a_crash_during_a_long_read_does_not_begin_again(
    mac: Mac, fake: FakeAsking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_module, "_SAVE_EVERY", 3)
    recorder = Recorder()
    async with running(fake.adapter(), recorder):
        await until(lambda: recorder.position is not None)
        first = recorder.position
        await fake.say("0")
        await until(lambda: recorder.position != first)
    for number in range(1, 8):
        mac.add(DM_GUID, f"{number}")
    store = recorder.receive

    async def receive(inbound: Inbound, trust: Trust) -> None:
        recorder.failures = int(inbound.text == "5")
        await store(inbound, trust)

    monkeypatch.setattr(recorder, "receive", receive)
    with pytest.raises(StoreUnavailable):
        await fake.adapter().run(recorder)
    monkeypatch.undo()
    before = len(recorder.offered)
    async with running(fake.adapter(), recorder):
        await recorder.has(8)
    assert recorder.texts == [f"{number}" for number in range(8)]
    assert [each.text for each in recorder.offered[before:]][:2] == ["4", "5"], "three of them were noted"


async def test_a_new_mac_numbers_its_messages_anew(mac: Mac, fake: FakeAsking) -> None:
    recorder = Recorder()
    await recorder.save_position(Position(row=9000, at=mac.now(), since=1).encode())
    async with running(fake.adapter(), recorder):
        await fake.say("hello")
        await recorder.has(1)
    assert recorder.texts == ["hello"]


@pytest.mark.parametrize("text", ["", "[]", "nonsense", '{"row": "x"}', '{"unknown": 1}'])
def test_a_position_that_is_not_ours_is_none(text: str) -> None:
    assert Position.decode(text) is None
    assert Position.decode(None) is None


async def test_a_message_waits_for_its_files_and_not_for_ever(
    mac: Mac, fake: FakeAsking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter_module, "_HOLD_POLL_SECONDS", 0.01)
    recorder = Recorder()
    async with running(fake.adapter(), recorder):
        await fake.say("before")
        message = mac.add(DM_GUID, "look", partCount=2)
        mac.attach(message, [("a.txt", "text/plain", b"hi")])
        files, message["attachments"] = message["attachments"], []
        mac.add(DM_GUID, "after")
        await recorder.has(1)
        asked = len([each for each in fake.server.asked if each.endswith("query")])
        await until(lambda: len([each for each in fake.server.asked if each.endswith("query")]) > asked + 4)
        assert recorder.texts == ["before"], "what came later waits, too"
        message["attachments"] = files
        await recorder.has(3)
        assert [file.name for file in recorder.files] == [Label("a.txt")]
        monkeypatch.setattr(reader_module, "_HOLD_SECONDS", 0.0)
        lost = mac.add(DM_GUID, "lost")
        mac.attach(lost, [("b.txt", "text/plain", b"hi")])
        lost["attachments"] = []
        await recorder.has(4)
    assert recorder.texts == ["before", "look", "after", "lost"]


UNREADABLE: list[Json] = [
    {"handle": {"address": None, "no": 1}, "chats": [{}]},
    {"chats": ["text"]},
    {"attributedBody": [{"runs": [{"range": None}]}]},
    {"dateEdited": "x", "messageSummaryInfo": [7]},
    {"attachments": [{"hideAttachment": False}]},
    {"handle": 7},
]


@pytest.mark.parametrize("fields", UNREADABLE)
async def test_an_unreadable_message_is_logged_by_its_type_and_skipped(
    mac: Mac, fake: FakeAsking, caplog: pytest.LogCaptureFixture, fields: Json
) -> None:
    recorder = Recorder()
    with caplog.at_level(logging.WARNING):
        async with running(fake.adapter(), recorder):
            await fake.say("before")
            mac.add(DM_GUID, "unreadable secret", **fields)
            await fake.say("after")
            await recorder.has(2)
    assert recorder.texts == ["before", "after"]
    assert [record.__dict__["action"] for record in caplog.records][:1] == ["imessage.unreadable"]
    assert "secret" not in caplog.text


async def test_names_come_from_the_contacts_and_are_asked_for_once(mac: Mac, fake: FakeAsking) -> None:
    mac.contacts[ANN] = "Ann Lee"
    recorder = Recorder()
    async with running(fake.adapter(), recorder):
        for text in ("one", "two"):
            await fake.say(text)
        await recorder.has(2)
    assert {inbound.labels.user for inbound in recorder.received} == {Label("Ann Lee")}
    assert fake.server.asked.count("POST contact/query") == 1


async def test_an_automatic_answer_is_a_bots(fake: FakeAsking) -> None:
    recorder = Recorder()
    async with running(fake.adapter(), recorder):
        await fake.say("I am driving", isAutoReply=True)
        await recorder.has(1)
    assert recorder.trusts[0].is_bot


# Being called


async def test_it_registers_its_address_once_and_removes_old_ones(server: Server) -> None:
    fake = FakeCalled(server)
    address = f"{PUBLIC_URL}/in/imessage/{ACCOUNT}"
    others = [f"{address}?secret=old", "http://elsewhere.example/in/imessage/mac"]
    server.webhooks = {number: {"id": number, "url": url, "events": ["*"]} for number, url in enumerate(others)}
    recorder = Recorder()
    for number in (1, 2):
        async with running(fake.adapter(), recorder):
            await fake.say("hello")
            await recorder.has(number)
    secret = options_of(server).shared_secret
    assert [hook["url"] for hook in server.webhooks.values()] == [others[1], f"{address}?secret={secret}"]


def call(secret: str, body: object) -> HttpRequest:
    return HttpRequest(method="POST", query={"secret": secret}, body=json.dumps(body).encode())


async def test_a_call_without_the_secret_is_rejected_and_asks_nothing(server: Server, mac: Mac) -> None:
    adapter = IMessageAdapter(ACCOUNT, options_of(server, public_url=PUBLIC_URL))
    event = {"type": "new-message", "data": mac.add(DM_GUID, "hi")}
    secret = options_of(server).shared_secret
    for wrong in ("", "guess", secret[:-1], f"{secret}é"):
        response = await adapter.handle_callback(call(wrong, event), Recorder())
        assert response.status == 401
    asking = IMessageAdapter(ACCOUNT, options_of(server))
    assert (await asking.handle_callback(call(secret, event), Recorder())).status == 401, "nobody is to call it"
    assert server.asked == []


async def test_a_worker_that_does_not_read_asks_for_just_the_message(server: Server, mac: Mac) -> None:
    """Nothing of the call is believed but the id."""
    adapter = IMessageAdapter(ACCOUNT, options_of(server, public_url=PUBLIC_URL))
    secret, recorder = options_of(server).shared_secret, Recorder()
    message = mac.add(DM_GUID, "hi")
    mac.edit(message, "hello")
    partial = mac.add(DM_GUID, "look")
    mac.attach(partial, [("a.txt", "text/plain", b"hi")])
    partial["attachments"] = []
    forged = {"guid": message["guid"], "text": "forged", "handle": {"address": "+1999"}}
    for event in (
        {"type": "updated-message", "data": forged},
        {"type": "typing-indicator", "data": forged},
        {"type": "new-message", "data": {"guid": "no such message"}},
        {"type": "new-message", "data": None},
        {"type": "new-message", "data": partial},
        {"type": "new-message", "data": mac.add(DM_GUID, "our own", sender=None)},
    ):
        assert (await adapter.handle_callback(call(secret, event), recorder)).status == 200
    assert [(each.text, each.source.user_id) for each in recorder.received] == [("hi", ANN), ("hello", ANN)]


async def test_what_a_lost_call_announced_is_found_by_asking(
    server: Server, mac: Mac, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter_module, "_CALLED_POLL_SECONDS", 0.01)
    fake, recorder = FakeCalled(server), Recorder()
    async with running(fake.adapter(), recorder):
        await fake.say("one")
        await recorder.has(1)
        mac.add(GROUP_GUID, "two")
        await recorder.has(2)
    assert recorder.texts == ["one", "two"]


# The private API


async def test_with_the_private_api_it_types_reads_and_replies(server: Server, mac: Mac) -> None:
    fake, recorder = FakeCalled(server), Recorder()
    adapter = fake.adapter()
    async with running(adapter, recorder):
        said = await fake.say("hello")
        await recorder.has(1)
        await until(lambda: mac.read == [GROUP_GUID])
        await adapter.typing(to(GROUP_GUID, ""))
        await adapter.send(to(GROUP_GUID, "yes", reply_to=said.message_id), idempotency_key="1")
        await adapter.send(to(DM_GUID, "no", reply_to="x"), idempotency_key="2")
    assert mac.typing == [GROUP_GUID]
    assert mac.replies == [said.message_id, None], "a reply in a direct chat would only look odd"


async def test_without_the_private_api_it_does_none_of_that(server: Server, mac: Mac, fake: FakeAsking) -> None:
    adapter, recorder = fake.adapter(), Recorder()
    async with running(adapter, recorder):
        said = await fake.say("hello")
        await recorder.has(1)
        await adapter.typing(to(DM_GUID, ""))
        await adapter.send(to(GROUP_GUID, "yes", reply_to=said.message_id), idempotency_key="1")
    assert (mac.typing, mac.read, mac.replies) == ([], [], [None])
    assert not [each for each in server.asked if each.startswith("POST chat/")]


async def test_read_receipts_can_be_switched_off(server: Server, mac: Mac) -> None:
    mac.has_private_api = True
    fake, recorder = FakeAsking(server), Recorder()
    async with running(IMessageAdapter(ACCOUNT, options_of(server, read_receipts=False)), recorder):
        await fake.say("one")
        await recorder.has(1)
        await fake.say("two")
        await recorder.has(2)
    assert mac.read == []


async def test_a_private_api_that_has_gone_is_no_longer_used(server: Server, mac: Mac) -> None:
    mac.has_private_api = True
    adapter = IMessageAdapter(ACCOUNT, options_of(server))
    await adapter.send(to(DM_GUID, "one"), idempotency_key="1")
    mac.has_private_api = False
    with pytest.raises(PlatformDown, match="private API"):
        await adapter.send(to(DM_GUID, "two"), idempotency_key="2")
    await adapter.send(to(DM_GUID, "two"), idempotency_key="2")
    assert [message["text"] for message in mac.sent] == ["one", "two"]


# Sending


@pytest.mark.parametrize(
    ("no", "error"),
    [
        (No(401, "Unauthorized"), PlatformRefused),
        (No(400, "The chatGuid field is required."), SendRefused),
        (No(400, "Message is already queued to be sent! (Temp GUID: x)"), SendUnclear),
        (No(500, "Chat does not exist!"), TargetGone),
        (No(500, 'osascript … Messages got an error: Can’t get chat id "x". (-1728)\n'), TargetGone),
        (No(500, "Failed to send message! See attached message error code.", data={"error": 22}), TargetGone),
        (No(500, "Failed to send message! See attached message error code.", data={"error": 4}), PlatformDown),
        (No(500, "Failed to send message! See attached message error code."), SendUnclear),
        (No(500, 'osascript … send "iMessage Private API (-1728) already queued" (1)'), SendUnclear),
        (No(504, "Gateway Timeout"), SendUnclear),
    ],
)
async def test_what_bluebubbles_refuses(server: Server, no: No, error: type[PlatformError]) -> None:
    server.refuses.append(no)
    adapter = IMessageAdapter(ACCOUNT, options_of(server))
    with pytest.raises(PlatformError) as raised:
        await adapter.send(to(DM_GUID, "hi"), idempotency_key="1")
    assert type(raised.value) is error
    assert "osascript" not in str(raised.value), "it quotes the message"


async def test_a_send_that_is_never_confirmed_is_looked_up(
    server: Server, mac: Mac, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With AppleScript, BlueBubbles sometimes does not notice that Messages has sent it."""
    mac.start_clock(datetime.now(UTC))
    adapter = IMessageAdapter(ACCOUNT, options_of(server))
    async with running(adapter, Recorder()):
        await adapter.send(to(DM_GUID, "ok"), idempotency_key="0")
        monkeypatch.setattr(adapter_module, "_ANSWER_SECONDS", 0.1)
        server.goes_on.clear()
        receipt = await adapter.send(to(DM_GUID, "ok"), idempotency_key="1")
        assert receipt == mac.sent[1]["guid"], "not the earlier one with the same text"
        mac.start_clock(datetime(2026, 1, 1, tzinfo=UTC))
        with pytest.raises(SendUnclear):
            await adapter.send(to(DM_GUID, "ok"), idempotency_key="2")
        monkeypatch.setattr(mac, "query", _fail)
        with pytest.raises(SendUnclear):
            await adapter.send(to(DM_GUID, "ok"), idempotency_key="3")


def _fail(asked: Json) -> None:
    raise No(500, f"SQLITE_BUSY: {len(asked)}")


async def test_a_key_that_is_still_being_sent_is_not_sent_twice(server: Server, mac: Mac) -> None:
    adapter = IMessageAdapter(ACCOUNT, options_of(server))
    server.goes_on.clear()
    first = asyncio.create_task(adapter.send(to(DM_GUID, "hi"), idempotency_key="1"))
    await until(lambda: len(mac.sent) == 1)
    with pytest.raises(SendUnclear):
        await adapter.send(to(DM_GUID, "hi"), idempotency_key="1")
    server.goes_on.set()
    assert await first == mac.sent[0]["guid"]
    assert len(mac.sent) == 1


async def test_an_address_alone_is_the_direct_chat_with_it(server: Server, mac: Mac) -> None:
    adapter = IMessageAdapter(ACCOUNT, options_of(server))
    await adapter.send(to(ANN, "hi"), idempotency_key="1")
    assert mac.sent[0]["chats"][0]["guid"] == DM_GUID


async def test_a_file_comes_before_its_text(server: Server, mac: Mac, tmp_path: Path) -> None:
    adapter = IMessageAdapter(ACCOUNT, options_of(server))
    (content := tmp_path / "x").write_bytes(b"PDF")
    outbound = to(DM_GUID, "**Here**", file=Attachment(Label("plan.pdf"), "application/pdf", 3, "0" * 64))
    receipt = await adapter.send_file(outbound, content, idempotency_key="1")
    file, text = mac.sent
    assert (file["guid"], file["attachments"][0]["transferName"], text["text"]) == (receipt, "plan.pdf", "Here")
    server.refuses.extend([No(500, "Chat does not exist!")])
    with pytest.raises(TargetGone):
        await adapter.send_file(outbound, content, idempotency_key="2")


async def test_a_file_whose_text_fails_is_not_sent_again(server: Server, tmp_path: Path) -> None:
    adapter = IMessageAdapter(ACCOUNT, options_of(server))
    (content := tmp_path / "x").write_bytes(b"PDF")
    outbound = to(DM_GUID, "here", file=Attachment(Label("plan.pdf"), "application/pdf", 3, "0" * 64))
    send, sends = adapter.send, 0

    async def failing(outbound: Outbound, *, idempotency_key: str) -> str:
        nonlocal sends
        sends += 1
        server.refuses.append(No(500, "Chat does not exist!"))
        return await send(outbound, idempotency_key=idempotency_key)

    adapter.send = failing
    with pytest.raises(SendUnclear, match="file was sent"):
        await adapter.send_file(outbound, content, idempotency_key="1")
    assert sends == 1


# Checking


async def test_the_check_says_who_we_are(server: Server, mac: Mac) -> None:
    adapter = IMessageAdapter(ACCOUNT, options_of(server))
    assert await adapter.check() == "helper@example.org (BlueBubbles 1.9.9, macOS 15.5.0, without the private API)"
    mac.has_private_api = True
    assert (await adapter.check()).endswith("with the private API)")


async def test_the_check_says_what_to_do(server: Server) -> None:
    for changed, error, words in (
        ({"password": "wrong"}, PlatformRefused, "Copy the server password"),
        ({"url": f"{server.url}/api"}, PlatformRefused, "Check the url"),
        (
            {"url": "http://127.0.0.1:9"},
            PlatformDown,
            "There is no connection to the BlueBubbles server. Is the Mac awake",
        ),
    ):
        with pytest.raises(error, match=words) as raised:
            await IMessageAdapter(ACCOUNT, options_of(server, **changed)).check()
        assert "sesame" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("notes.txt", "notes.txt"),
        ("../../etc/passwd", "..:..:etc:passwd"),
        ("..", "file"),
        ("", "file"),
    ],
)
def test_a_file_name_is_no_path(name: str, given: str) -> None:
    assert file_name(Label(name)) == given
