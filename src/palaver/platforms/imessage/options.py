"""The options of an iMessage account: the BlueBubbles server on its Mac."""

import hashlib
import hmac
from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from palaver.protocols import check_url
from palaver.protocols.options import AccountOptions

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
