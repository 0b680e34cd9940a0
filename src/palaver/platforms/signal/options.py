"""The options of a Signal account, and the steps of `palaver setup signal`."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field, field_validator

from palaver.protocols import SetupGuide, SetupQuestion, check_url
from palaver.protocols.options import AccountOptions

GUIDE = SetupGuide(
    before=(
        "Install signal-cli: Signal has no bots, so Palaver uses an account of its own through that program.",
        (
            "Either link it to a phone that has the account (signal-cli link -n palaver, and "
            "scan the code in Signal under Settings, Linked devices), or register a number that no phone uses "
            "(signal-cli -a NUMBER register)."
        ),
        (
            "Start it and keep it running:\n  signal-cli -a NUMBER daemon --http 127.0.0.1:8080 --receive-mode "
            "on-connection"
        ),
    ),
    questions=[
        SetupQuestion(option="number", prompt="Number of the account, like +15550100200:"),
        SetupQuestion(option="url", prompt="URL of signal-cli:", default="http://127.0.0.1:8080"),
    ],
    after=(
        "Everybody who writes to this number writes to the agent.",
        "Do not use your own number: people would take the agent's answers for yours.",
    ),
    owner_prompt="Your own Signal number, or alt: and your account id if you hide your number?",
    owner_pattern=r"\+[1-9][0-9]{4,14}|alt:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    owner_example="+15550100300",
)

_NUMBER = re.compile(r"\+[1-9][0-9]{4,14}")
Url = Annotated[str, AfterValidator(check_url("a URL, like http://127.0.0.1:8080"))]


class SignalOptions(AccountOptions):
    number: str = Field(description="The phone number of the account, with its country code.")
    url: Url = Field(default="http://127.0.0.1:8080", description="URL of the signal-cli daemon.")
    read_receipts: bool = Field(default=True, description="Whether people see that their message was read.")

    @field_validator("number")
    @classmethod
    def _check_number(cls, number: str) -> str:
        if not _NUMBER.fullmatch(number):
            raise ValueError("a phone number with its country code and no spaces, like +15550100200")
        return number
