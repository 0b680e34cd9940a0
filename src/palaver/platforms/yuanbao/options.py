"""The options of a Yuanbao bot."""

from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from palaver.protocols import check_url
from palaver.protocols.options import AccountOptions

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
