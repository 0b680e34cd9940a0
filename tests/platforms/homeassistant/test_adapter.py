"""The adapter passes the suite over a server that speaks Home Assistant's documented API; and what is its own."""

from collections.abc import AsyncGenerator

import pytest

from palaver.platforms.homeassistant.adapter import HomeAssistantAdapter, parse, read_frame, render
from palaver.protocols import (
    Outbound,
    PlatformDown,
    PlatformRefused,
    SendRefused,
    SendUnclear,
    TargetGone,
    parse_or_skip,
)
from palaver.testkit.driver import run_adapter, send, to_chat
from palaver.testkit.fake_server import FakeServer
from tests.platforms.called import ACCOUNT, Json, No, serve
from tests.platforms.conformance import RenderedConformance
from tests.platforms.homeassistant.fakes import ANN, PHONE, PUSHED, FakeHomeAssistant, HomeAssistant, options_of


@pytest.fixture
async def fake() -> AsyncGenerator[FakeHomeAssistant]:
    async with serve(HomeAssistant()) as server:
        yield FakeHomeAssistant(server)


class TestHomeAssistant(RenderedConformance):
    @pytest.fixture
    async def fake(self) -> AsyncGenerator[FakeServer]:
        async with serve(HomeAssistant()) as server:
            yield FakeHomeAssistant(server)

    async def test_after_a_cut_connection_it_goes_on(self, fake: FakeServer) -> None:
        async with run_adapter(fake) as (_, recorder):
            await fake.say("before")
            await recorder.has(1)
            await fake.cut()
            await fake.say("after")
            await recorder.has(2)
        assert recorder.texts == ["before", "after"]


async def test_check_says_what_to_do(fake: FakeHomeAssistant) -> None:
    adapter = HomeAssistantAdapter(ACCOUNT, options_of(fake.server.url))
    assert await adapter.check() == "Home Assistant 2026.4.0"
    fake.server.is_admin = False
    with pytest.raises(PlatformRefused, match="administrator"):
        await adapter.check()
    fake.server.accepts = "another"
    with pytest.raises(PlatformRefused, match="rejects the access token"):
        await adapter.check()
    with pytest.raises(PlatformDown, match=r"http://127.0.0.1:1: .*Check url"):
        await HomeAssistantAdapter(ACCOUNT, options_of("http://127.0.0.1:1")).check()
    with pytest.raises(PlatformDown):
        await adapter.send(Outbound(platform="homeassistant", chat_id=PHONE, text="x"), idempotency_key="1")


async def test_events_say_where_the_answer_goes(fake: FakeHomeAssistant) -> None:
    async with run_adapter(fake) as (_, recorder):
        await fake.server.fire("palaver_message", {"text": "one"})
        await fake.server.fire("palaver_message", {"text": "two", "notify": "persistent_notification"}, user=None)
        await fake.server.fire(PUSHED, {"action": "ALARM"})
        await fake.server.fire("palaver_message", {"text": 21.5})
        await fake.server.fire("palaver_message", {"text": ["x"]})
        await fake.server.fire("palaver_message", {})
        await fake.server.fire(PUSHED, {"action": f"PALAVER|{PHONE}|", "reply_text": "three"})
        await recorder.has(4)
    assert [(each.text, each.source.chat_id, each.source.user_id) for each in recorder.received] == [
        ("one", PHONE, ANN),
        ("two", "persistent_notification", "automation/persistent_notification"),
        ("21.5", PHONE, ANN),
        ("three", PHONE, ANN),
    ]


