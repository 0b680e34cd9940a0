"""What can be configured for an account on Matrix."""

import re
from pathlib import Path
from typing import Annotated, Literal, Self

from nio.crypto import ENCRYPTION_ENABLED
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator

from palaver.protocols.adapter import SetupGuide, SetupQuestion

__all__ = [
    "GUIDE",
    "Invites",
    "Options",
    "Scope",
]

_KEYS = SetupQuestion(
    option="keys",
    prompt="The folder for the keys of encrypted rooms:",
    help="Without these keys the bot cannot read what was written to it there: keep the folder with your backups.",
    default="{folder}/keys/matrix-{account}-rooms",
)

GUIDE = SetupGuide(
    before=(
        "Register an account for the gateway on your homeserver, as for a person: with Element, or with the command "
        "register_new_matrix_user where the server is yours. Do not use your own account."
    ),
    questions=[
        SetupQuestion(option="homeserver", prompt="The address of the homeserver, like https://matrix.example.org:"),
        SetupQuestion(option="user_id", prompt="The whole id of the account, like @helper:example.org:"),
        SetupQuestion(
            option="access_token",
            prompt="An access token of it, not shown while you type; nothing, to give its password:",
            help="In Element, logged in as the account: Settings, Help & About, Advanced. Then close it, logged in. "
            "Where the homeserver has the Matrix Authentication Service, as matrix.org has, such a token ends within "
            "hours: give the password there.",
            required=False,
        ),
        SetupQuestion(option="password", prompt="Its password, not shown while you type:", unless="access_token"),
        *([_KEYS] if ENCRYPTION_ENABLED else []),
    ],
    after=(
        "Invite it into a room, or begin a direct chat with it. It takes invitations from its own homeserver, unless "
        "the option invites says otherwise."
    ),
    owner_prompt="Your own id on Matrix, like @you:example.org?",
    owner_pattern=r"@[^:\s]+:\S+",
    owner_example="@you:example.org",
)


Scope = Literal["room", "thread"]
Invites = Literal["everybody", "server", "nobody"] | tuple[str, ...]

_USER = re.compile(r"@[^:\s]+:\S+")


def _address(text: str) -> str:
    if not re.fullmatch(r"https?://[^\s/?#]+(/[^\s?#]*)?", text):
        raise ValueError("the address of the homeserver, like https://matrix.example.org")
    return text.rstrip("/")


def _user(text: str) -> str:
    if not _USER.fullmatch(text):
        raise ValueError("the whole id of the account, like @helper:example.org")
    return text


def _folder(path: Path) -> Path:
    whole = path.expanduser()
    if not whole.is_absolute():
        raise ValueError("a whole path, like ~/palaver/matrix-keys")
    return whole


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    homeserver: Annotated[str, AfterValidator(_address), Field(examples=["https://matrix.example.org"])]
    user_id: Annotated[str, AfterValidator(_user), Field(examples=['"@helper:example.org"'])]
    access_token: SecretStr | None = None
    password: SecretStr | None = None
    device_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,100}$")] = "PALAVER"
    """With a password: the device that we log in as, always the same one."""
    keys: Annotated[Path, AfterValidator(_folder)] | None = None
    """The folder for the keys of encrypted rooms; without one, these are not read."""
    invites: Invites = "server"
    """Whose invitations are taken: everybody's, our own homeserver's, nobody's, or those of some people and servers."""
    scope: Scope = "thread"
    """Whether a thread is a conversation of its own, or is heard and answered as if it were said in the room."""

    @model_validator(mode="after")
    def _one_way_in(self) -> Self:
        if (self.access_token is None) == (self.password is None):
            raise ValueError("either access_token or password, and not both")
        return self
