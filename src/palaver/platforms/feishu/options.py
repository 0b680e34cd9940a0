"""The options of a Feishu or Lark app."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, model_validator

from palaver.protocols import check_url
from palaver.protocols.options import AccountOptions

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
