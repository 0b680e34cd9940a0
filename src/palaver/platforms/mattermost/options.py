"""The options of a Mattermost bot."""

from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from palaver.protocols import check_url
from palaver.protocols.options import AccountOptions

Url = Annotated[str, AfterValidator(check_url("a URL, like https://chat.example.org"))]


class MattermostOptions(AccountOptions):
    url: Url = Field(description="The address of the server.")
    token: SecretStr = Field(min_length=1, description="The access token of the bot account.")
