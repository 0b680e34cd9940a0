"""Twilio's signature, its answers, and what a message costs."""

import pytest

from palaver.platforms.sms.adapter import SmsAdapter, plain_text, segments, sign
from palaver.protocols import (
    Attachment,
    Label,
    Outbound,
    PlatformBusy,
    PlatformError,
    PlatformRefused,
    SendRefused,
    SendUnclear,
    TargetGone,
)
from palaver.testkit.recorder import Recorder
from tests.platforms.called import ACCOUNT, No, serve
from tests.platforms.sms.fakes import ALICE, OURS, SID, Twilio, call, error, form_of, options_of

TO = Outbound(platform="sms", chat_id=ALICE, text="hi")


def test_the_documented_signature() -> None:
    """The token, the address, the form and the signature of Twilio's own example."""
    numbers = {"From": "+12349013030", "To": "+18005551212", "Caller": "+12349013030"}
    form = {"CallSid": "CA1234567890ABCDE", "Digits": "1234", **numbers}
    url = "https://mycompany.com/myapp.php?foo=1&bar=2"
    assert sign(url, form, "12345") == "0/KCTR6DLpKmkAf8muzZqo1nDgQ="


async def test_a_call_that_is_not_signed_for_this_address_is_refused() -> None:
    adapter, recorder = SmsAdapter(ACCOUNT, options_of()), Recorder()
    elsewhere = call(form_of("hi"), url="https://gateway.example.org/in/sms/other")
    for wrong in (call(form_of("hi"), token="x"), elsewhere):  # noqa: S106
        assert (await adapter.handle_callback(wrong, recorder)).status == 401
    assert not recorder.offered


async def test_unreadable_messages_are_skipped_and_answered() -> None:
    adapter, recorder = SmsAdapter(ACCOUNT, options_of()), Recorder()
    odd = [{"Body": "x"}, form_of("x", From=""), form_of("x", NumMedia="many"), form_of("x", NumMedia="9")]
    for form in [*odd, form_of("fine")]:
        reply = await adapter.handle_callback(call(form), recorder)
        assert (reply.status, reply.body) == (200, b"<Response/>")
    assert recorder.texts == ["fine"]


async def test_files_come_from_this_account_only() -> None:
    adapter = SmsAdapter(ACCOUNT, options_of())
    for path in ("/etc/passwd", "//evil.example/x", f"/2010-04-01/Accounts/{SID}/../x", ""):
        with pytest.raises(SendRefused):
            adapter.fetch(Attachment(Label("x"), handle=path))


def test_what_a_message_costs() -> None:
    assert [segments(text) for text in ("a" * 160, "a" * 161, "€" * 80, "€" * 81)] == [1, 2, 1, 2]
    assert [segments(text) for text in ("я" * 70, "я" * 71, "\U0001f600" * 35, "\U0001f600" * 36)] == [1, 2, 1, 2]
    assert plain_text("**“Tea”** – it’s " + "x" * 60) == '"Tea" - it\'s ' + "x" * 60
    assert plain_text("“Чай” – " + "x" * 100) == "“Чай” – " + "x" * 100, "it would cost the same"
    assert plain_text("[tea](https://example.org)") == "tea (https://example.org)"


async def test_each_answer_means_something() -> None:
    expected: list[tuple[No, type[PlatformError]]] = [
        (error(20429, 429), PlatformBusy),
        (error(20003, 401), PlatformRefused),
        (error(21606, 400), PlatformRefused),
        (error(21610, 400), TargetGone),
        (error(21211, 400), TargetGone),
        (error(21408, 400), SendRefused),
        (error(0, 500), SendUnclear),
        (error(20500, 500), SendUnclear),
        (No({}), SendUnclear),
    ]
    async with serve(Twilio()) as server:
        adapter = SmsAdapter(ACCOUNT, options_of(server.url))
        for no, kind in expected:
            server.refuses.append(no)
            with pytest.raises(PlatformError) as raised:
                await adapter.send(TO, idempotency_key="x")
            assert type(raised.value) is kind, no
        for code, seconds in ((14107, 30.0), (21611, 3600.0), (60728, 3600.0), (63038, 3600.0)):
            server.refuses.append(error(code, 429))
            with pytest.raises(PlatformBusy) as busy:
                await adapter.send(TO, idempotency_key="x")
            assert busy.value.after == seconds, code
        for sender, field in ((OURS, "From"), ("MG" + "0" * 32, "MessagingServiceSid")):
            adapter = SmsAdapter(ACCOUNT, options_of(server.url, sender=sender))
            await adapter.send(TO, idempotency_key="x")
            assert server.sent[-1].raw[field] == sender