async def test_nobody_is_somebody_else(fake: FakeHomeAssistant) -> None:
    """A button counts as pressed by who pressed it, and an automation is no person, whatever names it uses."""
    bob = "b" * 32
    async with run_adapter(fake) as (_, recorder):
        approve = {"action": f"PALAVER|{PHONE}|/approve 7"}
        await fake.server.fire(PUSHED, {**approve, "user_id": ANN}, user=bob)
        await fake.server.fire(PUSHED, approve, user=None)
        await fake.server.fire("palaver_message", {"text": "x", "notify": ANN, "user_id": ANN}, user=None)
        await fake.server.fire("palaver_message", {"text": "no", "notify": f"{ANN}/.."}, user=None)
        await fake.server.fire("palaver_message", {"text": "last"}, user=bob)
        await recorder.has(4)
    assert [each.source.user_id for each in recorder.received] == [bob, f"automation/{PHONE}", f"automation/{ANN}", bob]


async def test_an_event_between_two_subscriptions_is_read(fake: FakeHomeAssistant) -> None:
    fake.server.fires_early = {"text": "early"}
    async with run_adapter(fake) as (_, recorder):
        await recorder.has(1)
    assert recorder.texts == ["early"]


async def test_each_place_has_its_own_action(fake: FakeHomeAssistant) -> None:
    async with run_adapter(fake) as (adapter, _):
        await send(adapter, fake, "**hi** there")
        for chat in ("persistent_notification", "notify.kitchen"):
            outbound = Outbound(platform="homeassistant", chat_id=chat, text="**hi**")
            await adapter.send(outbound, idempotency_key=chat)
    assert [(each.chat, each.text) for each in fake.server.sent] == [
        (PHONE, "hi there"),
        ("persistent_notification", "**hi**"),
        ("notify.kitchen", "hi"),
    ]
    (reply,) = fake.server.sent[0].raw["data"]["actions"]
    assert reply == {"action": f"PALAVER|{PHONE}|", "title": "Reply", "behavior": "textInput"}


async def test_errors_say_what_became_of_a_message(fake: FakeHomeAssistant) -> None:
    def error(code: str) -> No:
        return No({"code": code, "message": "No."})

    async with run_adapter(fake) as (adapter, _):
        await send(adapter, fake, "hi")
        for refusal, expected in (
            (error("service_validation_error"), SendRefused),
            (error("home_assistant_error"), SendRefused),
            (error("unauthorized"), PlatformRefused),
            (error("unknown_error"), SendUnclear),
            (No(None), SendUnclear),
        ):
            fake.server.refuses.append(refusal)
            with pytest.raises(expected):
                await adapter.send(to_chat(adapter, fake, "no"), idempotency_key="2")
        for chat in ("", "../x", "Phone", "light.kitchen"):
            with pytest.raises(TargetGone):
                await adapter.send(Outbound(platform="homeassistant", chat_id=chat, text="x"), idempotency_key="1")
    assert len(fake.server.sent) == 1


def test_a_template_in_a_message_is_not_run() -> None:
    for chat in ("persistent_notification", PHONE):
        text = "{{ states('lock.door') }} {% set x %} {# c #} {a}"
        call = render(Outbound(platform="homeassistant", chat_id=chat, text=text), "r")
        message = call["service_data"]["message"]
        assert not any(each in message for each in ("{{", "{%", "{#"))
        assert message.replace("\u200b", "") == text


def test_what_cannot_be_read_is_skipped() -> None:
    event: Json = {"event_type": PUSHED, "data": {"action": "PALAVER||x"}, "time_fired": "2026-05-01T00:00:00+00:00"}
    assert parse(event, ACCOUNT, PHONE)
    wrong: list[Json] = [{}, {**event, "data": None}, {**event, "time_fired": "x"}, {**event, "context": 7}]
    wrong += [{**event, "data": {"action": "PALAVER|a|", "reply_text": ["x"]}}]
    assert [parse_or_skip("homeassistant", lambda each=each: parse(each, ACCOUNT, PHONE)) for each in wrong] == [
        None
    ] * 5
    for raw in ("", "[]", "{}", '{"type": "event", "id": "x"}', b"\xff"):
        assert parse_or_skip("homeassistant", lambda raw=raw: read_frame(raw)) is None
