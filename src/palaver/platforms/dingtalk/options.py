"""The options of a DingTalk robot."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr

from palaver.protocols import SetupGuide, SetupQuestion, check_url
from palaver.protocols.options import AccountOptions

GUIDE = SetupGuide(
    before=(
        "Open open-dev.dingtalk.com, create an internal app and add a robot to it.",
        "Copy the Client ID (AppKey) and the Client Secret (AppSecret).",
        "Under Permissions, allow the app to send messages as a robot.",
    ),
    questions=[
        SetupQuestion(option="client_id", prompt="Client ID (AppKey), like ding1a2b3c:"),
        SetupQuestion(option="client_secret", prompt="Client Secret (hidden while you type):"),
        SetupQuestion(
            option="mode",
            prompt="How messages come, stream or http:",
            help="With http, DingTalk calls a public address of yours. It does not sign what it sends: prefer stream.",
            default="stream",
        ),
    ],
    after=(
        (
            "In the robot's settings choose the Stream mode (for the mode http the HTTP mode, and enter "
            "https://YOUR-ADDRESS/in/dingtalk/{account}), and publish the robot."
        ),
    ),
    owner_prompt="Your own user id in DingTalk? An administrator sees it in the contacts:",
)

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
