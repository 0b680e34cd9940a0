"""The options of a Feishu or Lark app."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, model_validator

from palaver.protocols import SetupGuide, SetupQuestion, check_url
from palaver.protocols.options import AccountOptions

GUIDE = SetupGuide(
    before=(
        "Open open.feishu.cn/app (for Lark: open.larksuite.com/app), create a custom app and add the bot capability.",
        (
            "Under Permissions, add im:message, im:message:send_as_bot, im:resource, im:chat:readonly and "
            "contact:user.base:readonly."
        ),
        "Under Events & Callbacks, Encryption strategy, set an Encrypt Key.",
        "Publish a version.",
    ),
    questions=[
        SetupQuestion(option="app_id", prompt="App ID, like cli_a1b2c3:", help="Under Credentials & Basic Info."),
        SetupQuestion(option="app_secret", prompt="App Secret (hidden while you type):"),
        SetupQuestion(
            option="mode",
            prompt="How messages come, http or stream:",
            help="With http, Feishu calls a public address of yours. With stream, the gateway connects to Feishu.",
            default="http",
        ),
        SetupQuestion(
            option="encrypt_key", prompt="Encrypt Key (hidden while you type; not for stream):", required=False
        ),
        SetupQuestion(
            option="verification_token", prompt="Verification Token (hidden while you type; optional):", required=False
        ),
        SetupQuestion(option="api_url", prompt="API:", default="https://open.feishu.cn", required=False),
    ],
    after=(
        (
            "Under Events & Callbacks, enter https://YOUR-ADDRESS/in/feishu/{account} as the request URL of the "
            "events and of the callbacks; for the mode stream, choose the long connection for both."
        ),
        (
            "Add the events im.message.receive_v1, im.message.recalled_v1, im.message.reaction.created_v1 and "
            "im.message.reaction.deleted_v1 and the callback card.action.trigger, and publish another version."
        ),
    ),
    owner_prompt="Your own Feishu id, ou_… or alt:on_…? You can leave it out and pair later:",
    owner_pattern=r"ou_[0-9a-z]+|alt:on_[0-9a-z]+",
    owner_example="ou_7d8a6e6df7621556ce0d21922b676706",
)

Url = Annotated[str, AfterValidator(check_url("a URL, like https://open.feishu.cn or https://open.larksuite.com"))]


class FeishuOptions(AccountOptions):
    app_id: str = Field(pattern=r"^cli_[0-9a-zA-Z]+$", description="The App ID.")
    app_secret: SecretStr = Field(min_length=1, description="The App Secret.")
    mode: Literal["http", "stream"] = Field(
        default="http", description="Whether to be called at a public address, or open a long connection."
    )
    encrypt_key: SecretStr | None = Field(
        default=None, min_length=1, description="Encrypts and signs what Feishu sends you; needed for `http`."
    )
    verification_token: SecretStr | None = Field(default=None, description="Also expected in what Feishu sends you.")
    api_url: Url = Field(default="https://open.feishu.cn", description="For Lark, https://open.larksuite.com.")

    @model_validator(mode="after")
    def _check_key(self) -> Self:
        if self.mode == "http" and self.encrypt_key is None:
            raise ValueError("an encrypt_key for the mode http: without it, anybody could call in Feishu's name")
        return self
