"""The options of a Discord bot."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr, field_validator

from palaver.protocols import check_secret, check_url
from palaver.protocols.options import AccountOptions

_TOKEN = check_secret(
    r"[A-Za-z0-9_-]{1,100}(\.[A-Za-z0-9_-]{1,100}){2}",
    "the bot's token: three parts with dots between them, from the page Bot",
)
_ROLE = re.compile(r"[1-9][0-9]{0,19}")


class DiscordOptions(AccountOptions):
    token: Annotated[SecretStr, AfterValidator(_TOKEN)] = Field(
        description="The token from the page Bot of your application."
    )
    roles: tuple[str, ...] = Field(
        default=(),
        description="Ids of server roles. People with one of them meet grants with the basis `platform-role`.",
    )
    auto_thread: bool = Field(
        default=False, description="Answer each mention in a channel in a new thread at that message."
    )
    api_url: Annotated[str, AfterValidator(check_url("a URL, like https://discord.com/api/v10"))] = Field(
        default="https://discord.com/api/v10", description="URL of the API."
    )

    @field_validator("roles", mode="before")
    @classmethod
    def _check_roles(cls, roles: object) -> object:
        """YAML reads an id as a number."""
        found = [str(role) for role in roles] if isinstance(roles, list | tuple) else []  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        if not isinstance(roles, list | tuple) or not all(_ROLE.fullmatch(role) for role in found):
            raise ValueError('a list of role ids, like ["41771983423143936"]')
        return found
