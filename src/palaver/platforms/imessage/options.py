"""The options of an iMessage account: the BlueBubbles server on its Mac."""

import hashlib
import hmac
from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from palaver.protocols import SetupGuide, SetupQuestion, check_url
from palaver.protocols.options import AccountOptions

GUIDE = SetupGuide(
    before=(
        (
            "On a Mac, sign in to Messages with an Apple Account of the agent's own: what that account writes is "
            "never answered."
        ),
        "Install BlueBubbles from bluebubbles.app, give it Full Disk Access and set a server password.",
    ),
    questions=[
        SetupQuestion(
            option="url",
            prompt="URL of the BlueBubbles server, like http://mac.local:1234:",
            help="BlueBubbles shows it under Connection.",
        ),
        SetupQuestion(
            option="password", prompt="Server password (hidden while you type), or the variable that holds it:"
        ),
        SetupQuestion(
            option="public_url",
            prompt="URL where the Mac reaches this gateway's web server; empty to ask the Mac for messages:",
            required=False,
        ),
    ],
    after=(
        (
            "Typing, read receipts and inline replies need the private API of BlueBubbles: turn it on there under "
            "Private API."
        ),
        "Everything else works without it.",
    ),
    owner_prompt="Your own iMessage address: the phone number or e-mail address that you write from?",
    owner_pattern=r"\+[0-9]{4,15}|[^@\s]+@[^@\s]+",
    owner_example="+15551234567",
)

Url = Annotated[str, AfterValidator(check_url("a URL, like http://mac.local:1234"))]


class IMessageOptions(AccountOptions):
    url: Url = Field(description="URL of the BlueBubbles server.")
    password: SecretStr = Field(min_length=1, description="The server password of BlueBubbles.")
    public_url: Url | None = Field(
        default=None, description="Your web server as the Mac reaches it: BlueBubbles then calls you at once."
    )
    secret: SecretStr | None = Field(
        default=None, min_length=8, description="With `public_url`: the secret in these calls; by default derived."
    )
    poll_seconds: float = Field(
        default=2.0, gt=0, le=3600, description="Without `public_url`: how often to ask for new messages."
    )
    read_receipts: bool = Field(default=True, description="Mark chats as read; needs the private API.")

    @property
    def shared_secret(self) -> str:
        """The secret in BlueBubbles' calls; the same in every worker."""
        if self.secret:
            return self.secret.get_secret_value()
        return hmac.new(self.password.get_secret_value().encode(), b"palaver webhook", hashlib.sha256).hexdigest()
