"""The options of a WhatsApp number."""

import re
import secrets
from typing import Annotated, Self

from pydantic import AfterValidator, Field, SecretStr, model_validator

from palaver.protocols import SetupGuide, SetupQuestion, check_url
from palaver.protocols.options import AccountOptions

GUIDE = SetupGuide(
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
)

_NONE = SecretStr("")
_CLOUD = ("phone_number_id", "token", "app_secret", "verify_token")
_BRIDGE = ("bridge_secret",)
_DIGITS = re.compile(r"[0-9]{1,32}")
_NAME = re.compile(r"[a-z0-9_]{1,512}")
_LANGUAGE = re.compile(r"[a-z]{2,3}(_[A-Z]{2,3})?")


def _check(pattern: re.Pattern[str], words: str) -> AfterValidator:
    def check(text: str) -> str:
        if not pattern.fullmatch(text):
            raise ValueError(words)
        return text

    return AfterValidator(check)


Url = Annotated[str, AfterValidator(check_url("a URL, like https://graph.facebook.com/v25.0"))]


class WhatsAppOptions(AccountOptions):
    """Either those of a number at the Cloud API, or those of a bridge to a personal number."""

    phone_number_id: Annotated[str, _check(_DIGITS, "the phone number ID: digits, like 106540352242922")] = Field(
        default="", description="The ID of your number, from API Setup."
    )
    token: SecretStr = Field(default=_NONE, description="The token of a system user.")
    app_secret: SecretStr = Field(default=_NONE, description="Signs what WhatsApp sends you.")
    verify_token: SecretStr = Field(default=_NONE, description="What you enter as the verify token of the webhook.")
    template: Annotated[str, _check(_NAME, "the name of a template: a-z, 0-9 and _")] | None = Field(
        default=None, description="A template with one variable, for messages outside the 24-hour window."
    )
    template_language: Annotated[str, _check(_LANGUAGE, "a language code, like en or en_US")] = Field(
        default="en", description="The language of the template."
    )
    api_url: Url = Field(default="https://graph.facebook.com/v25.0", description="The Graph API, with its version.")
    bridge_url: Url | None = Field(default=None, description="For a personal number: the address of its bridge.")
    bridge_secret: SecretStr = Field(default=_NONE, description="The secret that the bridge asks for.")
    read_receipts: bool = Field(default=True, description="Whether to mark messages as read.")

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        needed, others = (_BRIDGE, _CLOUD) if self.bridge_url else (_CLOUD, _BRIDGE)
        for name in needed:
            given: str | SecretStr = getattr(self, name)
            if not (given if isinstance(given, str) else given.get_secret_value()).strip():
                raise ValueError(f"{name}: a text that is not empty")
        if unused := [name for name in others if name in self.model_fields_set]:
            raise ValueError(f"either a bridge_url or a phone_number_id, but {', '.join(unused)} is for the other")
        return self
