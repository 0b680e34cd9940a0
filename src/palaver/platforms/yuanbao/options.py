"""The options of a Yuanbao bot."""

from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from palaver.protocols import SetupGuide, SetupQuestion, check_url
from palaver.protocols.options import AccountOptions

GUIDE = SetupGuide(
    before=(
        "In the Yuanbao app, create a bot.",
        "Its settings show an App ID (also called AppKey) and an App Secret.",
    ),
    questions=[
        SetupQuestion(option="app_key", prompt="App ID:"),
        SetupQuestion(option="app_secret", prompt="App Secret (hidden while you type):"),
    ],
    after=(
        "Write to the bot.",
        "In a group, mention it.",
    ),
    owner_prompt="Your own Yuanbao id? You can leave it out and pair later:",
)

Url = Annotated[str, AfterValidator(check_url("a URL, like https://bot.yuanbao.tencent.com"))]


class YuanbaoOptions(AccountOptions):
    app_key: str = Field(min_length=1, description="The App ID.")
    app_secret: SecretStr = Field(min_length=1, description="The App Secret.")
    terminal_type: str = Field(
        default="", pattern=r"^[0-9]*$", description="The number that Tencent has given your program, if any."
    )
    api_url: Url = Field(default="https://bot.yuanbao.tencent.com", description="The API.")
    storage_url: Url | None = Field(default=None, description="Where files go, if that is not what Yuanbao says.")
    socket_url: str = Field(
        default="wss://bot-wss.yuanbao.tencent.com/wss/connection",
        pattern=r"^wss?://\S+$",
        description="The WebSocket.",
    )
