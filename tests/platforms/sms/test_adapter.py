"""Twilio's signature, its answers, and what a message costs."""

from palaver.platforms.sms.adapter import SmsAdapter, plain_text, segments, sign
from palaver.protocols import (
    Outbound,
)
from palaver.testkit.recorder import Recorder
from tests.platforms.called import ACCOUNT, serve
from tests.platforms.sms.fakes import ALICE, OURS, Twilio, call, form_of, options_of

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


async def test_calls_are_answered_with_nothing_to_say() -> None:
    adapter, recorder = SmsAdapter(ACCOUNT, options_of()), Recorder()
    for form in ({"Body": "x"}, form_of("fine")):
        reply = await adapter.handle_callback(call(form), recorder)
        assert (reply.status, reply.body) == (200, b"<Response/>")
    assert recorder.texts == ["fine"]


def test_what_a_message_costs() -> None:
    assert [segments(text) for text in ("a" * 160, "a" * 161, "€" * 80, "€" * 81)] == [1, 2, 1, 2]
    assert [segments(text) for text in ("я" * 70, "я" * 71, "\U0001f600" * 35, "\U0001f600" * 36)] == [1, 2, 1, 2]
    assert plain_text("**“Tea”** – it’s " + "x" * 60) == '"Tea" - it\'s ' + "x" * 60
    assert plain_text("“Чай” – " + "x" * 100) == "“Чай” – " + "x" * 100, "it would cost the same"
    assert plain_text("[tea](https://example.org)") == "tea (https://example.org)"


async def test_the_sender_is_a_number_or_a_service() -> None:
    async with serve(Twilio()) as server:
        for sender, field in ((OURS, "From"), ("MG" + "0" * 32, "MessagingServiceSid")):
            adapter = SmsAdapter(ACCOUNT, options_of(server.url, sender=sender))
            await adapter.send(TO, idempotency_key="x")
            assert server.sent[-1].raw[field] == sender
