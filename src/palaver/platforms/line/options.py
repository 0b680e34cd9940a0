"""The options of a LINE official account."""

from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from palaver.protocols import check_url
from palaver.protocols.options import AccountOptions

Url = Annotated[str, AfterValidator(check_url("a URL, like https://api.line.me"))]


class LineOptions(AccountOptions):
    channel_secret: SecretStr = Field(min_length=1, description="Signs LINE's calls.")
    token: SecretStr = Field(min_length=1, description="The channel access token.")
    api_url: Url = Field(default="https://api.line.me", description="The API.")
    data_url: Url = Field(default="https://api-data.line.me", description="Where files come from.")
