"""The options of a WeChat official account, and of a WeCom app."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr

from palaver.protocols import SetupGuide, SetupQuestion, check_secret, check_url
from palaver.protocols.options import AccountOptions

Url = Annotated[str, AfterValidator(check_url("a URL, like https://api.weixin.qq.com"))]
EncodingKey = Annotated[
    SecretStr, AfterValidator(check_secret("[0-9A-Za-z]{43}", "the EncodingAESKey: 43 letters and digits"))
]
_TOKEN = SetupQuestion(option="token", prompt="Token of the callback (hidden while you type):")
_KEY = SetupQuestion(option="encoding_aes_key", prompt="EncodingAESKey (hidden while you type):")

WECHAT_GUIDE = SetupGuide(
    before=(
        "Open mp.weixin.qq.com.",
        (
            "Under Settings & Development, Development Interface Management, copy the AppID and the AppSecret, and "
            "add the address of this machine to the IP whitelist."
        ),
        (
            "Under Server Configuration choose a Token, an EncodingAESKey and the security mode, but save that only "
            "after this setup."
        ),
    ),
    questions=[
        SetupQuestion(option="app_id", prompt="AppID, like wx1234567890abcdef:"),
        SetupQuestion(option="app_secret", prompt="AppSecret (hidden while you type):"),
        _TOKEN,
        _KEY,
        SetupQuestion(
            option="passive",
            prompt="Is the account unverified, so that it can only answer at once? (true or false)",
            default="false",
        ),
    ],
    after=(
        (
            "Enter https://YOUR-ADDRESS/in/wechat/{account} under Server Configuration, in the security mode, "
            "and enable it."
        ),
    ),
    owner_prompt="Your own OpenID in this account? You can leave it out and pair later:",
)
WECOM_GUIDE = SetupGuide(
    before=(
        "Open work.weixin.qq.com.",
        "Under My Company copy the company ID.",
        (
            "Under App Management create an app and copy its AgentId and Secret, and add the address of this machine "
            "to its trusted IPs."
        ),
        (
            "Under Receive Messages, Set API Receive, generate a Token and an EncodingAESKey, but save that only "
            "after this setup."
        ),
    ),
    questions=[
        SetupQuestion(option="corp_id", prompt="Company ID, like ww1234567890abcdef:"),
        SetupQuestion(option="agent_id", prompt="AgentId, like 1000002:"),
        SetupQuestion(option="secret", prompt="Secret of the app (hidden while you type):"),
        _TOKEN,
        _KEY,
    ],
    after=(
        "Enter https://YOUR-ADDRESS/in/wecom/{account} under Receive Messages and save.",
        "WeCom asks the gateway at once.",
    ),
    owner_prompt="Your own WeCom user id? An administrator sees it in the contacts as the account:",
)


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
