"""The options of a Matrix account."""

import re
from pathlib import Path
from typing import Annotated, Literal, Self

from nio.crypto import ENCRYPTION_ENABLED
from pydantic import AfterValidator, Field, SecretStr, model_validator

from palaver.protocols import SetupGuide, SetupQuestion, check_url
from palaver.protocols.options import AccountOptions

_KEYS = SetupQuestion(
    option="keys",
    prompt="Folder for the keys of encrypted rooms:",
    help="Without these keys the bot cannot read encrypted messages. Back up the folder.",
    default="{folder}/keys/matrix-{account}-rooms",
)

GUIDE = SetupGuide(
    before=(
        (
            "Register an account for the gateway on your homeserver, with Element or, on your own server, with the "
            "command register_new_matrix_user."
        ),
        "Do not use your own account.",
    ),
    questions=[
        SetupQuestion(option="homeserver", prompt="Homeserver URL, for example https://matrix.example.org:"),
        SetupQuestion(option="user_id", prompt="Full user id of the account, for example @helper:example.org:"),
        SetupQuestion(
            option="access_token",
            prompt="Access token (hidden while you type; leave empty to use a password):",
            help="In Element, log in as the account and open Settings, Help & About, Advanced. Close it without "
            "logging out. On homeservers with the Matrix Authentication Service, such as matrix.org, tokens expire "
            "within hours: use the password there.",
            required=False,
        ),
        SetupQuestion(option="password", prompt="Password (hidden while you type):", unless="access_token"),
        *([_KEYS] if ENCRYPTION_ENABLED else []),
    ],
    after=(
        "Invite it to a room, or start a direct chat with it.",
        "By default it accepts invitations from its own homeserver only; change that with the invites option.",
    ),
    owner_prompt="Your own Matrix id, for example @you:example.org?",
    owner_pattern=r"@[^:\s]+:\S+",
    owner_example="@you:example.org",
)


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
