"""The adapter against the Cloud API on the loopback: webhooks, errors, templates, receipts and files."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from palaver.model.attachment import Attachment
from palaver.model.label import Label
from palaver.model.turn import Outbound
from palaver.platforms.whatsapp.cloud import CloudAdapter
from palaver.protocols.adapter import (
    PlatformBusy,
    PlatformDown,
    PlatformError,
    PlatformRefused,
    SendRefused,
    SendUnclear,
    TargetGone,
)
from palaver.protocols.capabilities import HttpRequest
from palaver.testkit.recorder import Recorder, running
from tests.engine.gateway import until
from tests.platforms.whatsapp.fakes import ALICE, GROUP_ID, adapter_of, options_of, said
from tests.platforms.whatsapp.server import NUMBER_ID, VERIFY_TOKEN, No, Server, serving, signed


@pytest.fixture
async def server() -> AsyncGenerator[Server]:
    async with serving() as server:
        yield server


def to(text: str = "hi", chat_id: str = ALICE, **more: Any) -> Outbound:
    return Outbound(platform="whatsapp", account="shop", chat_id=chat_id, text=text, **more)


class Linked(Recorder):
    """Remembers aliases, too."""

    def __init__(self) -> None:
        super().__init__()
        self.aliases: list[tuple[str, str]] = []

    async def link_alias(self, alias: str, canonical: str) -> None:
        self.aliases.append((alias, canonical))


# Webhooks


async def call(update: Any, **headers: str) -> tuple[int, Recorder]:
    body, recorder = update if isinstance(update, bytes) else json.dumps(update).encode(), Recorder()
    request = HttpRequest(method="POST", headers=headers or signed(body), body=body)
    response = await CloudAdapter("shop", options_of()).handle_callback(request, recorder)
    return int(response.status), recorder


def update(*messages: Any, number: str = NUMBER_ID) -> dict[str, Any]:
    value = {"metadata": {"phone_number_id": number}, "messages": list(messages)}
    return {"object": "whatsapp_business_account", "entry": [{"changes": [{"field": "messages", "value": value}]}]}


async def test_the_handshake_returns_the_challenge_only_to_those_who_know_the_token() -> None:
    adapter = CloudAdapter("shop", options_of())
    query = {"hub.mode": "subscribe", "hub.challenge": "1158201444", "hub.verify_token": VERIFY_TOKEN}
    answer = await adapter.handle_callback(HttpRequest(method="GET", query=query), Recorder())
    assert (answer.status, answer.body) == (200, b"1158201444")
    for wrong in ({"hub.verify_token": "guess"}, {"hub.mode": "other"}, {"hub.verify_token": ""}):
        answer = await adapter.handle_callback(HttpRequest(method="GET", query={**query, **wrong}), Recorder())
        assert (answer.status, answer.body) == (403, b"")


async def test_only_signed_calls_are_taken() -> None:
    said_it = update(said("text", {"body": "Grüße 💚"}))
    status, recorder = await call(said_it)
    assert (status, recorder.texts) == (200, ["Grüße 💚"])
    other = signed(json.dumps(said_it).encode(), "another secret")
    for headers in (other, {"x-hub-signature-256": ""}, {"x-hub-signature-256": "sha256=é"}, {"x": "y"}):
        status, recorder = await call(said_it, **headers)
        assert (status, recorder.offered) == (401, [])
    assert (await call(b"[1"))[0] == 400


async def test_several_messages_in_one_call_are_stored_and_an_unreadable_one_harms_none(
    caplog: pytest.LogCaptureFixture,
) -> None:
    messages = [said("text", {"body": "one"}), said("text", {"secret": "x"}), 7, said("text", {"body": "two"})]
    status, recorder = await call(update(*messages))
    assert (status, recorder.texts) == (200, ["one", "two"])
    unreadable = [each for each in caplog.records if getattr(each, "action", "") == "whatsapp.unreadable"]
    assert len(unreadable) == 2
    odd_updates: list[Any] = [{"entry": 7}, {}, {"entry": [{"changes": [{"field": "messages", "value": {}}]}]}]
    for odd in odd_updates:
        assert (await call(odd))[0] == 200
    status, recorder = await call(update(said("text", {"body": "hi"}), number="1"))
    assert (status, recorder.offered) == (200, []), "it is for another number of the app"


async def test_a_part_of_a_call_that_is_unreadable_harms_no_other() -> None:
    found = update(said("text", {"body": "hi"}))
    value = found["entry"][0]["changes"][0]["value"]
    odd: list[Any] = [7, {}, {"field": "messages", "value": {}}]
    odd += [{"field": "messages", "value": {**value, "messages": 7}}]
    value["contacts"] = None
    status, recorder = await call({**found, "entry": [{"changes": odd}, *found["entry"]]})
    assert (status, recorder.texts) == (200, ["hi"])


async def test_what_is_not_stored_comes_again_and_twice_is_once(server: Server) -> None:
    recorder = Recorder()
    recorder.failures = 1
    async with running(adapter_of(server), recorder):
        messages = said("text", {"body": "one"}), said("text", {"body": "two"})
        server.push(*messages)
        await recorder.has(2)
        await until(lambda: not server.queue)
        server.push(messages[1], messages[0])
        await until(lambda: not server.queue)
    assert recorder.texts == ["one", "two"]
    assert len(recorder.received) == 4, "a repetition has the same id"


async def test_the_two_ids_of_a_person_are_linked_before_the_message(server: Server) -> None:
    recorder = Linked()
    async with running(adapter_of(server), recorder):
        server.push(said("text", {"body": "hi"}, from_user_id="US.1349"))
        await recorder.has(1)
    assert recorder.aliases == [("US.1349", ALICE)]


# Receipts


async def test_messages_are_marked_as_read_once_they_are_stored(server: Server) -> None:
    recorder, message = Recorder(), said("text", {"body": "hi"})
    async with running(adapter_of(server, read_receipts=True), recorder):
        server.push(message, said("text", {"body": "in a group"}, group_id=GROUP_ID))
        await until(lambda: bool(server.reads))
        await until(lambda: not server.queue)
    assert [each["message_id"] for each in server.reads] == [message["id"]]


async def test_typing_is_shown_for_the_message_that_is_answered_and_not_all_the_time(server: Server) -> None:
    adapter = adapter_of(server)
    for _ in range(3):
        await adapter.typing(to(reply_to="wamid.1"))
    await adapter.typing(to(reply_to="wamid.2"))
    await adapter.typing(to())
    await adapter.typing(to(chat_id=GROUP_ID, reply_to="wamid.3"))
    assert [each["message_id"] for each in server.reads] == ["wamid.1", "wamid.2"]
    assert all(each["typing_indicator"] == {"type": "text"} for each in server.reads)


# Sends


@pytest.mark.parametrize(
    ("no", "of_send"),
    [
        (No(401, 190), PlatformRefused),
        (No(403, 10), PlatformRefused),
        (No(403, 200), PlatformRefused),
        (No(400, 131031), PlatformRefused),
        (No(400, 131042), PlatformRefused),
        (No(400, 133010), PlatformRefused),
        (No(400, 4), PlatformBusy),
        (No(429, 130429), PlatformBusy),
        (No(400, 131056), PlatformBusy),
        (No(429, 80007), PlatformBusy),
        (No(400, 131048), PlatformBusy),
        (No(429, 999), PlatformBusy),
        (No(400, 131026), TargetGone),
        (No(400, 131041), TargetGone),
        (No(400, 131047), SendRefused),
        (No(400, 131030), SendRefused),
        (No(400, 131051, details="Unsupported message type"), SendRefused),
        (No(400, 100), SendRefused),
        (No(500, 131000), SendUnclear),
        (No(503, 2), SendUnclear),
    ],
)
async def test_each_error_code_means_something(server: Server, no: No, of_send: type[PlatformError]) -> None:
    server.refuses.append(no)
    with pytest.raises(PlatformError) as raised:
        await adapter_of(server).send(to(), idempotency_key="1")
    assert type(raised.value) is of_send or (no.code == 131047 and isinstance(raised.value, SendRefused))
    assert not server.sent
    if no.details:
        assert no.details in str(raised.value)


async def test_after_a_day_of_silence_the_template_is_sent_or_the_message_refused(server: Server) -> None:
    server.silent.add(ALICE)
    with pytest.raises(SendRefused, match="24 hours"):
        await adapter_of(server).send(to("news"), idempotency_key="1")
    receipt = await adapter_of(server, template="update", template_language="de").send(
        to("one\ntwo"), idempotency_key="2"
    )
    (sent,) = server.sent
    assert receipt == sent["id"]
    assert sent["template"]["name"] == "update"
    assert sent["template"]["components"][0]["parameters"] == [{"type": "text", "text": "one two"}]


async def test_if_whatsapp_says_so_only_later_the_template_is_sent_then_and_once(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    adapter = adapter_of(server, template="update")
    async with running(adapter, Recorder()):
        await until(lambda: bool(server.calls_us))
        receipt = await adapter.send(to("news"), idempotency_key="1")
        errors = [{"code": 131047, "title": "Re-engagement message"}]
        failed = {"id": receipt, "status": "failed", "timestamp": "1", "recipient_id": ALICE, "errors": errors}
        for _ in range(2):
            server.push(statuses=({**failed, "status": "sent"}, failed))
        server.push(statuses=({**failed, "id": "wamid.unknown"},))
        await until(lambda: not server.queue)
    assert [each["type"] for each in server.sent] == ["text", "template"]
    undelivered = [each for each in caplog.records if getattr(each, "action", "") == "whatsapp.undelivered"]
    assert len(undelivered) == 3
    assert all(each.levelno == logging.WARNING for each in undelivered)


async def test_a_template_that_fails_later_is_logged_and_the_webhook_answered(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    adapter = adapter_of(server, template="update")
    async with running(adapter, Recorder()):
        await until(lambda: bool(server.calls_us))
        receipt = await adapter.send(to("news"), idempotency_key="1")
        server.refuses.append(No(400, 132001, "(#132001) Template name does not exist"))
        server.push(statuses=({"id": receipt, "status": "failed", "errors": [{"code": 131047}]},))
        await until(lambda: not server.queue)
    assert "whatsapp.template_failed" in {getattr(each, "action", "") for each in caplog.records}


async def test_only_the_last_sends_are_remembered(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palaver.platforms.whatsapp.cloud._MAX_RECENT", 1)
    adapter = adapter_of(server, template="update")
    async with running(adapter, Recorder()):
        await until(lambda: bool(server.calls_us))
        for receipt in [await adapter.send(to(text), idempotency_key=text) for text in ("old", "new")]:
            server.push(statuses=({"id": receipt, "status": "failed", "errors": [{"code": 131047}]},))
        await until(lambda: not server.queue)
    assert [each["type"] for each in server.sent] == ["text", "text", "template"]


# Files


async def test_a_file_that_is_refused_is_not_sent(server: Server, tmp_path: Path) -> None:
    content = tmp_path / "x"
    content.write_bytes(b"PK")
    adapter = adapter_of(server)
    with pytest.raises(SendRefused):
        await adapter.send_file(to(file=Attachment(Label("x"), "application/zip")), content, idempotency_key="1")
    server.trouble = No(500, 1)
    with pytest.raises(PlatformDown):
        await adapter.send_file(to(file=Attachment(Label("x"), "text/plain")), content, idempotency_key="1")
    server.trouble = None
    await adapter.send_file(to(file=Attachment(Label("x.csv"), "text/csv")), content, idempotency_key="1")
    (sent,) = server.sent
    assert server.media[sent["document"]["id"]] == ("x.csv", "text/plain", b"PK")
    assert sent["document"]["filename"] == "x.csv"


async def test_a_file_that_whatsapp_no_longer_has_cannot_be_fetched(server: Server) -> None:
    adapter = adapter_of(server)
    with pytest.raises(SendRefused):
        _ = [chunk async for chunk in adapter.fetch(Attachment(Label("x"), handle="1"))]
    server.trouble = No(503, 2)
    with pytest.raises(PlatformDown):
        _ = [chunk async for chunk in adapter.fetch(Attachment(Label("x"), handle="1"))]


# Checks


async def test_the_check_names_the_number_or_says_what_to_do(server: Server) -> None:
    assert await adapter_of(server).check() == "+1 555-078-3881 Lucky Shrub"
    with pytest.raises(PlatformRefused, match="Generate another one"):
        await adapter_of(server, token="old").check()  # noqa: S106
    with pytest.raises(PlatformRefused, match="Copy it from API Setup"):
        await adapter_of(server, phone_number_id="1").check()
    server.trouble = No(503, 2)
    with pytest.raises(PlatformDown) as raised:
        await adapter_of(server).check()
    assert type(raised.value) is PlatformDown


async def test_a_revoked_token_is_noticed_while_the_gateway_runs(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palaver.protocols.tokens._CHECK_SECONDS", 0.0)
    recorder = Recorder()
    adapter = adapter_of(server)
    task = asyncio.create_task(adapter.run(recorder))
    await until(lambda: bool(server.calls_us))
    server.trouble = No(401, 190)
    with pytest.raises(PlatformRefused):
        await task
