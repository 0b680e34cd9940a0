"""The adapter beyond the suite: what signal-cli refuses, who people are, what is confirmed, and what is never lost."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from palaver.model.attachment import Attachment
from palaver.model.label import Label
from palaver.model.turn import Outbound
from palaver.platforms.signal.adapter import SignalAdapter
from palaver.platforms.signal.daemon import read_events
from palaver.protocols.adapter import (
    PlatformBusy,
    PlatformDown,
    PlatformError,
    PlatformRefused,
    SendRefused,
    SendUnclear,
    TargetGone,
)
from palaver.testkit.recorder import Recorder, running
from tests.engine.gateway import until
from tests.platforms.signal.fakes import FakeDirect, FakeGroup, adapter_of
from tests.platforms.signal.server import ALICE, GROUP_ID, NUMBER, RpcError, Server, failed, serving

BOB = {"sourceNumber": "+15550100400", "sourceUuid": "b0b00000-0000-4000-8000-000000000003"}


@pytest.fixture
async def server() -> AsyncGenerator[Server]:
    async with serving() as server:
        yield server


@asynccontextmanager
async def connected(server: Server) -> AsyncGenerator[SignalAdapter]:
    adapter = adapter_of(server)
    async with running(adapter, Recorder()):
        await server.heard()
        yield adapter


def to(text: str, chat: str = ALICE["sourceUuid"], **more: Any) -> Outbound:
    return replace(Outbound(platform="signal", account="helper", chat_id=chat, text=text), **more)


# What signal-cli refuses

FAILED = "Failed to send message"
TOKEN = {"token": "abc-def"}
REFUSALS = [
    (RpcError(-5, FAILED, failed("RATE_LIMIT_FAILURE", retryAfterSeconds=35)), PlatformBusy),
    (RpcError(-5, FAILED, failed("RATE_LIMIT_FAILURE")), PlatformBusy),
    (RpcError(-1, FAILED, failed("NETWORK_FAILURE", **TOKEN, retryAfterSeconds=86_400)), PlatformBusy),
    (RpcError(-1, FAILED, failed("UNREGISTERED_FAILURE")), TargetGone),
    (RpcError(-1, "The user +15550100300 is not registered."), TargetGone),
    (RpcError(-1, f"Group not found: {GROUP_ID}"), TargetGone),
    (RpcError(-1, f"User is not allowed to send message to group: Dev ({GROUP_ID})"), TargetGone),
    (RpcError(-1, FAILED, failed("NETWORK_FAILURE")), SendUnclear),
    (RpcError(-3, "Connection closed"), SendUnclear),
    (RpcError(-32603, "Failed to send message: timeout (IOException) (UnexpectedErrorException)"), SendUnclear),
    (RpcError(-32603, "Failed to send message: x (AttachmentInvalidException)"), SendRefused),
    (RpcError(-4, "Failed to send message due to untrusted identities", failed("IDENTITY_FAILURE")), SendRefused),
    (RpcError(-1, FAILED, failed("INVALID_PRE_KEY_FAILURE")), SendRefused),
    (RpcError(-1, "Invalid group id: bad"), SendRefused),
    (RpcError(-32601, "Method not implemented"), SendRefused),
    (RpcError(-32602, "Specified account does not exist"), PlatformRefused),
]


async def test_what_signal_cli_refuses_is_distinguished(server: Server) -> None:
    async with connected(server) as adapter:
        for refusal, kind in REFUSALS:
            server.errors.append(refusal)
            with pytest.raises(PlatformError) as raised:
                await adapter.send(to("hi"), idempotency_key="1")
            is_other = kind is SendRefused and not isinstance(raised.value, TargetGone)
            assert type(raised.value) is kind or is_other, refusal
    assert server.sent == []


async def test_a_wait_is_as_long_as_signal_says(server: Server) -> None:
    waits: list[float] = []
    server.errors += [refusal for refusal, kind in REFUSALS if kind is PlatformBusy]
    async with connected(server) as adapter:
        while server.errors:
            with pytest.raises(PlatformBusy) as busy:
                await adapter.send(to("hi"), idempotency_key="1")
            waits.append(busy.value.after)
    assert waits == [35, 60, 86_400]


async def test_a_captcha_is_reported_with_the_command_that_answers_it(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    server.errors.append(RpcError(-5, FAILED, failed("RATE_LIMIT_FAILURE", **TOKEN, retryAfterSeconds=9)))
    with caplog.at_level(logging.WARNING), pytest.raises(PlatformBusy):
        await adapter_of(server).send(to("secret words"), idempotency_key="1")
    (record,) = [record for record in caplog.records if getattr(record, "action", "") == "signal.captcha_needed"]
    assert f"-a {NUMBER} submitRateLimitChallenge --challenge abc-def" in record.getMessage()
    assert "secret words" not in caplog.text


async def test_mistakes_of_the_configuration_say_what_to_do(server: Server) -> None:
    assert await adapter_of(server).check() == NUMBER
    server.accounts = ["+15550100999"]
    cases: list[tuple[str, int | None, str]] = [
        (server.url, None, "signal-cli link"),
        (server.url, 404, "daemon --http"),
        (server.url, 421, "--http"),
        ("http://127.0.0.1:9", None, "Start it: signal-cli daemon"),
    ]
    for url, status, words in cases:
        server.status = status
        for what in (adapter_of(server, url=url).check(), adapter_of(server, url=url).run(Recorder())):
            with pytest.raises(PlatformDown, match=words):
                await what


async def test_a_daemon_for_one_account_needs_no_list(server: Server) -> None:
    server.serves_one = True
    assert await adapter_of(server).check() == NUMBER
    recorder = Recorder()
    async with running(adapter_of(server), recorder):
        await FakeDirect(server).say("hi")
        await recorder.has(1)
        server.push({"account": "+15550100999", "envelope": {}})
        await server.unheard()
    with pytest.raises(PlatformRefused, match="another account"):
        await _run_with_foreign_message(server)


async def _run_with_foreign_message(server: Server) -> None:
    server.push({"account": "+15550100999", "envelope": {}})
    await adapter_of(server).run(Recorder())


async def test_our_account_id_is_not_needed(server: Server) -> None:
    server.methods["listContacts"] = _fails
    recorder, fake = Recorder(), FakeGroup(server)
    async with running(adapter_of(server), recorder):
        await fake.mention("hi")
        await recorder.has(1)
    assert recorder.received[0].mentions_us


def _fails(_: Any) -> None:
    raise RpcError(-32603, "no network (IOException)")


async def test_an_account_that_disappears_is_reported_by_the_events(server: Server) -> None:
    server.events_status = 400
    with pytest.raises(PlatformRefused, match="has no account"):
        await adapter_of(server).run(Recorder())


# Events


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def test_events_are_read_however_they_are_cut() -> None:
    odd = '{"a":"\u2028\x85\x0b"}'.encode()
    text = b":\nevent:receive\ndata:" + odd + b"\n\n:\r\ndata: one\r\ndata:two\r\n\r\nid:7\n\ndata:unfinished"
    wanted = [odd, b"one\ntwo"]
    for size in (1, 2, 3, 7, len(text)):
        parts = [text[at : at + size] for at in range(0, len(text), size)]
        assert [event async for event in read_events(chunks(*parts))] == wanted


async def test_what_cannot_be_read_is_skipped_without_a_word_of_it(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    hostile: list[Any] = [
        b"not json, secret",
        b'"text"',
        b'{"account": ["secret"]}',
        b"[" * 5000,
        {"envelope": "secret"},
        {"envelope": {"sourceUuid": 7, "dataMessage": {"timestamp": 1, "message": "secret"}}},
        {"envelope": {**ALICE, "dataMessage": {"timestamp": "secret", "message": "x"}}},
        {"envelope": {**ALICE, "dataMessage": {"timestamp": 10**30, "message": "secret"}}},
        {"envelope": {**ALICE, "dataMessage": {"timestamp": 5, "message": {"secret": 1}}}},
        {"envelope": {**ALICE, "dataMessage": {"timestamp": 5, "message": "x", "mentions": [{"start": "secret"}]}}},
        {"envelope": {**ALICE, "dataMessage": {"timestamp": 5, "message": "x", "attachments": "secret"}}},
        {"envelope": {**ALICE, "editMessage": {"dataMessage": {"timestamp": 5, "message": "secret"}}}},
        {"exception": {"message": "secret", "type": "UntrustedIdentityException"}, "envelope": ALICE},
    ]
    recorder = Recorder()
    with caplog.at_level(logging.INFO, logger="palaver"):
        async with running(adapter_of(server), recorder):
            await server.heard()
            for event in hostile:
                server.push(event)
            await FakeDirect(server).say("after")
            await recorder.has(1)
    assert recorder.texts == ["after"]
    assert "secret" not in caplog.text
    actions = [getattr(record, "action", "") for record in caplog.records]
    assert actions.count("signal.unreadable") >= 9
    assert actions.count("signal.not_decrypted") == 1


async def test_what_was_read_is_stored_although_the_adapter_is_being_stopped(server: Server) -> None:
    """signal-cli forgets what it has sent, on the stream or in a portion of what waited."""
    for has_waited in (False, True):
        recorder, fake = Recorder(), FakeDirect(server)
        recorder.writes.clear()
        task = asyncio.create_task(adapter_of(server).run(recorder))
        if not has_waited:
            await server.heard()
        for number in range(5):
            await fake.say(str(number))
        await recorder.was_offered(1)
        await until(lambda: not server.waiting)
        task.cancel()
        await asyncio.sleep(0)
        recorder.writes.set()
        await asyncio.wait({task})
        assert task.cancelled()
        assert recorder.texts == ["0", "1", "2", "3", "4"]


async def test_what_has_waited_comes_in_portions_each_stored_before_the_next(server: Server) -> None:
    """A gateway that crashes as it starts loses no more than one of them."""
    for server.serves_one in (False, True):
        recorder, fake = Recorder(), FakeDirect(server)
        recorder.writes.clear()
        for number in range(25):
            await fake.say(str(number))
        async with running(adapter_of(server), recorder):
            await recorder.was_offered(1)
            assert (len(server.waiting), server.is_heard) == (15, False)
            recorder.writes.set()
            await recorder.has(25)
            await server.heard()
        assert [len(each) for each in server.written] == [10, 10, 5, 0]
        server.written.clear()


async def test_a_daemon_that_receives_for_somebody_else_is_listened_to(server: Server) -> None:
    server.methods["receive"] = _fails
    recorder = Recorder()
    await FakeDirect(server).say("hi")
    async with running(adapter_of(server), recorder):
        await recorder.has(1)


async def test_messages_wait_for_a_store_that_is_away(server: Server) -> None:
    recorder, fake = Recorder(), FakeDirect(server)
    recorder.failures = 3
    async with running(adapter_of(server), recorder):
        await server.heard()
        for number in range(3):
            await fake.say(str(number))
        await recorder.has(3)
        assert len(server.paths) == 1, "on the same connection: what was sent on it comes only once"
    assert recorder.texts == ["0", "1", "2"]


# People


async def test_a_person_is_the_same_under_number_and_account_id(server: Server) -> None:
    number, uuid = ({name: ALICE[name]} for name in ("sourceNumber", "sourceUuid"))
    recorder = Recorder()
    async with running(adapter_of(server), recorder):
        for sender in (number, ALICE, number, uuid):
            server.receives(sender, {"message": "hi"})
        await recorder.has(4)
    first, *later = [inbound.source for inbound in recorder.received]
    assert (first.chat_id, first.participant) == (ALICE["sourceNumber"], ALICE["sourceNumber"])
    assert recorder.moves == [(ALICE["sourceNumber"], ALICE["sourceUuid"])]
    assert {(each.chat_id, each.participant) for each in later} == {(ALICE["sourceUuid"], f"alt:{ALICE['sourceUuid']}")}


async def test_messages_are_confirmed_after_they_are_stored(server: Server) -> None:
    recorder, fake = Recorder(), FakeDirect(server)
    recorder.writes.clear()
    async with running(adapter_of(server), recorder):
        said = await fake.say("hi")
        await recorder.was_offered(1)
        assert server.asked("sendReceipt") == []
        recorder.writes.set()
        await server.was_asked("sendReceipt")
    sent = int((said.message_id or "").partition(":")[0])
    wanted = {"account": NUMBER, "recipient": ALICE["sourceUuid"], "targetTimestamp": [sent], "type": "read"}
    assert server.asked("sendReceipt") == [wanted]


async def test_nothing_is_confirmed_if_you_do_not_want_it(server: Server) -> None:
    recorder, fake = Recorder(), FakeDirect(server)
    async with running(adapter_of(server, read_receipts=False), recorder):
        await fake.say("one")
        await fake.say("two")
        await recorder.has(2)
    assert server.asked("sendReceipt") == []


# Edits


async def test_edits_are_found_after_a_restart(server: Server) -> None:
    recorder, fake = Recorder(), FakeDirect(server)
    async with running(adapter_of(server), recorder):
        said = await fake.say("one")
        await fake.edit(said, "two")
        await recorder.has_changes(1)
    async with running(adapter_of(server), recorder):
        await fake.edit(said, "three")
        await fake.delete(said)
        await recorder.has_changes(3)
    assert {change.source.message_id for change in recorder.changes} == {said.message_id}


async def test_nobody_redirects_the_edits_of_others(server: Server) -> None:
    recorder, fake = Recorder(), FakeDirect(server)
    async with running(adapter_of(server), recorder):
        said = await fake.say("one")
        time = int((said.message_id or "").partition(":")[0])
        server.receives(BOB, {"timestamp": time, "message": "x"}, kind="editMessage", target=5)
        await fake.edit(said, "two")
        await recorder.has_changes(2)
    assert [change.source.message_id for change in recorder.changes] == [f"5:{BOB['sourceUuid']}", said.message_id]


async def test_a_growing_answer_leaves_the_last_version_for_the_whole(server: Server) -> None:
    async with connected(server) as adapter:
        receipt = await adapter.draft(None, to("0"))
        for number in range(1, 20):
            receipt = await adapter.draft(receipt, to(str(number)))
        assert server.sent[0]["text"] == "8"
        await adapter.edit(receipt, to("whole"))
        with pytest.raises(SendRefused):
            await adapter.edit(receipt, to("too often"))
    assert [(each["text"], each["versions"]) for each in server.sent] == [("whole", 10)]


async def test_a_message_whose_last_version_is_unknown_is_not_edited(server: Server) -> None:
    """Apps would ignore the edit, and nobody would see the answer."""
    adapter = adapter_of(server)
    receipt = await adapter.draft(None, to("half"))
    server.errors += [RpcError(-5, FAILED, failed("RATE_LIMIT_FAILURE"))]
    with pytest.raises(PlatformBusy):
        await adapter.edit(receipt, to("whole"))
    await adapter.edit(receipt, to("whole"))
    server.loses = True
    with pytest.raises(SendUnclear):
        await adapter.edit(receipt, to("lost?"))
    for each in (adapter, adapter_of(server)):
        with pytest.raises(SendRefused):
            await each.edit(receipt, to("whole"))


# Outgoing


async def test_a_message_in_a_group_quotes_and_mentions(server: Server) -> None:
    alice = ALICE["sourceUuid"]
    text = f"🙂 **yes**, @{alice} and @+15550100400"
    adapter = adapter_of(server)
    await adapter.send(to(text, GROUP_ID, reply_to=f"1700000000000:{alice}"), idempotency_key="1")
    await adapter.send(to(text, reply_to=f"1700000000000:{alice}"), idempotency_key="2")
    await adapter.send(to("x", GROUP_ID, reply_to="1700000000000"), idempotency_key="3")
    group, person, own = server.asked("send")
    assert (group["quoteTimestamp"], group["quoteAuthor"]) == (1_700_000_000_000, alice)
    assert group["textStyle"] == ["3:3:BOLD"]
    assert group["mention"] == [f"8:37:{alice}", "50:13:+15550100400"]
    assert not {"mention", "quoteTimestamp"} & (person.keys() | own.keys())


async def test_typing_goes_to_the_chat(server: Server) -> None:
    adapter = adapter_of(server)
    for chat in (GROUP_ID, ALICE["sourceUuid"], "+15550100300"):
        await adapter.typing(to("", chat))
    assert [call.get("groupId") or call["recipient"] for call in server.asked("sendTyping")] == [
        GROUP_ID,
        [ALICE["sourceUuid"]],
        ["+15550100300"],
    ]


async def test_files_that_signal_cli_cannot_take_are_refused(server: Server, tmp_path: Path) -> None:
    adapter, path = adapter_of(server), tmp_path / "f"
    for size, is_sent in ((0, False), (14_000_000, True), (14_000_001, False)):
        path.write_bytes(b"x" * size)
        file = Attachment(Label("notes; a+b, 100% “ü”.txt"), "text/plain; charset=utf-8", size, "0" * 64)
        sending = adapter.send_file(to("look", file=file), path, idempotency_key="1")
        if is_sent:
            await sending
        else:
            with pytest.raises(SendRefused):
                await sending
    assert [(name, kind) for name, kind, _ in server.files] == [("notes; a+b, 100% “ü”.txt", "text/plain")]
    assert server.sent[0]["text"] == "look"


async def test_a_file_that_is_gone_or_in_a_group(server: Server) -> None:
    server.attachments["a.jpg"] = b"content"
    adapter = adapter_of(server)
    for chat, name in ((GROUP_ID, "groupId"), (ALICE["sourceUuid"], "recipient")):
        file = Attachment(Label("a"), handle=f"{chat}/a.jpg")
        assert b"".join([part async for part in adapter.fetch(file)]) == b"content"
        assert server.asked("getAttachment")[-1][name] == chat
    with pytest.raises(SendRefused):
        [part async for part in adapter.fetch(Attachment(Label("a"), handle="x/gone"))]
