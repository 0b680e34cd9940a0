"""SMS through Twilio, or a provider with the same API."""

import re

from palaver.protocols import Ability, Platform, PlatformNote, SetupGuide, SetupQuestion, phone_number

_SHORT_CODE = re.compile(r"[0-9]{3,6}")
_SENDER_NAME = re.compile(r"(?=.*[A-Za-z])[A-Za-z0-9 ]{1,11}")


def _canonical_user(text: str) -> str | None:
    """A number, a short code, or the name that a company sends under."""
    text = text.strip()
    return text if _SHORT_CODE.fullmatch(text) or _SENDER_NAME.fullmatch(text) else phone_number(text)


PLATFORM = Platform(
    name="sms",
    title="SMS",
    adapter="palaver.platforms.sms.adapter:SmsAdapter",
    abilities=frozenset({Ability.FILES_IN}),
    extras=("sms",),
    needs="`sms` and `web`",
    connection="Twilio calls it",
    has_names=False,
    user_rule=_canonical_user,
    example_user="+15550100300",
    chat_rule=phone_number,
    example_chat="+15550100300",
    notes=(
        PlatformNote(
            text=(
                "People read this as SMS, each of which costs money: answer in one or two short sentences of plain "
                "text, without emoji."
            )
        ),
    ),
    guide=SetupGuide(
        before=(
            (
                "Buy a number that can send and receive SMS at console.twilio.com, and register it if its country asks "
                "for that."
            ),
            "The console shows the Account SID and the Auth Token.",
        ),
        questions=[
            SetupQuestion(option="account_sid", prompt="Account SID, AC and 32 digits:"),
            SetupQuestion(option="auth_token", prompt="Auth Token (hidden while you type):"),
            SetupQuestion(option="sender", prompt="Your number, like +15550100300, or the SID of a messaging service:"),
            SetupQuestion(option="webhook_url", prompt="Your address, like https://gateway.example.org/in/sms/main:"),
        ],
        after=(
            "In the console, open the number, Messaging.",
            (
                "Enter that address, https://YOUR-ADDRESS/in/sms/{account}, for A message comes in (Webhook, HTTP "
                "POST), and once more for Primary handler fails."
            ),
        ),
        owner_prompt="Your own number? Anybody can forge one, so better leave it out:",
        owner_pattern=r"\+[1-9][0-9]{6,14}",
        owner_example="+15550100301",
    ),
)
