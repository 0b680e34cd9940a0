"""The options of a Matrix account."""

import re
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, model_validator

from palaver.protocols import check_url
from palaver.protocols.options import AccountOptions

Scope = Literal["room", "thread"]
Invites = Literal["everybody", "server", "nobody"] | tuple[str, ...]
Verifiers = Literal["owner"] | tuple[str, ...]

_USER = re.compile(r"@[^:\s]+:\S+")


_check_url = check_url("the URL of the homeserver, like https://matrix.example.org")


def _check_user_id(text: str) -> str:
    if not _USER.fullmatch(text):
        raise ValueError("the full user id, like @helper:example.org")
    return text


def _check_folder(path: Path) -> Path:
    whole = path.expanduser()
    if not whole.is_absolute():
        raise ValueError("an absolute path, like ~/palaver/matrix-keys")
    return whole


class Options(AccountOptions):
    homeserver: Annotated[str, AfterValidator(_check_url), Field(examples=["https://matrix.example.org"])]
    user_id: Annotated[str, AfterValidator(_check_user_id), Field(examples=['"@helper:example.org"'])]
    access_token: SecretStr | None = None
    password: SecretStr | None = None
    device_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,100}$")] = "PALAVER"
    """The device id for logging in with a password."""
    keys: Annotated[Path, AfterValidator(_check_folder)] | None = None
    """The folder for the keys of encrypted rooms; without it we cannot read them."""
    invites: Invites = "server"
    """Whose invitations to accept: everybody's, our homeserver's, nobody's, or those of listed people and servers."""
    verifiers: Verifiers = "owner"
    """Who can verify our device with emoji: an owner, or the listed people."""
    scope: Scope = "thread"
    """Whether a thread is its own conversation or belongs to that of its room."""

    @model_validator(mode="after")
    def _check_credentials(self) -> Self:
        if (self.access_token is None) == (self.password is None):
            raise ValueError("either access_token or password, not both")
        return self
