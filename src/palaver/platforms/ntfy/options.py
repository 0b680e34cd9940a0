"""The options of topics on an ntfy server."""

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

from palaver.protocols import SetupGuide, SetupQuestion, check_url, split_names
from palaver.protocols.options import AccountOptions

GUIDE = SetupGuide(
    before=(
        (
            "Choose a topic that nobody can guess: on an open server, everybody who knows its name can read and write "
            "there."
        ),
        "Or protect it on a server of yours, and make an access token for the gateway.",
    ),
    questions=[
        SetupQuestion(option="url", prompt="Server:", default="https://ntfy.sh", required=False),
        SetupQuestion(option="topics", prompt="Topic:"),
        SetupQuestion(option="token", prompt="Access token (hidden while you type; optional):", required=False),
    ],
    after=("Subscribe to the topic in the app or on the web page of the server, and write there.",),
    owner_prompt="Should everybody who can write to the topic be an owner? Then enter its name again, or pair later:",
    owner_pattern=r"[-_A-Za-z0-9]{1,64}",
    owner_example="helper-7Kx2mP9q",
)

Url = Annotated[str, AfterValidator(check_url("a URL, like https://ntfy.sh"))]
Topic = Annotated[str, Field(pattern=r"^[-_A-Za-z0-9]{1,64}$")]


class NtfyOptions(AccountOptions):
    topics: Annotated[list[Topic], BeforeValidator(split_names)] = Field(
        min_length=1, max_length=20, description="The topics; each is a chat."
    )
    token: SecretStr | None = Field(default=None, description="An access token, if the topics are protected.")
    url: Url = Field(default="https://ntfy.sh", description="The server.")
