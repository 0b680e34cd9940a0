"""The options of a telephone number at Twilio."""

from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from palaver.protocols import SetupGuide, SetupQuestion, check_url
from palaver.protocols.options import AccountOptions

GUIDE = SetupGuide(
    before=(
        (
            "Buy a number that can send and receive SMS at console.twilio.com, and register it if its country asks "
            "for that."
        ),
        "The console shows the Account SID and the Auth Token.",
    ),
    questions=[
        SetupQuestion(option="account_sid", prompt="Account SID, AC and 32 digits:"),
        SetupQuestion(option="auth_token", prompt="Auth Token (hidden while you type):"),
        SetupQuestion(option="sender", prompt="Your number, like +15550100300, or the SID of a messaging service:"),
        SetupQuestion(option="webhook_url", prompt="Your address, like https://gateway.example.org/in/sms/main:"),
    ],
    after=(
        "In the console, open the number, Messaging.",
        (
            "Enter that address, https://YOUR-ADDRESS/in/sms/{account}, for A message comes in (Webhook, HTTP POST), "
            "and once more for Primary handler fails."
        ),
    ),
    owner_prompt="Your own number? Anybody can forge one, so better leave it out:",
    owner_pattern=r"\+[1-9][0-9]{6,14}",
    owner_example="+15550100301",
)

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
