"""The options of a Home Assistant server."""

from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from palaver.protocols import SetupGuide, SetupQuestion, check_url
from palaver.protocols.options import AccountOptions

GUIDE = SetupGuide(
    before=(
        "In Home Assistant, open the profile of an administrator, Security, and create a long-lived access token.",
        "Find the name of your phone under Settings, Tools, Actions: it begins with notify.mobile_app_.",
    ),
    questions=[
        SetupQuestion(option="url", prompt="Address of Home Assistant, like http://homeassistant.local:8123:"),
        SetupQuestion(option="token", prompt="Access token (hidden while you type):"),
        SetupQuestion(
            option="notify", prompt="Where answers go, like mobile_app_anns_phone (optional):", required=False
        ),
    ],
    after=("Fire the event palaver_message with a text, from an automation or under Settings, Tools, Events.",),
    owner_prompt="Your own user id in Home Assistant (32 letters and digits; or pair later)?",
    owner_pattern=r"[0-9a-f]{32}",
    owner_example="31ddb597e03147118cf8d2f8fbea5553",
)

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
