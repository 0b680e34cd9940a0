"""The options of a DingTalk robot."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr

from palaver.protocols import check_url
from palaver.protocols.options import AccountOptions

Url = Annotated[str, AfterValidator(check_url("a URL, like https://api.dingtalk.com"))]


class DingTalkOptions(AccountOptions):
    client_id: str = Field(min_length=1, description="The Client ID, also called AppKey.")
    client_secret: SecretStr = Field(
        min_length=1, description="The Client Secret; with `http`, it signs DingTalk's calls."
    )
    mode: Literal["stream", "http"] = Field(
        default="stream", description="Whether to open a stream, or be called: `http` needs a public address."
    )
    robot_code: str | None = Field(default=None, description="The robot's code, if it is not the Client ID.")
    api_url: Url = Field(default="https://api.dingtalk.com", description="The API.")
    media_url: Url = Field(default="https://oapi.dingtalk.com", description="The older API, which takes files.")
