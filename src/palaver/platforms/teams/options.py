"""The options of a Teams bot."""

from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from palaver.protocols import check_url
from palaver.protocols.options import AccountOptions

Url = Annotated[str, AfterValidator(check_url("a URL, like https://smba.trafficmanager.net/teams"))]


class TeamsOptions(AccountOptions):
    app_id: str = Field(pattern=r"^[0-9a-fA-F-]{36}$", description="The Microsoft App ID.")
    app_secret: SecretStr = Field(min_length=1, description="The client secret.")
    tenant: str = Field(
        default="botframework.com",
        pattern=r"^[0-9a-zA-Z.-]+$",
        description="The tenant of a single-tenant app.",
    )
    service_url: Url = Field(
        default="https://smba.trafficmanager.net/teams",
        description="Where messages go to chats that have not written since the gateway started.",
    )
    login_url: Url = Field(default="https://login.microsoftonline.com", description="Where tokens come from.")
    keys_url: Url = Field(
        default="https://login.botframework.com/v1/.well-known/openidconfiguration",
        description="Where the keys come from that sign Microsoft's calls.",
    )
