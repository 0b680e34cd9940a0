"""The options of a LINE official account."""

from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from palaver.protocols import SetupGuide, SetupQuestion, check_url
from palaver.protocols.options import AccountOptions

GUIDE = SetupGuide(
    before=(
        "Create a LINE official account and enable the Messaging API for it.",
        (
            "Open developers.line.biz/console and its channel: Basic settings shows the channel secret, Messaging API "
            "issues a long-lived channel access token."
        ),
        (
            "In the LINE Official Account Manager, turn off auto-reply and greeting messages, and allow groups if you "
            "want."
        ),
    ),
    questions=[
        SetupQuestion(option="channel_secret", prompt="Channel secret (hidden while you type):"),
        SetupQuestion(option="token", prompt="Channel access token (hidden while you type):"),
    ],
    after=(
        (
            "In the console, under Messaging API, enter https://YOUR-ADDRESS/in/line/{account} as the webhook URL, "
            "turn on Use webhook, and Webhook redelivery: then nothing is lost while the gateway is down."
        ),
    ),
    owner_prompt="Your own LINE user ID (U and 32 digits; shown under Basic settings as Your user ID)?",
    owner_pattern=r"U[0-9a-f]{32}",
    owner_example="U8e742f61d673b39c7fff3cecb7536ef0",
)

Url = Annotated[str, AfterValidator(check_url("a URL, like https://api.line.me"))]


class LineOptions(AccountOptions):
    channel_secret: SecretStr = Field(min_length=1, description="Signs LINE's calls.")
    token: SecretStr = Field(min_length=1, description="The channel access token.")
    api_url: Url = Field(default="https://api.line.me", description="The API.")
    data_url: Url = Field(default="https://api-data.line.me", description="Where files come from.")
