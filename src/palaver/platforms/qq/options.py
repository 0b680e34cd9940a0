"""The options of a QQ bot."""

from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from palaver.protocols import SetupGuide, SetupQuestion, check_url
from palaver.protocols.options import AccountOptions

GUIDE = SetupGuide(
    before=(
        "Open q.qq.com and create a bot.",
        (
            "Under Development Settings copy the AppID and the AppSecret, and add the address of this machine to the "
            "IP whitelist."
        ),
    ),
    questions=[
        SetupQuestion(option="app_id", prompt="AppID (digits):"),
        SetupQuestion(option="app_secret", prompt="AppSecret (hidden while you type):"),
    ],
    after=(
        (
            "Under Callback Settings enter https://YOUR-ADDRESS/in/qq/{account}, on port 80, 443, 8080 or 8443, and "
            "choose the events C2C_MESSAGE_CREATE and GROUP_AT_MESSAGE_CREATE."
        ),
    ),
    owner_prompt="Your own OpenID for this bot? You can leave it out and pair later:",
)

Url = Annotated[str, AfterValidator(check_url("a URL, like https://api.sgroup.qq.com"))]


class QqOptions(AccountOptions):
    app_id: str = Field(pattern=r"^[0-9]+$", description="The AppID.")
    app_secret: SecretStr = Field(min_length=1, description="The AppSecret; QQ's signatures are made with it.")
    api_url: Url = Field(default="https://api.sgroup.qq.com", description="The API; the sandbox has another one.")
    token_url: Url = Field(default="https://bots.qq.com", description="Where access tokens come from.")
