"""The options of a telephone number at Twilio."""

from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from palaver.protocols import check_url
from palaver.protocols.options import AccountOptions

Url = Annotated[str, AfterValidator(check_url("a URL, like https://api.twilio.com"))]


class SmsOptions(AccountOptions):
    account_sid: str = Field(pattern=r"^AC[0-9a-f]{32}$", description="The Account SID.")
    auth_token: SecretStr = Field(min_length=1, description="The Auth Token, which also signs Twilio's calls.")
    sender: str = Field(
        pattern=r"^(\+[1-9][0-9]{6,14}|MG[0-9a-f]{32}|[0-9]{3,8})$",
        description="Your number, short code or messaging service.",
    )
    webhook_url: Url = Field(description="The address that Twilio calls, exactly as you entered it: it is signed.")
    api_url: Url = Field(default="https://api.twilio.com", description="The API.")
