"""The options of a Teams bot."""

from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from palaver.protocols import SetupGuide, SetupQuestion, check_url
from palaver.protocols.options import AccountOptions

GUIDE = SetupGuide(
    before=(
        "Open portal.azure.com and create an Azure Bot (type of app: single tenant).",
        "Under Configuration, note the Microsoft App ID and the tenant; under Manage Password, add a client secret.",
        "Under Channels, add Microsoft Teams.",
    ),
    questions=[
        SetupQuestion(option="app_id", prompt="Microsoft App ID:"),
        SetupQuestion(option="app_secret", prompt="Client secret, its value (hidden while you type):"),
        SetupQuestion(option="tenant", prompt="Tenant ID of the app:"),
    ],
    after=(
        (
            "Under Configuration of the Azure Bot, enter https://YOUR-ADDRESS/in/teams/{account} as the messaging "
            "endpoint."
        ),
        "Make an app for the bot at dev.teams.microsoft.com, with the scopes that you want, and install it.",
    ),
    owner_prompt="Your own object ID in Microsoft Entra, as alt:ID? You can leave it out and pair later:",
    owner_pattern=r"29:.+|alt:[0-9a-f-]{36}",
    owner_example="alt:4c0bd3c4-8a5e-4e0e-9f0c-0f6a0c3f6a11",
)

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
