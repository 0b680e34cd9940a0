"""The options of topics on an ntfy server."""

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

from palaver.protocols import check_url, split_names
from palaver.protocols.options import AccountOptions

Url = Annotated[str, AfterValidator(check_url("a URL, like https://ntfy.sh"))]
Topic = Annotated[str, Field(pattern=r"^[-_A-Za-z0-9]{1,64}$")]


class NtfyOptions(AccountOptions):
    topics: Annotated[list[Topic], BeforeValidator(split_names)] = Field(
        min_length=1, max_length=20, description="The topics; each is a chat."
    )
    token: SecretStr | None = Field(default=None, description="An access token, if the topics are protected.")
    url: Url = Field(default="https://ntfy.sh", description="The server.")
