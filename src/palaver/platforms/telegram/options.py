"""The options of a Telegram bot."""

import hashlib
import hmac
from enum import StrEnum
from typing import Annotated, Self

from pydantic import AfterValidator, Field, SecretStr, model_validator

from palaver.protocols import check_secret, check_url
from palaver.protocols.options import AccountOptions

_TOKEN = check_secret(
    "[0-9]{1,20}:[A-Za-z0-9_-]{1,100}",
    "a token from @BotFather: digits, a colon and letters, like 123456:ABC-DEF1234",
)
_SECRET = check_secret("[A-Za-z0-9_-]{1,256}", "1 to 256 characters from A-Z a-z 0-9 _ -, like kitchen-door-42")
Url = Annotated[str, AfterValidator(check_url("a URL, like https://bot.example.org"))]


class Mode(StrEnum):
    POLL = "poll"
    WEBHOOK = "webhook"


class TelegramOptions(AccountOptions):
    token: Annotated[SecretStr, AfterValidator(_TOKEN)] = Field(description="The token from @BotFather.")
    mode: Mode = Field(
        default=Mode.POLL, description="`poll` asks Telegram for updates; `webhook` has Telegram call you."
    )
    public_url: Url | None = Field(default=None, description="For `webhook`: your public URL.")
    secret: Annotated[SecretStr, AfterValidator(_SECRET)] | None = Field(
        default=None, description="For `webhook`: the shared secret; by default derived from the token."
    )
    api_url: Url = Field(default="https://api.telegram.org", description="URL of the Bot API server.")

    @model_validator(mode="after")
    def _check_public_url(self) -> Self:
        if self.mode is Mode.WEBHOOK and not self.public_url:
            raise ValueError("public_url with mode webhook, like https://bot.example.org, or mode poll")
        return self

    @property
    def bot_id(self) -> int:
        return int(self.token.get_secret_value().partition(":")[0])

    @property
    def shared_secret(self) -> str:
        """The secret in Telegram's requests; the same in every worker."""
        if self.secret:
            return self.secret.get_secret_value()
        return hmac.new(self.token.get_secret_value().encode(), b"palaver webhook", hashlib.sha256).hexdigest()
