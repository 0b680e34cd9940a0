"""WhatsApp: the Cloud API of Meta for numbers of a business, and a bridge for personal numbers."""

import re
import secrets

from palaver.protocols import Ability, Platform, PlatformNote, SetupGuide, SetupQuestion, phone_number

_JID_OF_NUMBER = re.compile(r"([0-9]{5,20})(?:[:.][0-9]+)*@(?:s\.whatsapp\.net|c\.us)", re.IGNORECASE)
_LID = re.compile(r"([0-9]{1,32})(?::[0-9]+)?@lid", re.IGNORECASE)
_BUSINESS_ID = re.compile(r"[A-Z]{2}\.[A-Za-z0-9]{1,128}")


def _canonical_id(text: str) -> str | None:
    """A number without its plus, by JID with or without a device, or the hidden id (LID) of a person."""
    text = text.strip()
    if found := _JID_OF_NUMBER.fullmatch(text):
        return found[1]
    if found := _LID.fullmatch(text):
        return f"{found[1]}@lid"
    if _BUSINESS_ID.fullmatch(text):
        return text
    number = phone_number(text)
    return number and number.removeprefix("+")


PLATFORM = Platform(
    name="whatsapp",
    title="WhatsApp",
    adapter="palaver.platforms.whatsapp.adapter:WhatsAppAdapter",
    abilities=frozenset(
        {Ability.FILES_IN, Ability.FILES_OUT, Ability.VOICE, Ability.BUTTONS, Ability.REACTIONS, Ability.TYPING}
    ),
    extras=("whatsapp",),
    needs="`whatsapp` and `web`; for a personal number `whatsapp` and a bridge",
    connection="WhatsApp calls it, or it connects to the bridge",
    hides_ids=True,
    has_mentions=True,
    user_rule=_canonical_id,
    example_user="491701234567",
    chat_rule=_canonical_id,
    example_chat="491701234567",
    notes=(PlatformNote(text="People read this on a phone: write short paragraphs, and lists instead of tables."),),
    guide=SetupGuide(
        before=(
            "For a personal number, start a bridge first and link it with your phone.",
            (
                "For a number of a business: open developers.facebook.com/apps and create an app that connects with "
                "customers through WhatsApp."
            ),
            "Under WhatsApp, API Setup, add your number; its phone number ID is shown there.",
            "Under App settings, Basic, copy the app secret.",
            (
                "In your business settings, create a system user with the permission whatsapp_business_messaging, and "
                "generate a token for it that never expires."
            ),
        ),
        questions=[
            SetupQuestion(
                option="bridge_url",
                prompt="Address of your bridge, such as http://127.0.0.1:8787 (leave empty for the Cloud API):",
                required=False,
            ),
            SetupQuestion(
                option="bridge_secret", prompt="Secret of the bridge (hidden while you type):", only_if="bridge_url"
            ),
            SetupQuestion(
                option="phone_number_id",
                prompt="Phone number ID (digits; not the phone number):",
                unless="bridge_url",
            ),
            SetupQuestion(
                option="token",
                prompt="Token of the system user (hidden while you type), or its environment variable:",
                unless="bridge_url",
            ),
            SetupQuestion(
                option="app_secret",
                prompt="App secret (hidden while you type), or its environment variable:",
                unless="bridge_url",
            ),
            SetupQuestion(
                option="verify_token",
                prompt="Verify token, a text of your choice (hidden while you type; leave empty for a new one):",
                generate=lambda: secrets.token_urlsafe(24),
                unless="bridge_url",
            ),
            SetupQuestion(
                option="template",
                prompt="Name of a template for messages after more than 24 hours of silence (leave empty for none):",
                required=False,
                unless="bridge_url",
            ),
        ],
        after=(
            (
                "With the Cloud API, then open your app, WhatsApp, Configuration: enter "
                "https://YOUR-ADDRESS/in/whatsapp/{account} as the callback URL, and the verify token."
            ),
            "Subscribe to the field messages.",
        ),
        owner_prompt="Your own number on WhatsApp, with the country code and only in digits?",
        owner_pattern=r"[1-9][0-9]{6,14}",
        owner_example="491701234567",
    ),
)
