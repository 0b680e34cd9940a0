"""The options of a WhatsApp number."""

import re
from typing import Annotated, Self

from pydantic import AfterValidator, Field, SecretStr, model_validator

from palaver.protocols import check_url
from palaver.protocols.options import AccountOptions

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
