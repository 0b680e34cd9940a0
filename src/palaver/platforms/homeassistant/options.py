"""The options of a Home Assistant server."""

from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from palaver.protocols import check_url
from palaver.protocols.options import AccountOptions

PERSISTENT = "persistent_notification"
"""The notifications in Home Assistant's own pages."""
Url = Annotated[str, AfterValidator(check_url("a URL, like http://homeassistant.local:8123"))]


class HomeAssistantOptions(AccountOptions):
    url: Url = Field(description="The address of Home Assistant.", examples=["http://homeassistant.local:8123"])
    token: SecretStr = Field(min_length=1, description="A long-lived access token of an administrator.")
    notify: str = Field(
        default=PERSISTENT,
        pattern=r"^(?:notify\.)?[a-z0-9_]+$",
        description="Where answers go, unless an event says so.",
        examples=["mobile_app_anns_phone"],
    )
    event: str = Field(default="palaver_message", pattern=r"^[a-z0-9_]+$", description="The event that is a message.")
