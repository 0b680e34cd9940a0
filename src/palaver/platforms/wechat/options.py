"""The options of a WeChat official account, and of a WeCom app."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr

from palaver.protocols import check_secret, check_url
from palaver.protocols.options import AccountOptions

Url = Annotated[str, AfterValidator(check_url("a URL, like https://api.weixin.qq.com"))]
EncodingKey = Annotated[
    SecretStr, AfterValidator(check_secret("[0-9A-Za-z]{43}", "the EncodingAESKey: 43 letters and digits"))
]


class WeChatOptions(AccountOptions):
    app_id: str = Field(pattern=r"^wx[0-9a-z]+$", description="The AppID.")
    app_secret: SecretStr = Field(min_length=1, description="The AppSecret.")
    token: SecretStr = Field(min_length=3, description="The Token under Server Configuration; signs WeChat's calls.")
    encoding_aes_key: EncodingKey = Field(description="The EncodingAESKey; encrypts WeChat's calls.")
    passive: bool = Field(
        default=False, description="For accounts without customer service messages: answer only when people write."
    )
    api_url: Url = Field(default="https://api.weixin.qq.com", description="The API.")


class WeComOptions(AccountOptions):
    corp_id: str = Field(pattern=r"^[0-9a-zA-Z]+$", description="The company ID.")
    agent_id: int = Field(gt=0, description="The AgentId of the app.")
    secret: SecretStr = Field(min_length=1, description="The Secret of the app.")
    token: SecretStr = Field(min_length=1, description="The Token under Receive Messages; signs WeCom's calls.")
    encoding_aes_key: EncodingKey = Field(description="The EncodingAESKey; encrypts WeCom's calls.")
    format: Literal["markdown", "text"] = Field(
        default="markdown", description="`text` if people read in WeChat, which does not show WeCom's Markdown."
    )
    api_url: Url = Field(default="https://qyapi.weixin.qq.com", description="The API.")
