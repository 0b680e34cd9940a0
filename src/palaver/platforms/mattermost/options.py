"""The options of a Mattermost bot."""

from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from palaver.protocols import SetupGuide, SetupQuestion, check_url
from palaver.protocols.options import AccountOptions

GUIDE = SetupGuide(
    before=(
        "On your Mattermost server, a system admin enables bot accounts (System Console, Integrations, Bot Accounts).",
        "Open Integrations, Bot Accounts, Add Bot Account, and copy the access token that it shows once.",
        "Add the bot to your team and to the channels that it serves.",
    ),
    questions=[
        SetupQuestion(option="url", prompt="Address of the server, like https://chat.example.org:"),
        SetupQuestion(option="token", prompt="Access token of the bot (hidden while you type):"),
    ],
    after=("Write to the bot or mention it in a channel.",),
    owner_prompt="Your own user id (26 letters and digits; Profile, under your picture, or pair later)?",
    owner_pattern=r"[a-z0-9]{26}",
    owner_example="q6jtkgy9pjbd8pnqcs1wqfd6mr",
)

Url = Annotated[str, AfterValidator(check_url("a URL, like https://chat.example.org"))]


class MattermostOptions(AccountOptions):
    url: Url = Field(description="The address of the server.")
    token: SecretStr = Field(min_length=1, description="The access token of the bot account.")
