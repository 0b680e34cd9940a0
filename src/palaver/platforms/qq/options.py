"""The options of a QQ bot."""

from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from palaver.protocols import check_url
from palaver.protocols.options import AccountOptions

Url = Annotated[str, AfterValidator(check_url("a URL, like https://api.sgroup.qq.com"))]


class QqOptions(AccountOptions):
    app_id: str = Field(pattern=r"^[0-9]+$", description="The AppID.")
    app_secret: SecretStr = Field(min_length=1, description="The AppSecret; QQ's signatures are made with it.")
    api_url: Url = Field(default="https://api.sgroup.qq.com", description="The API; the sandbox has another one.")
    token_url: Url = Field(default="https://bots.qq.com", description="Where access tokens come from.")
